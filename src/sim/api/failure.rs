//! Every "no" of the API server, and the `Status` body that says it.

use serde_json::{Value, json};

use super::resources::{self, Resource};
use crate::sim::model::store::Denied;

/// One field that was found wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// `FieldValueInvalid`, `FieldValueRequired`, `FieldValueNotSupported`, ...
    pub reason: &'static str,
    /// Text without the field's name.
    pub message: String,
    /// Path of the field, as in `spec.maxParallel`.
    pub field: String,
}

/// A request that is answered with a `Status` of kind `Failure`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// 400: the request itself cannot be read.
    #[error("{0}")]
    BadRequest(String),
    /// 401: no or another token.
    #[error("Unauthorized")]
    Unauthorized,
    /// 403: understood, and not allowed.
    #[error("{} is forbidden: {why}", named(.resource, .name))]
    Forbidden {
        /// Resource asked for.
        resource: &'static Resource,
        /// Its name.
        name: String,
        /// Why not.
        why: String,
    },
    /// 404: the path means nothing here.
    #[error("the server could not find the requested resource")]
    NoSuchPath,
    /// 404: there is no such object.
    #[error("{} not found", named(.resource, .name))]
    NotFound {
        /// Resource asked for.
        resource: &'static Resource,
        /// Its name.
        name: String,
    },
    /// 405: the resource has no such verb.
    #[error("the server does not allow this method on the requested resource")]
    MethodNotAllowed,
    /// 406: no media type that the client accepts.
    #[error("406: Not Acceptable\n\nAvailable representations: application/json")]
    NotAcceptable,
    /// 409: the name is taken.
    #[error("{}{} already exists", if *.going { "object is being deleted: " } else { "" }, named(.resource, .name))]
    AlreadyExists {
        /// Resource of the object.
        resource: &'static Resource,
        /// Its name.
        name: String,
        /// Whether it is being deleted.
        going: bool,
    },
    /// 409: a deletion of another version or UID than there is.
    #[error("Operation cannot be fulfilled on {} {name:?}: {why}", .resource.kind)]
    Precondition {
        /// Resource of the object.
        resource: &'static Resource,
        /// Its name.
        name: String,
        /// Which precondition failed.
        why: String,
    },
    /// 409: another version or UID than the caller wants.
    #[error("Operation cannot be fulfilled on {}: {why}", named(.resource, .name))]
    Conflict {
        /// Resource of the object.
        resource: &'static Resource,
        /// Its name.
        name: String,
        /// Which precondition failed.
        why: String,
    },
    /// 410: the page asked for is of a state that is compacted.
    #[error(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list \
         without the continue parameter."
    )]
    PageExpired,
    /// 410: the list asked for is of a state that is compacted.
    #[error("The resourceVersion for the provided list is too old.")]
    ListExpired,
    /// 504: the version asked for has not been given yet.
    #[error("Timeout: Too large resource version: {asked}, current: {newest}")]
    Ahead {
        /// Version asked for.
        asked: u64,
        /// Newest version.
        newest: u64,
    },
    /// 410: the version asked for is compacted.
    #[error("too old resource version: {asked} ({oldest})")]
    Expired {
        /// Version that the caller knows.
        asked: u64,
        /// Oldest version that can still be read from.
        oldest: u64,
    },
    /// 413: a body that is not even read.
    #[error("Request entity too large: limit is {limit}")]
    TooLarge {
        /// Most bytes.
        limit: usize,
    },
    /// 500 without a reason: etcd does not take an object of that size.
    #[error("etcdserver: request is too large")]
    StoreRefused,
    /// 415: a patch format that the resource does not take.
    #[error("415: Unsupported Media Type")]
    UnsupportedPatch,
    /// 415: a body format that the resource does not take.
    #[error("the body of the request was in an unknown format - accepted media types include: {accepted}")]
    UnsupportedMediaType {
        /// Comma-separated media types.
        accepted: &'static str,
    },
    /// 422: a patch that does not fit the object, as when a `test` fails.
    #[error("the server rejected our request due to an error in our request")]
    PatchRejected,
    /// 422: the object breaks its schema or the rules of its kind.
    #[error("{} is invalid: {}", kind_named(.resource, .name), listed(.causes))]
    Invalid {
        /// Resource of the object.
        resource: &'static Resource,
        /// Its name.
        name: String,
        /// What is wrong, field by field.
        causes: Vec<Cause>,
    },
    /// 422: an update that does not say which version it replaces.
    #[error("{} is invalid: metadata.resourceVersion: {NO_VERSION}", named(.resource, .name))]
    Unversioned {
        /// Resource of the object.
        resource: &'static Resource,
        /// Its name.
        name: String,
    },
    /// 422: an option of the request has no such value.
    #[error("{kind}.meta.k8s.io \"\" is invalid: {}: {}", .cause.field, .cause.message)]
    InvalidOptions {
        /// `CreateOptions`, `UpdateOptions`, ...
        kind: &'static str,
        /// Which one, and what it may be.
        cause: Cause,
    },
    /// 429: later.
    #[error("the server has received too many requests and has asked us to try again later")]
    TooManyRequests {
        /// Seconds for `Retry-After`.
        retry_after: u32,
    },
    /// 500: the server's own fault.
    #[error("Internal error occurred: {0}")]
    Internal(String),
}

