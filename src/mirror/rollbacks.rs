//! What a rollback commit puts back, and when it is made, seen or not needed any more.

use std::collections::BTreeMap;

use super::{
    accept::Accepted,
    ledger::{Ledger, ObjectEntry, RollbackEntry, RollbackState, TargetEntry},
    readings::Readings,
};
use crate::{
    api::{ClaimKey, status::LastGood},
    manifest::{
        Reading,
        wish::{Wish, normalise},
    },
    world::git::CommitInfo,
};

/// Trailer of a rollback commit that names its attempt.
pub const ATTEMPT_TRAILER: &str = "Trunkline-Attempt";

/// The wish that Git should name again, with its bytes as written; `None` = the object was not there before.
pub(super) fn restored(
    target: &TargetEntry,
    key: &ClaimKey,
    object: &ObjectEntry,
    last_good: &LastGood,
) -> Option<(Wish, BTreeMap<String, String>)> {
    let before = object.before.as_ref()?;
    let newest_first = || target.wishes.iter().rev();
    let declared = newest_first()
        .find(|wish| wish.wish == last_good.wish && wish.claim == *key)
        .or_else(|| newest_first().find(|wish| wish.wish == last_good.wish));
    if let Some(wish) = declared {
        return Some((wish.wished.clone(), wish.written.clone()));
    }
    let base = newest_first().find(|wish| wish.wish == *before && wish.claim == *key);
    let (wished, mut written) = match base {
        Some(base) => (&base.wished, base.written.clone()),
        None => (&object.wished, BTreeMap::new()),
    };
    match wished {
        Wish::Cni { provider, node_selector, .. } => {
            written.remove("targetVersion");
            let wish = Wish::Cni {
                provider: provider.clone(),
                target_version: normalise(&last_good.version),
                node_selector: node_selector.clone(),
            };
            Some((wish, written))
        }
        Wish::Service { .. } => None,
    }
}

/// Moves each rollback to `Recorded` when its commit is on the branch, else to `Moot` when the wish is gone.
///
/// A trailer alone proves nothing: whoever copies it leaves the wish where it is.
pub(super) fn settle(ledger: &mut Ledger, taken: Option<(&Accepted<'_>, &Readings)>) {
    let steps = || {
        let steps =
            taken.into_iter().flat_map(|(accepted, readings)| accepted.steps.iter().zip(&readings.steps));
        steps.map(|(step, (_, reading))| (&step.commit, reading))
    };
    for target in ledger.targets.values_mut() {
        let (tokens, provider) = (&target.tokens, target.provider.as_deref());
        for rollback in &mut target.rollbacks {
            if matches!(rollback.state, RollbackState::Recorded(_)) {
                continue;
            }
            let recorded = steps().find(|(commit, reading)| {
                records(commit, rollback) && !declares(reading, rollback, provider)
            });
            if let Some((commit, _)) = recorded {
                rollback.state = RollbackState::Recorded(commit.oid.clone());
            } else if !still_wanted(ledger.objects.get(&rollback.claim), rollback, tokens) {
                rollback.state = RollbackState::Moot;
            }
        }
    }
}

fn records(commit: &CommitInfo, rollback: &RollbackEntry) -> bool {
    commit.message.lines().any(|line| {
        line.strip_prefix(ATTEMPT_TRAILER)
            .and_then(|rest| rest.strip_prefix(':'))
            .is_some_and(|id| id.trim() == rollback.attempt.as_str())
    })
}

fn declares(reading: &Reading, rollback: &RollbackEntry, provider: Option<&str>) -> bool {
    let declared = reading.declarations.get(&rollback.claim);
    declared.is_some_and(|declaration| declaration.wish.on(provider).hash() == rollback.from)
}

/// Whether the accepted declaration carries the failed wish without asking for another try of it.
fn still_wanted(object: Option<&ObjectEntry>, rollback: &RollbackEntry, used: &[String]) -> bool {
    object.is_some_and(|object| {
        object.removed.is_none()
            && object.wish == rollback.from
            && object.token.as_ref().is_none_or(|token| used.contains(token))
    })
}
