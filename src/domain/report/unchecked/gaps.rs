//! Gaps in which a hook did not review, each reported once the hook reviews again.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{GapReason, ReviewGap};
use crate::cluster::hook::HookId;
use crate::time::Time;

/// A gap that reopens within this time of its end is still the same gap.
const SETTLES: Duration = Duration::from_secs(30);
/// Most hooks failing open that are remembered at once. Bypassed hooks do not count: they are few, and hookwatch caused their gap.
const MOST: usize = 200;

#[derive(Debug, Clone, Copy)]
struct OpenGap {
    from: Time,
    way: GapReason,
    /// When it ended; `None` while it lasts.
    to: Option<Time>,
}

/// Remembers which hooks do not review, and since when.
#[derive(Debug, Default)]
pub struct Gaps {
    known: BTreeMap<HookId, OpenGap>,
    /// How many hooks beyond [`MOST`] the last call of [`Self::look`] left out.
    left_out: usize,
}

impl Gaps {
    /// Records the hooks that do not review now, each with the reason and the start. Returns the gaps that are over.
    pub fn look(
        &mut self,
        open: &BTreeMap<HookId, (GapReason, Time)>,
        now: Time,
    ) -> Vec<(HookId, ReviewGap)> {
        self.left_out = 0;
        let failing = |gap: &&OpenGap| gap.way == GapReason::FailedOpen;
        let mut remembered = self.known.values().filter(failing).count();
        for (hook, (way, since)) in open {
            if *way == GapReason::FailedOpen && !self.known.contains_key(hook) {
                if remembered >= MOST {
                    self.left_out += 1;
                    continue;
                }
                remembered += 1;
            }
            let known = self.known.entry(hook.clone()).or_insert(OpenGap {
                from: *since,
                way: *way,
                to: None,
            });
            known.from = known.from.min(*since);
            known.way = known.way.max(*way);
            known.to = None;
        }
        let mut over = Vec::new();
        self.known.retain(|hook, known| {
            if open.contains_key(hook) {
                return true;
            }
            let to = *known.to.get_or_insert(now);
            let settled = now.since(to) >= SETTLES;
            if settled {
                let gap = ReviewGap {
                    from: known.from,
                    to,
                    way: known.way,
                };
                over.push((hook.clone(), gap));
            }
            !settled
        });
        over
    }

    /// How many hooks that do not review are not remembered, because too many are. Their gaps are not reported if they end first.
    pub fn left_out(&self) -> usize {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::hook::HookKind;

    fn at(seconds: u64) -> Time {
        Time::from_unix_millis(seconds * 1_000)
    }

    fn open(way: GapReason, since: u64) -> BTreeMap<HookId, (GapReason, Time)> {
        let hook = HookId::new(HookKind::Validating, "c", "w");
        BTreeMap::from([(hook, (way, at(since)))])
    }

    fn gap(from: u64, to: u64, way: GapReason) -> ReviewGap {
        let (from, to) = (at(from), at(to));
        ReviewGap { from, to, way }
    }

    #[test]
    fn a_gap_is_told_once_when_it_has_been_over_for_a_while() {
        let mut gaps = Gaps::default();
        let none = BTreeMap::new();
        assert_eq!(gaps.look(&open(GapReason::Skipped, 90), at(100)), []);
        assert_eq!(gaps.look(&none, at(200)), []);
        assert_eq!(gaps.look(&none, at(229)), []);
        let told = gaps.look(&none, at(230));
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].1, gap(90, 200, GapReason::Skipped));
        assert_eq!(gaps.look(&none, at(300)), []);
    }

    #[test]
    fn what_begins_again_soon_is_one_gap_and_the_widest_way_counts() {
        let mut gaps = Gaps::default();
        let none = BTreeMap::new();
        gaps.look(&open(GapReason::Shielded, 100), at(100));
        gaps.look(&open(GapReason::Skipped, 110), at(110));
        gaps.look(&none, at(120));
        gaps.look(&open(GapReason::Shielded, 140), at(140));
        gaps.look(&none, at(150));
        let told = gaps.look(&none, at(180));
        assert_eq!(told[0].1, gap(100, 150, GapReason::Skipped));
    }

    #[test]
    fn of_too_many_that_fail_open_the_rest_is_counted_and_no_bypass_is_left_out() {
        let mut gaps = Gaps::default();
        let many = |count: usize| {
            let hooks = (0..count).map(|number| HookId::new(HookKind::Mutating, &number.to_string(), "w"));
            let open = hooks.map(|hook| (hook, (GapReason::FailedOpen, at(1))));
            open.collect::<BTreeMap<_, _>>()
        };
        gaps.look(&many(MOST + 50), at(1));
        assert_eq!((gaps.known.len(), gaps.left_out()), (MOST, 50));
        let mut open = many(MOST);
        open.extend(self::open(GapReason::Skipped, 2));
        gaps.look(&open, at(100));
        gaps.look(&many(MOST), at(200));
        let told = gaps.look(&many(MOST), at(230));
        assert!(
            told.iter()
                .any(|(_, told)| *told == gap(2, 200, GapReason::Skipped)),
            "{told:?}"
        );
    }
}
