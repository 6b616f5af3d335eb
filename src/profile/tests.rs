use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::{
    api::names::{Rv, Uid},
    manifest::yaml,
    world::{AgentKey, Seen, Strategy, Template, World, digest},
};

const CALICO: &str = include_str!("../../policies/providers/calico.yaml");
const FLANNEL: &str = include_str!("../../policies/providers/flannel.yaml");
const CALICO_GOOD: &str = include_str!("../../policies/providers/calico.good.yaml");
const CALICO_BAD: &str = include_str!("../../policies/providers/calico.bad.yaml");
const FLANNEL_GOOD: &str = include_str!("../../policies/providers/flannel.good.yaml");
const FLANNEL_BAD: &str = include_str!("../../policies/providers/flannel.bad.yaml");

fn calico() -> Profile {
    Profile::parse(CALICO).unwrap()
}

fn flannel() -> Profile {
    Profile::parse(FLANNEL).unwrap()
}

/// A small profile whose `spec` is changed by `edit`.
fn edited(edit: impl FnOnce(&mut Value)) -> Result<Profile, ProfileError> {
    let mut file: Value = yaml::typed(CALICO).unwrap();
    edit(&mut file["spec"]);
    Profile::parse(&yaml::write(&file).unwrap())
}

fn faults(edit: impl FnOnce(&mut Value)) -> String {
    match edited(edit).unwrap_err() {
        ProfileError::Lint { faults, .. } => faults.join("\n"),
        other => panic!("not found by lint: {other}"),
    }
}

fn template(init: &[(&str, &str)], containers: &[(&str, &str)]) -> Value {
    let list = |list: &[(&str, &str)]| {
        list.iter().map(|(name, image)| json!({ "name": name, "image": image })).collect::<Vec<_>>()
    };
    json!({ "spec": { "initContainers": list(init), "containers": list(containers) } })
}

fn agent(template: Value) -> Agent {
    Agent {
        labels: BTreeMap::new(),
        original_strategy: None,
        generation: 1,
        observed_generation: 1,
        strategy: Strategy::RollingUpdate,
        surge: false,
        template: Template { digest: digest::of_template(&template), raw: Arc::new(template) },
        desired: 1,
        current: 1,
        updated: 1,
        marks: Vec::new(),
        deleting: false,
    }
}

fn world(agents: &[(&str, &str)]) -> World {
    let mut world = World::default();
    for (namespace, name) in agents {
        put(&mut world, namespace, name, agent(json!({})));
    }
    world
}

fn put(world: &mut World, namespace: &str, name: &str, agent: Agent) {
    let key = AgentKey { namespace: namespace.to_owned(), name: name.to_owned() };
    let seen = Seen { uid: Uid::from(name), rv: Rv(1), since: Timestamp::UNIX_EPOCH, is: agent };
    world.agents.insert(key, seen);
}

/// World with the DaemonSet of an example file, and its pod template.
fn example(text: &str) -> (World, Value) {
    let object: Value = yaml::typed(text).unwrap();
    let template = object["spec"]["template"].clone();
    let mut world = World::default();
    let name = |field: &str| object["metadata"][field].as_str().unwrap().to_owned();
    put(&mut world, &name("namespace"), &name("name"), agent(template.clone()));
    (world, template)
}

fn to(changes: &[ImageChange]) -> Vec<(&str, &str)> {
    changes.iter().map(|change| (change.container.as_str(), change.to.as_str())).collect()
}

/// New image of `calico-node` when it runs `live`.
fn moved(live: &str, version: &str) -> String {
    let changes = calico().images(&template(&[], &[("calico-node", live)]), version).unwrap();
    changes.into_iter().next().unwrap().to
}

#[test]
fn every_built_in_profile_is_read_and_they_are_in_order_of_name() {
    let names: Vec<String> = built_in().into_iter().map(|profile| profile.name).collect();
    assert_eq!(names, ["calico", "flannel"]);
}

