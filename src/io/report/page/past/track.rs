//! The probes of one backend over the last hour, in two bytes per half minute.

use std::time::Duration;

use super::SPAN;
use crate::domain::time::Time;

/// The time that one cell covers.
pub const SLOT: Duration = Duration::from_secs(30);
/// Cells of a track: 120.
pub const SLOTS: usize = (SPAN.as_secs() / SLOT.as_secs()) as usize;

/// The bit of a cell that is set if a probe failed. The other bits are the slowest probe's milliseconds plus 1; 0 means no probe.
const FAILED: u16 = 1 << 15;

/// The probes of half a minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cell {
    /// No probe came back or was overdue.
    Empty,
    /// At least one probe came back or was overdue.
    Took {
        /// Milliseconds of the slowest probe, at most 32,766.
        millis: u16,
        /// Whether a probe found no living server.
        failed: bool,
    },
}

#[derive(Debug)]
pub(super) struct Track {
    /// The newest slot, counted in [`SLOT`]s since the Unix epoch.
    newest: u64,
    cells: Box<[u16; SLOTS]>,
}

impl Default for Track {
    fn default() -> Self {
        Self {
            newest: 0,
            cells: Box::new([0; SLOTS]),
        }
    }
}

fn slot(at: Time) -> u64 {
    at.unix_millis() / SLOT.as_millis() as u64
}

impl Track {
    pub(super) fn put(&mut self, at: Time, took: Duration, failed: bool) {
        let slot = slot(at);
        if slot > self.newest {
            let passed = (slot - self.newest).min(SLOTS as u64);
            for gone in 0..passed {
                self.set(slot - gone, 0);
            }
            self.newest = slot;
        } else if self.newest - slot >= SLOTS as u64 {
            return;
        }
        let millis = (took.as_millis().min(u128::from(FAILED) - 2) as u16) + 1;
        let before = self.get(slot);
        let failed = if failed { FAILED } else { before & FAILED };
        self.set(slot, (before & !FAILED).max(millis) | failed);
    }

    /// Whether the newest probe is within [`SPAN`] before `now`.
    pub(super) fn is_within(&self, now: Time) -> bool {
        slot(now).saturating_sub(self.newest) < SLOTS as u64
    }

    /// The [`SLOTS`] cells up to `now`, the oldest first.
    pub(super) fn cells(&self, now: Time) -> Vec<Cell> {
        let last = slot(now);
        (0..SLOTS as u64)
            .rev()
            .map(|ago| {
                let slot = last.saturating_sub(ago);
                let known = slot <= self.newest && self.newest - slot < SLOTS as u64;
                let cell = if known { self.get(slot) } else { 0 };
                match cell {
                    0 => Cell::Empty,
                    cell => Cell::Took {
                        millis: (cell & !FAILED) - 1,
                        failed: cell & FAILED != 0,
                    },
                }
            })
            .collect()
    }

    fn get(&self, slot: u64) -> u16 {
        self.cells[(slot % SLOTS as u64) as usize]
    }

    fn set(&mut self, slot: u64, cell: u16) {
        self.cells[(slot % SLOTS as u64) as usize] = cell;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_unix_millis(1_800_000_000_000 + seconds * 1_000)
    }

    #[test]
    fn the_slowest_probe_of_half_a_minute_is_kept_and_a_failure_is_not_forgotten() {
        let mut track = Track::default();
        track.put(at(0), Duration::from_millis(5), true);
        track.put(at(10), Duration::from_millis(90), false);
        track.put(at(31), Duration::from_secs(600), false);
        let cells = track.cells(at(40));
        let took = |millis, failed| Cell::Took { millis, failed };
        assert_eq!(cells.len(), SLOTS);
        assert_eq!(cells[SLOTS - 2..], [took(90, true), took(32_766, false)]);
        assert!(cells[..SLOTS - 2].iter().all(|cell| *cell == Cell::Empty));
    }

    #[test]
    fn what_is_older_than_the_span_is_gone_and_comes_back_in_no_other_place() {
        let mut track = Track::default();
        track.put(at(0), Duration::from_millis(5), false);
        track.put(at(3_600 + 30), Duration::from_millis(7), false);
        let there = |now: u64| {
            let cells = track.cells(at(now));
            cells.iter().filter(|cell| **cell != Cell::Empty).count()
        };
        assert_eq!(there(3_630), 1);
        assert_eq!(there(3_630 + 3_599), 1);
        assert_eq!(there(3_630 + 3_600), 0);
        assert!(track.is_within(at(3_630)) && !track.is_within(at(3_630 + 3_600)));
        // A clock that was behind brings nothing back either.
        assert_eq!(there(0), 0);
    }
}
