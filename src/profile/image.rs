//! Image references: what a new version changes in one, and what a private mirror keeps.

use serde::Deserialize;

use super::version::Version;
use crate::manifest::wish::normalise;

/// `registry:5000/path/name`, `tag` and digest of an image reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ImageRef<'a> {
    /// Registry and path.
    pub(super) name: &'a str,
    /// Tag, if one is written.
    pub(super) tag: Option<&'a str>,
}

impl<'a> ImageRef<'a> {
    /// Splits a reference; a digest is left out, since it names the version that was.
    pub(super) fn of(image: &'a str) -> Self {
        let named = image.split_once('@').map_or(image, |(named, _)| named);
        match named.rsplit_once(':') {
            // A colon before the last slash belongs to the registry's port.
            Some((name, tag)) if !tag.contains('/') => Self { name, tag: Some(tag) },
            Some(_) | None => Self { name: named, tag: None },
        }
    }
}

/// `v{version}` or `{version}`, with a fixed ending where the images have one (`v{version}-thick`).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Tag {
    v: bool,
    ending: String,
}

impl TryFrom<String> for Tag {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (v, rest) = text.strip_prefix('v').map_or((false, text.as_str()), |rest| (true, rest));
        match rest.strip_prefix("{version}") {
            Some(ending) if !ending.contains(['{', '}']) => Ok(Self { v, ending: ending.to_owned() }),
            Some(_) | None => Err(format!(
                "`{text}` is no tag; write `v{{version}}` or `{{version}}`, and an ending if need be"
            )),
        }
    }
}

impl Tag {
    /// Version in a live tag, normalised, with or without the `v` of this pattern.
    pub(super) fn read(&self, tag: &str) -> Option<String> {
        let version = tag.strip_suffix(self.ending.as_str())?;
        Version::parse(version).map(|_| normalise(version))
    }

    /// Tag of a version; a leading `v` is written as the live tag has it, if that is a version at all.
    pub(super) fn write(&self, version: &str, live: Option<&str>) -> String {
        let v = live.filter(|tag| self.read(tag).is_some()).map_or(self.v, |tag| tag.starts_with(['v', 'V']));
        format!("{}{version}{}", if v { "v" } else { "" }, self.ending)
    }
}