#[test]
fn the_good_examples_are_found_read_and_covered() {
    for (text, name, version, target) in
        [(CALICO_GOOD, "calico", "3.27.2", "v3.28.0"), (FLANNEL_GOOD, "flannel", "0.26.7", "v0.27.0")]
    {
        let (profiles, (world, template)) = (built_in(), example(text));
        let (profile, _) = resolve(&profiles, &world, None).unwrap();
        assert_eq!(profile.name, name);
        assert_eq!(profile.version(&Profile::template_images(&template)).as_deref(), Some(version));
        assert_eq!(profile.skew(version, target), Ok(None));
        let changes = profile.images(&template, target).unwrap();
        assert!(changes.iter().all(|change| change.from != change.to), "{changes:?}");
    }
}

#[test]
fn the_bad_examples_are_refused_for_the_reason_that_they_give() {
    for (text, target) in [(CALICO_BAD, "v3.28.0"), (FLANNEL_BAD, "v0.27.0")] {
        let (profiles, (world, template)) = (built_in(), example(text));
        let (profile, _) = resolve(&profiles, &world, None).unwrap();
        let refusal = profile.images(&template, target).unwrap_err();
        let named = format!("Refused with {}:", refusal.reason());
        assert!(text.contains(&named), "{named} is not what the example says");
    }
}

#[test]
fn init_containers_and_containers_change_together_and_keep_their_position() {
    let (_, template) = example(CALICO_GOOD);
    let changes = calico().images(&template, "3.28.0").unwrap();
    let places: Vec<_> = changes.iter().map(|change| (change.init, change.index)).collect();
    assert_eq!(places, [(true, 0), (true, 1), (true, 2), (false, 0)]);
    assert_eq!(changes[0].from, "mirror.example.com:5000/calico/cni:v3.27.2");
    assert_eq!(changes[0].to, "mirror.example.com:5000/calico/cni:v3.28.0");
    assert_eq!(changes[3].to, "mirror.example.com:5000/calico/node:v3.28.0");
}

#[test]
fn registry_path_and_port_of_a_mirror_stay() {
    assert_eq!(moved("calico/node:v3.27.2", "v3.28.0"), "calico/node:v3.28.0");
    assert_eq!(moved("reg:5000/a/b/calico-node:v3.27.2", "v3.28.0"), "reg:5000/a/b/calico-node:v3.28.0");
}

#[test]
fn the_leading_v_follows_the_live_tag_not_the_declaration() {
    assert_eq!(moved("calico/node:3.27.2", "v3.28.0"), "calico/node:3.28.0");
    assert_eq!(moved("calico/node:v3.27.2", "3.28.0"), "calico/node:v3.28.0");
}

#[test]
fn without_a_tag_that_is_a_version_the_profile_says_how_one_is_written() {
    assert_eq!(moved("reg:5000/calico/node", "3.28.0"), "reg:5000/calico/node:v3.28.0");
    assert_eq!(moved("calico/node:latest", "3.28.0"), "calico/node:v3.28.0");
    assert_eq!(moved("calico/node:vendor-build", "3.28.0"), "calico/node:v3.28.0");
}

#[test]
fn a_pinned_digest_is_dropped_with_the_version_it_pinned() {
    assert_eq!(moved("calico/node:v3.27.2@sha256:0a", "v3.28.0"), "calico/node:v3.28.0");
    assert_eq!(moved("reg:5000/calico/node@sha256:0a", "v3.28.0"), "reg:5000/calico/node:v3.28.0");
}

#[test]
fn an_image_that_is_at_the_version_stays_byte_for_byte() {
    assert_eq!(moved("calico/node:3.28.0@sha256:0a", "v3.28.0"), "calico/node:3.28.0@sha256:0a");
}

#[test]
fn with_keep_registry_off_the_image_moves_to_the_upstream_repository() {
    let profile = edited(|spec| spec["components"]["agent"]["keepRegistry"] = json!(false)).unwrap();
    let live = template(&[], &[("calico-node", "mirror/calico/node:v3.27.2")]);
    let changes = profile.images(&live, "v3.28.0").unwrap();
    assert_eq!(to(&changes), [("calico-node", "docker.io/calico/node:v3.28.0")]);
}

