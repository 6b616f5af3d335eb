//! What is deployed, on a real API server: everything is taken as it is written, the account may do what the daemon
//! does, and the policies refuse the rest.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use http::{Method, Request};
use kube::Client;
use serde_json::{Value, json};
use trunkline::{
    access::{self, Site},
    world::AgentKey,
};

use super::{
    Case,
    daemon::{Daemon, Start},
    kubelets::{Bad, Trouble},
    manifests::calico,
    plane::{ControlPlane, User, client},
    running, say,
    scene::{AGENT, CLAIMS, DAEMON_SETS, PODS, Scene},
    server::GitServer,
    story,
};

pub(crate) const CASES: &[Case] = &[
    ("deploy::every_overlay_is_taken_with_strict_validation", |programs| running(overlays(programs))),
    ("deploy::the_policies_let_through_what_the_daemon_does_and_nothing_else", |programs| {
        running(policies(programs));
    }),
    ("deploy::the_daemon_needs_no_more_than_its_account_has", |programs| running(account(programs))),
    ("deploy::what_others_edit_meanwhile_does_not_lock_the_way_back", |programs| {
        running(foreign_edit(programs));
    }),
];

const ACCOUNTS: &str = "/api/v1/namespaces/kube-system/serviceaccounts";
const STORES: &str = "/api/v1/namespaces/kube-system/configmaps";
const SERVICES: &str = "/apis/service.example.com/v1/serviceupgrades";
const SERVICE: &str = include_str!("../golden/inputs/service_upgrade.yaml");
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";

