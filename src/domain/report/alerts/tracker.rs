//! Tracks how long each condition has held, which alerts fire, and which ended recently.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::{AlertCondition, AlertLabels, AlertRule};
use crate::time::Time;

/// Most alerts that fire at once, and most ended alerts that are remembered.
pub const MAX_ALERTS: usize = 256;
/// How long the end of an alert is remembered, for an Alertmanager that was unreachable.
pub const RETENTION: Duration = Duration::from_secs(15 * 60);

/// An alert that fires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alert {
    /// Its labels, which identify it.
    pub labels: AlertLabels,
    /// The annotation `summary`.
    pub summary: String,
    /// The annotation `description`, at most 1024 bytes.
    pub description: String,
    /// The annotation `runbook_url`.
    pub runbook_url: String,
    /// Since when its condition has held.
    pub since: Time,
}

/// An alert that no longer fires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedAlert {
    /// The alert with its last texts.
    pub alert: Alert,
    /// When it stopped firing.
    pub at: Time,
}

/// All alerts at one instant.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Board {
    /// The alerts that fire, at most [`MAX_ALERTS`].
    pub firing: Vec<Alert>,
    /// The alerts that ended within [`RETENTION`].
    pub ended: Vec<ResolvedAlert>,
    /// How many firing alerts are left out beyond [`MAX_ALERTS`]: the least urgent ones.
    pub left_out: usize,
}

/// The labels of a condition without cause and effect. A hook that first hangs and then refuses connections has been failing all
/// the time, so the rule's `for` must not restart.
type AlertSubject = BTreeMap<&'static str, String>;

/// An alert that fires, with its rule.
#[derive(Debug, Clone)]
struct Firing {
    rule: &'static AlertRule,
    alert: Alert,
    /// When its condition last held.
    held: Time,
}

/// Remembers since when conditions hold, and which alerts fire.
#[derive(Debug, Default)]
pub struct Tracker {
    since: BTreeMap<AlertSubject, Time>,
    firing: BTreeMap<AlertLabels, Firing>,
    ended: BTreeMap<AlertLabels, ResolvedAlert>,
}

impl Tracker {
    /// Records the conditions that hold at `now`, and returns the resulting alerts.
    pub fn look(&mut self, conditions: Vec<AlertCondition>, now: Time) -> Board {
        let mut since = BTreeMap::new();
        let mut on: BTreeMap<AlertLabels, Firing> = BTreeMap::new();
        for condition in conditions {
            let subject = subject(&condition.labels);
            // A recorded start keeps an alert firing over a restart of hookwatch, which forgets `self.since`.
            let known = condition.since.map_or(now, |since| since.min(now));
            let began = self.since.get(&subject).copied().unwrap_or(known);
            since.insert(subject, began);
            if now.since(began) < condition.rule.hold {
                continue;
            }
            let alert = Alert {
                labels: Arc::clone(&condition.labels),
                summary: condition.summary,
                description: condition.description,
                runbook_url: condition.rule.runbook_url(),
                since: began,
            };
            let firing = Firing {
                rule: condition.rule,
                alert,
                held: now,
            };
            on.insert(condition.labels, firing);
        }
        for (labels, firing) in &self.firing {
            let subject = subject(labels);
            if now.since(firing.held) < firing.rule.keep && !since.contains_key(&subject) {
                since.insert(subject, firing.alert.since);
                on.insert(Arc::clone(labels), firing.clone());
            }
        }
        self.since = since;
        let still: BTreeSet<AlertLabels> = on.keys().cloned().collect();
        let mut ranked: Vec<(AlertLabels, Firing)> = on.into_iter().collect();
        // Alerts that already fire come first within a severity, so that alerts do not flap at the limit.
        ranked.sort_by_key(|(labels, firing)| (firing.rule.severity, !self.firing.contains_key(labels)));
        let left_out = ranked.len().saturating_sub(MAX_ALERTS);
        ranked.truncate(MAX_ALERTS);
        let before = std::mem::replace(&mut self.firing, ranked.into_iter().collect());
        for (labels, Firing { alert, .. }) in before {
            // An alert that was only cut off by the limit has not ended.
            if !still.contains(&labels) {
                self.ended.insert(labels, ResolvedAlert { alert, at: now });
            }
        }
        self.forget(&still, now);
        Board {
            firing: self.firing.values().map(|firing| firing.alert.clone()).collect(),
            ended: self.ended.values().cloned().collect(),
            left_out,
        }
    }

    fn forget(&mut self, still: &BTreeSet<AlertLabels>, now: Time) {
        self.ended
            .retain(|labels, ended| !still.contains(labels) && now.since(ended.at) < RETENTION);
        while self.ended.len() > MAX_ALERTS {
            let oldest = self.ended.iter().min_by_key(|(_, ended)| ended.at);
            let Some(labels) = oldest.map(|(labels, _)| Arc::clone(labels)) else {
                return;
            };
            self.ended.remove(&labels);
        }
    }
}

fn subject(labels: &AlertLabels) -> AlertSubject {
    let mut subject = AlertSubject::clone(labels);
    subject.remove("cause");
    subject.remove("effect");
    subject
}
