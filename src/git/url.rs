//! Which repository URLs are allowed.
//!
//! Guarantees: what passes starts with no `-`, has no control character and carries no password; no message of this
//! module repeats any part of the URL.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
};

use super::GitError;

/// Why a URL is not allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Empty, or with a leading `-`, a control character, a blank or another character that has no place in it.
    #[error("the repository URL has a character that is not allowed")]
    Character,
    /// A user or password in an https URL, or a password in an ssh URL.
    #[error("the repository URL carries credentials; they belong into the credentials folder")]
    Credentials,
    /// Neither https nor ssh.
    #[error("the repository URL must be https or ssh")]
    Scheme,
    /// A local path, or plain http on loopback, without leave.
    #[error("local paths and plain http on loopback need --allow-local")]
    Local,
    /// No host, no path, or a port that is no number.
    #[error("the repository URL is not complete")]
    Incomplete,
}

impl From<UrlError> for GitError {
    fn from(error: UrlError) -> Self {
        Self::UrlNotAllowed(error.to_string())
    }
}

/// A URL that is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteUrl {
    text: String,
    place: Place,
}

/// Where a URL leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// https.
    Https,
    /// Plain http on loopback.
    LoopbackHttp,
    /// ssh, as `ssh://` or in the form `user@host:path`.
    Ssh(SshHost),
    /// A folder of this machine.
    Local(PathBuf),
}

/// The server end of an ssh URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshHost {
    /// Host name or address, without brackets.
    pub host: String,
    /// Port, 22 unless written.
    pub port: u16,
}

impl RemoteUrl {
    /// Checks a URL; `allow_local` also admits local paths and `http://` on loopback.
    pub fn parse(text: &str, allow_local: bool) -> Result<Self, UrlError> {
        if text.is_empty() || text.starts_with('-') || text.chars().any(char::is_control) {
            return Err(UrlError::Character);
        }
        let place = match text.split_once("://") {
            Some(("https", rest)) => authority(rest).map(|_| Place::Https)?,
            Some(("http", rest)) => {
                let (host, _) = authority(rest)?;
                if !is_loopback(&host) {
                    return Err(UrlError::Scheme);
                }
                Place::LoopbackHttp
            }
            Some(("ssh", rest)) => Place::Ssh(ssh(rest)?),
            Some(("file", path)) if path.starts_with('/') => Place::Local(PathBuf::from(path)),
            Some(_) => return Err(UrlError::Scheme),
            None if text.starts_with(['/', '.']) => Place::Local(PathBuf::from(text)),
            None => Place::Ssh(scp(text)?),
        };
        match place {
            Place::LoopbackHttp | Place::Local(_) if !allow_local => Err(UrlError::Local),
            place => Ok(Self { text: text.to_owned(), place }),
        }
    }

    /// The URL as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Where it leads.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// The folder, for a local path.
    pub fn local_path(&self) -> Option<&Path> {
        match &self.place {
            Place::Local(path) => Some(path),
            Place::Https | Place::LoopbackHttp | Place::Ssh(_) => None,
        }
    }
}

/// Splits `host[:port]/path`, which must have no user part.
fn authority(rest: &str) -> Result<(String, Option<u16>), UrlError> {
    let (authority, path) = rest.split_once('/').ok_or(UrlError::Incomplete)?;
    if authority.contains('@') {
        return Err(UrlError::Credentials);
    }
    network_path(path)?;
    host_and_port(authority)
}

fn ssh(rest: &str) -> Result<SshHost, UrlError> {
    let (authority, path) = rest.split_once('/').ok_or(UrlError::Incomplete)?;
    network_path(path)?;
    let host = without_user(authority)?;
    let (host, port) = host_and_port(host)?;
    Ok(SshHost { host, port: port.unwrap_or(22) })
}

/// The form `[user@]host:path`.
fn scp(text: &str) -> Result<SshHost, UrlError> {
    let (server, path) = text.split_once(':').ok_or(UrlError::Scheme)?;
    network_path(path)?;
    if path.starts_with(':') || server.contains('/') {
        return Err(UrlError::Scheme);
    }
    if path.contains('@') {
        return Err(UrlError::Credentials);
    }
    let (host, _) = host_and_port(without_user(server)?)?;
    Ok(SshHost { host, port: 22 })
}

