//! What the direct probes of all backends of one hook add up to.

use std::time::Duration;

use crate::domain::hook::Backend;
use crate::domain::hook::BackendPath::ClusterIp;
use crate::domain::probing::{BackendState, Dead};
use crate::domain::time::Time;

/// What the probes of all backends add up to.
#[derive(Debug)]
pub enum Probes<'a> {
    /// They say nothing.
    NoData,
    /// All that say anything say that it answers.
    Good {
        /// Backends that answered.
        answered: usize,
        /// Of so many.
        of: usize,
    },
    /// It answers, and at least one backend answers late.
    Slow {
        /// How long the slowest took.
        took: Duration,
        /// Since when.
        since: Time,
    },
    /// Some backends are dead and others answered since.
    Some {
        /// The dead ones.
        dead: Vec<(&'a Backend, &'a Dead)>,
        /// Of so many.
        of: usize,
    },
    /// All backends are dead.
    All {
        /// The one whose way to fail most share.
        worst: &'a Dead,
        /// All of them.
        dead: Vec<(&'a Backend, &'a Dead)>,
    },
}

impl<'a> Probes<'a> {
    /// Adds the backends up.
    pub fn of(backends: &'a [(Backend, BackendState)]) -> Self {
        let counted = counted(backends);
        let (mut dead, mut slow, mut alive) = (Vec::new(), Vec::new(), Vec::new());
        for (backend, state) in counted.iter().copied() {
            match state {
                BackendState::Dead(found) => dead.push((backend, found)),
                BackendState::Slow { took, since, .. } => slow.push((*took, *since)),
                BackendState::Alive { at, .. } => alive.push(*at),
                _ => {}
            }
        }
        let alike = |cause| dead.iter().filter(|(_, other)| other.cause == cause).count();
        let worst = dead
            .iter()
            .max_by_key(|(_, found)| (alike(found.cause), found.attempts));
        if let Some((_, worst)) = worst.copied() {
            if dead.len() == counted.len() {
                return Self::All { worst, dead };
            }
            // An answer from before the first backend died says nothing about now.
            let first_dead = dead.iter().map(|(_, dead)| dead.since).min();
            let answers = alive.iter().any(|at| first_dead.is_none_or(|since| *at >= since));
            return if answers || !slow.is_empty() {
                let of = counted.len();
                Self::Some { dead, of }
            } else {
                Self::NoData
            };
        }
        match slow.into_iter().max() {
            Some((took, since)) => Self::Slow { took, since },
            None if alive.is_empty() => Self::NoData,
            None => {
                let endpoints = backends
                    .iter()
                    .filter(|(backend, _)| backend.path != ClusterIp)
                    .count();
                Self::Good {
                    answered: alive.len(),
                    of: if endpoints > 0 { endpoints } else { counted.len() },
                }
            }
        }
    }
}

/// The backends that were tried and that count. The ClusterIP does only when it has ever answered and nothing else is
/// there: where hookwatch runs there may be no way to it at all.
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
