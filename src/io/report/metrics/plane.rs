//! Metrics of how writes to the control plane go, and of the canaries that tell.

use prometheus::{Gauge, GaugeVec, HistogramVec, IntCounterVec};

use super::Maker;
use crate::domain::diagnose::verdict::ControlPlane;
use crate::domain::observe::canary::CanaryReport;
use crate::domain::vocabulary::{NotAHook, Writes};

#[derive(Debug)]
pub(super) struct PlaneMetrics {
    writes: GaugeVec,
    write_seconds: Gauge,
    usual_write_seconds: Gauge,
    not_a_hook: GaugeVec,
    canaries: IntCounterVec,
    canary_seconds: HistogramVec,
    canary_late: GaugeVec,
}

impl PlaneMetrics {
    pub(super) fn new(make: &Maker<'_>) -> prometheus::Result<Self> {
        Ok(Self {
            writes: make.gauges(
                "control_plane_writes",
                "1 for how writes to the control plane go now, 0 for the others.",
                &["state"],
            )?,
            write_seconds: make.gauge(
                "control_plane_write_seconds",
                "Recent mean time per CREATE or UPDATE.",
            )?,
            usual_write_seconds: make.gauge(
                "control_plane_usual_write_seconds",
                "Mean time per CREATE or UPDATE in calm times.",
            )?,
            not_a_hook: make.gauges(
                "not_a_hook",
                "1 for what slows or blocks writes when it is no webhook, 0 for the others.",
                &["cause"],
            )?,
            canaries: make.counters(
                "canaries_total",
                "Finished canaries by outcome.",
                &["canary", "outcome"],
            )?,
            canary_seconds: make.histograms("canary_duration_seconds", "Time per canary.", &["canary"])?,
            canary_late: make.gauges(
                "canary_overdue",
                "1 while a canary is late by 2 s or more.",
                &["canary"],
            )?,
        })
    }

    pub(super) fn canary_written(&self, report: &CanaryReport) {
        let canary = report.target.as_str();
        self.canaries
            .with_label_values(&[canary, report.outcome.as_str()])
            .inc();
        self.canary_seconds
            .with_label_values(&[canary])
            .observe(report.took.as_secs_f64());
    }

    pub(super) fn fill(&self, plane: &ControlPlane) {
        for &state in Writes::ALL {
            let now = f64::from(u8::from(plane.writes == state));
            self.writes.with_label_values(&[state.as_str()]).set(now);
        }
        for &cause in NotAHook::ALL {
            let is_it = plane
                .not_a_hook
                .as_ref()
                .is_some_and(|found| found.cause == cause);
            self.not_a_hook
                .with_label_values(&[cause.as_str()])
                .set(f64::from(u8::from(is_it)));
        }
        self.write_seconds.set(plane.write_seconds.unwrap_or(f64::NAN));
        self.usual_write_seconds
            .set(plane.usual_write_seconds.unwrap_or(f64::NAN));
        for canary in &plane.canaries {
            let late = f64::from(u8::from(canary.state == "overdue"));
            self.canary_late
                .with_label_values(&[canary.canary.as_str()])
                .set(late);
        }
    }
}