#[test]
fn an_image_with_versions_of_its_own_follows_the_map_and_is_kept_without_an_entry() {
    let (_, template) = example(FLANNEL_GOOD);
    let plugin = |version| {
        let changes = flannel().images(&template, version).unwrap();
        changes.into_iter().find(|change| change.container == "install-cni-plugin").unwrap().to
    };
    assert_eq!(plugin("v0.27.0"), "ghcr.io/flannel-io/flannel-cni-plugin:v1.7.1-flannel1");
    assert_eq!(plugin("v0.26.8"), "ghcr.io/flannel-io/flannel-cni-plugin:v1.6.2-flannel1");
}

#[test]
fn a_container_that_is_neither_covered_nor_ignored_is_refused_by_name_and_image() {
    let live = template(&[("warm-up", "a:1")], &[("calico-node", "calico/node:v3.27.2"), ("side", "b:2")]);
    let refusal = calico().images(&live, "v3.28.0").unwrap_err();
    let containers = BTreeMap::from([
        ("init:warm-up".to_owned(), "a:1".to_owned()),
        ("side".to_owned(), "b:2".to_owned()),
    ]);
    assert_eq!(refusal, Refusal::ContainerNotCovered { containers, profile: "calico".to_owned() });

    let ignoring = edited(|spec| spec["components"]["agent"]["ignore"] = json!(["warm-*", "side"])).unwrap();
    assert_eq!(to(&ignoring.images(&live, "v3.28.0").unwrap()), [("calico-node", "calico/node:v3.28.0")]);
}

#[test]
fn a_container_that_the_profile_needs_and_the_template_lacks_is_refused() {
    let refusal = calico().images(&template(&[("install-cni", "calico/cni:v3.27.2")], &[]), "v3.28.0");
    let containers = vec!["calico-node".to_owned()];
    assert_eq!(refusal, Err(Refusal::ContainerMissing { containers, profile: "calico".to_owned() }));
}

#[test]
fn a_target_that_is_no_version_is_refused() {
    for text in [
        "",
        "latest",
        "v3",
        "3.28",
        "3.28.0.1",
        "3.x.0",
        "+3.28.0",
        "3.28.0-",
        "3.28.0-a..b",
        "3.28.0 b",
        "v03.28.0",
    ] {
        let refusal = calico().images(&template(&[], &[]), text).unwrap_err();
        assert!(matches!(refusal, Refusal::VersionUnreadable { .. }), "{text}: {refusal:?}");
    }
}

#[test]
fn the_version_is_read_without_v_from_the_container_that_carries_it() {
    let version =
        |image: &str| calico().version(&BTreeMap::from([("calico-node".to_owned(), image.to_owned())]));
    assert_eq!(version("reg:5000/calico/node:v3.27.2@sha256:0a").as_deref(), Some("3.27.2"));
    assert_eq!(version("calico/node:3.28.0-rc.1").as_deref(), Some("3.28.0-rc.1"));
    assert_eq!(version("reg:5000/calico/node"), None);
    assert_eq!(version("calico/node:master"), None);
    assert_eq!(calico().version(&BTreeMap::new()), None);
}

#[test]
fn template_images_tell_init_containers_apart() {
    let live = template(&[("agent", "a:1")], &[("agent", "b:2")]);
    let images = Profile::template_images(&live);
    assert_eq!(images.get("init:agent").map(String::as_str), Some("a:1"));
    assert_eq!(images.get("agent").map(String::as_str), Some("b:2"));
    assert!(Profile::template_images(&json!({ "spec": 3 })).is_empty());
}

