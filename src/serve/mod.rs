//! Health, readiness and metrics over HTTP, on one port.
//!
//! Guarantees: answers come from what the engine told before, so nobody who asks holds it up; `/healthz` tells only
//! what a new process would mend, `/readyz` everything that is waited for, one line each. Assumptions: the port is
//! reached by the cluster's own monitoring; nothing here is secret, and nothing can be changed.

#[cfg(test)]
mod tests;

use std::{fmt::Write as _, io, net::SocketAddr};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::net::TcpListener;

use crate::{clock::Clock, engine::Vitals, metrics::Metrics};

/// Prometheus' text form.
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What is served.
#[derive(Debug, Clone)]
pub struct Served {
    /// Counts and measurements.
    pub metrics: Metrics,
    /// What the engine tells of itself.
    pub vitals: Vitals,
    /// Time.
    pub clock: Clock,
}

/// Listens at `host:port`; without a host at every address of this machine, IPv6 and IPv4.
pub async fn listen(address: &str) -> io::Result<TcpListener> {
    let Some(port) = address.strip_prefix(':') else { return TcpListener::bind(address).await };
    match TcpListener::bind(format!("[::]:{port}")).await {
        // A machine without IPv6.
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            TcpListener::bind(format!("0.0.0.0:{port}")).await
        }
        bound => bound,
    }
}

/// Answers until it is dropped.
pub async fn serve(listener: TcpListener, served: Served) -> io::Result<()> {
    let address: Option<SocketAddr> = listener.local_addr().ok();
    tracing::info!(address = address.map(|address| address.to_string()), "serves health and metrics");
    axum::serve(listener, router(served)).await
}

fn router(served: Served) -> Router {
    Router::new()
        .route("/healthz", get(health))
        .route("/readyz", get(readiness))
        .route("/metrics", get(metrics))
        .with_state(served)
}

async fn health(State(served): State<Served>) -> Response {
    lines(&served.vitals.faults(served.clock.now()))
}

async fn readiness(State(served): State<Served>) -> Response {
    lines(&served.vitals.unready())
}

async fn metrics(State(served): State<Served>) -> Response {
    ([(CONTENT_TYPE, PROMETHEUS)], served.metrics.text()).into_response()
}

/// 200 if there is nothing to tell, else 503 with a line for each.
fn lines(told: &[String]) -> Response {
    if told.is_empty() {
        return (StatusCode::OK, "ok\n").into_response();
    }
    let text = told.iter().fold(String::new(), |mut text, line| {
        // A `String` takes every write.
        let _ = writeln!(text, "{line}");
        text
    });
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}
