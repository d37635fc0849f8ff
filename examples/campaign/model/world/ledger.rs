//! What really happened: the truth that neither judge gets to see.

use super::super::{At, SECOND};

/// What a fault did to calls of one hook within a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Touch {
    /// When the call ended.
    pub at: At,
    /// It failed, or was let pass.
    pub failed: bool,
    pub took: At,
    /// It was a canary's.
    pub canary: bool,
}

/// See the module's head.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    pub arrived: u64,
    pub answered: u64,
    /// By hook: calls that ended, for CREATE and UPDATE only and not more than matter.
    calls: Vec<Vec<Touch>>,
    /// When somebody got a seat who had waited for it for long.
    waited: Vec<At>,
}

/// Waiting for so long is felt.
const LONG: At = SECOND / 10;
/// Calls kept per hook.
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

    /// Somebody got a seat after having waited.
    pub fn seated(&mut self, at: At, waited: At) {
        if waited >= LONG && self.waited.len() < KEPT {
            self.waited.push(at);
        }
    }

    /// How many got a seat within a span after having waited for long.
    pub fn waits(&self, from: At, until: At) -> usize {
        self.waited
            .iter()
            .filter(|at| (from..=until).contains(*at))
            .count()
    }

    /// Calls of a hook that ended within a span.
    pub fn calls(&self, hook: usize, from: At, until: At) -> impl Iterator<Item = &Touch> {
        let calls = &self.calls[hook];
        let first = calls.partition_point(|touch| touch.at < from);
        calls[first..].iter().take_while(move |touch| touch.at <= until)
    }
}
