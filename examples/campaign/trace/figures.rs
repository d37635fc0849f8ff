//! The accuracy of the diagnosis over all traced incidents.

use serde::{Deserialize, Serialize};

use crate::score::{Score, is_culprit};

/// Counts over incidents.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    pub incidents: usize,
    /// Felt faults for which a webhook must be called `Failing`; `right` counts those for which the right one was.
    pub culprits: usize,
    pub right: usize,
    /// Incidents in which a healthy webhook was called `Failing`.
    pub wrong: usize,
    pub bypasses: usize,
    /// Bypasses of innocent webhooks.
    pub innocent: usize,
}

impl Figures {
    /// The counts of one incident.
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
