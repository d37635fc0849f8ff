//! Pauses after writes that did not come off: an API server in trouble is not asked again and again at once.
//!
//! What became of a write is told to the breaker only after the pause. To the breaker that is an answer which took
//! longer, so nothing that it promises depends on it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::domain::act::breaker::Outcome;
use crate::domain::cluster::hook::HookId;

/// After the first; each further one in a row is twice as long.
const FIRST: Duration = Duration::from_millis(200);
/// The longest. With the longest that a write may take it stays well below what the breaker waits for an outcome.
const LONGEST: Duration = Duration::from_secs(5);

/// Writes in a row that did not come off: of each hook, and (`None`) of the ledger.
#[derive(Default)]
pub(super) struct Pauses {
    in_a_row: BTreeMap<Option<HookId>, u32>,
}

impl Pauses {
    /// How long the outcome of a write is to wait before it is told; `None` for not at all.
    pub(super) fn after(&mut self, target: Option<&HookId>, outcome: &Outcome) -> Option<Duration> {
        let target = target.cloned();
        match outcome {
            Outcome::Ambiguous | Outcome::Conflict => {
                let in_a_row = self.in_a_row.entry(target).or_default();
                let pause = FIRST.saturating_mul(2_u32.saturating_pow(*in_a_row)).min(LONGEST);
                *in_a_row = in_a_row.saturating_add(1);
                Some(pause)
            }
            // After what was refused the breaker rests by itself.
            Outcome::Applied(_) | Outcome::Written(_) | Outcome::Gone | Outcome::Refused(_) => {
                self.in_a_row.remove(&target);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::act::breaker::Version;
    use crate::domain::cluster::hook::HookKind;

    #[test]
    fn pauses_double_up_to_the_longest_and_begin_anew_after_a_success() {
        let mut pauses = Pauses::default();
        let hook = HookId::new(HookKind::Validating, "c", "w");
        let mut all = Vec::new();
        for _ in 0..40 {
            all.extend(pauses.after(Some(&hook), &Outcome::Ambiguous));
        }
        assert_eq!(all[..3], [1, 2, 4].map(|times| FIRST * times));
        assert!(all.is_sorted() && all.last() == Some(&LONGEST));
        assert_eq!(
            pauses.after(None, &Outcome::Conflict),
            Some(FIRST),
            "the ledger has its own"
        );
        assert_eq!(pauses.after(None, &Outcome::Written(Version::new("1"))), None);
        assert_eq!(pauses.after(Some(&hook), &Outcome::Gone), None);
        assert_eq!(pauses.after(Some(&hook), &Outcome::Ambiguous), Some(FIRST));
    }
}
