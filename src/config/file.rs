//! The file form of the configuration: strict keys, defaults, then checks.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::SignedDuration;
use serde::{Deserialize, de::IgnoredAny};

use super::{Config, FirstContact, LeaderElection, NotAnAddress, Repository, ServeAt};
use crate::{
    api::names::RepoName,
    manifest::{
        nearest,
        yaml::{self, YamlError},
    },
    world::git::Signature,
};

/// For how long a return to last good needs no canary where the file says nothing.
pub(super) const REVERT_WINDOW: SignedDuration = SignedDuration::from_hours(72);
/// Where metrics are served where the file says nothing.
const METRICS: &str = ":8080";
/// Looks at a remote are at least this far apart.
const SHORTEST_POLL: Duration = Duration::from_secs(1);

/// Why a configuration cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// No YAML, an unknown key, a wrong value.
    #[error("{error}{hint}\n{snippet}", hint = hint(.error), snippet = veiled(&.error.snippet))]
    Unreadable {
        /// What is wrong, and where.
        error: YamlError,
    },
    /// Keys whose rules are not built yet.
    #[error("not supported yet: {keys}; leave them out", keys = .keys.join(", "))]
    NotSupported {
        /// Their paths.
        keys: Vec<String>,
    },
    /// Values that cannot work.
    #[error("{faults}", faults = .faults.join("\n"))]
    Invalid {
        /// Every fault, in order of the file.
        faults: Vec<String>,
    },
}

/// `; did you mean ...?` for an unknown field, from the list of known ones that the error carries.
fn hint(error: &YamlError) -> String {
    let unknown = error.message.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`'));
    let meant = unknown.and_then(|(word, rest)| {
        let (_, known) = rest.split_once("expected ")?;
        let known = known.strip_prefix("one of ").unwrap_or(known);
        nearest(word, known.split([',', ' ', '`']).filter(|name| !name.is_empty()))
    });
    meant.map(|meant| format!("; did you mean `{meant}`?")).unwrap_or_default()
}

