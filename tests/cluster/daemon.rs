//! The daemon as its own process.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
};

use super::assets;

/// What a daemon is started with.
#[derive(Debug, Clone)]
pub(crate) struct Start {
    /// Name of the process in this test: of its log and of its clone.
    pub(crate) name: String,
    /// Text of the kubeconfig.
    pub(crate) kubeconfig: String,
    /// Text of the configuration.
    pub(crate) config: String,
    /// More arguments.
    pub(crate) more: Vec<String>,
}

/// A running daemon; it is killed when dropped.
pub(crate) struct Daemon {
    child: Child,
    log: PathBuf,
}

impl Daemon {
    /// Starts it with its files below `dir`. What it says is added to the log of that name.
    pub(crate) fn start(dir: &Path, start: &Start) -> Self {
        let Start { name, kubeconfig, config, more } = start;
        let own = dir.join(name);
        fs::create_dir_all(&own).unwrap();
        fs::write(own.join("kubeconfig"), kubeconfig).unwrap();
        fs::write(own.join("config.yaml"), config).unwrap();
        let log = dir.join(format!("{name}.log"));
        let file = File::options().create(true).append(true).open(&log).unwrap();
        let child = assets::bound(Path::new(env!("CARGO_BIN_EXE_trunkline")))
            .args(["run", "--allow-local", "--log-format", "json", "--config"])
            .arg(own.join("config.yaml"))
            .arg("--kubeconfig")
            .arg(own.join("kubeconfig"))
            .arg("--data-dir")
            .arg(own.join("data"))
            .args(more)
            .env_clear()
            .env("HOME", &own)
            .env("POD_NAME", name)
            .env("RUST_BACKTRACE", "1")
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        Self { child, log }
    }

    /// What it has said so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by its name: `TERM`, `STOP`, `CONT`.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status();
        assert!(sent.unwrap().success(), "kill -{name}");
    }

    /// Kills it with SIGKILL and waits for its end.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its end.
    pub(crate) fn wait(mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}
