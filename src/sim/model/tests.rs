use std::collections::{BTreeMap, BTreeSet};

use super::{
    actors::agent_ref,
    body::{ContainerState, DaemonSetBody, NodeBody, PodBody},
    cluster::{AgentKind, ClusterSpec, node_labels},
    fault::FaultKind,
    *,
};
use crate::{
    api::{names::REVISION_HASH, status::Truth},
    world::{AgentKey, Shape, Strategy},
};

mod requests;

const OLD: &str = "v3.27.2";
const NEW: &str = "v3.28.0";

fn start() -> Timestamp {
    "2026-03-01T08:00:00Z".parse().unwrap()
}

fn cluster(nodes: usize) -> Model {
    ClusterSpec::new(7, nodes, start()).build()
}

fn calico() -> AgentKey {
    AgentKind::Calico.key()
}

fn agent(model: &Model) -> DaemonSetBody {
    match &model.get(&agent_ref(&calico())).unwrap().body {
        Body::DaemonSet(body) => (**body).clone(),
        other => panic!("{other:?}"),
    }
}

fn node(model: &Model, name: &str) -> NodeBody {
    match &model.get(&ObjRef::cluster(Kind::Node, name)).unwrap().body {
        Body::Node(body) => body.clone(),
        other => panic!("{other:?}"),
    }
}

fn pods(model: &Model) -> Vec<(Arc<Stored>, PodBody)> {
    let pods = model.list(Kind::Pod, None).cloned();
    pods.map(|stored| match &stored.body {
        Body::Pod(pod) => (Arc::clone(&stored), (**pod).clone()),
        other => panic!("{other:?}"),
    })
    .collect()
}

fn pod_on(model: &Model, name: &str) -> (Arc<Stored>, PodBody) {
    pods(model).into_iter().find(|(_, pod)| pod.node.as_deref() == Some(name)).unwrap()
}

fn hashes(model: &Model) -> BTreeMap<String, usize> {
    let mut hashes = BTreeMap::new();
    for (stored, _) in pods(model) {
        *hashes.entry(stored.meta.labels[REVISION_HASH].clone()).or_default() += 1;
    }
    hashes
}

fn revisions(model: &Model) -> Vec<(String, i64)> {
    let revisions = model.list(Kind::ControllerRevision, None);
    revisions
        .map(|stored| match &stored.body {
            Body::Revision(body) => (stored.at.name.to_string(), body.revision),
            other => panic!("{other:?}"),
        })
        .collect()
}

fn ready(pod: &PodBody) -> bool {
    pod.ready.status == Truth::True
}

fn image(pod: &PodBody) -> String {
    pod.containers.last().unwrap().image.to_string()
}

fn on_delete(model: &mut Model, version: &str) {
    assert!(model.set_strategy(&calico(), Strategy::OnDelete));
    assert!(model.replace_images(&calico(), OLD, version));
    model.settle(60);
}

fn delete_pod(model: &mut Model, name: &str) {
    let (stored, _) = pod_on(model, name);
    model.delete(&stored.at, &DeleteOptions::default()).unwrap();
}

/// Advances event by event for a while.
fn watch(model: &mut Model, seconds: i64, mut each: impl FnMut(&Model)) {
    let end = model.now().saturating_add(SignedDuration::from_secs(seconds)).unwrap();
    while let Some(at) = model.next_event_at().filter(|at| *at <= end) {
        model.advance_to(at);
        each(model);
    }
    model.advance_to(end);
}

#[test]
fn a_new_cluster_has_every_node_ready_and_one_ready_agent_on_each() {
    let model = cluster(10);
    assert_eq!(pods(&model).iter().filter(|(_, pod)| ready(pod)).count(), 10);
    let nodes: BTreeSet<_> = pods(&model).iter().map(|(_, pod)| pod.node.clone().unwrap()).collect();
    assert_eq!(nodes.len(), 10);
    for stored in model.list(Kind::Node, None) {
        let body = node(&model, &stored.at.name);
        assert_eq!(body.ready.status, Truth::True);
        assert_eq!(body.network_unavailable.unwrap().status, Truth::False);
    }
    let status = agent(&model).status;
    assert_eq!((status.desired, status.current, status.updated, status.ready), (10, 10, 10, 10));
    assert_eq!(status.observed_generation, 1);
    assert_eq!(model.next_event_at(), None, "a settled cluster is quiet");
}

