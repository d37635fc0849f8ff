//! Flaps in all incidents.

use std::fmt;

use serde::Serialize;

use crate::score::Score;
use crate::score::flaps::Flaps;

/// Flaps of one kind: how often, and in how many incidents.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Flapping {
    pub times: usize,
    pub incidents: usize,
    /// Index of the incident with the most flaps, and how many it has.
    pub worst: Option<(u64, usize)>,
}

/// Flaps of verdicts and of the state of writes.
#[derive(Debug, Default, Serialize)]
pub struct FlapReport {
    /// See [`Flaps::verdicts`].
    pub verdicts: Flapping,
    /// See [`Flaps::writes`].
    pub writes: Flapping,
}

impl Flapping {
    fn of(scores: &[Score], which: fn(&Flaps) -> usize) -> Self {
        let each = || scores.iter().map(|score| (score.index, which(&score.flaps)));
        let mut found = Self::default();
        for (index, times) in each().filter(|(_, times)| *times > 0) {
            found.times += times;
            found.incidents += 1;
            if found.worst.is_none_or(|(_, most)| times > most) {
                found.worst = Some((index, times));
            }
        }
        found
    }
}

impl FlapReport {
    pub(super) fn of(scores: &[Score]) -> Self {
        Self {
            verdicts: Flapping::of(scores, |flaps| flaps.verdicts),
            writes: Flapping::of(scores, |flaps| flaps.writes),
        }
    }
}

impl fmt::Display for Flapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.times, self.incidents)?;
        match self.worst {
            Some((index, times)) => write!(f, " (worst: {index} with {times})"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for FlapReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "failing, healthy and failing within 10 s: {}", self.verdicts)?;
        writeln!(
            f,
            "writes back within 10 s, no fault begun or over: {}",
            self.writes
        )
    }
}
