//! A cluster with Calico on a real control plane, and what a test asks of it.

use std::{
    collections::BTreeMap,
    path::Path,
    time::{Duration, Instant},
};

use futures::{StreamExt as _, stream};
use http::{Method, Request};
use serde_json::{Value, json};

use super::{
    kubelets::{Bad, stages},
    plane::ControlPlane,
};

pub(crate) const NODES: &str = "/api/v1/nodes";
pub(crate) const PODS: &str = "/api/v1/namespaces/kube-system/pods";
pub(crate) const AGENT: &str = "/apis/apps/v1/namespaces/kube-system/daemonsets/calico-node";
pub(crate) const DAEMON_SETS: &str = "/apis/apps/v1/namespaces/kube-system/daemonsets";
pub(crate) const CLAIMS: &str = "/apis/cni.example.com/v1/cniupgrades";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A control plane with nodes that run Calico.
pub(crate) struct Scene {
    pub(crate) plane: ControlPlane,
}

impl Scene {
    /// So many nodes with Calico v3.27.2, all Ready, and our definitions.
    pub(crate) async fn new(programs: &Path, nodes: usize, bad: &[Bad]) -> Self {
        let scene = Self { plane: ControlPlane::start(programs, &stages(bad)).await };
        for definition in definitions() {
            scene.ask(Method::POST, DEFINITIONS, &definition).await;
        }
        stream::iter(0..nodes)
            .for_each_concurrent(8, async |index| {
                let name = format!("node-{index:03}");
                let labels = json!({
                    "kubernetes.io/hostname": name,
                    "kubernetes.io/os": "linux",
                    "kubernetes.io/arch": "amd64",
                    "topology.kubernetes.io/zone": format!("zone-{}", index % 3),
                });
                scene
                    .ask(Method::POST, NODES, &json!({ "metadata": { "name": name, "labels": labels } }))
                    .await;
            })
            .await;
        scene.ask(Method::POST, DAEMON_SETS, &calico("v3.27.2")).await;
        scene
            .until("all agents are Ready", 600, async || {
                let set = scene.get(AGENT).await?;
                (set["status"]["numberReady"] == json!(nodes)).then_some(())
            })
            .await;
        scene.until("our kinds are served", 30, async || scene.get(CLAIMS).await.map(drop)).await;
        scene
    }

    /// An object or list; `None` = not there, or not now.
    pub(crate) async fn get(&self, path: &str) -> Option<Value> {
        let request = Request::get(path).body(Vec::new()).unwrap();
        self.plane.client.request(request).await.ok()
    }

    /// A request that must succeed.
    pub(crate) async fn ask(&self, method: Method, path: &str, body: &Value) -> Value {
        let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let request = Request::builder()
            .method(method.clone())
            .uri(path)
            .header(http::header::CONTENT_TYPE, kind)
            .body(body.to_string().into_bytes())
            .unwrap();
        let answer = self.plane.client.request(request).await;
        answer.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// The first value that a look gives within so many seconds.
    pub(crate) async fn until<T, F: Future<Output = Option<T>>>(
        &self,
        what: &str,
        seconds: u64,
        look: impl Fn() -> F,
    ) -> T {
        let deadline = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < deadline {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("not within {seconds} s: {what}");
    }

    /// Versions of the agents by node, of pods that are not going.
    pub(crate) async fn versions(&self) -> BTreeMap<String, String> {
        let Some(list) = self.get(PODS).await else { return BTreeMap::new() };
        let pods = list["items"].as_array().cloned().unwrap_or_default();
        let of = |pod: &Value| {
            let image = pod["spec"]["containers"][0]["image"].as_str()?;
            let node = pod["spec"]["nodeName"].as_str()?;
            let ours = pod["metadata"]["labels"]["k8s-app"] == "calico-node";
            let stays = pod["metadata"].get("deletionTimestamp").is_none();
            let (_, version) = image.rsplit_once(':')?;
            (ours && stays).then(|| (node.to_owned(), version.to_owned()))
        };
        pods.iter().filter_map(of).collect()
    }

    /// Nodes that run a version.
    pub(crate) async fn running(&self, version: &str) -> usize {
        self.versions().await.values().filter(|of| *of == version).count()
    }

    /// Whether the strategy is the owner's.
    pub(crate) async fn strategy_is_back(&self) -> bool {
        let set = self.get(AGENT).await;
        set.is_some_and(|set| set["spec"]["updateStrategy"]["type"] == "RollingUpdate")
    }

    /// Status of a CNIUpgrade.
    pub(crate) async fn status(&self, name: &str) -> Option<Value> {
        self.get(&format!("{CLAIMS}/{name}")).await?.get("status").cloned()
    }

    /// Waits for a phase.
    pub(crate) async fn until_phase(&self, name: &str, phase: &str, seconds: u64) -> Value {
        self.until(&format!("{name} is {phase}"), seconds, async || {
            self.status(name).await.filter(|status| status["phase"] == phase)
        })
        .await
    }
}

/// Our definitions, as the binary prints them.
fn definitions() -> Vec<Value> {
    trunkline::api::crd::crds().iter().map(|definition| serde_json::to_value(definition).unwrap()).collect()
}

fn calico(version: &str) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": { "name": "calico-node", "labels": { "k8s-app": "calico-node" } },
        "spec": {
            "selector": { "matchLabels": { "k8s-app": "calico-node" } },
            "updateStrategy": { "type": "RollingUpdate" },
            "template": {
                "metadata": { "labels": { "k8s-app": "calico-node" } },
                "spec": {
                    "hostNetwork": true,
                    "terminationGracePeriodSeconds": 0,
                    "priorityClassName": "system-node-critical",
                    "tolerations": [{ "operator": "Exists" }],
                    "initContainers": [
                        { "name": "install-cni", "image": format!("docker.io/calico/cni:{version}") },
                    ],
                    "containers": [
                        {
                            "name": "calico-node",
                            "image": format!("docker.io/calico/node:{version}"),
                            "env": [{ "name": "CALICO_NETWORKING_BACKEND", "value": "bird" }],
                            "readinessProbe": { "exec": { "command": ["/bin/calico-node", "-felix-ready"] } },
                        },
                    ],
                },
            },
        },
    })
}
