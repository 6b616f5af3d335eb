//! The tower service: one HTTP request in, its fault, its answer out.

use std::{
    io,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::{FutureExt, StreamExt, future::BoxFuture};
use http::{HeaderValue, Request, Response, header};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use jiff::fmt::rfc2822::DateTimePrinter;
use serde_json::Value;

use super::{
    Shared, custom, discovery,
    failure::Failure,
    faults::{Asked, Fault},
    list, openapi, render,
    resources::Resource,
    reviews,
    route::{self, Query, Route, Target, Verb},
    select::Selector,
    table,
    watch::{Wanted, Watch},
    write::{Write, Written},
};
use crate::{clock::later, world::digest};

/// Body of an answer; an error in it is a connection that breaks.
pub type Reply = UnsyncBoxBody<Bytes, io::Error>;

/// The API server as a service.
#[derive(Clone)]
pub struct ApiService(Arc<Shared>);

impl std::fmt::Debug for ApiService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ApiService")
    }
}

/// A request with everything that an answer depends on.
struct Call {
    route: Result<Route, Failure>,
    verb: Result<Verb, Failure>,
    query: Query,
    content_type: String,
    accept: String,
    agent: String,
    body: Bytes,
}

/// What is answered.
enum Answer {
    Object(u16, Value),
    Text(&'static str),
    Watch(Box<Watch>),
}

impl ApiService {
    pub(super) const fn new(shared: Arc<Shared>) -> Self {
        Self(shared)
    }

    /// Answers one request; an error is a connection that breaks.
    pub async fn answer<B>(self, request: Request<B>) -> io::Result<Response<Reply>>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: std::fmt::Display,
    {
        let mut answer = self.reply(request).await?;
        // The time of the cluster, not of this machine.
        let date = DateTimePrinter::new().timestamp_to_rfc9110_string(&self.0.now()).ok();
        let date = date.and_then(|date| HeaderValue::try_from(date).ok());
        answer.headers_mut().extend(date.map(|date| (header::DATE, date)));
        Ok(answer)
    }

    async fn reply<B>(&self, request: Request<B>) -> io::Result<Response<Reply>>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: std::fmt::Display,
    {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(|error| io::Error::other(error.to_string()))?.to_bytes();
        let call = Call::read(&head, body);
        let mut asked = call.asked(&head, &self.0);
        let fault = self.0.faults.admit(&mut asked);
        if let Some(refused) = self.before(fault, &asked).await? {
            return Ok(failed(&refused));
        }
        let answer = self.0.answer(&call, fault);
        let code = match &answer {
            Ok(Answer::Object(code, _)) => *code,
            Ok(Answer::Text(_) | Answer::Watch(_)) => 200,
            Err(failure) => failure.code(),
        };
        self.0.faults.done(asked.index, code);
        if fault == Some(Fault::LostReply) {
            return Err(broken());
        }
        Ok(match answer {
            Ok(Answer::Object(code, object)) => json(code, &object),
            Ok(Answer::Text(text)) => respond(200, "text/plain", whole(text.into())),
            Ok(Answer::Watch(watch)) => {
                let frames = watch.lines().map(|line| line.map(Frame::data));
                respond(200, "application/json", StreamBody::new(frames).boxed_unsync())
            }
            Err(failure) => failed(&failure),
        })
    }

    /// What goes wrong before anything is done.
    async fn before(&self, fault: Option<Fault>, asked: &Asked) -> io::Result<Option<Failure>> {
        match fault {
            Some(Fault::Unreachable) => Err(broken()),
            Some(Fault::Conflict) => Ok(asked.conflict()),
            Some(Fault::TooManyRequests(retry_after)) => Ok(Some(Failure::TooManyRequests { retry_after })),
            Some(Fault::Internal) => Ok(Some(Failure::Internal("something went wrong".to_owned()))),
            Some(Fault::Delay(by)) => {
                self.0.pause(by).await;
                Ok(None)
            }
            Some(Fault::LostReply | Fault::Stale(_) | Fault::CutWatch(_)) | None => Ok(None),
        }
    }
}

impl<B> tower::Service<Request<B>> for ApiService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: std::fmt::Display,
{
    type Response = Response<Reply>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Response<Reply>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        self.clone().answer(request).boxed()
    }
}

impl Call {
    fn read(head: &http::request::Parts, body: Bytes) -> Self {
        let header = |name: header::HeaderName| {
            head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("").to_owned()
        };
        let query = Query::parse(head.uri.query().unwrap_or(""));
        let route = route::parse(head.uri.path());
        let verb = match &route {
            Ok(Route::Objects(target)) => route::verb(&head.method, target, &query),
            Ok(Route::Reviews(_)) if head.method == http::Method::POST => Ok(Verb::Create),
            Ok(Route::Reviews(_)) => Err(Failure::MethodNotAllowed),
            Ok(_) if head.method == http::Method::GET => Ok(Verb::Get),
            Ok(_) => Err(Failure::MethodNotAllowed),
            Err(failure) => Err(failure.clone()),
        };
        let (content_type, accept) = (header(header::CONTENT_TYPE), header(header::ACCEPT));
        Self { route, verb, query, content_type, accept, agent: header(header::USER_AGENT), body }
    }

