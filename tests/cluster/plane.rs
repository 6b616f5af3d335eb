//! A real control plane: etcd, kube-apiserver, controllers, scheduler, and fake kubelets.
//!
//! Every plane has its own ports on loopback, its own certificates, token and data, and ends by its own process ids.
//! Controllers start only after the API server has answered to the token of this plane: a port that somebody else
//! took in between must not get their writes.

use std::{
    fs::{self, File},
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use tempfile::TempDir;

use super::assets;

/// How long a part may take until it answers.
const START: Duration = Duration::from_secs(60);

/// The parts, in the order in which they start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    Etcd,
    ApiServer,
    Controllers,
    Scheduler,
    Kubelets,
}

impl Part {
    const fn program(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::Controllers => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Kubelets => "kwok",
        }
    }
}

/// A running control plane; it ends when dropped, and keeps its folder if the test failed.
pub(crate) struct ControlPlane {
    programs: PathBuf,
    dir: Option<TempDir>,
    ports: Ports,
    secret: String,
    children: Vec<(Part, Child)>,
    /// Whether the controllers have the limits of their default flags towards the API server.
    default_limits: bool,
    kept: bool,
    pub(crate) client: Client,
}

#[derive(Debug, Clone, Copy)]
struct Ports {
    etcd: u16,
    peer: u16,
    api: u16,
}

impl Ports {
    fn free() -> Self {
        let held: Vec<_> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let port = |index: usize| held[index].local_addr().unwrap().port();
        Self { etcd: port(0), peer: port(1), api: port(2) }
    }
}

impl ControlPlane {
    /// Starts everything; `stages` is how the fake kubelets behave (`kwok.rs`).
    pub(crate) async fn start(programs: &Path, stages: &str) -> Self {
        let mut plane = Self::api_only(programs).await;
        fs::write(plane.path("kwok.yaml"), stages).unwrap();
        for part in [Part::Controllers, Part::Scheduler, Part::Kubelets] {
            plane.begin(part);
        }
        plane
    }

    /// Starts etcd and the API server.
    pub(crate) async fn api_only(programs: &Path) -> Self {
        for _ in 0..3 {
            if let Some(plane) = Self::attempt(programs).await {
                return plane;
            }
        }
        panic!("three times the API server did not get its ports");
    }

    async fn attempt(programs: &Path) -> Option<Self> {
        let dir = tempfile::Builder::new().prefix("control-plane-").tempdir().unwrap();
        let made = Command::new(programs.join("certificates")).arg(dir.path()).status().unwrap();
        assert!(made.success(), "no certificates");
        let secret = unguessed();
        let line = |user: User| {
            let name = user.name();
            format!("{},{name},{name},\"system:masters\"\n", token(user, &secret))
        };
        fs::write(dir.path().join("tokens.csv"), User::ALL.map(line).concat()).unwrap();
        fs::write(dir.path().join("audit.yaml"), AUDIT).unwrap();
        let ports = Ports::free();
        let kubeconfig = |user| kubeconfig(dir.path(), ports.api, &token(user, &secret));
        fs::write(dir.path().join("kubeconfig"), kubeconfig(User::Cluster)).unwrap();
        let client = client(&kubeconfig(User::Admin)).await;
        let mut plane = Self {
            programs: programs.to_owned(),
            dir: Some(dir),
            ports,
            secret,
            children: Vec::new(),
            default_limits: false,
            kept: false,
            client,
        };
        plane.begin(Part::Etcd);
        plane.begin(Part::ApiServer);
        plane.is_ready().await.then_some(plane)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.as_ref().unwrap().path().join(name)
    }

