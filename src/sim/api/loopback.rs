//! The same service on a loopback port, for `kubectl` and other processes.
//!
//! Guarantees: only this machine can reach it, and only under the secret path of this run. It is a path because
//! `kubectl` sends no token to a server without TLS.

use std::{
    convert::Infallible,
    fmt::{self, Write as _},
    io,
    net::{SocketAddr, TcpListener},
    thread::JoinHandle,
};

use http::{Request, Uri, uri::PathAndQuery};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use ring::rand::SecureRandom;
use tokio::sync::oneshot;

use super::{
    EmbeddedCluster,
    failure::Failure,
    service::{ApiService, failed},
};

/// A cluster that answers on a loopback port until it is dropped.
pub struct ServedCluster {
    addr: SocketAddr,
    token: String,
    stop: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for ServedCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServedCluster {{ addr: {} }}", self.addr)
    }
}

impl EmbeddedCluster {
    /// Serves it on a loopback port (0 = any free one), on a thread with a runtime and a real clock of its own: requests
    /// are answered also while the cluster's own clock is paused.
    pub fn serve(&self, port: u16) -> io::Result<ServedCluster> {
        let listener = TcpListener::bind(("127.0.0.1", port))?;
        listener.set_nonblocking(true)?;
        let addr = listener.local_addr()?;
        let token = new_token()?;
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let accepting = accept(listener, self.service(), format!("/{token}"));
        let thread = std::thread::Builder::new().name("embedded-api".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    biased;
                    // The sender is never used, only dropped.
                    _ = stopped => {}
                    // Without a listener nothing can be served; clients see it as a refused connection.
                    _ = accepting => {}
                }
            });
        })?;
        Ok(ServedCluster { addr, token, stop: Some(stop), thread: Some(thread) })
    }
}

impl ServedCluster {
    /// Where it answers.
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Address of the API, with the secret path.
    pub fn url(&self) -> String {
        format!("http://{}/{}", self.addr, self.token)
    }

    /// A kubeconfig for it, as YAML. It holds the secret path.
    pub fn kubeconfig(&self) -> String {
        let url = self.url();
        format!(
            "apiVersion: v1\n\
             kind: Config\n\
             current-context: embedded\n\
             clusters:\n\
             - name: embedded\n  cluster:\n    server: {url}\n\
             users:\n\
             - name: embedded\n  user: {{}}\n\
             contexts:\n\
             - name: embedded\n  context:\n    cluster: embedded\n    user: embedded\n    namespace: default\n"
        )
    }
}

impl Drop for ServedCluster {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic there was reported there.
            let _ = thread.join();
        }
    }
}

fn new_token() -> io::Result<String> {
    let mut bytes = [0_u8; 24];
    ring::rand::SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| io::Error::other("the system has no randomness"))?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

async fn accept(listener: TcpListener, service: ApiService, prefix: String) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        let (service, prefix) = (service.clone(), prefix.clone());
        let answer = service_fn(move |mut request: Request<Incoming>| {
            let inner = below(&prefix, request.uri());
            let service = service.clone();
            async move {
                let Some(inner) = inner else { return Ok(failed(&Failure::Unauthorized)) };
                *request.uri_mut() = inner;
                service.answer(request).await
            }
        });
        tokio::spawn(async move {
            // A connection that breaks is the client's to notice.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}

/// The address without the prefix, if it has it.
fn below(prefix: &str, uri: &Uri) -> Option<Uri> {
    let inner = uri.path_and_query()?.as_str().strip_prefix(prefix)?;
    let inner: PathAndQuery = inner.parse().ok().filter(|_| inner.starts_with('/'))?;
    Some(Uri::from(inner))
}
