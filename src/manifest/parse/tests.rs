use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::{
    api::{CniUpgradeSpec, names::Oid},
    manifest::{Spec, wish::Wish},
    world::git::Blob,
};

const CNI: &str = include_str!("../../../tests/golden/inputs/cni_upgrade.yaml");
const SERVICE: &str = include_str!("../../../tests/golden/inputs/service_upgrade.yaml");

fn blob(bytes: &[u8]) -> Blob {
    Blob { oid: Oid::from("0"), bytes: Arc::from(bytes) }
}

fn files(all: &[(&str, &str)]) -> Files {
    all.iter().map(|(path, text)| ((*path).to_owned(), blob(text.as_bytes()))).collect()
}

fn reading(all: &[(&str, &str)]) -> Reading {
    read(&files(all), &BTreeSet::new())
}

fn known(bytes: &[u8]) -> Reading {
    let files = Files::from([("a.yaml".to_owned(), blob(bytes))]);
    read(&files, &BTreeSet::from(["a.yaml".to_owned()]))
}

/// `path:line:column Code message (help)`.
fn lines(reading: &Reading) -> Vec<String> {
    let line = |found: &Diagnostic| {
        let Diagnostic { path, line, column, code, message, help, .. } = found;
        let help = if help.is_empty() { String::new() } else { format!(" ({help})") };
        format!("{path}:{line}:{column} {code:?} {message}{help}")
    };
    reading.diagnostics.iter().map(line).collect()
}

fn only(text: &str) -> Vec<String> {
    lines(&reading(&[("a.yaml", text)]))
}

fn cni(spec: &str) -> String {
    let spec = spec.replace('\n', "\n  ");
    format!("apiVersion: cni.example.com/v1\nkind: CNIUpgrade\nmetadata:\n  name: x\nspec:\n  {spec}\n")
}

fn spec_of(reading: &Reading) -> &CniUpgradeSpec {
    match &reading.declarations[&ClaimKey::cni("x")].spec {
        Spec::Cni(spec) => spec,
        Spec::Service(_) => panic!("a CNIUpgrade was meant"),
    }
}

#[test]
fn the_published_cni_manifest_is_a_declaration() {
    let reading = reading(&[("clusters/cni.yaml", CNI)]);
    assert_eq!(lines(&reading), [""; 0]);
    let found = &reading.declarations[&ClaimKey::cni("calico-upgrade-v3.28")];
    assert_eq!((found.path.as_str(), found.document, found.line), ("clusters/cni.yaml", 0, 1));
    assert_eq!(
        found.stored,
        json!({
            "targetVersion": "v3.28.0",
            "canary": { "percentage": 20, "observationMinutes": 30, "healthThreshold": 0.95 },
            "maxParallel": 3, "timeoutSeconds": 300, "autoRollback": true, "paused": false,
            "deletionPolicy": "Keep",
        })
    );
    let wish =
        Wish::Cni { provider: None, target_version: "3.28.0".to_owned(), node_selector: BTreeMap::new() };
    assert_eq!((found.hash.clone(), &found.wish), (wish.hash(), &wish));
    assert_eq!(found.written, BTreeMap::from([("targetVersion".to_owned(), "v3.28.0".to_owned())]));
}

#[test]
fn the_published_service_manifest_is_a_declaration() {
    let reading = reading(&[("svc.yml", SERVICE)]);
    assert_eq!(lines(&reading), [""; 0]);
    let found = &reading.declarations[&ClaimKey::service("default", "web-svc-upgrade")];
    assert_eq!(found.stored["targetService"]["ports"][1]["targetPort"], json!(9090));
    assert_eq!(found.stored["canary"]["rounding"], json!("Down"));
    assert_eq!(found.written["serviceName"], "web-service");
    assert!(found.written["targetService"].starts_with("\n  ports:\n    - name: http\n"));
    assert!(found.written["targetService"].ends_with("\n  type: ClusterIP"));
}

