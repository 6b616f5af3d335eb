//! YAML in and out: the only place that knows the parser.
//!
//! Guarantees: reading is bounded in time and memory before a value exists; a key twice is an error; what is written
//! is read back as the same value by a YAML 1.1 reader such as kubectl's, so strings like `no` and `0644` are quoted.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use serde::{Serialize, de::DeserializeOwned};
use serde_yaml::{
    Options, UserMessageFormatter,
    granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError, Span, StructureStyle, Tag},
};

use super::{
    Code,
    source::Source,
    tree::{Content, Entry, Fault, Kind, Node},
};

/// Bytes of one file; larger ones are not read.
pub const MAX_BYTES: usize = 1024 * 1024;
/// Nodes of one document, before aliases are followed.
pub const MAX_NODES: usize = 200_000;
/// Levels of nesting, before and after aliases are followed.
pub const MAX_DEPTH: usize = 64;

/// A text that is not the value it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct YamlError {
    /// Line from 1; 0 = unknown.
    pub line: u32,
    /// Column in characters from 1; 0 = unknown.
    pub column: u32,
    /// What is wrong.
    pub message: String,
    /// The line with a caret under the place; empty when there is none.
    pub snippet: String,
}

/// Reads one document strictly: no key twice, no number or boolean where text is wanted, no alias bomb, at most
/// 1 MiB. Whether unknown fields are errors is up to the type (`deny_unknown_fields`).
pub fn typed<T: DeserializeOwned>(text: &str) -> Result<T, YamlError> {
    if text.len() > MAX_BYTES {
        let message = format!("the text is longer than {MAX_BYTES} bytes");
        return Err(YamlError { line: 0, column: 0, message, snippet: String::new() });
    }
    serde_yaml::from_str_with_options(text, strict()).map_err(|error| {
        let (line, column) = error.location().map_or((0, 0), |at| (at.line(), at.column()));
        let line = u32::try_from(line).unwrap_or(u32::MAX);
        let column = u32::try_from(column).unwrap_or(u32::MAX);
        let message =
            serde_yaml::MessageFormatter::format_message(&UserMessageFormatter, error.without_snippet());
        YamlError {
            line,
            column,
            message: message.into_owned(),
            snippet: Source::new(text).snippet(line, column),
        }
    })
}

fn strict() -> Options {
    serde_yaml::options! {
        budget: serde_yaml::budget! {
            max_documents: 1,
            max_nodes: MAX_NODES,
            max_events: 2 * MAX_NODES,
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_aliases: 1_000,
            max_anchors: 1_000,
            max_merge_keys: 1_000,
        },
        alias_limits: serde_yaml::alias_limits! { max_total_replayed_events: 20_000, max_replay_stack_depth: 16 },
        legacy_octal_numbers: true,
        no_schema: true,
        with_snippet: false,
    }
}

/// Writes a value as one document with a line end; keys keep the order of the type, maps are sorted.
pub fn write<T: Serialize>(value: &T) -> Result<String, YamlError> {
    serde_yaml::to_string(value).map_err(|error| YamlError {
        line: 0,
        column: 0,
        message: error.to_string(),
        snippet: String::new(),
    })
}

/// Reads one chunk of a file that starts at byte `base`; spans count from the start of the file.
///
/// A chunk without content is `None`. Aliases share what they point at, so that memory is bounded by the text.
pub fn parse(chunk: &str, base: usize) -> Result<Option<Node>, Fault> {
    let options = serde_yaml::granit_parser::options! {
        flow_nesting_limit: MAX_DEPTH,
        block_nesting_limit: MAX_DEPTH,
        emit_comments: false,
    };
    let mut builder = Builder { text: chunk, base, ..Builder::default() };
    for event in Parser::new_from_str_with_options(chunk, options) {
        let (event, span) = event.map_err(|error| syntax(&error, base, chunk))?;
        builder.take(event, &span)?;
    }
    Ok(builder.root)
}

/// The first tab among the blanks that open a line, from the line of `at` on.
fn indented_by_tab(chunk: &str, at: usize) -> Option<usize> {
    let start = chunk.get(..at)?.rfind('\n').map_or(0, |end| end + 1);
    let mut line_at = start;
    for line in chunk.get(start..)?.split_inclusive('\n') {
        let indent = line.len() - line.trim_start_matches([' ', '\t']).len();
        if let Some(tab) = line.get(..indent).and_then(|blanks| blanks.find('\t')) {
            return Some(line_at + tab);
        }
        line_at += line.len();
    }
    None
}

