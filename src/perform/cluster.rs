//! Requests to the API server, each with a precondition and a deadline, and what their answers mean.

use http::Request as HttpRequest;
use jiff::Timestamp;
use json_patch::{
    AddOperation, PatchOperation, RemoveOperation, ReplaceOperation, TestOperation, jsonptr::PointerBuf,
};
use kube::{
    Client,
    api::{DeleteParams, GetParams, Patch, PatchParams, PostParams, Preconditions},
    core::{Request, request},
};
use serde_json::Value;

use crate::{
    api::names::{FIELD_MANAGER, Rv, Uid},
    clock::Clock,
    observe::{address, project},
    rollout::effect::{Rejection, RejectionKind},
    world::{ObjectId, Observation},
};

/// Most characters kept of a server's text.
const TEXT: usize = 1000;

/// The API server, as one effect may use it.
pub(super) struct Cluster<'a> {
    pub(super) kube: &'a Client,
    pub(super) clock: Clock,
    /// After it no answer is waited for.
    pub(super) until: Timestamp,
    /// Namespace of our stores.
    pub(super) namespace: &'a str,
}

/// An effect that did not fail.
#[derive(Debug)]
pub(super) enum Ended {
    /// It was done; what the answer shows.
    Done(Vec<Observation>),
    /// Nothing was left to do.
    Moot(Vec<Observation>),
}

/// An effect that failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server said no.
    No(Rejection),
    /// Nobody knows.
    Unknown(String),
}

pub(super) type Performed = Result<Ended, Failure>;

impl Failure {
    pub(super) fn no(kind: RejectionKind, message: &str) -> Self {
        Self::No(Rejection { kind, message: bounded(message) })
    }
}

pub(super) fn bounded(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(TEXT).collect()
}

/// An object as it is now, every field kept.
pub(super) struct Live {
    pub(super) value: Value,
    text: String,
}

impl Live {
    fn text_at(&self, pointer: &str) -> &str {
        self.value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn has(&self, pointer: &str) -> bool {
        self.value.pointer(pointer).is_some()
    }

    /// Whether it is the very object and version that the effect was decided on.
    pub(super) fn expect(&self, uid: &Uid, rv: Rv) -> Result<(), Failure> {
        let (is, version) = (self.text_at("/metadata/uid"), self.text_at("/metadata/resourceVersion"));
        if is == uid.as_str() && version == rv.to_string() {
            return Ok(());
        }
        Err(Failure::no(
            RejectionKind::Conflict,
            &format!("the object is {is} at version {version}, expected {uid} at {rv}"),
        ))
    }
}

/// A JSON patch that applies only to one version of one object.
#[derive(Debug)]
pub(super) struct Guarded {
    uid: Uid,
    rv: Rv,
    operations: Vec<PatchOperation>,
}

impl Guarded {
    pub(super) fn new(uid: &Uid, rv: Rv) -> Self {
        let patch = Self { uid: uid.clone(), rv, operations: Vec::new() };
        patch
            .test(&["metadata", "uid"], uid.as_str().into())
            .test(&["metadata", "resourceVersion"], rv.to_string().into())
    }

    pub(super) fn test(mut self, path: &[&str], value: Value) -> Self {
        let path = PointerBuf::from_tokens(path.iter().copied());
        self.operations.push(PatchOperation::Test(TestOperation { path, value }));
        self
    }

    pub(super) fn add(mut self, path: &[&str], value: Value) -> Self {
        let path = PointerBuf::from_tokens(path.iter().copied());
        self.operations.push(PatchOperation::Add(AddOperation { path, value }));
        self
    }

    pub(super) fn replace(mut self, path: &[&str], value: Value) -> Self {
        let path = PointerBuf::from_tokens(path.iter().copied());
        self.operations.push(PatchOperation::Replace(ReplaceOperation { path, value }));
        self
    }

    pub(super) fn remove(mut self, path: &[&str]) -> Self {
        let path = PointerBuf::from_tokens(path.iter().copied());
        self.operations.push(PatchOperation::Remove(RemoveOperation { path }));
        self
    }
}

impl Cluster<'_> {
    /// Reads an object.
    pub(super) async fn read(&self, id: &ObjectId) -> Result<Live, Failure> {
        let (path, name) = locate(id)?;
        let text = self.send(Request::new(path).get(name, &GetParams::default())).await?;
        let value = serde_json::from_str(&text).map_err(|error| Failure::Unknown(error.to_string()))?;
        Ok(Live { value, text })
    }

    /// What is seen of an object now; nothing if it cannot be read.
    pub(super) async fn look(&self, id: &ObjectId, uid: Option<&Uid>) -> Vec<Observation> {
        match (self.read(id).await, uid) {
            (Ok(live), _) => answered(id, &live.text),
            (Err(Failure::No(Rejection { kind: RejectionKind::NotFound, .. })), Some(uid)) => {
                vec![Observation::AnsweredGone(id.clone(), uid.clone())]
            }
            (Err(_), _) => Vec::new(),
        }
    }

    /// Creates an object.
    pub(super) async fn create(&self, id: &ObjectId, body: &Value) -> Performed {
        let (path, _) = locate(id)?;
        let text = self.send(Request::new(path).create(&post(), body.to_string().into_bytes())).await?;
        Ok(Ended::Done(answered(id, &text)))
    }