async fn overlays(programs: PathBuf) {
    if Command::new("kubectl").arg("version").arg("--client").output().is_err() {
        say("left out: there is no kubectl to apply the overlays with");
        return;
    }
    let plane = ControlPlane::start(&programs, &super::kubelets::stages(&[])).await;
    let kubeconfig = plane.dir().join("kubectl");
    fs::write(&kubeconfig, plane.kubeconfig(User::Admin, plane.port())).unwrap();
    let kubectl = |args: &[&str]| {
        let output =
            Command::new("kubectl").arg("--kubeconfig").arg(&kubeconfig).args(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    kubectl(&["create", "namespace", "kube-flannel"]);
    for folder in ["base", "overlays/flannel", "overlays/node-files", "overlays/high-availability"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(folder);
        let path = path.to_str().unwrap();
        kubectl(&["apply", "--validate=strict", "-k", path]);
        let again = kubectl(&["apply", "--validate=strict", "-k", path]);
        // Of a PodDisruptionBudget kubectl sends the selector each time, as its type tells it to.
        let same = |line: &&str| line.ends_with(" unchanged") || line.starts_with("poddisruptionbudget");
        let changed: Vec<&str> = again.lines().filter(|line| !same(line)).collect();
        assert!(changed.is_empty(), "{folder}, applied again, changes {changed:?}");
    }
    // Policies whose expressions do not fit the types are told so in their status.
    let scene = Scene { plane };
    let checked = async || {
        let list = scene.get(POLICIES).await?["items"].as_array().cloned()?;
        let all = list.len() == 3 && list.iter().all(|policy| policy["status"].get("typeChecking").is_some());
        all.then_some(list)
    };
    for policy in scene.until("the policies are type-checked", 30, checked).await {
        assert_eq!(policy["status"]["typeChecking"], json!({}), "{}", policy["metadata"]["name"]);
    }
}

/// The account of the daemon on a plane, with its rights and the policies.
pub(crate) struct Account {
    pub(crate) scene: Scene,
    pub(crate) kubeconfig: String,
    client: Client,
}

impl Account {
    pub(crate) async fn new(scene: Scene) -> Self {
        let agents = [AgentKey { namespace: "kube-system".to_owned(), name: "calico-node".to_owned() }];
        let site = Site { namespace: "kube-system".to_owned(), agents: agents.into() };
        for object in access::objects(&site).iter().chain(&access::policies(&site)) {
            scene.ask(Method::POST, &format!("{}?fieldValidation=Strict", collection(object)), object).await;
        }
        let asked = json!({ "spec": { "expirationSeconds": 3600 } });
        let token = scene.ask(Method::POST, &format!("{ACCOUNTS}/trunkline/token"), &asked).await;
        let kubeconfig = scene.plane.kubeconfig_of(token["status"]["token"].as_str().unwrap());
        let client = client(&kubeconfig).await;
        let account = Self { scene, kubeconfig, client };
        // Rights and policies are in force a moment after they were made.
        let label = json!([{ "op": "add", "path": "/metadata/labels/probe", "value": "x" }]);
        let in_force = async || {
            let said = account.patch("calico-node?dryRun=All", label.clone()).await.err()?;
            said.contains("'trunkline-daemonsets'").then_some(())
        };
        account.scene.until("the policies are in force", 30, in_force).await;
        account
    }

    /// A daemon that has the account and follows a repository.
    fn daemon(&self, git: &GitServer) -> Daemon {
        let start = Start {
            name: "daemon".to_owned(),
            kubeconfig: self.kubeconfig.clone(),
            config: story::config(&git.url(), &git.credentials()),
            more: Vec::new(),
        };
        Daemon::start(self.scene.plane.dir(), &start)
    }

    /// A request of the account; `Err` is what the server says.
    async fn send(&self, method: Method, path: &str, body: &Value) -> Result<(), String> {
        let kind = if method == Method::PATCH { "application/json-patch+json" } else { "application/json" };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, kind)
            .body(body.to_string().into_bytes())
            .unwrap();
        self.client.request_text(request).await.map(drop).map_err(|error| error.to_string())
    }

    async fn patch(&self, agent: &str, patch: Value) -> Result<(), String> {
        self.send(Method::PATCH, &format!("{DAEMON_SETS}/{agent}"), &patch).await
    }

    async fn delete_pod(&self, name: &str) -> Result<(), String> {
        self.send(Method::DELETE, &format!("{PODS}/{name}"), &json!({})).await
    }

    async fn create_store(&self, name: &str, label: Option<&str>) -> Result<(), String> {
        let labels = label.map_or_else(|| json!({}), |value| json!({ "trunkline.dev/store": value }));
        self.send(Method::POST, STORES, &json!({ "metadata": { "name": name, "labels": labels } })).await
    }

    /// Lets RBAC out of the way, so that only the policies are left.
    async fn may_do_everything(&self) {
        let binding = json!({
            "metadata": { "name": "everything" },
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin",
            },
            "subjects": [{ "kind": "ServiceAccount", "name": "trunkline", "namespace": "kube-system" }],
        });
        let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
        self.scene.ask(Method::POST, bindings, &binding).await;
        let allowed = async || self.send(Method::GET, "/api/v1/secrets", &json!({})).await.ok();
        self.scene.until("the account may do everything", 30, allowed).await;
    }
}

/// Path of the collection that an object is created in.
fn collection(object: &Value) -> String {
    let api = object["apiVersion"].as_str().unwrap();
    let root = if api.contains('/') { "/apis" } else { "/api" };
    let plural = match object["kind"].as_str().unwrap() {
        "ValidatingAdmissionPolicy" => "validatingadmissionpolicies".to_owned(),
        kind => format!("{}s", kind.to_lowercase()),
    };
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{root}/{api}/namespaces/{namespace}/{plural}"),
        None => format!("{root}/{api}/{plural}"),
    }
}

#[track_caller]
fn is_refused(what: &str, by: &str, said: Result<(), String>) {
    let said = said.expect_err(what);
    assert!(said.contains(by), "{what}: {said}");
}

