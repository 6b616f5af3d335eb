//! Where the story is shown: lines, a live tree below them on a terminal, or JSON lines.

use clap::ValueEnum;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::events::Event;

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

/// The screen.
pub(super) struct Screen {
    out: Out,
    output: Output,
    live: bool,
    pub(super) begin: Timestamp,
    drawn: usize,
    tree: String,
}

impl Screen {
    pub(super) fn new(output: Output, terminal: bool, begin: Timestamp, out: Out) -> Self {
        let live = terminal && matches!(output, Output::Text);
        Self { out, output, live, begin, drawn: 0, tree: String::new() }
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
                let seconds = at.duration_since(self.begin).as_secs().max(0);
                let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
                self.print(format!("{hours:02}:{minutes:02}:{seconds:02} {text}\n"));
                self.draw();
            }
        }
    }

    /// Shows a text as it is.
    pub(super) fn print(&mut self, text: String) {
        (self.out)(text);
    }

    /// Whether a tree is shown at all.
    pub(super) const fn wants_tree(&self) -> bool {
        self.live
    }

    /// Replaces the tree below the lines.
    pub(super) fn tree(&mut self, text: String) {
        if self.live && text != self.tree {
            self.erase();
            self.tree = text;
            self.draw();
        }
    }

    /// Leaves the tree as the last thing shown.
    pub(super) fn close(&mut self) {
        self.drawn = 0;
        self.tree.clear();
    }

    fn draw(&mut self) {
        if self.live && !self.tree.is_empty() {
            // Without wrapping, a line of the tree is one line of the terminal, whatever its width.
            self.print(format!("\x1b[?7l\n{}\x1b[?7h\n", self.tree.trim_end_matches('\n')));
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
