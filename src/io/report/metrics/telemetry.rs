//! Metrics of what is sent over OTLP, none of which has a series as long as nothing is sent; and metrics as text.

use prometheus::proto::MetricFamily;
use prometheus::{Encoder, IntGaugeVec, TextEncoder};

use super::{Maker, Metrics};
use crate::io::telemetry::TelemetryCounts;

pub(super) fn counts(make: &Maker<'_>) -> prometheus::Result<TelemetryCounts> {
    Ok(TelemetryCounts {
        sent: make.counters(
            "telemetry_sent_total",
            "Spans and data points that a receiver of OTLP took.",
            &["signal"],
        )?,
        dropped: make.counters(
            "telemetry_dropped_total",
            "Spans and data points that were not delivered over OTLP, by why.",
            &["signal", "reason"],
        )?,
        queued: make.register(IntGaugeVec::new(
            Maker::opts("telemetry_queue_length", "Spans that wait to be sent."),
            &["signal"],
        )?)?,
    })
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