#[test]
fn documents_of_other_kinds_and_files_of_other_kinds_are_ignored() {
    let other = "apiVersion: v1\nkind: ConfigMap\ndata: {a: 1, a: 2}\n";
    let text = format!("{other}---\n{CNI}---\n[1, 2]\n---\njust text\n---\n# nothing\n");
    let reading = reading(&[
        ("a.yaml", &text),
        ("b.yaml", "{{ .Values.x }}: [\n"),
        ("c.txt", CNI),
        ("d.yaml", "apiVersion: cni.example.com.evil/v1\nkind: Other\n"),
    ]);
    assert_eq!(lines(&reading), [""; 0]);
    assert_eq!(reading.declarations.len(), 1);
    assert_eq!(reading.declarations[&ClaimKey::cni("calico-upgrade-v3.28")].document, 1);
}

#[test]
fn an_unknown_field_is_named_with_the_nearest_one() {
    assert_eq!(
        only(&cni("targetVersion: v1\ncanry:\n  percentage: 1\nmaxPar: 3\npercentage: 3\ncanary: {foo: 1}")),
        [
            "a.yaml:7:3 UnknownField spec.canry: unknown field `canry` (did you mean `canary`?)",
            "a.yaml:9:3 UnknownField spec.maxPar: unknown field `maxPar` (the fields here are `autoRollback`, \
             `canary`, `deletionPolicy`, `driver`, `maxParallel`, `nodeSelector`, `paused`, `provider`, \
             `targetVersion`, `timeoutSeconds`)",
            "a.yaml:10:3 UnknownField spec.percentage: unknown field `percentage` (`percentage` belongs to \
             `spec.canary`)",
            "a.yaml:11:12 UnknownField spec.canary.foo: unknown field `foo` (the fields here are \
             `healthThreshold`, `nodeLabels`, `observationMinutes`, `percentage`)",
        ]
    );
    assert_eq!(
        only(
            "apiVersion: cni.example.com/v1\nkind: CNIUpgrade\nmetdata: {}\nmetadata: {name: x, lables: {}}\nspec: {targetVersion: v1}\n"
        ),
        [
            "a.yaml:3:1 UnknownField metdata: unknown field `metdata` (did you mean `metadata`?)",
            "a.yaml:4:21 UnknownField metadata.lables: unknown field `lables` (did you mean `labels`?)",
        ]
    );
}

#[test]
fn an_unquoted_version_is_a_wrong_type_and_the_help_is_a_form_that_is_accepted() {
    let reading = reading(&[("a.yaml", &cni("targetVersion: 3.28 # the new one"))]);
    assert_eq!(
        lines(&reading),
        [
            "a.yaml:6:18 WrongType spec.targetVersion: must be a string, is a number (write all three numbers, in \
          quotes: `targetVersion: \"3.28.0\"`)"
        ]
    );
    assert_eq!(reading.diagnostics[0].snippet, "  targetVersion: 3.28 # the new one\n                 ^");
    assert_eq!(reading.held, BTreeSet::from([ClaimKey::cni("x")]));
    assert_eq!(reading.declarations, BTreeMap::new());
    assert_eq!(reading.hiding, BTreeSet::new());
}

#[test]
fn wrong_types_missing_fields_and_values_out_of_range_are_named_in_their_places() {
    assert_eq!(
        only(&cni(
            "maxParallel: '3'\ntimeoutSeconds: 5\nautoRollback: maybe\ncanary:\n  percentage: 200\n  healthThreshold: 95"
        )),
        [
            "a.yaml:5:1 MissingField spec.targetVersion: required field `targetVersion` is missing (add \
             `targetVersion: …`)",
            "a.yaml:6:16 WrongType spec.maxParallel: must be an integer, is a string (write it without quotes: \
             `maxParallel: 3`)",
            "a.yaml:7:19 OutOfRange spec.timeoutSeconds: must be between 30 and 604800, is 5",
            "a.yaml:8:17 WrongType spec.autoRollback: must be a boolean, is a string",
            "a.yaml:10:17 OutOfRange spec.canary.percentage: must be between 1 and 100, is 200",
            "a.yaml:11:22 OutOfRange spec.canary.healthThreshold: must be between 0 and 1, is 95 (1.0 means that \
             every counted node must be healthy)",
        ]
    );
    assert_eq!(
        only(&cni(
            "targetVersion: ''\nmaxParallel: 99999999999999999999\ncanary:\n  percentage: 20\n  healthThreshold: 1e400"
        )),
        [
            "a.yaml:6:18 OutOfRange spec.targetVersion: must not be empty (write the version that shall run, such as \
             `v3.28.0`)",
            "a.yaml:7:16 WrongType spec.maxParallel: must be an integer, is a number (`99999999999999999999` is out of \
             range: it must be between 1 and 100000)",
            "a.yaml:10:22 WrongType spec.canary.healthThreshold: must be a number, is a string (`1e400` is out of \
             range: it must be between 0 and 1)",
        ]
    );
    assert_eq!(
        only(&cni("targetVersion:")),
        [
            "a.yaml:6:3 MissingField spec.targetVersion: required field `targetVersion` is missing (it has no value)"
        ]
    );
    assert_eq!(
        only("apiVersion: cni.example.com/v1\nkind: CNIUpgrade\nmetadata: {name: x}\n"),
        ["a.yaml:1:1 MissingField spec: required field `spec` is missing (add `spec: …`)"]
    );
}

