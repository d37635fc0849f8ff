//! Turns: several that look at the same interval, spread evenly over it.

use std::time::Duration;

use tokio::time::Instant;

/// The turn of one among several that share an interval evenly: so there is always one that looks soon.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turns {
    /// When the first turn of the first one is.
    pub(super) begin: Instant,
    /// Which one it is, from 0.
    pub(super) place: usize,
    /// Of how many.
    pub(super) of: usize,
}

impl Turns {
    /// Its next turn after an instant.
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