    fn asked(&self, head: &http::request::Parts, shared: &Shared) -> Asked {
        let target = match &self.route {
            Ok(Route::Objects(target)) => Some(target.clone()),
            _ => None,
        };
        Asked {
            index: 0,
            at: shared.now(),
            method: head.method.to_string(),
            uri: head.uri.to_string(),
            agent: self.agent.clone(),
            verb: target.as_ref().and_then(|_| self.verb.clone().ok()),
            target,
            body: (!self.body.is_empty()).then(|| digest::of_bytes(&self.body)),
        }
    }

    fn wants_table(&self) -> bool {
        self.accept.contains("as=Table") && self.accept.contains("g=meta.k8s.io")
    }

    fn takes_json(&self) -> bool {
        self.accept.is_empty() || self.accept.contains("json") || self.accept.contains("*/*")
    }
}

impl Shared {
    /// Waits, on the clock of the cluster.
    async fn pause(&self, by: Duration) {
        let end = later(self.now(), by);
        while self.now() < end {
            let _ = self.before(end, std::future::pending::<()>()).await;
        }
    }

    fn answer(self: &Arc<Self>, call: &Call, fault: Option<Fault>) -> Result<Answer, Failure> {
        let route = call.route.as_ref().map_err(Clone::clone)?;
        let verb = call.verb.clone()?;
        if !call.takes_json() {
            return Err(Failure::NotAcceptable);
        }
        let object = |value: Value| Ok(Answer::Object(200, value));
        let served = |resource: &Resource| self.serves(resource);
        match route {
            Route::Version => object(discovery::version()),
            Route::Health => Ok(Answer::Text("ok")),
            Route::CoreVersions => object(discovery::core_versions()),
            Route::Groups => object(discovery::groups(served)),
            Route::Group(name) => object(discovery::group(name, served)?),
            Route::Resources(group, version) => object(discovery::group_version(group, version, served)?),
            Route::OpenApi => object(openapi::index(served)),
            Route::OpenApiOf(group, version) => object(openapi::document(group, version, served)?),
            Route::Reviews(review) => {
                let review = reviews::answer(*review, &call.body, &self.faults)?;
                Ok(Answer::Object(201, review))
            }
            Route::Objects(target) if !self.serves(target.resource) => Err(Failure::NoSuchPath),
            Route::Objects(target) => self.on_objects(call, target, verb, fault),
        }
    }

    fn serves(&self, resource: &Resource) -> bool {
        !resource.custom || self.model(|model| model.get(&custom::definition_ref(resource)).is_some())
    }

    fn on_objects(
        self: &Arc<Self>,
        call: &Call,
        target: &Target,
        verb: Verb,
        fault: Option<Fault>,
    ) -> Result<Answer, Failure> {
        let resource = target.resource;
        let stale = if let Some(Fault::Stale(versions)) = fault { versions } else { 0 };
        match verb {
            Verb::Get => {
                let found = self.model(|model| list::get(model, target, stale))?;
                Ok(Answer::Object(
                    200,
                    if call.wants_table() {
                        let meta = serde_json::json!({ "resourceVersion": found.rv.to_string() });
                        table::render(resource, &[&*found], &meta, self.now())
                    } else {
                        render::object(resource, &found)
                    },
                ))
            }
            Verb::List => {
                let page = self.model(|model| list::page(model, target, &call.query, stale))?;
                Ok(Answer::Object(
                    200,
                    if call.wants_table() {
                        let items: Vec<_> = page.items.iter().map(|item| &**item).collect();
                        table::render(resource, &items, &page.metadata(), self.now())
                    } else {
                        page.render(resource)
                    },
                ))
            }
            Verb::Watch => {
                let selector = Selector::of(&call.query, resource)?;
                let cut_after = if let Some(Fault::CutWatch(events)) = fault { Some(events) } else { None };
                let wanted =
                    Wanted { target: target.clone(), selector, table: call.wants_table(), cut_after };
                Ok(Answer::Watch(Box::new(Watch::open(self, wanted, &call.query)?)))
            }
            Verb::Create | Verb::Replace | Verb::Patch | Verb::Delete => {
                let Call { query, content_type, agent, body, .. } = call;
                let write = Write { target, query, content_type, agent, body };
                Ok(match self.model(|model| write.perform(verb, model))? {
                    Written::Created(made) => Answer::Object(201, render::object(resource, &made)),
                    Written::Changed(made) => Answer::Object(200, render::object(resource, &made)),
                    Written::Gone(status) => Answer::Object(200, status),
                })
            }
        }
    }
}

fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the connection broke")
}

fn whole(bytes: Bytes) -> Reply {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

fn respond(code: u16, content_type: &'static str, body: Reply) -> Response<Reply> {
    let mut response = Response::new(body);
    *response.status_mut() =
        http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

fn json(code: u16, object: &Value) -> Response<Reply> {
    respond(code, "application/json", whole(object.to_string().into()))
}

/// The answer that says no.
pub(super) fn failed(failure: &Failure) -> Response<Reply> {
    let mut response = json(failure.code(), &failure.status());
    if let Failure::TooManyRequests { retry_after } = failure {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(*retry_after));
    }
    response
}
