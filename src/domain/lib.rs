//! The pure core: hookwatch's knowledge and decisions.
//!
//! No async, no clock, no client, no log, no metrics crate. Observations and their times come in as values; assessments
//! and effects go out as values. It is a package of its own, so that the compiler enforces that; `clippy.toml` lists what it
//! must not use of the standard library.

#![cfg_attr(not(test), warn(clippy::too_many_lines))]
#![cfg_attr(
    not(test),
    deny(
        clippy::disallowed_macros,
        clippy::disallowed_methods,
        clippy::disallowed_types
    )
)]

pub mod act;
pub mod audit;
pub mod cluster;
pub mod diagnose;
pub mod observe;
pub mod recording;
pub mod report;
pub mod row;
pub mod text;
pub mod thresholds;
pub mod time;
pub mod vocabulary;
pub mod watchdog;
