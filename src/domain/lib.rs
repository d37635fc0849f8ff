//! The pure core: what hookwatch knows and how it decides.
//!
//! No async, no clock, no client, no log, no metrics crate. Observations and the time they were made come in
//! as values; assessments and wishes go out as values. It is a package of its own, so that the compiler holds that.

#![cfg_attr(not(test), warn(clippy::too_many_lines))]

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