async fn policies(programs: PathBuf) {
    let account = Account::new(Scene::new(&programs, 2, &[]).await).await;
    account.may_do_everything().await;
    passes(&account).await;
    let spec = "/spec/template/spec";
    for (what, path, value) in [
        ("a command", format!("{spec}/containers/0/command"), json!(["sh"])),
        ("a variable", format!("{spec}/containers/0/env/0/value"), json!("none")),
        ("privileges", format!("{spec}/containers/0/securityContext"), json!({ "privileged": true })),
        ("another registry", format!("{spec}/containers/0/image"), json!("evil.example/calico/node:v3.28.0")),
        ("an init command", format!("{spec}/initContainers/0/command"), json!(["sh"])),
        ("one more container", format!("{spec}/containers/-"), json!({ "name": "more", "image": "more:1" })),
        (
            "one more init container",
            format!("{spec}/initContainers/-"),
            json!({ "name": "m", "image": "m:1" }),
        ),
        ("a volume", format!("{spec}/volumes"), json!([{ "name": "v", "hostPath": { "path": "/" } }])),
        ("the security context", format!("{spec}/securityContext"), json!({ "runAsUser": 0 })),
        ("the account of its pods", format!("{spec}/serviceAccountName"), json!("other")),
        ("a label of its pods", "/spec/template/metadata/labels/more".to_owned(), json!("x")),
        ("a label", "/metadata/labels/more".to_owned(), json!("x")),
        ("a finalizer", "/metadata/finalizers".to_owned(), json!(["example.com/mine"])),
        ("a foreign annotation", "/metadata/annotations/example.com~1mine".to_owned(), json!("x")),
        ("minReadySeconds", "/spec/minReadySeconds".to_owned(), json!(9)),
        ("maxUnavailable", "/spec/updateStrategy/rollingUpdate/maxUnavailable".to_owned(), json!("100%")),
    ] {
        let patch = json!([{ "op": "add", "path": path, "value": value }]);
        is_refused(what, "'trunkline-daemonsets'", account.patch("calico-node", patch).await);
    }
    for list in ["initContainers", "containers/0/readinessProbe"] {
        let patch = json!([{ "op": "remove", "path": format!("{spec}/{list}") }]);
        is_refused(list, "'trunkline-daemonsets'", account.patch("calico-node", patch).await);
    }
    others(&account).await;
}

/// What an attempt does, forth and back.
async fn passes(account: &Account) {
    let image = |list: &str, image: &str| json!({ "op": "replace", "path": format!("/spec/template/spec/{list}/0/image"), "value": image });
    let strategy = |to: &str| json!({ "op": "add", "path": "/spec/updateStrategy/type", "value": to });
    let note = "/metadata/annotations/trunkline.dev~1original-strategy";
    let before = account.scene.get(AGENT).await.unwrap();
    let forth = json!([
        strategy("OnDelete"),
        { "op": "add", "path": note, "value": "RollingUpdate" },
        image("containers", "docker.io/calico/node:v3.28.0"),
        image("initContainers", &format!("docker.io/calico/cni@sha256:{}", "a".repeat(64))),
    ]);
    account.patch("calico-node", forth).await.unwrap();
    let saved = json!([{ "op": "replace", "path": "/spec/template", "value": before["spec"]["template"] }]);
    account.patch("calico-node", saved).await.unwrap();
    let back = json!([strategy("RollingUpdate"), { "op": "remove", "path": note }]);
    account.patch("calico-node", back).await.unwrap();
    // Somebody replaced the strategy with its parameters: they come back with their defaults.
    let bare = json!({ "spec": { "updateStrategy": { "type": "OnDelete", "rollingUpdate": null } } });
    account.scene.ask(Method::PATCH, AGENT, &bare).await;
    account.patch("calico-node", json!([strategy("RollingUpdate")])).await.unwrap();
}

