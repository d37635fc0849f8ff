//! Flaps: how often a verdict, or the state of writes, changed and was back within 10 s.
//!
//! docs/accuracy.md defines a flap. The campaign in `examples/` counts by the same definition in code of its own.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::app::terminal::view::shown::{HookKey, ShownAssessment, ShownHook};
use crate::domain::vocabulary::{Health, Writes};

/// A state that returns within this time has flapped.
const FLAP_WITHIN: Duration = Duration::from_secs(10);

/// The number of flaps in one demo.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Flaps {
    /// How often a hook went from failing to healthy and was failing again within 10 s of leaving `Failing`.
    pub verdicts: u64,
    /// How often writes went from one state to another and straight back within 10 s, while no fault began or ended.
    pub writes: u64,
}

/// Counts flaps in the assessments of one demo, in the order in which they were read.
#[derive(Debug, Default)]
pub struct FlapCounter {
    verdicts: HashMap<HookKey, VerdictHistory>,
    writes: WritesHistory,
    found: Flaps,
}

/// What the count needs of the verdicts on one hook.
#[derive(Debug, Default)]
struct VerdictHistory {
    failing: bool,
    /// When it last left `Failing`; `None` while it is failing, and before it ever was.
    left: Option<Instant>,
    /// Whether it was healthy since it was last failing.
    healthy: bool,
}

/// What the count needs of the states of writes.
#[derive(Debug, Default)]
struct WritesHistory {
    /// The state before the present one.
    before: Option<Writes>,
    /// The present state, and when it was first read.
    present: Option<(Writes, Instant)>,
    /// When a fault last began or ended.
    edge: Option<Instant>,
}

impl FlapCounter {
    pub fn observe(&mut self, at: Instant, assessment: &ShownAssessment) {
        // A verdict without a configuration is about a name seen only in metrics, which several hooks may share.
        for hook in assessment
            .hooks
            .iter()
            .filter(|hook| hook.configuration.is_some())
        {
            let flapped = self.verdicts.entry(hook.key()).or_default().observe(at, hook);
            self.found.verdicts += u64::from(flapped);
        }
        let flapped = self.writes.observe(at, assessment.control_plane.writes);
        self.found.writes += u64::from(flapped);
    }

    /// Notes that a fault begins or ends: writes that are between two states then do not flap.
    pub const fn fault_changes(&mut self, at: Instant) {
        self.writes.edge = Some(at);
    }

    /// The number of flaps so far.
    pub const fn found(&self) -> Flaps {
        self.found
    }
}

impl VerdictHistory {
    /// Takes the next verdict; returns whether it completes a flap.
    fn observe(&mut self, at: Instant, hook: &ShownHook) -> bool {
        if hook.health == Health::Failing {
            let flapped = self.healthy
                && self
                    .left
                    .is_some_and(|left| at.duration_since(left) <= FLAP_WITHIN);
            *self = Self {
                failing: true,
                ..Self::default()
            };
            return flapped;
        }
        if self.failing {
            self.left = Some(at);
        }
        self.failing = false;
        self.healthy |= hook.health == Health::Healthy;
        false
    }
}

impl WritesHistory {
    /// Takes the next state; returns whether the state before the present one is back within [`FLAP_WITHIN`], and no fault began or
    /// ended meanwhile.
    fn observe(&mut self, at: Instant, writes: Writes) -> bool {
        let Some((present, since)) = self.present else {
            self.present = Some((writes, at));
            return false;
        };
        if present == writes {
            return false;
        }
        let no_fault_changed = self.edge.is_none_or(|edge| edge < since);
        let flapped =
            self.before == Some(writes) && at.duration_since(since) <= FLAP_WITHIN && no_fault_changed;
        (self.before, self.present) = (Some(present), Some((writes, at)));
        flapped
    }
}

