//! A loopback proxy before the API server that counts requests and can spoil each of them.
//!
//! The daemon talks plain HTTP to it; it asks the API server in the name of [`User::Trunkline`]. A rule sees every
//! request before it is forwarded and says what becomes of it.

use std::{
    io,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use kube::{Client, client::Body};
use serde_json::json;
use tokio::{net::TcpListener, task::JoinHandle};

use super::plane::{ControlPlane, User};

/// A request as the rule sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    /// Counts all requests from 0.
    pub(crate) number: usize,
    pub(crate) method: String,
    /// Path and query.
    pub(crate) path: String,
    pub(crate) at: Instant,
}

impl Asked {
    /// Whether it changes something; the lease is left aside, since it is renewed all the time.
    pub(crate) fn writes(&self) -> bool {
        self.method != "GET" && !self.path.contains("/leases")
    }

    /// Whether it is a watch.
    pub(crate) fn watches(&self) -> bool {
        self.path.contains("watch=true") || self.path.contains("watch=1")
    }
}

/// What becomes of a request.
pub(crate) enum Fate {
    /// It is forwarded.
    Pass,
    /// It is answered with a failure and not forwarded.
    Refuse(u16),
    /// The connection is closed, and nothing is forwarded.
    Cut,
    /// It is forwarded, and then the connection is closed without an answer.
    LoseReply,
    /// It waits, and is forwarded then.
    Delay(Duration),
    /// Its answer is cut off after a while: for watches.
    CutAfter(Duration),
    /// It is forwarded, something else is done, and the connection is closed without an answer.
    Then(Box<dyn FnOnce() + Send>),
}

type Rule = Box<dyn FnMut(&Asked) -> Fate + Send>;

struct Shared {
    client: Client,
    rule: Mutex<Rule>,
    seen: Mutex<Vec<Asked>>,
}

/// The proxy; it ends when dropped.
pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Starts it before a plane; everything passes at first.
    pub(crate) async fn start(plane: &ControlPlane) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = plane.client_of(User::Trunkline).await;
        let shared =
            Arc::new(Shared { client, rule: Mutex::new(Box::new(|_| Fate::Pass)), seen: Mutex::default() });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self { port, shared, accepting }
    }

    /// A kubeconfig that leads here.
    pub(crate) fn kubeconfig(&self) -> String {
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "c", "cluster": { "server": format!("http://127.0.0.1:{}", self.port) } }],
            "users": [{ "name": "u", "user": {} }],
            "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
            "current-context": "c",
        })
        .to_string()
    }

    /// From now on this rule counts.
    pub(crate) fn rule(&self, rule: impl FnMut(&Asked) -> Fate + Send + 'static) {
        *self.shared.rule.lock().unwrap() = Box::new(rule);
    }

    /// From now on everything passes.
    pub(crate) fn pass(&self) {
        self.rule(|_| Fate::Pass);
    }

    /// Requests so far.
    pub(crate) fn seen(&self) -> Vec<Asked> {
        self.shared.seen.lock().unwrap().clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { return };
        let shared = Arc::clone(&shared);
        let service = hyper::service::service_fn(move |request| answer(Arc::clone(&shared), request));
        tokio::spawn(
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
        );
    }
}

type Answer = Response<UnsyncBoxBody<Bytes, io::Error>>;

async fn answer(shared: Arc<Shared>, request: Request<Incoming>) -> io::Result<Answer> {
    let asked = {
        let mut seen = shared.seen.lock().unwrap();
        let asked = Asked {
            number: seen.len(),
            method: request.method().to_string(),
            path: request.uri().to_string(),
            at: Instant::now(),
        };
        seen.push(asked.clone());
        asked
    };
    let fate = (shared.rule.lock().unwrap())(&asked);
    match fate {
        Fate::Pass => Ok(stream(forward(&shared, request).await?, None)),
        Fate::CutAfter(limit) => Ok(stream(forward(&shared, request).await?, Some(limit))),
        Fate::Refuse(code) => Ok(refusal(code)),
        Fate::Cut => Err(closed()),
        Fate::LoseReply => {
            forward(&shared, request).await?.collect().await.map_err(io::Error::other)?;
            Err(closed())
        }
        Fate::Delay(by) => {
            tokio::time::sleep(by).await;
            Ok(stream(forward(&shared, request).await?, None))
        }
        Fate::Then(act) => {
            forward(&shared, request).await?.collect().await.map_err(io::Error::other)?;
            act();
            Err(closed())
        }
    }
}

fn closed() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

async fn forward(shared: &Shared, request: Request<Incoming>) -> io::Result<Response<Body>> {
    let (mut head, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    // Those are about the connection to the proxy.
    for name in [http::header::HOST, http::header::CONNECTION, http::header::CONTENT_LENGTH] {
        head.headers.remove(name);
    }
    let request = Request::from_parts(head, Body::from(body));
    shared.client.send(request).await.map_err(io::Error::other)
}

/// Passes an answer on as it comes, for so long.
fn stream(answer: Response<Body>, limit: Option<Duration>) -> Answer {
    use futures::StreamExt as _;
    let (head, body) = answer.into_parts();
    let frames =
        body.into_data_stream().map(|data| data.map(hyper::body::Frame::data).map_err(io::Error::other));
    let body = match limit {
        None => http_body_util::StreamBody::new(frames.boxed()),
        Some(limit) => {
            let end = tokio::time::sleep(limit);
            let cut = futures::stream::once(async { Err(closed()) });
            http_body_util::StreamBody::new(frames.take_until(end).chain(cut).boxed())
        }
    };
    Response::from_parts(head, UnsyncBoxBody::new(body))
}

/// A failure as the API server tells it.
fn refusal(code: u16) -> Answer {
    let reason = match code {
        409 => "Conflict",
        410 => "Expired",
        429 => "TooManyRequests",
        500 => "InternalError",
        504 => "Timeout",
        other => panic!("no reason for {other}"),
    };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("the proxy says {code}"), "reason": reason, "code": code,
        "details": { "retryAfterSeconds": 1 },
    });
    let body = Full::new(Bytes::from(status.to_string())).map_err(|never| match never {});
    let mut answer = Response::new(UnsyncBoxBody::new(body));
    *answer.status_mut() = StatusCode::from_u16(code).unwrap();
    answer.headers_mut().insert(http::header::CONTENT_TYPE, "application/json".parse().unwrap());
    if code == 429 {
        answer.headers_mut().insert(http::header::RETRY_AFTER, "1".parse().unwrap());
    }
    answer
}
