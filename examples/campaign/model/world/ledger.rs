//! What really happened in the model: the ground truth, which neither the diagnosis nor the naive judge sees.

use super::super::{At, SECOND};

/// One call of a webhook that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Touch {
    /// When the call ended.
    pub at: At,
    /// Whether it got no usable answer, whatever the failurePolicy made of that.
    pub failed: bool,
    pub took: At,
    /// Whether a canary caused it.
    pub canary: bool,
}

/// What really happened to requests and calls.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    pub arrived: u64,
    pub answered: u64,
    /// For each webhook, the ended calls for CREATE and UPDATE, at most [`KEPT`].
    calls: Vec<Vec<Touch>>,
    /// When requests got a seat after waiting for at least [`LONG`]; at most [`KEPT`].
    waited: Vec<At>,
}

/// A wait for a seat of at least this long (0.1 s) counts.
const LONG: At = SECOND / 10;
/// Most calls kept per webhook, and most waits, as a bound on memory.
const KEPT: usize = 200_000;

impl Ledger {
    pub fn new(hooks: usize) -> Self {
        Self {
            calls: vec![Vec::new(); hooks],
            ..Self::default()
        }
    }

    pub fn note(&mut self, hook: usize, touch: Touch) {
        if self.calls[hook].len() < KEPT {
            self.calls[hook].push(touch);
        }
    }

    /// Records that a request got a seat after this wait.
    pub fn seated(&mut self, at: At, waited: At) {
        if waited >= LONG && self.waited.len() < KEPT {
            self.waited.push(at);
        }
    }

    /// How many requests got a seat within a span after waiting for at least [`LONG`].
    pub fn waits(&self, from: At, until: At) -> usize {
        self.waited
            .iter()
            .filter(|at| (from..=until).contains(*at))
            .count()
    }

    /// Calls of a webhook that ended within a span.
    pub fn calls(&self, hook: usize, from: At, until: At) -> impl Iterator<Item = &Touch> {
        let calls = &self.calls[hook];
        let first = calls.partition_point(|touch| touch.at < from);
        calls[first..].iter().take_while(move |touch| touch.at <= until)
    }
}
