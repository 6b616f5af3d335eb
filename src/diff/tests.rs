//! Judgements on single nodes, as sentences.

use std::{collections::BTreeMap, rc::Rc, sync::Arc};

use jiff::{SignedDuration, Timestamp};

use super::{
    health::{Health, Judge},
    order,
};
use crate::{
    api::{
        names::{AttemptId, NodeName, Rv, Uid},
        reasons::Reason,
        status::{Intent, IntentKind, NodeFailure, Nodes, Truth},
    },
    dice::Dice,
    diff::{Diff, Goal, NodeState, Question, Skip, again, classify},
    profile::HealthRules,
    world::{
        Labels, Node, Object, ObjectId, Observation, Pod, PodKey, PodMemory, Seen, Shape, WaitReason, World,
    },
};

const RULES: HealthRules =
    HealthRules { stable_seconds: 10, fast_fail_seconds: 60, max_restarts: 3, unhealthy_percent: 10 };

fn at(second: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second)
}

fn node() -> Node {
    Node {
        labels: Labels::new(Arc::new(BTreeMap::from([("zone".to_owned(), "a".to_owned())]))),
        created: at(0),
        ready: Truth::True,
        network_unavailable: false,
        network_not_ready: false,
        cordoned: false,
        leaving: false,
    }
}

fn pod(image: &str) -> Pod {
    Pod {
        owner: Some(Uid::new("ds")),
        node: Some(NodeName::new("n1")),
        revision: Some(Arc::from("new")),
        images: Arc::new(BTreeMap::from([("agent".to_owned(), image.to_owned())])),
        initialized: true,
        ready: true,
        restarts: 0,
        waiting: None,
        deleting: false,
    }
}

fn judged(node: Node, pod: Pod, memory: &PodMemory, now: i64) -> Health {
    let seen = Seen { uid: Uid::new("node"), rv: Rv(1), since: at(0), is: node };
    let pod = Seen { uid: Uid::new("pod"), rv: Rv(1), since: at(0), is: pod };
    let memory = Some(memory);
    Judge {
        node: &seen,
        pod: &pod,
        memory,
        baseline: false,
        expected: true,
        rules: RULES,
        timeout: 600,
        now: at(now),
    }
    .health()
}

fn failed(health: &Health) -> Option<Reason> {
    match health {
        Health::Failed(reason, _) => Some(*reason),
        Health::Healthy | Health::Settling { .. } | Health::Unreachable => None,
    }
}

#[test]
fn a_ready_agent_is_healthy_only_after_it_was_stable() {
    let memory = PodMemory::default();
    assert_eq!(judged(node(), pod("v2"), &memory, 9), Health::Settling { until: Some(at(10)) });
    assert_eq!(judged(node(), pod("v2"), &memory, 10), Health::Healthy);
}

#[test]
fn a_silent_kubelet_is_unreachable_and_never_a_failure() {
    let silent = Node { ready: Truth::Unknown, ..node() };
    let broken = Pod { ready: false, restarts: 9, ..pod("v2") };
    assert_eq!(judged(silent, broken, &PodMemory::default(), 500), Health::Unreachable);
}

#[test]
fn a_node_that_goes_away_by_itself_is_no_failure() {
    let leaving = Node { leaving: true, ..node() };
    assert_eq!(
        judged(leaving, Pod { ready: false, ..pod("v2") }, &PodMemory::default(), 500),
        Health::Unreachable
    );
}

#[test]
fn three_restarts_fail_a_node_at_once_and_two_do_not() {
    let with = |restarts| Pod { ready: false, restarts, ..pod("v2") };
    assert_eq!(failed(&judged(node(), with(3), &PodMemory::default(), 1)), Some(Reason::AgentCrashLooping));
    assert_eq!(failed(&judged(node(), with(2), &PodMemory::default(), 1)), None);
}

