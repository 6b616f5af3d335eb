//! Is a node healthy?
//!
//! Guarantees: a node counts as failed only for a reason that an agent can cause; a silent kubelet, a node that goes
//! away and a node that was unhealthy before are never failures.

use jiff::{SignedDuration, Timestamp};

use crate::{
    api::{reasons::Reason, status::Truth},
    profile::HealthRules,
    world::{Node, Pod, PodMemory, Seen, WaitReason},
};

/// Seconds for which a node that was healthy must be bad before it counts as failed.
const GRACE: i64 = 30;

/// What can be said of one node whose pod is at the goal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// Ready and stable.
    Healthy,
    /// Neither healthy nor failed yet.
    Settling {
        /// When that changes if nothing is observed before.
        until: Option<Timestamp>,
    },
    /// Failed, with evidence.
    Failed(Reason, String),
    /// The kubelet does not report, or the node goes away: not counted.
    Unreachable,
}

/// One node to be judged.
#[derive(Debug, Clone, Copy)]
pub struct Judge<'a> {
    /// The node.
    pub node: &'a Seen<Node>,
    /// Its agent pod.
    pub pod: &'a Seen<Pod>,
    /// What the pod did over time.
    pub memory: Option<&'a PodMemory>,
    /// The node was unhealthy before us.
    pub baseline: bool,
    /// The pod is new by our doing, so its deadline is kept in the intent.
    pub expected: bool,
    /// Health rules.
    pub rules: HealthRules,
    /// Seconds until a pod that nobody asked for must be healthy.
    pub timeout: i64,
    /// The present.
    pub now: Timestamp,
}

impl Judge<'_> {
    /// The judgement.
    pub fn health(&self) -> Health {
        let (node, pod) = (&self.node.is, &self.pod.is);
        if node.leaving || (node.ready == Truth::Unknown && !self.baseline) {
            return Health::Unreachable;
        }
        if pod.deleting {
            return Health::Settling { until: None };
        }
        if !pod.ready || !pod.initialized {
            return self.not_ready();
        }
        if !self.baseline
            && let Some(health) = self.node_is_worse()
        {
            return health;
        }
        self.after(self.pod.since, self.rules.stable_seconds, || Health::Healthy)
    }

    /// Facts of the node that an agent can worsen.
    fn node_is_worse(&self) -> Option<Health> {
        let node = &self.node.is;
        if node.network_unavailable || node.network_not_ready {
            let evidence = if node.network_unavailable {
                "node condition NetworkUnavailable is True"
            } else {
                "the kubelet says that the network plugin is not ready"
            };
            let since = self.node.since.max(self.pod.since);
            return Some(
                self.after(since, GRACE, || Health::Failed(Reason::AgentNotReady, evidence.to_owned())),
            );
        }
        // Not ready for another reason: nobody can say that the agent did it.
        (node.ready == Truth::False).then_some(Health::Unreachable)
    }

    fn not_ready(&self) -> Health {
        let pod = &self.pod.is;
        if pod.restarts >= self.rules.max_restarts {
            return Health::Failed(Reason::AgentCrashLooping, evidence(pod));
        }
        let trouble = self.memory.and_then(|memory| memory.trouble_since);
        if let (Some(since), Some(waiting)) = (trouble, &pod.waiting) {
            let reason = reason_of(waiting);
            return self.after(since, self.rules.fast_fail_seconds, || Health::Failed(reason, evidence(pod)));
        }
        if self.memory.is_some_and(|memory| memory.was_ready) {
            let failed = || Health::Failed(Reason::AgentNotReady, evidence(pod));
            return self.after(self.pod.since, GRACE, failed);
        }
        if self.expected {
            return Health::Settling { until: None };
        }
        self.after(self.pod.since, self.timeout, || Health::Failed(Reason::NodeTimedOut, evidence(pod)))
    }

    /// `then` once `seconds` have passed since `since`, settling before.
    fn after(&self, since: Timestamp, seconds: i64, then: impl FnOnce() -> Health) -> Health {
        let due = since.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX);
        if self.now >= due { then() } else { Health::Settling { until: Some(due) } }
    }
}

/// Reason name of a container that waits with a reason of failure.
fn reason_of(waiting: &WaitReason) -> Reason {
    match waiting.reason.as_str() {
        "ImagePullBackOff" | "ErrImagePull" | "ErrImageNeverPull" | "InvalidImageName" => {
            Reason::ImagePullFailed
        }
        _ if waiting.init => Reason::InitFailed,
        _ => Reason::AgentCrashLooping,
    }
}

/// What was seen of the pod, for people.
pub fn evidence(pod: &Pod) -> String {
    let restarts = match pod.restarts {
        0 => String::new(),
        1 => ", 1 restart".to_owned(),
        n => format!(", {n} restarts"),
    };
    match &pod.waiting {
        Some(waiting) => {
            let kind = if waiting.init { "init container" } else { "container" };
            format!("{kind} {} waits with {}{restarts}", waiting.container, waiting.reason)
        }
        None if !pod.initialized => format!("the agent pod is not initialized{restarts}"),
        None if !pod.ready => format!("the agent pod is not Ready{restarts}"),
        None => format!("the agent pod is Ready{restarts}"),
    }
}
