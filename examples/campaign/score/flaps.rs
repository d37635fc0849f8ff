//! Counts flaps: verdicts and states of writes that changed and came back within 10 s.
//!
//! docs/accuracy.md defines a flap. `hookwatch demo` counts by the same definition in code of its own.

use hookwatch::domain::vocabulary::Health;

use crate::incident::Incident;
use crate::model::{At, SECOND};
use crate::play::{Trace, Turn};

/// A state that comes back within this time has flapped.
const AT_ONCE: At = 10 * SECOND;

/// The number of flaps in one incident.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Flaps {
    /// Times that a webhook stopped being `Failing`, was `Healthy`, and was `Failing` again within 10 s.
    pub verdicts: usize,
    /// Times that the state of writes changed and came back within 10 s, while no fault began or ended and no API server
    /// stopped or started.
    pub writes: usize,
}

impl Flaps {
    pub fn of(incident: &Incident, trace: &Trace) -> Self {
        let faults = incident.faults.iter().flat_map(|fault| [fault.from, fault.until]);
        let replicas = incident.cluster.replicas.iter();
        let edges: Vec<At> = faults
            .chain(replicas.flat_map(|replica| replica.serving.changes()))
            .collect();
        let writes: Vec<_> = trace.plane.iter().map(|turn| (turn.at, turn.writes)).collect();
        Self {
            verdicts: trace.hooks.iter().map(|turns| of_hook(turns)).sum(),
            writes: swings(&writes, &edges),
        }
    }
}

fn of_hook(turns: &[Turn]) -> usize {
    let (mut flaps, mut left, mut well) = (0, None, false);
    let mut before = None;
    for turn in turns {
        match turn.health {
            Health::Failing => {
                let back_at_once = left.is_some_and(|left| turn.at - left <= AT_ONCE);
                flaps += usize::from(well && back_at_once);
                (left, well) = (None, false);
            }
            health => {
                if before == Some(Health::Failing) {
                    left = Some(turn.at);
                }
                well |= health == Health::Healthy;
            }
        }
        before = Some(turn.health);
    }
    flaps
}

/// How often a state changed and came back within [`AT_ONCE`], without one of the `edges` in between.
fn swings<T: PartialEq + Copy>(states: &[(At, T)], edges: &[At]) -> usize {
    let mut distinct: Vec<(At, T)> = Vec::new();
    for (at, state) in states {
        if distinct.last().is_none_or(|(_, last)| last != state) {
            distinct.push((*at, *state));
        }
    }
    let is_swing = |three: &&[(At, T)]| {
        let ((_, a), (left, _), (back, again)) = (three[0], three[1], three[2]);
        let quiet = !edges.iter().any(|edge| (left..=back).contains(edge));
        a == again && back - left <= AT_ONCE && quiet
    };
    distinct.windows(3).filter(is_swing).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(states: &[(At, Health)]) -> Vec<Turn> {
        let turn = |(at, health): &(At, Health)| Turn {
            at: at * SECOND,
            health: *health,
            cause: None,
            confidence: 0.0,
            spoken: Vec::new(),
            evidence: Vec::new(),
        };
        states.iter().map(turn).collect()
    }

    #[test]
    fn a_verdict_flaps_when_it_is_well_in_between_and_back_at_once() {
        use Health::{Failing, Healthy, Suspect};
        let flaps = |states: &[(At, Health)]| of_hook(&turns(states));
        assert_eq!(flaps(&[(1, Failing), (20, Healthy), (30, Failing)]), 1);
        assert_eq!(flaps(&[(1, Failing), (20, Healthy), (31, Failing)]), 0);
        assert_eq!(flaps(&[(1, Failing), (20, Suspect), (24, Failing)]), 0);
        let through_suspicion = [
            (1, Failing),
            (20, Suspect),
            (22, Healthy),
            (24, Suspect),
            (26, Failing),
        ];
        assert_eq!(flaps(&through_suspicion), 1);
        assert_eq!(
            flaps(&[(1, Healthy), (2, Failing), (3, Failing), (9, Healthy)]),
            0
        );
    }

    #[test]
    fn writes_swing_when_nothing_begins_or_ends_meanwhile() {
        let second = |states: &[(At, char)]| -> Vec<(At, char)> {
            let states = states.iter();
            states.map(|(at, state)| (at * SECOND, *state)).collect()
        };
        let there_and_back = second(&[(0, 'a'), (5, 'b'), (9, 'b'), (12, 'a')]);
        assert_eq!(swings(&there_and_back, &[]), 1);
        assert_eq!(swings(&there_and_back, &[8 * SECOND]), 0);
        assert_eq!(swings(&there_and_back, &[4 * SECOND]), 1);
        assert_eq!(swings(&second(&[(0, 'a'), (5, 'b'), (16, 'a')]), &[]), 0);
        assert_eq!(swings(&second(&[(0, 'a'), (5, 'b'), (6, 'c'), (7, 'a')]), &[]), 0);
    }
}
