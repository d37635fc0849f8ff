//! How often everything is judged: closely while anything is out of the ordinary, else every two seconds.

use std::time::Duration;

use super::messages::{Attention, Event};
use crate::observe::canary::CanaryOutcome;
use crate::time::Time;

/// Time between two ticks while anything is odd, or was a moment ago.
const CLOSELY: Duration = Duration::from_millis(200);
/// Time between two ticks in calm times. Longer than [`CLOSELY`], as nothing happens unseen: before silence becomes evidence, an
/// event says that something is overdue, and that is a [`Weight::Sign`].
const CALMLY: Duration = Duration::from_secs(2);
/// How long ticks stay close after a [`Weight::Sign`]: longer than any silence must last before it is evidence.
const AFTER_A_SIGN: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct TickPace {
    judged: Time,
    due: Time,
    close_until: Time,
}

/// What an event means for the time of the next tick.
enum Weight {
    /// It changes nothing that must be judged soon.
    Routine,
    /// It must be judged at once.
    News,
    /// It must be judged at once, and more closely for [`AFTER_A_SIGN`]: its meaning shows only within seconds.
    Sign,
}

impl Weight {
    const fn of(event: &Event) -> Self {
        match event {
            Event::Probed(report) if report.outcome.is_alive() => Self::Routine,
            Event::CanaryWritten(report) => match report.outcome {
                CanaryOutcome::Written | CanaryOutcome::Forbidden { .. } | CanaryOutcome::Missing { .. } => {
                    Self::Routine
                }
                _ => Self::News,
            },
            Event::Tick
            | Event::NodeLeases(_)
            | Event::ProbePace(_)
            | Event::Replica(_)
            | Event::Audited(_) => Self::Routine,
            Event::ProbeOverdue(_) | Event::CanaryOverdue(_) | Event::ScrapeFailed(_) | Event::Resumed => {
                Self::Sign
            }
            _ => Self::News,
        }
    }
}

impl TickPace {
    pub(super) fn observed(&mut self, event: &Event, now: Time) {
        match Weight::of(event) {
            Weight::Routine => return,
            Weight::News => {}
            Weight::Sign => self.close_until = now + AFTER_A_SIGN,
        }
        self.due = self.due.min(now.max(self.judged + CLOSELY));
    }

    /// Schedules the next tick after one that had this result.
    pub(super) fn judged(&mut self, attention: &Attention, now: Time) {
        if *attention != Attention::default() {
            self.close_until = now + AFTER_A_SIGN;
        }
        let span = if now < self.close_until { CLOSELY } else { CALMLY };
        (self.judged, self.due) = (now, now + span);
    }

    pub(super) const fn due(&self) -> Time {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::canary::{CanaryOverdue, CanaryReport, CanaryTarget};

    fn at(millis: u64) -> Time {
        Time::from_unix_millis(1_000_000 + millis)
    }

    fn late() -> Event {
        Event::CanaryOverdue(CanaryOverdue {
            target: CanaryTarget::OwnNamespace,
            started: at(0),
            waiting: Duration::from_millis(300),
        })
    }

    fn written(outcome: CanaryOutcome) -> Event {
        Event::CanaryWritten(CanaryReport {
            target: CanaryTarget::OwnNamespace,
            started: at(0),
            took: Duration::from_millis(10),
            created: false,
            outcome,
        })
    }

    fn calm(now: u64) -> TickPace {
        let mut pace = TickPace::default();
        pace.judged(&Attention::default(), at(now));
        pace
    }

    #[test]
    fn in_calm_times_judgements_are_two_seconds_apart_and_what_says_that_all_is_well_brings_none_forward() {
        let mut pace = calm(0);
        pace.observed(&written(CanaryOutcome::Written), at(300));
        assert_eq!(pace.due(), at(2_000));
    }

    #[test]
    fn news_is_judged_at_once_and_never_sooner_than_a_fifth_of_a_second_after_the_last_judgement() {
        for (seen, due) in [(50, 200), (700, 700)] {
            let mut pace = calm(0);
            pace.observed(&written(CanaryOutcome::TimedOut), at(seen));
            assert_eq!(pace.due(), at(due));
        }
    }

    #[test]
    fn what_is_silent_is_judged_closely_for_as_long_as_any_silence_is_waited_through() {
        let mut pace = calm(0);
        pace.observed(&late(), at(300));
        for judged in (300..5_300).step_by(200) {
            assert_eq!(pace.due(), at(judged));
            pace.judged(&Attention::default(), at(judged));
        }
        pace.judged(&Attention::default(), at(5_300));
        assert_eq!(pace.due(), at(7_300));
    }

    #[test]
    fn while_anything_is_looked_at_more_closely_it_is_judged_closely() {
        let mut pace = calm(0);
        let odd = Attention {
            everywhere: true,
            ..Attention::default()
        };
        pace.judged(&odd, at(1_000));
        assert_eq!(pace.due(), at(1_200));
    }
}
