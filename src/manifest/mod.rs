//! Bytes to declarations and diagnostics.

mod diagnostic;
mod document;
pub mod edit;
mod flow;
mod label;
mod limits;
mod nearest;
mod parse;
mod rules;
mod scalar;
pub mod source;
mod splice;
pub mod stream;
pub mod tree;
pub mod wish;
pub mod yaml;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

pub use diagnostic::{Code, Diagnostic, Severity};
pub use limits::{MAX_FILES, MAX_LEVELS, Unread};
pub use nearest::nearest;
pub use parse::{is_yaml, names_us, read};
pub use rules::is_label;

use crate::api::{ClaimKey, CniUpgradeSpec, ServiceUpgradeSpec, names::WishHash};

/// A typed, checked manifest.
#[derive(Debug, Clone, PartialEq)]
pub struct Declaration {
    /// Its identity.
    pub key: ClaimKey,
    /// Path of the file, relative to the root of the repository.
    pub path: String,
    /// Which document of the file, from 0.
    pub document: usize,
    /// Line of the document's first byte of content, from 1.
    pub line: u32,
    /// Its typed spec.
    pub spec: Spec,
    /// Spec as JSON with the schema's defaults filled in, as the API server would store it.
    pub stored: Value,
    /// Its wish.
    pub wish: wish::Wish,
    /// Hash of the wish.
    pub hash: WishHash,
    /// `trunkline.dev/retry`.
    pub token: Option<String>,
    /// Bytes of the wish's fields as written in the document, by field name.
    pub written: BTreeMap<String, String>,
}

/// Typed spec of either kind.
#[derive(Debug, Clone, PartialEq)]
pub enum Spec {
    /// Of a `CNIUpgrade`.
    Cni(Box<CniUpgradeSpec>),
    /// Of a `ServiceUpgrade`.
    Service(Box<ServiceUpgradeSpec>),
}

/// All that a set of files declares.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reading {
    /// Usable declarations.
    pub declarations: BTreeMap<ClaimKey, Declaration>,
    /// Keys that are there but not usable: invalid, or in two places.
    pub held: BTreeSet<ClaimKey>,
    /// Files with a diagnostic that hides which key stands there.
    pub hiding: BTreeSet<String>,
    /// What is wrong, and where.
    pub diagnostics: Vec<Diagnostic>,
}
