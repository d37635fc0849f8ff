//! Exponential backoff between attempts, with jitter so that feeds do not retry at the same time.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// Pauses that double, each shortened at random by up to half.
pub(super) struct Backoff {
    next: Duration,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(250);
    /// The longest pause. Controllers commonly back off for 30 s or more; that is too long for a watchdog to be blind.
    const LAST: Duration = Duration::from_secs(10);
    /// The pause after a 403 or 404, which retrying does not fix: RBAC or the API server has to change first.
    pub(super) const LONG: Duration = Duration::from_secs(30);

    pub(super) fn next(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(Self::LAST);
        // 50 to 100 % of the pause.
        let thousandths = RandomState::new().build_hasher().finish() % 500;
        let part = u32::try_from(thousandths).unwrap_or(0) + 500;
        pause * part / 1_000
    }

    /// Starts over with the shortest pause.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: Self::FIRST }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_their_bound_and_begin_again() {
        let mut backoff = Backoff::default();
        let pauses: Vec<_> = (0..20).map(|_| backoff.next()).collect();
        assert!(pauses[0] <= Backoff::FIRST && pauses[0] >= Backoff::FIRST / 2);
        assert!(pauses.iter().all(|pause| *pause <= Backoff::LAST));
        assert!(pauses[19] >= Backoff::LAST / 2);
        backoff.reset();
        assert!(backoff.next() <= Backoff::FIRST);
    }
}
