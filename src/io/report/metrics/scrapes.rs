//! Metrics of hookwatch's own scrapes of API servers.

use prometheus::{GaugeVec, Histogram, IntCounter, IntCounterVec};

use super::Maker;
use crate::domain::observe::snapshot::{Scrape, ScrapeFailure};
use crate::domain::observe::views::ScrapeView;

#[derive(Debug)]
pub(super) struct ScrapeMetrics {
    scrapes: IntCounterVec,
    seconds: Histogram,
    bytes: IntCounter,
    unreadable: IntCounter,
    last_success: GaugeVec,
}

impl ScrapeMetrics {
    pub(super) fn new(make: &Maker<'_>) -> prometheus::Result<Self> {
        Ok(Self {
            scrapes: make.counters(
                "scrapes_total",
                "Scrapes of API servers by result: success, or why they failed.",
                &["result"],
            )?,
            seconds: make.histogram("scrape_duration_seconds", "Time per successful scrape.")?,
            bytes: make.counter("scrape_bytes_total", "Bytes of metrics read.")?,
            unreadable: make.counter(
                "scrape_unreadable_total",
                "Lines that could not be read, and samples left out at a bound.",
            )?,
            last_success: make.gauges(
                "scrape_last_success_timestamp_seconds",
                "When the target was last scraped.",
                &["target"],
            )?,
        })
    }

    /// The gauge whose series come and go.
    pub(super) fn vector(&self) -> &GaugeVec {
        &self.last_success
    }

    pub(super) fn scraped(&self, scrape: &Scrape) {
        self.scrapes.with_label_values(&["success"]).inc();
        self.seconds.observe(scrape.took.as_secs_f64());
        self.bytes.inc_by(scrape.bytes);
        self.unreadable
            .inc_by(scrape.complaints.unreadable + scrape.complaints.left_out);
    }

    pub(super) fn failed(&self, failure: &ScrapeFailure) {
        self.scrapes.with_label_values(&[failure.reason.as_str()]).inc();
    }

    pub(super) fn fill(&self, scrapes: &[ScrapeView], at: f64) {
        for scrape in scrapes {
            if let Some(age) = scrape.age_seconds {
                self.last_success
                    .with_label_values(&[&scrape.target])
                    .set(at - age);
            }
        }
    }
}
