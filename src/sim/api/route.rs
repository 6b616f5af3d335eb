//! Request lines: which resource, which object, which verb, which options.

use std::collections::BTreeMap;

use http::Method;

use super::{
    failure::{Cause, Failure},
    resources::{self, Resource},
};

/// What a path points at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// `/version`.
    Version,
    /// `/healthz`, `/livez`, `/readyz`.
    Health,
    /// `/api`.
    CoreVersions,
    /// `/apis`.
    Groups,
    /// `/apis/<group>`.
    Group(String),
    /// `/api/v1` or `/apis/<group>/<version>`.
    Resources(String, String),
    /// `/openapi/v3`.
    OpenApi,
    /// `/openapi/v3/api/v1` or `/openapi/v3/apis/<group>/<version>`.
    OpenApiOf(String, String),
    /// Reviews, which are created and never stored.
    Reviews(Review),
    /// Objects of a resource.
    Objects(Target),
}

/// What can be asked about whoever asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Review {
    /// Who it is.
    SelfSubject,
    /// Whether it may do something.
    SelfSubjectAccess,
}

/// Objects that a request is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Their resource.
    pub resource: &'static Resource,
    /// Their namespace; absent for cluster-scoped resources and across all namespaces.
    pub namespace: Option<String>,
    /// One object; absent for a collection.
    pub name: Option<String>,
    /// The `status` subresource of that object.
    pub status: bool,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// Read one.
    Get,
    /// Read many.
    List,
    /// Follow changes.
    Watch,
    /// Make one.
    Create,
    /// Replace one whole.
    Replace,
    /// Change one.
    Patch,
    /// Delete one.
    Delete,
}

impl Verb {
    /// Whether nothing changes.
    pub const fn reads(self) -> bool {
        matches!(self, Self::Get | Self::List | Self::Watch)
    }

    /// Kind of the options of such a request.
    const fn options(self) -> &'static str {
        match self {
            Self::Get => "GetOptions",
            Self::List | Self::Watch => "ListOptions",
            Self::Create => "CreateOptions",
            Self::Replace => "UpdateOptions",
            Self::Patch => "PatchOptions",
            Self::Delete => "DeleteOptions",
        }
    }
}

/// Decoded query string; of a repeated key the last value counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query(BTreeMap<String, String>);

impl Query {
    /// Reads a query string.
    pub fn parse(text: &str) -> Self {
        let pair = |pair: &str| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(key), decode(value))
        };
        Self(text.split('&').filter(|part| !part.is_empty()).map(pair).collect())
    }

    /// The value of a key, empty when absent.
    pub fn text(&self, key: &str) -> &str {
        self.0.get(key).map_or("", String::as_str)
    }

    /// Whether a switch is on.
    pub fn flag(&self, key: &str) -> bool {
        matches!(self.text(key), "true" | "1")
    }

    /// A number; absent, or a text that is none (a bad request).
    pub fn number(&self, key: &str) -> Result<Option<u64>, Failure> {
        match self.text(key) {
            "" => Ok(None),
            text => text
                .parse()
                .map(Some)
                .map_err(|_| Failure::BadRequest(format!("invalid {key}: parsing {text:?}: invalid syntax"))),
        }
    }

    /// Whether the write is only to be tried.
    pub fn dry_run(&self, verb: Verb) -> Result<bool, Failure> {
        match self.text("dryRun") {
            "" => Ok(false),
            "All" => Ok(true),
            other => Err(Failure::InvalidOptions {
                kind: verb.options(),
                cause: Cause {
                    reason: "FieldValueNotSupported",
                    message: format!("Unsupported value: [{other:?}]: supported values: \"All\""),
                    field: "dryRun".to_owned(),
                },
            }),
        }
    }
}

