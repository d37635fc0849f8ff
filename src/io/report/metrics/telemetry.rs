//! Metrics of what is sent over OTLP, which have no series while OTLP is off; and the text exposition of all metrics.

use std::sync::Arc;

use prometheus::proto::MetricFamily;
use prometheus::{Encoder, TextEncoder};
use strum::{Display, IntoStaticStr, VariantArray};

use super::{Maker, Metrics, set};
use crate::domain::text::named;

/// A kind of telemetry that is sent over OTLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Display, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Signal {
    /// Traces, counted in spans.
    Traces,
    /// Metrics, counted in data points.
    Metrics,
}

named!(Signal, "The value of the `signal` label.", all);

/// Why spans or data points were not delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Loss {
    /// The queue was full.
    QueueFull,
    /// No connection, a connection that broke, or a gRPC status that says that the receiver is unavailable.
    Unreachable,
    /// No answer in time.
    TimedOut,
    /// The receiver refused the request.
    Refused,
    /// The answer is not one of OTLP.
    Unreadable,
    /// The receiver accepted the request and reported these items as rejected (`partial_success`).
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

/// Counts spans and data points that were sent or lost. Cheap to clone; has no series until something is counted.
#[derive(Debug, Clone)]
pub struct TelemetryCounts(Arc<TelemetryMetrics>);

impl TelemetryCounts {
    pub(super) fn new(make: &Maker<'_>) -> prometheus::Result<Self> {
        TelemetryMetrics::new(make).map(|metrics| Self(Arc::new(metrics)))
    }

    /// Counts `count` items that the receiver accepted.
    pub fn sent(&self, signal: Signal, count: u64) {
        self.0.sent.with_label_values(&[signal.as_str()]).inc_by(count);
    }

    /// Counts `count` items that were not delivered.
    pub fn dropped(&self, signal: Signal, reason: Loss, count: u64) {
        let labels = [signal.as_str(), reason.as_str()];
        self.0.dropped.with_label_values(&labels).inc_by(count);
    }

    /// Sets the length of the queue.
    pub fn queued(&self, signal: Signal, count: usize) {
        set(&self.0.queued, &[signal.as_str()], count as f64);
    }
}

impl Metrics {
    /// The counters of the spans and data points that are sent over OTLP.
    pub fn telemetry(&self) -> &TelemetryCounts {
        &self.telemetry
    }

    /// Encodes metrics in Prometheus' text exposition format.
    ///
    /// # Errors
    /// If a metric cannot be encoded, which is a bug in this module.
    pub fn text(families: &[MetricFamily]) -> prometheus::Result<Vec<u8>> {
        let mut text = Vec::new();
        TextEncoder::new().encode(families, &mut text)?;
        Ok(text)
    }
}
