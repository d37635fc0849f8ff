//! The programs: what is wired from `domain` and `io`, one module per command.

pub mod demo;
