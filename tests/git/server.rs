//! A Git server on loopback HTTP that can be told to misbehave.
//!
//! `git http-backend` serves one bare repository behind basic authentication with [`TOKEN`]. Use it as
//! `let server = GitServer::start(); server.repository().commit("main", &[("a.yaml", "a: 1")]);`, hand
//! [`GitServer::url`] and [`GitServer::credentials`] to the code under test, and switch with [`GitServer::behave`].

use std::{
    fs,
    io::{self, Write},
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tempfile::TempDir;
use tokio::{net::TcpListener, runtime::Runtime};

use super::bare::Bare;

/// The one token that the server takes, for the user `x-access-token`.
pub(crate) const TOKEN: &str = "test-token-4711";
/// `x-access-token:test-token-4711` as a header.
pub(crate) const AUTHORIZATION: &str = "Basic eC1hY2Nlc3MtdG9rZW46dGVzdC10b2tlbi00NzEx";

/// How the server answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behaviour {
    /// As it should.
    Serve,
    /// 401 to whoever asks.
    Unauthorised,
    /// 403 to whoever asks.
    Forbidden,
    /// Serves whoever reads, and 403 to whoever wants to push.
    ReadOnly,
    /// 503 to whoever asks.
    Unavailable,
    /// Sends whoever asks to the same server under the name of another host.
    Redirect,
    /// Takes a push, then closes the connection without an answer.
    CutAfterPush,
    /// Closes every connection at once.
    Away,
}

/// The server; it ends when dropped.
pub(crate) struct GitServer {
    dir: TempDir,
    address: SocketAddr,
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
}

struct Shared {
    root: PathBuf,
    port: u16,
    behaviour: Mutex<Behaviour>,
    requests: Mutex<Vec<String>>,
}

impl GitServer {
    /// Starts a server of an empty repository, on a port of its own.
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Bare::init(&dir.path().join("repo.git"));
        fs::create_dir(dir.path().join("credentials")).unwrap();
        fs::write(dir.path().join("credentials/token"), TOKEN).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            root: dir.path().to_owned(),
            port: address.port(),
            behaviour: Mutex::new(Behaviour::Serve),
            requests: Mutex::default(),
        });
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.spawn(accept(listener, shared.clone()));
        Self { dir, address, shared, runtime: Some(runtime) }
    }

    /// URL of the repository.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/repo.git", self.address)
    }

    /// A credentials folder with the right token in the file `token`.
    pub(crate) fn credentials(&self) -> PathBuf {
        self.dir.path().join("credentials")
    }

    /// The repository on disk.
    pub(crate) fn repository(&self) -> Bare {
        Bare::at(&self.dir.path().join("repo.git"))
    }

    /// Answers like this from now on.
    pub(crate) fn behave(&self, behaviour: Behaviour) {
        *self.shared.behaviour.lock().unwrap() = behaviour;
    }

    /// Refuses every push from now on with this text, as a protected branch does.
    pub(crate) fn refuse_pushes(&self, text: &str) {
        self.hook("pre-receive", &format!("echo '{text}' >&2\nexit 1"));
    }

    /// Refuses every push to one branch from now on with this text, and takes pushes to others.
    pub(crate) fn refuse_pushes_to(&self, branch: &str, text: &str) {
        self.hook(
            "update",
            &format!("[ \"$1\" = refs/heads/{branch} ] || exit 0\necho '{text}' >&2\nexit 1"),
        );
    }

    /// During the next push moves a branch to a commit that the repository already has.
    pub(crate) fn move_during_next_push(&self, branch: &str, commit: &str) {
        let own = "env -u GIT_QUARANTINE_PATH -u GIT_OBJECT_DIRECTORY -u GIT_ALTERNATE_OBJECT_DIRECTORIES";
        self.hook(
            "pre-receive",
            &format!(
                "rm -f hooks/pre-receive\n{own} git --git-dir=. update-ref refs/heads/{branch} {commit}"
            ),
        );
    }

    #[allow(dead_code, reason = "only the runner with a real API server needs it")]
    /// Has a hook run a command once, at the next push to one branch.
    pub(crate) fn at_next_push_to(&self, branch: &str, hook: &str, command: &str) {
        let script = format!("rm -f hooks/{hook}\n{command}");
        let guarded = format!("case \"$refs\" in *\" refs/heads/{branch}\"*) ;; *) exit 0 ;; esac\n{script}");
        self.hook(hook, &guarded);
    }

    /// Takes pushes again.
    pub(crate) fn allow_pushes(&self) {
        for name in ["pre-receive", "update"] {
            let _absent_is_fine = fs::remove_file(self.dir.path().join("repo.git/hooks").join(name));
        }
    }

    /// Requests so far, as `METHOD path status`; status 0 = closed without an answer.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.shared.requests.lock().unwrap().clone()
    }

    fn hook(&self, name: &str, script: &str) {
        let hooks = self.dir.path().join("repo.git/hooks");
        fs::create_dir_all(&hooks).unwrap();
        let (draft, hook) = (hooks.join("draft"), hooks.join(name));
        fs::write(&draft, format!("#!/bin/sh\nrefs=$(cat)\n{script}\n")).unwrap();
        fs::set_permissions(&draft, fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(&draft, &hook).unwrap();
    }
}

