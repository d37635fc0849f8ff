//! The pure core: what hookwatch knows and how it decides.
//!
//! No async, no clock, no client, no log, no metrics crate. Observations and the time they were made come in
//! as values; assessments and wishes go out as values.

pub mod alerts;
pub mod announcement;
pub mod assessment;
pub mod audit;
pub mod breaker;
pub mod bypass;
pub mod canaries;
pub mod canary;
pub mod chain;
pub mod changes;
pub mod clocks;
pub mod condition;
pub mod diagnose;
pub mod exposition;
pub mod fence;
pub mod history;
pub mod hook;
pub mod inventory;
pub mod kept;
pub mod leadership;
pub mod ledger;
pub mod matching;
pub mod node_leases;
pub mod observations;
pub mod probe;
pub mod probing;
pub mod readiness;
pub mod recording;
pub mod rollouts;
pub mod row;
pub mod schedule;
pub mod snapshot;
pub mod stored;
pub mod text;
pub mod thresholds;
pub mod time;
pub mod unchecked;
pub mod verdict;
pub mod views;
pub mod vocabulary;
pub mod watchdog;
