//! The commands. Each wires `domain` and `io` together.

pub mod audit;
pub mod by_hand;
pub mod config;
mod contexts;
#[cfg(feature = "lab")]
pub mod demo;
pub mod diagnose;
pub mod engine;
pub mod progress;
pub mod replay;
pub mod run;
pub mod terminal;
pub mod text;

use std::fmt::Display;
use std::io::{self, ErrorKind, Write as _};
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::Serialize;
use tokio::time::{Interval, MissedTickBehavior, interval};

/// How a command prints its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Output {
    /// For people.
    #[default]
    Text,
    /// One JSON document.
    Json,
}

/// The exit code of bad usage (`EX_USAGE` of sysexits).
pub const BAD_USAGE: u8 = 64;

/// Invalid flags, keys or files: every mistake that was found.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct BadUsage(pub Vec<String>);

impl BadUsage {
    /// One mistake.
    pub fn new(mistake: impl Display) -> Self {
        Self(vec![mistake.to_string()])
    }

    /// Every mistake in a configuration.
    pub fn of(mistakes: Vec<config::ConfigError>) -> Self {
        Self(mistakes.iter().map(ToString::to_string).collect())
    }
}

/// Reads a duration within bounds.
///
/// # Errors
/// What is wrong with it, and what would be right.
fn duration(text: &str, range: &RangeInclusive<Duration>) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(duration) if range.contains(&duration) => Ok(duration),
        Ok(_) => Err(format!(
            "{text:?} is out of range, use {} to {}",
            humantime::format_duration(*range.start()),
            humantime::format_duration(*range.end())
        )),
        Err(error) => Err(format!("{text:?} is not a duration like 5s or 2m: {error}")),
    }
}

/// Ticks, the first at once. After a late tick the next one comes a whole period later, so ticks never come in a burst.
fn every(period: Duration) -> Interval {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// A result as the JSON document that is printed.
///
/// # Errors
/// When it cannot be written as JSON.
pub fn to_json(result: &impl Serialize) -> serde_json::Result<String> {
    Ok(serde_json::to_string_pretty(result)? + "\n")
}

/// Prints to standard error, without terminal control sequences. A closed standard error is ignored, so that no command ends in
/// the middle of a change.
pub fn tell(text: impl Display) {
    let _ = writeln!(io::stderr(), "{}", text::clean_lines(&text.to_string()));
}

/// Prints a result for people, without terminal control sequences.
///
/// # Errors
/// As for [`print()`].
pub fn print_text(text: &str) -> io::Result<()> {
    print(&text::clean_lines(text))
}

/// Prints a result on standard output. A reader that has seen enough, such as `head`, is no error.
///
/// # Errors
/// When standard output cannot be written to for another reason.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}
