//! The cluster: what answers, what is granted, what is installed, what runs.

use futures::{StreamExt as _, stream};
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client, client::Body};
use serde_json::{Value, json};

use crate::{
    access::{self, Need, Site},
    api::{ClaimKind, crd, names::LEASE},
    cli::{cluster::date, root},
    clock::Clock,
    observe, profile,
    reload::Loaded,
    report::doctor::{self, Finding, LeaseSeen, Looked, ServerFault},
    world::{Feed, World},
};

/// Access reviews under way at once.
const AT_ONCE: usize = 8;

/// Looks at everything; where the API server gives no answer, only that is told.
pub(super) async fn examine(
    kube: &Client,
    namespace: &str,
    loaded: Option<&Loaded>,
    clock: Clock,
) -> Vec<Finding> {
    let before = clock.now();
    let (version, present) = match version(kube).await {
        Ok(answer) => answer,
        Err(why) => return doctor::no_server(&why),
    };
    let skew = present.map(|present| doctor::skew(present, before, clock.now()));
    let now = present.unwrap_or(before);
    let mut findings = vec![doctor::server(&version)];
    findings.push(doctor::account(user(kube).await.as_deref(), namespace));
    findings.push(doctor::clock(skew));

    let mut world = World::default();
    let agents = observe::list(kube, namespace, Feed::Agents, now, &mut world).await;
    let stores = observe::list(kube, namespace, Feed::Stores, now, &mut world).await;
    let built_in = profile::built_in();
    let profiles = loaded.map_or(&built_in, |loaded| &loaded.profiles);
    let seen = agents.as_ref().map(|()| &world).map_err(String::as_str);
    let (agents, provider) = doctor::provider(profiles, seen);
    let site = Site { namespace: namespace.to_owned(), agents };

    findings.extend(rights(kube, &site).await);
    for kind in [ClaimKind::CniUpgrade, ClaimKind::ServiceUpgrade] {
        findings.push(definition(kube, kind).await);
    }
    findings.push(policies(kube, &site).await);
    findings.extend(provider);
    let configured = loaded.iter().flat_map(|loaded| &loaded.config.repositories);
    let stores = stores.as_ref().map(|()| &world).map_err(String::as_str);
    findings.extend(doctor::ledgers(stores, configured.map(|repository| &repository.name)));
    findings.push(match loaded {
        Some(loaded) if !loaded.config.leader_election.enabled => doctor::no_election(),
        Some(_) | None => lease(kube, namespace, now).await,
    });
    findings
}

/// Version and time of the API server.
async fn version(kube: &Client) -> Result<(String, Option<Timestamp>), ServerFault> {
    let odd = |error: &dyn std::fmt::Display| ServerFault::Odd(error.to_string());
    let request = Request::get("/version").body(Body::empty()).map_err(|error| odd(&error))?;
    let answer = kube.send(request).await.map_err(|error| ServerFault::Unreachable(root(error)))?;
    let present = date(&answer);
    match answer.status() {
        StatusCode::UNAUTHORIZED => return Err(ServerFault::Unauthorised),
        status if !status.is_success() => return Err(odd(&status)),
        _ => {}
    }
    let body = answer.into_body().collect().await.map_err(|error| odd(&error))?.to_bytes();
    let said: Value = serde_json::from_slice(&body).map_err(|error| odd(&error))?;
    let version = said.get("gitVersion").and_then(Value::as_str);
    version.map(|version| (version.to_owned(), present)).ok_or_else(|| odd(&"no version"))
}

/// Who asks; absent where the server does not tell.
async fn user(kube: &Client) -> Option<String> {
    let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let answer = reviewed(kube, "/apis/authentication.k8s.io/v1/selfsubjectreviews", &review).await.ok()?;
    answer.pointer("/status/userInfo/username").and_then(Value::as_str).map(str::to_owned)
}