#[test]
fn a_version_that_could_be_no_tag_is_refused_before_the_push() {
    for version in [" ", "$(rm)", "v3|<b>@x", "evil.io/x:1", "v3.28.0@sha256:ab", "v3.28.0\u{202e}", "a b"] {
        let found = only(&cni(&format!("targetVersion: '{version}'")));
        let wanted = format!(
            "a.yaml:6:18 OutOfRange spec.targetVersion: `{version}` is no version (use letters, digits, `.`, \
             `_`, `-` and `+`, such as `v3.28.0`)"
        );
        assert_eq!(found, [wanted]);
    }
    assert_eq!(only(&cni("targetVersion: ' v1.12.9-k8s1+up_2 '")), Vec::<String>::new());
}

#[test]
fn a_retry_token_is_bounded_since_it_is_remembered() {
    let with = |length: usize| {
        let annotations = format!("name: x\n  annotations: {{trunkline.dev/retry: {}}}", "a".repeat(length));
        only(&cni("targetVersion: v1").replace("name: x", &annotations))
    };
    assert_eq!(with(128), Vec::<String>::new());
    assert!(with(129)[0].contains("at most 128 characters, has 129"), "{:?}", with(129));
}

#[test]
fn a_key_twice_is_named_with_the_line_of_the_first() {
    let text = cni("targetVersion: v1\nmaxParallel: 1\ntargetVersion: v2");
    assert_eq!(
        only(&text),
        [
            "a.yaml:8:3 DuplicateKey the key `targetVersion` stands twice in one mapping (the first one is on line 6; \
          keep one of them)"
        ]
    );
    let reading = reading(&[("a.yaml", &text)]);
    assert_eq!(reading.held, BTreeSet::from([ClaimKey::cni("x")]));
    assert_eq!(reading.hiding, BTreeSet::new());
}

#[test]
fn a_name_twice_hides_which_object_it_is() {
    let text = CNI.replace("  name:", "  name: other\n  name:");
    assert!(reading(&[("a.yaml", &text)]).hiding.contains("a.yaml"));
}

#[test]
fn unknown_kinds_and_versions_of_our_groups_are_named() {
    let spec = "metadata: {name: x}\nspec: {targetVersion: v1}\n";
    assert_eq!(
        only(&format!("apiVersion: cni.example.com/v2\nkind: CNIUpgrade\n{spec}")),
        ["a.yaml:1:13 UnknownKind there is no kind `CNIUpgrade` in `cni.example.com/v2` (write `kind: \
          CNIUpgrade` with `apiVersion: cni.example.com/v1`)"]
    );
    let reading =
        reading(&[("a.yaml", &format!("apiVersion: cni.example.com/v1\nkind: CniUpgrade\n{spec}"))]);
    assert!(lines(&reading)[0].starts_with("a.yaml:2:7 UnknownKind there is no kind `CniUpgrade`"));
    assert!(reading.hiding.contains("a.yaml"));
    assert!(only("apiVersion: cni.example.com/v1\n")[0].contains("has no `kind`"));
    let service = format!("apiVersion: cni.example.com/v1\nkind: ServiceUpgrade\n{spec}");
    assert!(
        only(&service)[0]
            .ends_with("(write `kind: ServiceUpgrade` with `apiVersion: service.example.com/v1`)")
    );
}