#[test]
fn an_image_that_cannot_be_pulled_fails_after_a_minute_without_progress() {
    let waiting = WaitReason {
        container: "agent".to_owned(),
        reason: "ImagePullBackOff".to_owned(),
        message: String::new(),
        init: false,
    };
    let stuck = Pod { ready: false, waiting: Some(waiting), ..pod("v2") };
    let memory = PodMemory { was_ready: false, trouble_since: Some(at(5)) };
    assert_eq!(failed(&judged(node(), stuck.clone(), &memory, 64)), None);
    assert_eq!(failed(&judged(node(), stuck, &memory, 65)), Some(Reason::ImagePullFailed));
}

#[test]
fn an_agent_that_was_ready_has_half_a_minute_to_come_back() {
    let memory = PodMemory { was_ready: true, trouble_since: None };
    let down = Pod { ready: false, ..pod("v2") };
    assert_eq!(failed(&judged(node(), down.clone(), &memory, 29)), None);
    assert_eq!(failed(&judged(node(), down, &memory, 30)), Some(Reason::AgentNotReady));
}

#[test]
fn a_network_that_is_unavailable_blames_the_agent_and_another_unreadiness_does_not() {
    let memory = PodMemory::default();
    let cut = Node { network_unavailable: true, ..node() };
    assert_eq!(failed(&judged(cut, pod("v2"), &memory, 30)), Some(Reason::AgentNotReady));
    let full = Node { ready: Truth::False, ..node() };
    assert_eq!(judged(full, pod("v2"), &memory, 30), Health::Unreachable);
}

fn world(node: Node, pod: Option<Pod>) -> World {
    let mut world = World::default();
    let mut see = |id, uid: &str, shape| {
        let object = Object { id, uid: Uid::new(uid), rv: Rv(1), shape };
        let _ = world.apply(Observation::Answered(Box::new(object)), at(0));
    };
    see(ObjectId::Node(NodeName::new("n1")), "node", Shape::Node(node));
    if let Some(pod) = pod {
        let key = PodKey { namespace: Arc::from("kube-system"), name: Arc::from("agent-1") };
        see(ObjectId::Pod(key), "pod", Shape::Pod(pod));
    }
    world
}

/// No intents on the way forward.
const NONE: (&[Intent], IntentKind) = (&[], IntentKind::Upgrade);

fn state_in(world: &World, selector: &[(&str, &str)]) -> Option<NodeState> {
    diff_in(world, selector, NONE, 100).in_scope().next().map(|node| node.state.clone())
}

/// The diff from v1 to v2 with these intents.
fn diff_in<'w>(
    world: &'w World,
    selector: &[(&str, &str)],
    (open, way): (&[Intent], IntentKind),
    now: i64,
) -> Diff<'w> {
    let images = |tag: &str| BTreeMap::from([("agent".to_owned(), tag.to_owned())]);
    let selector: BTreeMap<String, String> =
        selector.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    classify(&Question {
        world,
        agent: &Uid::new("ds"),
        goal: &Goal::Images(Arc::new(images("v2"))),
        saved: &[Arc::new(images("v1"))],
        selector: &selector,
        open,
        failures: &[],
        baseline: &[],
        way,
        rules: RULES,
        timeout: 600,
        now: at(now),
    })
}

#[test]
fn a_node_on_the_old_version_waits_and_one_outside_the_selector_is_out_of_scope() {
    let world = world(node(), Some(pod("v1")));
    assert_eq!(state_in(&world, &[("zone", "a")]), Some(NodeState::Waiting));
    assert_eq!(state_in(&world, &[("zone", "b")]), None);
}

#[test]
fn a_node_that_was_not_ready_before_is_skipped() {
    let world = world(Node { ready: Truth::False, ..node() }, Some(pod("v1")));
    assert_eq!(state_in(&world, &[]), Some(NodeState::Skipped(Skip::NotReady)));
}

#[test]
fn a_node_that_an_earlier_attempt_broke_is_never_skipped() {
    let world = world(Node { ready: Truth::False, ..node() }, Some(Pod { ready: false, ..pod("v1.5") }));
    assert_eq!(state_in(&world, &[]), Some(NodeState::Waiting));
}

