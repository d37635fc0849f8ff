//! Spreads several periodic tasks evenly over the interval that they share.

use std::time::Duration;

use tokio::time::Instant;

/// One task's turns among those of several with the same interval, spread evenly so that one of them is always due soon.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turns {
    /// The first turn of the task at place 0.
    pub(super) begin: Instant,
    /// This task's place, from 0.
    pub(super) place: usize,
    /// How many tasks share the interval.
    pub(super) of: usize,
}

impl Turns {
    /// This task's next turn after an instant.
    pub(super) fn next(self, after: Instant, interval: Duration) -> Instant {
        let first = self.begin + interval.mul_f64(self.place as f64 / self.of as f64);
        if after < first {
            return first;
        }
        let gone = after.duration_since(first).as_nanos() % interval.as_nanos().max(1);
        after + interval - Duration::from_nanos(u64::try_from(gone).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_an_interval_apart_and_those_of_others_evenly_between() {
        let begin = Instant::now();
        let ms = Duration::from_millis;
        let turns = |place| Turns { begin, place, of: 3 };
        let next = |place, after: u64| turns(place).next(begin + ms(after), ms(3_000)) - begin;
        assert_eq!(
            (next(0, 0), next(1, 0), next(2, 0)),
            (ms(3_000), ms(1_000), ms(2_000))
        );
        assert_eq!(
            (next(1, 1_000), next(1, 3_999), next(1, 4_000)),
            (ms(4_000), ms(4_000), ms(7_000))
        );
    }
}
