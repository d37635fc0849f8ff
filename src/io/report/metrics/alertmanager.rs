//! Metrics of the alerts that hookwatch pushes itself. Their label is the Alertmanager, as configured, and so bounded.

use strum::{IntoStaticStr, VariantArray};

use super::{Metrics, set};
use crate::domain::text::named;
use crate::domain::time::Time;
use crate::io::endpoint::EndpointError;

/// Why an alert was not pushed to an Alertmanager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Dropped {
    /// It refused the push.
    Refused,
    /// It was down until the end of the alert was forgotten; the alert expires there.
    Expired,
    /// More fire at once than are pushed.
    TooMany,
}

named!(Dropped, "The value of the `reason` label in metrics.", all);

group! {
    PushMetrics:
    sent = counters("alertmanager_alerts_sent_total", &["alertmanager"]):
        "Alerts in pushes that the Alertmanager took; each counts as often as it is sent.";
    failed = counters("alertmanager_pushes_failed_total", &["alertmanager", "reason"]):
        "Pushes that the Alertmanager did not take, by reason.";
    dropped = counters("alertmanager_alerts_dropped_total", &["alertmanager", "reason"]):
        "Alerts, or ends of alerts, that the Alertmanager was not told of, by reason.";
    last_success = gauges("alertmanager_last_success_timestamp_seconds", &["alertmanager"]):
        "When the Alertmanager last took a push; 0 before the first.";
}

impl Metrics {
    /// Begins the series of an Alertmanager, so that the first failure shows as an increase.
    pub fn alertmanager_known(&self, alertmanager: &str) {
        let metrics = &self.alertmanager;
        metrics.sent.with_label_values(&[alertmanager]).inc_by(0);
        for reason in EndpointError::REASONS {
            metrics
                .failed
                .with_label_values(&[alertmanager, reason])
                .inc_by(0);
        }
        for &reason in Dropped::ALL {
            metrics
                .dropped
                .with_label_values(&[alertmanager, reason.as_str()])
                .inc_by(0);
        }
        metrics.last_success.with_label_values(&[alertmanager]).set(0.0);
    }

    /// Counts a push that was accepted at `at`, and its alerts.
    pub fn alerts_sent(&self, alertmanager: &str, alerts: usize, at: Time) {
        let metrics = &self.alertmanager;
        metrics
            .sent
            .with_label_values(&[alertmanager])
            .inc_by(alerts as u64);
        let at = self.wall.date(at).unix_seconds();
        set(&metrics.last_success, &[alertmanager], at);
    }

    /// Counts a push that was not taken.
    pub fn push_failed(&self, alertmanager: &str, why: &EndpointError) {
        let labels = [alertmanager, why.reason()];
        self.alertmanager.failed.with_label_values(&labels).inc();
    }

    /// Counts alerts that are not pushed to the Alertmanager.
    pub fn alerts_dropped(&self, alertmanager: &str, why: Dropped, alerts: usize) {
        let labels = [alertmanager, why.as_str()];
        self.alertmanager
            .dropped
            .with_label_values(&labels)
            .inc_by(alerts as u64);
    }
}
