//! Every reason for waiting and every refusal, as people read them.

use jiff::Timestamp;
use trunkline::{
    api::{ClaimKey, NodeName, reasons::Reason},
    report::waiting::{refusal, waiting, waiting_for},
    rollout::waiting::{Refusal, Waiting},
    world::AgentKey,
};

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn nodes(count: usize) -> Vec<NodeName> {
    (1..=count).map(|number| NodeName::from(format!("n{number}"))).collect()
}

fn held(overdue: bool) -> Waiting {
    Waiting::Held {
        claim: ClaimKey::cni("calico-upgrade-v3.28"),
        reason: "DNS is odd".to_owned(),
        by: Some("kubectl-annotate".to_owned()),
        since: Some(at("2026-01-02T03:04:05Z")),
        overdue,
    }
}

fn all_waiting() -> Vec<Waiting> {
    let until = at("2026-01-02T03:30:00Z");
    vec![
        Waiting::Observing { left: 1080, of: 1800, until },
        Waiting::Settling { nodes: nodes(1), count: 1, until: Some(until) },
        Waiting::Settling { nodes: nodes(10), count: 12, until: None },
        Waiting::Budget { in_flight: 3, max: 3 },
        Waiting::StatusBudget { max: 200 },
        Waiting::Judging { nodes: nodes(2) },
        Waiting::AdoptedEarly { nodes: nodes(1) },
        Waiting::CorrelatedLoss { nodes: nodes(2), before_us: true },
        Waiting::CorrelatedLoss { nodes: nodes(2), before_us: false },
        Waiting::Feeds { what: "Pods: the watch was cut".to_owned() },
        Waiting::Controller { generation: 5, observed: 4 },
        Waiting::Revision,
        Waiting::Record,
        Waiting::DryRun,
        Waiting::Mirror,
        Waiting::MidRollout { updated: 4, desired: 20 },
        Waiting::OtherAttempt { claim: ClaimKey::cni("calico") },
        Waiting::TooManyUnhealthy { nodes: nodes(3), count: 3, max: 2 },
        Waiting::NoNodes,
        Waiting::NoCanary,
        Waiting::Paused,
        held(false),
        held(true),
        Waiting::TemplateChanged { images_back: false },
        Waiting::TemplateChanged { images_back: true },
        Waiting::StrategyChanged,
        Waiting::StrategyHeld { updated: 18, desired: 20 },
        Waiting::Rejected {
            effect: "DeletePod calico-node-x".to_owned(),
            message: "pods \"calico-node-x\" is forbidden".to_owned(),
            until,
        },
        Waiting::PutBack { nodes: nodes(1) },
        Waiting::LateNodes { nodes: nodes(2) },
    ]
}

fn versions() -> (String, String) {
    ("v3.27.2".to_owned(), "v3.29.0".to_owned())
}

fn all_refusals() -> Vec<Refusal> {
    let agent = |name: &str| AgentKey { namespace: "kube-system".to_owned(), name: name.to_owned() };
    let (from, to) = versions();
    let rule = "one minor version at a time".to_owned();
    vec![
        Refusal::ProviderNotFound {
            provider: None,
            looked_for: vec!["calico (calico-node)".to_owned(), "flannel (kube-flannel-ds)".to_owned()],
            counted: None,
        },
        Refusal::ProviderNotFound {
            provider: Some("calico".to_owned()),
            looked_for: vec!["calico (calico-node)".to_owned()],
            counted: Some("4/10".to_owned()),
        },
        Refusal::ProviderAmbiguous {
            found: vec![
                ("calico".to_owned(), agent("calico-node")),
                ("flannel".to_owned(), agent("kube-flannel-ds")),
            ],
        },
        Refusal::ProviderUnknown {
            provider: "calicoo".to_owned(),
            nearest: Some("calico".to_owned()),
            known: vec!["calico".to_owned(), "flannel".to_owned()],
        },
        Refusal::Owned { reason: Reason::OwnedByOperator, mark: "owner Installation/default".to_owned() },
        Refusal::Owned { reason: Reason::OwnedByFlux, mark: "kustomize.toolkit.fluxcd.io/name".to_owned() },
        Refusal::Owned { reason: Reason::OwnedByArgoCD, mark: "argocd.argoproj.io/tracking-id".to_owned() },
        Refusal::VersionSkew { from: from.clone(), to: to.clone(), rule: rule.clone() },
        Refusal::Downgrade { from: to, to: from, rule },
        Refusal::VersionUnreadable { text: "latest".to_owned(), expected: "v3.28.0".to_owned() },
        Refusal::ContainerNotCovered {
            containers: [("sidecar".to_owned(), "example.com/sidecar:1".to_owned())].into(),
            profile: "calico".to_owned(),
        },
        Refusal::DryRunRefused { message: "denied by policy no-latest".to_owned() },
        Refusal::TemplateTooLarge { bytes: 200_000, max: 131_072 },
        Refusal::LedgerTooLarge { bytes: 1_100_000, max: 1_000_000 },
        Refusal::TimeoutTooShort { timeout: 30, floor: 40 },
        Refusal::NotSupported { what: "`driver: nodeJob`".to_owned() },
        Refusal::Ambiguous { others: vec![ClaimKey::cni("c-328"), ClaimKey::cni("c-329")] },
        Refusal::FirstContact { commit: "0123abc".to_owned() },
        Refusal::NotOurs,
        Refusal::Quarantined { version: "v3.28.0".to_owned(), attempt: "a1".to_owned() },
        Refusal::ClusterNameTaken { cluster: "prod-1".to_owned(), uid: "0d9f".to_owned() },
        Refusal::BrokenInvariant { what: "the attempt has no last good".to_owned() },
        Refusal::DecisionFailed { why: "index out of bounds".to_owned() },
    ]
}

#[test]
fn every_reason_for_waiting_says_what_ends_it() {
    let texts: Vec<String> =
        all_waiting().iter().map(|why| format!("{}: {}", why.reason(), waiting(why))).collect();
    insta::assert_snapshot!(texts.join("\n"));
}

#[test]
fn every_refusal_says_the_way_out() {
    let texts: Vec<String> =
        all_refusals().iter().map(|why| format!("{}: {}", why.reason(), refusal(why))).collect();
    insta::assert_snapshot!(texts.join("\n"));
}

#[test]
fn a_text_from_outside_is_one_bounded_line() {
    let why = Waiting::Rejected {
        effect: "x".repeat(10_000),
        message: format!("a\n\u{1b}[2Jb{}", "y".repeat(10_000)),
        until: at("2026-01-02T03:30:00Z"),
    };
    let entry = waiting_for(&why);
    assert!(entry.message.chars().count() <= 1024);
    assert!(!entry.message.chars().any(char::is_control));
    assert!(entry.message.ends_with("It is tried again at 2026-01-02T03:30:00Z."));
    assert_eq!((entry.reason.as_str(), entry.until), ("Rejected", why.until()));
}