#[test]
fn a_tag_with_an_ending_is_read_and_written_with_it() {
    let tag = Tag::try_from("v{version}-thick".to_owned()).unwrap();
    assert_eq!(tag.read("v4.2.0-thick").as_deref(), Some("4.2.0"));
    assert_eq!(tag.read("v4.2.0-thin").as_deref(), None);
    assert_eq!(tag.write("4.3.0", Some("4.2.0-thick")), "4.3.0-thick");
    assert!(Tag::try_from("release-{version}".to_owned()).is_err());
    assert!(Tag::try_from("v3.28.0".to_owned()).is_err());
}

#[test]
fn the_one_daemon_set_that_a_profile_describes_is_found() {
    let profiles = built_in();
    let seen =
        world(&[("kube-system", "calico-node"), ("kube-system", "kube-proxy"), ("apps", "calico-node")]);
    let (profile, key) = resolve(&profiles, &seen, None).unwrap();
    assert_eq!((profile.name.as_str(), key.to_string().as_str()), ("calico", "kube-system/calico-node"));
}

#[test]
fn none_found_says_what_was_looked_for() {
    let profiles = built_in();
    let looked_for = |provider| match resolve(&profiles, &world(&[]), provider).unwrap_err() {
        Refusal::ProviderNotFound { looked_for, .. } => looked_for,
        other => panic!("{other:?}"),
    };
    assert_eq!(looked_for(Some("calico")), ["calico: DaemonSet calico-node in kube-system or calico-system"]);
    assert_eq!(looked_for(None).len(), 2);
}

#[test]
fn several_found_are_listed_and_a_provider_chooses_among_them() {
    let profiles = built_in();
    let seen = world(&[("kube-system", "calico-node"), ("kube-flannel", "kube-flannel-ds")]);
    let Err(Refusal::ProviderAmbiguous { found }) = resolve(&profiles, &seen, None) else { panic!() };
    let found: Vec<String> = found.iter().map(|(profile, key)| format!("{profile} {key}")).collect();
    assert_eq!(found, ["calico kube-system/calico-node", "flannel kube-flannel/kube-flannel-ds"]);
    assert_eq!(resolve(&profiles, &seen, Some("flannel")).unwrap().0.name, "flannel");

    let per_architecture =
        world(&[("kube-system", "kube-flannel-ds-amd64"), ("kube-system", "kube-flannel-ds-arm")]);
    let two = resolve(&profiles, &per_architecture, Some("flannel"));
    assert!(matches!(two, Err(Refusal::ProviderAmbiguous { found }) if found.len() == 2));
}

#[test]
fn an_unknown_provider_is_answered_with_the_nearest_name() {
    let refusal = resolve(&built_in(), &world(&[]), Some("calcio")).unwrap_err();
    let Refusal::ProviderUnknown { provider, nearest, known } = refusal else { panic!("{refusal:?}") };
    assert_eq!((provider.as_str(), nearest.as_deref()), ("calcio", Some("calico")));
    assert_eq!(known, ["calico", "flannel"]);
}

#[test]
fn labels_and_name_patterns_narrow_what_is_found() {
    let profile = edited(|spec| {
        spec["detect"] = json!([{ "kind": "DaemonSet", "names": ["c*o-*"], "labels": { "tier": "edge" } }]);
    })
    .unwrap();
    let profiles = [profile];
    assert!(resolve(&profiles, &world(&[("x", "calico-node")]), None).is_err());
    let mut seen = World::default();
    let labelled = || Agent { labels: BTreeMap::from([("tier".into(), "edge".into())]), ..agent(json!({})) };
    put(&mut seen, "x", "calico-node", labelled());
    put(&mut seen, "x", "cilium", labelled());
    assert_eq!(resolve(&profiles, &seen, None).unwrap().1.to_string(), "x/calico-node");
}

