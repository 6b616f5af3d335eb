//! Condition `GitPublished`: whether Git says what happened, and if not, why and what to do.

use super::{
    View,
    rollback::{self, Stand},
    status,
};
use crate::{
    api::{ClaimKey, reasons::Reason, status::Truth},
    config::Config,
    mirror::ledger::{RollbackEntry, TargetEntry},
    report::problems::{
        document_unreadable, name_taken, rewritten, rollback_refused, status_refused, undecided, unreachable,
    },
    world::{Key, World},
};

/// Says whether Git tells of a claim's present state; a function of what was seen, without a clock.
pub fn git_published(world: &World, config: &Config, claim: &ClaimKey) -> (Truth, Reason, String) {
    let view = config
        .repositories
        .iter()
        .filter_map(|repo| View::of(super::PublishCase { repo, world, config }))
        .find(|view| view.ledger.objects.contains_key(claim));
    match view {
        Some(view) => of(&view, claim),
        None if is_dropped(world, config, claim) => {
            let message = "Its repository is not in the configuration any more, so nothing is written to it.";
            (Truth::Unknown, Reason::NotConfigured, message.to_owned())
        }
        None => (Truth::Unknown, Reason::Publishing, "Its repository was not read yet.".to_owned()),
    }
}

fn is_dropped(world: &World, config: &Config, claim: &ClaimKey) -> bool {
    let ledger = world.last_read().find(|ledger| ledger.objects.contains_key(claim));
    ledger.is_some_and(|ledger| !config.repositories.iter().any(|repo| repo.name == ledger.repository))
}

fn of(view: &View<'_>, claim: &ClaimKey) -> (Truth, Reason, String) {
    if let Some((why, _)) = view.case.world.undecided.get(&Key::Publish(view.case.repo.name.clone())) {
        return (Truth::False, Reason::DecisionFailed, undecided("what to write to Git", why));
    }
    if let Some(uid) = view.taken() {
        return (Truth::False, Reason::ClusterNameTaken, name_taken(&view.case.config.cluster, &uid));
    }
    if let Some(trouble) = &view.git.trouble {
        return (Truth::False, Reason::Unreachable, unreachable(&trouble.message, trouble.since));
    }
    let mut entries = rollback::entries(view).filter(|(_, entry)| entry.claim == *claim);
    if let Some(pending) = entries.find_map(|(target, entry)| pending(view, target, entry)) {
        return pending;
    }
    if !view.case.repo.status_branch {
        let message = "Rollback commits are made; no status branch is written, as the configuration says.";
        return (Truth::True, Reason::Published, message.to_owned());
    }
    let branch = view.branch();
    if let Some(refused) = view.git.refused.get(status::REFUSED) {
        return (Truth::False, Reason::PushRefused, status_refused(&branch, refused));
    }
    if status::told(view, claim) {
        (Truth::True, Reason::Published, format!("Branch {branch} tells of every phase."))
    } else {
        (Truth::False, Reason::Publishing, format!("The last phase waits to be pushed to branch {branch}."))
    }
}

/// What keeps a rollback commit from being in Git.
fn pending(view: &View<'_>, target: &TargetEntry, entry: &RollbackEntry) -> Option<(Truth, Reason, String)> {
    match rollback::stand(view, target, entry) {
        Stand::Settled => None,
        Stand::Rewritten => Some((Truth::False, Reason::HistoryRewritten, rewritten(entry))),
        Stand::Unreadable(what) => {
            Some((Truth::False, Reason::InvalidManifest, document_unreadable(entry, &what)))
        }
        Stand::Unread | Stand::Due(_) => Some(match view.git.refused.get(entry.attempt.as_str()) {
            Some(refused) => (Truth::False, Reason::PushRefused, rollback_refused(entry, refused)),
            None => (
                Truth::False,
                Reason::Publishing,
                "The rollback commit waits to be pushed to the tracked branch.".to_owned(),
            ),
        }),
    }
}
