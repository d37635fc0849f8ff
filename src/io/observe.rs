//! The sources of observations, each asked once per call.

pub mod canary;
pub mod node_leases;
pub mod probe;
pub mod prometheus;
pub mod scrape;

use std::time::Duration;

/// The bounds of one reading of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadingLimits {
    /// Most bytes of an answer.
    pub max_bytes: u64,
    /// Longest time for the whole reading.
    pub timeout: Duration,
}