    /// Creates an Event; one of that name has told the same.
    pub(super) async fn record(&self, namespace: &str, body: &Value) -> Performed {
        let path = address::of_events(namespace)
            .map_err(|error| Failure::no(RejectionKind::Invalid, &error.to_string()))?;
        match self.send(Request::new(path).create(&post(), body.to_string().into_bytes())).await {
            Ok(_) => Ok(Ended::Done(Vec::new())),
            Err(Failure::No(no)) if no.kind == RejectionKind::Conflict => Ok(Ended::Moot(Vec::new())),
            Err(failure) => Err(failure),
        }
    }

    /// Replaces an object; the body carries the version.
    pub(super) async fn replace(&self, id: &ObjectId, body: &Value) -> Performed {
        let (path, name) = locate(id)?;
        let text =
            self.send(Request::new(path).replace(name, &post(), body.to_string().into_bytes())).await?;
        Ok(Ended::Done(answered(id, &text)))
    }

    /// Replaces the status of an object; the body carries the version.
    pub(super) async fn replace_status(&self, id: &ObjectId, body: &Value) -> Performed {
        let (path, name) = locate(id)?;
        let body = body.to_string().into_bytes();
        let text = self.send(Request::new(path).replace_subresource("status", name, &post(), body)).await?;
        Ok(Ended::Done(answered(id, &text)))
    }

    /// Applies a patch.
    pub(super) async fn patch(&self, id: &ObjectId, patch: Guarded) -> Performed {
        let text = self.send_patch(id, patch, false).await?;
        Ok(Ended::Done(answered(id, &text)))
    }

    /// Has the server check a patch without applying it; the answer shows nothing that is.
    pub(super) async fn dry_run(&self, id: &ObjectId, patch: Guarded) -> Performed {
        self.send_patch(id, patch, true).await?;
        Ok(Ended::Done(Vec::new()))
    }

    async fn send_patch(&self, id: &ObjectId, patch: Guarded, dry_run: bool) -> Result<String, Failure> {
        let (path, name) = locate(id)?;
        let params = PatchParams { dry_run, ..PatchParams::apply(FIELD_MANAGER) };
        let body: Patch<()> = Patch::Json(json_patch::Patch(patch.operations));
        match self.send(Request::new(path).patch(name, &params, &body)).await {
            // A failed `test` and a template that cannot pass are both 422: look which it is.
            Err(Failure::No(no)) if no.kind == RejectionKind::Invalid => {
                self.read(id).await?.expect(&patch.uid, patch.rv)?;
                Err(Failure::No(no))
            }
            other => other,
        }
    }

    /// Deletes an object if it is that one.
    pub(super) async fn delete(&self, id: &ObjectId, uid: &Uid) -> Performed {
        let (path, name) = locate(id)?;
        let preconditions = Preconditions { uid: Some(uid.to_string()), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let gone = || vec![Observation::AnsweredGone(id.clone(), uid.clone())];
        match self.send(Request::new(path).delete(name, &params)).await {
            Ok(text) if is_status(&text) => Ok(Ended::Done(gone())),
            Ok(text) => Ok(Ended::Done(answered(id, &text))),
            Err(Failure::No(no)) if no.kind == RejectionKind::NotFound => Ok(Ended::Moot(gone())),
            Err(failure) => Err(failure),
        }
    }

    async fn send(&self, request: Result<HttpRequest<Vec<u8>>, request::Error>) -> Result<String, Failure> {
        let request = request.map_err(|error| Failure::no(RejectionKind::Invalid, &error.to_string()))?;
        match self.clock.before(self.until, self.kube.request_text(request)).await {
            Some(Ok(text)) => Ok(text),
            Some(Err(error)) => Err(meaning(&error)),
            None => Err(Failure::Unknown("no answer before the deadline".to_owned())),
        }
    }
}

fn post() -> PostParams {
    PostParams { dry_run: false, field_manager: Some(FIELD_MANAGER.to_owned()) }
}

fn locate(id: &ObjectId) -> Result<(String, &str), Failure> {
    address::of_object(id).map_err(|error| Failure::no(RejectionKind::Invalid, &error.to_string()))
}

/// A write's answer is an observation like a watch event.
pub(super) fn answered(id: &ObjectId, text: &str) -> Vec<Observation> {
    match project(address::feed_of(id), text) {
        Ok(object) => object.map(|object| Observation::Answered(Box::new(object))).into_iter().collect(),
        Err(error) => {
            tracing::warn!(%error, "an answer of the API server cannot be read");
            Vec::new()
        }
    }
}

fn is_status(text: &str) -> bool {
    #[derive(serde::Deserialize)]
    struct Kind {
        kind: String,
    }
    serde_json::from_str::<Kind>(text).is_ok_and(|answer| answer.kind == "Status")
}

fn meaning(error: &kube::Error) -> Failure {
    let kube::Error::Api(status) = error else { return Failure::Unknown(bounded(&error.to_string())) };
    let kind = match status.code {
        409 => RejectionKind::Conflict,
        404 => RejectionKind::NotFound,
        401 | 403 => RejectionKind::Forbidden,
        // A gateway's time-out says nothing about the write behind it.
        504 => return Failure::Unknown(bounded(&status.message)),
        429 | 500.. => RejectionKind::Unavailable,
        _ => RejectionKind::Invalid,
    };
    Failure::no(kind, &status.message)
}
