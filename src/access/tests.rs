use serde_json::Value;

use super::*;
use crate::{observe::address, profile};

fn site(agents: &[(&str, &str)]) -> Site {
    let key = |(namespace, name): &(&str, &str)| AgentKey {
        namespace: (*namespace).to_owned(),
        name: (*name).to_owned(),
    };
    Site { namespace: "network".to_owned(), agents: agents.iter().map(key).collect() }
}

fn two() -> Site {
    site(&[("kube-system", "calico-node"), ("kube-flannel", "kube-flannel-ds")])
}

/// Namespace and rule of every role.
fn rules(site: &Site) -> Vec<(Option<String>, Value)> {
    let roles = objects(site).into_iter().filter(|object| object.get("rules").is_some());
    roles
        .flat_map(|role| {
            let namespace = role["metadata"]["namespace"].as_str().map(str::to_owned);
            let rules = role["rules"].as_array().cloned().unwrap();
            rules.into_iter().map(move |rule| (namespace.clone(), rule)).collect::<Vec<_>>()
        })
        .collect()
}

fn grants(rule: &Value, resource: &str, verb: &str) -> bool {
    let has = |list: &str, word: &str| rule[list].as_array().unwrap().iter().any(|is| is == word);
    has("resources", resource) && has("verbs", verb)
}

#[test]
fn nothing_is_granted_by_wildcard_and_nothing_that_leads_further() {
    let text = serde_json::to_string(&objects(&two())).unwrap();
    for word in
        ["*", "secrets", "exec", "escalate", "\"bind\"", "impersonate", "deletecollection", "serviceaccounts"]
    {
        assert!(!text.contains(word), "{word}: {text}");
    }
}

#[test]
fn daemon_sets_are_patched_and_pods_deleted_only_where_an_agent_lives() {
    let rules = rules(&two());
    let places = |resource, verb| -> Vec<(Option<&str>, String)> {
        let granted = rules.iter().filter(|(_, rule)| grants(rule, resource, verb));
        granted.map(|(at, rule)| (at.as_deref(), rule["resourceNames"].to_string())).collect()
    };
    assert_eq!(
        places("daemonsets", "patch"),
        [
            (Some("kube-flannel"), r#"["kube-flannel-ds"]"#.to_owned()),
            (Some("kube-system"), r#"["calico-node"]"#.to_owned()),
        ]
    );
    assert_eq!(
        places("pods", "delete"),
        [(Some("kube-flannel"), "null".to_owned()), (Some("kube-system"), "null".to_owned())]
    );
    assert_eq!(places("configmaps", "update"), [(Some("network"), "null".to_owned())]);
}

#[test]
fn every_binding_is_for_the_account_of_the_site_and_names_a_role_that_is_there() {
    let objects = objects(&two());
    let bindings: Vec<&Value> = objects.iter().filter(|object| object.get("roleRef").is_some()).collect();
    assert_eq!(bindings.len(), 5);
    for binding in bindings {
        assert_eq!(binding["subjects"][0]["name"], "trunkline");
        assert_eq!(binding["subjects"][0]["namespace"], "network");
        assert!(objects.iter().any(|role| role["kind"] == binding["roleRef"]["kind"]
            && role["metadata"]["name"] == binding["roleRef"]["name"]
            && role["metadata"]["namespace"] == binding["metadata"]["namespace"]));
    }
}

#[test]
fn what_a_feed_may_list_is_what_it_asks_for() {
    for feed in Feed::ALL {
        let (path, _) = address::of_feed(feed, "network");
        let rights = of_feed(feed);
        assert!(!rights.is_empty());
        for right in rights {
            assert!(path.ends_with(&format!("/{}", right.resource.plural())), "{feed:?}: {path}");
            assert_eq!(right.place == Place::Own, path.contains("/namespaces/network/"), "{feed:?}: {path}");
            let group = right.resource.group();
            assert!(path.starts_with(&if group.is_empty() {
                "/api/".to_owned()
            } else {
                format!("/apis/{group}/")
            }));
        }
    }
}

#[test]
fn a_pattern_of_a_profile_is_told_and_not_granted() {
    let (named, patterns) = agents(&profile::built_in());
    let named: Vec<String> = named.iter().map(AgentKey::to_string).collect();
    assert_eq!(
        named,
        [
            "calico-system/calico-node",
            "kube-flannel/kube-flannel-ds",
            "kube-system/calico-node",
            "kube-system/kube-flannel-ds",
        ]
    );
    let patterns: Vec<&str> = patterns.iter().map(String::as_str).collect();
    assert_eq!(patterns, ["kube-flannel/kube-flannel-ds-*", "kube-system/kube-flannel-ds-*"]);
}

#[test]
fn every_policy_is_bound_and_meets_only_the_account_of_the_site() {
    let policies = policies(&two());
    for pair in policies.chunks(2) {
        let [policy, binding] = pair else { panic!("{pair:?}") };
        assert_eq!(policy["spec"]["failurePolicy"], "Fail");
        assert_eq!(
            policy["spec"]["matchConditions"][0]["expression"],
            "request.userInfo.username == 'system:serviceaccount:network:trunkline'"
        );
        assert_eq!(binding["spec"]["policyName"], policy["metadata"]["name"]);
        assert_eq!(binding["spec"]["validationActions"][0], "Deny");
    }
}

#[test]
fn every_right_that_is_granted_is_asked_for_one_by_one_and_no_other() {
    let granted: BTreeSet<String> = rules(&two())
        .into_iter()
        .flat_map(|(namespace, rule)| {
            let words = |list: &str| -> Vec<String> {
                let list = rule[list].as_array().cloned().unwrap_or_default();
                list.iter().map(|word| word.as_str().unwrap().to_owned()).collect()
            };
            let (group, resource) = (words("apiGroups").concat(), words("resources").concat());
            let (plural, part) = resource.split_once('/').unwrap_or((&resource, ""));
            let group = if group.is_empty() { String::new() } else { format!(".{group}") };
            let part = if part.is_empty() { String::new() } else { format!("/{part}") };
            let name = words("resourceNames").concat();
            let name = if name.is_empty() { String::new() } else { format!("/{name}") };
            let place = namespace.map(|namespace| format!(" in {namespace}")).unwrap_or_default();
            let verbs = words("verbs");
            let line = |verb: String| format!("{verb} {plural}{group}{name}{part}{place}");
            verbs.into_iter().map(line).collect::<Vec<_>>()
        })
        .collect();
    let asked: BTreeSet<String> = needs(&two()).iter().map(Need::to_string).collect();
    assert_eq!(asked, granted);
}
