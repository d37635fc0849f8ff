//! The pure core: what hookwatch knows and how it decides.
//!
//! No async, no clock, no client, no log, no metrics crate. Observations and the time they were made come in
//! as values; assessments and wishes go out as values.

pub mod canary;
pub mod exposition;
pub mod hook;
pub mod inventory;
pub mod matching;
pub mod probe;
pub mod snapshot;
pub mod time;
