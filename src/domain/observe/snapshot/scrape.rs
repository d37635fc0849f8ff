//! The event of a scrape: the metrics that were read, or why it failed.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

use super::Snapshot;
use crate::text::named;
use crate::time::Time;

/// One successful scrape of one API server's metrics.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scrape {
    /// The address that was asked.
    pub target: String,
    /// When the answer was complete.
    pub at: Time,
    /// How long the scrape took.
    pub took: Duration,
    /// Size of the body in bytes.
    pub bytes: u64,
    /// The kept part of the metrics.
    pub snapshot: Snapshot,
    /// Lines and samples that could not be used.
    pub complaints: Complaints,
}

/// A scrape that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrapeFailure {
    /// The address that was asked.
    pub target: String,
    /// When it failed.
    pub at: Time,
    /// The kind of failure; a label value in metrics.
    pub reason: ScrapeFailureReason,
    /// The full error text.
    pub why: String,
}

/// Why a scrape failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, IntoStaticStr, VariantArray)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ScrapeFailureReason {
    /// No connection could be made.
    Unreachable,
    /// No complete answer before the timeout.
    TimedOut,
    /// 401 or 403.
    Forbidden,
    /// 429 or 5xx.
    Refused,
    /// The body is not an exposition, or not an API server's; or any other HTTP status.
    NotMetrics,
    /// The body was larger than allowed or broke off.
    Truncated,
}

impl ScrapeFailureReason {
    /// Classifies an HTTP status other than 2xx.
    pub const fn of_status(status: u16) -> Self {
        match status {
            401 | 403 => Self::Forbidden,
            429 | 500..=599 => Self::Refused,
            _ => Self::NotMetrics,
        }
    }
}

named!(ScrapeFailureReason, "The value of the label `reason`.", all);

/// What could not be used in an exposition.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Complaints {
    /// Lines or messages that could not be parsed.
    pub unreadable: u64,
    /// Samples left out because a limit was reached or their value is not finite.
    pub left_out: u64,
    /// The first complaint, quoted.
    pub first: Option<String>,
}
