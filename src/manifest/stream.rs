//! A file cut into its documents, without parsing: a syntax error in one leaves the others readable.
//!
//! Assumption: a line that starts with `---` or `...` and a blank or line end is a document marker wherever it stands;
//! YAML forbids it inside of scalars.

use std::ops::Range;

/// Bytes of each document that has content or is broken, comments before it included; a byte-order mark belongs to none.
pub fn documents(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut start = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    let mut at = start;
    let mut state = State::Empty;
    for line in text.get(start..).unwrap_or_default().split_inclusive('\n') {
        if state != State::Empty && is_marker(line, "---") {
            if state == State::Content {
                found.push(start..at);
            }
            (start, state) = (at, State::Empty);
        }
        at += line.len();
        if is_marker(line, "...") {
            if state == State::Content {
                found.push(start..at);
            }
            (start, state) = (at, State::Empty);
            continue;
        }
        state = state.after(line);
    }
    if state == State::Content {
        found.push(start..at);
    }
    found
}

/// What stands in the present document so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Blank lines, comments, directives.
    Empty,
    /// A marker, and nothing after it.
    Started,
    /// Anything else.
    Content,
}

impl State {
    fn after(self, line: &str) -> Self {
        let started = is_marker(line, "---");
        let rest = if started { line.trim_start_matches('-') } else { line }.trim();
        let nothing =
            rest.is_empty() || rest.starts_with('#') || (self == Self::Empty && line.starts_with('%'));
        match self {
            Self::Empty | Self::Started if nothing => {
                if started {
                    Self::Started
                } else {
                    self
                }
            }
            Self::Empty | Self::Started | Self::Content => Self::Content,
        }
    }
}

fn is_marker(line: &str, marker: &str) -> bool {
    line.strip_prefix(marker).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\n', '\r']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str) -> Vec<&str> {
        documents(text).into_iter().map(|range| text.get(range).unwrap()).collect()
    }

    #[test]
    fn documents_are_cut_at_their_markers() {
        assert_eq!(cut("a: 1\n---\nb: 2\n---\n\n---\r\nc: 3"), ["a: 1\n", "---\nb: 2\n", "---\r\nc: 3"]);
        assert_eq!(cut("--- a\n--- # none\n---\tb\n"), ["--- a\n", "---\tb\n"]);
        assert_eq!(cut("a: 1\n...\nb: 2\n"), ["a: 1\n...\n", "b: 2\n"]);
        assert_eq!(cut("----\n---x\n  ---\n"), ["----\n---x\n  ---\n"]);
    }

    #[test]
    fn comments_directives_and_nothing_are_no_documents() {
        assert_eq!(cut(""), [""; 0]);
        assert_eq!(cut("# only\n---\n# this\n...\n"), [""; 0]);
        assert_eq!(cut("%YAML 1.2\n# head\n---\na: 1\n"), ["%YAML 1.2\n# head\n---\na: 1\n"]);
        assert_eq!(cut("# head\n\na: 1\n# tail\n"), ["# head\n\na: 1\n# tail\n"]);
    }

    #[test]
    fn a_byte_order_mark_is_skipped() {
        assert_eq!(cut("\u{feff}a: 1\n"), ["a: 1\n"]);
        assert_eq!(cut("\u{feff}---\na: 1\n"), ["---\na: 1\n"]);
    }
}
