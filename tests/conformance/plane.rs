//! The control plane under test, and requests as they are on the wire.

use std::{future::Future, time::Duration};

use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use http::{Method, Request};
use jiff::Timestamp;
use kube::{Client, core::response::Status};
use serde_json::{Value, json};
use trunkline::{
    clock::{Clock, later},
    sim::{
        api::EmbeddedCluster,
        model::{Model, Timings},
    },
};

/// Paths of collections.
pub(crate) const NODES: &str = "/api/v1/nodes";
pub(crate) const PODS: &str = "/api/v1/namespaces/kube-system/pods";
pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub(crate) const DAEMON_SETS: &str = "/apis/apps/v1/namespaces/kube-system/daemonsets";
pub(crate) const REVISIONS: &str = "/apis/apps/v1/namespaces/kube-system/controllerrevisions";
pub(crate) const CLAIMS: &str = "/apis/cni.example.com/v1/cniupgrades";

/// Media types of patches.
pub(crate) const JSON_PATCH: &str = "application/json-patch+json";
pub(crate) const MERGE_PATCH: &str = "application/merge-patch+json";
pub(crate) const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";

/// A control plane with whatever moves nodes and pods behind it.
pub(crate) struct Plane {
    pub(crate) client: Client,
    pub(crate) cluster: EmbeddedCluster,
    clock: Clock,
}

/// A request that was answered with a failure.
pub(crate) type Answer = Result<Value, Status>;

impl Plane {
    /// An embedded cluster whose world moves by itself.
    pub(crate) fn embedded() -> Self {
        let base: Timestamp = "2026-03-01T10:00:00Z".parse().unwrap();
        let clock = Clock::embedded(base);
        let cluster = EmbeddedCluster::new(Model::new(7, base, Timings::default()), clock);
        let running = cluster.clone();
        tokio::spawn(async move { running.run().await });
        Self { client: cluster.client(), cluster, clock }
    }

    /// One request; `kind` is its `Content-Type`.
    pub(crate) async fn ask(&self, method: Method, path: &str, kind: &str, body: Option<&Value>) -> Answer {
        let bytes = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, kind)
            .header(http::header::USER_AGENT, "suite/1")
            .body(bytes)
            .unwrap();
        match self.client.request::<Value>(request).await {
            Ok(answer) => Ok(answer),
            Err(kube::Error::Api(status)) => Err(*status),
            Err(other) => panic!("{path}: {other}"),
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask(Method::GET, path, "application/json", None).await
    }

    pub(crate) async fn create(&self, path: &str, body: &Value) -> Answer {
        self.ask(Method::POST, path, "application/json", Some(body)).await
    }

    pub(crate) async fn replace(&self, path: &str, body: &Value) -> Answer {
        self.ask(Method::PUT, path, "application/json", Some(body)).await
    }

    pub(crate) async fn patch(&self, path: &str, kind: &str, body: &Value) -> Answer {
        self.ask(Method::PATCH, path, kind, Some(body)).await
    }

    pub(crate) async fn delete(&self, path: &str, options: &Value) -> Answer {
        self.ask(Method::DELETE, path, "application/json", Some(options)).await
    }

    /// Lines of a watch.
    pub(crate) async fn watch(&self, path: &str) -> BoxStream<'static, std::io::Result<Value>> {
        use futures::AsyncBufReadExt as _;
        let request = Request::get(path).body(Vec::new()).unwrap();
        let lines = self.client.request_stream(request).await.unwrap().lines();
        lines.map_ok(|line| serde_json::from_str(&line).unwrap()).boxed()
    }

    /// The first value that the look gives within ten minutes.
    pub(crate) async fn until<T, F: Future<Output = Option<T>>>(
        &self,
        what: &str,
        look: impl Fn() -> F,
    ) -> T {
        for _ in 0..1_200 {
            if let Some(found) = look().await {
                return found;
            }
            self.wait(Duration::from_millis(500)).await;
        }
        panic!("not within ten minutes: {what}");
    }

    /// Time passes.
    pub(crate) async fn wait(&self, by: Duration) {
        self.clock.sleep_until(later(self.clock.now(), by)).await;
    }
}

pub(crate) fn config_map(name: &str, value: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "key": value } })
}

pub(crate) fn claim(name: &str) -> Value {
    json!({
        "apiVersion": "cni.example.com/v1",
        "kind": "CNIUpgrade",
        "metadata": { "name": name },
        "spec": { "targetVersion": "v3.28.0" },
    })
}

/// The text at a pointer.
pub(crate) fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_else(|| panic!("no text at {pointer}: {object}"))
}

/// Code and reason of a failure.
pub(crate) fn refusal(answer: Answer) -> (u16, String) {
    let status = answer.unwrap_err();
    (status.code, status.reason)
}
