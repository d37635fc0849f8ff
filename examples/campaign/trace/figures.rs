//! How right what was traced was, added up.

use serde::{Deserialize, Serialize};

use crate::score::{Score, is_culprit};

/// See the module's head.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    pub incidents: usize,
    /// Faults that somebody felt and has to be named for, and for how many the right one was.
    pub culprits: usize,
    pub right: usize,
    /// Incidents in which a hook was named that was well.
    pub wrong: usize,
    pub bypasses: usize,
    /// Bypasses of hooks that nothing was wrong with.
    pub innocent: usize,
}

impl Figures {
    /// Of one incident.
    pub fn of(score: &Score) -> Self {
        let culprits = || {
            let found = score.found.iter();
            found.filter(|found| is_culprit(found.kind) && found.felt)
        };
        let breaker = score.breaker.as_ref();
        Self {
            incidents: 1,
            culprits: culprits().count(),
            right: culprits().filter(|found| found.named).count(),
            wrong: usize::from(!score.wrong.is_empty()),
            bypasses: breaker.map_or(0, |breaker| breaker.bypasses),
            innocent: breaker.map_or(0, |breaker| breaker.innocent.len()),
        }
    }

    pub fn add(&mut self, other: &Self) {
        self.incidents += other.incidents;
        self.culprits += other.culprits;
        self.right += other.right;
        self.wrong += other.wrong;
        self.bypasses += other.bypasses;
        self.innocent += other.innocent;
    }
}
