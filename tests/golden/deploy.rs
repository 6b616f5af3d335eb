//! What is deployed is what the binary prints, and every overlay of it is hardened.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

/// Overlays and the base they stand on.
const RENDERED: [&str; 5] =
    ["base", "overlays/flannel", "overlays/high-availability", "overlays/monitoring", "overlays/node-files"];

fn deploy(path: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "deploy", path].iter().collect()
}

/// Documents that the binary prints.
fn printed(args: &[&str]) -> Vec<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_trunkline")).arg("manifests").args(args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.split("---\n").skip(1).map(str::to_owned).collect()
}

#[track_caller]
fn is_published(path: &str, documents: &[String]) {
    let text = documents.iter().flat_map(|document| ["---\n", document.as_str()]).collect::<String>();
    let path = deploy(path);
    if fs::read_to_string(&path).unwrap_or_default() == text {
        return;
    }
    assert!(
        std::env::var_os("UPDATE_GENERATED").is_some(),
        "{} is out of date; run the tests with UPDATE_GENERATED=1",
        path.display()
    );
    fs::write(&path, text).unwrap();
}

#[test]
fn the_published_rights_and_policies_are_what_the_binary_prints() {
    is_published("policy/trunkline.yaml", &printed(&["policy"]));
    // Objects of a namespace that few clusters have stand apart: without it they could not be applied.
    let of = |document: &String, namespace| document.contains(&format!("\n  namespace: {namespace}\n"));
    let rbac = printed(&["rbac"]);
    let (flannel, rest): (Vec<_>, Vec<_>) =
        rbac.into_iter().partition(|document| of(document, "kube-flannel"));
    is_published("rbac/kube-flannel/trunkline.yaml", &flannel);
    // Only the operator, which is refused, makes this namespace.
    let everywhere: Vec<_> = rest.into_iter().filter(|document| !of(document, "calico-system")).collect();
    is_published("rbac/trunkline.yaml", &everywhere);
}

#[test]
fn one_daemon_set_can_be_named_and_an_unknown_profile_is_wrong_usage() {
    let one = printed(&["rbac", "--daemon-set", "net/agent-x", "--namespace", "ops"]).concat();
    assert!(
        one.contains("- agent-x\n") && one.contains("namespace: net\n") && one.contains("namespace: ops\n")
    );
    assert!(!one.contains("calico") && !one.contains("flannel"), "{one}");
    let wrong = Command::new(env!("CARGO_BIN_EXE_trunkline"))
        .args(["manifests", "--provider", "calicoo"])
        .output()
        .unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    let said = String::from_utf8(wrong.stderr).unwrap();
    assert_eq!(said, "error: there is no profile calicoo; did you mean calico?\n");
}

/// What `kubectl kustomize` makes of a folder below `deploy`; `None` where there is no kubectl.
fn rendered(folder: &str) -> Option<Vec<Value>> {
    kustomized(&deploy(folder))
}

fn kustomized(path: &Path) -> Option<Vec<Value>> {
    let folder = path.display();
    let output = match Command::new("kubectl").arg("kustomize").arg(path).output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("left out: there is no kubectl to render {folder} with");
            return None;
        }
        output => output.unwrap(),
    };
    assert!(output.status.success(), "{folder}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let documents = text.split("\n---\n").map(|document| serde_yaml::from_str(document).unwrap());
    Some(documents.collect())
}

fn find<'o>(objects: &'o [Value], kind: &str, name: &str) -> &'o Value {
    let found = objects.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("no {kind} {name}"))
}

