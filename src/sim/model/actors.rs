//! What others do to the cluster: people, autoscalers, other controllers.
//!
//! Each returns whether there was something to act on.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Model,
    body::{Body, DaemonSetBody, DaemonSetStatus, Taint},
    cluster::{new_node, template_of},
    store::{DeleteOptions, Kind, Meta, ObjRef, Stored},
};
use crate::{
    api::{ClaimKey, ClaimKind},
    world::{AgentKey, Strategy},
};

/// The stored object behind a claim key.
pub fn claim_ref(claim: &ClaimKey) -> ObjRef {
    let kind = match claim.kind {
        ClaimKind::CniUpgrade => Kind::CniUpgrade,
        ClaimKind::ServiceUpgrade => Kind::ServiceUpgrade,
    };
    ObjRef::new(kind, claim.namespace.clone().unwrap_or_default(), claim.name.as_str())
}

/// The stored object behind an agent key.
pub fn agent_ref(agent: &AgentKey) -> ObjRef {
    ObjRef::new(Kind::DaemonSet, agent.namespace.as_str(), agent.name.as_str())
}

fn node_ref(name: &str) -> ObjRef {
    ObjRef::cluster(Kind::Node, name)
}

impl Model {
    /// Changes any object as some other client would; nothing is checked but that it is there.
    pub fn alter(&mut self, at: &ObjRef, change: impl FnOnce(&mut Stored)) -> bool {
        let result = self.store.alter(at, change);
        self.react();
        result.is_ok()
    }

    /// A machine registers its Node; it becomes Ready when its agent is.
    pub fn add_node(&mut self, name: &str, labels: BTreeMap<String, String>) -> bool {
        let meta = Meta { labels: Arc::new(labels), ..Meta::default() };
        self.create(node_ref(name), meta, Body::Node(new_node(self.now))).is_ok()
    }

    /// The Node object is deleted; its pods are collected a little later.
    pub fn remove_node(&mut self, name: &str) -> bool {
        self.delete(&node_ref(name), &DeleteOptions::default()).is_ok()
    }

    /// `kubectl cordon` and `uncordon`.
    pub fn cordon(&mut self, name: &str, on: bool) -> bool {
        const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
        if on {
            self.taint(name, UNSCHEDULABLE, "NoSchedule");
        } else {
            self.untaint(name, UNSCHEDULABLE);
        }
        self.change_spec(name, |node| node.unschedulable = on)
    }

    /// Puts a taint on a Node.
    pub fn taint(&mut self, name: &str, key: &str, effect: &str) -> bool {
        let taint = Taint { key: key.to_owned(), value: String::new(), effect: effect.to_owned() };
        self.change_spec(name, |node| {
            if !node.taints.contains(&taint) {
                node.taints.push(taint);
            }
        })
    }

    /// Takes taints with that key off a Node.
    pub fn untaint(&mut self, name: &str, key: &str) -> bool {
        self.change_spec(name, |node| node.taints.retain(|taint| taint.key != key))
    }

    fn change_spec(&mut self, name: &str, change: impl FnOnce(&mut super::body::NodeBody)) -> bool {
        self.alter(&node_ref(name), |stored| {
            if let Body::Node(node) = &mut stored.body {
                change(node);
            }
        })
    }

    /// Sets or removes a label of a Node.
    pub fn relabel(&mut self, name: &str, key: &str, value: Option<&str>) -> bool {
        self.alter(&node_ref(name), |stored| set(&mut stored.meta.labels, key, value))
    }

    /// `kubectl annotate`: sets or removes an annotation of any object.
    pub fn annotate(&mut self, at: &ObjRef, key: &str, value: Option<&str>) -> bool {
        self.alter(at, |stored| set(&mut stored.meta.annotations, key, value))
    }

    /// `kubectl edit` of the spec of a custom resource.
    pub fn edit_claim(&mut self, claim: &ClaimKey, change: impl FnOnce(&mut Value)) -> bool {
        self.alter(&claim_ref(claim), |stored| {
            if let Body::Plain(plain) = &mut stored.body
                && let Some(spec) = Arc::make_mut(&mut plain.content).get_mut("spec")
            {
                change(spec);
            }
        })
    }

    /// Another manager changes the pod template.
    pub fn edit_template(&mut self, agent: &AgentKey, change: impl FnOnce(&mut Value)) -> bool {
        self.alter(&agent_ref(agent), |stored| {
            if let Body::DaemonSet(body) = &mut stored.body {
                let mut raw = Value::clone(&body.template.raw);
                change(&mut raw);
                body.template = template_of(raw);
            }
        })
    }

    /// Another manager replaces a text in every image of the pod template.
    pub fn replace_images(&mut self, agent: &AgentKey, from: &str, to: &str) -> bool {
        self.edit_template(agent, |template| replace_images(template, from, to))
    }

    /// Its owner deletes the DaemonSet, its pods and revisions with it, and makes it anew with other images.
    pub fn make_agent_anew(&mut self, agent: &AgentKey, from: &str, to: &str) -> bool {
        let at = agent_ref(agent);
        let Some(old) = self.store.get(&at).cloned() else { return false };
        let Body::DaemonSet(body) = &old.body else { return false };
        let mut raw = Value::clone(&body.template.raw);
        replace_images(&mut raw, from, to);
        let body = DaemonSetBody {
            template: template_of(raw),
            strategy: Strategy::RollingUpdate,
            status: DaemonSetStatus::default(),
            ..(**body).clone()
        };
        let meta = Meta { labels: Arc::clone(&old.meta.labels), ..Meta::default() };
        self.delete_agent(agent) && self.create(at, meta, Body::DaemonSet(Box::new(body))).is_ok()
    }

    /// `kubectl rollout restart`.
    pub fn restart_rollout(&mut self, agent: &AgentKey, at: Timestamp) -> bool {
        self.edit_template(agent, |template| {
            if let Some(meta) = template.get_mut("metadata").and_then(Value::as_object_mut) {
                let restarted = json!({ "kubectl.kubernetes.io/restartedAt": at.to_string() });
                meta.insert("annotations".to_owned(), restarted);
            }
        })
    }

    /// Another manager sets the update strategy.
    pub fn set_strategy(&mut self, agent: &AgentKey, strategy: Strategy) -> bool {
        self.alter(&agent_ref(agent), |stored| {
            if let Body::DaemonSet(body) = &mut stored.body {
                body.strategy = strategy;
            }
        })
    }

    /// The DaemonSet is deleted, its pods and revisions with it.
    pub fn delete_agent(&mut self, agent: &AgentKey) -> bool {
        self.delete(&agent_ref(agent), &DeleteOptions::default()).is_ok()
    }
}

fn replace_images(template: &mut Value, from: &str, to: &str) {
    for list in ["/spec/initContainers", "/spec/containers"] {
        let parts = template.pointer_mut(list).and_then(Value::as_array_mut);
        for image in parts.into_iter().flatten().filter_map(|part| part.get_mut("image")) {
            if let Some(text) = image.as_str() {
                *image = Value::from(text.replace(from, to));
            }
        }
    }
}

fn set(map: &mut Arc<BTreeMap<String, String>>, key: &str, value: Option<&str>) {
    let map = Arc::make_mut(map);
    match value {
        Some(value) => map.insert(key.to_owned(), value.to_owned()),
        None => map.remove(key),
    };
}
