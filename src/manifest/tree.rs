//! A document as written: every key and value with its bytes.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use serde_json::{Map, Value};

use super::{Code, scalar, yaml::MAX_DEPTH};
use crate::api::schema::{FieldPath, PathElement};

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

impl Content {
    /// Whether it is a list or mapping over lines of its own, without brackets or braces.
    pub const fn is_block(&self) -> bool {
        match &self.kind {
            Kind::Scalar { .. } => false,
            Kind::List { flow, .. } | Kind::Map { flow, .. } => !*flow,
        }
    }
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
    /// A byte in the file that has to do with it, such as the first of two keys.
    pub other: Option<usize>,
}

impl Fault {
    /// A fault without help.
    pub fn new(span: Range<usize>, code: Code, message: impl Into<String>) -> Self {
        Self { span, code, message: message.into(), help: String::new(), other: None }
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

/// The deepest written part of a path.
#[derive(Debug, Clone, Copy)]
pub struct Located<'n> {
    /// Key of the value; none at the root and in lists.
    pub key: Option<&'n Node>,
    /// The value.
    pub value: &'n Node,
    /// Whether the whole path is written.
    pub whole: bool,
}

impl Node {
    /// Follows a path as far as it is written.
    pub fn locate(&self, path: &FieldPath) -> Located<'_> {
        let mut at = Located { key: None, value: self, whole: true };
        for element in &path.0 {
            let next = match (element, &at.value.content.kind) {
                (PathElement::Key(key), Kind::Map { .. }) => {
                    at.value.find(key).map(|entry| (Some(&entry.key), &entry.value))
                }
                (PathElement::Index(index), Kind::List { items, .. }) => {
                    items.get(*index).map(|item| (None, item))
                }
                (PathElement::Key(_) | PathElement::Index(_), _) => None,
            };
            match next {
                Some((key, value)) => at = Located { key, value, whole: true },
                None => return Located { whole: false, ..at },
            }
        }
        at
    }

    /// The JSON that kubectl would make of it, with every fault on the way.
    pub fn value(&self) -> (Value, Vec<Fault>) {
        let mut expansion = Expansion { left: MAX_EXPANDED, exhausted: false, faults: Vec::new() };
        let value = expansion.value(self, 0);
        let mut faults = expansion.faults;
        faults.sort_by_key(|fault| fault.span.start);
        faults.dedup();
        (value, faults)
    }
}

/// Values that one document may amount to once aliases are followed.
const MAX_EXPANDED: usize = 20_000;

/// Follows aliases and merges within a budget.
struct Expansion {
    left: usize,
    exhausted: bool,
    faults: Vec<Fault>,
}

impl Expansion {
    fn value(&mut self, node: &Node, depth: usize) -> Value {
        if self.left == 0 || depth > MAX_DEPTH {
            self.exhaust(node);
            return Value::Null;
        }
        self.left -= 1;
        match &node.content.kind {
            Kind::Scalar { text, plain } => self.scalar(node, text, *plain),
            Kind::List { items, .. } => items.iter().map(|item| self.value(item, depth + 1)).collect(),
            Kind::Map { entries, .. } => Value::Object(self.map(entries, depth)),
        }
    }

    fn exhaust(&mut self, node: &Node) {
        if !std::mem::replace(&mut self.exhausted, true) {
            let message = format!("aliases make more than {MAX_EXPANDED} values or {MAX_DEPTH} levels of it");
            self.faults.push(Fault::new(node.span.clone(), Code::Budget, message));
        }
    }

    fn scalar(&mut self, node: &Node, text: &str, plain: bool) -> Value {
        let tag = node.content.tag.as_deref();
        let resolved = match tag {
            Some("int" | "float" | "bool" | "null") => scalar::resolve(text),
            None if plain => scalar::resolve(text),
            Some("str") | None => Some(Value::String(text.to_owned())),
            Some(other) => {
                let message = format!("the tag `{other}` has no meaning here");
                self.faults.push(Fault::new(node.span.clone(), Code::WrongType, message));
                return Value::Null;
            }
        };
        let fits = match (tag, &resolved) {
            (Some("int" | "float"), Some(value)) => value.is_number(),
            (Some("bool"), Some(value)) => value.is_boolean(),
            (Some("null"), Some(value)) => value.is_null(),
            (_, resolved) => resolved.is_some(),
        };
        if !fits {
            let message = format!("`{text}` is no value of the type that it is written as");
            self.faults.push(Fault::new(node.span.clone(), Code::WrongType, message));
        }
        resolved.unwrap_or(Value::Null)
    }