/// The lines without what a URL carries before its `@`: errors go into logs, passwords do not.
fn veiled(snippet: &str) -> String {
    let line = |line: &str| match line
        .split_once("://")
        .and_then(|(left, rest)| Some((left, rest.rsplit_once('@')?)))
    {
        Some((left, (secret, right))) => format!("{left}://{}@{right}", "*".repeat(secret.chars().count())),
        None => line.to_owned(),
    };
    snippet.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    cluster: String,
    repositories: Vec<Entry>,
    #[serde(default = "three_days")]
    revert_window: SignedDuration,
    #[serde(default)]
    policies: Option<String>,
    #[serde(default)]
    server: Server,
    #[serde(default)]
    leader_election: Election,
    #[serde(default)]
    take_over: Option<IgnoredAny>,
    #[serde(default)]
    drift: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Server {
    metrics: String,
    webhook: Option<IgnoredAny>,
}

impl Default for Server {
    fn default() -> Self {
        Self { metrics: METRICS.to_owned(), webhook: None }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Election {
    enabled: bool,
    lease_duration: SignedDuration,
    renew_deadline: SignedDuration,
    retry_period: SignedDuration,
}

impl Default for Election {
    fn default() -> Self {
        let LeaderElection { enabled, lease_duration, renew_deadline, retry_period } =
            LeaderElection::ASSUMED;
        let signed = |of| SignedDuration::try_from(of).unwrap_or(SignedDuration::MAX);
        Self {
            enabled,
            lease_duration: signed(lease_duration),
            renew_deadline: signed(renew_deadline),
            retry_period: signed(retry_period),
        }
    }
}

impl From<&Election> for LeaderElection {
    fn from(election: &Election) -> Self {
        // What is negative is too short.
        let unsigned = |of: SignedDuration| Duration::try_from(of).unwrap_or_default();
        Self {
            enabled: election.enabled,
            lease_duration: unsigned(election.lease_duration),
            renew_deadline: unsigned(election.renew_deadline),
            retry_period: unsigned(election.retry_period),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Entry {
    name: String,
    url: String,
    #[serde(default = "main")]
    branch: String,
    #[serde(default = "everything")]
    paths: Vec<String>,
    #[serde(default = "half_a_minute")]
    poll: SignedDuration,
    #[serde(default)]
    credentials: Option<String>,
    #[serde(default)]
    allow: Allow,
    #[serde(default)]
    write_back: WriteBack,
    #[serde(default)]
    first_contact: FirstContact,
    #[serde(default)]
    shared: Option<IgnoredAny>,
    #[serde(default)]
    preview: Option<IgnoredAny>,
    #[serde(default)]
    forge: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Allow {
    #[serde(default)]
    kinds: Option<IgnoredAny>,
    #[serde(default = "anywhere")]
    namespaces: Vec<String>,
}

impl Default for Allow {
    fn default() -> Self {
        Self { kinds: None, namespaces: anywhere() }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct WriteBack {
    status: StatusTo,
    rollback: RollbackBy,
    commit: Commit,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
enum StatusTo {
    #[default]
    Branch,
    None,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
enum RollbackBy {
    #[default]
    Commit,
    PullRequest,
    None,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Commit {
    name: String,
    email: String,
    subject_prefix: String,
    signing: Option<IgnoredAny>,
}

impl Default for Commit {
    fn default() -> Self {
        Self {
            name: "trunkline".to_owned(),
            email: "trunkline@localhost".to_owned(),
            subject_prefix: String::new(),
            signing: None,
        }
    }
}

fn main() -> String {
    "main".to_owned()
}
fn everything() -> Vec<String> {
    vec![String::new()]
}
fn anywhere() -> Vec<String> {
    vec!["*".to_owned()]
}
const fn half_a_minute() -> SignedDuration {
    SignedDuration::from_secs(30)
}
const fn three_days() -> SignedDuration {
    REVERT_WINDOW
}

impl Config {
    /// Reads the text of a configuration file; `namespace` and `cluster_uid` are what the cluster says of itself.
    pub fn parse(text: &str, namespace: &str, cluster_uid: &str) -> Result<Self, ConfigError> {
        let file: File = yaml::typed(text).map_err(|error| ConfigError::Unreadable { error })?;
        let keys = not_supported(&file);
        if !keys.is_empty() {
            return Err(ConfigError::NotSupported { keys });
        }
        let faults = faults(&file);
        if !faults.is_empty() {
            return Err(ConfigError::Invalid { faults });
        }
        let leader_election = LeaderElection::from(&file.leader_election);
        Ok(Self {
            cluster: file.cluster,
            namespace: namespace.to_owned(),
            repositories: file.repositories.into_iter().map(Repository::from).collect(),
            revert_window: file.revert_window.unsigned_abs(),
            leader_election,
            cluster_uid: cluster_uid.to_owned(),
            // Checked above.
            metrics: file.server.metrics.parse().unwrap_or(ServeAt::Nowhere),
            policies: file.policies,
        })
    }
}

impl From<Entry> for Repository {
    fn from(entry: Entry) -> Self {
        let WriteBack { status, rollback, commit } = entry.write_back;
        Self {
            name: RepoName::from(entry.name),
            url: entry.url,
            branch: entry.branch,
            paths: entry.paths,
            poll: entry.poll.unsigned_abs(),
            credentials: entry.credentials,
            status_branch: status == StatusTo::Branch,
            rollback_commit: rollback == RollbackBy::Commit,
            by: Signature { name: commit.name, email: commit.email },
            subject_prefix: commit.subject_prefix,
            first_contact: entry.first_contact,
            allow_namespaces: entry.allow.namespaces,
        }
    }
}

/// Paths of the keys that are known and have no rule yet.
fn not_supported(file: &File) -> Vec<String> {
    let top = [("server.webhook", file.server.webhook), ("takeOver", file.take_over), ("drift", file.drift)];
    let mut keys: Vec<String> = named(&top).map(str::to_owned).collect();
    for entry in &file.repositories {
        let WriteBack { status: _, rollback, commit } = &entry.write_back;
        let by_request = (*rollback == RollbackBy::PullRequest).then_some(IgnoredAny);
        let inner = [
            ("allow.kinds", entry.allow.kinds),
            ("writeBack.rollback: pullRequest", by_request),
            ("writeBack.commit.signing", commit.signing),
            ("shared", entry.shared),
            ("preview", entry.preview),
            ("forge", entry.forge),
        ];
        keys.extend(named(&inner).map(|key| format!("{key} (repository {})", entry.name)));
    }
    keys
}

fn named<'k>(keys: &[(&'k str, Option<IgnoredAny>)]) -> impl Iterator<Item = &'k str> {
    keys.iter().filter(|(_, value)| value.is_some()).map(|(key, _)| *key)
}

/// Everything that cannot work although its type is right.
fn faults(file: &File) -> Vec<String> {
    let mut faults = Vec::new();
    let mut check = |holds: bool, fault: String| {
        if !holds {
            faults.push(fault);
        }
    };
    let File { cluster, repositories, revert_window, leader_election, server, .. } = file;
    check(server.metrics.parse::<ServeAt>().is_ok(), format!("server.metrics: {NotAnAddress}"));
    check(
        is_ref_part(cluster),
        format!(
            "cluster: `{cluster}` cannot be part of a branch name; use letters, digits, `-`, `_` and `.`"
        ),
    );
    check(!revert_window.is_negative(), "revertWindow: must not be negative".to_owned());
    let election = LeaderElection::from(leader_election).fault();
    check(election.is_none(), format!("leaderElection: {}", election.unwrap_or_default()));
    check(!repositories.is_empty(), "repositories: at least one is needed".to_owned());
    let mut names = BTreeSet::new();
    let mut remotes = BTreeMap::new();
    for entry in repositories {
        let name = &entry.name;
        check(names.insert(name), format!("repositories: `{name}` is there twice"));
        if let Some(other) = remotes.insert(&entry.url, name) {
            // A second entry would write the same status branch.
            check(other == name, format!("repositories: `{other}` and `{name}` have the same url"));
        }
        for fault in repository_faults(entry, cluster) {
            check(false, format!("repository {name}: {fault}"));
        }
    }
    faults
}

fn repository_faults(entry: &Entry, cluster: &str) -> Vec<String> {
    let Entry { name, branch, paths, poll, write_back: WriteBack { commit, .. }, .. } = entry;
    let is_name = !name.is_empty()
        && name.len() <= 40
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    let one_line = |text: &str| !text.chars().any(char::is_control);
    let is_identity = |text: &str| one_line(text) && !text.trim().is_empty() && !text.contains(['<', '>']);
    let long_enough = !poll.is_negative() && poll.unsigned_abs() >= SHORTEST_POLL;
    let rules = [
        (is_name, "the name needs 1 to 40 lower-case letters, digits and `-`".to_owned()),
        (branch.split('/').all(is_ref_part), format!("branch: `{branch}` is no name of a branch")),
        (
            *branch != Repository::status_branch_name(cluster),
            format!("branch: `{branch}` is the status branch, which is written, never followed"),
        ),
        (
            !paths.is_empty(),
            "paths: none is given; leave the key out to read the whole repository".to_owned(),
        ),
        (
            paths.iter().all(|path| is_inside(path)),
            "paths: each must stay inside of the repository".to_owned(),
        ),
        (long_enough, format!("poll: must be at least {} s", SHORTEST_POLL.as_secs())),
        (
            is_identity(&commit.name) && is_identity(&commit.email),
            "writeBack.commit: name and email need text on one line without `<` and `>`".to_owned(),
        ),
        (one_line(&commit.subject_prefix), "writeBack.commit.subjectPrefix: must be one line".to_owned()),
    ];
    rules.into_iter().filter(|(holds, _)| !holds).map(|(_, fault)| fault).collect()
}

/// Whether a text can stand between the slashes of a branch name, as `git check-ref-format` says, and is plain.
fn is_ref_part(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'+' | b'#');
    (1..=63).contains(&text.len())
        && text.bytes().all(plain)
        && !text.starts_with(['.', '-'])
        && !text.ends_with(['.'])
        && !text.contains("..")
        && !text.to_ascii_lowercase().ends_with(".lock")
}

fn is_inside(path: &str) -> bool {
    !path.starts_with('/') && path.split('/').all(|part| part != "..")
}
