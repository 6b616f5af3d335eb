//! The control plane under test, and requests as they are on the wire.

use std::{future::Future, time::Duration};

use futures::{StreamExt, TryStreamExt, future::BoxFuture, stream::BoxStream};
use http::{Method, Request};
use kube::{Client, core::response::Status};
use serde_json::{Value, json};

/// Paths of collections that have no namespace.
pub(crate) const NAMESPACES: &str = "/api/v1/namespaces";
pub(crate) const NODES: &str = "/api/v1/nodes";
pub(crate) const CLAIMS: &str = "/apis/cni.example.com/v1/cniupgrades";
pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Media types of patches.
pub(crate) const JSON_PATCH: &str = "application/json-patch+json";
pub(crate) const MERGE_PATCH: &str = "application/merge-patch+json";
pub(crate) const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";

/// An image that ends at once wherever it runs.
pub(crate) const CRASHING: &str = "example/node:crashes";

/// What differs between the servers that a case can run against.
pub(crate) trait Server: Send + Sync {
    /// Lets time pass.
    fn sleep(&self, by: Duration) -> BoxFuture<'_, ()>;

    /// Time after which nothing more comes of what was done.
    fn quiet(&self) -> Duration;

    /// Forgets all changes before now, as etcd's compaction and a restart of the API server do, and breaks all watches.
    fn forget(&self) -> BoxFuture<'_, ()>;

    /// Has the controllers stand still for so long.
    fn stall(&self, time: Duration);
}

/// A control plane with whatever moves nodes and pods behind it, as one case uses it: with a namespace and names of
/// its own.
pub(crate) struct Plane {
    pub(crate) client: Client,
    /// The namespace, and the start of every other name.
    pub(crate) scope: String,
    server: Box<dyn Server>,
}

/// An answer, or the failure that a request was answered with.
pub(crate) type Answer = Result<Value, Status>;

impl Plane {
    /// Makes the namespace of a case.
    pub(crate) async fn new(client: Client, scope: &str, server: Box<dyn Server>) -> Self {
        let plane = Self { client, scope: scope.to_owned(), server };
        plane.create(NAMESPACES, &json!({ "metadata": { "name": scope } })).await.unwrap();
        plane
    }

    /// A name that no other case has.
    pub(crate) fn name(&self, name: &str) -> String {
        format!("{}-{name}", self.scope)
    }

    /// Path of a collection in the namespace of the case; `api` is `api/v1` or `apis/<group>/<version>`.
    pub(crate) fn collection(&self, api: &str, plural: &str) -> String {
        format!("/{api}/namespaces/{}/{plural}", self.scope)
    }

    pub(crate) fn config_maps(&self) -> String {
        self.collection("api/v1", "configmaps")
    }

    pub(crate) fn config_map(&self, name: &str) -> String {
        format!("{}/{name}", self.config_maps())
    }

    pub(crate) fn claim(&self, name: &str) -> String {
        format!("{CLAIMS}/{}", self.name(name))
    }

    /// One request; `kind` is its `Content-Type`.
    pub(crate) async fn ask(&self, method: Method, path: &str, kind: &str, body: Option<&Value>) -> Answer {
        let bytes = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        self.send(method, path, kind, bytes).await
    }

    /// One request with any body.
    pub(crate) async fn send(&self, method: Method, path: &str, kind: &str, body: Vec<u8>) -> Answer {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, kind)
            .header(http::header::USER_AGENT, "suite/1")
            .body(body)
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

    /// The first value that the look gives within a minute.
    pub(crate) async fn until<T, F: Future<Output = Option<T>>>(
        &self,
        what: &str,
        look: impl Fn() -> F,
    ) -> T {
        const STEP: Duration = Duration::from_millis(100);
        for _ in 0..600 {
            if let Some(found) = look().await {
                return found;
            }
            self.server.sleep(STEP).await;
        }
        panic!("not within a minute: {what}");
    }

    /// Time passes.
    pub(crate) async fn wait(&self, by: Duration) {
        self.server.sleep(by).await;
    }

    /// So much time passes that nothing more comes of what was done.
    pub(crate) async fn quiet(&self) {
        self.server.sleep(self.server.quiet()).await;
    }

    /// The controllers stand still for so long.
    pub(crate) fn stall(&self, time: Duration) {
        self.server.stall(time);
    }

    /// The server forgets all changes before now, and every watch breaks.
    pub(crate) async fn forget(&self) {
        self.server.forget().await;
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

/// The cause of a failure by its field: reason and message.
pub(crate) fn cause(status: &Status, field: &str) -> (String, String) {
    let causes = &status.details.as_ref().unwrap().causes;
    let found = causes.iter().find(|cause| cause.field == field);
    let found = found.unwrap_or_else(|| panic!("no cause at {field}: {status:?}"));
    (found.reason.clone(), found.message.clone())
}

/// Code and reason of a failure.
pub(crate) fn refusal(answer: Answer) -> (u16, String) {
    let status = answer.unwrap_err();
    (status.code, status.reason)
}
