//! Projection of a Pod; only pods that a DaemonSet controls are kept.

use std::{collections::BTreeMap, sync::Arc};

use serde::Deserialize;

use super::wire::{Condition, Meta};
use crate::{
    api::names::{NodeName, REVISION_HASH},
    world::{Object, ObjectId, Pod, PodKey, Shape, WaitReason},
};

/// Wait reasons of an ordinary start.
const STARTING: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// Most characters kept of a kubelet message.
const MESSAGE: usize = 200;

#[derive(Deserialize)]
pub(super) struct Wire {
    metadata: Meta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    node_name: Option<String>,
    containers: Vec<Container>,
    init_containers: Vec<Container>,
    affinity: Affinity,
}

#[derive(Deserialize)]
struct Container {
    name: String,
    #[serde(default)]
    image: String,
}

/// Of the whole affinity only what the DaemonSet controller writes: `matchFields` on `metadata.name`.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Affinity {
    node_affinity: NodeAffinity,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NodeAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    required: Required,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Required {
    node_selector_terms: Vec<Term>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Term {
    match_fields: Vec<Requirement>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Requirement {
    key: String,
    values: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    conditions: Vec<Condition>,
    container_statuses: Vec<ContainerStatus>,
    init_container_statuses: Vec<ContainerStatus>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ContainerStatus {
    name: String,
    restart_count: u32,
    state: State,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct State {
    waiting: Option<Wait>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Wait {
    reason: String,
    message: String,
}

impl Wire {
    pub(super) fn object(self) -> Option<Object> {
        let owner = self.metadata.daemon_set()?;
        let key = PodKey {
            namespace: self.metadata.namespace.as_str().into(),
            name: self.metadata.name.as_str().into(),
        };
        let pod = Pod {
            owner: Some(owner),
            node: self.node(),
            revision: self.metadata.labels.get(REVISION_HASH).map(|hash| hash.as_str().into()),
            images: Arc::new(self.images()),
            initialized: self.holds("Initialized"),
            ready: self.holds("Ready"),
            restarts: self.statuses().fold(0, |sum, (_, status)| sum.saturating_add(status.restart_count)),
            waiting: self.waiting(),
            deleting: self.metadata.deleting(),
        };
        Some(self.metadata.object(ObjectId::Pod(key), Shape::Pod(pod)))
    }

    fn node(&self) -> Option<NodeName> {
        let bound = self.spec.node_name.as_deref().filter(|name| !name.is_empty());
        let meant = || {
            let terms = &self.spec.affinity.node_affinity.required.node_selector_terms;
            let field = terms.iter().flat_map(|term| &term.match_fields).find(|f| f.key == "metadata.name");
            field.and_then(|field| field.values.first()).map(String::as_str)
        };
        bound.or_else(meant).map(NodeName::new)
    }

    fn images(&self) -> BTreeMap<String, String> {
        let main = self.spec.containers.iter().map(|c| (c.name.clone(), c.image.clone()));
        let init = self.spec.init_containers.iter().map(|c| (format!("init:{}", c.name), c.image.clone()));
        main.chain(init).collect()
    }

    fn holds(&self, condition: &str) -> bool {
        self.status.conditions.iter().any(|c| c.r#type == condition && c.status == "True")
    }

    /// Init containers first, in the order in which they run.
    fn statuses(&self) -> impl Iterator<Item = (bool, &ContainerStatus)> {
        let init = self.status.init_container_statuses.iter().map(|status| (true, status));
        init.chain(self.status.container_statuses.iter().map(|status| (false, status)))
    }

    fn waiting(&self) -> Option<WaitReason> {
        self.statuses().find_map(|(init, status)| {
            let wait = status.state.waiting.as_ref()?;
            let failing = !wait.reason.is_empty() && !STARTING.contains(&wait.reason.as_str());
            failing.then(|| WaitReason {
                container: status.name.clone(),
                reason: wait.reason.clone(),
                message: wait.message.chars().take(MESSAGE).collect(),
                init,
            })
        })
    }
}
