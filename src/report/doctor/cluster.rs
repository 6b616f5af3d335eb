//! The cluster: its API server, its clock, its network agent, and what trunkline keeps there.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::Finding;
use crate::{
    access::ACCOUNT,
    api::names::{LEASE, RepoName},
    profile::{self, Profile},
    report::{
        escape::line,
        waiting::refusal,
        words::{NAME, QUOTE, names, time},
    },
    rollout::waiting::Refusal,
    world::{AgentKey, World},
};

/// Oldest minor version of Kubernetes 1 that trunkline is made for.
const OLDEST: u32 = 34;
/// Difference of clocks from which on it is worth a look.
const NOTED: SignedDuration = SignedDuration::from_secs(5);
/// Difference of clocks from which on times in Git and in the cluster mislead people.
const MISLEADING: SignedDuration = SignedDuration::from_secs(60);

const SERVER: &str = "api server";
const CLOCK: &str = "clock";
const CHECK_LEASE: &str = "lease";
const PROVIDER: &str = "provider";
const LEDGERS: &str = "ledgers";

/// Why the API server gives no version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerFault {
    /// No way leads there.
    Unreachable(String),
    /// It does not know the credentials.
    Unauthorised,
    /// Anything else.
    Odd(String),
}

/// Says that nothing leads to a cluster.
pub fn in_no_cluster(why: &str) -> Vec<Finding> {
    no_cluster(Finding::fault(
        SERVER,
        line(why, QUOTE),
        "Set --kubeconfig and --context, or run it in the pod.",
    ))
}

/// Says why the API server gives no answer, and that it was asked no more.
pub fn no_server(why: &ServerFault) -> Vec<Finding> {
    no_cluster(match why {
        ServerFault::Unreachable(text) => Finding::fault(
            SERVER,
            format!("It cannot be reached: {}.", line(text, QUOTE)),
            "Check --kubeconfig, --context and the network.",
        ),
        ServerFault::Unauthorised => Finding::fault(
            SERVER,
            "It does not know these credentials.",
            "Renew those of the kubeconfig, or the token of the service account.",
        ),
        ServerFault::Odd(text) => Finding::fault(
            SERVER,
            format!("Asked for its version it answers: {}.", line(text, QUOTE)),
            "Look at what stands between this machine and the API server.",
        ),
    })
}

fn no_cluster(fault: Finding) -> Vec<Finding> {
    vec![fault, Finding::skipped("cluster", "Everything else about the cluster, since nobody there answers.")]
}

/// Says whether the version of the API server is one that trunkline is made for.
pub fn server(version: &str) -> Finding {
    let shown = line(version, NAME);
    let mut parts = version.trim_start_matches('v').split(['.', '-', '+']);
    let (major, minor) = (parts.next(), parts.next().and_then(|minor| minor.parse::<u32>().ok()));
    match (major, minor) {
        (Some("1"), Some(minor)) if minor >= OLDEST => {
            Finding::ok(SERVER, format!("It answers, and runs {shown}."))
        }
        _ => Finding::warning(
            SERVER,
            format!("It runs {shown}; trunkline is made for Kubernetes 1.{OLDEST} and later."),
            "Upgrade the control plane first.",
        ),
    }
}

/// Says who asks; `user` is absent where the server does not tell.
pub fn account(user: Option<&str>, namespace: &str) -> Finding {
    let own = format!("system:serviceaccount:{namespace}:{ACCOUNT}");
    match user {
        Some(user) if user == own => Finding::ok("account", format!("It is that of the daemon, {own}.")),
        Some(_) | None => {
            let user = user.map_or_else(|| "unknown".to_owned(), |user| line(user, NAME));
            Finding::warning(
                "account",
                format!("It is {user}; what follows is of its rights and not of the daemon's."),
                format!("trunkline doctor --as {own}"),
            )
        }
    }
}