/// Objects that are not the daemon's.
async fn others(account: &Account) {
    let scene = &account.scene;
    let mut other = scene.get(AGENT).await.unwrap();
    for labels in ["/spec/selector/matchLabels", "/spec/template/metadata/labels"] {
        *other.pointer_mut(labels).unwrap() = json!({ "k8s-app": "other" });
    }
    other["metadata"] = json!({ "name": "other" });
    scene.ask(Method::POST, DAEMON_SETS, &other).await;
    let patch = json!([{ "op": "add", "path": "/spec/updateStrategy/type", "value": "OnDelete" }]);
    is_refused("another DaemonSet", "'trunkline-daemonsets'", account.patch("other", patch).await);

    let pod = json!({
        "metadata": { "name": "foreign" },
        "spec": { "containers": [{ "name": "c", "image": "c:1" }], "automountServiceAccountToken": false },
    });
    scene
        .until("the account of pods is there", 30, async || scene.get(&format!("{ACCOUNTS}/default")).await)
        .await;
    scene.ask(Method::POST, PODS, &pod).await;
    is_refused("a foreign pod", "'trunkline-pods'", account.delete_pod("foreign").await);
    let pod_of = async |app: &str| {
        let list = scene.get(&format!("{PODS}?labelSelector=k8s-app={app}")).await?;
        list["items"][0]["metadata"]["name"].as_str().map(str::to_owned)
    };
    let theirs = scene.until("the other DaemonSet has a pod", 30, async || pod_of("other").await).await;
    is_refused("a pod of another DaemonSet", "'trunkline-pods'", account.delete_pod(&theirs).await);
    let ours = pod_of("calico-node").await.unwrap();
    account.delete_pod(&ours).await.unwrap();

    let store = json!({ "metadata": { "name": "theirs" }, "data": { "a": "b" } });
    scene.ask(Method::POST, STORES, &store).await;
    let theirs = format!("{STORES}/theirs");
    let taken = json!({ "metadata": { "name": "theirs", "labels": { "trunkline.dev/store": "ledger" } } });
    for (method, body) in [(Method::PUT, &store), (Method::PUT, &taken), (Method::DELETE, &json!({}))] {
        is_refused("a foreign ConfigMap", "'trunkline-stores'", account.send(method, &theirs, body).await);
    }
    account.create_store("ours", Some("ledger")).await.unwrap();
    account.send(Method::DELETE, &format!("{STORES}/ours"), &json!({})).await.unwrap();
}

/// Rights that a short story of one replica leaves unused: looks after lost answers, the end of an attempt's record.
const SPARE: [&str; 7] = [
    "get pods",
    "get configmaps",
    "delete configmaps",
    "create events",
    "create leases",
    "get leases",
    "update leases",
];

/// Verbs and resources of requests in the audit log after so many lines, and requests that were forbidden.
fn asked(plane: &ControlPlane, before: usize) -> (BTreeSet<(String, String)>, Vec<Value>) {
    let mut used = BTreeSet::new();
    let mut forbidden = Vec::new();
    for line in fs::read_to_string(plane.audit_log()).unwrap().lines().skip(before) {
        let event: Value = serde_json::from_str(line).unwrap();
        let at = &event["objectRef"];
        let (Some(resource), Some(verb)) = (at["resource"].as_str(), event["verb"].as_str()) else {
            continue;
        };
        if event["responseStatus"]["code"] == 403 {
            forbidden.push(event.clone());
        }
        let below = at["subresource"].as_str().map(|name| format!("/{name}")).unwrap_or_default();
        used.insert((format!("{resource}{below}"), verb.to_owned()));
    }
    (used, forbidden)
}

/// Verbs and resources that roles grant.
fn granted(site: &Site) -> BTreeSet<(String, String)> {
    let words = |list: &Value| -> Vec<String> {
        list.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
    };
    let mut granted = BTreeSet::new();
    for rule in
        access::objects(site).iter().flat_map(|role| role["rules"].as_array().cloned().unwrap_or_default())
    {
        for resource in words(&rule["resources"]) {
            granted.extend(words(&rule["verbs"]).into_iter().map(|verb| (resource.clone(), verb)));
        }
    }
    granted
}

