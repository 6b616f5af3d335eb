//! The section of the README about a real cluster, command by command, on a real control plane.
//!
//! No kubelet runs the pods: of the Deployment's one, the container is run here as a process, with its files and the
//! token of its account, and a `kubectl` before the real one leads `exec` and `port-forward` to it.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    net::TcpListener,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use http::Method;
use serde_json::{Value, json};

use super::{
    Case,
    plane::User,
    running, say,
    scene::Scene,
    server::{AUTHORIZATION, GitServer, TOKEN},
};

pub(crate) const CASES: &[Case] =
    &[("readme::the_section_about_a_real_cluster_goes_as_it_stands", |programs| running(section(programs)))];

/// Longest time for the whole section.
const LIMIT: Duration = Duration::from_secs(480);
const SYSTEM: &str = "/api/v1/namespaces/kube-system";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/kube-system/deployments/trunkline";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Blocks of commands in the section, the first with the settings.
fn blocks() -> Vec<String> {
    let readme = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let (_, section) = readme.split_once("\n## On a real cluster\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let blocks = section.split("```sh\n").skip(1);
    blocks.map(|block| block.split_once("```").unwrap().0.to_owned()).collect()
}

/// Names that lines of `export` set.
fn exported(block: &str) -> BTreeSet<&str> {
    block.lines().map(|line| line.strip_prefix("export ").unwrap().split_once('=').unwrap().0).collect()
}

/// `kubectl` as the section meets it: what needs a kubelet is done here.
const KUBECTL: &str = r#"#!/bin/bash
case "$*" in
*" exec deployment/trunkline -- "*)
    until [ -e "$POD/started" ]; do sleep 0.1; done
    while [ "$1" != -- ]; do shift; done
    shift
    cd "$POD" && KUBECONFIG="$POD/kubeconfig" POD_NAMESPACE=kube-system exec "${@//\/etc\/trunkline/$POD/etc/trunkline}" --allow-local ;;
*" port-forward deployment/trunkline "*) exec sleep 600 ;;
*) exec "$KUBECTL" "$@" ;;
esac
"#;

/// The container of the Deployment's pod.
struct Pod<'s> {
    scene: &'s Scene,
    dir: PathBuf,
    port: u16,
    process: Option<Child>,
}

impl Pod<'_> {
    /// Runs it once everything that it mounts is there.
    async fn tend(&mut self) {
        if self.process.is_some() {
            return;
        }
        let Some(deployment) = self.scene.get(DEPLOYMENT).await else { return };
        let pod = &deployment["spec"]["template"]["spec"];
        let volumes = pod["volumes"].as_array().unwrap();
        let of = |name: &str| volumes.iter().find(|volume| volume["name"] == name).unwrap();
        let config = of("config")["configMap"]["name"].as_str().unwrap();
        let Some(config) = self.scene.get(&format!("{SYSTEM}/configmaps/{config}")).await else { return };
        let secret = of("git-platform")["secret"]["secretName"].as_str().unwrap();
        if self.scene.get(&format!("{SYSTEM}/secrets/{secret}")).await.is_none() {
            return;
        }
        self.mount("config/config.yaml", config["data"]["config.yaml"].as_str().unwrap());
        self.mount("git/platform/token", TOKEN);
        let asked = json!({ "spec": { "expirationSeconds": 3600 } });
        let account = format!("{SYSTEM}/serviceaccounts/trunkline/token");
        let token = self.scene.ask(Method::POST, &account, &asked).await;
        let token = token["status"]["token"].as_str().unwrap();
        fs::write(self.dir.join("kubeconfig"), self.scene.plane.kubeconfig_of(token)).unwrap();
        self.process = Some(self.run(&pod["containers"][0]));
        fs::write(self.dir.join("started"), "").unwrap();
    }

    /// Writes a file below `/etc/trunkline` of the container; paths in it lead there too.
    fn mount(&self, name: &str, text: &str) {
        let path = self.dir.join("etc/trunkline").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, self.inside(text)).unwrap();
    }

    fn inside(&self, text: &str) -> String {
        let root = self.dir.display();
        let text = text.replace("/etc/trunkline", &format!("{root}/etc/trunkline"));
        text.replace("/var/lib/trunkline", &format!("{root}/var/lib/trunkline"))
    }

    fn run(&self, container: &Value) -> Child {
        let args = container["args"].as_array().unwrap();
        let log = File::create(self.dir.join("log")).unwrap();
        Command::new(env!("CARGO_BIN_EXE_trunkline"))
            .args(args.iter().map(|arg| self.inside(arg.as_str().unwrap())))
            .args(["--allow-local", "--metrics-bind-address", &format!("127.0.0.1:{}", self.port)])
            .env_clear()
            .env("KUBECONFIG", self.dir.join("kubeconfig"))
            .env("POD_NAMESPACE", "kube-system")
            .env("POD_NAME", "trunkline-0")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap()
    }
}