/// How far the clock of the server is ahead of ours, at least, out of the whole seconds of its answer and our times
/// before and after; negative = behind.
pub fn skew(date: Timestamp, before: Timestamp, after: Timestamp) -> SignedDuration {
    let end = date.checked_add(SignedDuration::from_secs(1)).unwrap_or(Timestamp::MAX);
    if date > after {
        after.duration_until(date)
    } else if end < before {
        before.duration_until(end)
    } else {
        SignedDuration::ZERO
    }
}

/// Judges the difference of the clocks; absent = the server told no time.
pub fn clock(ahead: Option<SignedDuration>) -> Finding {
    let Some(ahead) = ahead else {
        return Finding::skipped(CLOCK, "The API server tells no time.");
    };
    let (seconds, off) = (ahead.abs().as_secs(), ahead.abs());
    if off <= NOTED {
        return Finding::ok(CLOCK, "It agrees with that of the API server within 5 s.");
    }
    let way = if ahead.is_positive() { "behind" } else { "ahead of" };
    let message = format!(
        "This machine is {seconds} s {way} the API server; dates in Git and times in the cluster do not fit together."
    );
    let mend = "Have both follow the same time servers (chronyc tracking, timedatectl).";
    if off <= MISLEADING {
        Finding::warning(CLOCK, message, mend)
    } else {
        Finding::fault(CLOCK, message, mend)
    }
}

/// Network agents of the cluster, and whether anything can be done to them; `Err` = they cannot be listed.
pub fn provider(profiles: &[Profile], world: Result<&World, &str>) -> (BTreeSet<AgentKey>, Vec<Finding>) {
    let world = match world {
        Ok(world) => world,
        Err(why) => return (BTreeSet::new(), vec![unlisted(PROVIDER, why)]),
    };
    let (found, mut findings) = match profile::resolve(profiles, world, None) {
        Ok((profile, agent)) => (vec![(profile.name.clone(), agent)], Vec::new()),
        Err(Refusal::ProviderAmbiguous { found }) => {
            let several = Refusal::ProviderAmbiguous { found: found.clone() };
            let mend = "Name it in each CNIUpgrade, with `provider`.";
            (found, vec![Finding::warning(PROVIDER, refusal(&several), mend)])
        }
        Err(none) => {
            let mend = "Nothing can be upgraded before it is there.";
            (Vec::new(), vec![Finding::fault(PROVIDER, refusal(&none), mend)])
        }
    };
    for (name, agent) in &found {
        let profile = profiles.iter().find(|profile| profile.name == *name);
        findings.extend(profile.and_then(|profile| preflight(profile, agent, world)));
    }
    (found.into_iter().map(|(_, agent)| agent).collect(), findings)
}

/// What preflight says of the agent as it stands.
fn preflight(profile: &Profile, key: &AgentKey, world: &World) -> Option<Finding> {
    let agent = &world.agents.get(key)?.is;
    let images = Profile::template_images(&agent.template.raw);
    let version = profile.version(&images);
    let covered = version.as_deref().map(|version| profile.images(&agent.template.raw, version));
    let name = &profile.name;
    Some(match (profile.owner(agent), covered) {
        (Err(no), _) | (Ok(()), Some(Err(no))) => Finding::fault(
            PROVIDER,
            format!("{name}, DaemonSet {key}: {}", refusal(&no)),
            "Each upgrade of it is refused until then.",
        ),
        (Ok(()), None) => Finding::fault(
            PROVIDER,
            format!(
                "{name}, DaemonSet {key}: {} is no version that the profile can read.",
                line(&profile.version_image(&images), QUOTE)
            ),
            "Give the image a tag such as v1.2.3.",
        ),
        (Ok(()), Some(Ok(_))) => {
            let version = version.unwrap_or_default();
            Finding::ok(PROVIDER, format!("{name} {version}, DaemonSet {key}."))
        }
    })
}

