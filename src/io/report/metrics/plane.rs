//! Metrics of writes to the control plane, and of the canaries.

use super::{Metrics, flag, flag_each, set};
use crate::domain::diagnose::verdict::ControlPlane;
use crate::domain::observe::canary::CanaryReport;
use crate::domain::vocabulary::{NotAHook, Writes};

group! {
    PlaneMetrics:
    writes = gauges("control_plane_writes", &["state"]):
        "1 for how writes to the control plane go now, 0 for the others.";
    write_seconds = gauge("control_plane_write_seconds"): "Recent mean time per CREATE or UPDATE.";
    usual_write_seconds = gauge("control_plane_usual_write_seconds"):
        "Mean time per CREATE or UPDATE in calm times.";
    not_a_hook = gauges("not_a_hook", &["cause"]):
        "1 for what slows or blocks writes when it is no webhook, 0 for the others.";
    canaries = counters("canaries_total", &["canary", "outcome"]): "Finished canaries by outcome.";
    canary_seconds = histograms("canary_duration_seconds", &["canary"]): "Time per canary.";
    canary_late = gauges("canary_overdue", &["canary"]): "1 while a canary is late by 2 s or more.";
}

impl PlaneMetrics {
    pub(super) fn fill(&self, plane: &ControlPlane) {
        flag_each(&self.writes, Writes::ALL, |state| plane.writes == state);
        let not_a_hook = plane.not_a_hook.as_ref().map(|found| found.cause);
        flag_each(&self.not_a_hook, NotAHook::ALL, |cause| not_a_hook == Some(cause));
        self.write_seconds.set(plane.write_seconds.unwrap_or(f64::NAN));
        self.usual_write_seconds
            .set(plane.usual_write_seconds.unwrap_or(f64::NAN));
        for canary in &plane.canaries {
            let late = flag(canary.state == "overdue");
            set(&self.canary_late, &[canary.canary.as_str()], late);
        }
    }
}

impl Metrics {
    /// Counts a finished canary and observes its duration.
    pub fn canary_written(&self, report: &CanaryReport) {
        let (metrics, canary) = (&self.plane, report.target.as_str());
        let labels = [canary, report.outcome.as_str()];
        metrics.canaries.with_label_values(&labels).inc();
        let seconds = metrics.canary_seconds.with_label_values(&[canary]);
        seconds.observe(report.took.as_secs_f64());
    }
}
