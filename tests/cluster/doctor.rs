//! `trunkline doctor` against a real API server, as an administrator and as the account of the daemon.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use http::Method;
use serde_json::{Value, json};

use super::{Case, deploy::Account, plane::User, running, scene::Scene, server::GitServer, story::config};

pub(crate) const CASES: &[Case] =
    &[("doctor::the_account_is_well_until_a_right_is_taken_away", |programs| running(examined(programs)))];

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const ROLE: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/roles/trunkline-agents";

/// Exit code and findings, as check, verdict and message.
fn doctor(dir: &Path, kubeconfig: &str, args: &[&str]) -> (i32, Vec<[String; 3]>) {
    fs::write(dir.join("doctor.kubeconfig"), kubeconfig).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_trunkline"))
        .args(["doctor", "--allow-local", "--output", "json", "--config", "doctor.yaml"])
        .args(["--kubeconfig", "doctor.kubeconfig"])
        .args(args)
        .env_clear()
        .env("HOME", dir)
        .current_dir(dir)
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    let text = |finding: &Value, key: &str| finding[key].as_str().unwrap().to_owned();
    let findings = report["findings"].as_array().unwrap();
    let findings = findings.iter().map(|of| ["check", "verdict", "message"].map(|key| text(of, key)));
    (output.status.code().unwrap(), findings.collect())
}

/// Checks that ended in one of these ways. A control plane that is built from its modules does not know its version.
fn ended<'f>(findings: &'f [[String; 3]], verdicts: &[&str]) -> Vec<&'f str> {
    let of = findings.iter().filter(|[_, verdict, _]| verdicts.contains(&verdict.as_str()));
    of.map(|[check, _, _]| check.as_str()).filter(|check| *check != "api server").collect()
}

async fn examined(programs: PathBuf) {
    let account = Account::new(Scene::new(&programs, 2, &[]).await).await;
    let (scene, git) = (&account.scene, GitServer::start());
    let dir = scene.plane.dir();
    git.repository().commit("main", &[("README.md", "# network\n")]);
    fs::write(dir.join("doctor.yaml"), config(&git.url(), &git.credentials())).unwrap();
    let lease = json!({
        "metadata": { "name": "trunkline" },
        "spec": {
            "holderIdentity": "trunkline-0",
            "leaseDurationSeconds": 3600,
            "renewTime": format!("{:.6}", jiff::Timestamp::now()),
        },
    });
    scene.ask(Method::POST, LEASES, &lease).await;

    let (code, findings) = doctor(dir, &account.kubeconfig, &[]);
    assert_eq!((code, ended(&findings, &["warning", "fault"])), (0, vec![]), "{findings:#?}");
    assert_eq!(ended(&findings, &["skipped"]), ["policies"], "{findings:#?}");
    // An administrator sees what the account may not, and asks for its rights in its name.
    let admin = scene.plane.kubeconfig(User::Admin, scene.plane.port());
    let (code, findings) = doctor(dir, &admin, &[]);
    assert_eq!(
        (code, ended(&findings, &["warning", "fault", "skipped"])),
        (0, vec!["account"]),
        "{findings:#?}"
    );
    let named = ["--as", "system:serviceaccount:kube-system:trunkline"];
    assert_eq!(doctor(dir, &admin, &named).0, 0);

    let rules = json!({ "rules": [{
        "apiGroups": ["apps"], "resources": ["daemonsets"], "resourceNames": ["calico-node"], "verbs": ["get"],
    }, { "apiGroups": [""], "resources": ["pods"], "verbs": ["delete", "get"] }] });
    scene.ask(Method::PATCH, ROLE, &rules).await;
    let told = async || {
        let (code, findings) = doctor(dir, &admin, &named);
        let faults = findings.iter().filter(|[_, verdict, _]| verdict == "fault");
        let faults: Vec<&str> = faults.map(|[_, _, message]| message.as_str()).collect();
        let wanted = "The account may not patch daemonsets.apps/calico-node in kube-system.";
        (code == 1 && faults == [wanted]).then_some(())
    };
    scene.until("the right is gone", 30, told).await;
}
