//! Makes a cluster: nodes, and an agent DaemonSet as its manifest has it, already running.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Model, Timings,
    body::{Body, Cond, DaemonSetBody, DaemonSetStatus, NodeBody, Plain, Taint},
    store::{Kind, Meta, ObjRef},
};
use crate::{
    api::status::Truth,
    world::{AgentKey, Strategy, Template, digest},
};

/// Label that names the zone of a Node.
pub const ZONE: &str = "topology.kubernetes.io/zone";
/// Label and taint of control-plane Nodes.
pub const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
/// Seconds that a new cluster may take until its agents run.
const SETTLE: i64 = 600;

/// Agents that the embedded cluster can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentKind {
    /// `kube-system/calico-node`.
    Calico,
    /// `kube-flannel/kube-flannel-ds`.
    Flannel,
}

/// A cluster to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterSpec {
    /// Seed of UIDs, names and delays.
    pub seed: u64,
    /// Nodes, the first `control_planes` of them for the control plane.
    pub nodes: usize,
    /// Control-plane nodes.
    pub control_planes: usize,
    /// Zones, taken in turn.
    pub zones: usize,
    /// Which agent.
    pub agent: AgentKind,
    /// Its version as in image tags: `v3.27.2`.
    pub version: String,
    /// How long things take.
    pub timings: Timings,
    /// When the cluster is made.
    pub now: Timestamp,
}

impl ClusterSpec {
    /// Calico v3.27.2 in three zones without control-plane nodes.
    pub fn new(seed: u64, nodes: usize, now: Timestamp) -> Self {
        Self {
            seed,
            nodes,
            control_planes: 0,
            zones: 3,
            agent: AgentKind::Calico,
            version: "v3.27.2".to_owned(),
            timings: Timings::default(),
            now,
        }
    }

    /// Makes it and waits until every agent runs.
    pub fn build(&self) -> Model {
        let mut model = Model::new(self.seed, self.now, self.timings);
        for namespace in ["default", "kube-system", "trunkline-system", &*self.agent.key().namespace] {
            // `kube-system` may be there already.
            let _ =
                model.create(ObjRef::cluster(Kind::Namespace, namespace), Meta::default(), plain(json!({})));
        }
        for index in 0..self.nodes {
            let name = self.node_name(index);
            let control_plane = index < self.control_planes;
            model.add_node(&name, node_labels(&name, index % self.zones.max(1), control_plane));
            if control_plane {
                model.taint(&name, CONTROL_PLANE, "NoSchedule");
            }
        }
        self.agent.install(&mut model, &self.version);
        model.settle(SETTLE);
        model
    }

    /// Name of the node with that index.
    pub fn node_name(&self, index: usize) -> String {
        if index < self.control_planes { format!("control-{index:03}") } else { format!("node-{index:03}") }
    }
}

/// Labels of a Linux node.
pub fn node_labels(name: &str, zone: usize, control_plane: bool) -> BTreeMap<String, String> {
    let zone =
        char::from_u32(u32::from(b'a').saturating_add(u32::try_from(zone).unwrap_or(0))).unwrap_or('a');
    let mut labels = BTreeMap::from(
        [
            ("kubernetes.io/hostname", name),
            ("kubernetes.io/os", "linux"),
            ("kubernetes.io/arch", "amd64"),
            (ZONE, &format!("zone-{zone}")),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned())),
    );
    if control_plane {
        labels.insert(CONTROL_PLANE.to_owned(), String::new());
    }
    labels
}

