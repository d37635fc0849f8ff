//! Metrics of what is sent over OTLP, none of which has a series as long as nothing is sent; and metrics as text.

use std::sync::Arc;

use prometheus::proto::MetricFamily;
use prometheus::{Encoder, TextEncoder};
use strum::{Display, IntoStaticStr, VariantArray};

use super::{Maker, Metrics, set};
use crate::domain::text::named;

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Display, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Signal {
    /// Spans.
    Traces,
    /// Data points.
    Metrics,
}

named!(Signal, "The value of the `signal` label.", all);

/// Why something was not delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Loss {
    /// The queue was full.
    QueueFull,
    /// No connection, or it broke.
    Unreachable,
    /// No answer in time.
    TimedOut,
    /// The receiver did not take the request.
    Refused,
    /// The answer was none that a receiver of OTLP gives.
    Unreadable,
    /// The receiver took the request, and said that it threw a part of it away.
    Rejected,
}

named!(Loss, "The value of the `reason` label.", all);

group! {
    TelemetryMetrics:
    sent = counters("telemetry_sent_total", &["signal"]): "Spans and data points that a receiver of OTLP took.";
    dropped = counters("telemetry_dropped_total", &["signal", "reason"]):
        "Spans and data points that were not delivered over OTLP, by why.";
    queued = gauges("telemetry_queue_length", &["signal"]): "Spans that wait to be sent.";
}

/// Counts spans and data points. Cheap to clone; has no series until something is counted.
#[derive(Debug, Clone)]
pub struct TelemetryCounts(Arc<TelemetryMetrics>);

impl TelemetryCounts {
    pub(super) fn new(make: &Maker<'_>) -> prometheus::Result<Self> {
        TelemetryMetrics::new(make).map(|metrics| Self(Arc::new(metrics)))
    }

    /// Counts what the receiver took.
    pub fn sent(&self, signal: Signal, count: u64) {
        self.0.sent.with_label_values(&[signal.as_str()]).inc_by(count);
    }

    /// Counts what is lost.
    pub fn dropped(&self, signal: Signal, reason: Loss, count: u64) {
        let labels = [signal.as_str(), reason.as_str()];
        self.0.dropped.with_label_values(&labels).inc_by(count);
    }

    /// Says how many are waiting.
    pub fn queued(&self, signal: Signal, count: usize) {
        set(&self.0.queued, &[signal.as_str()], count as f64);
    }
}

impl Metrics {
    /// What counts the spans and data points that are sent over OTLP.
    pub fn telemetry(&self) -> &TelemetryCounts {
        &self.telemetry
    }

    /// Metrics as a text exposition.
    ///
    /// # Errors
    /// When a metric cannot be written as text, which is a mistake in this file.
    pub fn text(families: &[MetricFamily]) -> prometheus::Result<Vec<u8>> {
        let mut text = Vec::new();
        TextEncoder::new().encode(families, &mut text)?;
        Ok(text)
    }
}
