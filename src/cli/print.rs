//! Printing to standard output.
//!
//! Guarantees: a reader that is gone (`| head`) ends the process at once and quietly, as SIGPIPE would.

use std::{
    fmt::Display,
    io::{self, ErrorKind, IsTerminal as _, Write as _},
    process::exit,
};

use serde_json::json;

use super::Form;
use crate::report::paint::Paint;

/// Exit code of a process that SIGPIPE ended, as shells count it.
const PIPE: i32 = 128 + 13;

/// Prints a text as it is.
pub(super) fn text(text: impl Display) {
    let mut out = io::stdout().lock();
    if let Err(error) = write!(out, "{text}").and_then(|()| out.flush()) {
        if error.kind() == ErrorKind::BrokenPipe {
            exit(PIPE);
        }
        aside(Form::Text, "error", format_args!("standard output: {error}"));
        exit(1);
    }
}

/// Prints a text and a line end.
pub(super) fn line(line: impl Display) {
    text(format_args!("{line}\n"));
}

/// Says on standard error what is wrong (`error`) or worth knowing (`note`), in the form of the report; where nobody
/// reads it, it is lost.
pub(super) fn aside(form: Form, word: &str, text: impl Display) {
    let mut err = io::stderr().lock();
    let _ = match form {
        Form::Text => writeln!(err, "{word}: {text}"),
        Form::Json => writeln!(err, "{}", json!({ word: text.to_string() })),
    };
}

/// Whether people read it.
pub(super) fn on_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Columns of the terminal, 80 where it does not say; absent where people do not read it.
pub(super) fn columns() -> Option<usize> {
    let told = || rustix::termios::tcgetwinsize(io::stdout()).ok().map(|size| usize::from(size.ws_col));
    on_terminal().then(|| told().filter(|columns| *columns > 0).unwrap_or(80))
}

/// Colours for a terminal; <https://no-color.org>: a variable that is set and not empty switches them off.
pub(super) fn paint() -> Paint {
    let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    if wanted && on_terminal() { Paint::Coloured } else { Paint::Plain }
}