#[test]
fn flannel_runs_only_where_its_affinity_allows() {
    let mut model = ClusterSpec { agent: AgentKind::Flannel, ..ClusterSpec::new(3, 4, start()) }.build();
    let mut labels = node_labels("windows-0", 0, false);
    labels.insert("kubernetes.io/os".to_owned(), "windows".to_owned());
    model.add_node("windows-0", labels);
    model.settle(120);
    assert_eq!(pods(&model).len(), 4);
    assert!(pods(&model).iter().all(|(_, pod)| pod.node.as_deref() != Some("windows-0")));
}

#[test]
fn on_delete_with_a_new_template_touches_no_pod() {
    let mut model = cluster(5);
    let before: Vec<Uid> = pods(&model).iter().map(|(stored, _)| stored.uid.clone()).collect();
    on_delete(&mut model, NEW);
    let after: Vec<Uid> = pods(&model).iter().map(|(stored, _)| stored.uid.clone()).collect();
    assert_eq!(before, after);
    let stored = model.get(&agent_ref(&calico())).unwrap();
    let status = agent(&model).status;
    assert_eq!(status.observed_generation, stored.generation);
    assert_eq!((status.updated, status.current, status.desired), (0, 5, 5));
    assert_eq!(revisions(&model).len(), 2);
}

#[test]
fn the_controller_sees_a_patch_a_little_later() {
    let mut model = cluster(3);
    model.set_strategy(&calico(), Strategy::OnDelete);
    let stored = model.get(&agent_ref(&calico())).unwrap();
    assert_eq!(stored.generation, 2);
    assert_eq!(agent(&model).status.observed_generation, 1);
    model.settle(1);
    assert_eq!(agent(&model).status.observed_generation, 2);
}

#[test]
fn a_deleted_pod_comes_back_on_its_node_with_the_live_template() {
    let mut model = cluster(3);
    on_delete(&mut model, NEW);
    let (old, _) = pod_on(&model, "node-001");
    delete_pod(&mut model, "node-001");
    model.settle(60);
    let (new, pod) = pod_on(&model, "node-001");
    assert_ne!(old.uid, new.uid);
    assert_eq!(image(&pod), "docker.io/calico/node:v3.28.0");
    assert!(ready(&pod));
    assert_ne!(old.meta.labels[REVISION_HASH], new.meta.labels[REVISION_HASH]);
    assert_eq!(agent(&model).status.updated, 1);
}

#[test]
fn a_pod_deleted_before_the_controller_knows_the_new_template_comes_up_on_the_old_one() {
    let timings = Timings { view: Span::millis(30_000, 30_000), ..Timings::default() };
    let mut model = ClusterSpec { timings, ..ClusterSpec::new(7, 3, start()) }.build();
    let (old, _) = pod_on(&model, "node-001");
    assert!(model.set_strategy(&calico(), Strategy::OnDelete) && model.replace_images(&calico(), OLD, NEW));
    delete_pod(&mut model, "node-001");
    model.settle(20);
    let (new, pod) = pod_on(&model, "node-001");
    assert_ne!(old.uid, new.uid);
    assert_eq!(image(&pod), format!("docker.io/calico/node:{OLD}"));
    assert_eq!(old.meta.labels[REVISION_HASH], new.meta.labels[REVISION_HASH]);
    assert_eq!(agent(&model).status.observed_generation, 1);
    model.settle(60);
    let stored = model.get(&agent_ref(&calico())).unwrap();
    assert_eq!(agent(&model).status.observed_generation, stored.generation);
    delete_pod(&mut model, "node-001");
    model.settle(60);
    assert_eq!(image(&pod_on(&model, "node-001").1), format!("docker.io/calico/node:{NEW}"));
}

