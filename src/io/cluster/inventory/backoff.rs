//! Pauses between attempts: they grow, and a random part keeps feeds from retrying at the same time.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// Doubling pauses, each shortened by a random part.
pub(super) struct Backoff {
    next: Duration,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(250);
    /// A watchdog cannot stay blind for the half minute that controllers allow themselves.
    const LAST: Duration = Duration::from_secs(10);
    /// The pause after a refusal that only a person can change.
    pub(super) const LONG: Duration = Duration::from_secs(30);

    pub(super) fn next(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(Self::LAST);
        // Between half and all of it.
        let thousandths = RandomState::new().build_hasher().finish() % 500;
        let part = u32::try_from(thousandths).unwrap_or(0) + 500;
        pause * part / 1_000
    }

    /// Begins again with short pauses.
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