#[test]
fn our_kind_in_a_group_that_is_not_ours_is_worth_a_look() {
    let reading = reading(&[("a.yaml", &CNI.replace("cni.example.com", "cni.exmaple.com"))]);
    assert_eq!(
        lines(&reading),
        [
            "a.yaml:1:13 Suspicious a CNIUpgrade with `apiVersion: cni.exmaple.com/v1` is not read (if it is meant for \
          trunkline, write `apiVersion: cni.example.com/v1`)"
        ]
    );
    assert_eq!(reading.diagnostics[0].severity, Severity::Warning);
    assert!(reading.hiding.contains("a.yaml"));
}

#[test]
fn metadata_must_name_the_object_and_only_what_the_kind_has() {
    assert_eq!(
        only(&SERVICE.replace("  namespace: default\n", "")),
        [
            "a.yaml:3:1 BadMetadata a ServiceUpgrade needs `metadata.namespace` (add the namespace of the Service that it \
          is about)"
        ]
    );
    assert_eq!(
        only(&CNI.replace("metadata:\n", "metadata:\n  namespace: kube-system\n")),
        [
            "a.yaml:4:14 BadMetadata a CNIUpgrade has no namespace: it is about nodes of the whole cluster (remove \
          `namespace`)"
        ]
    );
    for name in ["Calico", "-a", "a..b", "a_b", "ü"] {
        let reading = reading(&[("a.yaml", &CNI.replace("calico-upgrade-v3.28", name))]);
        assert_eq!(reading.diagnostics[0].code, Code::BadMetadata, "{name}");
        assert!(reading.hiding.contains("a.yaml"));
    }
    assert_eq!(
        only(&CNI.replace("calico-upgrade-v3.28", "''")),
        ["a.yaml:4:9 BadMetadata `metadata.name` is empty (write the name of the object between the quotes)"]
    );
    assert!(
        only(&CNI.replace("name:", "generateName:"))[0]
            .contains("BadMetadata the object has no `metadata.name`")
    );
    assert_eq!(
        only(&CNI.replace("calico-upgrade-v3.28", "3.28")),
        [
            "a.yaml:4:9 WrongType metadata.name: must be a string, is `3.28` (put it in quotes: `name: \"3.28\"`)"
        ]
    );
    let annotated = CNI.replace("spec:", "  annotations: {trunkline.dev/retry: 1}\nspec:");
    assert_eq!(
        only(&annotated),
        [
            "a.yaml:5:38 WrongType metadata.annotations.trunkline.dev/retry: must be a string, is `1` (put it in quotes: \
          `trunkline.dev/retry: \"1\"`)"
        ]
    );
}

#[test]
fn the_retry_token_is_read() {
    let annotated =
        cni("targetVersion: v1").replace("spec:", "  annotations: {trunkline.dev/retry: again}\nspec:");
    let reading = reading(&[("a.yaml", &annotated)]);
    assert_eq!(reading.declarations[&ClaimKey::cni("x")].token.as_deref(), Some("again"));
}

#[test]
fn one_key_in_two_places_is_held_and_each_place_names_the_other() {
    let reading = reading(&[("a.yaml", CNI), ("b/c.yml", &format!("# two\n{CNI}")), ("d.yaml", SERVICE)]);
    let help = "(keep one of them; until then the form accepted last stays in force)";
    assert_eq!(
        lines(&reading),
        [
            format!(
                "a.yaml:4:9 Duplicate CNIUpgrade/calico-upgrade-v3.28 is also declared at b/c.yml:5:9 {help}"
            ),
            format!(
                "b/c.yml:5:9 Duplicate CNIUpgrade/calico-upgrade-v3.28 is also declared at a.yaml:4:9 {help}"
            ),
        ]
    );
    let key = ClaimKey::cni("calico-upgrade-v3.28");
    assert_eq!(reading.held, BTreeSet::from([key]));
    assert_eq!(
        reading.declarations.keys().collect::<Vec<_>>(),
        [&ClaimKey::service("default", "web-svc-upgrade")]
    );
}

#[test]
fn a_broken_document_holds_back_only_itself() {
    let broken = "apiVersion: cni.example.com/v1\nkind: CNIUpgrade\n\tmetadata: {name: y}\n";
    let reading = reading(&[("a.yaml", &format!("{broken}---\n{CNI}---\na: [\n---\n{SERVICE}"))]);
    let found = lines(&reading);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("a.yaml:3:1 Syntax a tab in the indentation"), "{found:?}");
    assert!(found[1].starts_with("a.yaml:"), "{found:?}");
    assert_eq!(reading.declarations.len(), 2);
    assert!(reading.hiding.contains("a.yaml"));
}