#[test]
fn no_replacement_comes_before_the_old_pod_is_gone() {
    let mut model = ClusterSpec { agent: AgentKind::Flannel, ..ClusterSpec::new(3, 2, start()) }.build();
    let (old, _) = pod_on(&model, "node-000");
    model.add_fault(Fault::new(FaultKind::StuckTerminating));
    delete_pod(&mut model, "node-000");
    model.settle(300);
    assert_eq!(pods(&model).len(), 2);
    let (held, _) = pod_on(&model, "node-000");
    assert_eq!(held.uid, old.uid);
    assert_eq!(held.deleting.unwrap().grace, 30);
    model.heal();
    model.settle(60);
    assert_ne!(pod_on(&model, "node-000").0.uid, old.uid);
}

#[test]
fn rolling_update_takes_one_node_at_a_time() {
    let mut model = cluster(6);
    model.replace_images(&calico(), OLD, NEW);
    let mut most = 0;
    watch(&mut model, 600, |model| {
        let ready =
            pods(model).iter().filter(|(stored, pod)| ready(pod) && stored.deleting.is_none()).count();
        most = most.max(6 - ready);
    });
    assert_eq!(most, 1);
    assert!(pods(&model).iter().all(|(_, pod)| image(pod).ends_with(NEW)));
    assert_eq!(agent(&model).status.updated, 6);
}

#[test]
fn rolling_update_stops_at_a_replacement_that_never_becomes_ready() {
    let mut model = cluster(6);
    model.add_fault(Fault::new(FaultKind::CrashLoops).with_image(NEW));
    model.replace_images(&calico(), OLD, NEW);
    model.settle(900);
    assert_eq!(pods(&model).iter().filter(|(_, pod)| image(pod).ends_with(NEW)).count(), 1);
}

#[test]
fn rolling_update_replaces_every_unavailable_old_pod_at_once_outside_its_budget() {
    let mut model = cluster(8);
    let sick = ["node-001", "node-002", "node-003", "node-004"];
    model.add_fault(Fault::new(FaultKind::TurnsUnready { after: 0 }).on(sick).with_image(OLD));
    model.settle(30);
    assert_eq!(agent(&model).status.ready, 4);
    model.add_fault(Fault::new(FaultKind::NeverReady).with_image(NEW));
    model.replace_images(&calico(), OLD, NEW);
    model.settle(120);
    let replaced = pods(&model).iter().filter(|(_, pod)| image(pod).ends_with(NEW)).count();
    assert_eq!(replaced, 5, "all four at once, and one available pod within the budget beside them");
}

#[test]
fn the_switch_to_rolling_update_takes_every_pod_that_is_not_updated() {
    let mut model = cluster(5);
    on_delete(&mut model, NEW);
    assert_eq!(hashes(&model).len(), 1, "all share the old revision");
    model.set_strategy(&calico(), Strategy::RollingUpdate);
    model.settle(600);
    assert!(pods(&model).iter().all(|(_, pod)| image(pod).ends_with(NEW)));
}

#[test]
fn a_byte_equal_restore_reuses_the_old_revision_and_untouched_pods_count_as_updated() {
    let mut model = cluster(4);
    let saved = agent(&model).template;
    let first = revisions(&model);
    on_delete(&mut model, NEW);
    delete_pod(&mut model, "node-000");
    model.settle(60);
    model.alter(&agent_ref(&calico()), |stored| {
        if let Body::DaemonSet(body) = &mut stored.body {
            body.template = saved;
        }
    });
    model.settle(60);
    let restored = revisions(&model);
    assert_eq!(restored.len(), 2);
    let number = |name: &str| restored.iter().find(|(n, _)| n == name).unwrap().1;
    assert_eq!(number(&first[0].0), 3, "the old revision is numbered anew");
    assert_eq!(agent(&model).status.updated, 3);
}

