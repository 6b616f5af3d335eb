//! The ledger: what must outlive custom resources, in one bounded ConfigMap per repository.
//!
//! Guarantees: one writer, the mirror pass; every list is bounded; reading ignores unknown fields, so that a
//! downgraded daemon reads a newer ledger.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    api::{
        ClaimKey,
        names::{AttemptId, Digest, Oid, RepoName, WishHash},
        reasons::Reason,
        status::{AttemptKind, Outcome},
    },
    manifest::{Diagnostic, wish::Wish},
    world::Target,
};

/// Bytes up to which new declarations are taken in: as much again, within the 1 MiB of a ConfigMap, is for what becomes
/// of them.
const ROOM: usize = 512 * 1024;
/// Most bytes of a ledger that is written.
pub(super) const MOST: usize = 1_000_000;

/// The whole ledger.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ledger {
    /// Schema version; 1.
    pub version: u32,
    /// Repository it belongs to.
    pub repository: RepoName,
    /// Tracked branch.
    pub branch: String,
    /// Whether a first revision (or an empty branch) was ever accepted.
    #[serde(default)]
    pub started: bool,
    /// The newest revision acted on; absent = none, or an empty branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted: Option<Oid>,
    /// The newest head seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<Oid>,
    /// Declared objects.
    #[serde(default)]
    pub objects: BTreeMap<ClaimKey, ObjectEntry>,
    /// Targets.
    #[serde(default)]
    pub targets: BTreeMap<Target, TargetEntry>,
    /// Repository states: `HistoryRewritten`, `Unreachable`, limits, refused pushes.
    #[serde(default)]
    pub states: Vec<RepoState>,
    /// Current diagnostics, the first 100.
    #[serde(default)]
    pub diagnostics: Vec<Diagnostic>,
    /// Diagnostics beyond the list.
    #[serde(default)]
    pub more_diagnostics: u32,
    /// Configured paths in which an accepted revision had a document of ours.
    #[serde(default)]
    pub used_paths: Vec<String>,
    /// What the config let the accepted revision declare: what a wider scope brings in is first contact.
    #[serde(default)]
    pub scope: Scope,
    /// Files at the accepted revision that hide which key stands in them, with their blob id or why they were
    /// skipped; the first 500.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hiding: BTreeMap<String, String>,
}

/// The part of a repository that is read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Scope {
    /// Configured paths.
    pub paths: Vec<String>,
    /// Namespaces that objects may be in.
    pub namespaces: Vec<String>,
}

/// What is known of one declared object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectEntry {
    /// Path of its manifest at the accepted revision.
    pub path: String,
    /// Hash of its wish, with the provider of its target.
    pub wish: WishHash,
    /// The wish itself, as declared.
    pub wished: Wish,
    /// Digest of its spec with defaults, as mirrored.
    pub spec: Digest,
    /// Commit that brought the wish in.
    pub introduced: Oid,
    /// Revision with which the present form was accepted.
    pub accepted: Oid,
    /// Order of acceptance of the wish; later is greater.
    pub order: u64,
    /// The wish it had before; absent = it was not there before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<WishHash>,
    /// Its present wish was brought in by nobody we saw: it acts only if it is what runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub first_contact: bool,
    /// Files that may hold it while it cannot be found elsewhere: it is not removed before they can be read.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub hidden_in: BTreeSet<String>,
    /// Retry token beside the wish.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Commit that put the token there; absent = it stood there before the wish.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Oid>,
    /// Text of the brake on its custom resource, so that a recreated one is held as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<String>,
    /// How it stands towards its target.
    pub standing: Standing,
    /// Removed in Git; kept until its rollback has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<Removal>,
    /// Target it resolves to.
    pub target: Target,
}

/// How a declaration stands towards its target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Standing {
    /// It acts.
    InForce,
    /// Another one is in force.
    Superseded {
        /// The one in force.
        by: ClaimKey,
    },
    /// Several for one target.
    Ambiguous {
        /// Some of the others, the one in force first.
        others: Vec<ClaimKey>,
    },
    /// Stood in the first accepted revision and is not what runs.
    FirstContact,
}

/// A removal in Git.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Removal {
    /// Commit that removed it.
    pub by: Oid,
}

/// What is known of one target.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TargetEntry {
    /// Name of the profile that its agent was found by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The declaration in force.
    pub in_force: Option<ClaimKey>,
    /// Wishes in the order of acceptance, the newest 50.
    pub wishes: Vec<WishEntry>,
    /// Attempts, the newest 20.
    pub attempts: Vec<AttemptEntry>,
    /// Wishes that failed here, the newest 50.
    pub quarantine: Vec<WishHash>,
    /// Retry tokens used, the newest 100.
    pub tokens: Vec<String>,
    /// Rollbacks to record in Git or recorded there, the newest 20.
    pub rollbacks: Vec<RollbackEntry>,
}

/// One accepted wish.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WishEntry {
    /// Its hash, with the provider of the target.
    pub wish: WishHash,
    /// The wish itself, as last declared, so that a later hash version is recomputed.
    pub wished: Wish,
    /// Object that declared it.
    pub claim: ClaimKey,
    /// Commit that brought it in.
    pub introduced: Oid,
    /// The bytes of the wish's fields as written, by field name, for a rollback commit (bounded to 4 KiB).
    #[serde(default)]
    pub written: BTreeMap<String, String>,
    /// Other files that the commit changed, the first 20, so that a rollback commit can say what it leaves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<String>,
}

