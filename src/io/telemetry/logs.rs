//! Log lines on standard error.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum LogFormat {
    /// Lines for people, in colour on a terminal.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts logging to standard error, so that standard output has only results. `filter` is as in
/// [`EnvFilter`], for example `info` or `hookwatch=debug`.
///
/// # Errors
/// A sentence if the filter is invalid or logging was started before.
pub fn start(format: LogFormat, filter: &str) -> Result<(), String> {
    let filter = EnvFilter::try_new(filter)
        .map_err(|error| format!("{filter:?} is not a log filter like info or hookwatch=debug: {error}"))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    let started = match format {
        LogFormat::Text => builder.with_target(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| format!("logging has begun already: {error}"))
}