#[test]
fn owners_that_put_the_template_back_are_refused_and_helm_is_not() {
    let owner = |mark: Mark| calico().owner(&Agent { marks: vec![Mark::Helm, mark], ..agent(json!({})) });
    assert_eq!(owner(Mark::Helm), Ok(()));
    for (mark, reason) in [
        (Mark::Owner("Installation/default".to_owned()), Reason::OwnedByOperator),
        (Mark::Operator("operator.tigera.io/owned".to_owned()), Reason::OwnedByOperator),
        (Mark::Flux, Reason::OwnedByFlux),
        (Mark::ArgoCD, Reason::OwnedByArgoCD),
        (Mark::AddonManager, Reason::OwnedByOperator),
        (Mark::Kops, Reason::OwnedByOperator),
        (Mark::EksAddon, Reason::OwnedByOperator),
    ] {
        assert_eq!(owner(mark.clone()).unwrap_err().reason(), reason, "{mark:?}");
    }
    let alone = edited(|spec| spec["owners"]["allow"] = json!([])).unwrap();
    assert!(alone.owner(&Agent { marks: vec![Mark::Helm], ..agent(json!({})) }).is_err());
}

#[test]
fn calico_advises_up_to_3_32_and_refuses_from_3_33_on() {
    assert_eq!(calico().skew("3.27.2", "v3.28.0"), Ok(None));
    assert_eq!(calico().skew("v3.28.0", "3.28.0"), Ok(None));
    assert_eq!(calico().skew("3.28.0", "3.27.2"), Ok(None));
    assert!(calico().skew("3.28.0", "3.25.0").unwrap().unwrap().contains("at most 1 minor down"));
    assert!(calico().skew("3.9.0", "3.28.0").unwrap().unwrap().contains("no rule"));
    assert_eq!(calico().skew("3.31.0", "3.33.0"), Ok(None));
    assert_eq!(calico().skew("3.30.4", "3.33.0").unwrap_err().reason(), Reason::VersionSkew);
    assert_eq!(calico().skew("3.35.0", "3.33.0").unwrap_err().reason(), Reason::Downgrade);
    assert_eq!(calico().skew("master", "3.33.0").unwrap_err().reason(), Reason::VersionUnreadable);
}

#[test]
fn flannel_advises_one_minor_at_a_time() {
    assert_eq!(flannel().skew("0.26.7", "0.27.0"), Ok(None));
    assert!(flannel().skew("0.25.0", "0.27.0").unwrap().is_some());
    assert!(flannel().skew("0.27.0", "1.0.0").unwrap().is_some(), "another major is always far");
}

#[test]
fn without_a_way_down_in_the_profile_even_a_patch_back_is_refused() {
    let strict =
        edited(|spec| spec["version"]["skew"] = json!([{ "up": { "minors": 1 }, "level": "error" }]))
            .unwrap();
    assert_eq!(strict.skew("3.28.0", "3.28.1"), Ok(None));
    let refusal = strict.skew("3.28.1", "3.28.0").unwrap_err();
    let Refusal::Downgrade { rule, .. } = refusal else { panic!("{refusal:?}") };
    assert_eq!(rule, "from * to *: at most 1 minor up, no way down");
    assert_eq!(strict.skew("3.28.0", "3.28.0-rc.1").unwrap_err().reason(), Reason::Downgrade);
}

#[test]
fn versions_are_ordered_as_semantic_versioning_says() {
    let order =
        ["3.27.10", "3.28.0-0.dev", "3.28.0-rc.2", "3.28.0-rc.10", "3.28.0-rc.x", "v3.28.0", "3.28.1"];
    let versions: Vec<Version> = order.iter().map(|text| Version::parse(text).unwrap()).collect();
    assert!(versions.is_sorted_by(|low, high| low < high), "{versions:?}");
}

#[test]
fn a_key_that_has_no_rule_is_an_error_with_its_place() {
    for (key, value) in [("steps", json!(["agent"])), ("node", json!({ "cordon": true }))] {
        let error = edited(|spec| spec[key] = value).unwrap_err();
        assert!(matches!(&error, ProfileError::Unreadable(text) if text.contains(key)), "{error}");
    }
    let line = 1 + CALICO.lines().position(|line| line.contains("fastFailSeconds")).unwrap();
    let error = Profile::parse(&CALICO.replace("fastFailSeconds", "fastFailSecond")).unwrap_err().to_string();
    assert!(error.contains(&format!("line {line}, column 5: unknown field `fastFailSecond`")), "{error}");
    for (path, value) in [("/version/scheme", json!("calver")), ("/owners/allow/0", json!("flux"))] {
        assert!(edited(|spec| *spec.pointer_mut(path).unwrap() = value).is_err(), "{path}");
    }
}

