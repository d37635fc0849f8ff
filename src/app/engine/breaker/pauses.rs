//! Exponential backoff after writes that met a conflict, that no API server took, or whose outcome is unknown, so that retries
//! do not add to the load on an API server in trouble.
//!
//! The driver holds such an outcome back for the pause, and the breaker starts no other write to that hook or ledger
//! until it has the outcome. To the breaker this is only a slower answer, so its guarantees do not depend on the pause.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::domain::act::breaker::WriteOutcome;
use crate::domain::cluster::hook::HookId;
use crate::domain::time::Time;

/// The first pause; each further one in a row is twice as long.
const FIRST: Duration = Duration::from_millis(200);
/// The longest pause. Added to the 25 s that a write may take, it stays well below the 75 s that the breaker waits
/// for an outcome by default (`BreakerTimes::request_life`).
const LONGEST: Duration = Duration::from_secs(5);

/// A gap of this length ends a row of failures.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// Counts writes in a row without a definite answer, for each hook and, under `None`, for the ledger.
#[derive(Default)]
pub(super) struct WriteBackoff {
    /// How many, and when the last of them was.
    in_a_row: BTreeMap<Option<HookId>, (u32, Time)>,
}

impl WriteBackoff {
    /// How long to hold this outcome back; `None`: pass it on at once.
    pub(super) fn after(
        &mut self,
        target: Option<&HookId>,
        outcome: &WriteOutcome,
        now: Time,
    ) -> Option<Duration> {
        let target = target.cloned();
        match outcome {
            WriteOutcome::Ambiguous | WriteOutcome::Conflict | WriteOutcome::GaveUp => {
                let before = self.in_a_row.get(&target);
                let before = before.filter(|(_, last)| now.since(*last) < FORGOTTEN);
                let before = before.map_or(0, |(times, _)| *times);
                self.in_a_row.insert(target, (before.saturating_add(1), now));
                Some(FIRST.saturating_mul(2_u32.saturating_pow(before)).min(LONGEST))
            }
            // A refusal needs no pause here: the breaker itself waits before it tries again (`BreakerTimes::retry_after`).
            WriteOutcome::Applied(_)
            | WriteOutcome::Written(_)
            | WriteOutcome::Gone
            | WriteOutcome::Refused(_) => {
                self.in_a_row.remove(&target);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::act::breaker::ResourceVersion;
    use crate::domain::cluster::hook::HookKind;

    #[test]
    fn pauses_double_up_to_the_longest_and_start_over_after_a_definite_answer() {
        let mut pauses = WriteBackoff::default();
        let hook = HookId::new(HookKind::Validating, "c", "w");
        let now = Time::from_unix_millis(1_000_000);
        let mut all = Vec::new();
        for _ in 0..40 {
            all.extend(pauses.after(Some(&hook), &WriteOutcome::Ambiguous, now));
        }
        assert_eq!(all[..3], [1, 2, 4].map(|times| FIRST * times));
        assert!(all.is_sorted() && all.last() == Some(&LONGEST));
        assert_eq!(
            pauses.after(None, &WriteOutcome::Conflict, now),
            Some(FIRST),
            "the ledger has its own"
        );
        assert_eq!(
            pauses.after(None, &WriteOutcome::Written(ResourceVersion::new("1")), now),
            None
        );
        assert_eq!(pauses.after(Some(&hook), &WriteOutcome::Gone, now), None);
        let next = |pauses: &mut WriteBackoff, now| pauses.after(Some(&hook), &WriteOutcome::Ambiguous, now);
        assert_eq!(next(&mut pauses, now), Some(FIRST));
        assert_eq!(next(&mut pauses, now), Some(FIRST * 2));
        assert_eq!(next(&mut pauses, now + FORGOTTEN), Some(FIRST), "long ago");
    }
}