#[test]
fn conflict_markers_are_called_by_their_name() {
    let text = CNI.replace(
        "  targetVersion: v3.28.0\n",
        "<<<<<<< HEAD\n  targetVersion: v3.28.0\n=======\n  targetVersion: v3.29.0\n>>>>>>> theirs\n",
    );
    assert_eq!(
        only(&text),
        ["a.yaml:6:1 Syntax a merge conflict was left in the file (resolve it and remove the markers)"]
    );
}

#[test]
fn a_file_that_is_no_yaml_matters_only_if_it_names_us_or_held_an_object_before() {
    let broken = "a: [\n";
    assert_eq!(only(broken), [""; 0]);
    assert_eq!(known(broken.as_bytes()).diagnostics[0].code, Code::Syntax);
    assert!(known(broken.as_bytes()).hiding.contains("a.yaml"));
    assert_eq!(reading(&[("a.yaml", "cni.example.com: [\n")]).diagnostics[0].code, Code::Syntax);
}

#[test]
fn a_file_that_is_not_utf8_is_named_with_its_place() {
    let reading = known(b"a: 1\nb: \xc3\xbc \xff\n");
    assert_eq!(lines(&reading), ["a.yaml:2:6 NotUtf8 the byte 0xff is no UTF-8 (save the file as UTF-8)"]);
    let wide: Vec<u8> = [0xff, 0xfe].into_iter().chain(CNI.bytes().flat_map(|byte| [byte, 0])).collect();
    let files =
        Files::from([("a.yaml".to_owned(), blob(&wide)), ("b.yaml".to_owned(), blob(b"\xff\xfe\xff"))]);
    let reading = read(&files, &BTreeSet::new());
    assert_eq!(lines(&reading), ["a.yaml:0:0 NotUtf8 the file is in UTF-16 (save it as UTF-8)"]);
}

#[test]
fn alias_bombs_deep_nesting_and_size_end_at_the_budget() {
    let mut bomb = cni("targetVersion: v1\nnodeSelector:\n  a0: &a0 [x]");
    for level in 1..40 {
        let items = format!("*a{}, ", level - 1).repeat(20);
        bomb = format!("{bomb}    a{level}: &a{level} [{items}]\n");
    }
    let found = only(&bomb);
    assert!(found.iter().any(|line| line.contains("Budget")), "{found:?}");
    assert!(found.len() <= MAX_DIAGNOSTICS + 1);

    let deep = cni(&format!("targetVersion: {}", "[".repeat(20_000)));
    assert_eq!(reading(&[("a.yaml", &deep)]).diagnostics[0].code, Code::Budget);

    let large = format!("{CNI}# {}\n", "x".repeat(yaml::MAX_BYTES));
    let reading = reading(&[("a.yaml", &large)]);
    assert_eq!(reading.diagnostics[0].code, Code::Limit);
    assert!(reading.hiding.contains("a.yaml") && reading.declarations.is_empty());
}

#[test]
fn documents_beyond_the_limit_are_not_read_and_said() {
    let many = format!("{}{CNI}", "a: 1\n---\n".repeat(MAX_DOCUMENTS));
    let reading = reading(&[("a.yaml", &many)]);
    assert_eq!(
        lines(&reading),
        ["a.yaml:0:0 Limit the file has 1001 documents; the first 1000 are read (split the file)"]
    );
    assert!(reading.hiding.contains("a.yaml") && reading.declarations.is_empty());
}

#[test]
fn findings_beyond_the_limit_are_counted() {
    let fields: Vec<String> = (0..150).map(|n| format!("zz{n}: 1")).collect();
    let found = only(&cni(&format!("targetVersion: v1\n{}", fields.join("\n"))));
    assert_eq!(found.len(), MAX_DIAGNOSTICS + 1);
    assert_eq!(found[0], "a.yaml:0:0 Limit 50 more findings in this file");
}

#[test]
fn a_message_is_bounded_however_long_the_value_is() {
    let found =
        reading(&[("a.yaml", &cni(&format!("targetVersion: v1\ndeletionPolicy: {}", "x".repeat(10_000))))]);
    assert_eq!(found.diagnostics[0].message.chars().count(), MAX_MESSAGE + 1);
    assert!(found.diagnostics[0].snippet.len() < 300);
}

