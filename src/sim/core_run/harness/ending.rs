//! Liveness: everything comes to rest within its bound, no slot stays taken, and status and cluster agree.

use std::collections::BTreeMap;

use super::{Checked, Harness};
use crate::{
    api::{
        CniUpgradeStatus,
        cni_upgrade::CniPhase,
        status::{LastGood, Outcome, Truth},
    },
    sim::{
        core_run::laws::{Law, broken, tag},
        model::{
            body::{Body, PodBody},
            store::{Kind, ObjRef, Stored},
        },
    },
};

/// Reasons for which an attempt may wait for people for ever.
const FOR_PEOPLE: [&str; 6] =
    ["TemplateChanged", "OwnershipConflict", "StrategyChanged", "NoNodes", "NoCanary", "TooManyUnhealthy"];

impl Harness<'_> {
    /// The bound is over and something still happens.
    pub(super) fn ended_late(&mut self) -> Checked {
        let status = self.stored_status();
        let what = format!("still busy: {}, due {:?}", tell(status.as_ref()), self.due);
        broken(Law::Ends, self.model.now(), what)
    }

    /// Nothing happens any more: it has to be the end of something.
    pub(super) fn at_rest(&mut self) -> Checked {
        let now = self.model.now();
        let status = self.stored_status();
        self.end = tell(status.as_ref());
        let end = self.end.clone();
        self.note(|harness| {
            let pods = harness.agents().map(|(stored, pod, _)| {
                let images: Vec<_> = pod.containers.last().into_iter().map(|part| &part.image).collect();
                format!("{:?} {:?} {images:?} {:?}", pod.node, pod.ready.status, stored.deleting.is_some())
            });
            format!("at rest: {end}; {:?}", pods.collect::<Vec<_>>())
        });
        let Some(status) = status else { return Ok(()) };
        if !status.nodes.open.is_empty() {
            return broken(Law::Slots, now, format!("open at rest: {end}"));
        }
        let for_people = status.waiting_for.iter().any(|w| FOR_PEOPLE.contains(&w.reason.as_str()));
        let stalled = status.conditions.iter().any(|c| c.r#type == "Stalled" && c.status == Truth::True);
        match status.phase {
            CniPhase::Completed => self.completed(&status),
            CniPhase::Failed => self.failed(&status),
            CniPhase::Pending | CniPhase::Canary | CniPhase::RollingOut | CniPhase::Rollback
                if for_people || stalled =>
            {
                Ok(())
            }
            CniPhase::Pending | CniPhase::Canary | CniPhase::RollingOut | CniPhase::Rollback => {
                broken(Law::Ends, now, format!("at rest in the middle: {end}"))
            }
        }
    }

    fn completed(&self, status: &CniUpgradeStatus) -> Checked {
        let outcome = status.attempt.as_ref().and_then(|attempt| attempt.outcome);
        let upgraded = matches!(outcome, Some(Outcome::Completed | Outcome::CompletedWithFailures));
        let wrote = status.attempt.as_ref().and_then(|attempt| attempt.template.as_ref());
        let drifted = self.live_digest().as_ref() != wrote.map(|intent| &intent.wrote);
        if !self.declared || !upgraded || drifted {
            return Ok(());
        }
        // A wish that failed before and is declared again is passed over: what completed last stays.
        let passed_over =
            status.conditions.iter().any(|c| c.r#type == "Stalled" && c.reason == "Quarantined");
        let completed = status.target_version.as_deref().filter(|_| passed_over);
        let target = format!(":{}", completed.unwrap_or(&self.spec.target_version).trim());
        let listed = |node: &str| {
            let failed = status.nodes.failures.iter().any(|failure| failure.node.as_str() == node);
            failed || status.nodes.skips.iter().any(|skip| skip.node.as_str() == node)
        };
        let wrong = self.agents().find(|(_, pod, node)| {
            let scope =
                self.spec.node_selector.iter().all(|(key, value)| node.meta.labels.get(key) == Some(value));
            let early = Some(node.created) < status.attempt.as_ref().and_then(|attempt| attempt.finished_at);
            scope && early && !runs(pod, &target) && !listed(&node.at.name)
        });
        if let Some((stored, ..)) = wrong {
            return broken(Law::Agreement, self.model.now(), format!("{} is not on {target}", stored.at));
        }
        self.strategy_is_back(status)
    }

    fn failed(&self, status: &CniUpgradeStatus) -> Checked {
        let outcome = status.attempt.as_ref().and_then(|attempt| attempt.outcome);
        let (Some(Outcome::RolledBack | Outcome::RollbackIncomplete), Some(good)) =
            (outcome, &status.last_good)
        else {
            return Ok(());
        };
        if self.meddled(status) {
            return Ok(());
        }
        // A node that is left where it was has been tried.
        let tried = |node: &str| {
            let mut back = status.nodes.failures.iter().filter(|failure| failure.in_rollback);
            outcome == Some(Outcome::RollbackIncomplete) && back.any(|failure| failure.node.as_str() == node)
        };
        let version = tag(&good.version);
        let finished = status.attempt.as_ref().and_then(|attempt| attempt.finished_at);
        let wrong = self.agents().find(|(stored, pod, node)| {
            // Where several templates run, what came up after the end took the newest.
            let late = !good.beneath.is_empty() && finished.is_some_and(|at| stored.created >= at);
            let back = match Self::layer(good, node) {
                Some(template) => pod.containers.iter().all(|part| template.contains(&*part.image)),
                None => runs(pod, &version),
            };
            !late && !back && !tried(&node.at.name)
        });
        if let Some((stored, ..)) = wrong {
            return broken(
                Law::Agreement,
                self.model.now(),
                format!("{} is not back on {version}", stored.at),
            );
        }
        self.strategy_is_back(status)
    }

    /// Template of the older layer of last good in which a node is, unless the newest selects it.
    fn layer<'g>(good: &'g LastGood, node: &Stored) -> Option<&'g str> {
        let selects = |selector: &BTreeMap<String, String>| {
            selector.iter().all(|(key, value)| node.meta.labels.get(key) == Some(value))
        };
        if selects(&good.node_selector) {
            return None;
        }
        let layer = good.beneath.iter().rev().find(|layer| selects(&layer.node_selector))?;
        let same = good
            .beneath
            .iter()
            .find(|other| other.template_digest == layer.template_digest && other.template.is_some());
        same.and_then(|layer| layer.template.as_deref()).or(good.template.as_deref())
    }

    fn strategy_is_back(&self, status: &CniUpgradeStatus) -> Checked {
        let held = status.conditions.iter().any(|c| c.r#type == "StrategyHeld" && c.status == Truth::True);
        match self.strategy() {
            Some((strategy, true)) if !held => {
                broken(Law::Agreement, self.model.now(), format!("the strategy stays {strategy:?}"))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Others changed the template after the attempt had ended: that is drift, and stays.
    fn meddled(&self, status: &CniUpgradeStatus) -> bool {
        let live = self.live_digest();
        let attempt = status.attempt.as_ref().and_then(|attempt| attempt.template.as_ref());
        let good = status.last_good.as_ref().and_then(|good| good.template_digest.as_ref());
        live.as_ref() != attempt.map(|intent| &intent.wrote) && live.as_ref() != good
    }

    fn live_digest(&self) -> Option<crate::api::names::Digest> {
        match &self.model.get(&crate::sim::model::actors::agent_ref(&self.agent))?.body {
            Body::DaemonSet(body) => Some(body.template.digest.clone()),
            Body::Node(_) | Body::Pod(_) | Body::Revision(_) | Body::Plain(_) => None,
        }
    }

    /// Agent pods with their nodes.
    fn agents(&self) -> impl Iterator<Item = (&Stored, &PodBody, &Stored)> {
        self.model.list(Kind::Pod, None).filter_map(|stored| match &stored.body {
            Body::Pod(pod) => {
                let node = self.model.get(&ObjRef::cluster(Kind::Node, pod.node.clone()?))?;
                Some((&**stored, &**pod, &**node))
            }
            Body::Node(_) | Body::DaemonSet(_) | Body::Revision(_) | Body::Plain(_) => None,
        })
    }
}

fn runs(pod: &PodBody, tag: &str) -> bool {
    pod.containers.iter().any(|part| part.image.ends_with(tag))
}

fn tell(status: Option<&CniUpgradeStatus>) -> String {
    let Some(status) = status else { return "no status".to_owned() };
    let outcome = status.attempt.as_ref().and_then(|attempt| attempt.outcome);
    let waits: Vec<&str> = status.waiting_for.iter().map(|waiting| waiting.reason.as_str()).collect();
    let says: Vec<String> = status
        .conditions
        .iter()
        .filter(|c| c.status == Truth::True)
        .map(|c| format!("{}={}", c.r#type, c.reason))
        .collect();
    format!("{:?} {outcome:?} waits {waits:?} {says:?}", status.phase)
}