#[test]
fn another_kind_or_a_driver_without_rules_is_no_profile() {
    let other = Profile::parse(&CALICO.replace("kind: Provider", "kind: Guardrail")).unwrap_err();
    assert!(matches!(other, ProfileError::NotAProvider { .. }), "{other}");
    for driver in ["ownedTemplate", "nodeJob"] {
        let error = edited(|spec| spec["driver"] = json!(driver)).unwrap_err();
        assert!(matches!(error, ProfileError::DriverNotSupported { .. }), "{error}");
    }
}

#[test]
fn lint_finds_skew_rules_that_both_cover_a_jump() {
    let text = faults(|spec| spec["version"]["skew"][1]["to"] = json!(">=3.30"));
    assert!(text.contains("skew rules overlap"), "{text}");
}

#[test]
fn lint_finds_ranges_that_are_none() {
    for range in ["", "3.15", ">=3", ">=3.20 <3.20", "<=3.3", ">=x.1"] {
        let error = edited(|spec| spec["version"]["skew"][0]["from"] = json!(range)).unwrap_err();
        assert!(error.to_string().contains("is no range"), "{range}: {error}");
    }
}

#[test]
fn lint_finds_a_container_with_two_meanings() {
    let twice = faults(|spec| spec["components"]["agent"]["images"][2]["init"] = json!(["mount-bpffs"]));
    assert!(twice.contains("init container `mount-bpffs` is named twice"), "{twice}");
    let ignored = faults(|spec| spec["components"]["agent"]["ignore"] = json!(["calico-node"]));
    assert!(ignored.contains("container `calico-node` is named twice"), "{ignored}");
}

#[test]
fn lint_finds_a_version_that_no_image_carries() {
    let text = faults(|spec| spec["version"]["read"]["container"] = json!("install-cni"));
    assert!(text.contains("read from container `install-cni`"), "{text}");
}

#[test]
fn lint_finds_images_without_containers_or_with_two_ways_to_a_tag_or_none() {
    let image = |edit: fn(&mut Value)| faults(|spec| edit(&mut spec["components"]["agent"]["images"][2]));
    assert!(image(|group| group["init"] = json!([])).contains("name no container"));
    for text in [
        image(|group| group["missing"] = json!("keep")),
        image(|group| group["mapped"] = json!({ "3.28.0": "v1" })),
        image(|group| {
            group.as_object_mut().unwrap().remove("tag");
        }),
    ] {
        assert!(text.contains("either `tag`, or `mapped` with `missing: keep`"), "{text}");
    }
    let key = image(|group| {
        *group = json!({ "init": ["x"], "repository": "r", "mapped": { "next": "v1" }, "missing": "keep" });
    });
    assert!(key.contains("`next` in `mapped` of r is no version"), "{key}");
}

#[test]
fn lint_finds_a_profile_that_detects_nothing() {
    assert!(faults(|spec| spec["detect"] = json!([])).contains("detect needs"));
    assert!(faults(|spec| spec["detect"][0]["names"] = json!([])).contains("detect needs"));
}

#[test]
fn lint_finds_health_rules_that_cannot_hold() {
    assert!(faults(|spec| spec["health"]["maxRestarts"] = json!(0)).contains("at least 1"));
    assert!(faults(|spec| spec["health"]["unhealthyPercent"] = json!(101)).contains("between 0 and 100"));
    let blind = faults(|spec| spec["components"]["agent"]["noReadinessProbe"] = json!(true));
    assert!(blind.contains("without a readiness probe stableSeconds must be at least 30"), "{blind}");
    let none = edited(|spec| {
        spec.as_object_mut().unwrap().remove("health");
    });
    assert_eq!(none.unwrap().health, HealthRules::default());
}