/// What is wrong with an update that carries no version.
const NO_VERSION: &str = "Invalid value: 0: must be specified for an update";

fn named(resource: &Resource, name: &str) -> String {
    format!("{} {name:?}", resource.qualified())
}

fn kind_named(resource: &Resource, name: &str) -> String {
    let group = if resource.group.is_empty() { String::new() } else { format!(".{}", resource.group) };
    format!("{}{group} {name:?}", resource.kind)
}

fn listed(causes: &[Cause]) -> String {
    let texts: Vec<String> =
        causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
    if let [one] = texts.as_slice() { one.clone() } else { format!("[{}]", texts.join(", ")) }
}

impl Failure {
    /// HTTP status code.
    pub const fn code(&self) -> u16 {
        match self {
            Self::BadRequest(_) => 400,
            Self::Unauthorized => 401,
            Self::Forbidden { .. } => 403,
            Self::NoSuchPath | Self::NotFound { .. } => 404,
            Self::MethodNotAllowed => 405,
            Self::NotAcceptable => 406,
            Self::AlreadyExists { .. } | Self::Precondition { .. } | Self::Conflict { .. } => 409,
            Self::PageExpired | Self::ListExpired | Self::Expired { .. } => 410,
            Self::TooLarge { .. } => 413,
            Self::UnsupportedPatch | Self::UnsupportedMediaType { .. } => 415,
            Self::PatchRejected
            | Self::Invalid { .. }
            | Self::Unversioned { .. }
            | Self::InvalidOptions { .. } => 422,
            Self::TooManyRequests { .. } => 429,
            Self::Internal(_) | Self::StoreRefused => 500,
            Self::Ahead { .. } => 504,
        }
    }