/// Says which ledgers there are; `Err` = they cannot be listed, `configured` = repositories that there should be one of.
pub fn ledgers<'r>(
    world: Result<&World, &str>,
    configured: impl IntoIterator<Item = &'r RepoName>,
) -> Vec<Finding> {
    let world = match world {
        Ok(world) => world,
        Err(why) => return vec![unlisted(LEDGERS, why)],
    };
    let mut findings = Vec::new();
    for (repo, seen) in &world.ledgers {
        findings.extend(seen.is.as_ref().err().map(|why| {
            Finding::fault(
                LEDGERS,
                format!("That of repository {repo} cannot be read: {}.", line(why, QUOTE)),
                "Put back its ConfigMap from a backup; until then nothing of this repository acts.",
            )
        }));
    }
    let unread = configured.into_iter().filter(|repo| !world.ledgers.contains_key(repo));
    let unread: Vec<String> = unread.map(ToString::to_string).collect();
    let readable = world.ledgers.iter().filter(|(_, seen)| seen.is.is_ok()).map(|(repo, _)| repo.to_string());
    let readable: Vec<String> = readable.collect();
    if !readable.is_empty() {
        findings.push(Finding::ok(LEDGERS, format!("Read: {}.", names(readable.into_iter()))));
    } else if findings.is_empty() && unread.is_empty() {
        findings.push(Finding::ok(LEDGERS, "None yet; the first reading of a repository makes one."));
    }
    if !unread.is_empty() {
        findings.push(Finding::ok(
            LEDGERS,
            format!("None yet: {}; the first reading makes it.", names(unread.into_iter())),
        ));
    }
    findings
}

fn unlisted(check: &str, why: &str) -> Finding {
    Finding::fault(check, format!("{}.", line(why, QUOTE)), "Grant the rights that are named above.")
}

/// A Lease as it stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeaseSeen {
    /// Who holds it.
    pub holder: Option<String>,
    /// When it was renewed last, on the clock of the holder.
    pub renewed: Option<Timestamp>,
    /// For how many seconds a renewal counts.
    pub seconds: Option<i32>,
}

/// Says that nobody has to lead.
pub fn no_election() -> Finding {
    Finding::skipped(CHECK_LEASE, "The configuration has leader election off; run one replica only.")
}

/// Says who leads; `Ok(None)` = there is no Lease, `Err` = it cannot be read.
pub fn lease(namespace: &str, seen: Result<Option<&LeaseSeen>, &str>, now: Timestamp) -> Finding {
    let look = format!(
        "kubectl -n {namespace} get pods -l app.kubernetes.io/name=trunkline, and the log of one that does not run."
    );
    let seen = match seen {
        Ok(Some(seen)) => seen,
        Ok(None) => {
            let message = format!("Nobody leads: there is no Lease {namespace}/{LEASE}.");
            return Finding::fault(CHECK_LEASE, message, look);
        }
        Err(why) => return unlisted(CHECK_LEASE, why),
    };
    let holder = seen.holder.as_deref().filter(|holder| !holder.is_empty());
    let Some(holder) = holder.map(|holder| line(holder, NAME)) else {
        return Finding::fault(CHECK_LEASE, "Nobody leads: the last holder gave it back.", look);
    };
    let counts = SignedDuration::from_secs(seen.seconds.unwrap_or_default().into());
    match seen.renewed {
        Some(renewed) if renewed.duration_until(now) <= counts => {
            Finding::ok(CHECK_LEASE, format!("{holder} leads, and renewed it at {}.", time(renewed)))
        }
        Some(renewed) => {
            let (at, counts) = (time(renewed), counts.as_secs());
            let message = format!("Nobody leads: {holder} renewed it last at {at}, for {counts} s.");
            Finding::fault(CHECK_LEASE, message, look)
        }
        None => Finding::fault(CHECK_LEASE, format!("Nobody leads: {holder} never renewed it."), look),
    }
}