#[test]
fn every_overlay_renders_one_hardened_deployment() {
    for folder in RENDERED {
        let Some(objects) = rendered(folder) else { return };
        let deployment = find(&objects, "Deployment", "trunkline");
        let pod = &deployment["spec"]["template"]["spec"];
        let [container] = pod["containers"].as_array().unwrap().as_slice() else { panic!("{folder}: {pod}") };
        for (at, field, expected) in [
            (pod, "/securityContext/runAsNonRoot", Value::from(true)),
            (pod, "/securityContext/runAsUser", Value::from(65532)),
            (pod, "/securityContext/seccompProfile/type", Value::from("RuntimeDefault")),
            (pod, "/serviceAccountName", Value::from("trunkline")),
            (pod, "/automountServiceAccountToken", Value::from(true)),
            (pod, "/priorityClassName", Value::from("system-cluster-critical")),
            (pod, "/hostNetwork", Value::from(true)),
            (pod, "/dnsPolicy", Value::from("Default")),
            (container, "/securityContext/allowPrivilegeEscalation", Value::from(false)),
            (container, "/securityContext/readOnlyRootFilesystem", Value::from(true)),
            (container, "/securityContext/capabilities/drop/0", Value::from("ALL")),
        ] {
            assert_eq!(at.pointer(field), Some(&expected), "{folder}: {field}");
        }
        for absent in ["/securityContext/capabilities/add", "/securityContext/privileged"] {
            assert_eq!(container.pointer(absent), None, "{folder}: {absent}");
        }
        assert_eq!((&pod["hostPID"], &pod["hostIPC"]), (&Value::Null, &Value::Null), "{folder}");
        let tag = container["image"].as_str().unwrap().rsplit_once(':').unwrap().1;
        assert_eq!(tag, env!("CARGO_PKG_VERSION"), "{folder}: the image is that of this version");
        let account = find(&objects, "ServiceAccount", "trunkline");
        assert_eq!(account["automountServiceAccountToken"], false, "{folder}");
    }
}

#[test]
fn only_the_overlay_for_node_files_reads_the_node() {
    for folder in RENDERED {
        let Some(objects) = rendered(folder) else { return };
        let pod = &find(&objects, "Deployment", "trunkline")["spec"]["template"]["spec"];
        let volumes = pod["volumes"].as_array().unwrap();
        let paths: Vec<&str> =
            volumes.iter().filter_map(|volume| volume["hostPath"]["path"].as_str()).collect();
        let expected: &[&str] =
            if folder == "overlays/node-files" { &["/opt/cni/bin", "/etc/cni/net.d"] } else { &[] };
        assert_eq!(paths, expected, "{folder}");
        let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
        for mount in mounts.iter().filter(|mount| mount["mountPath"] != "/var/lib/trunkline") {
            assert_eq!(mount["readOnly"], true, "{folder}: {mount}");
        }
    }
}

#[test]
fn every_overlay_is_of_one_name_in_one_namespace_and_grants_no_wildcard() {
    for folder in RENDERED {
        let Some(objects) = rendered(folder) else { return };
        for object in &objects {
            let (kind, metadata) = (&object["kind"], &object["metadata"]);
            let name = metadata["name"].as_str().unwrap();
            if kind == "CustomResourceDefinition" {
                continue;
            }
            assert!(name == "trunkline" || name.starts_with("trunkline-"), "{folder}: {kind} {name}");
            let namespace = metadata["namespace"].as_str();
            let agents = folder == "overlays/flannel" && namespace == Some("kube-flannel");
            let events = name == "trunkline-events" && namespace == Some("default");
            assert!(
                matches!(namespace, None | Some("kube-system")) || agents || events,
                "{folder}: {kind} {name} in {namespace:?}"
            );
            assert!(!object["rules"].to_string().contains('*'), "{folder}: {kind} {name}");
        }
    }
}

#[test]
fn the_configuration_to_start_from_is_one_that_the_daemon_takes() {
    let text = fs::read_to_string(deploy("daemon/config.yaml")).unwrap();
    let config = trunkline::config::Config::parse(&text, "kube-system", "uid").unwrap();
    let Some(objects) = rendered("base") else { return };
    let pod = &find(&objects, "Deployment", "trunkline")["spec"]["template"]["spec"];
    let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
    for repository in &config.repositories {
        assert!(mounts.iter().any(|mount| mount["mountPath"].as_str() == repository.credentials.as_deref()));
    }
}

