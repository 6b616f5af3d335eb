//! The text of one file, with lines and columns as editors count them.

/// A text with an index of its lines.
#[derive(Debug)]
pub struct Source<'t> {
    text: &'t str,
    /// First byte of each line.
    starts: Vec<usize>,
}

/// A line and a column in characters, both from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Line.
    pub line: u32,
    /// Column.
    pub column: u32,
}

/// Characters shown of a long line.
const WIDTH: usize = 100;

impl<'t> Source<'t> {
    /// Indexes the lines of a text.
    pub fn new(text: &'t str) -> Self {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { text, starts }
    }

    /// The text itself.
    pub const fn text(&self) -> &'t str {
        self.text
    }

    /// Where a byte is; one beyond the end is at the end.
    pub fn position(&self, byte: usize) -> Position {
        let byte = byte.min(self.text.len());
        let line = self.starts.partition_point(|start| *start <= byte);
        let start = line.checked_sub(1).and_then(|line| self.starts.get(line)).copied().unwrap_or_default();
        let before = self.text.get(start..byte).unwrap_or_default();
        // A byte-order mark is a byte of the file, but no column that an editor shows.
        let column = before.trim_start_matches('\u{feff}').chars().count() + 1;
        Position {
            line: u32::try_from(line).unwrap_or(u32::MAX),
            column: u32::try_from(column).unwrap_or(u32::MAX),
        }
    }

    /// Columns before a byte in its line.
    pub fn indent(&self, byte: usize) -> usize {
        usize::try_from(self.position(byte).column).unwrap_or(usize::MAX).saturating_sub(1)
    }

    /// A line without its line end; empty when there is none.
    pub fn line(&self, line: u32) -> &'t str {
        let Some(at) = usize::try_from(line).ok().and_then(|line| line.checked_sub(1)) else { return "" };
        let Some(start) = self.starts.get(at) else { return "" };
        let end = self.starts.get(at + 1).copied().unwrap_or(self.text.len());
        let line = self.text.get(*start..end).unwrap_or_default();
        line.trim_start_matches('\u{feff}').trim_end_matches(['\n', '\r'])
    }

    /// The line with a caret under the column; long lines are cropped, control characters become blanks.
    pub fn snippet(&self, line: u32, column: u32) -> String {
        if line == 0 {
            return String::new();
        }
        let column = usize::try_from(column).unwrap_or(usize::MAX).saturating_sub(1);
        let skipped = if column < WIDTH { 0 } else { column - WIDTH / 2 };
        let shown: String = self
            .line(line)
            .chars()
            .skip(skipped)
            .take(WIDTH)
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        format!("{}\n{}^", shown.trim_end(), " ".repeat(column - skipped))
    }
}