#[test]
fn an_agent_that_is_lost_outside_of_the_scope_says_nothing_about_the_target() {
    let world = world(node(), Some(Pod { ready: false, ..pod("v1") }));
    let lost = |selector| diff_in(&world, selector, NONE, 100).nodes[0].lost_untouched();
    assert!(lost(&[("zone", "a")]));
    assert!(!lost(&[("zone", "b")]));
}

#[test]
fn on_the_way_back_a_pod_that_is_right_as_it_is_settles_once_its_deletion_would_have_been_seen() {
    let world = world(node(), Some(pod("v2")));
    let open = [Intent {
        node: NodeName::new("n1"),
        node_uid: Uid::new("node"),
        kind: IntentKind::PutBack,
        before: Uid::new("pod"),
        started_at: at(50),
        spent: 0,
        as_of: at(50),
    }];
    let state = |way, now| diff_in(&world, &[], (&open, way), now).nodes[0].state.clone();
    assert_eq!(state(IntentKind::PutBack, 59), NodeState::Verifying);
    assert_eq!(state(IntentKind::PutBack, 60), NodeState::Healthy);
    assert_eq!(state(IntentKind::Upgrade, 500), NodeState::Verifying);
}

#[test]
fn the_order_of_nodes_depends_on_the_attempt_and_spreads_evenly() {
    let value = |node: usize, attempt: &str| {
        order::value(&Uid::new(format!("node-{node}")), &AttemptId::new(attempt))
    };
    let sorted = |attempt: &str| {
        let mut nodes: Vec<usize> = (0..1000).collect();
        nodes.sort_by_key(|node| value(*node, attempt));
        nodes
    };
    assert_eq!(sorted("a"), sorted("a"));
    assert_ne!(sorted("a"), sorted("b"));
    let low = (0..1000).filter(|node| value(*node, "a") < u64::MAX / 2).count();
    assert!((400..600).contains(&low), "{low} of 1000 values are in the lower half");
}

/// Thirty nodes in three zones, some of the control plane, each with a pod of before that is going and a newer one.
fn many() -> World {
    let mut world = World::default();
    for index in 0..30 {
        let mut labels = BTreeMap::from([(
            "topology.kubernetes.io/zone".to_owned(),
            ["a", "b", "c"][index * index % 3].to_owned(),
        )]);
        if index % 7 == 0 {
            labels.insert("node-role.kubernetes.io/control-plane".to_owned(), String::new());
        }
        // Names in another order than the keys of the pods.
        let name = NodeName::new(format!("n{:02}", (index * 17) % 30));
        let object = Object {
            id: ObjectId::Node(name.clone()),
            uid: Uid::new(format!("node-{index}")),
            rv: Rv(1),
            shape: Shape::Node(Node { labels: Labels::new(Arc::new(labels)), ..node() }),
        };
        let _ = world.apply(Observation::Answered(Box::new(object)), at(0));
        for (count, deleting) in [(0, true), (1, false)] {
            let tag = if deleting { "v1" } else { "v2" };
            let shape = Pod { node: Some(name.clone()), deleting, ..pod(tag) };
            let key =
                PodKey { namespace: "kube-system".into(), name: format!("agent-{index}-{count}").into() };
            let uid = Uid::new(format!("pod-{index}-{count}"));
            let object = Object { id: ObjectId::Pod(key), uid, rv: Rv(1), shape: Shape::Pod(shape) };
            let _ = world.apply(Observation::Answered(Box::new(object)), at(0));
        }
    }
    world
}