async fn reviewed(kube: &Client, path: &str, review: &Value) -> Result<Value, String> {
    let request = Request::builder()
        .method(Method::POST)
        .uri(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(review.to_string().into_bytes())
        .map_err(|error| error.to_string())?;
    kube.request(request).await.map_err(root)
}

async fn rights(kube: &Client, site: &Site) -> Vec<Finding> {
    let needs = access::needs(site);
    let needed = needs.len();
    let asked = stream::iter(needs)
        .map(|need| async move { is_allowed(kube, &need).await.map(|allowed| (need, allowed)) })
        .buffer_unordered(AT_ONCE);
    let answers: Result<Vec<(Need, bool)>, String> = asked.collect::<Vec<_>>().await.into_iter().collect();
    match answers {
        Ok(answers) => {
            let denied = answers.into_iter().filter(|(_, allowed)| !allowed).map(|(need, _)| need).collect();
            doctor::rights(site, needed, &denied)
        }
        Err(why) => vec![doctor::rights_unknown(&why)],
    }
}

async fn is_allowed(kube: &Client, need: &Need) -> Result<bool, String> {
    let Need { group, resource, subresource, namespace, name, verb } = need;
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": { "resourceAttributes": {
            "group": group, "resource": resource, "subresource": subresource, "verb": verb,
            "namespace": namespace.as_deref().unwrap_or_default(),
            "name": name.as_deref().unwrap_or_default(),
        } },
    });
    let answer = reviewed(kube, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review).await?;
    Ok(answer.pointer("/status/allowed").and_then(Value::as_bool).unwrap_or_default())
}

async fn definition(kube: &Client, kind: ClaimKind) -> Finding {
    let ours = serde_json::to_value(crd::definition(kind)).unwrap_or_default();
    let name = ours.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
    let looked = look(kube, &path).await;
    let served = match looked {
        Looked::Forbidden => {
            let versions = look(kube, &format!("/apis/{}", kind.api_version())).await;
            matches!(&versions, Looked::There(list) if lists(list, kind.plural()))
        }
        Looked::There(_) | Looked::Absent | Looked::Failed(_) => false,
    };
    doctor::definition(&ours, &looked, served)
}

/// Whether a list of resources of discovery names one.
fn lists(discovered: &Value, plural: &str) -> bool {
    let resources = discovered.get("resources").and_then(Value::as_array).into_iter().flatten();
    resources.into_iter().any(|resource| resource.get("name").and_then(Value::as_str) == Some(plural))
}

async fn policies(kube: &Client, site: &Site) -> Finding {
    let mut looked = Vec::new();
    for object in access::policies(site) {
        let text = |at: &str| object.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
        let name = text("/metadata/name");
        let (plural, shown) = if text("/kind").ends_with("Binding") {
            ("validatingadmissionpolicybindings", format!("the binding of {name}"))
        } else {
            ("validatingadmissionpolicies", name.clone())
        };
        let path = format!("/apis/admissionregistration.k8s.io/v1/{plural}/{name}");
        looked.push((shown, look(kube, &path).await));
    }
    doctor::policies(site, &looked)
}

async fn look(kube: &Client, path: &str) -> Looked {
    let Ok(request) = Request::get(path).body(Vec::new()) else { return Looked::Absent };
    match kube.request::<Value>(request).await {
        Ok(object) => Looked::There(Box::new(object)),
        Err(kube::Error::Api(status)) if status.code == 404 => Looked::Absent,
        Err(kube::Error::Api(status)) if status.code == 403 => Looked::Forbidden,
        Err(error) => Looked::Failed(root(error)),
    }
}

async fn lease(kube: &Client, namespace: &str, now: Timestamp) -> Finding {
    let leases: Api<Lease> = Api::namespaced(kube.clone(), namespace);
    let seen = leases.get_opt(LEASE).await.map_err(root).map(|lease| {
        let spec = lease?.spec.unwrap_or_default();
        Some(LeaseSeen {
            holder: spec.holder_identity,
            renewed: spec.renew_time.map(|time| time.0),
            seconds: spec.lease_duration_seconds,
        })
    });
    doctor::lease(namespace, seen.as_ref().map(Option::as_ref).map_err(String::as_str), now)
}
