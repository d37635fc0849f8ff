//! Flow control (API Priority and Fairness): a priority level serves a limited number of requests at once; others queue.
//!
//! A request keeps its seat while it waits for a webhook, so slow webhooks make other requests queue.

use std::collections::VecDeque;

use super::{At, SECOND};

/// Longest time in the queue: a quarter of the request's timeout, which is 60 s by default.
const PATIENCE: At = 15 * SECOND;
/// Requests that can queue; the next one is rejected at once.
const QUEUE: usize = 400;

/// The result of asking for a seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admitted {
    /// It has a seat.
    Now,
    Queued,
    /// It is rejected, because the queue is full.
    TurnedAway,
}

/// The seats and the queue of one priority level of one replica.
#[derive(Debug, Clone, Default)]
pub struct Seats {
    taken: usize,
    /// Waiting requests, and when each is rejected.
    queue: VecDeque<(usize, At)>,
}

impl Seats {
    /// Asks for one of `seats` seats. `time` is the client's timeout, if any.
    pub fn ask(&mut self, request: usize, now: At, time: Option<At>, seats: usize) -> Admitted {
        if self.taken < seats && self.queue.is_empty() {
            self.taken += 1;
            return Admitted::Now;
        }
        if self.queue.len() >= QUEUE {
            return Admitted::TurnedAway;
        }
        let patience = time.map_or(PATIENCE, |time| (time / 4).min(PATIENCE));
        self.queue.push_back((request, now + patience));
        Admitted::Queued
    }

    /// Frees the seat of a request that has ended.
    pub fn leave(&mut self) {
        self.taken = self.taken.saturating_sub(1);
    }

    /// Takes the next request out of the queue: one that gets a seat (`true`) or has waited too long (`false`).
    pub fn next(&mut self, now: At, seats: usize) -> Option<(usize, bool)> {
        if let Some(late) = self.queue.iter().position(|(_, until)| *until <= now) {
            return self.queue.remove(late).map(|(request, _)| (request, false));
        }
        if self.taken >= seats {
            return None;
        }
        let (request, _) = self.queue.pop_front()?;
        self.taken += 1;
        Some((request, true))
    }

    /// Number of queued requests.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_came_first_is_served_first_and_who_waits_too_long_is_turned_away() {
        let mut seats = Seats::default();
        assert_eq!(seats.ask(1, 0, None, 1), Admitted::Now);
        assert_eq!(seats.ask(2, 1, None, 1), Admitted::Queued);
        assert_eq!(seats.ask(3, 2, None, 1), Admitted::Queued);
        assert_eq!(seats.next(3, 1), None);
        seats.leave();
        assert_eq!(seats.next(4, 1), Some((2, true)));
        assert_eq!(seats.next(4, 1), None);
        assert_eq!(seats.next(2 + PATIENCE, 1), Some((3, false)));
        assert_eq!(seats.next(2 + PATIENCE, 9), None, "an empty line takes no seat");
        assert_eq!(seats.taken, 1);
        assert_eq!(seats.ask(4, 0, Some(4 * SECOND), 1), Admitted::Queued);
        assert_eq!(
            seats.next(SECOND, 1),
            Some((4, false)),
            "who has little time waits for less"
        );
        assert_eq!(seats.waiting(), 0);
    }
}
