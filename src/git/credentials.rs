//! Credentials of one attempt, read anew from their folder so that a rotated secret counts at once.
//!
//! Guarantees: each kind of credential is offered once per attempt; the key of an ssh server is always checked against
//! `known_hosts`; texts pass through `printable` before anybody sees them.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use git2::{CertificateCheckStatus, Cred, CredentialType, ErrorClass, ErrorCode, RemoteCallbacks};

use super::{
    GitError,
    known_hosts::KnownHosts,
    url::{Place, RemoteUrl, SshHost},
};
use crate::secret::Secret;

/// User of a token where no `username` is given.
const TOKEN_USER: &str = "x-access-token";
/// User of an ssh connection where neither URL nor folder names one.
const SSH_USER: &str = "git";
/// Said of a server whose key is not known; libgit2 keeps the code of a refusal, but not its text.
pub(super) const UNKNOWN_HOST: &str =
    "the key of the ssh server is not in known_hosts of the credentials folder";
/// Bytes of a foreign text that are kept.
const MAX_TEXT: usize = 1024;

/// What a credentials folder holds.
#[derive(Default)]
pub(super) struct Credentials {
    user: Option<String>,
    password: Option<Secret>,
    private_key: Option<Secret>,
    known_hosts: Option<KnownHosts>,
}

impl Credentials {
    /// Reads the folder; files that are absent are left out.
    pub(super) fn read(folder: Option<&Path>) -> Result<Self, GitError> {
        let Some(folder) = folder else { return Ok(Self::default()) };
        if !folder.is_dir() {
            let text = format!("credentials: there is no folder {}", folder.display());
            return Err(GitError::Unauthorised(text));
        }
        let read = |name: &str| match fs::read_to_string(folder.join(name)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(GitError::Unauthorised(format!("credentials: {name} cannot be read: {error}"))),
        };
        let line = |name: &str| {
            read(name).map(|text| text.map(|text| text.trim_end_matches(['\r', '\n']).to_owned()))
        };
        let token = line("token")?;
        let user = line("username")?.or_else(|| token.as_ref().map(|_| TOKEN_USER.to_owned()));
        Ok(Self {
            user,
            password: token.or(line("password")?).map(Secret::new),
            private_key: read("ssh-privatekey")?.map(Secret::new),
            known_hosts: read("known_hosts")?.map(|text| KnownHosts::parse(&text)),
        })
    }

    /// The certificates to trust, if the folder has some.
    pub(super) fn certificates(folder: Option<&Path>) -> Option<PathBuf> {
        folder.map(|folder| folder.join("ca.crt")).filter(|file| file.is_file())
    }

    /// Callbacks for one attempt.
    pub(super) fn callbacks<'a>(&'a self, url: &'a RemoteUrl) -> RemoteCallbacks<'a> {
        let mut offered = false;
        let mut callbacks = RemoteCallbacks::new();
        callbacks.credentials(move |_, user_in_url, allowed| {
            if allowed.contains(CredentialType::USERNAME) {
                return Cred::username(self.ssh_user(user_in_url));
            }
            if offered {
                return Err(refused("the server did not accept the credentials"));
            }
            offered = true;
            self.offer(user_in_url, allowed)
        });
        callbacks.certificate_check(move |certificate, _| match url.place() {
            Place::Ssh(server) => {
                self.check_host_key(server, certificate.as_hostkey().and_then(|c| c.hostkey()))
            }
            // libgit2's own verdict counts.
            Place::Https | Place::LoopbackHttp | Place::Local(_) => {
                Ok(CertificateCheckStatus::CertificatePassthrough)
            }
        });
        callbacks
    }

    fn offer(&self, user_in_url: Option<&str>, allowed: CredentialType) -> Result<Cred, git2::Error> {
        if allowed.contains(CredentialType::SSH_MEMORY)
            && let Some(key) = &self.private_key
        {
            return Cred::ssh_key_from_memory(self.ssh_user(user_in_url), None, key.expose(), None);
        }
        if allowed.contains(CredentialType::USER_PASS_PLAINTEXT)
            && let Some(password) = &self.password
        {
            let user = user_in_url.or(self.user.as_deref()).unwrap_or_default();
            return Cred::userpass_plaintext(user, password.expose());
        }
        Err(refused("the server asks for credentials and there are none for it"))
    }

    fn ssh_user<'a>(&'a self, user_in_url: Option<&'a str>) -> &'a str {
        user_in_url.or(self.user.as_deref()).unwrap_or(SSH_USER)
    }

