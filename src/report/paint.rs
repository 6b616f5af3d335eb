//! Colours for people at a terminal: good, bad, waited for.
//!
//! Guarantee: a plain text and a coloured one differ in escape sequences only.

/// Whether texts are coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paint {
    /// For files, pipes and `NO_COLOR`.
    Plain,
    /// For a terminal.
    Coloured,
}

/// What a colour says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// As wanted.
    Good,
    /// Against what is wanted.
    Bad,
    /// Not decided, or worth a look.
    Open,
    /// Under way; a place in a file.
    Live,
    /// The thing that a text is about.
    Strong,
}

impl Paint {
    /// Gives a text its colour.
    pub fn tone(self, tone: Tone, text: &str) -> String {
        let code = match (self, tone) {
            (Self::Plain, _) => return text.to_owned(),
            (Self::Coloured, Tone::Good) => "1;32",
            (Self::Coloured, Tone::Bad) => "1;31",
            (Self::Coloured, Tone::Open) => "1;33",
            (Self::Coloured, Tone::Live) => "1;34",
            (Self::Coloured, Tone::Strong) => "1",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }

    /// Colours the first word of a line if it is a verdict or a phase.
    pub(super) fn line(self, line: &str) -> String {
        let (word, rest) = line.split_at(line.find([' ', ':', ',']).unwrap_or(line.len()));
        match tone_of(word) {
            Some(tone) => format!("{}{rest}", self.tone(tone, word)),
            None => line.to_owned(),
        }
    }

    /// Colours a headline: what it is about, and the phase or verdict after two blanks.
    pub(super) fn head(self, head: &str) -> String {
        match head.split_once("  ") {
            Some((about, rest)) => format!("{}  {}", self.tone(Tone::Strong, about), self.line(rest)),
            None => self.tone(Tone::Strong, head),
        }
    }
}

fn tone_of(word: &str) -> Option<Tone> {
    match word {
        "Completed" | "pass" => Some(Tone::Good),
        "Failed" | "fail" | "failed" | "refused" | "problem" | "Stalled" => Some(Tone::Bad),
        "Rollback" | "unknown" | "waits" | "warning" | "skipped" => Some(Tone::Open),
        "Pending" | "Canary" | "RollingOut" | "next" => Some(Tone::Live),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_at_the_start_of_a_line_has_its_colour() {
        assert_eq!(Paint::Coloured.line("pass     owner"), "\u{1b}[1;32mpass\u{1b}[0m     owner");
        assert_eq!(Paint::Coloured.line("waits"), "\u{1b}[1;33mwaits\u{1b}[0m");
        assert_eq!(Paint::Coloured.line("passed on"), "passed on");
    }

    #[test]
    fn a_headline_has_what_it_is_about_and_its_phase_in_colour() {
        assert_eq!(
            Paint::Coloured.head("CNIUpgrade/calico  Failed 0/10"),
            "\u{1b}[1mCNIUpgrade/calico\u{1b}[0m  \u{1b}[1;31mFailed\u{1b}[0m 0/10"
        );
    }

    #[test]
    fn a_plain_text_has_no_escape_sequence() {
        let plain = Paint::Plain.head("CNIUpgrade/calico  Failed 0/10") + &Paint::Plain.line("pass  owner");
        assert_eq!(plain, "CNIUpgrade/calico  Failed 0/10pass  owner");
    }
}
