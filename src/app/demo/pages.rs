//! Follows a verdict from the Prometheus rule to the page for the on-call engineer, until that resolves.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::judge::rounded;
use super::timeline::{AlertText, DemoEvent};
use crate::lab::monitoring::{Monitoring, PrometheusAlert, ReceivedAlert};

/// The shortest time between two reads of Prometheus.
const LOOK: Duration = Duration::from_millis(500);
/// Longest wait for the first page: the alert on a slow hook takes 5 minutes to fire.
const DELIVERY: Duration = Duration::from_secs(7 * 60);
/// Longest wait for the end of all pages.
const END: Duration = Duration::from_secs(120);

/// The identity of an alert: all of its labels.
type AlertIdentity = BTreeMap<String, String>;

/// Follows the alerts of one demo.
pub struct Pages {
    monitoring: Monitoring,
    looked: Option<Instant>,
    /// The alerts of the last look, with their states.
    alerts: BTreeSet<(AlertIdentity, String)>,
    /// How many of the receiver's alerts have been recorded.
    recorded: usize,
    open: BTreeSet<AlertIdentity>,
    delivered: Vec<DeliveredPage>,
    /// When the fault was in force.
    pub fault: Option<Instant>,
    /// When the fault was removed.
    pub removed: Option<Instant>,
}

/// A page in the report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeliveredPage {
    /// The text of the alert.
    #[serde(flatten)]
    pub text: AlertText,
    /// From the fault to the delivery of the page.
    pub delivered_after_seconds: Option<f64>,
    /// From the removal of the fault to the message that it is resolved; `None` without that message, and if it came before the
    /// removal.
    pub resolved_after_seconds: Option<f64>,
    #[serde(skip)]
    is_resolved: bool,
    #[serde(skip)]
    labels: AlertIdentity,
}

impl Pages {
    pub fn new(monitoring: Monitoring) -> Self {
        Self {
            monitoring,
            looked: None,
            alerts: BTreeSet::new(),
            recorded: 0,
            open: BTreeSet::new(),
            delivered: Vec::new(),
            fault: None,
            removed: None,
        }
    }

    /// Leaves out of the report whatever is pending, firing or delivered already, before the fault.
    ///
    /// # Errors
    /// When Prometheus does not answer.
    pub async fn ignore_current(&mut self) -> anyhow::Result<()> {
        new_alerts(&mut self.alerts, self.monitoring.alerts().await?);
        self.recorded = self.monitoring.received().len();
        Ok(())
    }

    /// Whether a page was delivered, or is overdue.
    pub fn first_page_came_or_late(&self) -> bool {
        !self.delivered.is_empty() || self.fault.is_some_and(|fault| fault.elapsed() >= DELIVERY)
    }

    /// Whether all pages are resolved, or that is overdue.
    pub fn all_resolved_or_late(&self) -> bool {
        self.open.is_empty() || self.removed.is_some_and(|removed| removed.elapsed() >= END)
    }

    /// Events since the last look. If Prometheus does not answer, the next look asks it again.
    ///
    /// # Errors
    /// When one of the programs has ended.
    pub async fn look(&mut self) -> anyhow::Result<Vec<DemoEvent>> {
        if self.looked.is_some_and(|looked| looked.elapsed() < LOOK) {
            return Ok(Vec::new());
        }
        self.looked = Some(Instant::now());
        let mut news = Vec::new();
        self.monitoring.check()?;
        if let Ok(alerts) = self.monitoring.alerts().await {
            news.extend(new_alerts(&mut self.alerts, alerts));
        }
        for page in self.monitoring.received().split_off(self.recorded) {
            self.recorded += 1;
            news.extend(self.record(page));
        }
        Ok(news)
    }

