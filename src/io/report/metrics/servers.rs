//! Metrics of the API servers themselves and of the nodes' heartbeats.

use super::{Metrics, flag, set};
use crate::domain::observe::snapshot::ScrapeFailure;
use crate::domain::observe::stored::PrometheusReading;
use crate::domain::observe::views::{ScrapeView, Sources};

group! {
    ServerMetrics:
    ready = passing("api_server_ready", &["target"]):
        "1 when the API server says that it is ready, 0 when it says that it is not; no series when it does not say.";
    failing_check = passing("api_server_failing_check", &["target", "check"]):
        "1 for each check of /readyz that fails; at most 32 per API server.";
    answering = passing("api_server_processes", &["target", "answers"]):
        "Processes seen behind the target in the last five minutes that answer, or do not any more.";
    version = passing("api_server_info", &["target", "version"]):
        "Always 1; the release of the API server is a label.";
    oldest_lease = gauge("oldest_node_lease_age_seconds"):
        "For how long the node Lease that waits longest has not been seen to change; NaN when that is not known.";
    leases = gauge("node_leases"): "Node Leases seen; NaN when they cannot be read.";
    late_leases = gauge("node_leases_late"):
        "Node Leases that have not been renewed for over 40 s; NaN when they cannot be read.";
    readings = counters("prometheus_readings_total", &["result"]):
        "Readings of the configured Prometheus by result: success, or why they failed.";
    newest_sample = gauge("prometheus_newest_sample_timestamp_seconds"):
        "When the newest scrape was made that the configured Prometheus has stored; NaN without one.";
    rests_on_stored = gauge("prometheus_in_use"):
        "1 while verdicts rest on the configured Prometheus, as no scrape of hookwatch's own succeeds; 0 otherwise.";
}

impl ServerMetrics {
    pub(super) fn fill(&self, sources: &Sources, at: f64) {
        let stored = sources.prometheus.as_ref();
        let age = stored.and_then(|view| view.age_seconds);
        self.newest_sample.set(age.map_or(f64::NAN, |age| at - age));
        let used = stored.is_some_and(|view| view.used);
        self.rests_on_stored.set(flag(used));
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

    fn fill_target(&self, view: &ScrapeView) {
        let target = view.target.as_str();
        if let ready @ ("ready" | "not_ready") = view.readiness.state {
            set(&self.ready, &[target], flag(ready == "ready"));
        }
        for check in &view.readiness.failing {
            set(&self.failing_check, &[target, check], 1.0);
        }
        let silent = view.silent.len();
        for (answers, count) in [("yes", view.replicas.saturating_sub(silent)), ("no", silent)] {
            set(&self.answering, &[target, answers], count as f64);
        }
        if let Some(version) = &view.version {
            set(&self.version, &[target, version], 1.0);
        }
    }
}

impl Metrics {
    /// Counts a reading of the configured Prometheus, by result.
    pub fn stored_read(&self, reading: Result<&PrometheusReading, &ScrapeFailure>) {
        let result = reading.map_or_else(|failure| failure.reason.as_str(), |_| "success");
        self.servers.readings.with_label_values(&[result]).inc();
    }
}