async fn account(programs: PathBuf) {
    let bad = Bad { trouble: Trouble::Crashes, image: ":v3[.]29[.]0$", nodes: "." };
    let account = Account::new(Scene::new(&programs, 4, &[bad]).await).await;
    let (scene, git) = (&account.scene, GitServer::start());
    let before = fs::read_to_string(scene.plane.audit_log()).unwrap().lines().count();
    let commit = |version| git.repository().commit("main", &[("calico.yaml", &calico(version))]);
    git.repository().commit("main", &[("README.md", "# network\n")]);
    let _daemon = account.daemon(&git);
    let branch = async || git.repository().tip("trunkline/status/prod");
    scene.until("the status branch is there", 30, branch).await;
    commit("v3.27.2");
    scene.until_phase("calico", "Completed", 60).await;
    commit("v3.28.0");
    let there = async || {
        let status = scene.status("calico").await?;
        (status["phase"] == "Completed" && status["currentVersion"] == "v3.28.0").then_some(())
    };
    scene.until("v3.28.0 is there", 240, there).await;
    commit("v3.29.0");
    scene.until_phase("calico", "Failed", 240).await;
    assert_eq!(scene.running("v3.28.0").await, 4);

    git.repository().commit("main", &[("service.yaml", SERVICE)]);
    let refused = async || scene.get(SERVICES).await?["items"][0]["status"].get("conditions").cloned();
    scene.until("the ServiceUpgrade has a status", 30, refused).await;
    git.repository().commit("main", &[("calico.yaml", "# none\n"), ("service.yaml", "# none\n")]);
    let gone = async |path: &str| scene.get(path).await?["items"].as_array()?.is_empty().then_some(());
    scene.until("the CNIUpgrade is gone", 60, async || gone(CLAIMS).await).await;
    scene.until("the ServiceUpgrade is gone", 60, async || gone(SERVICES).await).await;

    let (used, forbidden) = asked(&scene.plane, before);
    assert!(forbidden.is_empty(), "{forbidden:#?}");
    let agents = [AgentKey { namespace: "kube-system".to_owned(), name: "calico-node".to_owned() }];
    let granted = granted(&Site { namespace: "kube-system".to_owned(), agents: agents.into() });
    let more: Vec<_> = used.difference(&granted).collect();
    assert!(more.is_empty(), "used and not granted: {more:?}");
    let unused = granted.difference(&used).map(|(resource, verb)| format!("{verb} {resource}"));
    let unused: Vec<_> = unused.filter(|right| !SPARE.contains(&right.as_str())).collect();
    assert!(unused.is_empty(), "granted and not used: {unused:?}");
}

async fn foreign_edit(programs: PathBuf) {
    let account = Account::new(Scene::new(&programs, 3, &[]).await).await;
    let (scene, git) = (&account.scene, GitServer::start());
    let commit = |version| git.repository().commit("main", &[("calico.yaml", &calico(version))]);
    commit("v3.27.2");
    let _daemon = account.daemon(&git);
    scene.until_phase("calico", "Completed", 60).await;
    commit("v3.28.0");
    let watched = async || {
        let waiting = scene.status("calico").await?["waitingFor"].as_array()?.clone();
        waiting.iter().any(|of| of["reason"] == "Observing").then_some(())
    };
    scene.until("the canary is watched", 60, watched).await;
    let restart =
        json!({ "spec": { "template": { "metadata": { "annotations": { "restarted": "now" } } } } });
    scene.ask(Method::PATCH, AGENT, &restart).await;
    let pods = scene.get(PODS).await.unwrap();
    let image = "/spec/containers/0/image";
    let canary = pods["items"].as_array().unwrap().iter().find(|pod| {
        pod.pointer(image).and_then(Value::as_str).is_some_and(|image| image.ends_with(":v3.28.0"))
    });
    let name = canary.unwrap()["metadata"]["name"].as_str().unwrap();
    let fail = json!({ "metadata": { "annotations": { "test/fail": "yes" } } });
    scene.ask(Method::PATCH, &format!("{PODS}/{name}"), &fail).await;
    let status = scene.until_phase("calico", "Failed", 240).await;
    assert_eq!(scene.running("v3.27.2").await, 3, "{status}");
    let conditions = status["conditions"].as_array().unwrap();
    let back = conditions.iter().find(|of| of["type"] == "RolledBack").unwrap();
    assert!(back["message"].as_str().unwrap().contains("What others changed"), "{back}");
    let set = scene.get(AGENT).await.unwrap();
    assert_eq!(set["spec"]["template"]["metadata"]["annotations"]["restarted"], "now");
    scene.until("the strategy is back", 60, async || scene.strategy_is_back().await.then_some(())).await;
}