#[test]
fn what_is_not_built_yet_is_refused_and_held() {
    let reading =
        reading(&[("a.yaml", &cni("targetVersion: v1\ndriver: nodeJob\ndeletionPolicy: Rollback"))]);
    assert_eq!(
        lines(&reading),
        [
            "a.yaml:7:11 NotSupported spec.driver: `nodeJob` is not supported yet (write `daemonSet` or leave the field \
             out)",
            "a.yaml:8:19 NotSupported spec.deletionPolicy: `Rollback` is not supported yet (write `Keep` or leave the \
             field out)",
        ]
    );
    assert_eq!(reading.held, BTreeSet::from([ClaimKey::cni("x")]));
    assert_eq!(only(&cni("targetVersion: v1\ndriver: daemonSet\ndeletionPolicy: Keep")), [""; 0]);
}

#[test]
fn a_canary_service_must_have_a_name_that_fits() {
    let found =
        only(&SERVICE.replace("serviceSuffix: canary", &format!("serviceSuffix: {}", "c".repeat(60))));
    assert!(found[0].starts_with("a.yaml:7:16 OutOfRange the canary Service would be"), "{found:?}");
    let found = only(&SERVICE.replace("    weight: 10", "    steps: [1, 5, 5]\n    weight: 10"));
    assert_eq!(
        found,
        ["a.yaml:21:12 OutOfRange spec.canary.steps: every weight must be above the one before"]
    );
    let found = only(&SERVICE.replace("    weight: 10", "    steps: [1, 10]\n    weight: 10"));
    assert_eq!(
        found,
        [
            "a.yaml:21:12 OutOfRange spec.canary.steps: every weight must be below the final one, 10 (raise `weight`, \
          or leave the step out)"
        ]
    );
    let found = only(&SERVICE.replace("10m", "10 minutes"));
    assert!(found[0].ends_with("(write a duration such as `10m` or `1h30m`)"), "{found:?}");
}

#[test]
fn gates_need_a_bound_and_several_ports_need_names() {
    let gate = |bounds: &str| {
        let metric = format!("    metrics:\n    - name: errors\n      query: up\n{bounds}    weight: 10");
        only(&SERVICE.replace("    weight: 10", &metric))
    };
    assert_eq!(gate("      max: 1\n"), [""; 0]);
    let found = gate("");
    assert!(
        found[0].contains("OutOfRange spec.canary.metrics[0]: a metric needs `min` or `max`"),
        "{found:?}"
    );
    let found = gate("      min: 2\n      max: 1\n");
    assert!(found[0].contains("a metric has a `min` above its `max`"), "{found:?}");
    let found = only(&SERVICE.replace("- name: metrics\n        port", "- port"));
    assert!(
        found[0].contains("MissingField spec.targetService.ports[1]: each of several ports needs a name"),
        "{found:?}"
    );
}

#[test]
fn yaml_1_1_words_are_read_as_kubectl_reads_them() {
    let reading =
        reading(&[("a.yaml", &cni("targetVersion: v1\nautoRollback: yes\npaused: off\nmaxParallel: 010"))]);
    assert_eq!(lines(&reading), [""; 0]);
    let spec = spec_of(&reading);
    assert_eq!((spec.auto_rollback, spec.paused, spec.max_parallel), (true, false, 8));
    let found = only(&cni("targetVersion: v1\nnodeSelector: {gpu: yes, size: 0644}"));
    assert_eq!(
        found,
        [
            "a.yaml:7:23 WrongType spec.nodeSelector.gpu: must be a string, is a boolean (put it in quotes: \
             `gpu: \"yes\"`)",
            "a.yaml:7:34 WrongType spec.nodeSelector.size: must be a string, is an integer (put it in quotes: \
             `size: \"0644\"`)",
        ]
    );
}

