//! Whether what was last read of the tracked branch may be acted on.

use std::collections::BTreeMap;

use super::ledger::Ledger;
use crate::{
    api::names::Oid,
    world::git::{CommitStep, Descent, Files, GitSeen},
};

/// A revision that may be acted on, with the way that leads to it.
#[derive(Debug, Clone, Copy)]
pub struct Accepted<'t> {
    /// The revision; absent = the branch does not exist and never did.
    pub revision: Option<&'t Oid>,
    /// Commits after the last accepted revision, oldest first; empty when nothing moved.
    pub steps: &'t [CommitStep],
    /// Files at the revision.
    pub files: &'t Files,
    /// Tree entries at the revision that were skipped, and why.
    pub skipped: &'t [(String, String)],
    /// Configured paths that are absent at the revision.
    pub missing: &'t [String],
}

/// Why nothing new is taken from Git.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held {
    /// The branch was not read yet in this process.
    Unread,
    /// The branch was read from another starting point than the last accepted revision; the next look mends
    /// it.
    Stale,
    /// The head does not descend from the last accepted revision.
    Rewritten {
        /// Last accepted revision.
        accepted: Oid,
        /// Head of the branch.
        head: Oid,
    },
    /// The branch does not exist any more.
    BranchGone {
        /// Last accepted revision.
        accepted: Oid,
    },
}

/// Accepts the head if it descends from the last accepted revision, or is the first one ever seen.
pub fn accept<'t>(ledger: &Ledger, seen: Option<&'t GitSeen>) -> Result<Accepted<'t>, Held> {
    static NO_FILES: Files = BTreeMap::new();
    let tracked = seen.and_then(|seen| seen.tracked.as_ref()).ok_or(Held::Unread)?;
    let nothing = Accepted { revision: None, steps: &[], files: &NO_FILES, skipped: &[], missing: &[] };
    let (head, last) = match (&tracked.head, &ledger.accepted) {
        (None, None) => return Ok(Accepted { missing: &tracked.missing_paths, ..nothing }),
        (None, Some(last)) => return Err(Held::BranchGone { accepted: last.clone() }),
        (Some(head), last) => (head, last),
    };
    let at_head = |steps| Accepted {
        revision: Some(head),
        steps,
        files: &tracked.at_head,
        skipped: &tracked.skipped,
        missing: &tracked.missing_paths,
    };
    let Some(last) = last else { return Ok(at_head(&tracked.steps)) };
    if head == last {
        return Ok(at_head(&[]));
    }
    let mut after = tracked.steps.iter();
    if after.any(|step| step.commit.oid == *last) {
        return Ok(at_head(after.as_slice()));
    }
    if tracked.since.as_ref() != Some(last) {
        return Err(Held::Stale);
    }
    match tracked.descent {
        Descent::Descends => Ok(at_head(&tracked.steps)),
        Descent::Rewritten => Err(Held::Rewritten { accepted: last.clone(), head: head.clone() }),
        Descent::First => Err(Held::Stale),
    }
}
