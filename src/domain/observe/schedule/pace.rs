//! Reports whether probes keep up with their intervals.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::budget::UsedUp;
use super::target::Wanted;
use crate::cluster::hook::Backend;
use crate::text::human;
use crate::time::Time;

/// A delay shorter than this is not logged, even if it is half the probe's interval.
const NOTABLE: Duration = Duration::from_secs(2);
/// Probes keep up again once none was late for this long.
const SETTLED: Duration = Duration::from_secs(30);
/// Shortest time between two reports, except for the one that says that a delay has begun.
const TOLD: Duration = Duration::from_secs(5);
/// Most backends collected between two reports; further ones are not counted.
const MOST: usize = 100;
const NAMED: usize = 5;

/// Whether probes keep up with their intervals.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProbePace {
    /// The number of probe targets: a backend counts once for each combination of server name and trust with which hooks call it.
    pub targets: usize,
    /// The longest delay of a probe since the last report, even if it is too short to be logged.
    #[serde(default)]
    pub late: Duration,
    /// The stretched intervals; `None` while no probe is late by half its interval (and by 2 s).
    pub stretch: Option<Stretch>,
}

/// How much longer than configured the intervals are, and which budgets are used up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stretch {
    /// The longest delay of a probe.
    pub late: Duration,
    /// The configured interval of that probe.
    pub interval: Duration,
    /// Whether probes waited because of the limit on probes in flight (for a second probe of a target, half of the limit).
    #[serde(default)]
    pub concurrency: bool,
    /// Whether the budget for all probes together is used up.
    pub total: bool,
    /// Backends whose own budget is used up, at most five.
    pub backends: Vec<Backend>,
    /// How many more such backends there are.
    pub more: usize,
}

impl Stretch {
    /// One sentence for each exhausted budget, with what to do.
    pub fn sentences(&self) -> Vec<String> {
        let (every, instead) = (human(self.interval + self.late), human(self.interval));
        let mut said = Vec::new();
        if self.concurrency {
            said.push(format!(
                "probes.concurrency is too low: probes come up to {every} apart instead of {instead}; raise it, or fix the \
                 webhooks that do not answer"
            ));
        }
        if self.total {
            said.push(format!(
                "probes.mostPerSecond is used up: probes come up to {every} apart instead of {instead}; raise it, or probe \
                 less often (probes.interval)"
            ));
        }
        if !self.backends.is_empty() {
            let named: Vec<String> = self.backends.iter().map(Backend::to_string).collect();
            let more = match self.more {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            said.push(format!(
                "probes.mostPerBackend is used up for {}{more}: webhooks with different paths or caBundles share it, and \
                 what each asks comes up to {every} apart instead of {instead}",
                named.join(", ")
            ));
        }
        said
    }
}

/// The delays since the last report.
#[derive(Debug, Default)]
pub(super) struct Behind {
    /// When a probe was last late by a notable time.
    last: Option<Time>,
    /// The longest delay since the last report.
    late: Duration,
    /// The longest notable delay since the last report, with the probe's interval.
    worst: (Duration, Duration),
    concurrency: bool,
    total: bool,
    backends: BTreeSet<Backend>,
    told: Option<(Time, ProbePace)>,
}

impl Behind {
    /// Records that a probe has to wait.
    pub(super) fn waits(&mut self, used_up: UsedUp, backend: &Backend, wanted: &Wanted, now: Time) {
        self.late = self.late.max(wanted.late);
        if wanted.late < (wanted.interval / 2).max(NOTABLE) {
            return;
        }
        self.last = Some(now);
        self.worst = self.worst.max((wanted.late, wanted.interval));
        match used_up {
            UsedUp::Concurrency => self.concurrency = true,
            UsedUp::Total => self.total = true,
            UsedUp::Backend if self.backends.len() < MOST => {
                self.backends.insert(backend.clone());
            }
            UsedUp::Backend => {}
        }
    }

    /// The report that is due now; `None` if none is, or nothing has changed.
    pub(super) fn news(&mut self, targets: usize, now: Time) -> Option<ProbePace> {
        let recent = self.told.as_ref().filter(|(at, _)| now.since(*at) < TOLD);
        let begins = self.worst.0 > Duration::ZERO
            && self
                .told
                .as_ref()
                .is_none_or(|(_, known)| known.stretch.is_none());
        if recent.is_some() && !begins {
            return None;
        }
        let known = self.told.as_ref().and_then(|(_, known)| known.stretch.clone());
        let is_over = self.last.is_none_or(|last| now.since(last) >= SETTLED);
        let stretch = match (self.worst, is_over) {
            (_, true) => None,
            // Probes were late a short time ago, and are on time now.
            ((Duration::ZERO, _), false) => known,
            ((late, interval), false) => Some(Stretch {
                late,
                interval,
                concurrency: self.concurrency,
                total: self.total,
                backends: self.backends.iter().take(NAMED).cloned().collect(),
                more: self.backends.len().saturating_sub(NAMED),
            }),
        };
        (self.worst, self.concurrency, self.total) = Default::default();
        self.backends.clear();
        let late = std::mem::take(&mut self.late);
        let pace = ProbePace {
            targets,
            late,
            stretch,
        };
        let is_news = self.told.as_ref().is_none_or(|(_, known)| *known != pace);
        self.told = Some((now, pace.clone()));
        is_news.then_some(pace)
    }
}