fn syntax(error: &ScanError, base: usize, chunk: &str) -> Fault {
    let at = error.marker().byte_offset().unwrap_or(chunk.len());
    // The parser names where the scalar before the tab began, or what comes after it.
    if let Some(tab) = error.info().contains("tab").then(|| indented_by_tab(chunk, at)).flatten() {
        let fault = Fault::new(base + tab..base + tab + 1, Code::Syntax, "a tab in the indentation");
        return fault.help("YAML is indented with blanks only");
    }
    let at = base + at;
    let code = match error.kind() {
        ErrorKind::RecursionLimitExceeded
        | ErrorKind::TooManyComments
        | ErrorKind::DirectiveByteLimitExceeded { .. }
        | ErrorKind::TooManyReservedDirectiveParams { .. } => Code::Budget,
        _ => Code::Syntax,
    };
    Fault::new(at..at, code, error.info())
}

/// Events to nodes, without recursion.
#[derive(Default)]
struct Builder<'t> {
    text: &'t str,
    base: usize,
    nodes: usize,
    /// End of the last token, in bytes of the chunk.
    last: usize,
    open: Vec<Open>,
    anchors: BTreeMap<usize, Arc<Content>>,
    root: Option<Node>,
}

/// A list or mapping whose end was not seen yet.
struct Open {
    start: usize,
    anchor: usize,
    tag: Option<String>,
    flow: bool,
    list: bool,
    key: Option<Node>,
    items: Vec<Node>,
    entries: Vec<Entry>,
}

impl Builder<'_> {
    fn take(&mut self, event: Event<'_>, span: &Span) -> Result<(), Fault> {
        let at = self.bytes(span);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let at = self.with_header(at, style);
                let text = if at.is_empty() { String::new() } else { text.into_owned() };
                let plain = style == ScalarStyle::Plain;
                let kind = Kind::Scalar { text, plain };
                self.last = at.end;
                self.finish(Content { span: self.file(&at), tag: name(tag.as_deref()), kind }, anchor)
            }
            Event::SequenceStart(style, anchor, tag) => self.begin(at, anchor, tag.as_deref(), style, true),
            Event::MappingStart(style, anchor, tag) => self.begin(at, anchor, tag.as_deref(), style, false),
            Event::SequenceEnd | Event::MappingEnd => self.end(&at),
            Event::Alias(id) => {
                self.last = at.end;
                let span = self.file(&at);
                let Some(content) = self.anchors.get(&id).cloned() else {
                    return Err(Fault::new(span, Code::Syntax, "an alias inside of what it points at"));
                };
                self.place(Node { span, content })
            }
            _ => Ok(()),
        }
    }

    fn bytes(&self, span: &Span) -> Range<usize> {
        let start = span.start.byte_offset().unwrap_or(self.last);
        start..span.end.byte_offset().unwrap_or(start).max(start)
    }

    fn file(&self, at: &Range<usize>) -> Range<usize> {
        self.base + at.start..self.base + at.end
    }

    /// The parser reports the text of a block scalar; its header (`|-`) belongs to it, the line end after it does not.
    fn with_header(&self, at: Range<usize>, style: ScalarStyle) -> Range<usize> {
        if !matches!(style, ScalarStyle::Literal | ScalarStyle::Folded) {
            return at;
        }
        let header = self.text.get(self.last..at.start).and_then(|between| between.find(['|', '>']));
        let start = header.map_or(at.start, |offset| self.last + offset);
        let text = self.text.get(start..at.end).unwrap_or_default();
        start..start + text.trim_end().len()
    }

    fn begin(
        &mut self,
        at: Range<usize>,
        anchor: usize,
        tag: Option<&Tag>,
        style: StructureStyle,
        list: bool,
    ) -> Result<(), Fault> {
        if self.open.len() >= MAX_DEPTH {
            let message = format!("more than {MAX_DEPTH} levels");
            return Err(Fault::new(self.file(&at), Code::Budget, message));
        }
        self.last = at.end;
        self.open.push(Open {
            start: at.start,
            anchor,
            tag: name(tag),
            flow: style == StructureStyle::Flow,
            list,
            key: None,
            items: Vec::new(),
            entries: Vec::new(),
        });
        Ok(())
    }

    /// A block collection ends with its last node; a flow collection with its bracket.
    fn end(&mut self, at: &Range<usize>) -> Result<(), Fault> {
        let Some(open) = self.open.pop() else { return Ok(()) };
        if open.flow {
            self.last = at.end;
        }
        let Open { flow, items, entries, .. } = open;
        let kind = if open.list { Kind::List { items, flow } } else { Kind::Map { entries, flow } };
        let span = self.file(&(open.start..self.last.max(open.start)));
        self.finish(Content { span, tag: open.tag, kind }, open.anchor)
    }

    fn finish(&mut self, content: Content, anchor: usize) -> Result<(), Fault> {
        let content = Arc::new(content);
        if anchor != 0 {
            self.anchors.insert(anchor, Arc::clone(&content));
        }
        self.place(Node { span: content.span.clone(), content })
    }

    fn place(&mut self, node: Node) -> Result<(), Fault> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            let message = format!("more than {MAX_NODES} values in one document");
            return Err(Fault::new(node.span, Code::Budget, message));
        }
        match self.open.last_mut() {
            None => self.root = Some(node),
            Some(open) if open.list => open.items.push(node),
            Some(open) => match open.key.take() {
                None => open.key = Some(node),
                Some(key) => open.entries.push(Entry { key, value: node }),
            },
        }
        Ok(())
    }
}