impl Drop for GitServer {
    fn drop(&mut self) {
        // Also works inside another runtime, where waiting is not allowed.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn accept(listener: std::net::TcpListener, shared: Arc<Shared>) {
    let listener = TcpListener::from_std(listener).unwrap();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        if *shared.behaviour.lock().unwrap() == Behaviour::Away {
            continue;
        }
        let shared = shared.clone();
        let service = hyper::service::service_fn(move |request| answer(shared.clone(), request));
        tokio::spawn(
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
        );
    }
}

async fn answer(shared: Arc<Shared>, request: Request<Incoming>) -> io::Result<Response<Full<Bytes>>> {
    let line = format!("{} {}", request.method(), request.uri().path());
    let behaviour = *shared.behaviour.lock().unwrap();
    let is_push = request.method() == Method::POST && line.ends_with("/git-receive-pack");
    let authorised = request.headers().get(header::AUTHORIZATION).is_some_and(|value| value == AUTHORIZATION);
    let response = match behaviour {
        Behaviour::Away => Err(io::ErrorKind::ConnectionReset.into()),
        Behaviour::Redirect => Ok(redirect(&shared, request.uri())),
        Behaviour::Unavailable => Ok(refusal(StatusCode::SERVICE_UNAVAILABLE)),
        Behaviour::Forbidden => Ok(refusal(StatusCode::FORBIDDEN)),
        Behaviour::Unauthorised => Ok(refusal(StatusCode::UNAUTHORIZED)),
        Behaviour::ReadOnly if request.uri().to_string().contains("git-receive-pack") => {
            Ok(refusal(StatusCode::FORBIDDEN))
        }
        Behaviour::Serve | Behaviour::ReadOnly | Behaviour::CutAfterPush if !authorised => {
            Ok(refusal(StatusCode::UNAUTHORIZED))
        }
        Behaviour::Serve | Behaviour::ReadOnly | Behaviour::CutAfterPush => {
            let (head, body) = request.into_parts();
            let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
            let root = shared.root.clone();
            let response =
                tokio::task::spawn_blocking(move || backend(&root, &head, &body)).await.unwrap()?;
            if is_push && behaviour == Behaviour::CutAfterPush {
                Err(io::ErrorKind::ConnectionReset.into())
            } else {
                Ok(response)
            }
        }
    };
    let status = response.as_ref().map_or(0, |response| response.status().as_u16());
    shared.requests.lock().unwrap().push(format!("{line} {status}"));
    response
}

fn redirect(shared: &Shared, uri: &http::Uri) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    let location = format!("http://localhost:{}{uri}", shared.port);
    response.headers_mut().insert(header::LOCATION, location.parse().unwrap());
    response
}

fn refusal(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, "Basic realm=\"test\"".parse().unwrap());
    }
    response
}

/// Runs `git http-backend` as a CGI program.
fn backend(root: &Path, head: &http::request::Parts, body: &[u8]) -> io::Result<Response<Full<Bytes>>> {
    let header =
        |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut child = Command::new("git")
        .arg("http-backend")
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("HOME", root)
        .env("REMOTE_USER", "bot")
        .env("REMOTE_ADDR", "127.0.0.1")
        .env("REQUEST_METHOD", head.method.as_str())
        .env("PATH_INFO", head.uri.path())
        .env("QUERY_STRING", head.uri.query().unwrap_or_default())
        .env("CONTENT_TYPE", header("content-type"))
        .env("CONTENT_LENGTH", body.len().to_string())
        .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    child.stdin.take().unwrap().write_all(body)?;
    let output = child.wait_with_output()?.stdout;
    let end = output.windows(4).position(|window| window == b"\r\n\r\n").ok_or(io::ErrorKind::InvalidData)?;
    let mut response = Response::new(Full::from(output[end + 4..].to_vec()));
    for line in String::from_utf8_lossy(&output[..end]).lines() {
        let (name, value) = line.split_once(": ").ok_or(io::ErrorKind::InvalidData)?;
        if name == "Status" {
            *response.status_mut() = value.get(..3).unwrap_or_default().parse().map_err(io::Error::other)?;
        } else {
            let name: header::HeaderName = name.parse().map_err(io::Error::other)?;
            response.headers_mut().insert(name, value.parse().map_err(io::Error::other)?);
        }
    }
    Ok(response)
}
