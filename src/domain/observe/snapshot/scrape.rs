//! A scrape as an event: what was read, or why nothing was.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

use super::Snapshot;
use crate::text::named;
use crate::time::Time;

/// One reading of one API-server replica's metrics.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scrape {
    /// The address that was asked.
    pub target: String,
    /// When the answer was complete.
    pub at: Time,
    /// How long it took.
    pub took: Duration,
    /// Bytes of the body as read.
    pub bytes: u64,
    /// What it said.
    pub snapshot: Snapshot,
    /// What could not be read in it.
    pub complaints: Complaints,
}

/// A scrape that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrapeFailure {
    /// The address that was asked.
    pub target: String,
    /// When it was given up.
    pub at: Time,
    /// Which kind of failure; a label value.
    pub reason: ScrapeFailureReason,
    /// The whole text.
    pub why: String,
}

/// Why a scrape failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, IntoStaticStr, VariantArray)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ScrapeFailureReason {
    /// No connection.
    Unreachable,
    /// Not back in time.
    TimedOut,
    /// 401 or 403.
    Forbidden,
    /// 429 or 5xx.
    Refused,
    /// The body is not an exposition, or not an API server's.
    NotMetrics,
    /// The body was larger than allowed or broke off.
    Truncated,
}

impl ScrapeFailureReason {
    /// What a status means that is no success.
    pub const fn of_status(status: u16) -> Self {
        match status {
            401 | 403 => Self::Forbidden,
            429 | 500..=599 => Self::Refused,
            _ => Self::NotMetrics,
        }
    }
}

named!(ScrapeFailureReason, "The value of the label `reason`.", all);

/// What was odd in an exposition; each kind counted, the first of them quoted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Complaints {
    /// Lines or messages that could not be read.
    pub unreadable: u64,
    /// Samples left out because a bound was reached.
    pub left_out: u64,
    /// The first complaint, quoted.
    pub first: Option<String>,
}