/// Flaps in words; `None` when there were none.
pub fn sentence(flaps: Flaps) -> Option<String> {
    let verdicts = times(flaps.verdicts).map(|times| format!("verdicts flapped {times}"));
    let writes = times(flaps.writes).map(|times| format!("writes flapped {times}"));
    let all: Vec<String> = verdicts.into_iter().chain(writes).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

fn times(number: u64) -> Option<String> {
    match number {
        0 => None,
        1 => Some("once".to_owned()),
        _ => Some(format!("{number} times")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn assessment(writes: &str, hooks: &[Value]) -> ShownAssessment {
        let plane = json!({"writes": writes, "summary": ""});
        let whole = json!({"at": "2026-11-21T00:11:02Z", "control_plane": plane, "hooks": hooks});
        serde_json::from_value(whole).unwrap()
    }

    fn verdicts(states: &[(u64, &str)]) -> u64 {
        let (start, mut counter) = (Instant::now(), FlapCounter::default());
        for (at, health) in states {
            let hook = |webhook: &str, health: &str| {
                json!({
                    "kind": "Validating", "configuration": "c", "webhook": webhook, "health": health,
                })
            };
            let nameless = json!({"kind": "Validating", "webhook": "w", "health": health});
            let hooks = [hook("w", health), hook("other", "Failing"), nameless];
            counter.observe(start + Duration::from_secs(*at), &assessment("Unknown", &hooks));
        }
        assert_eq!(counter.found().writes, 0);
        counter.found().verdicts
    }

    /// `edges` are when faults begin or end.
    fn writes(states: &[(u64, &str)], edges: &[u64]) -> u64 {
        let (start, mut counter) = (Instant::now(), FlapCounter::default());
        let second = |at: u64| start + Duration::from_secs(at);
        let mut edges = edges.iter().peekable();
        for (at, state) in states {
            while let Some(edge) = edges.next_if(|edge| *edge <= at) {
                counter.fault_changes(second(*edge));
            }
            counter.observe(second(*at), &assessment(state, &[]));
        }
        assert_eq!(counter.found().verdicts, 0);
        counter.found().writes
    }

    #[test]
    fn a_verdict_flaps_when_it_is_well_in_between_and_back_at_once() {
        assert_eq!(verdicts(&[(1, "Failing"), (20, "Healthy"), (30, "Failing")]), 1);
        assert_eq!(verdicts(&[(1, "Failing"), (20, "Healthy"), (31, "Failing")]), 0);
        assert_eq!(verdicts(&[(1, "Failing"), (20, "Suspect"), (24, "Failing")]), 0);
        let through_suspicion = [
            (1, "Failing"),
            (20, "Suspect"),
            (22, "Healthy"),
            (24, "Suspect"),
            (26, "Failing"),
        ];
        assert_eq!(verdicts(&through_suspicion), 1);
        let first_failure = [(1, "Healthy"), (2, "Failing"), (3, "Failing"), (9, "Healthy")];
        assert_eq!(verdicts(&first_failure), 0);
        let twice = [
            (1, "Failing"),
            (2, "Healthy"),
            (3, "Failing"),
            (4, "Suspect"),
            (5, "Failing"),
            (6, "Healthy"),
            (7, "Healthy"),
            (8, "Failing"),
        ];
        assert_eq!(verdicts(&twice), 2);
    }

    #[test]
    fn writes_swing_when_they_are_back_at_once() {
        let there_and_back = [
            (0, "Flowing"),
            (5, "Blocked"),
            (9, "Blocked"),
            (12, "Flowing"),
            (13, "Flowing"),
        ];
        assert_eq!(writes(&there_and_back, &[]), 1);
        assert_eq!(writes(&[(0, "Flowing"), (5, "Blocked"), (15, "Flowing")], &[]), 1);
        assert_eq!(writes(&[(0, "Flowing"), (5, "Blocked"), (16, "Flowing")], &[]), 0);
        let another_way = [(0, "Flowing"), (5, "Blocked"), (6, "Delayed"), (7, "Flowing")];
        assert_eq!(writes(&another_way, &[]), 0);
        let on_and_on = [(0, "Flowing"), (5, "Blocked"), (6, "Flowing"), (7, "Blocked")];
        assert_eq!(writes(&on_and_on, &[]), 2);
    }

    #[test]
    fn writes_that_change_because_a_fault_begins_or_ends_do_not_swing() {
        let there_and_back = [(0, "Flowing"), (5, "Blocked"), (9, "Blocked"), (12, "Flowing")];
        for meanwhile in [5, 8, 12] {
            assert_eq!(writes(&there_and_back, &[meanwhile]), 0, "{meanwhile}");
        }
        assert_eq!(writes(&there_and_back, &[4, 13]), 1);
        assert_eq!(writes(&there_and_back, &[4, 8]), 0);
    }

    #[test]
    fn what_did_not_flap_is_not_spoken_of() {
        let said = |verdicts, writes| sentence(Flaps { verdicts, writes });
        assert_eq!(said(0, 0), None);
        assert_eq!(said(1, 0).as_deref(), Some("verdicts flapped once"));
        assert_eq!(
            said(3, 1).as_deref(),
            Some("verdicts flapped 3 times; writes flapped once")
        );
    }
}
