use serde_json::{Value, json};

use super::*;
use crate::{
    access::{Need, Site},
    api::{ClaimKind, crd},
    world::AgentKey,
};

fn site() -> Site {
    let calico = AgentKey { namespace: "kube-system".to_owned(), name: "calico-node".to_owned() };
    Site { namespace: "network".to_owned(), agents: [calico].into() }
}

fn at(text: &str) -> jiff::Timestamp {
    text.parse().unwrap()
}

#[test]
fn versions_before_the_oldest_supported_one_are_worth_a_look() {
    let verdict = |version| server(version).verdict;
    for version in ["v1.34.0", "v1.36.3", "v1.34.2-eks-1", "v1.35.1+k3s1"] {
        assert_eq!(verdict(version), Verdict::Ok, "{version}");
    }
    for version in ["v1.33.9", "v2.0.0", "dev"] {
        assert_eq!(verdict(version), Verdict::Warning, "{version}");
    }
}

#[test]
fn clocks_are_told_apart_no_further_than_whole_seconds_and_the_way_of_the_answer_allow() {
    let date = at("2026-03-01T10:00:00Z");
    let seconds = |before, after| skew(date, at(before), at(after)).as_secs();
    assert_eq!(seconds("2026-03-01T10:00:00.9Z", "2026-03-01T10:00:01.2Z"), 0);
    assert_eq!(seconds("2026-03-01T09:59:50Z", "2026-03-01T10:00:30Z"), 0, "the answer took long");
    assert_eq!(seconds("2026-03-01T09:59:49Z", "2026-03-01T09:59:50Z"), 10);
    assert_eq!(seconds("2026-03-01T10:00:11Z", "2026-03-01T10:00:12Z"), -10);
}

#[test]
fn a_clock_is_a_warning_from_five_seconds_on_and_a_fault_from_a_minute_on() {
    let judged = |seconds| clock(Some(jiff::SignedDuration::from_secs(seconds)));
    let ends = [5, -5, 6, -60, 61, -61].map(|seconds| judged(seconds).verdict);
    let [ok, warning, fault] = [Verdict::Ok, Verdict::Warning, Verdict::Fault];
    assert_eq!(ends, [ok, ok, warning, warning, fault, fault]);
    assert!(judged(90).message.starts_with("This machine is 90 s behind the API server"));
    assert!(judged(-90).message.starts_with("This machine is 90 s ahead of the API server"));
    assert_eq!(clock(None).verdict, Verdict::Skipped);
}

#[test]
fn denied_rights_are_told_with_the_command_that_grants_them() {
    let denied: std::collections::BTreeSet<Need> =
        crate::access::needs(&site()).into_iter().filter(|need| need.name.is_some()).collect();
    let findings = rights(&site(), 40, &denied);
    let of = |what: &str| findings.iter().find(|finding| finding.message.contains(what)).unwrap();
    let patch = of("daemonsets");
    assert_eq!(patch.verdict, Verdict::Fault);
    assert_eq!(patch.message, "The account may not get, patch daemonsets.apps/calico-node in kube-system.");
    assert_eq!(
        patch.mend.as_deref(),
        Some(
            "trunkline manifests rbac --namespace network --daemon-set kube-system/calico-node | kubectl apply -f -; \
             or this one, bound to the account: kubectl create role NAME --verb=get,patch --resource=daemonsets.apps \
             --resource-name=calico-node --namespace=kube-system"
        )
    );
    let namespace = of("namespaces/kube-system").mend.as_deref().unwrap();
    assert!(
        namespace.ends_with(
            "kubectl create clusterrole NAME --verb=get --resource=namespaces --resource-name=kube-system"
        ),
        "{namespace}"
    );
    assert_eq!(rights(&site(), 40, &[].into())[0].verdict, Verdict::Ok);
}

/// Our definition of `CNIUpgrade`, and as an API server shows it.
fn definitions() -> (Value, Value) {
    let ours = serde_json::to_value(crd::definition(ClaimKind::CniUpgrade)).unwrap();
    let mut theirs = ours.clone();
    theirs["spec"]["conversion"] = json!({ "strategy": "None" });
    theirs["status"] = json!({ "conditions": [{ "type": "Established", "status": "True" }] });
    (ours, theirs)
}

