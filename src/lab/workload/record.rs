//! What the clients of the workload met.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;

/// How far back single writes are remembered.
const MEMORY: Duration = Duration::from_secs(30);
/// And how many of them at most.
const MAX_WRITES: usize = 8_192;
/// Longest text of a failure that is kept, in bytes.
const MAX_TEXT: usize = 1_024;

/// Everything counted since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Writes that succeeded.
    pub written: u64,
    /// Lists that succeeded.
    pub listed: u64,
    /// Requests that were refused, timed out or got no answer.
    pub failed: u64,
}

/// A stretch of time that ends now.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Recent {
    /// Successful writes per second.
    pub writes_per_second: f64,
    /// The median duration of those writes; `None` without any.
    pub median: Option<Duration>,
    /// Requests that failed.
    pub failed: u64,
}

/// The first request that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstFailure {
    /// When the client learned of it.
    pub at: Timestamp,
    /// The same on the monotonic clock.
    pub instant: Instant,
    /// How long the client had waited by then.
    pub waited: Duration,
    /// What it had asked for, as in `create configmaps in team-a`.
    pub request: String,
    /// What it was told.
    pub text: String,
}

/// The first create or update that succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstSuccess {
    /// When the client learned of it.
    pub ended: Instant,
    /// What it had asked for, as in `create configmaps in team-a`.
    pub request: String,
}

/// Where all clients of one workload write down what they met.
#[derive(Debug, Default)]
pub(super) struct Record {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    totals: Totals,
    /// Ended writes: when, how long it took, whether it succeeded.
    writes: VecDeque<(Instant, Duration, bool)>,
    first_failure: Option<FirstFailure>,
    /// Since when a success is waited for.
    awaited: Option<Instant>,
    first_success: Option<FirstSuccess>,
}

impl Record {
    pub(super) fn wrote(&self, now: Instant, took: Duration, request: &str) {
        let mut state = self.lock();
        let counts = state.awaited.is_some_and(|since| now - took >= since) && !request.starts_with("delete");
        if counts && state.first_success.is_none() {
            state.first_success = Some(FirstSuccess {
                ended: now,
                request: request.to_owned(),
            });
        }
        state.totals.written += 1;
        state.remember(now, took, true);
    }

    pub(super) fn listed(&self) {
        self.lock().totals.listed += 1;
    }

    pub(super) fn failed(&self, now: Instant, took: Duration, request: &str, text: &str) {
        let mut state = self.lock();
        state.totals.failed += 1;
        state.remember(now, took, false);
        if state.first_failure.is_none() {
            let mut end = text.len().min(MAX_TEXT);
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            state.first_failure = Some(FirstFailure {
                at: Timestamp::now(),
                instant: now,
                waited: took,
                request: request.to_owned(),
                text: text[..end].to_owned(),
            });
        }
    }

    pub(super) fn totals(&self) -> Totals {
        self.lock().totals
    }

    pub(super) fn recent(&self, window: Duration) -> Recent {
        self.lock().recent(Instant::now(), window)
    }

    pub(super) fn first_failure(&self) -> Option<FirstFailure> {
        self.lock().first_failure.clone()
    }

    pub(super) fn first_success(&self) -> Option<FirstSuccess> {
        self.lock().first_success.clone()
    }

    pub(super) fn await_success(&self) {
        let mut state = self.lock();
        (state.awaited, state.first_success) = (Some(Instant::now()), None);
    }

    pub(super) fn forget_failures(&self) {
        self.lock().first_failure = None;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn remember(&mut self, now: Instant, took: Duration, succeeded: bool) {
        while self.writes.len() >= MAX_WRITES
            || self
                .writes
                .front()
                .is_some_and(|(ended, ..)| now.saturating_duration_since(*ended) > MEMORY)
        {
            self.writes.pop_front();
        }
        self.writes.push_back((now, took, succeeded));
    }

    fn recent(&self, now: Instant, window: Duration) -> Recent {
        let window = window.min(MEMORY).max(Duration::from_millis(1));
        let within = self
            .writes
            .iter()
            .filter(|(ended, ..)| now.saturating_duration_since(*ended) <= window);
        let (succeeded, failed): (Vec<_>, Vec<_>) = within.partition(|(.., succeeded)| *succeeded);
        let mut durations: Vec<Duration> = succeeded.iter().map(|(_, took, _)| *took).collect();
        durations.sort_unstable();
        Recent {
            writes_per_second: durations.len() as f64 / window.as_secs_f64(),
            median: durations.get(durations.len() / 2).copied(),
            failed: failed.len() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_failure_is_kept_until_it_is_forgotten() {
        let record = Record::default();
        let now = Instant::now();
        record.failed(now, Duration::from_secs(10), "create secrets in team-a", "one");
        record.failed(now, Duration::from_secs(10), "create secrets in team-a", "two");
        assert_eq!(record.first_failure().unwrap().text, "one");
        record.forget_failures();
        assert_eq!(record.first_failure(), None);
        record.failed(now, Duration::ZERO, "patch leases in team-b", &"ä".repeat(2_000));
        assert!(record.first_failure().unwrap().text.len() <= MAX_TEXT);
        assert_eq!(record.totals().failed, 3);
    }

    #[test]
    fn the_recent_past_holds_only_what_ended_within_it() {
        let mut state = State::default();
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        state.remember(at(0), Duration::from_millis(900), true);
        for millis in [5, 1, 3] {
            state.remember(at(9), Duration::from_millis(millis), true);
        }
        state.remember(at(9), Duration::from_secs(10), false);
        let recent = state.recent(at(10), Duration::from_secs(2));
        assert_eq!(recent.median, Some(Duration::from_millis(3)));
        assert_eq!((recent.writes_per_second, recent.failed), (1.5, 1));
        assert_eq!(state.recent(at(20), Duration::from_secs(2)), Recent::default());
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut state = State::default();
        let now = Instant::now();
        for _ in 0..MAX_WRITES + 10 {
            state.remember(now, Duration::ZERO, true);
        }
        assert_eq!(state.writes.len(), MAX_WRITES);
        state.remember(now + MEMORY * 2, Duration::ZERO, true);
        assert_eq!(state.writes.len(), 1);
    }
}
