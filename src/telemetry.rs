//! Logs: one line per event on standard error, as text or JSON.

use std::{fmt::Debug, io::IsTerminal as _};

use clap::ValueEnum;
use tracing::field::Field;
use tracing_subscriber::{
    EnvFilter,
    field::MakeExt as _,
    fmt::{
        FormatFields,
        format::{self, Writer},
    },
};

/// How log lines look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

impl LogFormat {
    /// What fits where logs go: text on a terminal, otherwise JSON.
    pub fn fitting() -> Self {
        if std::io::stderr().is_terminal() { Self::Text } else { Self::Json }
    }
}

/// Fields as text, each on the line that it belongs to: what came from outside neither ends the line nor moves a cursor.
fn fields() -> impl for<'w> FormatFields<'w> + Send + Sync + 'static {
    let field = |to: &mut Writer<'_>, field: &Field, value: &dyn Debug| {
        if field.name() != "message" {
            write!(to, "{field}=")?;
        }
        for c in format!("{value:?}").chars() {
            if c.is_control() { write!(to, "{}", c.escape_default())? } else { write!(to, "{c}")? }
        }
        Ok(())
    };
    format::debug_fn(field).delimited(" ")
}

/// Starts logging at a level that the variable `RUST_LOG` overrides. A second call changes nothing.
pub fn init(format: LogFormat, level: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    // A log that cannot be written (a full disk, a reader that is gone) is lost; saying so there would panic.
    let logs = tracing_subscriber::fmt()
        .log_internal_errors(false)
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    // `try_init` fails only where a subscriber is set already.
    let _ = match format {
        LogFormat::Text => {
            let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            logs.with_ansi(colour).with_target(false).fmt_fields(fields()).try_init()
        }
        LogFormat::Json => logs.json().flatten_event(true).try_init(),
    };
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_came_from_outside_stays_on_its_line_and_has_no_control_characters() {
        let lines = Lines::default();
        let to = lines.clone();
        let logs = tracing_subscriber::fmt()
            .with_ansi(false)
            .without_time()
            .with_target(false)
            .with_writer(move || to.clone())
            .fmt_fields(fields())
            .finish();
        let evil = "a\nERROR forged\u{1b}[2J";
        tracing::subscriber::with_default(logs, || {
            tracing::info!(shown = %evil, quoted = evil, number = 3, "said: {evil}");
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let escaped = "a\\nERROR forged\\u{1b}[2J";
        assert_eq!(text, format!(" INFO said: {escaped} shown={escaped} quoted=\"{escaped}\" number=3\n"));
    }
}
