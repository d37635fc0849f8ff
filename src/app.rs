//! The wiring: what a command does, made of the core and the edge.

pub mod config;
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
