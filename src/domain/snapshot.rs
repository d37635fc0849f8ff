//! What is kept of one scrape: the few hundred numbers that matter, whatever format they came in.
//!
//! A busy API server serves tens of megabytes. A [`Snapshot`] folds each wanted sample into a sum the moment
//! it is read, so its size depends on how many hooks and resources there are, never on the body.

use std::collections::BTreeMap;
use std::time::Duration;

use super::hook::HookKind;
use super::time::Time;

/// One reading of one API-server replica's metrics.
#[derive(Debug, Clone, PartialEq)]
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
#[derive(Debug, Clone, PartialEq, Eq)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ScrapeFailureReason {
    /// No connection.
    Unreachable,
    /// Not back in time.
    TimedOut,
    /// 401 or 403.
    Forbidden,
    /// 429 or 5xx.
    Refused,
    /// The body is not an exposition, or not of an API server.
    NotMetrics,
    /// The body was larger than allowed or broke off.
    Truncated,
}

impl ScrapeFailureReason {
    /// The value of the `reason` label in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::TimedOut => "timed_out",
            Self::Forbidden => "forbidden",
            Self::Refused => "refused",
            Self::NotMetrics => "not_metrics",
            Self::Truncated => "truncated",
        }
    }
}

/// A sum and a count that only grow, as Prometheus histograms and summaries carry them.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Cumulative {
    /// Seconds.
    pub sum: f64,
    /// Observations.
    pub count: f64,
}

/// Everything kept of one replica's metrics. Counters are as scraped, summed over the labels not named here.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Snapshot {
    /// `process_start_time_seconds`: tells replicas behind one address apart.
    pub process_start: Option<f64>,
    /// Hooks by kind and name: the API server's metrics know no configuration.
    pub hooks: BTreeMap<(HookKind, String), Cumulative>,
}

/// What was odd in an exposition; each kind counted, the first of them quoted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Complaints {
    /// Lines that could not be read.
    pub unreadable: u64,
    /// Samples left out because a bound was reached.
    pub left_out: u64,
    /// The first complaint, quoted.
    pub first: Option<String>,
}
