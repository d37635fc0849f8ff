//! What the direct probes of all backends of one hook add up to.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use crate::cluster::hook::Backend;
use crate::cluster::hook::BackendPath::ClusterIp;
use crate::observe::probing::{BackendState, Dead};
use crate::thresholds as t;
use crate::time::Time;
use crate::vocabulary::Cause;

/// What the probes of all backends add up to.
#[derive(Debug)]
pub enum ProbeEvidence<'a> {
    /// No usable result.
    NoData,
    /// Every backend with a result answers in time, or was late only once.
    Good {
        /// Backends that answered.
        answered: usize,
        /// Out of this many.
        of: usize,
        /// If every backend answered its last probe late: how long the quickest took, and when the earliest of these probes
        /// began. A single late answer is no evidence on its own.
        late: Option<(Duration, Time)>,
    },
    /// It answers, and at least one backend answers late.
    Slow {
        /// How long the slowest took.
        took: Duration,
        /// How long the quickest took; zero where one answers in time.
        least: Duration,
        /// Since when.
        since: Time,
    },
    /// Some backends are dead, and others have answered since the first of them died.
    Some {
        /// The dead ones.
        dead: Vec<(&'a Backend, &'a Dead)>,
        /// Out of this many.
        of: usize,
    },
    /// All backends are dead.
    All {
        /// Of those with the most frequent cause, the one that has been dead for longest.
        worst: &'a Dead,
        /// All of them.
        dead: Vec<(&'a Backend, &'a Dead)>,
    },
}

impl<'a> ProbeEvidence<'a> {
    /// How long its late answers take, and since when they are late; also where each backend was late only once.
    pub fn late(&self) -> Option<(Duration, Time)> {
        match self {
            Self::Slow { took, since, .. } => Some((*took, *since)),
            Self::Good { late, .. } => *late,
            _ => None,
        }
    }

    /// Adds the backends up.
    pub fn of(backends: &'a [(Backend, BackendState)]) -> Self {
        let counted = counted(backends);
        let of = counted.len();
        let (mut dead, mut slow, mut alive) = (Vec::new(), Vec::new(), Vec::new());
        for (backend, state) in counted {
            match state {
                BackendState::Dead(found) => dead.push((backend, found)),
                BackendState::Slow { took, since, .. } => slow.push((*took, *since)),
                BackendState::Alive { at, took } => alive.push((*at, *took)),
                _ => {}
            }
        }
        let mut alike: BTreeMap<Cause, usize> = BTreeMap::new();
        for (_, found) in &dead {
            *alike.entry(found.cause).or_default() += 1;
        }
        // Of equally frequent causes the one that began first, so that the result is stable.
        let rank = |found: &Dead| (alike.get(&found.cause), Reverse(found.since));
        let worst = dead
            .iter()
            .map(|(_, found)| *found)
            .max_by_key(|found| rank(found));
        // An answer from before the first backend died says nothing about now.
        let first_dead = dead.iter().map(|(_, dead)| dead.since).min();
        let answers = || !slow.is_empty() || alive.iter().any(|(at, _)| Some(*at) >= first_dead);
        match (worst, slow.iter().max()) {
            (Some(worst), _) if dead.len() == of => Self::All { worst, dead },
            (Some(_), _) if answers() => Self::Some { dead, of },
            (Some(_), _) => Self::NoData,
            (None, Some(&(took, since))) => {
                let least = slow.iter().map(|(took, _)| *took).min();
                let least = least.filter(|_| alive.is_empty()).unwrap_or_default();
                Self::Slow { took, least, since }
            }
            (None, None) if alive.is_empty() => Self::NoData,
            (None, None) => {
                let endpoints = backends.iter().filter(|(backend, _)| backend.path != ClusterIp);
                let (endpoints, answered) = (endpoints.count(), alive.len());
                let of = if endpoints > 0 { endpoints } else { of };
                let quickest = alive.iter().map(|(_, took)| *took).min();
                let quickest = quickest.filter(|took| took.as_secs_f64() >= t::slow_probe_always());
                let late = quickest.zip(alive.iter().map(|(at, _)| *at).min());
                Self::Good { answered, of, late }
            }
        }
    }
}

/// The backends with a probe result that counts. That of the ClusterIP counts only if there is no other backend, and a dead
/// ClusterIP only if it has ever answered: it may be unreachable from where hookwatch runs.
pub fn counted(backends: &[(Backend, BackendState)]) -> Vec<&(Backend, BackendState)> {
    let direct = backends.iter().any(|(backend, _)| backend.path != ClusterIp);
    let counts = |(backend, state): &&(Backend, BackendState)| match state {
        BackendState::Untried { .. } => false,
        _ if backend.path != ClusterIp => true,
        BackendState::Dead(dead) => !direct && dead.was_alive,
        _ => !direct,
    };
    backends.iter().filter(counts).collect()
}