#[test]
fn a_changed_template_byte_makes_another_revision() {
    let mut model = cluster(2);
    model.set_strategy(&calico(), Strategy::OnDelete);
    model.restart_rollout(&calico(), start());
    model.settle(30);
    assert_eq!(revisions(&model).len(), 2);
    assert_eq!(agent(&model).status.updated, 0);
}

#[test]
fn a_history_limit_of_zero_deletes_an_old_revision_with_its_last_pod() {
    let mut model = cluster(2);
    model.alter(&agent_ref(&calico()), |stored| {
        if let Body::DaemonSet(body) = &mut stored.body {
            body.revision_history_limit = 0;
        }
    });
    on_delete(&mut model, NEW);
    delete_pod(&mut model, "node-000");
    model.settle(60);
    assert_eq!(revisions(&model).len(), 2, "one pod still needs the old one");
    delete_pod(&mut model, "node-001");
    model.settle(60);
    assert_eq!(revisions(&model).len(), 1);
}

#[test]
fn a_node_that_joins_during_an_upgrade_takes_the_live_template() {
    let mut model = cluster(2);
    on_delete(&mut model, NEW);
    model.add_node("late", node_labels("late", 0, false));
    let mut was_not_ready = false;
    watch(&mut model, 60, |model| was_not_ready |= node(model, "late").ready.status == Truth::False);
    assert!(was_not_ready, "a node without its agent has no network");
    assert_eq!(image(&pod_on(&model, "late").1), "docker.io/calico/node:v3.28.0");
    assert_eq!(node(&model, "late").ready.status, Truth::True);
    assert_eq!(agent(&model).status.desired, 3);
}

#[test]
fn a_removed_node_takes_its_pod_along_and_the_name_comes_back_as_another_node() {
    let mut model = cluster(3);
    let at = ObjRef::cluster(Kind::Node, "node-001");
    let uid = model.get(&at).unwrap().uid.clone();
    model.remove_node("node-001");
    model.settle(60);
    assert_eq!(pods(&model).len(), 2);
    assert_eq!(agent(&model).status.desired, 2);
    model.add_node("node-001", node_labels("node-001", 1, false));
    model.settle(60);
    assert_ne!(model.get(&at).unwrap().uid, uid);
    assert_eq!(agent(&model).status.ready, 3);
}

#[test]
fn a_cordoned_node_keeps_its_agent() {
    let mut model = cluster(2);
    model.cordon("node-000", true);
    model.settle(60);
    assert_eq!(pods(&model).len(), 2);
    assert!(node(&model, "node-000").unschedulable);
    model.cordon("node-000", false);
    assert!(!node(&model, "node-000").unschedulable);
    assert_eq!(node(&model, "node-000").taints, []);
}

#[test]
fn a_lost_machine_is_unknown_after_the_grace_period_and_nothing_on_it_moves() {
    let mut model = cluster(3);
    on_delete(&mut model, NEW);
    model.add_fault(Fault::new(FaultKind::Lost).on(["node-002"]));
    model.settle(30);
    assert_eq!(node(&model, "node-002").ready.status, Truth::True, "still within the grace period");
    model.settle(60);
    assert_eq!(node(&model, "node-002").ready.status, Truth::Unknown);
    assert!(!ready(&pod_on(&model, "node-002").1));
    model.heal();
    model.settle(60);
    assert_eq!(node(&model, "node-002").ready.status, Truth::True);
    assert!(ready(&pod_on(&model, "node-002").1));
}

#[test]
fn node_faults_show_in_the_conditions_and_end() {
    let mut model = cluster(2);
    let later = |seconds| start().saturating_add(SignedDuration::from_secs(seconds)).unwrap();
    let fault = Fault::new(FaultKind::NetworkNotReady).on(["node-000"]).between(later(100), later(200));
    model.add_fault(fault);
    model.advance_to(later(150));
    assert_eq!(node(&model, "node-000").ready.status, Truth::False);
    let seen = model.object(&ObjRef::cluster(Kind::Node, "node-000")).unwrap();
    assert!(matches!(seen.shape, Shape::Node(node) if node.network_not_ready));
    model.advance_to(later(250));
    assert_eq!(node(&model, "node-000").ready.status, Truth::True);
}