    /// The folder of this plane, for files of the test as well.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.as_ref().unwrap().path()
    }

    /// The audit log, a JSON object a line.
    pub(crate) fn audit_log(&self) -> PathBuf {
        self.path("audit.log")
    }

    /// Port of the API server.
    pub(crate) fn port(&self) -> u16 {
        self.ports.api
    }

    /// A kubeconfig of a user that leads to this port: the API server's, or that of a proxy before it.
    pub(crate) fn kubeconfig(&self, user: User, port: u16) -> String {
        kubeconfig(self.dir(), port, &token(user, &self.secret))
    }

    /// A client of a user.
    pub(crate) async fn client_of(&self, user: User) -> Client {
        client(&self.kubeconfig(user, self.ports.api)).await
    }

    /// A kubeconfig of whoever the token belongs to.
    pub(crate) fn kubeconfig_of(&self, token: &str) -> String {
        kubeconfig(self.dir(), self.ports.api, token)
    }

    /// Starts a part.
    pub(crate) fn begin(&mut self, part: Part) {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.path(&format!("{}.log", part.program())))
            .unwrap();
        let child = assets::bound(&self.programs.join(part.program()))
            .args(self.arguments(part))
            .current_dir(self.dir())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.children.push((part, child));
    }

    /// Kills a part with SIGKILL, as a machine does that loses power.
    pub(crate) fn kill(&mut self, part: Part) {
        let at = self.children.iter().position(|(of, _)| *of == part).expect("the part runs");
        let (_, mut child) = self.children.remove(at);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Sends a signal to a part by its name: `STOP`, `CONT`.
    pub(crate) fn signal(&self, part: Part, name: &str) {
        let (_, child) = self.children.iter().find(|(of, _)| *of == part).expect("the part runs");
        let sent = Command::new("kill").arg(format!("-{name}")).arg(child.id().to_string()).status();
        assert!(sent.unwrap().success(), "kill -{name}");
    }

    /// Starts the controllers anew with their default flags: 20 requests a second.
    #[allow(dead_code, reason = "the bench of figures needs it")]
    pub(crate) fn controllers_at_default_limits(&mut self) {
        self.default_limits = true;
        self.kill(Part::Controllers);
        self.begin(Part::Controllers);
    }

    /// Has etcd forget every change before a version.
    pub(crate) fn compact(&self, version: &str) {
        let body = serde_json::json!({ "revision": version }).to_string();
        let mut stream = TcpStream::connect(("127.0.0.1", self.ports.etcd)).unwrap();
        write!(
            stream,
            "POST /v3/kv/compaction HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    /// Ends all parts: children first, etcd last.
    pub(crate) fn stop(&mut self) {
        while let Some((_, mut child)) = self.children.pop() {
            let _gone = child.kill();
            let _status = child.wait();
        }
    }

    /// Keeps logs and data beyond the end.
    pub(crate) fn keep(&mut self) {
        self.kept = true;
    }

    /// Waits until the API server answers to the token of this plane; `false` = it ended.
    pub(crate) async fn is_ready(&mut self) -> bool {
        let deadline = Instant::now() + START;
        while Instant::now() < deadline {
            for (part, child) in &mut self.children {
                if child.try_wait().unwrap().is_some() {
                    super::say(&format!("{} ended at its start", part.program()));
                    return false;
                }
            }
            let asked = http::Request::get("/readyz").body(Vec::new()).unwrap();
            if self.client.request_text(asked).await.is_ok_and(|text| text == "ok") {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the API server was not ready in time");
    }

    /// What controllers and scheduler are started with.
    fn client_arguments(&self) -> Vec<String> {
        let mut arguments = vec![
            format!("--kubeconfig={}", self.path("kubeconfig").display()),
            "--leader-elect=false".to_owned(),
            "--secure-port=0".to_owned(),
        ];
        if !self.default_limits {
            arguments.extend(["--kube-api-qps=500".to_owned(), "--kube-api-burst=1000".to_owned()]);
        }
        arguments
    }

    fn arguments(&self, part: Part) -> Vec<String> {
        let Ports { etcd, peer, api } = self.ports;
        let at = |name: &str| self.path(name).display().to_string();
        match part {
            Part::Etcd => vec![
                format!("--data-dir={}", at("etcd")),
                format!("--listen-client-urls=http://127.0.0.1:{etcd}"),
                format!("--advertise-client-urls=http://127.0.0.1:{etcd}"),
                format!("--listen-peer-urls=http://127.0.0.1:{peer}"),
                format!("--initial-advertise-peer-urls=http://127.0.0.1:{peer}"),
                format!("--initial-cluster=default=http://127.0.0.1:{peer}"),
                "--unsafe-no-fsync".to_owned(),
                "--log-level=warn".to_owned(),
            ],
            Part::ApiServer => vec![
                format!("--etcd-servers=http://127.0.0.1:{etcd}"),
                "--bind-address=127.0.0.1".to_owned(),
                "--advertise-address=127.0.0.1".to_owned(),
                "--endpoint-reconciler-type=none".to_owned(),
                format!("--secure-port={api}"),
                format!("--tls-cert-file={}", at("apiserver.crt")),
                format!("--tls-private-key-file={}", at("apiserver.key")),
                format!("--token-auth-file={}", at("tokens.csv")),
                "--authorization-mode=RBAC".to_owned(),
                "--allow-privileged=true".to_owned(),
                "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
                "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
                format!("--service-account-key-file={}", at("accounts.key")),
                format!("--service-account-signing-key-file={}", at("accounts.key")),
                format!("--audit-policy-file={}", at("audit.yaml")),
                format!("--audit-log-path={}", at("audit.log")),
            ],
            Part::Controllers => {
                let mut arguments = self.client_arguments();
                arguments.extend([
                    format!("--service-account-private-key-file={}", at("accounts.key")),
                    format!("--root-ca-file={}", at("ca.crt")),
                    // The publisher would put a ConfigMap into each namespace of a test.
                    "--controllers=*,-bootstrap-signer-controller,-token-cleaner-controller,\
                     -root-ca-certificate-publisher-controller"
                        .to_owned(),
                ]);
                arguments
            }
            Part::Scheduler => self.client_arguments(),
            Part::Kubelets => vec![
                format!("--kubeconfig={}", at("kubeconfig")),
                format!("--config={}", at("kwok.yaml")),
                "--manage-all-nodes".to_owned(),
                "-v=WARN".to_owned(),
            ],
        }
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        self.stop();
        if self.kept || std::thread::panicking() {
            let kept = self.dir.take().unwrap().keep();
            super::say(&format!("logs and data of the control plane are kept in {}", kept.display()));
        }
    }
}

fn token(user: User, secret: &str) -> String {
    format!("{}-{secret}", user.name())
}

fn kubeconfig(dir: &Path, port: u16, token: &str) -> String {
    serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "c", "cluster": {
            "server": format!("https://127.0.0.1:{port}"),
            "certificate-authority": dir.join("ca.crt"),
        } }],
        "users": [{ "name": "u", "user": { "token": token } }],
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
        "current-context": "c",
    })
    .to_string()
}

/// A client that tries nothing twice.
pub(crate) async fn client(kubeconfig: &str) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

/// A token that no other plane has.
fn unguessed() -> String {
    let mut bytes = [0_u8; 16];
    File::open("/dev/urandom").unwrap().read_exact(&mut bytes).unwrap();
    format!("{:032x}", u128::from_le_bytes(bytes))
}

/// Whose requests are logged: everything that trunkline writes, with what was sent and answered; of its reads only
/// what was asked for.
const AUDIT: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: RequestResponse
  users: [trunkline, "system:serviceaccount:kube-system:trunkline"]
  verbs: [create, update, patch, delete, deletecollection]
- level: Metadata
  users: [trunkline, "system:serviceaccount:kube-system:trunkline"]
- level: None
"#;

/// Who asks: each has a token of its own, and all may do everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum User {
    /// The test.
    Admin,
    /// Controllers, scheduler and kubelets.
    Cluster,
    /// The daemon under test, where it has no service account.
    Trunkline,
}

impl User {
    const ALL: [Self; 3] = [Self::Admin, Self::Cluster, Self::Trunkline];

    const fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Cluster => "cluster",
            Self::Trunkline => "trunkline",
        }
    }
}
