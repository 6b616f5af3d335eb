//! The typed world of tier 1 is the world that the HTTP front and `observe` give together.

use trunkline::{
    clock::Clock,
    observe::snapshot,
    sim::{
        api::EmbeddedCluster,
        core_run::{core_watch, workload::Workload},
        model::Model,
    },
    world::World,
};

/// The clusters of some seeded runs, now and then.
fn clusters() -> Vec<Model> {
    let mut clusters = Vec::new();
    for seed in 1..=8 {
        let mut count = 0;
        let mut watch = |moment: &trunkline::sim::core_run::Moment<'_>| {
            count += 1;
            if count % 60 == 0 {
                clusters.push(moment.model.clone());
            }
        };
        core_watch(seed, &Workload::of(seed, None), &mut watch).map_err(|broken| broken.violation).unwrap();
    }
    assert!(clusters.len() > 8);
    clusters
}

#[tokio::test(start_paused = true)]
async fn a_typed_list_and_a_list_over_http_give_one_world() {
    for model in clusters() {
        let now = model.now();
        let mut typed = World::default();
        for observation in model.relist() {
            typed.apply(observation, now);
        }
        let cluster = EmbeddedCluster::new(model, Clock::embedded(now));
        let served = snapshot(&cluster.client(), "trunkline-system", now).await.unwrap();
        assert_eq!(typed.nodes, served.nodes);
        assert_eq!(typed.pods, served.pods);
        assert_eq!(typed.agents, served.agents);
        assert_eq!(typed.revisions, served.revisions);
        assert_eq!(typed.claims, served.claims);
        assert_eq!(typed.ledgers, served.ledgers);
        assert_eq!(typed.records, served.records);
    }
}
