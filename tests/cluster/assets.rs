//! The programs of the control plane: where they are, or how they are built.

use std::{
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

/// Programs that a folder must hold.
pub(crate) const PROGRAMS: [&str; 6] =
    ["certificates", "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"];

/// Finds the folder with the programs: `KUBEBUILDER_ASSETS`, or a build of `tests/control-plane` below the target
/// folder. `Err` says plainly why there is none; that the variable leads nowhere is a panic.
pub(crate) fn find() -> Result<PathBuf, String> {
    if let Some(named) = std::env::var_os("KUBEBUILDER_ASSETS") {
        let folder = PathBuf::from(named);
        let absent: Vec<_> = PROGRAMS.iter().filter(|name| !folder.join(name).exists()).collect();
        assert!(absent.is_empty(), "KUBEBUILDER_ASSETS={}: {absent:?} are not there", folder.display());
        return Ok(folder);
    }
    if Command::new("go").arg("version").output().is_err() {
        return Err("there is no Go here to build it, and KUBEBUILDER_ASSETS is not set".to_owned());
    }
    build(&target().join("control-plane"))
}

/// The folder that holds what is built, logs of failures among it.
pub(crate) fn target() -> PathBuf {
    // The test runs as target/debug/deps/cluster-<hash>.
    let own = std::env::current_exe().unwrap();
    own.ancestors()
        .find(|path| path.file_name().is_some_and(|name| name == "target"))
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("target"), Path::to_path_buf)
}

/// A command whose process is killed when the thread that starts it ends, however that comes: nothing of a test that
/// is killed stays behind. It takes `setpriv` of util-linux; without it the tests' own ends must do.
pub(crate) fn bound(program: &Path) -> Command {
    let setpriv = Path::new("/usr/bin/setpriv");
    if !setpriv.exists() {
        return Command::new(program);
    }
    let mut command = Command::new(setpriv);
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

fn build(folder: &Path) -> Result<PathBuf, String> {
    let program = folder.join("control-plane");
    if !program.exists() {
        super::say("building the control plane of the tests with Go; the first time takes minutes");
    }
    let built = Command::new("go")
        .args(["build", "-o"])
        .arg(&program)
        .arg(".")
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/control-plane"))
        .env("CGO_ENABLED", "0")
        .output()
        .map_err(|error| error.to_string())?;
    if !built.status.success() {
        return Err(format!("`go build` failed: {}", String::from_utf8_lossy(&built.stderr)));
    }
    for name in PROGRAMS {
        let link = folder.join(name);
        if !link.exists() {
            symlink("control-plane", link).map_err(|error| error.to_string())?;
        }
    }
    Ok(folder.to_owned())
}