    fn check_host_key(
        &self,
        server: &SshHost,
        key: Option<&[u8]>,
    ) -> Result<CertificateCheckStatus, git2::Error> {
        let Some(known) = &self.known_hosts else {
            return Err(unknown_host());
        };
        if key.is_some_and(|key| known.knows(&server.host, server.port, key)) {
            Ok(CertificateCheckStatus::CertificateOk)
        } else {
            Err(unknown_host())
        }
    }

    /// A foreign text for people: secrets replaced, control characters turned into blanks, at most 1 KiB.
    pub(super) fn printable(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in [&self.password, &self.private_key].into_iter().flatten() {
            if !secret.expose().is_empty() {
                text = text.replace(secret.expose(), "***");
            }
        }
        let mut kept = String::new();
        for word in text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty())
        {
            if !kept.is_empty() {
                kept.push(' ');
            }
            kept.push_str(&without_user_part(word));
        }
        while kept.len() > MAX_TEXT {
            kept.pop();
        }
        kept
    }

    /// Sorts an error of the network: 401, 403 and refused credentials or keys, or anything else.
    pub(super) fn network_error(&self, error: &git2::Error) -> GitError {
        let text = self.printable(error.message());
        // libgit2 has no error code for an HTTP status, and none for a private key that cannot be read.
        let forbidden = ["status code: 401", "status code: 403", "failed to authenticate SSH session"]
            .iter()
            .any(|status| text.contains(status));
        if error.code() == ErrorCode::Certificate && error.class() == ErrorClass::Ssh {
            GitError::Unauthorised(UNKNOWN_HOST.to_owned())
        } else if error.code() == ErrorCode::Auth || forbidden {
            GitError::Unauthorised(text)
        } else {
            GitError::Unreachable(text)
        }
    }

    /// Sorts an error of a fetch or push, which can also come from the clone.
    pub(super) fn transfer_error(&self, error: &git2::Error) -> GitError {
        match error.class() {
            ErrorClass::Net | ErrorClass::Http | ErrorClass::Ssl | ErrorClass::Ssh | ErrorClass::Callback => {
                self.network_error(error)
            }
            _ => GitError::Clone(self.printable(error.message())),
        }
    }
}

fn refused(text: &str) -> git2::Error {
    git2::Error::new(ErrorCode::Auth, ErrorClass::Callback, text)
}

fn unknown_host() -> git2::Error {
    git2::Error::new(ErrorCode::Certificate, ErrorClass::Callback, UNKNOWN_HOST)
}

/// Replaces `user:password@` in a URL.
fn without_user_part(word: &str) -> String {
    let Some((scheme, rest)) = word.split_once("://") else { return word.to_owned() };
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    match authority.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://***@{host}{path}"),
        None => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Credentials, GitError, Path};
    use crate::secret::Secret;

    fn with_password(password: &str) -> Credentials {
        Credentials { password: Some(Secret::new(password)), ..Credentials::default() }
    }

    #[test]
    fn secrets_and_user_parts_are_replaced() {
        let credentials = with_password("s3cret");
        let text = "no: s3cret is wrong for https://bot:s3cret@git.example.com/a and ssh://u:p@h";
        assert_eq!(
            credentials.printable(text),
            "no: *** is wrong for https://***@git.example.com/a and ssh://***@h"
        );
    }

    #[test]
    fn a_foreign_text_is_bounded_and_on_one_line() {
        let credentials = Credentials::default();
        assert_eq!(credentials.printable("a\r\n\x1b[31mb\t c\n"), "a [31mb c");
        assert_eq!(credentials.printable(&"ä".repeat(2000)).len(), 1024);
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let Err(GitError::Unauthorised(text)) = Credentials::read(Some(Path::new("/nope/git"))) else {
            panic!("a folder that is not there was read");
        };
        assert!(text.contains("/nope/git"), "{text}");
    }

    #[test]
    fn a_token_has_a_user_of_its_own_unless_one_is_given() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("token"), "t\n").unwrap();
        let read = || Credentials::read(Some(folder.path())).ok().unwrap();
        assert_eq!(read().user.as_deref(), Some("x-access-token"));
        assert_eq!(read().password.unwrap().expose(), "t");
        std::fs::write(folder.path().join("username"), "bot\n").unwrap();
        assert_eq!(read().user.as_deref(), Some("bot"));
    }
}