/// One attempt, as the last status told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttemptEntry {
    /// Its id.
    pub id: AttemptId,
    /// Its number.
    pub number: i64,
    /// Forward or return.
    #[serde(default)]
    pub kind: AttemptKind,
    /// Object it belonged to.
    pub claim: ClaimKey,
    /// Its wish.
    pub wish: WishHash,
    /// Version it was about.
    pub target_version: String,
    /// Commit that brought the wish in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// When it started.
    pub started_at: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// Reason of a bad end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What became of the rollback commit of one attempt. At most one commit per attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RollbackEntry {
    /// The failed attempt.
    pub attempt: AttemptId,
    /// Object whose document changes.
    pub claim: ClaimKey,
    /// The failed wish.
    pub from: WishHash,
    /// The failed version.
    pub from_version: String,
    /// Version put back.
    pub to_version: String,
    /// Wish put back; absent = the object was not there before, so its document goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<WishHash>,
    /// The wish put back, itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_wish: Option<Wish>,
    /// Bytes of the wish put back, as written before, by field name; without `targetVersion` where the
    /// version that ran was never declared.
    #[serde(default)]
    pub written: BTreeMap<String, String>,
    /// Reason of the failure.
    pub reason: String,
    /// Evidence, bounded.
    pub evidence: String,
    /// Nodes that could not be put back.
    #[serde(default)]
    pub left: Vec<String>,
    /// Commit that brought the failed wish in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub introduced: Option<Oid>,
    /// Other files that this commit changed and that stay as they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<String>,
    /// When the cluster's rollback ended: the time of the commit.
    pub at: Timestamp,
    /// Where it stands.
    pub state: RollbackState,
}

/// Where a rollback commit stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RollbackState {
    /// To be made while head still carries the wish.
    Due,
    /// Seen on the tracked branch as this commit.
    Recorded(Oid),
    /// Head no longer carries the wish, so no commit is made.
    Moot,
}

/// A state of the whole repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepoState {
    /// PascalCase reason.
    pub reason: String,
    /// Full sentences with the way out.
    pub message: String,
    /// Since when.
    pub since: Timestamp,
}

impl Ledger {
    /// All declarations that act.
    pub fn acting(&self) -> impl Iterator<Item = &ClaimKey> {
        self.objects.iter().filter(|(_, entry)| entry.standing == Standing::InForce).map(|(key, _)| key)
    }

    /// Whether the configuration did not name its repository any more when it was last written.
    pub fn is_dropped(&self) -> bool {
        self.states.iter().any(|state| state.reason == Reason::NotConfigured.as_str())
    }

    /// A ledger in which nothing was accepted yet.
    pub fn new(repository: RepoName, branch: &str) -> Self {
        Self {
            version: 1,
            repository,
            branch: branch.to_owned(),
            started: false,
            accepted: None,
            seen: None,
            objects: BTreeMap::new(),
            targets: BTreeMap::new(),
            states: Vec::new(),
            diagnostics: Vec::new(),
            more_diagnostics: 0,
            used_paths: Vec::new(),
            scope: Scope::default(),
            hiding: BTreeMap::new(),
        }
    }

    /// Bytes that it takes in its ConfigMap.
    pub fn bytes(&self) -> usize {
        serde_json::to_string(self).map_or(usize::MAX, |text| text.len())
    }

    /// Bytes that are left for new declarations.
    pub fn room(&self) -> usize {
        ROOM.saturating_sub(self.bytes())
    }

    /// What is known of a declared object.
    pub fn entry(&self, claim: &ClaimKey) -> Option<&ObjectEntry> {
        self.objects.get(claim)
    }

    /// What is known of a target.
    pub fn target(&self, target: &Target) -> Option<&TargetEntry> {
        self.targets.get(target)
    }

    /// The declaration in force for a target; also while it is removed and returns.
    pub fn in_force(&self, target: &Target) -> Option<(&ClaimKey, &ObjectEntry)> {
        let claim = self.targets.get(target)?.in_force.as_ref()?;
        self.objects.get_key_value(claim)
    }

    /// Name of the profile by which the agent of a target was found.
    pub fn provider(&self, target: &Target) -> Option<&str> {
        self.targets.get(target)?.provider.as_deref()
    }

    /// The newest attempt of an object.
    pub fn last_attempt(&self, claim: &ClaimKey) -> Option<&AttemptEntry> {
        self.targets
            .values()
            .flat_map(|target| &target.attempts)
            .filter(|attempt| attempt.claim == *claim)
            .max_by_key(|attempt| attempt.started_at)
    }

    /// Whether a retry token was not used yet on a target.
    pub fn token_is_fresh(&self, target: &Target, token: &str) -> bool {
        self.targets.get(target).is_none_or(|entry| !entry.tokens.iter().any(|used| used == token))
    }

    /// `main@sha1:<hex>`: a commit of the tracked branch, as annotations and statuses name it.
    pub fn revision(&self, commit: &Oid) -> String {
        let format = if commit.as_str().len() == 64 { "sha256" } else { "sha1" };
        format!("{}@{format}:{commit}", self.branch)
    }
}
