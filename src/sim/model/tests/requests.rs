use serde_json::{Value, json};

use super::*;
use crate::{
    api::{ClaimKey, names::Rv},
    rollout::effect::{Effect, EffectOutcome, ImageChange, RejectionKind, StatusWrite},
    sim::model::{
        actors::claim_ref,
        cluster::{plain, template_of},
        project::object,
    },
    world::{Observation, PodKey, World},
};

#[test]
fn generation_moves_with_the_spec_and_not_with_labels_or_status() {
    let mut model = cluster(1);
    let claim = ClaimKey::cni("calico");
    let spec = Arc::new(json!({ "targetVersion": "v1" }));
    assert!(model.create_claim_as_accepted(&claim, &spec, BTreeMap::new()));
    let at = claim_ref(&claim);
    let generation = |model: &Model| model.get(&at).unwrap().generation;
    assert_eq!(generation(&model), 1);
    model.annotate(&at, "trunkline.dev/hold", Some("look first"));
    let seen = model.get(&at).unwrap().clone();
    let status = Arc::new(json!({ "phase": "Pending" }));
    let write = StatusWrite { claim: claim.clone(), uid: seen.uid.clone(), rv: Rv(seen.rv), status };
    let (outcome, _) = model.perform(&Effect::WriteStatus(write.clone()));
    assert_eq!(outcome, EffectOutcome::Done);
    assert_eq!(generation(&model), 1);
    let (outcome, seen) = model.perform(&Effect::WriteStatus(write));
    assert!(matches!(outcome, EffectOutcome::Rejected(no) if no.kind == RejectionKind::Conflict));
    assert!(matches!(seen[..], [Observation::Answered(_)]), "as it is now");
    model.edit_claim(&claim, |spec| spec["targetVersion"] = json!("v2"));
    assert_eq!(generation(&model), 2);
}

#[test]
fn a_write_that_changes_nothing_is_no_change() {
    let mut model = cluster(1);
    let rv = model.rv();
    assert!(model.relabel("node-000", "kubernetes.io/os", Some("linux")));
    assert_eq!(model.rv(), rv);
}

#[test]
fn preconditions_and_existence_are_checked() {
    let mut model = cluster(1);
    let (pod, _) = pod_on(&model, "node-000");
    let with = |preconditions| DeleteOptions { preconditions, ..DeleteOptions::default() };
    let wrong = with(Preconditions { uid: Some(Uid::new("another")), rv: None });
    assert_eq!(model.delete(&pod.at, &wrong).unwrap_err().code(), 409);
    let stale = with(Preconditions { uid: None, rv: Some(pod.rv - 1) });
    assert_eq!(model.delete(&pod.at, &stale).unwrap_err().reason(), "Conflict");
    assert_eq!(pod_on(&model, "node-000").0.uid, pod.uid);
    let nowhere = ObjRef::new(Kind::Pod, "kube-system", "nobody");
    assert_eq!(model.delete(&nowhere, &DeleteOptions::default()).unwrap_err().code(), 404);
    let at = ObjRef::cluster(Kind::Namespace, "default");
    let again = model.create(at, Meta::default(), plain(json!({}))).unwrap_err();
    assert_eq!((again.code(), again.reason()), (409, "AlreadyExists"));
}

#[test]
fn a_finalizer_keeps_a_deleted_object_until_it_is_taken_off() {
    let mut model = cluster(1);
    let claim = ClaimKey::cni("calico");
    model.create_claim_as_accepted(&claim, &Arc::new(json!({})), BTreeMap::new());
    let at = claim_ref(&claim);
    let result = model.delete(&at, &DeleteOptions::default()).unwrap();
    assert!(matches!(result, Deletion::Marked(_)));
    let held = model.get(&at).unwrap().clone();
    let mut meta = held.meta.clone();
    meta.finalizers.push("someone.example.com/else".to_owned());
    let no = model.replace(&at, meta, held.body.clone(), &Preconditions::NONE).unwrap_err();
    assert_eq!(no.code(), 422);
    let release = Effect::ReleaseClaim { claim, uid: held.uid.clone(), rv: Rv(held.rv) };
    let (_, seen) = model.perform(&release);
    assert!(matches!(seen[0], Observation::AnsweredGone(..)));
    assert!(model.get(&at).is_none());
}

#[test]
fn a_compacted_log_answers_410_and_a_list_begins_anew() {
    let mut model = cluster(2);
    let old = model.rv();
    model.cordon("node-000", true);
    assert!(model.observations_since(old).is_ok());
    model.compact();
    let Err(denied) = model.observations_since(old) else { panic!("410 expected") };
    assert_eq!(denied.code(), 410);
    assert!(model.observations_since(model.rv()).unwrap().is_empty());
}

