//! What is pushed to one Alertmanager, and when.
//!
//! There is no queue: each push has all alerts of that moment, so an Alertmanager that was down for an hour costs no
//! more than one that was not, and is up to date after the first push that it accepts.

use std::collections::BTreeSet;
use std::time::Duration;

use super::AlertLabels;
use super::tracker::{Alert, Board, ResolvedAlert};
use crate::act::leadership::ReplicaStanding;
use crate::time::Time;

/// Pause after the first failed attempt, before jitter; it doubles with each further failure.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause after a failed attempt.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Longest wait before a refused batch is sent again unchanged, in resend intervals. A renewed token or a restored route may make
/// it acceptable. The limit is below [`DeliveryPace::ahead`], so that alerts accepted earlier do not expire first.
const MOST_INTERVALS: u32 = 3;

/// What a replica may send to an Alertmanager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Voice {
    /// Nothing: another replica leads and sends.
    Nothing,
    /// Alerts that fire, but not the ends of alerts.
    ///
    /// For when no leader is known: if the API server is down, the leader cannot renew, and no replica can take over. Then every
    /// replica sends, and Alertmanager merges alerts with equal labels. Replicas may see an end at different times, and the first
    /// to send it would end the alert for all. So none does, and an alert that no replica repeats expires.
    Firing,
    /// Everything.
    Everything,
}

impl Voice {
    /// What a replica may send, by its standing; `None` without an election, when it is the only one.
    pub fn of(standing: Option<&ReplicaStanding>, now: Time) -> Self {
        match standing {
            None => Self::Everything,
            Some(ReplicaStanding::Leading { until, .. }) if now < *until => Self::Everything,
            Some(ReplicaStanding::Following { .. }) => Self::Nothing,
            Some(ReplicaStanding::Leading { .. } | ReplicaStanding::Undecided(_)) => Self::Firing,
        }
    }
}

/// The timing of pushes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeliveryPace {
    /// Time between two pushes while nothing changes.
    pub resend: Duration,
    /// Longest time for one push.
    pub timeout: Duration,
}

impl DeliveryPace {
    /// How far ahead `endsAt` of a firing alert is: three pushes may be lost before it expires.
    pub fn ahead(self) -> Duration {
        self.resend * 4 + self.timeout
    }
}

/// One push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// What fires.
    pub firing: Vec<Alert>,
    /// What has ended.
    pub ended: Vec<ResolvedAlert>,
}

impl Batch {
    /// How many alerts it has.
    pub fn len(&self) -> usize {
        self.firing.len() + self.ended.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn keys(&self) -> Keys {
        Keys {
            firing: self.firing.iter().map(|alert| alert.labels.clone()).collect(),
            ended: self
                .ended
                .iter()
                .map(|ended| ended.alert.labels.clone())
                .collect(),
        }
    }
}

/// The alerts in a push, without their texts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Keys {
    firing: BTreeSet<AlertLabels>,
    ended: BTreeSet<AlertLabels>,
}

/// The state of the delivery to one Alertmanager.
#[derive(Debug)]
pub struct AlertDelivery {
    pace: DeliveryPace,
    /// The firing alerts in the last push that it accepted.
    told: BTreeSet<AlertLabels>,
    /// The ends that it accepted, as long as they are on the [`Board`].
    ended: BTreeSet<AlertLabels>,
    /// When it last accepted or refused a push.
    last: Option<Time>,
    /// The batch that it refused last, and how many times in a row.
    refused: Option<(Keys, u32)>,
    /// The number of successive attempts that failed.
    failures: u32,
    /// The earliest time for the next attempt.
    not_before: Time,
}

impl AlertDelivery {
    /// A delivery to an Alertmanager that has not received anything yet.
    pub fn new(pace: DeliveryPace) -> Self {
        Self {
            pace,
            told: BTreeSet::new(),
            ended: BTreeSet::new(),
            last: None,
            refused: None,
            failures: 0,
            not_before: Time::default(),
        }
    }

    /// The push that is due now; `None` if none is due.
    pub fn next(&mut self, board: &Board, voice: Voice, now: Time) -> Option<Batch> {
        if voice == Voice::Nothing {
            self.fall_silent();
            return None;
        }
        let on_board: BTreeSet<&AlertLabels> = board.ended.iter().map(|ended| &ended.alert.labels).collect();
        self.ended.retain(|labels| on_board.contains(labels));
        if now < self.not_before {
            return None;
        }
        let owed =
            |ended: &&ResolvedAlert| voice == Voice::Everything && !self.ended.contains(&ended.alert.labels);
        let batch = Batch {
            firing: board.firing.clone(),
            ended: board.ended.iter().filter(owed).cloned().collect(),
        };
        if batch.is_empty() {
            self.fall_silent();
            return None;
        }
        let keys = batch.keys();
        let news = keys.firing.iter().any(|labels| !self.told.contains(labels)) || !keys.ended.is_empty();
        let waited = |interval| self.last.is_none_or(|last| now.since(last) >= interval);
        let due = match &self.refused {
            Some((refused, times)) if *refused == keys => {
                waited(self.pace.resend * (1 << times.min(&16).saturating_sub(1)).min(MOST_INTERVALS))
            }
            _ => news || waited(self.pace.resend),
        };
        due.then_some(batch)
    }

    /// A replica that sends again starts over: its alerts may have expired.
    fn fall_silent(&mut self) {
        self.told.clear();
        self.refused = None;
    }

    /// Records that Alertmanager accepted a push.
    pub fn accepted(&mut self, batch: &Batch, now: Time) {
        let keys = batch.keys();
        // An alert that fires again may end again.
        self.ended.retain(|labels| !keys.firing.contains(labels));
        self.ended.extend(keys.ended);
        self.told = keys.firing;
        self.last = Some(now);
        (self.refused, self.failures) = (None, 0);
    }

    /// Records that Alertmanager refused a push, and would refuse it again: the same batch is sent again only after a growing
    /// interval. Returns true unless the previous push that it refused was the same.
    pub fn refused(&mut self, batch: &Batch, now: Time) -> bool {
        let keys = batch.keys();
        let times = match self.refused.take() {
            Some((before, times)) if before == keys => times.saturating_add(1),
            _ => 1,
        };
        self.refused = Some((keys, times));
        self.last = Some(now);
        self.failures = 0;
        times == 1
    }

    /// Records that a push did not arrive, or that Alertmanager could not accept it at the moment. `toss` is a random number from 0
    /// to 1 that keeps replicas from retrying at the same time.
    pub fn failed(&mut self, toss: f64, now: Time) {
        let pause = FIRST_PAUSE * (1 << self.failures.min(8));
        let longest = LONGEST_PAUSE.min(self.pace.resend.max(FIRST_PAUSE));
        self.failures = self.failures.saturating_add(1);
        self.not_before = now + pause.min(longest).mul_f64(0.5 + toss.clamp(0.0, 1.0) / 2.0);
    }

    /// Forgets the alerts that Alertmanager has as firing but that are no longer on the board, and returns their number. It never
    /// got their ends, so they expire there.
    pub fn forgotten(&mut self, board: &Board) -> usize {
        let before = self.told.len();
        self.told.retain(|labels| {
            let is = |other: &AlertLabels| other == labels;
            board.firing.iter().any(|alert| is(&alert.labels))
                || board.ended.iter().any(|ended| is(&ended.alert.labels))
        });
        before - self.told.len()
    }
}