impl Drop for Pod<'_> {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ended = process.kill();
            let _status = process.wait();
        }
    }
}

/// The section as one script, with other settings.
fn script(git: &GitServer, port: u16) -> String {
    let blocks = blocks();
    let (settings, commands) = blocks.split_first().unwrap();
    let own = format!(
        "export CLUSTER=prod-1\nexport REPOSITORY={}\nexport TOKEN={TOKEN}\n\
         export IMAGE=registry.example.com/platform/trunkline\nexport RUNS=v3.27.2\nexport VERSION=v3.28.0\nexport MINUTES=0\n\
         export PORT={port}\n",
        git.url()
    );
    assert_eq!(
        exported(settings),
        exported(&own),
        "the settings of the section are others than those of its test"
    );
    assert!(commands.len() > 8, "{commands:?}");
    format!("set -eumxo pipefail\n{own}{}", commands.concat())
}

/// Starts the script in a clone of its own, as somebody who has this kubeconfig and may push.
fn shell(dir: &Path, kubeconfig: &str, kubectl: &Path, script: &str) -> Child {
    for folder in ["pod", "bin", "clone"] {
        fs::create_dir_all(dir.join(folder)).unwrap();
    }
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy");
    let copied = Command::new("cp").arg("-r").arg(deploy).arg(dir.join("clone")).status();
    assert!(copied.unwrap().success());
    symlink(env!("CARGO_BIN_EXE_trunkline"), dir.join("bin/trunkline")).unwrap();
    fs::write(dir.join("bin/kubectl"), KUBECTL).unwrap();
    fs::set_permissions(dir.join("bin/kubectl"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(dir.join("kubeconfig"), kubeconfig).unwrap();
    fs::write(dir.join("script"), script).unwrap();

    let log = File::create(dir.join("output")).unwrap();
    let path = format!("{}:{}", dir.join("bin").display(), std::env::var("PATH").unwrap());
    Command::new("bash")
        .arg(dir.join("script"))
        .current_dir(dir.join("clone"))
        .env_clear()
        .envs([("PATH", path.as_str()), ("GIT_CONFIG_COUNT", "3"), ("GIT_TERMINAL_PROMPT", "0")])
        .envs([("GIT_CONFIG_KEY_0", "user.name"), ("GIT_CONFIG_VALUE_0", "operator")])
        .envs([("GIT_CONFIG_KEY_1", "user.email"), ("GIT_CONFIG_VALUE_1", "operator@example.com")])
        .envs([("GIT_CONFIG_KEY_2", "http.extraHeader")])
        .env("GIT_CONFIG_VALUE_2", format!("Authorization: {AUTHORIZATION}"))
        .env("HOME", dir)
        .env("POD", dir.join("pod"))
        .env("KUBECTL", kubectl)
        .env("KUBECONFIG", dir.join("kubeconfig"))
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap()
}

async fn section(programs: PathBuf) {
    let Some(kubectl) = found("kubectl") else {
        say("left out: there is no kubectl to run the commands of the README with");
        return;
    };
    let scene = Scene::new(&programs, 4, &[]).await;
    // The section installs them.
    for name in ["cniupgrades.cni.example.com", "serviceupgrades.service.example.com"] {
        scene.ask(Method::DELETE, &format!("{DEFINITIONS}/{name}"), &json!({})).await;
    }
    let git = GitServer::start();
    git.repository().commit("main", &[("README.md", "# network\n")]);
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let dir = scene.plane.dir().join("readme");
    let mut pod = Pod { scene: &scene, dir: dir.join("pod"), port, process: None };
    let kubeconfig = scene.plane.kubeconfig(User::Admin, scene.plane.port());
    let mut shell = shell(&dir, &kubeconfig, &kubectl, &script(&git, port));
    let deadline = Instant::now() + LIMIT;
    let ended = loop {
        if let Some(status) = shell.try_wait().unwrap() {
            break Some(status);
        }
        if Instant::now() > deadline {
            shell.kill().unwrap();
            break None;
        }
        pod.tend().await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    let output = fs::read_to_string(dir.join("output")).unwrap();
    assert!(ended.is_some_and(|status| status.success()), "{ended:?}\n{output}");
    assert_eq!(scene.running("v3.27.2").await, 4, "{output}");
    // A control plane that is built from its modules does not know its version, which is a warning.
    assert_eq!(output.matches("\n0 faults, 1 warning\n").count(), 2, "{output}");
    let gone = async || scene.get(DEPLOYMENT).await.is_none().then_some(());
    scene.until("the Deployment is gone", 30, gone).await;
}

/// Path of a program.
fn found(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|path| path.is_file())
}
