//! Metrics of the API servers themselves and of the nodes' heartbeats.

use prometheus::{Gauge, GaugeVec, IntCounterVec};

use super::Maker;
use crate::domain::observe::views::{ScrapeView, Sources, StoredView};

#[derive(Debug)]
pub(super) struct ServerMetrics {
    ready: GaugeVec,
    failing_check: GaugeVec,
    answering: GaugeVec,
    version: GaugeVec,
    oldest_lease: Gauge,
    leases: Gauge,
    late_leases: Gauge,
    readings: IntCounterVec,
    newest_sample: Gauge,
    rests_on_stored: Gauge,
}

impl ServerMetrics {
    pub(super) fn new(make: &Maker<'_>) -> prometheus::Result<Self> {
        Ok(Self {
            ready: make.gauges(
                "api_server_ready",
                "1 when the API server says that it is ready, 0 when it says that it is not; no series when it does not say.",
                &["target"],
            )?,
            failing_check: make.gauges(
                "api_server_failing_check",
                "1 for each check of /readyz that fails; at most 32 per API server.",
                &["target", "check"],
            )?,
            answering: make.gauges(
                "api_server_processes",
                "Processes seen behind the target in the last five minutes that answer, or do not any more.",
                &["target", "answers"],
            )?,
            version: make.gauges(
                "api_server_info",
                "Always 1; the release of the API server is a label.",
                &["target", "version"],
            )?,
            oldest_lease: make.gauge(
                "oldest_node_lease_age_seconds",
                "For how long the node Lease that waits longest has not been seen to change; NaN when that is not known.",
            )?,
            leases: make.gauge("node_leases", "Node Leases seen; NaN when they cannot be read.")?,
            late_leases: make.gauge(
                "node_leases_late",
                "Node Leases that have not been renewed for over 40 s; NaN when they cannot be read.",
            )?,
            readings: make.counters(
                "prometheus_readings_total",
                "Readings of the configured Prometheus by result: success, or why they failed.",
                &["result"],
            )?,
            newest_sample: make.gauge(
                "prometheus_newest_sample_timestamp_seconds",
                "When the newest scrape was made that the configured Prometheus has stored; NaN without one.",
            )?,
            rests_on_stored: make.gauge(
                "prometheus_in_use",
                "1 while verdicts rest on the configured Prometheus, as no scrape of hookwatch's own succeeds; 0 otherwise.",
            )?,
        })
    }

    /// Gauges whose series come and go.
    pub(super) fn vectors(&self) -> [&GaugeVec; 4] {
        [&self.ready, &self.failing_check, &self.answering, &self.version]
    }

    pub(super) fn fill(&self, sources: &Sources, at: f64) {
        self.fill_stored(sources.prometheus.as_ref(), at);
        for view in &sources.scrapes {
            self.fill_target(view);
        }
        let leases = &sources.node_leases;
        let known = matches!(leases.state, "current" | "none");
        let number = |count: usize| if known { count as f64 } else { f64::NAN };
        self.leases.set(number(leases.nodes));
        self.late_leases.set(number(leases.late));
        self.oldest_lease
            .set(leases.oldest_age_seconds.unwrap_or(f64::NAN));
    }

    /// Counts a reading of the Prometheus by its result.
    pub(super) fn read(&self, result: &str) {
        self.readings.with_label_values(&[result]).inc();
    }

    fn fill_stored(&self, view: Option<&StoredView>, at: f64) {
        let age = view.and_then(|view| view.age_seconds);
        self.newest_sample.set(age.map_or(f64::NAN, |age| at - age));
        let used = view.is_some_and(|view| view.used);
        self.rests_on_stored.set(f64::from(u8::from(used)));
    }

    fn fill_target(&self, view: &ScrapeView) {
        let target = view.target.as_str();
        let ready = match view.readiness.state {
            "ready" => Some(1.0),
            "not_ready" => Some(0.0),
            _ => None,
        };
        if let Some(ready) = ready {
            self.ready.with_label_values(&[target]).set(ready);
        }
        for check in &view.readiness.failing {
            self.failing_check
                .with_label_values(&[target, check.as_str()])
                .set(1.0);
        }
        let silent = view.silent.len();
        for (answers, count) in [("yes", view.replicas.saturating_sub(silent)), ("no", silent)] {
            self.answering
                .with_label_values(&[target, answers])
                .set(count as f64);
        }
        if let Some(version) = &view.version {
            self.version
                .with_label_values(&[target, version.as_str()])
                .set(1.0);
        }
    }
}
