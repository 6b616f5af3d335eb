//! Logs: one line per event on standard error, as text or JSON.

use std::io::IsTerminal as _;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

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
            logs.with_ansi(colour).with_target(false).try_init()
        }
        LogFormat::Json => logs.json().flatten_event(true).try_init(),
    };
}