#[test]
fn whole_floats_and_nulls_are_stored_as_the_api_server_stores_them() {
    let text = cni(
        "targetVersion: v1\nmaxParallel: 3.0\nprovider:\nnodeSelector: ~\ncanary: {healthThreshold: 1.0}",
    );
    let reading = reading(&[("a.yaml", &text)]);
    assert_eq!(lines(&reading), [""; 0]);
    let stored = reading.declarations[&ClaimKey::cni("x")].stored.to_string();
    assert_eq!(
        stored,
        "{\"autoRollback\":false,\"canary\":{\"healthThreshold\":1,\"observationMinutes\":5,\"percentage\":10},\
         \"deletionPolicy\":\"Keep\",\"maxParallel\":3,\"paused\":false,\"targetVersion\":\"v1\",\"timeoutSeconds\":600}"
    );
}

#[test]
fn line_ends_byte_order_marks_and_wide_letters_do_not_move_a_place() {
    let text = cni("targetVersion: v1\nnodeSelector: {ü: ü, x: 1}");
    let expected =
        ["a.yaml:7:27 WrongType spec.nodeSelector.x: must be a string, is an integer (put it in quotes: \
                     `x: \"1\"`)"];
    assert_eq!(only(&text), expected);
    assert_eq!(only(&text.replace('\n', "\r\n")), expected);
    let marked = format!("\u{feff}{text}");
    assert_eq!(only(&marked), expected);
    let first = reading(&[("a.yaml", "\u{feff}apiVersion: cni.example.com/v9\nkind: CNIUpgrade\n")]);
    assert_eq!(first.diagnostics[0].snippet, "apiVersion: cni.example.com/v9\n            ^");
}

#[test]
fn anchors_and_merges_are_followed_also_for_what_is_written() {
    let text = "apiVersion: cni.example.com/v1\nkind: CNIUpgrade\nmetadata:\n  name: x\n  labels: &all\n    pool: &p 'a-b'\n\
                spec:\n  <<: &base {targetVersion: \"v1\", maxParallel: 7}\n  nodeSelector: *all\n  provider: *p\n";
    let reading = reading(&[("a.yaml", text)]);
    assert_eq!(lines(&reading), [""; 0]);
    assert_eq!(spec_of(&reading).max_parallel, 7);
    let written = &reading.declarations[&ClaimKey::cni("x")].written;
    assert_eq!(written["targetVersion"], "\"v1\"");
    assert_eq!(written["provider"], "'a-b'");
    assert_eq!(written["nodeSelector"], "\n    pool: &p 'a-b'");
}

#[test]
fn a_status_in_a_manifest_is_said_and_does_not_hold_it_back() {
    let reading = reading(&[("a.yaml", &format!("{}status: {{}}\n", cni("targetVersion: v1")))]);
    assert_eq!(reading.diagnostics[0].severity, Severity::Warning);
    assert_eq!(reading.declarations.len(), 1);
}

#[test]
fn the_order_of_findings_does_not_depend_on_the_order_of_checks() {
    let text = cni("zz: 1\ntargetVersion: 3\nmaxParallel: 0");
    let reading = reading(&[("b.yaml", &text), ("a.yaml", &text)]);
    assert!(reading.diagnostics.is_sorted());
    assert_eq!(reading, super::read(&files(&[("a.yaml", &text), ("b.yaml", &text)]), &BTreeSet::new()));
}

proptest::proptest! {
    #[test]
    fn no_bytes_break_the_reader(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
        let _ = known(&bytes);
    }

    #[test]
    fn no_damage_to_a_manifest_breaks_the_reader(at in 0..CNI.len(), with in "[\\PC\n\t:{}&*!|>'\"-]{0,4}") {
        let mut text = CNI.to_owned();
        text.insert_str(at, &with);
        let reading = known(text.as_bytes());
        let whole = reading.declarations.len() + reading.held.len();
        proptest::prop_assert!(whole > 0 || !reading.hiding.is_empty() || !text.contains("cni.example.com"));
    }
}

#[test]
fn a_carriage_return_that_ends_no_line_is_named_and_hides_the_file() {
    let text = "# first\rapiVersion: cni.example.com/v1\rkind: CNIUpgrade\rmetadata: {name: x}\r";
    let reading = reading(&[("a.yaml", text)]);
    assert_eq!(
        lines(&reading),
        [
            "a.yaml:1:8 Syntax a carriage return stands here without a line feed (save the file with line ends LF or CRLF)"
        ]
    );
    assert!(reading.hiding.contains("a.yaml"));
    assert_eq!(only(&cni("targetVersion: v3.28.0").replace('\n', "\r\n")), Vec::<String>::new());
}
