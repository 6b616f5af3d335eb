//! The Lease as the API server has it, written as client-go writes it.

use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::api::names::{LEASE, MANAGED_BY};

/// A Lease; whatever is not ours stays as it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Lease {
    /// `holderIdentity`; `None` = nobody.
    pub holder: Option<String>,
    /// `leaseDurationSeconds`, where it is given and above zero.
    pub duration: Option<Duration>,
    /// `leaseTransitions`; 0 where it is not given.
    pub transitions: i64,
    uid: String,
    version: String,
    object: Map<String, Value>,
}

/// An answer that is no Lease.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the answer is no Lease: {0}")]
pub struct NotALease(String);

#[derive(Deserialize)]
struct Wire {
    metadata: Metadata,
    #[serde(default)]
    spec: Option<Spec>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    uid: String,
    resource_version: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<i64>,
    lease_transitions: Option<i64>,
}

/// What a Lease that was given back says of its duration, in seconds; no holder writes so little.
const GIVEN_BACK: u64 = 1;

impl Lease {
    /// Reads an answer of the API server; absent fields are no error.
    pub fn parse(text: &str) -> Result<Self, NotALease> {
        let not = |error: serde_json::Error| NotALease(error.to_string());
        let object: Map<String, Value> = serde_json::from_str(text).map_err(not)?;
        let Wire { metadata, spec } = serde_json::from_str(text).map_err(not)?;
        let spec = spec.unwrap_or_default();
        let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        Ok(Self {
            holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
            duration: seconds.filter(|seconds| *seconds > 0).map(Duration::from_secs),
            transitions: spec.lease_transitions.unwrap_or_default().max(0),
            uid: metadata.uid,
            version: metadata.resource_version,
            object,
        })
    }

    /// Whether its holder gave it back; a holder that somebody took out by hand may not know of it yet.
    pub fn released(&self) -> bool {
        self.holder.is_none() && self.duration == Some(Duration::from_secs(GIVEN_BACK))
    }

    pub(super) fn is_version_of(&self, other: &Self) -> bool {
        (&self.uid, &self.version) == (&other.uid, &other.version)
    }

    pub(super) fn taken(&self, holder: &str, duration: Duration, epoch: i64, at: Timestamp) -> Value {
        self.with([
            ("holderIdentity", holder.into()),
            ("leaseDurationSeconds", whole_seconds(duration).into()),
            ("acquireTime", micro_time(at)),
            ("renewTime", micro_time(at)),
            ("leaseTransitions", epoch.into()),
        ])
    }

    pub(super) fn renewed(&self, duration: Duration, at: Timestamp) -> Value {
        self.with([("leaseDurationSeconds", whole_seconds(duration).into()), ("renewTime", micro_time(at))])
    }

    pub(super) fn given_back(&self, at: Timestamp) -> Value {
        self.with([
            ("holderIdentity", "".into()),
            ("leaseDurationSeconds", GIVEN_BACK.into()),
            ("acquireTime", micro_time(at)),
            ("renewTime", micro_time(at)),
        ])
    }

    fn with<const N: usize>(&self, fields: [(&str, Value); N]) -> Value {
        let mut object = self.object.clone();
        let spec = object.entry("spec").or_insert_with(|| json!({}));
        if spec.is_null() {
            *spec = json!({});
        }
        if let Some(spec) = spec.as_object_mut() {
            spec.extend(fields.map(|(name, value)| (name.to_owned(), value)));
        }
        Value::Object(object)
    }
}

/// A Lease that nobody holds and nobody gave back.
pub(super) fn unheld(namespace: &str, duration: Duration, at: Timestamp) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": { "name": LEASE, "namespace": namespace, "labels": { MANAGED_BY: "trunkline" } },
        "spec": {
            "holderIdentity": "",
            "leaseDurationSeconds": whole_seconds(duration),
            "renewTime": micro_time(at),
            "leaseTransitions": 0,
        },
    })
}

/// Rounded up, so that nobody takes it too early, and never what says that it was given back.
fn whole_seconds(duration: Duration) -> u64 {
    let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    seconds.clamp(GIVEN_BACK + 1, 0x7fff_ffff)
}

/// `metav1.MicroTime`: always six digits.
fn micro_time(at: Timestamp) -> Value {
    at.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string().into()
}
