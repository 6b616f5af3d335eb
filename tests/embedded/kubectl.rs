//! The loopback server as `kubectl` and other processes use it.

use std::{
    io::{Read, Write},
    net::TcpStream,
    path::PathBuf,
    process::Command,
};

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{DeleteParams, ListParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use tempfile::TempDir;
use trunkline::{
    clock::Clock,
    sim::{
        api::{EmbeddedCluster, Fault, ServedCluster, route::Verb},
        model::cluster::ClusterSpec,
    },
};

use crate::conformance::plane::{CLAIMS, claim};

struct Lab {
    cluster: EmbeddedCluster,
    served: ServedCluster,
    dir: TempDir,
}

impl Lab {
    /// Ten nodes with agents, served on a port.
    fn new() -> Self {
        let base = "2026-03-01T10:00:00Z".parse().unwrap();
        let cluster = {
            let model = ClusterSpec::new(7, 10, base).build();
            let clock = Clock::embedded(model.now());
            EmbeddedCluster::new(model, clock)
        };
        let running = cluster.clone();
        tokio::spawn(async move { running.run().await });
        let (served, dir) = (cluster.serve(0).unwrap(), TempDir::new().unwrap());
        std::fs::write(dir.path().join("kubeconfig"), served.kubeconfig()).unwrap();
        Self { cluster, served, dir }
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// What `kubectl` says; it must end well or badly as `good` says.
    async fn run(&self, good: bool, arguments: &str) -> String {
        let mut command = Command::new("kubectl");
        command
            .env("KUBECONFIG", self.dir.path().join("kubeconfig"))
            .env("HOME", self.dir.path())
            .env("EDITOR", "sed -i s/v3.28.0/v3.29.0/")
            .args(arguments.split_whitespace());
        let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), good, "kubectl {arguments}: {text}");
        text.into_owned()
    }
}

fn has_kubectl() -> bool {
    let there = Command::new("kubectl").args(["version", "--client"]).output().is_ok();
    if !there {
        eprintln!("not run: there is no kubectl on this machine");
    }
    there
}

#[tokio::test]
async fn kubectl_reads_and_writes_a_served_cluster() {
    if !has_kubectl() {
        return;
    }
    let lab = Lab::new();
    let manifest = lab.file("claim.json", &claim("calico").to_string());
    let manifest = manifest.display();
    assert!(lab.run(true, "version").await.contains("Server Version: v1.33.0"));
    assert!(lab.run(true, "api-resources").await.contains("cniup"));
    assert_eq!(lab.run(true, "get nodes --no-headers").await.lines().count(), 10);
    assert!(lab.run(true, "get pods -A -o yaml").await.contains("controller-revision-hash"));
    assert!(lab.run(true, "get ds -A").await.contains("calico-node"));

    lab.run(true, &format!("apply -f {manifest}")).await;
    assert!(lab.run(true, "get cniup calico -o yaml").await.contains("maxParallel: 1"));
    let status = r#"{"status":{"phase":"Pending","targetVersion":"v3.27.9"}}"#;
    lab.run(true, &format!("patch cniup calico --subresource=status --type=merge -p {status}")).await;
    assert!(lab.run(true, "get cniup").await.contains("v3.27.9"), "the target of the attempt");
    lab.run(true, "annotate cniup calico trunkline.dev/hold=looking").await;
    assert!(
        lab.run(true, "get cniup calico -o yaml --show-managed-fields").await.contains("kubectl-annotate")
    );
    lab.run(true, "edit cniup calico").await;
    assert!(lab.run(true, "get cniup calico -o yaml").await.contains("targetVersion: v3.29.0"));
    let slip = claim("other").to_string().replace("\"v3.28.0\"", "\"v3.28.0\",\"maxParalel\":3");
    let slip = lab.file("slip.json", &slip);
    let told = lab.run(false, &format!("create -f {}", slip.display())).await;
    assert!(told.contains(r#"unknown field "spec.maxParalel""#), "{told}");
    let store = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","namespace":"kube-system"}}"#;
    lab.run(true, &format!("create -f {}", lab.file("store.json", store).display())).await;
    assert!(lab.run(true, "explain cniup.spec.canary").await.contains("healthThreshold"));
    let patch = r#"patch cniup calico --type=merge -p {"spec":{"maxParallel":0}}"#;
    assert!(lab.run(false, patch).await.contains("spec.maxParallel"));
    lab.run(true, "annotate node --all seen=yes").await;
    lab.run(true, "delete cniup calico").await;
    assert!(lab.run(false, "get cniup calico").await.contains("NotFound"));
    assert!(lab.run(true, "-n kube-system delete pod --all --wait=false").await.contains("deleted"));
    lab.run(true, "-n kube-system describe ds calico-node").await;
}

#[tokio::test]
async fn a_request_outside_of_the_secret_path_is_unauthorized() {
    let lab = Lab::new();
    let ask = |path: String| {
        let mut stream = TcpStream::connect(lab.served.addr()).unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let secret = lab.served.url().rsplit('/').next().unwrap().to_owned();
    for path in [CLAIMS.to_owned(), format!("/x{secret}{CLAIMS}"), format!("/{secret}")] {
        assert!(ask(path).starts_with("HTTP/1.1 401"));
    }
    assert!(lab.cluster.faults().log().is_empty());
    assert!(ask(format!("/{secret}{CLAIMS}")).starts_with("HTTP/1.1 200"));
    assert!(!format!("{:?}", lab.served).contains(&secret));
}

#[tokio::test]
async fn the_client_library_reads_the_kubeconfig_and_a_broken_reply_is_an_error() {
    let lab = Lab::new();
    let kubeconfig = Kubeconfig::from_yaml(&lab.served.kubeconfig()).unwrap();
    let options = KubeConfigOptions::default();
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    config.default_retry = false;
    let client = kube::Client::try_from(config).unwrap();
    let nodes: Api<Node> = Api::all(client);
    assert_eq!(nodes.list(&ListParams::default()).await.unwrap().items.len(), 10);
    lab.cluster.faults().once(Fault::LostReply, |asked| asked.is(Verb::Delete, "Node"));
    let lost = nodes.delete("node-003", &DeleteParams::default()).await;
    assert!(!matches!(lost, Ok(_) | Err(kube::Error::Api(_))));
    assert_eq!(nodes.list(&ListParams::default()).await.unwrap().items.len(), 9);
}

#[tokio::test(start_paused = true)]
async fn a_served_cluster_answers_at_the_paused_time() {
    let lab = Lab::new();
    let clock = lab.cluster.now();
    let mut stream = TcpStream::connect(lab.served.addr()).unwrap();
    let secret = lab.served.url().rsplit('/').next().unwrap().to_owned();
    let head = format!("GET /{secret}{CLAIMS} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream.read_to_string(&mut String::new()).unwrap();
    let log = lab.cluster.faults().log();
    assert_eq!((log[0].asked.at, lab.cluster.now()), (clock, clock));
}