#[test]
fn a_list_and_a_watch_from_the_start_give_the_same_world() {
    let empty = Model::new(7, start(), Timings::default());
    let mut model = cluster(5);
    on_delete(&mut model, NEW);
    delete_pod(&mut model, "node-001");
    model.remove_node("node-002");
    model.settle(100);
    let (mut listed, mut watched) = (World::default(), World::default());
    for observation in empty.relist().into_iter().chain(model.observations_since(0).unwrap()) {
        watched.apply(observation, start());
    }
    for observation in model.relist() {
        listed.apply(observation, start());
    }
    assert_eq!(listed.nodes, watched.nodes);
    assert_eq!(listed.pods, watched.pods);
    assert_eq!(listed.agents, watched.agents);
    assert_eq!(listed.revisions, watched.revisions);
}

#[test]
fn one_seed_gives_one_history() {
    let run = |seed| {
        let mut model = ClusterSpec::new(seed, 5, start()).build();
        model.add_fault(Fault::new(FaultKind::CrashLoops).with_image(NEW).on_first(2));
        model.replace_images(&calico(), OLD, NEW);
        model.settle(900);
        format!("{:?}", model.changes_since(0).unwrap().collect::<Vec<_>>())
    };
    assert_eq!(run(11), run(11));
    assert_ne!(run(11), run(12));
}

#[test]
fn work_of_the_controller_grows_with_what_happens_not_with_the_cluster() {
    let writes = |nodes| {
        let mut model = cluster(nodes);
        on_delete(&mut model, NEW);
        let before = model.rv();
        delete_pod(&mut model, "node-000");
        model.settle(60);
        model.rv() - before
    };
    assert_eq!(writes(10), writes(1000));
}

#[test]
fn the_template_patch_tests_container_and_old_image_and_notes_the_strategy() {
    let mut model = cluster(2);
    let stored = model.get(&agent_ref(&calico())).unwrap().clone();
    let (uid, rv) = (stored.uid.clone(), Rv(stored.rv));
    let change = |container: &str, from: &str| ImageChange {
        init: false,
        index: 0,
        container: container.to_owned(),
        from: from.to_owned(),
        to: "docker.io/calico/node:v3.28.0".to_owned(),
    };
    let dry = |images| Effect::DryRunTemplate { agent: calico(), uid: uid.clone(), rv, images };
    let right = vec![change("calico-node", "docker.io/calico/node:v3.27.2")];
    for wrong in [change("other", "docker.io/calico/node:v3.27.2"), change("calico-node", "other")] {
        let (outcome, _) = model.perform(&dry(vec![wrong]));
        assert!(matches!(outcome, EffectOutcome::Rejected(no) if no.kind == RejectionKind::Invalid));
    }
    let (outcome, seen) = model.perform(&dry(right.clone()));
    assert_eq!(outcome, EffectOutcome::Done);
    assert!(seen.is_empty());
    assert_eq!(model.get(&agent_ref(&calico())).unwrap().rv, stored.rv, "a dry run writes nothing");
    let patch = Effect::PatchTemplate {
        agent: calico(),
        uid: uid.clone(),
        rv,
        remember: Some(Strategy::RollingUpdate),
        images: right,
    };
    let (outcome, _) = model.perform(&patch);
    assert_eq!(outcome, EffectOutcome::Done);
    let seen = model.object(&agent_ref(&calico())).unwrap();
    let Shape::Agent(shape) = seen.shape else { panic!("an agent") };
    assert_eq!(shape.strategy, Strategy::OnDelete);
    assert_eq!(shape.original_strategy.as_deref(), Some("RollingUpdate"));
    assert_eq!(shape.template.digest, template_of(Value::clone(&shape.template.raw)).digest);
    let rolling = agent(&model).rolling_update.unwrap();
    assert_eq!(rolling["maxUnavailable"], json!(1), "its values stay");
    let (outcome, _) = model.perform(&patch);
    assert!(matches!(outcome, EffectOutcome::Rejected(no) if no.kind == RejectionKind::Conflict));
}

#[test]
fn a_pod_is_deleted_once_and_a_second_time_is_moot() {
    let mut model = cluster(2);
    let (stored, _) = pod_on(&model, "node-000");
    let pod = PodKey { namespace: stored.at.namespace.clone(), name: stored.at.name.clone() };
    let effect = Effect::DeletePod { pod, uid: stored.uid.clone() };
    let (outcome, _) = model.perform(&effect);
    assert_eq!(outcome, EffectOutcome::Done);
    model.settle(60);
    let (outcome, seen) = model.perform(&effect);
    assert_eq!(outcome, EffectOutcome::Moot);
    assert!(matches!(seen[..], [Observation::AnsweredGone(..)]));
    assert!(object(&stored).is_some());
}