    /// Keys written in the mapping are stronger than merged ones, wherever `<<` stands.
    fn map(&mut self, entries: &[Entry], depth: usize) -> Map<String, Value> {
        let mut map = Map::new();
        let mut seen: BTreeMap<String, Range<usize>> = BTreeMap::new();
        for entry in entries.iter().filter(|entry| !entry.is_merge()) {
            let Some(name) = self.name(&entry.key) else { continue };
            if let Some(first) = seen.get(&name) {
                let message = format!("the key `{name}` stands twice in one mapping");
                let fault = Fault::new(entry.key.span.clone(), Code::DuplicateKey, message);
                self.faults.push(Fault { other: Some(first.start), ..fault });
                continue;
            }
            seen.insert(name.clone(), entry.key.span.clone());
            let value = self.value(&entry.value, depth + 1);
            map.insert(name, value);
        }
        for entry in entries.iter().filter(|entry| entry.is_merge()) {
            self.merge(&mut map, &entry.value, depth);
        }
        map
    }

    fn merge(&mut self, map: &mut Map<String, Value>, from: &Node, depth: usize) {
        let merged = match self.value(from, depth + 1) {
            Value::Array(items) => items,
            one => vec![one],
        };
        for one in merged {
            let Value::Object(one) = one else {
                let message = "`<<` takes a mapping or a list of mappings";
                self.faults.push(Fault::new(from.span.clone(), Code::WrongType, message));
                return;
            };
            for (key, value) in one {
                map.entry(key).or_insert(value);
            }
        }
    }

    /// Keys are text in JSON: `1:` is `"1"`, `on:` is `"true"`.
    fn name(&mut self, key: &Node) -> Option<String> {
        self.left = self.left.saturating_sub(1);
        let name = match &key.content.kind {
            Kind::Scalar { text, plain: false } => Some(text.clone()),
            Kind::Scalar { text, plain: true } => match scalar::resolve(text) {
                Some(Value::String(text)) => Some(text),
                Some(value @ (Value::Bool(_) | Value::Number(_))) => Some(value.to_string()),
                Some(Value::Null | Value::Array(_) | Value::Object(_)) | None => None,
            },
            Kind::List { .. } | Kind::Map { .. } => None,
        };
        if name.is_none() {
            self.faults.push(Fault::new(key.span.clone(), Code::WrongType, "a key must be text"));
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::manifest::yaml::parse;

    fn read(text: &str) -> (Value, Vec<Fault>) {
        parse(text, 0).unwrap().unwrap().value()
    }

    #[test]
    fn merged_keys_yield_to_written_ones_wherever_they_stand() {
        let (value, faults) = read("x: &x {a: 1, b: 1}\ny: &y {b: 2, c: 2}\nz: {a: 0, <<: [*x, *y], d: 3}\n");
        assert_eq!(value["z"], json!({ "a": 0, "b": 1, "c": 2, "d": 3 }));
        assert_eq!(faults, []);
    }

    #[test]
    fn a_key_twice_is_named_with_the_first_one() {
        let (_, faults) = read("a: 1\nb: {c: 1, c: 2}\n");
        assert_eq!((faults[0].code, faults[0].span.clone()), (Code::DuplicateKey, 15..16));
        assert_eq!(faults[0].other, Some(9));
    }

    #[test]
    fn keys_become_text_and_tags_decide_types() {
        let (value, faults) = read("1: a\non: b\nc: !!str 3.28\nd: !!int '7'\n'on': e\n");
        assert_eq!(value, json!({ "1": "a", "true": "b", "c": "3.28", "d": 7, "on": "e" }));
        assert_eq!(faults, []);
        for text in ["a: !!int x\n", "a: !foo x\n", "a: .nan\n", "[1]: x\n", "~: x\n", "<<: 3\n"] {
            assert_eq!(read(text).1[0].code, Code::WrongType, "{text}");
        }
    }

    #[test]
    fn an_alias_bomb_ends_at_the_budget_with_one_fault() {
        let mut bomb = String::from("a0: &a0 [x]\n");
        for level in 1..30 {
            let items = format!("*a{}, ", level - 1).repeat(10);
            bomb = format!("{bomb}a{level}: &a{level} [{items}]\n");
        }
        let (_, faults) = read(&bomb);
        assert_eq!(faults.iter().map(|fault| fault.code).collect::<Vec<_>>(), [Code::Budget]);
    }

    #[test]
    fn a_path_is_followed_as_far_as_it_is_written() {
        let root = parse("base: &b {p: 1}\nspec:\n  <<: *b\n  list: [{q: 2}]\n", 0).unwrap().unwrap();
        let spec = FieldPath::default().key("spec");
        assert_eq!(root.locate(&spec.key("p")).value.text(), Some("1"));
        assert_eq!(root.locate(&spec.key("list").index(0).key("q")).value.text(), Some("2"));
        let missing = root.locate(&spec.key("list").index(3));
        assert!(!missing.whole);
        assert_eq!(missing.key.unwrap().text(), Some("list"));
    }
}