impl AgentKind {
    /// Namespace and name of its DaemonSet.
    pub fn key(self) -> AgentKey {
        let (namespace, name) = match self {
            Self::Calico => ("kube-system", "calico-node"),
            Self::Flannel => ("kube-flannel", "kube-flannel-ds"),
        };
        AgentKey { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// Creates its DaemonSet.
    pub fn install(self, model: &mut Model, version: &str) {
        let AgentKey { namespace, name } = self.key();
        let at = ObjRef::new(Kind::DaemonSet, namespace, name);
        let (app, template) = match self {
            Self::Calico => ("k8s-app", calico(version)),
            Self::Flannel => ("app", flannel(version)),
        };
        let value = template.pointer(&format!("/metadata/labels/{app}")).and_then(Value::as_str);
        let label = BTreeMap::from([(app.to_owned(), value.unwrap_or_default().to_owned())]);
        let meta = Meta { labels: Arc::new(label.clone()), ..Meta::default() };
        let body = DaemonSetBody {
            selector: Arc::new(label),
            template: template_of(template),
            strategy: Strategy::RollingUpdate,
            rolling_update: Some(Arc::new(json!({ "maxSurge": 0, "maxUnavailable": 1 }))),
            min_ready_seconds: 0,
            revision_history_limit: 10,
            status: DaemonSetStatus::default(),
        };
        // One that is there already stays.
        let _ = model.create(at, meta, Body::DaemonSet(Box::new(body)));
    }
}

/// A template with its digest.
pub fn template_of(raw: Value) -> Template {
    let digest = digest::of_template(&raw);
    Template { raw: Arc::new(raw), digest }
}

/// A Node that has just been registered by its kubelet.
pub(super) fn new_node(now: Timestamp) -> NodeBody {
    let starts =
        |status, reason: &str| Cond { status, reason: reason.into(), message: "".into(), since: now };
    NodeBody {
        unschedulable: false,
        taints: Vec::<Taint>::new(),
        ready: starts(Truth::False, "KubeletNotReady"),
        network_unavailable: Some(starts(Truth::True, "NoRouteCreated")),
    }
}

pub(super) fn plain(content: Value) -> Body {
    Body::Plain(Plain { content: Arc::new(content), status: None })
}

fn calico(version: &str) -> Value {
    let cni = format!("docker.io/calico/cni:{version}");
    let node = format!("docker.io/calico/node:{version}");
    json!({
        "metadata": { "labels": { "k8s-app": "calico-node" } },
        "spec": {
            "nodeSelector": { "kubernetes.io/os": "linux" },
            "hostNetwork": true,
            "serviceAccountName": "calico-node",
            "priorityClassName": "system-node-critical",
            "terminationGracePeriodSeconds": 0,
            "tolerations": [
                { "effect": "NoSchedule", "operator": "Exists" },
                { "key": "CriticalAddonsOnly", "operator": "Exists" },
                { "effect": "NoExecute", "operator": "Exists" }
            ],
            "initContainers": [
                {
                    "name": "upgrade-ipam",
                    "image": cni,
                    "command": ["/opt/cni/bin/calico-ipam", "-upgrade"],
                    "volumeMounts": [{ "name": "host-local-net-dir", "mountPath": "/var/lib/cni/networks" }]
                },
                {
                    "name": "install-cni",
                    "image": cni,
                    "command": ["/opt/cni/bin/install"],
                    "env": [{ "name": "CNI_CONF_NAME", "value": "10-calico.conflist" }],
                    "volumeMounts": [{ "name": "cni-bin-dir", "mountPath": "/host/opt/cni/bin" }]
                },
                {
                    "name": "mount-bpffs",
                    "image": node,
                    "command": ["calico-node", "-init", "-best-effort"],
                    "securityContext": { "privileged": true }
                }
            ],
            "containers": [{
                "name": "calico-node",
                "image": node,
                "env": [
                    { "name": "DATASTORE_TYPE", "value": "kubernetes" },
                    { "name": "NODENAME", "valueFrom": { "fieldRef": { "fieldPath": "spec.nodeName" } } }
                ],
                "readinessProbe": {
                    "exec": { "command": ["/bin/calico-node", "-felix-ready", "-bird-ready"] },
                    "periodSeconds": 10
                },
                "securityContext": { "privileged": true }
            }],
            "volumes": [
                { "name": "cni-bin-dir", "hostPath": { "path": "/opt/cni/bin" } },
                { "name": "host-local-net-dir", "hostPath": { "path": "/var/lib/cni/networks" } }
            ]
        }
    })
}

fn flannel(version: &str) -> Value {
    let image = format!("docker.io/flannel/flannel:{version}");
    json!({
        "metadata": { "labels": { "app": "flannel", "tier": "node" } },
        "spec": {
            "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{ "matchExpressions": [
                    { "key": "kubernetes.io/os", "operator": "In", "values": ["linux"] }
                ] }]
            } } },
            "hostNetwork": true,
            "serviceAccountName": "flannel",
            "priorityClassName": "system-node-critical",
            "tolerations": [{ "effect": "NoSchedule", "operator": "Exists" }],
            "initContainers": [
                {
                    "name": "install-cni-plugin",
                    "image": "docker.io/flannel/flannel-cni-plugin:v1.4.0-flannel1",
                    "command": ["cp", "-f", "/flannel", "/opt/cni/bin/flannel"]
                },
                {
                    "name": "install-cni",
                    "image": image,
                    "command": ["cp", "-f", "/etc/kube-flannel/cni-conf.json", "/etc/cni/net.d/10-flannel.conflist"]
                }
            ],
            "containers": [{
                "name": "kube-flannel",
                "image": image,
                "command": ["/opt/bin/flanneld", "--ip-masq", "--kube-subnet-mgr"]
            }]
        }
    })
}