#[test]
fn a_definition_of_another_version_is_told_by_the_fields_that_differ() {
    let (ours, mut theirs) = definitions();
    let judge = |theirs: &Value| definition(&ours, &Looked::There(Box::new(theirs.clone())), true);
    assert_eq!(judge(&theirs).verdict, Verdict::Ok, "{}", judge(&theirs).message);
    let root = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let spec = theirs.pointer_mut(root).unwrap().as_object_mut().unwrap();
    spec.insert("newer".to_owned(), json!({ "type": "string", "description": "One more." }));
    spec.remove("maxParallel").unwrap();
    spec["targetVersion"]["description"] = json!("Other words.");
    spec["canary"]["type"] = json!("string");
    let message = judge(&theirs).message;
    let at =
        |field: &str| format!("spec.versions[0].schema.openAPIV3Schema.properties.spec.properties.{field}");
    let all = ["canary.type", "maxParallel"].map(at).join(", ") + " and " + &at("newer");
    assert_eq!(
        message,
        format!("cniupgrades.cni.example.com: not that of this version; it differs in {all}.")
    );
}

#[test]
fn a_definition_is_a_fault_unless_it_is_there_and_established() {
    let (ours, mut theirs) = definitions();
    let judge = |looked, served| definition(&ours, &looked, served).verdict;
    assert_eq!(judge(Looked::Absent, false), Verdict::Fault);
    assert_eq!(judge(Looked::Forbidden, true), Verdict::Ok);
    assert_eq!(judge(Looked::Forbidden, false), Verdict::Fault);
    theirs["status"]["conditions"][0]["status"] = json!("False");
    assert_eq!(judge(Looked::There(Box::new(theirs)), true), Verdict::Fault);
}

#[test]
fn a_lease_counts_from_its_last_renewal_for_its_duration() {
    let renewed = at("2026-03-01T10:00:00Z");
    let seen = LeaseSeen { holder: Some("a".to_owned()), renewed: Some(renewed), seconds: Some(15) };
    let judge = |seen: &LeaseSeen, now| lease("network", Ok(Some(seen)), at(now));
    let leads = judge(&seen, "2026-03-01T10:00:15Z");
    assert_eq!(
        (leads.verdict, &*leads.message),
        (Verdict::Ok, "a leads, and renewed it at 2026-03-01T10:00:00Z.")
    );
    let lapsed = judge(&seen, "2026-03-01T10:00:16Z");
    assert_eq!(lapsed.verdict, Verdict::Fault);
    assert_eq!(lapsed.message, "Nobody leads: a renewed it last at 2026-03-01T10:00:00Z, for 15 s.");
    assert!(lapsed.mend.unwrap().starts_with("kubectl -n network get pods"));
    let given_back = LeaseSeen { holder: Some(String::new()), ..seen };
    assert_eq!(judge(&given_back, "2026-03-01T10:00:01Z").verdict, Verdict::Fault);
    assert_eq!(lease("network", Ok(None), renewed).verdict, Verdict::Fault);
    assert_eq!(lease("network", Err("403"), renewed).verdict, Verdict::Fault);
}

#[test]
fn policies_that_are_not_there_are_a_warning_and_what_may_not_be_seen_is_left_out() {
    let name = |name: &str| name.to_owned();
    let judge = |looked: &[(String, Looked)]| policies(&site(), looked);
    let there = || Looked::There(Box::new(json!({})));
    assert_eq!(judge(&[(name("a"), there()), (name("b"), there())]).verdict, Verdict::Ok);
    let absent = judge(&[(name("a"), there()), (name("b"), Looked::Absent)]);
    assert_eq!(absent.verdict, Verdict::Warning);
    assert!(absent.message.starts_with("Not installed: b."), "{}", absent.message);
    assert_eq!(judge(&[(name("a"), Looked::Forbidden)]).verdict, Verdict::Skipped);
    assert_eq!(judge(&[(name("a"), Looked::Failed("503".to_owned()))]).verdict, Verdict::Warning);
}

#[test]
fn a_coloured_report_differs_in_escape_sequences_only() {
    let findings = vec![server("v1.36.3"), server("v1.30.0"), no_configuration(), rights_unknown("no")];
    let examination = Examination { findings };
    insta::assert_snapshot!(examination.text(Paint::Plain), @"
    ok       api server     It answers, and runs v1.36.3.
    warning  api server     It runs v1.30.0; trunkline is made for Kubernetes 1.34 and later.
               to mend:     Upgrade the control plane first.
    skipped  configuration  Nothing about Git was looked at; name the configuration with --config.
    fault    rights         They cannot be asked for: no.
               to mend:     Each account may ask for its own rights by the ClusterRole system:basic-user; bind it again.
    1 fault, 1 warning
    ");
    let coloured = examination.text(Paint::Coloured);
    let plain: String = coloured.split("\u{1b}[").enumerate().fold(String::new(), |text, (at, part)| {
        text + if at == 0 { part } else { part.split_once('m').unwrap().1 }
    });
    assert_eq!(plain, examination.text(Paint::Plain));
}
