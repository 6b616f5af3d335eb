//! An ssh server on loopback in front of a bare repository: `sshd` with a key of its own, which takes one ed25519 key.
//!
//! It runs as whoever runs the tests and logs in as the same user; nothing outside of its folder is touched but the
//! empty `/run/sshd`, which `sshd` wants to see when it is started by root.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

const SSHD: &str = "/usr/sbin/sshd";

/// The server; it ends when dropped.
pub(crate) struct SshServer {
    dir: TempDir,
    port: u16,
    user: String,
    child: Child,
}

impl SshServer {
    /// Whether there is an `sshd` on this machine. If there is none, that is told; where nothing may be left out it is
    /// a failure.
    pub(crate) fn is_available() -> bool {
        let there = Path::new(SSHD).exists();
        if !there {
            eprintln!("left out: Git over ssh, since {SSHD} is not there");
            assert!(
                std::env::var_os("TRUNKLINE_LEAVE_OUT").is_none_or(|value| value != "nothing"),
                "TRUNKLINE_LEAVE_OUT=nothing: please install openssh-server"
            );
        }
        there
    }

    /// Starts it on a port of its own.
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for (key, file) in [("host key", "hostkey"), ("key of the user", "key")] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-C", key, "-f"])
                .arg(at(file))
                .status();
            assert!(made.unwrap().success(), "ssh-keygen");
        }
        fs::copy(at("key.pub"), at("authorized_keys")).unwrap();
        // Only root needs it and only root can make it.
        let _there_or_not_needed = fs::create_dir_all("/run/sshd");
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\nPidFile none\n\
             PermitRootLogin prohibit-password\n",
            at("hostkey").display(),
            at("authorized_keys").display(),
        );
        fs::write(at("sshd_config"), config).unwrap();
        let mut child = Command::new(SSHD)
            .args(["-D", "-e", "-f"])
            .arg(at("sshd_config"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        wait(&mut child);
        let who = Command::new("id").arg("-un").output().unwrap();
        let user = String::from_utf8(who.stdout).unwrap().trim().to_owned();
        let server = Self { dir, port, user, child };
        server.write_credentials();
        server
    }

    /// URL of a repository on this machine.
    pub(crate) fn url(&self, repository: &Path) -> String {
        format!("ssh://{}@127.0.0.1:{}{}", self.user, self.port, repository.display())
    }

    /// A credentials folder with the right key, and the key of the server in `known_hosts`.
    pub(crate) fn credentials(&self) -> PathBuf {
        self.dir.path().join("credentials")
    }

    fn write_credentials(&self) {
        let folder = self.credentials();
        fs::create_dir(&folder).unwrap();
        fs::copy(self.dir.path().join("key"), folder.join("ssh-privatekey")).unwrap();
        fs::set_permissions(folder.join("ssh-privatekey"), fs::Permissions::from_mode(0o600)).unwrap();
        let key = fs::read_to_string(self.dir.path().join("hostkey.pub")).unwrap();
        fs::write(folder.join("known_hosts"), format!("[127.0.0.1]:{} {key}", self.port)).unwrap();
    }
}

/// Waits until the server listens; what it says afterwards is read away, so that it never waits for a reader.
fn wait(child: &mut Child) {
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut said = Vec::new();
    let listens = |line: &String| line.starts_with("Server listening");
    while !said.last().is_some_and(listens) {
        said.push(lines.next().unwrap_or_else(|| panic!("sshd ended: {said:?}")).unwrap());
    }
    std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
}

impl Drop for SshServer {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}