    /// Records an alert that the receiver got. `None` if its state is known already: Alertmanager sends a whole group again
    /// whenever one of its alerts changes.
    fn record(&mut self, page: ReceivedAlert) -> Option<DemoEvent> {
        let ReceivedAlert {
            labels,
            annotations,
            status,
            ..
        } = page;
        let resolved = status == "resolved";
        let is_new = if resolved {
            self.open.remove(&labels)
        } else {
            self.open.insert(labels.clone())
        };
        if !is_new {
            return None;
        }
        let since = |at: Option<Instant>| at.map(|at| rounded(at.elapsed()));
        let text = text(&labels, &annotations);
        if resolved {
            let last = self.delivered.iter_mut().rfind(|page| page.labels == labels);
            if let Some(last) = last {
                last.is_resolved = true;
                last.resolved_after_seconds = since(self.removed);
            }
        } else {
            self.delivered.push(DeliveredPage {
                text: text.clone(),
                delivered_after_seconds: since(self.fault),
                resolved_after_seconds: None,
                is_resolved: false,
                labels,
            });
        }
        Some(DemoEvent::Page { resolved, text })
    }

    /// The pages that were delivered, and what is wrong with that, as sentences. `quiet`: nothing was broken.
    pub fn report(self, quiet: bool) -> (Vec<DeliveredPage>, Vec<String>) {
        let objections = objections(&self.delivered, quiet);
        (self.delivered, objections)
    }
}

/// Replaces the alerts of the look before, and returns events for those whose state is new.
fn new_alerts(
    before: &mut BTreeSet<(AlertIdentity, String)>,
    alerts: Vec<PrometheusAlert>,
) -> Vec<DemoEvent> {
    let known = std::mem::take(before);
    let mut news = Vec::new();
    for alert in alerts {
        let event = DemoEvent::Alert {
            firing: alert.state == "firing",
            text: text(&alert.labels, &alert.annotations),
        };
        let alert = (alert.labels, alert.state);
        if !known.contains(&alert) {
            news.push(event);
        }
        before.insert(alert);
    }
    news
}

fn objections(delivered: &[DeliveredPage], quiet: bool) -> Vec<String> {
    if quiet {
        let object =
            |page: &DeliveredPage| format!("{} was delivered though nothing was broken", page.text.name);
        return delivered.iter().map(object).collect();
    }
    if delivered.is_empty() {
        return vec!["no page was delivered while the fault lasted".to_owned()];
    }
    let open = delivered.iter().filter(|page| !page.is_resolved);
    let object = |page: &DeliveredPage| format!("{} was not resolved before the demo ended", page.text.name);
    open.map(object).collect()
}

fn text(labels: &AlertIdentity, annotations: &BTreeMap<String, String>) -> AlertText {
    let of = |texts: &BTreeMap<String, String>, name| texts.get(name).cloned().unwrap_or_default();
    AlertText {
        name: of(labels, "alertname"),
        severity: of(labels, "severity"),
        summary: of(annotations, "summary"),
        description: of(annotations, "description"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels() -> AlertIdentity {
        [("alertname".to_owned(), "A".to_owned())].into()
    }

    #[test]
    fn an_alert_that_ended_and_fires_again_is_new() {
        let firing = || {
            vec![PrometheusAlert {
                labels: labels(),
                annotations: BTreeMap::new(),
                state: "firing".into(),
            }]
        };
        let mut before = BTreeSet::new();
        let count =
            [firing(), firing(), Vec::new(), firing()].map(|alerts| new_alerts(&mut before, alerts).len());
        assert_eq!(count, [1, 0, 0, 1]);
    }

    #[test]
    fn a_page_is_resolved_in_the_end_and_there_is_one_exactly_if_something_was_broken() {
        let page = |is_resolved| DeliveredPage {
            text: text(&labels(), &BTreeMap::new()),
            delivered_after_seconds: Some(1.0),
            resolved_after_seconds: None,
            is_resolved,
            labels: labels(),
        };
        // One that was resolved before the fault was removed is as good.
        assert_eq!(objections(&[page(true)], false), [""; 0]);
        assert_eq!(
            objections(&[page(false)], false),
            ["A was not resolved before the demo ended"]
        );
        assert_eq!(objections(&[], false).len(), 1);
        assert_eq!(objections(&[], true), [""; 0]);
        assert_eq!(objections(&[page(true)], true).len(), 1);
    }
}