#[test]
fn an_agent_image_can_break_the_network_of_its_node() {
    let mut model = cluster(2);
    model.add_fault(Fault::new(FaultKind::NetworkUnavailable).with_image(NEW));
    on_delete(&mut model, NEW);
    delete_pod(&mut model, "node-000");
    model.settle(60);
    assert_eq!(node(&model, "node-000").network_unavailable.unwrap().status, Truth::True);
    assert_eq!(node(&model, "node-001").network_unavailable.unwrap().status, Truth::False);
}

#[test]
fn each_way_to_fail_shows_as_the_kubelet_says_it() {
    let cases = [
        (FaultKind::ImagePull, "ImagePullBackOff", false),
        (FaultKind::ConfigError, "CreateContainerConfigError", false),
        (FaultKind::InitFails, "CrashLoopBackOff", false),
        (FaultKind::CrashLoops, "CrashLoopBackOff", true),
    ];
    for (kind, reason, initialized) in cases {
        let mut model = cluster(2);
        on_delete(&mut model, NEW);
        model.add_fault(Fault::new(kind).with_image(NEW));
        delete_pod(&mut model, "node-000");
        let mut seen = BTreeSet::new();
        watch(&mut model, 120, |model| {
            let parts = pods(model).into_iter().flat_map(|(_, pod)| pod.containers);
            seen.extend(parts.filter_map(|part| match part.state {
                ContainerState::Waiting { reason, .. } => Some(reason.to_string()),
                ContainerState::Running { .. } | ContainerState::Terminated { .. } => None,
            }));
        });
        assert!(seen.contains(reason), "{kind:?}: {seen:?}");
        let (_, pod) = pod_on(&model, "node-000");
        assert!(!ready(&pod), "{kind:?}");
        assert_eq!(pod.initialized.status == Truth::True, initialized, "{kind:?}");
        model.heal();
        model.settle(600);
        assert!(ready(&pod_on(&model, "node-000").1), "{kind:?} is over");
    }
}

#[test]
fn a_crash_loop_counts_restarts_with_growing_pauses() {
    let mut model = cluster(1);
    on_delete(&mut model, NEW);
    model.add_fault(Fault::new(FaultKind::CrashLoops).with_image(NEW));
    delete_pod(&mut model, "node-000");
    let restarts = |model: &Model| pod_on(model, "node-000").1.containers.last().unwrap().restarts;
    watch(&mut model, 120, |_| {});
    let early = restarts(&model);
    watch(&mut model, 1200, |_| {});
    assert!(early >= 3, "{early}");
    assert!(restarts(&model) - early <= 6, "back-off grows to five minutes");
}

#[test]
fn only_the_first_nodes_are_struck_where_a_fault_says_so() {
    let mut model = cluster(4);
    model.add_fault(Fault::new(FaultKind::CrashLoops).with_image(NEW).on_first(1));
    on_delete(&mut model, NEW);
    for name in ["node-002", "node-000", "node-003"] {
        delete_pod(&mut model, name);
        model.settle(40);
    }
    let bad: Vec<_> = pods(&model).into_iter().filter(|(_, pod)| !ready(pod)).collect();
    assert_eq!(bad.len(), 1);
    assert_eq!(bad[0].1.node.as_deref(), Some("node-002"));
}

#[test]
fn a_deleted_daemonset_takes_pods_and_revisions_along() {
    let mut model = cluster(3);
    model.delete_agent(&calico());
    model.settle(120);
    assert_eq!(pods(&model).len(), 0);
    assert_eq!(revisions(&model), []);
    AgentKind::Calico.install(&mut model, NEW);
    model.settle(120);
    assert_eq!(agent(&model).status.ready, 3);
}