#[test]
fn the_folder_of_the_readme_renders_with_its_own_configuration_and_image() {
    let readme = fs::read_to_string(deploy("README.md")).unwrap();
    let written = readme.split("```yaml\n").nth(1).unwrap().split("   ```").next().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let own = dir.path().join("cluster");
    fs::create_dir(&own).unwrap();
    symlink(deploy(""), dir.path().join("deploy")).unwrap();
    fs::write(own.join("config.yaml"), "cluster: own\n").unwrap();
    let lines: Vec<&str> = written.lines().map(|line| line.strip_prefix("   ").unwrap_or(line)).collect();
    fs::write(own.join("kustomization.yaml"), lines.join("\n")).unwrap();
    let Some(objects) = kustomized(&own) else { return };
    let spec = &find(&objects, "Deployment", "trunkline")["spec"];
    assert_eq!(spec["replicas"], 3);
    let pod = &spec["template"]["spec"];
    let image = format!("registry.internal/platform/trunkline:{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(pod["containers"][0]["image"], image);
    let config = find(&objects, "ConfigMap", pod["volumes"][0]["configMap"]["name"].as_str().unwrap());
    assert_eq!(config["data"]["config.yaml"], "cluster: own\n");
}

#[test]
fn three_replicas_stand_on_three_nodes() {
    let Some(objects) = rendered("overlays/high-availability") else { return };
    let spec = &find(&objects, "Deployment", "trunkline")["spec"];
    assert_eq!(spec["replicas"], 3);
    let spread = spec["template"]["spec"]["topologySpreadConstraints"].as_array().unwrap();
    let kinds: BTreeMap<&str, &str> = spread
        .iter()
        .map(|one| (one["topologyKey"].as_str().unwrap(), one["whenUnsatisfiable"].as_str().unwrap()))
        .collect();
    assert_eq!(kinds["kubernetes.io/hostname"], "DoNotSchedule");
}

/// Names of metrics that a text uses; the parts of a histogram count as the histogram.
fn metrics(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let ours = |word: &&str| word.starts_with("trunkline_") || word.starts_with("service_operator_");
    words.filter(ours).map(|word| word.strip_suffix("_bucket").unwrap_or(word)).collect()
}

#[test]
fn alerts_and_dashboard_use_only_metrics_that_are_served() {
    let read = |name: &str| fs::read_to_string(deploy("monitoring").join(name)).unwrap();
    let (rules, dashboard, reference) = (read("rules.yaml"), read("dashboard.json"), read("METRICS.md"));
    let rows = reference.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    let served: BTreeSet<&str> = rows.map(|(name, _)| name).collect();
    for (name, text) in [("rules.yaml", &rules), ("dashboard.json", &dashboard)] {
        let used = metrics(text);
        assert!(used.len() > 8, "{name} uses {used:?}");
        let unknown: Vec<_> = used.difference(&served).collect();
        assert!(unknown.is_empty(), "{name} uses {unknown:?}, which METRICS.md does not have");
    }
    serde_json::from_str::<Value>(&dashboard).unwrap();
}

#[test]
fn the_alerts_that_others_rely_on_are_there_word_for_word() {
    let text = fs::read_to_string(deploy("monitoring/rules.yaml")).unwrap();
    let rules: Value = serde_yaml::from_str(&text).unwrap();
    let groups = rules["spec"]["groups"].as_array().unwrap();
    let rules: Vec<&Value> = groups.iter().flat_map(|group| group["rules"].as_array().unwrap()).collect();
    for (alert, expression, pending, severity) in [
        ("ServiceUpgradeFailed", "service_operator_upgrade_phase{phase=\"failed\"} > 0", "1m", "critical"),
        ("ServiceCanaryUnhealthy", "rate(service_operator_canary_errors_total[5m]) > 0.05", "2m", "warning"),
    ] {
        let rule = rules.iter().find(|rule| rule["alert"] == alert).unwrap();
        assert_eq!((&rule["expr"], &rule["for"]), (&Value::from(expression), &Value::from(pending)));
        assert_eq!(rule["labels"]["severity"], severity);
    }
}