fn without_user(authority: &str) -> Result<&str, UrlError> {
    let Some((user, host)) = authority.rsplit_once('@') else { return Ok(authority) };
    if user.contains(':') {
        return Err(UrlError::Credentials);
    }
    if user.is_empty() || user.starts_with('-') || !user.chars().all(is_name_character) {
        return Err(UrlError::Character);
    }
    Ok(host)
}

fn host_and_port(text: &str) -> Result<(String, Option<u16>), UrlError> {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, rest)) => {
            address.parse::<std::net::Ipv6Addr>().map_err(|_| UrlError::Character)?;
            (address, rest.strip_prefix(':'))
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() {
        return Err(UrlError::Incomplete);
    }
    if host.starts_with('-') || !host.chars().all(|c| is_name_character(c) || c == ':') {
        return Err(UrlError::Character);
    }
    let port = port.map(str::parse).transpose().map_err(|_| UrlError::Incomplete)?;
    Ok((host.to_owned(), port))
}

/// A query could carry a token, and a path that opens with `-` could be taken for an option on the server.
fn network_path(path: &str) -> Result<(), UrlError> {
    if path.trim_matches('/').is_empty() {
        return Err(UrlError::Incomplete);
    }
    let odd = |c: char| c.is_whitespace() || "?#\\'\"`$;&|<>(){}*!^".contains(c);
    if path.starts_with('-') || path.chars().any(odd) { Err(UrlError::Character) } else { Ok(()) }
}

fn is_name_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_')
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::{Place, RemoteUrl, SshHost, UrlError};

    fn place(text: &str) -> Result<Place, UrlError> {
        RemoteUrl::parse(text, false).map(|url| url.place)
    }

    #[test]
    fn https_and_both_forms_of_ssh_are_allowed() {
        let ssh = |host: &str, port| Ok(Place::Ssh(SshHost { host: host.into(), port }));
        assert_eq!(place("https://git.example.com/a/b.git"), Ok(Place::Https));
        assert_eq!(place("https://git.example.com:8443/a/b"), Ok(Place::Https));
        assert_eq!(place("ssh://git@git.example.com/a/b.git"), ssh("git.example.com", 22));
        assert_eq!(place("ssh://git@[fd00::1]:2222/a"), ssh("fd00::1", 2222));
        assert_eq!(place("git@git.example.com:a/b.git"), ssh("git.example.com", 22));
    }

    #[test]
    fn credentials_in_a_url_are_refused() {
        for url in [
            "https://user:pw@git.example.com/a",
            "https://token@git.example.com/a",
            "ssh://git:pw@git.example.com/a",
            "git:pw@git.example.com:a",
        ] {
            assert_eq!(place(url), Err(UrlError::Credentials), "{url}");
        }
        assert_eq!(place("https://git.example.com/a?private_token=x"), Err(UrlError::Character));
    }

    #[test]
    fn options_control_characters_and_shell_characters_are_refused() {
        for url in [
            "",
            "-oProxyCommand=x",
            "--upload-pack=x",
            "https://h/a\nb",
            "ssh://-oProxyCommand=x/a",
            "ssh://-l@h/a",
            "git@h:-x",
            "git@h:a;b",
            "git@h:a b",
        ] {
            assert_eq!(place(url), Err(UrlError::Character), "{url}");
        }
    }

    #[test]
    fn other_schemes_and_plain_http_elsewhere_are_refused_even_where_local_is_allowed() {
        for url in [
            "git://h/a",
            "ext::x",
            "http://git.example.com/a",
            "http://127.0.0.1.example.com/a",
            "ftp://h/a",
            "x",
        ] {
            assert_eq!(RemoteUrl::parse(url, true), Err(UrlError::Scheme), "{url}");
        }
    }

    #[test]
    fn local_paths_and_loopback_need_leave() {
        for url in [
            "/srv/repo.git",
            "./repo",
            "file:///srv/repo.git",
            "http://127.0.0.1:3000/a",
            "http://[::1]:3000/a",
            "http://localhost/a",
        ] {
            assert_eq!(place(url), Err(UrlError::Local), "{url}");
            assert!(RemoteUrl::parse(url, true).is_ok(), "{url}");
        }
    }
}
