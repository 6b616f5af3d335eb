//! The `known_hosts` file of a credentials folder, in OpenSSH's format.
//!
//! Guarantees: a key that is not listed for exactly this host and port is not known; a revoked key is never known; no
//! entry is ever added. Limits: `@cert-authority` lines are passed over.

use ring::hmac;

/// Keys of ssh servers.
pub(super) struct KnownHosts(Vec<Line>);

struct Line {
    revoked: bool,
    hosts: Hosts,
    key: Vec<u8>,
}

enum Hosts {
    /// Comma-separated patterns; `!` excludes.
    Patterns(String),
    /// HMAC-SHA1 of the name under a salt.
    Hashed { salt: Vec<u8>, hash: Vec<u8> },
}

impl KnownHosts {
    /// Reads the file; lines that are not understood are passed over, since they can only make fewer keys known.
    pub(super) fn parse(text: &str) -> Self {
        Self(text.lines().filter_map(Line::parse).collect())
    }

    /// Says whether the server may have this key (the raw public key as sent on the wire).
    pub(super) fn knows(&self, host: &str, port: u16, key: &[u8]) -> bool {
        let host = host.to_ascii_lowercase();
        let name = if port == 22 { host } else { format!("[{host}]:{port}") };
        let mut lines = self.0.iter().filter(|line| line.key == key && line.hosts.contain(&name)).peekable();
        lines.peek().is_some() && lines.all(|line| !line.revoked)
    }
}

impl Line {
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split_ascii_whitespace().peekable();
        let revoked = match fields.peek()? {
            comment if comment.starts_with('#') => return None,
            &"@revoked" => fields.next().is_some(),
            marker if marker.starts_with('@') => return None,
            _ => false,
        };
        let hosts = Hosts::parse(fields.next()?)?;
        let _kind = fields.next()?;
        Some(Self { revoked, hosts, key: base64(fields.next()?)? })
    }
}

impl Hosts {
    fn parse(field: &str) -> Option<Self> {
        let Some(hashed) = field.strip_prefix("|1|") else {
            return Some(Self::Patterns(field.to_ascii_lowercase()));
        };
        let (salt, hash) = hashed.split_once('|')?;
        Some(Self::Hashed { salt: base64(salt)?, hash: base64(hash)? })
    }

    fn contain(&self, name: &str) -> bool {
        match self {
            Self::Hashed { salt, hash } => {
                let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, salt);
                hmac::verify(&key, name.as_bytes(), hash).is_ok()
            }
            Self::Patterns(patterns) => {
                let excluded = |pattern: &str| {
                    pattern.strip_prefix('!').is_some_and(|pattern| fits(pattern.as_bytes(), name.as_bytes()))
                };
                !patterns.split(',').any(excluded)
                    && patterns.split(',').any(|pattern| fits(pattern.as_bytes(), name.as_bytes()))
            }
        }
    }
}

/// Matches with `*` and `?`, as OpenSSH does.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => {
            fits(rest, name) || name.split_first().is_some_and(|(_, name)| fits(pattern, name))
        }
        (Some((b'?', pattern)), Some((_, name))) => fits(pattern, name),
        (Some((wanted, pattern)), Some((found, name))) => wanted == found && fits(pattern, name),
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// Decodes base64 with or without padding; absent = not base64.
fn base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let (mut bits, mut held) = (0_u32, 0_u32);
    for c in text.trim_end_matches('=').bytes() {
        let digit = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6) | u32::from(digit);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push(u8::try_from((bits >> held) & 0xff).ok()?);
            bits &= (1 << held) - 1;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::{KnownHosts, base64};

    const KEY: &str = "AAAAC3NzaC1lZDI1NTE5AAAAIGZvb2Jhcg==";

    fn knows(text: &str, host: &str, port: u16) -> bool {
        KnownHosts::parse(text).knows(host, port, &base64(KEY).unwrap())
    }

    #[test]
    fn a_key_is_known_only_for_its_host_and_port() {
        let text = format!(
            "# comment\n\ngit.example.com,10.0.0.1 ssh-ed25519 {KEY} note\n[h]:2222 ssh-ed25519 {KEY}\n"
        );
        assert!(knows(&text, "git.example.com", 22));
        assert!(knows(&text, "GIT.example.com", 22));
        assert!(knows(&text, "10.0.0.1", 22));
        assert!(knows(&text, "h", 2222));
        assert!(!knows(&text, "h", 22));
        assert!(!knows(&text, "git.example.com", 2222));
        assert!(!knows(&text, "other", 22));
        assert!(!KnownHosts::parse(&text).knows("git.example.com", 22, b"another key"));
    }

    #[test]
    fn patterns_exclusions_and_revocations_count() {
        assert!(knows(&format!("*.example.com ssh-ed25519 {KEY}"), "git.example.com", 22));
        assert!(!knows(&format!("!git.example.com,*.example.com ssh-ed25519 {KEY}"), "git.example.com", 22));
        assert!(!knows(&format!("h ssh-ed25519 {KEY}\n@revoked * ssh-ed25519 {KEY}"), "h", 22));
        assert!(!knows(&format!("@cert-authority h ssh-ed25519 {KEY}"), "h", 22));
    }

    #[test]
    fn hashed_names_are_understood() {
        // HMAC-SHA1 of `git.example.com` under the salt `01234567890123456789`.
        let hashed = "|1|MDEyMzQ1Njc4OTAxMjM0NTY3ODk=|0ZRtCzM3I2S07EZ7agkDbp9iGpE=";
        let text = format!("{hashed} ssh-ed25519 {KEY}");
        assert!(knows(&text, "git.example.com", 22));
        assert!(!knows(&text, "other.example.com", 22));
    }

    #[test]
    fn base64_is_decoded_with_and_without_padding() {
        assert_eq!(base64("Zm9vYmE="), Some(b"fooba".to_vec()));
        assert_eq!(base64("Zm9vYg"), Some(b"foob".to_vec()));
        assert_eq!(base64("Zm9v Yg"), None);
    }
}
