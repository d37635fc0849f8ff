//! The wiring: what a command does, made of the core and the edge.

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

use std::io::{self, ErrorKind, Write as _};

/// How a command prints its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Output {
    /// For people.
    #[default]
    Text,
    /// One JSON document.
    Json,
}

/// The exit code of bad usage: a flag, a key or a file that makes no sense (`EX_USAGE` of sysexits).
pub const BAD_USAGE: u8 = 64;

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
