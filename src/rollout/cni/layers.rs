//! Last good of several templates: while attempts of narrower scopes left `OnDelete` behind, each scope has its own.
//!
//! A node is at home in the newest layer that selects it. Nodes go back layer by layer, each under its own template,
//! since a pod can come up on the live one only; the newest template is live at the end, and `OnDelete` stays.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::Cx;
use crate::{
    api::{
        names::{Digest, NodeName},
        status::{AttemptKind, Intent, LastGood, Layer, Outcome},
    },
    diff::{Goal, NodeDiff, matches},
    rollout::waiting::Waiting,
    world::Node,
};

/// Layers that last good may have beneath its newest.
pub(super) const LAYERS: usize = 16;

/// All layers of last good, oldest first, each with its template.
fn layers(good: &LastGood) -> Vec<Layer> {
    let newest = good.template_digest.clone().map(|template_digest| Layer {
        node_selector: good.node_selector.clone(),
        template: good.template.clone(),
        template_digest,
    });
    let mut layers: Vec<Layer> = good.beneath.iter().cloned().chain(newest).collect();
    let texts: BTreeMap<Digest, String> = layers
        .iter()
        .filter_map(|layer| Some((layer.template_digest.clone(), layer.template.clone()?)))
        .collect();
    for layer in &mut layers {
        layer.template = texts.get(&layer.template_digest).cloned();
    }
    layers
}

/// The layer in which a node is at home.
fn home(layers: &[Layer], node: &Node) -> Option<usize> {
    layers.iter().rposition(|layer| matches(&layer.node_selector, &node.labels))
}

/// Whether every node of one scope is in the other.
fn within(one: &BTreeMap<String, String>, other: &BTreeMap<String, String>) -> bool {
    other.iter().all(|(key, value)| one.get(key) == Some(value))
}

impl Cx<'_> {
    /// Last good consists of several templates.
    pub(super) fn layered(&self) -> bool {
        self.draft.last_good.as_ref().is_some_and(|good| !good.beneath.is_empty())
    }

    /// What runs after an attempt of a narrower scope: its template there, and on the other nodes what ran before.
    pub(super) fn what_runs_over_others(&self) -> Option<LastGood> {
        let attempt = self.attempt().filter(|attempt| attempt.kind == AttemptKind::Upgrade)?;
        let old = self.draft.last_good.as_ref()?;
        let mut good = self.what_runs();
        good.strategy.clone_from(&old.strategy);
        match attempt.outcome? {
            Outcome::Completed | Outcome::CompletedWithFailures => {
                good.node_selector.clone_from(&attempt.node_selector);
                let mut beneath = layers(old);
                beneath.retain(|layer| !within(&layer.node_selector, &good.node_selector));
                good.beneath = beneath;
                share(&mut good);
            }
            // Nothing was written: another wish that amounts to the same.
            Outcome::AlreadyRuns => {
                good = LastGood {
                    wish: good.wish,
                    version: good.version,
                    revision: good.revision,
                    ..old.clone()
                };
            }
            Outcome::Returned
            | Outcome::RolledBack
            | Outcome::RollbackIncomplete
            | Outcome::Held
            | Outcome::Superseded
            | Outcome::Reverted => return None,
        }
        Some(good)
    }

    /// Covered images of every template that last good consists of; none when nothing is saved.
    pub(super) fn known_images(&self) -> Vec<Arc<BTreeMap<String, String>>> {
        let saved = self.saved_images();
        let older = self.draft.last_good.iter().flat_map(|good| &good.beneath);
        let older = older.filter_map(|layer| {
            let text = layer.template.as_ref()?;
            Some(self.images_of(&layer.template_digest, text))
        });
        std::iter::once(saved).chain(older).filter(|images| !images.is_empty()).collect()
    }

    /// Goes on putting back layer by layer; the nodes that are left once nothing more can be done now.
    pub(super) fn put_layers_back(&mut self) -> Option<Vec<NodeName>> {
        let layers = self.draft.last_good.as_ref().map(layers).unwrap_or_default();
        let world = self.case.world;
        let at_home = |intent: &Intent| {
            let node = world.nodes.get(&intent.node)?;
            home(&layers, &node.is)
        };
        // Where nodes are in flight comes first: they settle only under the template of their own layer.
        let open = self.draft.nodes.open.iter().filter_map(at_home).min();
        let rest = (0..layers.len()).filter(|index| Some(*index) != open);
        let mut left = Vec::new();
        for index in open.into_iter().chain(rest) {
            let layer = layers.get(index)?;
            // Those of other layers wait, and while they do nobody new starts.
            let (mine, parked): (Vec<Intent>, Vec<Intent>) = std::mem::take(&mut self.draft.nodes.open)
                .into_iter()
                .partition(|intent| at_home(intent).is_none_or(|home| home == index));
            self.draft.nodes.open = mine;
            let here = |node: &NodeDiff<'_>| home(&layers, &node.node.is) == Some(index);
            let back = self.put_layer_back(layer, here, parked.is_empty());
            self.draft.nodes.open.extend(parked);
            left.append(&mut back?);
        }
        // Only then the newest template: what comes up from now on runs it.
        self.template_back()?;
        Some(left)
    }

    /// The same for the nodes of one layer.
    fn put_layer_back(
        &mut self,
        layer: &Layer,
        here: impl Fn(&NodeDiff<'_>) -> bool,
        start: bool,
    ) -> Option<Vec<NodeName>> {
        let hash = self.revision_of(&layer.template_digest).unwrap_or_default();
        let goal = Goal::Revision(hash);
        if self.is_all_back(goal.clone(), &here) {
            return self.put_back(goal, here, false);
        }
        if self.agent.is.template.digest != layer.template_digest {
            let template = serde_json::from_str(layer.template.as_deref()?).ok()?;
            self.restore_template(template);
            self.wait_for_open();
            return None;
        }
        if !self.controller_has_seen() {
            return None;
        }
        if goal == Goal::Revision("".into()) {
            self.wait(Waiting::Revision);
            return None;
        }
        self.put_back(goal, here, start)
    }
}

/// One text for each template is enough.
fn share(good: &mut LastGood) {
    let mut told: BTreeSet<Digest> = good.template_digest.iter().cloned().collect();
    for layer in good.beneath.iter_mut().rev() {
        if !told.insert(layer.template_digest.clone()) {
            layer.template = None;
        }
    }
}