fn decode(text: &str) -> String {
    let hex = |digit: Option<&u8>| digit.and_then(|digit| char::from(*digit).to_digit(16));
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut rest = bytes.iter();
    while let Some(byte) = rest.next() {
        let ahead = rest.as_slice();
        match (byte, hex(ahead.first()), hex(ahead.get(1))) {
            (b'%', Some(high), Some(low)) => {
                plain.extend(u8::try_from(high * 16 + low));
                rest.nth(1);
            }
            (b'+', ..) => plain.push(b' '),
            _ => plain.push(*byte),
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

/// Reads a path.
pub fn parse(path: &str) -> Result<Route, Failure> {
    let parts: Vec<String> = path.split('/').filter(|part| !part.is_empty()).map(decode).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    match parts.as_slice() {
        ["version"] => Ok(Route::Version),
        ["healthz" | "livez" | "readyz", ..] => Ok(Route::Health),
        ["api"] => Ok(Route::CoreVersions),
        ["apis"] => Ok(Route::Groups),
        ["openapi", "v3"] => Ok(Route::OpenApi),
        ["openapi", "v3", "api", version] => Ok(Route::OpenApiOf(String::new(), (*version).to_owned())),
        ["openapi", "v3", "apis", group, version] => {
            Ok(Route::OpenApiOf((*group).to_owned(), (*version).to_owned()))
        }
        ["apis", group] => Ok(Route::Group((*group).to_owned())),
        ["api", version] => Ok(Route::Resources(String::new(), (*version).to_owned())),
        ["apis", group, version] => Ok(Route::Resources((*group).to_owned(), (*version).to_owned())),
        ["apis", "authentication.k8s.io", "v1", "selfsubjectreviews"] => {
            Ok(Route::Reviews(Review::SelfSubject))
        }
        ["apis", "authorization.k8s.io", "v1", "selfsubjectaccessreviews"] => {
            Ok(Route::Reviews(Review::SelfSubjectAccess))
        }
        ["api", version, rest @ ..] => objects("", version, rest),
        ["apis", group, version, rest @ ..] => objects(group, version, rest),
        _ => Err(Failure::NoSuchPath),
    }
}

fn objects(group: &str, version: &str, rest: &[&str]) -> Result<Route, Failure> {
    let (namespace, rest) = match rest {
        ["namespaces", namespace, rest @ ..] if !matches!(rest, [] | ["status"]) => (Some(*namespace), rest),
        rest => (None, rest),
    };
    let (plural, name, status) = match rest {
        [plural] => (plural, None, false),
        [plural, name] => (plural, Some(*name), false),
        [plural, name, "status"] => (plural, Some(*name), true),
        _ => return Err(Failure::NoSuchPath),
    };
    let resource = resources::find(group, version, plural).ok_or(Failure::NoSuchPath)?;
    let placed =
        if resource.namespaced() { namespace.is_some() || name.is_none() } else { namespace.is_none() };
    if !placed || (status && !resource.status) {
        return Err(Failure::NoSuchPath);
    }
    Ok(Route::Objects(Target {
        resource,
        namespace: namespace.map(str::to_owned),
        name: name.map(str::to_owned),
        status,
    }))
}

/// What a method means for a target.
pub fn verb(method: &Method, target: &Target, query: &Query) -> Result<Verb, Failure> {
    let one = target.name.is_some();
    match *method {
        Method::GET if one => Ok(Verb::Get),
        Method::GET if query.flag("watch") => Ok(Verb::Watch),
        Method::GET => Ok(Verb::List),
        Method::POST if !one && target.namespace.is_some() == target.resource.namespaced() => {
            Ok(Verb::Create)
        }
        Method::PUT if one => Ok(Verb::Replace),
        Method::PATCH if one => Ok(Verb::Patch),
        Method::DELETE if one && !target.status => Ok(Verb::Delete),
        _ => Err(Failure::MethodNotAllowed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(path: &str) -> Target {
        match parse(path) {
            Ok(Route::Objects(target)) => target,
            other => panic!("{path}: {other:?}"),
        }
    }

    #[test]
    fn a_path_names_its_object() {
        let pod = target("/api/v1/namespaces/kube-system/pods/calico-node-x1");
        assert_eq!(pod.resource.kind, "Pod");
        assert_eq!(pod.namespace.as_deref(), Some("kube-system"));
        assert_eq!(pod.name.as_deref(), Some("calico-node-x1"));
        let claim = target("/apis/cni.example.com/v1/cniupgrades/calico/status");
        assert!(claim.status && claim.namespace.is_none());
        let namespace = target("/api/v1/namespaces/kube-system");
        assert_eq!((namespace.resource.kind, namespace.name.as_deref()), ("Namespace", Some("kube-system")));
        assert_eq!(target("/apis/apps/v1/daemonsets").namespace, None);
    }

    #[test]
    fn a_path_that_means_nothing_is_not_found() {
        for path in [
            "/",
            "/api/v1/gadgets",
            "/api/v1/namespaces/a/nodes/n1",
            "/api/v1/pods/p1",
            "/api/v1/namespaces/a/configmaps/c/status",
            "/apis/apps/v1/namespaces/a/daemonsets/x/scale",
        ] {
            assert_eq!(parse(path), Err(Failure::NoSuchPath), "{path}");
        }
    }

    #[test]
    fn a_method_that_the_target_does_not_have_is_refused() {
        let pods = target("/api/v1/namespaces/a/pods");
        let everywhere = target("/api/v1/pods");
        let watch = Query::parse("watch=1&resourceVersion=7");
        assert_eq!(verb(&Method::GET, &pods, &watch), Ok(Verb::Watch));
        assert_eq!(verb(&Method::POST, &pods, &watch), Ok(Verb::Create));
        assert_eq!(verb(&Method::POST, &everywhere, &watch), Err(Failure::MethodNotAllowed));
        assert_eq!(verb(&Method::DELETE, &pods, &watch), Err(Failure::MethodNotAllowed));
    }

    #[test]
    fn a_query_is_percent_decoded() {
        let query = Query::parse("labelSelector=a%3Db%2Cc+in+%28d%29&limit=x&dryRun=Some&bad=%zz");
        assert_eq!(query.text("labelSelector"), "a=b,c in (d)");
        assert_eq!(query.text("bad"), "%zz");
        assert!(query.number("limit").is_err());
        assert!(query.dry_run(Verb::Create).is_err());
    }
}
