//! Versions as CNIs number them, ranges of them, and how far one jump may go.

use std::fmt;

use serde::Deserialize;

use crate::manifest::wish::normalise;

/// `major.minor.patch` with an optional pre-release, ordered as semantic versioning says.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    core: Core,
    stage: Stage,
}

type Core = (u64, u64, u64);

/// A pre-release comes before its release: the order of the variants is the order of versions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    PreRelease(Vec<Identifier>),
    Release,
}

/// Numbers come before words and compare as numbers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Identifier {
    Number(u64),
    Word(String),
}

impl Version {
    /// Reads `v3.28.0`, `3.28.0` or `3.28.0-rc.1`; anything else is no version.
    pub fn parse(text: &str) -> Option<Self> {
        let text = normalise(text);
        let (core, stage) = match text.split_once('-') {
            Some((core, pre)) => (core, Stage::PreRelease(identifiers(pre)?)),
            None => (text.as_str(), Stage::Release),
        };
        let mut parts = core.split('.').map(part);
        let core = (parts.next()??, parts.next()??, parts.next()??);
        parts.next().is_none().then_some(Self { core, stage })
    }

    /// Minors from here up to `other`; absent when the majors differ or `other` is below.
    fn minors_up_to(&self, other: &Self) -> Option<u64> {
        let ((major, minor, _), (other_major, other_minor, _)) = (self.core, other.core);
        (major == other_major).then(|| other_minor.checked_sub(minor)).flatten()
    }
}

/// A number without leading zeros, as semantic versioning wants it: `v3.08.0` is the tag of no image.
fn part(text: &str) -> Option<u64> {
    (text == "0" || !text.starts_with('0')).then(|| number(text)).flatten()
}

/// Digits only: `+1` and blanks, which integers accept, are no part of a version.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn identifiers(text: &str) -> Option<Vec<Identifier>> {
    text.split('.')
        .map(|part| {
            let word =
                !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
            word.then(|| number(part).map_or_else(|| Identifier::Word(part.to_owned()), Identifier::Number))
        })
        .collect()
}

/// A range of versions: `*`, `>=3.15`, `<3.33`, or both bounds with a blank between. Pre-releases count as their release.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Range {
    text: String,
    low: Core,
    high: Option<Core>,
}

impl Default for Range {
    fn default() -> Self {
        Self { text: "*".to_owned(), low: (0, 0, 0), high: None }
    }
}

impl TryFrom<String> for Range {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no range; write `*`, `>=1.2`, `<2.0` or `>=1.2 <2.0`");
        let mut range = Self { text: text.clone(), ..Self::default() };
        for bound in text.split_whitespace().filter(|bound| *bound != "*") {
            if let Some(low) = bound.strip_prefix(">=") {
                range.low = bound_of(low).ok_or_else(wrong)?;
            } else if let Some(high) = bound.strip_prefix('<') {
                range.high = Some(bound_of(high).ok_or_else(wrong)?);
            } else {
                return Err(wrong());
            }
        }
        let empty = text.trim().is_empty() || range.high.is_some_and(|high| high <= range.low);
        if empty { Err(wrong()) } else { Ok(range) }
    }
}

/// `1.2` or `1.2.3`.
fn bound_of(text: &str) -> Option<Core> {
    let mut parts = text.split('.').map(number);
    let core = (parts.next()??, parts.next()??, parts.next().unwrap_or(Some(0))?);
    parts.next().is_none().then_some(core)
}

impl Range {
    fn contains(&self, version: &Version) -> bool {
        version.core >= self.low && self.high.is_none_or(|high| version.core < high)
    }

    fn overlaps(&self, other: &Self) -> bool {
        let below = |low: Core, high: Option<Core>| high.is_none_or(|high| low < high);
        below(self.low, other.high) && below(other.low, self.high)
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// How far a jump may go, for jumps that start in `from` and end in `to`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SkewRule {
    /// Versions that run.
    #[serde(default)]
    pub from: Range,
    /// Versions wanted.
    #[serde(default)]
    pub to: Range,
    /// The way up.
    pub up: Reach,
    /// The way down; absent = there is none, not even between patches.
    #[serde(default)]
    pub down: Option<Reach>,
    /// What a jump beyond this means.
    pub level: Level,
}

/// A distance within one major version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Reach {
    /// Most minors; patches are free.
    pub minors: u64,
}

/// What a broken rule means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Level {
    /// Said before the start; nothing is stopped.
    Warn,
    /// Refused.
    Error,
}

/// How a jump relates to the rule that covers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Jump {
    Allowed,
    TooFarUp,
    TooFarDown,
}

impl SkewRule {
    pub(super) fn covers(&self, from: &Version, to: &Version) -> bool {
        self.from.contains(from) && self.to.contains(to)
    }

    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.from.overlaps(&other.from) && self.to.overlaps(&other.to)
    }

    pub(super) fn judge(&self, from: &Version, to: &Version) -> Jump {
        let within = |reach: Reach, minors: Option<u64>| minors.is_some_and(|minors| minors <= reach.minors);
        if to >= from {
            if within(self.up, from.minors_up_to(to)) { Jump::Allowed } else { Jump::TooFarUp }
        } else if self.down.is_some_and(|down| within(down, to.minors_up_to(from))) {
            Jump::Allowed
        } else {
            Jump::TooFarDown
        }
    }
}

impl fmt::Display for SkewRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let minors =
            |reach: Reach| format!("{} minor{}", reach.minors, if reach.minors == 1 { "" } else { "s" });
        write!(f, "from {} to {}: at most {} up, ", self.from, self.to, minors(self.up))?;
        match self.down {
            Some(down) => write!(f, "at most {} down", minors(down)),
            None => f.write_str("no way down"),
        }
    }
}
