//! Findings for people, for programs and for a GitHub Actions run.

use std::fmt::Write as _;

use serde_json::json;

use crate::{
    manifest::{Diagnostic, Reading, Severity},
    report::{
        escape::{line, terminal},
        paint::{Paint, Tone},
    },
};

/// Every finding with its line and a caret, then the count.
pub(super) fn text(reading: &Reading, files: usize, paint: Paint) -> String {
    let mut out = findings(&reading.diagnostics, paint);
    let _ = writeln!(out, "{}", count(reading, files));
    out
}

/// Every finding with its line and a caret.
pub(in crate::cli) fn findings(diagnostics: &[Diagnostic], paint: Paint) -> String {
    let mut out = String::new();
    for found in diagnostics {
        finding(&mut out, found, paint);
    }
    out
}

fn finding(out: &mut String, found: &Diagnostic, paint: Paint) {
    let word = match found.severity {
        Severity::Error => paint.tone(Tone::Bad, &format!("error[{:?}]", found.code)),
        Severity::Warning => paint.tone(Tone::Open, &format!("warning[{:?}]", found.code)),
    };
    let _ = writeln!(out, "{word}: {}", paint.tone(Tone::Strong, &line(&found.message, usize::MAX)));
    let number = found.line.to_string();
    let margin = " ".repeat(number.len());
    let _ = writeln!(out, "{margin}{} {}", paint.tone(Tone::Live, "-->"), place(found));
    if let Some((shown, caret)) = found.snippet.split_once('\n') {
        let bar = paint.tone(Tone::Live, "|");
        let caret = caret.replace('^', &paint.tone(Tone::Bad, "^"));
        let _ = writeln!(
            out,
            "{margin} {bar}\n{} {bar} {}",
            paint.tone(Tone::Live, &number),
            terminal(shown).trim_end()
        );
        let _ = writeln!(out, "{margin} {bar} {caret}");
    }
    if !found.help.is_empty() {
        let _ =
            writeln!(out, "{margin} {} help: {}", paint.tone(Tone::Live, "="), line(&found.help, usize::MAX));
    }
    out.push('\n');
}

fn place(found: &Diagnostic) -> String {
    let path = line(&found.path, usize::MAX);
    match (found.line, found.column) {
        (0, _) => path,
        (line, 0) => format!("{path}:{line}"),
        (line, column) => format!("{path}:{line}:{column}"),
    }
}

fn tally(reading: &Reading, severity: Severity) -> usize {
    reading.diagnostics.iter().filter(|found| found.severity == severity).count()
}

fn count(reading: &Reading, files: usize) -> String {
    let many = |count: usize, one: &str| match count {
        1 => format!("1 {one}"),
        count => format!("{count} {one}s"),
    };
    format!(
        "{} in {}: {}, {}",
        many(reading.declarations.len(), "declaration"),
        many(files, "file"),
        many(tally(reading, Severity::Error), "error"),
        many(tally(reading, Severity::Warning), "warning"),
    )
}

/// Declarations, findings and counts as one document.
pub(super) fn json(reading: &Reading, files: usize) -> anyhow::Result<String> {
    let declarations: Vec<_> = reading
        .declarations
        .values()
        .map(|found| json!({ "object": found.key, "path": found.path, "line": found.line, "wish": found.hash }))
        .collect();
    let document = json!({
        "files": files,
        "declarations": declarations,
        "diagnostics": reading.diagnostics,
        "errors": tally(reading, Severity::Error),
        "warnings": tally(reading, Severity::Warning),
    });
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

/// One workflow command per finding, then the count.
pub(super) fn github(reading: &Reading, files: usize) -> String {
    let mut out = String::new();
    for found in &reading.diagnostics {
        let word = match found.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let mut at = format!("file={}", property(&found.path));
        if found.line > 0 {
            let _ = write!(at, ",line={}", found.line);
        }
        if found.column > 0 {
            let _ = write!(at, ",col={}", found.column);
        }
        let help = if found.help.is_empty() {
            String::new()
        } else {
            format!("\n{}", line(&found.help, usize::MAX))
        };
        let message = message(&format!("{}{help}", line(&found.message, usize::MAX)));
        let _ = writeln!(out, "::{word} {at},title={:?}::{message}", found.code);
    }
    let _ = writeln!(out, "{}", count(reading, files));
    out
}

/// Percent signs and line ends would end a workflow command or change its meaning.
fn message(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    message(text).replace(':', "%3A").replace(',', "%2C")
}
