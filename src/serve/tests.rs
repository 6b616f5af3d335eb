use axum::{body::Body, http::Request};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use tower::ServiceExt as _;

use super::*;

fn served() -> Served {
    Served { metrics: Metrics::default(), vitals: Vitals::default(), clock: Clock::real() }
}

async fn get(served: &Served, path: &str) -> (u16, String) {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let answer = router(served.clone()).oneshot(request).await.unwrap();
    let code = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (code, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn each_fault_and_each_thing_that_is_not_ready_has_a_line() {
    let served = served();
    assert_eq!(get(&served, "/healthz").await, (200, "ok\n".to_owned()));
    assert_eq!(get(&served, "/readyz").await, (503, "the engine has not started yet\n".to_owned()));
    served.vitals.turned(Timestamp::UNIX_EPOCH, vec!["a".to_owned(), "b".to_owned()]);
    assert_eq!(get(&served, "/readyz").await, (503, "a\nb\n".to_owned()));
    let (code, text) = get(&served, "/healthz").await;
    assert_eq!((code, text.as_str()), (503, "the engine has not turned since 1970-01-01T00:00:00Z\n"));
    served.vitals.turned(served.clock.now(), Vec::new());
    for path in ["/healthz", "/readyz"] {
        assert_eq!(get(&served, path).await, (200, "ok\n".to_owned()));
    }
}

#[tokio::test]
async fn metrics_are_text_and_nothing_else_is_served() {
    let served = served();
    let (code, text) = get(&served, "/metrics").await;
    assert_eq!(code, 200);
    assert!(
        text.contains(concat!("trunkline_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1")),
        "{text}"
    );
    assert_eq!(get(&served, "/").await.0, 404);
}

#[tokio::test]
async fn an_address_that_is_taken_is_an_error_and_one_without_a_host_takes_every_address() {
    let everywhere = listen(":0").await.unwrap();
    let port = everywhere.local_addr().unwrap().port();
    assert!(everywhere.local_addr().unwrap().ip().is_unspecified());
    tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let taken = listen(&format!(":{port}")).await.unwrap_err();
    assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
}
