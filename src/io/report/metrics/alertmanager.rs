//! Metrics of the alerts that hookwatch pushes. The Alertmanager in their label comes from the configuration, so their number
//! is bounded.

use strum::{IntoStaticStr, VariantArray};

use super::{Metrics, set};
use crate::domain::text::named;
use crate::domain::time::Time;
use crate::io::endpoint::EndpointError;

/// Why an alert was not pushed to an Alertmanager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Dropped {
    /// The Alertmanager refused the push.
    Refused,
    /// The Alertmanager was unreachable until hookwatch gave up announcing the alert's end. The alert expires there by itself.
    Expired,
    /// More alerts fired at once than hookwatch pushes.
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
    /// Creates the series of an Alertmanager with 0, so that its first failure shows as an increase.
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

    /// Counts the alerts of a push that was accepted at `at`.
    pub fn alerts_sent(&self, alertmanager: &str, alerts: usize, at: Time) {
        let metrics = &self.alertmanager;
        metrics
            .sent
            .with_label_values(&[alertmanager])
            .inc_by(alerts as u64);
        let at = self.wall.date(at).unix_seconds();
        set(&metrics.last_success, &[alertmanager], at);
    }

    /// Counts a failed push, by the reason of the error.
    pub fn push_failed(&self, alertmanager: &str, why: &EndpointError) {
        let labels = [alertmanager, why.reason()];
        self.alertmanager.failed.with_label_values(&labels).inc();
    }

    /// Counts alerts, or ends of alerts, that this Alertmanager never receives.
    pub fn alerts_dropped(&self, alertmanager: &str, why: Dropped, alerts: usize) {
        let labels = [alertmanager, why.as_str()];
        self.alertmanager
            .dropped
            .with_label_values(&labels)
            .inc_by(alerts as u64);
    }
}
