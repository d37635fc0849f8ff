//! Metrics of hookwatch's own scrapes of API servers.

use super::{Metrics, set};
use crate::domain::observe::snapshot::{Scrape, ScrapeFailure};
use crate::domain::observe::views::ScrapeView;

group! {
    ScrapeMetrics:
    scrapes = counters("scrapes_total", &["result"]):
        "Scrapes of API servers by result: success, or why they failed.";
    seconds = histogram("scrape_duration_seconds"): "Time per successful scrape.";
    bytes = counter("scrape_bytes_total"): "Bytes of metrics read.";
    unreadable = counter("scrape_unreadable_total"):
        "Lines that could not be read, and samples left out at a bound.";
    last_success = passing("scrape_last_success_timestamp_seconds", &["target"]):
        "When the target was last scraped.";
}

impl ScrapeMetrics {
    pub(super) fn fill(&self, scrapes: &[ScrapeView], at: f64) {
        for scrape in scrapes {
            if let Some(age) = scrape.age_seconds {
                set(&self.last_success, &[&scrape.target], at - age);
            }
        }
    }
}

impl Metrics {
    /// Counts a successful scrape, its duration and size.
    pub fn scraped(&self, scrape: &Scrape) {
        let metrics = &self.scrapes;
        metrics.scrapes.with_label_values(&["success"]).inc();
        metrics.seconds.observe(scrape.took.as_secs_f64());
        metrics.bytes.inc_by(scrape.bytes);
        let complaints = &scrape.complaints;
        metrics
            .unreadable
            .inc_by(complaints.unreadable + complaints.left_out);
    }

    /// Counts a failed scrape, by reason.
    pub fn scrape_failed(&self, failure: &ScrapeFailure) {
        let scrapes = &self.scrapes.scrapes;
        scrapes.with_label_values(&[failure.reason.as_str()]).inc();
    }
}
