//! A document as written: every key and value with its bytes.

use std::{ops::Range, sync::Arc};

use super::Code;

/// A value in its place.
#[derive(Debug, Clone)]
pub struct Node {
    /// Its bytes in the file; of an alias those of `*name`; empty when nothing is written. Anchor and tag stand before.
    pub span: Range<usize>,
    /// What it is; shared with the anchor when it is an alias.
    pub content: Arc<Content>,
}

/// What a node is.
#[derive(Debug)]
pub struct Content {
    /// Its bytes in the file.
    pub span: Range<usize>,
    /// `str`, `int` and so on of YAML's own tags; other tags as written.
    pub tag: Option<String>,
    /// Scalar, list or mapping.
    pub kind: Kind,
}

/// Scalar, list or mapping.
#[derive(Debug)]
pub enum Kind {
    /// Text, resolved to null, boolean, number or string by YAML 1.1's rules when it is plain.
    Scalar {
        /// Without quotes and escapes.
        text: String,
        /// Neither quoted nor a block scalar.
        plain: bool,
    },
    /// A list.
    List {
        /// Its items.
        items: Vec<Node>,
        /// In brackets.
        flow: bool,
    },
    /// A mapping.
    Map {
        /// Keys and values in order, repeated keys and `<<` included.
        entries: Vec<Entry>,
        /// In braces.
        flow: bool,
    },
}

/// One key with its value.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The key.
    pub key: Node,
    /// The value.
    pub value: Node,
}

/// A fault at a place in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Bytes in the file.
    pub span: Range<usize>,
    /// Kind of fault.
    pub code: Code,
    /// What is wrong.
    pub message: String,
    /// The way out.
    pub help: String,
}

impl Fault {
    /// A fault without help.
    pub fn new(span: Range<usize>, code: Code, message: impl Into<String>) -> Self {
        Self { span, code, message: message.into(), help: String::new() }
    }

    /// Adds the way out.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = help.into();
        self
    }
}

impl Node {
    /// Whether it is an alias.
    pub fn is_alias(&self) -> bool {
        self.span != self.content.span
    }

    /// Keys and values when it is a mapping.
    pub fn entries(&self) -> &[Entry] {
        match &self.content.kind {
            Kind::Map { entries, .. } => entries,
            Kind::Scalar { .. } | Kind::List { .. } => &[],
        }
    }

    /// The text when it is a scalar.
    pub fn text(&self) -> Option<&str> {
        match &self.content.kind {
            Kind::Scalar { text, .. } => Some(text),
            Kind::List { .. } | Kind::Map { .. } => None,
        }
    }

    /// The entry of a key that is written in this mapping itself.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries().iter().find(|entry| !entry.is_merge() && entry.key.text() == Some(key))
    }

    /// The entry of a key, merged mappings included.
    pub fn find(&self, key: &str) -> Option<&Entry> {
        self.entry(key).or_else(|| self.merged().find_map(|map| map.entry(key)))
    }

    /// Mappings merged into this one, the strongest first; a merge inside a merged mapping is not followed.
    fn merged(&self) -> impl Iterator<Item = &Self> {
        self.entries().iter().filter(|entry| entry.is_merge()).flat_map(|entry| {
            match &entry.value.content.kind {
                Kind::List { items, .. } => items.iter().collect::<Vec<_>>(),
                Kind::Map { .. } | Kind::Scalar { .. } => vec![&entry.value],
            }
        })
    }
}

impl Entry {
    fn is_merge(&self) -> bool {
        matches!(&self.key.content.kind, Kind::Scalar { text, plain: true } if text == "<<")
    }
}
