//! Where the story is shown: lines, a live tree below them on a terminal, or JSON lines.

use clap::ValueEnum;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{events::Event, fit};

/// How progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Where texts go.
pub(super) type Out = Box<dyn FnMut(String)>;

/// Columns of the terminal at this moment; absent where there is none.
pub(super) type Width = fn() -> Option<usize>;

/// The screen.
pub(super) struct Screen {
    out: Out,
    output: Output,
    width: Width,
    pub(super) begin: Timestamp,
    drawn: usize,
    tree: String,
}

impl Screen {
    pub(super) fn new(output: Output, width: Width, begin: Timestamp, out: Out) -> Self {
        Self { out, output, width, begin, drawn: 0, tree: String::new() }
    }

    /// Says what the story runs on.
    pub(super) fn open(&mut self, text: &str) {
        self.say(self.begin, "start", text, &json!({}));
    }

    /// Shows events.
    pub(super) fn show(&mut self, events: &[Event]) {
        for event in events {
            self.say(event.at, event.kind, &event.text, &event.data);
        }
    }

    /// Shows one line.
    pub(super) fn say(&mut self, at: Timestamp, kind: &str, text: &str, data: &Value) {
        match self.output {
            Output::Json => {
                let line = json!({ "at": at, "event": kind, "text": text.trim_start(), "data": data });
                self.print(format!("{line}\n"));
            }
            Output::Text => {
                self.erase();
                self.print(format!("{} {text}\n", at.strftime("%H:%M:%SZ")));
                self.draw();
            }
        }
    }

    /// Shows a text as it is.
    pub(super) fn print(&mut self, text: String) {
        (self.out)(text);
    }

    /// Columns of the tree; absent where none is shown.
    fn columns(&self) -> Option<usize> {
        match self.output {
            Output::Text => (self.width)(),
            Output::Json => None,
        }
    }

    /// Whether a tree is shown at all.
    pub(super) fn wants_tree(&self) -> bool {
        self.columns().is_some()
    }

    /// Replaces the tree below the lines.
    pub(super) fn tree(&mut self, text: String) {
        if text != self.tree {
            self.erase();
            self.tree = text;
            self.draw();
        }
    }

    /// Leaves the tree, with nothing cut, as the last thing shown.
    pub(super) fn close(&mut self) {
        self.erase();
        let tree = std::mem::take(&mut self.tree);
        if let Some(columns) = self.columns().filter(|_| !tree.is_empty()) {
            let lines: String = tree.lines().map(|line| fit::wrap(line, columns) + "\n").collect();
            self.print(format!("\n{lines}"));
        }
    }

    fn draw(&mut self) {
        if let Some(columns) = self.columns().filter(|_| !self.tree.is_empty()) {
            let lines: String = self.tree.lines().map(|line| fit::cut(line, columns) + "\n").collect();
            // A line of the tree stays one line of the terminal also where characters are wider than one column.
            self.print(format!("\x1b[?7l\n{lines}\x1b[?7h"));
            self.drawn = self.tree.lines().count() + 1;
        }
    }

    fn erase(&mut self) {
        if self.drawn > 0 {
            self.print(format!("\x1b[{}A\x1b[J", self.drawn));
            self.drawn = 0;
        }
    }
}
