//! The path of a verdict: from the Prometheus rule to the page sent to the on-call engineer, until it resolves.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::judge::rounded;
use super::timeline::{AlertText, DemoEvent};
use crate::lab::monitoring::{Monitoring, ReceivedAlert};

/// Time between two looks at Prometheus.
const LOOK: Duration = Duration::from_millis(500);
/// Longest wait for the first page: the alert on a slow hook takes 5 minutes.
const DELIVERY: Duration = Duration::from_secs(7 * 60);
/// Longest wait for the end of all pages.
const END: Duration = Duration::from_secs(120);

/// Follows the alerts of one demo.
pub struct Pages {
    monitoring: Monitoring,
    looked: Option<Instant>,
    /// The states of alerts that were reported already.
    told: BTreeSet<(String, String)>,
    /// How many of the received ones were looked at.
    seen: usize,
    open: BTreeSet<String>,
    delivered: Vec<DeliveredPage>,
    broken: Option<Instant>,
    pub mended: Option<Instant>,
}

/// A page in the report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeliveredPage {
    /// What it says.
    #[serde(flatten)]
    pub text: AlertText,
    /// From the fault until it was delivered.
    pub delivered_after_seconds: Option<f64>,
    /// From the end of the fault until it was delivered that it is over; `None` when it was not.
    pub resolved_after_seconds: Option<f64>,
    #[serde(skip)]
    key: String,
}

impl Pages {
    pub fn new(monitoring: Monitoring) -> Self {
        Self {
            monitoring,
            looked: None,
            told: BTreeSet::new(),
            seen: 0,
            open: BTreeSet::new(),
            delivered: Vec::new(),
            broken: None,
            mended: None,
        }
    }

    /// To be called when the fault begins: what is pending before it has nothing to do with it.
    pub async fn fault_begins(&mut self) -> anyhow::Result<()> {
        for alert in self.monitoring.alerts().await? {
            self.told.insert((key(&alert.labels), alert.state));
        }
        self.seen = self.monitoring.received().len();
        self.broken = Some(Instant::now());
        Ok(())
    }

    /// Whether there is no point in waiting for a first page any longer.
    pub fn waited_enough(&self) -> bool {
        let late = |broken: Instant| broken.elapsed() >= DELIVERY;
        !self.delivered.is_empty() || self.broken.is_some_and(late)
    }

    /// Whether there is no point in waiting for the end of pages any longer.
    pub fn over(&self) -> bool {
        let late = |mended: Instant| mended.elapsed() >= END;
        self.open.is_empty() || self.mended.is_some_and(late)
    }

    /// What is new since the last look. An answer that is late is asked for again.
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
        for alert in self.monitoring.alerts().await.unwrap_or_default() {
            if self.told.insert((key(&alert.labels), alert.state.clone())) {
                news.push(DemoEvent::Alert {
                    firing: alert.state == "firing",
                    text: text(&alert.labels, &alert.annotations),
                });
            }
        }
        for page in self.monitoring.received().split_off(self.seen) {
            self.seen += 1;
            news.extend(self.take(&page));
        }
        Ok(news)
    }

    fn take(&mut self, page: &ReceivedAlert) -> Option<DemoEvent> {
        let key = key(&page.labels);
        let resolved = page.status == "resolved";
        // A group is sent again whenever one of its alerts changes.
        let new = if resolved {
            self.open.remove(&key)
        } else {
            self.open.insert(key.clone())
        };
        if !new {
            return None;
        }
        let since = |at: Option<Instant>| at.map(|at| rounded(at.elapsed()));
        let text = text(&page.labels, &page.annotations);
        if resolved {
            let last = self.delivered.iter_mut().rev().find(|told| told.key == key);
            if let Some(last) = last {
                last.resolved_after_seconds = since(self.mended);
            }
        } else {
            self.delivered.push(DeliveredPage {
                text: text.clone(),
                delivered_after_seconds: since(self.broken),
                resolved_after_seconds: None,
                key,
            });
        }
        Some(DemoEvent::Page { resolved, text })
    }

    /// What was delivered, and what is wrong with that, as sentences.
    pub fn report(self) -> (Vec<DeliveredPage>, Vec<String>) {
        let mut objections = Vec::new();
        if self.delivered.is_empty() {
            objections.push(format!("no page was delivered within {} s", DELIVERY.as_secs()));
        }
        for page in &self.delivered {
            if page.resolved_after_seconds.is_none() {
                objections.push(format!(
                    "{} was not resolved within {} s",
                    page.text.name,
                    END.as_secs()
                ));
            }
        }
        (self.delivered, objections)
    }
}

/// The identity of an alert: all of its labels.
fn key(labels: &BTreeMap<String, String>) -> String {
    format!("{labels:?}")
}

fn text(labels: &BTreeMap<String, String>, annotations: &BTreeMap<String, String>) -> AlertText {
    let of = |texts: &BTreeMap<String, String>, name| texts.get(name).cloned().unwrap_or_default();
    AlertText {
        name: of(labels, "alertname"),
        severity: of(labels, "severity"),
        summary: of(annotations, "summary"),
        description: of(annotations, "description"),
    }
}
