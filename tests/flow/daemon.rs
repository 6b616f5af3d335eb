//! `trunkline run` as a process over a served embedded cluster, and what it tells over HTTP.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    thread::JoinHandle,
    time::Duration,
};

use serde_json::Value;
use trunkline::{clock::later, sim::api::ServedCluster};

use super::stage::Stage;

/// The binary without anything of this machine's user.
pub(super) fn trunkline(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trunkline"));
    command.env_clear().env("HOME", home).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A running daemon; it is killed when dropped.
pub(super) struct Daemon<'s> {
    stage: &'s Stage,
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    reader: Option<JoinHandle<()>>,
    _served: ServedCluster,
}

impl<'s> Daemon<'s> {
    /// Starts one on the stage with this configuration.
    pub(super) fn start(stage: &'s Stage, config: &Path) -> Self {
        let served = stage.cluster.serve(0).unwrap();
        let kubeconfig = stage.dir.path().join("kubeconfig");
        std::fs::write(&kubeconfig, served.kubeconfig()).unwrap();
        let mut child = trunkline(stage.dir.path())
            .args(["run", "--allow-local", "--leader-elect=false"])
            .args(["--metrics-bind-address", "127.0.0.1:0", "--config"])
            .arg(config)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .spawn()
            .unwrap();
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let (told, stderr) = (Arc::clone(&lines), child.stderr.take().unwrap());
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                told.lock().unwrap().push(line);
            }
        });
        Self { stage, child, lines, reader: Some(reader), _served: served }
    }

    /// Everything that it logged.
    pub(super) fn log(&self) -> String {
        self.lines.lock().unwrap().join("\n")
    }

    /// Waits until something holds; fails with the log after a minute.
    pub(super) async fn until<T>(&self, what: &str, holds: impl Fn(&Self) -> Option<T>) -> T {
        let clock = self.stage.clock;
        let deadline = later(clock.now(), Duration::from_secs(60));
        loop {
            if let Some(found) = holds(self) {
                return found;
            }
            assert!(clock.now() < deadline, "{what}: not within a minute\n{}", self.log());
            clock.sleep_until(later(clock.now(), Duration::from_millis(20))).await;
        }
    }

    /// Waits for a log line with this message, and gives all its fields.
    pub(super) async fn says(&self, message: &str) -> Value {
        self.until(message, |daemon| {
            let lines = daemon.lines.lock().unwrap();
            let mut values = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            values.find(|value| value["message"].as_str().is_some_and(|text| text.contains(message)))
        })
        .await
    }

    /// Where it serves.
    pub(super) async fn address(&self) -> String {
        self.says("serves health and metrics").await["address"].as_str().unwrap().to_owned()
    }

    /// Sends SIGTERM.
    pub(super) fn terminate(&self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    }

    /// Waits for its end.
    pub(super) fn ended(mut self) -> (ExitStatus, String) {
        let status = self.child.wait().unwrap();
        self.reader.take().unwrap().join().unwrap();
        (status, self.log())
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        // It has ended already where the test went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Answer of a server: code and body; nothing if it does not answer.
pub(super) fn get(address: &str, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: daemon\r\nConnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}

/// Writes the configuration that a stage needs into a file.
pub(super) fn config(stage: &Stage) -> PathBuf {
    let path = stage.dir.path().join("config.yaml");
    let url = stage.remote.path().display();
    let text = format!("cluster: prod\nrepositories:\n- name: platform\n  url: {url}\n  poll: 1s\n");
    std::fs::write(&path, text).unwrap();
    path
}
