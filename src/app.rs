//! The wiring: what a command does, made of the core and the edge.

pub mod config;
pub mod demo;
pub mod diagnose;
pub mod engine;
pub mod replay;
pub mod run;

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