fn name(tag: Option<&Tag>) -> Option<String> {
    tag.map(|tag| tag.core_suffix().map_or_else(|| tag.original(), str::to_owned))
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Sample {
        name: String,
        #[serde(default)]
        count: i32,
        #[serde(default)]
        on: bool,
    }

    #[test]
    fn what_is_written_is_read_back_and_words_that_yaml_1_1_takes_for_values_are_quoted() {
        for text in
            ["no", "on", "y", "0644", "1e3", "~", "3.28", "null", "2026-01-01", "a: b", "- x", "", "ü\n"]
        {
            let sample = Sample { name: text.to_owned(), count: 3, on: true };
            let yaml = write(&sample).unwrap();
            assert_eq!(typed::<Sample>(&yaml).unwrap(), sample, "{yaml}");
            let json: serde_json::Value = typed(&yaml).unwrap();
            assert_eq!(json["name"], json!(text), "{yaml}");
        }
        assert!(write(&json!({ "a": "no" })).unwrap().contains("\"no\""));
    }

    #[test]
    fn a_typed_error_names_its_place_and_shows_the_line() {
        let error = typed::<Sample>("name: x\ncount: many\n").unwrap_err();
        assert_eq!((error.line, error.column), (2, 8));
        assert_eq!(error.snippet, "count: many\n       ^");
    }

    #[test]
    fn a_number_where_text_is_wanted_is_an_error() {
        assert!(typed::<Sample>("name: 3.28\n").is_err());
        assert!(typed::<Sample>("name: '3.28'\n").is_ok());
    }

    #[test]
    fn a_key_twice_and_an_unknown_field_are_errors() {
        let error = typed::<Sample>("name: x\nname: y\n").unwrap_err();
        assert_eq!(error.line, 2);
        assert!(typed::<serde_json::Value>("a: 1\na: 2\n").is_err());
        assert!(typed::<Sample>("name: x\nnaem: y\n").is_err());
    }

    #[test]
    fn an_alias_bomb_is_refused() {
        let mut bomb = String::from("a0: &a0 [x]\n");
        for level in 1..8 {
            let item = format!("*a{},", level - 1).repeat(10);
            bomb = format!("{bomb}a{level}: &a{level} [{item}]\n");
        }
        assert!(typed::<serde_json::Value>(&bomb).is_err());
    }

    fn parsed(text: &str) -> Node {
        parse(text, 0).unwrap().unwrap()
    }

    #[test]
    fn spans_are_the_bytes_as_written() {
        let text = "a: &x 'v1' # c\nb:\n  c: 1\n  d: {e: ü}\n\nf: *x\ng: |-\n  one\n  two\n\nh:\n";
        let root = parsed(text);
        let shown = |key: &str| text.get(root.find(key).unwrap().value.span.clone()).unwrap();
        assert_eq!(shown("a"), "'v1'");
        assert_eq!(shown("b"), "c: 1\n  d: {e: ü}");
        assert_eq!(shown("f"), "*x");
        assert_eq!(shown("g"), "|-\n  one\n  two");
        assert_eq!(shown("h"), "");
        assert!(root.find("f").unwrap().value.is_alias());
        assert_eq!(root.find("f").unwrap().value.text(), Some("v1"));
    }

    #[test]
    fn an_alias_shares_memory_and_may_not_point_at_what_contains_it() {
        let root = parsed("a: &a [1, 2]\nb: *a\n");
        assert!(Arc::ptr_eq(&root.find("a").unwrap().value.content, &root.find("b").unwrap().value.content));
        assert_eq!(parse("a: &a [*a]\n", 0).unwrap_err().code, Code::Syntax);
    }

    #[test]
    fn nesting_and_size_are_bounded() {
        assert_eq!(parse(&"[".repeat(20_000), 0).unwrap_err().code, Code::Budget);
        let deep = (0..100).map(|depth| " ".repeat(depth) + "a:").collect::<Vec<_>>().join("\n");
        assert_eq!(parse(&deep, 0).unwrap_err().code, Code::Budget);
        assert_eq!(parse(&"- \n".repeat(MAX_NODES + 1), 0).unwrap_err().code, Code::Budget);
    }

    #[test]
    fn spans_count_from_the_start_of_the_file() {
        assert_eq!(parse("a: b\n", 100).unwrap().unwrap().find("a").unwrap().value.span, 103..104);
        assert!(parse("# nothing\n", 0).unwrap().is_none());
    }
}