    /// `reason` of the `Status`.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::BadRequest(_) => "BadRequest",
            Self::Unauthorized => "Unauthorized",
            Self::Forbidden { .. } => "Forbidden",
            Self::NoSuchPath | Self::NotFound { .. } => "NotFound",
            Self::MethodNotAllowed => "MethodNotAllowed",
            Self::NotAcceptable => "NotAcceptable",
            Self::AlreadyExists { .. } => "AlreadyExists",
            Self::Precondition { .. } | Self::Conflict { .. } => "Conflict",
            Self::PageExpired | Self::ListExpired | Self::Expired { .. } => "Expired",
            Self::TooLarge { .. } => "RequestEntityTooLarge",
            Self::StoreRefused => "",
            Self::UnsupportedPatch | Self::UnsupportedMediaType { .. } => "UnsupportedMediaType",
            Self::PatchRejected
            | Self::Invalid { .. }
            | Self::Unversioned { .. }
            | Self::InvalidOptions { .. } => "Invalid",
            Self::TooManyRequests { .. } => "TooManyRequests",
            Self::Internal(_) => "InternalError",
            Self::Ahead { .. } => "Timeout",
        }
    }

    /// The `Status` object.
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.to_string(),
            "reason": self.reason(),
            "code": self.code(),
        });
        if let (Some(details), Some(status)) = (self.details(), status.as_object_mut()) {
            status.insert("details".to_owned(), details);
        }
        status
    }

    fn details(&self) -> Option<Value> {
        match self {
            Self::BadRequest(_)
            | Self::Unauthorized
            | Self::PageExpired
            | Self::ListExpired
            | Self::Expired { .. }
            | Self::TooLarge { .. }
            | Self::UnsupportedMediaType { .. }
            | Self::StoreRefused => None,
            Self::NoSuchPath
            | Self::MethodNotAllowed
            | Self::NotAcceptable
            | Self::UnsupportedPatch
            | Self::PatchRejected => Some(json!({})),
            Self::Forbidden { resource, name, .. }
            | Self::NotFound { resource, name }
            | Self::AlreadyExists { resource, name, .. }
            | Self::Conflict { resource, name, .. } => Some(about(resource, name, resource.plural)),
            Self::Precondition { resource, name, .. } => Some(about(resource, name, resource.kind)),
            Self::Ahead { .. } => Some(json!({
                "causes": [{ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" }],
                "retryAfterSeconds": 1,
            })),
            Self::Invalid { resource, name, causes } => {
                let mut details = about(resource, name, resource.kind);
                let causes: Vec<Value> = causes.iter().map(shown).collect();
                if let Some(details) = details.as_object_mut() {
                    details.insert("causes".to_owned(), causes.into());
                }
                Some(details)
            }
            Self::Unversioned { resource, name } => {
                let mut details = about(resource, name, resource.plural);
                let cause = json!({
                    "reason": "FieldValueInvalid", "message": NO_VERSION, "field": "metadata.resourceVersion",
                });
                if let Some(details) = details.as_object_mut() {
                    details.insert("causes".to_owned(), json!([cause]));
                }
                Some(details)
            }
            Self::InvalidOptions { kind, cause } => {
                Some(json!({ "group": "meta.k8s.io", "kind": kind, "causes": [shown(cause)] }))
            }
            Self::TooManyRequests { retry_after } => Some(json!({ "retryAfterSeconds": retry_after })),
            Self::Internal(message) => Some(json!({ "causes": [{ "message": message }] })),
        }
    }
}

impl From<Denied> for Failure {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::NotFound(at) => {
                Self::NotFound { resource: resources::of(at.kind), name: (*at.name).to_owned() }
            }
            Denied::AlreadyExists { at, going } => {
                Self::AlreadyExists { resource: resources::of(at.kind), name: (*at.name).to_owned(), going }
            }
            Denied::Conflict { at, message } => {
                Self::Conflict { resource: resources::of(at.kind), name: (*at.name).to_owned(), why: message }
            }
            Denied::Expired { asked, oldest } => Self::Expired { asked, oldest },
            Denied::Invalid { at, message } => Self::Invalid {
                resource: resources::of(at.kind),
                name: (*at.name).to_owned(),
                causes: vec![Cause {
                    reason: "FieldValueForbidden",
                    message,
                    field: "metadata.finalizers".to_owned(),
                }],
            },
        }
    }
}

fn shown(cause: &Cause) -> Value {
    json!({ "reason": cause.reason, "message": cause.message, "field": cause.field })
}

fn about(resource: &Resource, name: &str, kind: &str) -> Value {
    if resource.group.is_empty() {
        json!({ "name": name, "kind": kind })
    } else {
        json!({ "name": name, "group": resource.group, "kind": kind })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::api::resources;

    #[test]
    fn a_missing_object_of_a_group_is_named_with_its_group() {
        let resource = resources::find("apps", "v1", "daemonsets").unwrap();
        let status = Failure::NotFound { resource, name: "calico-node".to_owned() }.status();
        assert_eq!(status["message"], "daemonsets.apps \"calico-node\" not found");
        assert_eq!(status["code"], 404);
        assert_eq!(
            status["details"],
            json!({ "name": "calico-node", "group": "apps", "kind": "daemonsets" })
        );
    }

    #[test]
    fn an_invalid_object_lists_every_cause() {
        let resource = resources::find("cni.example.com", "v1", "cniupgrades").unwrap();
        let cause = |field: &str| Cause {
            reason: "FieldValueRequired",
            message: "Required value".to_owned(),
            field: field.to_owned(),
        };
        let causes = vec![cause("spec.a"), cause("spec.b")];
        let status = Failure::Invalid { resource, name: "x".to_owned(), causes }.status();
        assert_eq!(
            status["message"],
            "CNIUpgrade.cni.example.com \"x\" is invalid: [spec.a: Required value, spec.b: Required value]"
        );
        assert_eq!(status["details"]["causes"][1]["field"], "spec.b");
    }
}
