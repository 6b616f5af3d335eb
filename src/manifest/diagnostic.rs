//! What is wrong with a manifest, where, and the way out.

use serde::{Deserialize, Serialize};

/// Whether the document can be used all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Severity {
    /// The document is held back.
    Error,
    /// The document is used.
    Warning,
}

/// What kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Code {
    /// Not UTF-8.
    NotUtf8,
    /// No YAML.
    Syntax,
    /// Aliases, depth, size or number of nodes beyond the budget.
    Budget,
    /// A file or document limit.
    Limit,
    /// The same key twice in one mapping.
    DuplicateKey,
    /// A field that the kind does not have.
    UnknownField,
    /// A required field is missing.
    MissingField,
    /// A value of the wrong type.
    WrongType,
    /// A value out of range.
    OutOfRange,
    /// A version or kind that our groups do not have.
    UnknownKind,
    /// `metadata.name` or `namespace` is missing, superfluous or no valid name.
    BadMetadata,
    /// One object in two places.
    Duplicate,
    /// A rule of the field is not built yet.
    NotSupported,
    /// Worth a look.
    Suspicious,
    /// A path that does not exist or a tree entry that is no plain file.
    Skipped,
}

/// One finding in one file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Diagnostic {
    /// File, relative to the root.
    pub path: String,
    /// Line from 1; 0 = the whole file.
    pub line: u32,
    /// Column in characters from 1; 0 = the whole line.
    pub column: u32,
    /// Severity.
    pub severity: Severity,
    /// Kind of fault.
    pub code: Code,
    /// What is wrong.
    pub message: String,
    /// The line with a caret under the place; empty when there is none.
    #[serde(default)]
    pub snippet: String,
    /// The way out.
    #[serde(default)]
    pub help: String,
}

impl Diagnostic {
    /// An entry of a tree that is not read.
    pub fn unread(path: String, why: &str) -> Self {
        Self {
            path,
            line: 0,
            column: 0,
            severity: Severity::Warning,
            code: Code::Skipped,
            message: format!("skipped: {why}"),
            snippet: String::new(),
            help: "only plain files within the limits are read".to_owned(),
        }
    }
}
