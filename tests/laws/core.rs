//! Laws of `decide`, over worlds taken from seeded runs.

use std::{collections::BTreeSet, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use trunkline::{
    api::{
        ClaimKey, CniUpgradeStatus,
        names::{Rv, Uid},
    },
    rollout::{Case, Decision, Now, decide, effect::EffectId},
    sim::core_run::{Moment, core_watch, workload::Workload},
    world::{
        AgentKey, ClaimStatus, Feed, Key, Object, ObjectId, Observation, PodKey, Seen, Shape, Target, World,
    },
};

/// Worlds that are looked at.
const WORLDS: u64 = 12;

/// Shows every so many passes of some worlds to a check.
fn moments(every: usize, mut check: impl FnMut(&Moment<'_>)) {
    let mut count = 0;
    for seed in 1..=WORLDS {
        let workload = Workload::of(seed, None);
        let mut watch = |moment: &Moment<'_>| {
            count += 1;
            if count % every == 0 {
                check(moment);
            }
        };
        if let Err(broken) = core_watch(seed, &workload, &mut watch) {
            panic!("{}", broken.violation);
        }
    }
    assert!(count / every > 30, "enough moments: {count}");
}

fn again(moment: &Moment<'_>, world: &World, at: Timestamp) -> Decision {
    decide(&Case { world, ..moment.case }, Now { at, ..moment.now })
}

/// The world once the statuses of a decision are written.
fn written(moment: &Moment<'_>) -> World {
    let mut world = moment.case.world.clone();
    for write in &moment.decision.statuses {
        let claim = world.claims.get_mut(&write.claim).unwrap();
        let status: CniUpgradeStatus = serde_json::from_value((*write.status).clone()).unwrap();
        claim.is.status = ClaimStatus::Cni(Box::new(status));
        claim.rv = Rv(claim.rv.0 + 1);
    }
    world
}

fn ids(decision: &Decision) -> BTreeSet<&EffectId> {
    decision.effects.keys().collect()
}

#[test]
fn deciding_on_its_own_result_changes_nothing() {
    moments(3, |moment| {
        let second = again(moment, &written(moment), moment.now.at);
        assert_eq!(second.statuses, [], "{:?}", moment.decision);
        let first = ids(moment.decision);
        assert!(ids(&second).is_subset(&first), "{:?} beyond {first:?}", ids(&second));
    });
}

#[test]
fn nothing_would_change_before_the_next_look() {
    moments(5, |moment| {
        let world = written(moment);
        let at = |seconds: i64| moment.now.at.saturating_add(SignedDuration::from_secs(seconds)).unwrap();
        let wait = moment.decision.recheck.map_or(6 * 3600, |wait| i64::try_from(wait.as_secs()).unwrap());
        let first = again(moment, &world, moment.now.at);
        // Due times are whole seconds, rounded up by one.
        for seconds in [wait / 3, wait - 2].into_iter().filter(|seconds| *seconds > 0) {
            let then = again(moment, &world, at(seconds));
            assert_eq!(then.statuses, [], "{seconds} of {wait} seconds later");
            assert!(ids(&then).is_subset(&ids(&first)), "{seconds} of {wait} seconds later");
        }
    });
}

#[test]
fn an_observation_that_makes_nothing_due_changes_no_decision() {
    moments(40, |moment| {
        let key = Key::Rollout(moment.case.target.clone());
        let mut world = moment.case.world.clone();
        let mut before = again(moment, &world, moment.now.at);
        for observation in moment.model.relist() {
            let dirty = world.apply(observation.clone(), moment.now.at);
            let after = again(moment, &world, moment.now.at);
            let same = before.effects == after.effects
                && before.waiting == after.waiting
                && before.refusals == after.refusals
                && statuses(&before) == statuses(&after);
            assert!(same || dirty.contains(&key), "{observation:?} is not told to {key:?}");
            before = after;
        }
    });
}

/// Statuses apart from the version that they replace.
fn statuses(decision: &Decision) -> Vec<Arc<serde_json::Value>> {
    decision.statuses.iter().map(|write| Arc::clone(&write.status)).collect()
}

#[test]
fn objects_of_others_change_no_decision() {
    moments(5, |moment| {
        let mut world = moment.case.world.clone();
        let Target::Agent(mine) = moment.case.target else { return };
        let Some(agent) = world.agents.get(mine).cloned() else { return };
        let stranger = Uid::new("another-daemonset");
        let mut other = agent.clone();
        other.uid = stranger.clone();
        other.is.generation += 7;
        let key = AgentKey { namespace: "monitoring".to_owned(), name: "node-exporter".to_owned() };
        world.agents.insert(key, other);
        let pods: Vec<_> = world.pods.iter().map(|(_, pod)| pod.clone()).collect();
        for (index, Seen { rv, mut is, .. }) in pods.into_iter().enumerate() {
            is.owner = Some(stranger.clone());
            is.ready = false;
            let key = PodKey { namespace: "monitoring".into(), name: format!("exporter-{index}").into() };
            let uid = Uid::new(format!("stranger-{index}"));
            let object = Object { id: ObjectId::Pod(key), uid, rv, shape: Shape::Pod(is) };
            world.apply(Observation::Changed(Feed::Pods, Box::new(object)), moment.now.at);
        }
        if let Some(mut claim) = world.claims.values().next().cloned() {
            claim.uid = Uid::new("another-claim");
            world.claims.insert(ClaimKey::service("shop", "checkout"), claim);
        }
        assert_eq!(again(moment, &world, moment.now.at), *moment.decision);
    });
}

/// The same JSON with every whole number at the end of its range; the epoch, which decides who may write, stays.
fn extreme(key: &str, value: &Value, (long, short): (i64, i32)) -> Value {
    match value {
        Value::Number(n) if n.is_f64() || key == "epoch" => value.clone(),
        Value::Number(_) if ["number", "total", "spent", "attempt", "observedGeneration"].contains(&key) => {
            Value::from(long)
        }
        Value::Number(_) => Value::from(short),
        Value::Array(items) => items.iter().map(|item| extreme(key, item, (long, short))).collect(),
        Value::Object(map) => {
            let fields = map.iter();
            Value::Object(fields.map(|(k, v)| (k.clone(), extreme(k, v, (long, short)))).collect())
        }
        Value::Null | Value::Bool(_) | Value::String(_) => value.clone(),
    }
}

#[test]
fn any_number_that_somebody_writes_into_a_status_gives_a_decision() {
    let mut tried = 0;
    moments(3, |moment| {
        for ends in [(i64::MAX, i32::MAX), (i64::MIN, i32::MIN)] {
            let mut world = moment.case.world.clone();
            for seen in world.claims.values_mut() {
                let ClaimStatus::Cni(status) = &seen.is.status else { continue };
                let edited = extreme("", &serde_json::to_value(status).unwrap(), ends);
                seen.is.status = ClaimStatus::Cni(Box::new(serde_json::from_value(edited).unwrap()));
                tried += 1;
            }
            let _ = again(moment, &world, moment.now.at);
        }
    });
    assert!(tried > 100, "{tried} statuses");
}