#[test]
fn every_node_gets_its_own_pod_and_the_first_in_turn_are_the_first_of_all() {
    let world = many();
    let goal = Goal::Images(Arc::new(BTreeMap::from([("agent".to_owned(), "v2".to_owned())])));
    let (agent, selector) = (Uid::new("ds"), BTreeMap::new());
    let diff = classify(&Question {
        world: &world,
        agent: &agent,
        goal: &goal,
        saved: &[],
        selector: &selector,
        open: &[],
        failures: &[],
        baseline: &[],
        way: crate::api::status::IntentKind::Upgrade,
        rules: RULES,
        timeout: 600,
        now: at(100),
    });
    assert_eq!(diff.nodes.len(), 30);
    for one in &diff.nodes {
        let (_, pod) = one.pod.unwrap();
        assert_eq!((pod.is.node.as_ref(), pod.is.deleting), (Some(one.name), false));
        assert!(one.at_goal, "{one:?}");
    }
    let attempt = AttemptId::new("a");
    let names = |nodes: Vec<&super::NodeDiff<'_>>| -> Vec<NodeName> {
        nodes.into_iter().map(|node| node.name.clone()).collect()
    };
    let all = names(order::sort(diff.nodes.iter(), &attempt));
    assert_eq!(all.len(), 30);
    for count in [0, 1, 4, 29, 30, 31] {
        assert_eq!(names(order::first(diff.nodes.iter(), &attempt, count)), all[..count.min(30)], "{count}");
    }
}

#[test]
fn a_diff_that_is_brought_up_to_date_is_the_diff_made_anew() {
    let world = many();
    let goal = Goal::Images(Arc::new(BTreeMap::from([("agent".to_owned(), "v2".to_owned())])));
    let (agent, zone) =
        (Uid::new("ds"), BTreeMap::from([("topology.kubernetes.io/zone".into(), "a".into())]));
    // A node's UID and name as `many` gives them; nodes from 25 on are outside of the world, or of another life.
    let node = |index: usize| (NodeName::new(format!("n{:02}", (index * 17) % 30)), format!("node-{index}"));
    let intent = |index: usize, spent: i64| {
        let (node, uid) = node(index);
        let (node_uid, before) = (Uid::new(&uid), Uid::new(format!("pod-{index}-{}", spent % 2)));
        let kind = IntentKind::Upgrade;
        Intent { node, node_uid, kind, before, started_at: at(0), spent, as_of: at(90) }
    };
    let failure = |index: usize, tries: i32| {
        let (node, uid) = node(index);
        let node_uid = if index < 25 { Uid::new(uid) } else { Uid::new("another") };
        let (reason, message) = ("AgentCrashLooping".to_owned(), format!("{tries} tries"));
        NodeFailure { node, node_uid, reason, message, at: at(0), tries, in_rollback: tries == 3 }
    };
    let mut dice = Dice::new(7);
    let mut draw = |of: i32| i64::try_from(dice.throw() % u64::try_from(of).unwrap()).unwrap();
    let mut nodes = Nodes::default();
    let mut kept = None;
    for round in 0..500 {
        let index = |draw: &mut dyn FnMut(i32) -> i64| usize::try_from(draw(30)).unwrap();
        let before = nodes.clone();
        match draw(5) {
            0 => nodes.open.clear(),
            1 => nodes.failures.retain(|failure| failure.tries == 2),
            2 => nodes.open.push(intent(index(&mut draw), draw(3))),
            3 => nodes.failures.push(failure(index(&mut draw), i32::try_from(draw(3)).unwrap() + 1)),
            _ if round % 10 == 0 => nodes.baseline = vec![Uid::new(node(index(&mut draw)).1)],
            _ => {}
        }
        let question = Question {
            world: &world,
            agent: &agent,
            goal: &goal,
            saved: &[],
            selector: &zone,
            open: &nodes.open,
            failures: &nodes.failures,
            baseline: &nodes.baseline,
            way: IntentKind::Upgrade,
            rules: RULES,
            timeout: 600,
            now: at(100),
        };
        let anew = classify(&question);
        let diff = kept.map_or_else(|| Rc::new(anew.clone()), |diff| again(&question, &before, diff));
        assert_eq!(*diff, anew, "in round {round}");
        kept = Some(diff);
    }
}
