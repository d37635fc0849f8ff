//! When a backend is to be probed next.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::domain::probe::Connection as ConnectionUse;

/// Fresh probes of one backend under way at once, so that while one hangs for the
/// hook's whole timeout the next sees whether the hook is back.
const FRESH_AT_ONCE: usize = 2;

/// When a backend was last probed on each kind of connection, and the probes of it that are under way.
#[derive(Default)]
pub(super) struct Due {
    fresh: Row,
    kept: Row,
    /// Since when the backend is none of the hook's any more.
    left: Option<Instant>,
    /// How many probes were begun.
    pub(super) round: u64,
}

/// The probes on one kind of connection, one after the other.
#[derive(Default)]
struct Row {
    /// `None` before the first.
    last: Option<Instant>,
    /// When the first may come.
    first: Option<Instant>,
    /// How much earlier than its interval the next one comes, in thousandths of a tenth of it.
    early: u64,
    /// A clone of it is held by each probe under way.
    under_way: Arc<()>,
}

impl Due {
    /// Due for the first time within half a second, by a toss.
    pub(super) fn new(now: Instant, toss: u64) -> Self {
        let row = |toss: u64| Row {
            first: Some(now + Duration::from_millis(toss % 1_000 / 2)),
            ..Row::default()
        };
        Self {
            fresh: row(toss),
            kept: row(toss / 1_000),
            left: None,
            round: 0,
        }
    }

    /// Notes whether the backend is one of the hook's. The connection kept to one that has just left is asked at once:
    /// the API server goes on using its own.
    pub(super) fn is_there(&mut self, there: bool, now: Instant) {
        if there {
            self.left = None;
        } else if self.left.is_none() {
            self.left = Some(now);
            (self.kept.last, self.kept.first) = (None, Some(now));
        }
    }

    /// Whether the backend is none of the hook's any more.
    pub(super) fn has_left(&self) -> bool {
        self.left.is_some()
    }

    /// Whether it left so long ago.
    pub(super) fn is_over(&self, now: Instant, after: Duration) -> bool {
        self.left.is_some_and(|left| now.duration_since(left) >= after)
    }

    fn row(&self, connection: ConnectionUse) -> (&Row, usize) {
        match connection {
            ConnectionUse::Fresh => (&self.fresh, FRESH_AT_ONCE),
            ConnectionUse::Kept => (&self.kept, 1),
        }
    }

    /// For how long a probe has been due; `None` when none is.
    pub(super) fn late(
        &self,
        connection: ConnectionUse,
        now: Instant,
        interval: Duration,
    ) -> Option<Duration> {
        let (row, at_once) = self.row(connection);
        if Arc::strong_count(&row.under_way) > at_once {
            return None;
        }
        // Up to a tenth early, by a toss that differs from round to round, so that probes of many hooks never
        // march in step.
        let due = match (row.last, row.first) {
            (Some(last), _) => last + interval - interval.mul_f64(row.early as f64 / 10_000.0),
            (None, first) => first?,
        };
        now.checked_duration_since(due)
    }

    pub(super) fn under_way(&self) -> bool {
        let busy = |row: &Row| Arc::strong_count(&row.under_way) > 1;
        busy(&self.fresh) || busy(&self.kept)
    }

    /// Notes a probe that begins now; what it returns is to be held while it is under way.
    pub(super) fn start(&mut self, connection: ConnectionUse, now: Instant, toss: u64) -> Arc<()> {
        let row = match connection {
            ConnectionUse::Fresh => &mut self.fresh,
            ConnectionUse::Kept => &mut self.kept,
        };
        (row.last, row.early) = (Some(now), toss);
        self.round += 1;
        Arc::clone(&row.under_way)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(5);

    #[test]
    fn a_backend_is_probed_within_half_a_second_and_then_at_most_a_tenth_before_its_interval() {
        let now = Instant::now();
        for toss in [0, 1, 999, 123_456_789, u64::MAX] {
            let mut due = Due::new(now, toss);
            let soon = now + Duration::from_millis(500);
            for connection in [ConnectionUse::Fresh, ConnectionUse::Kept] {
                assert!(due.late(connection, soon, INTERVAL).is_some(), "{toss}");
                drop(due.start(connection, soon, toss % 1_000));
                let early = soon + INTERVAL.mul_f64(0.89);
                assert_eq!(due.late(connection, early, INTERVAL), None, "{toss}");
                assert!(
                    due.late(connection, soon + INTERVAL, INTERVAL).is_some(),
                    "{toss}"
                );
            }
        }
    }

    #[test]
    fn a_backend_that_left_is_asked_at_once_on_its_kept_connection_and_for_a_while() {
        let now = Instant::now();
        let mut due = Due::new(now, 0);
        drop(due.start(ConnectionUse::Kept, now, 0));
        let soon = now + Duration::from_millis(100);
        due.is_there(false, soon);
        assert!(due.has_left());
        assert_eq!(
            due.late(ConnectionUse::Kept, soon, INTERVAL),
            Some(Duration::ZERO)
        );
        drop(due.start(ConnectionUse::Kept, soon, 0));
        due.is_there(false, soon + INTERVAL);
        assert!(!due.is_over(soon + INTERVAL, INTERVAL * 2));
        assert!(due.is_over(soon + INTERVAL * 2, INTERVAL * 2), "it left once");
        due.is_there(true, soon + INTERVAL * 2);
        assert!(!due.has_left());
    }

    #[test]
    fn a_backend_that_hangs_holds_two_fresh_probes_and_no_more() {
        let now = Instant::now();
        let mut due = Due::new(now, 0);
        let under_way = [0, 1].map(|n| due.start(ConnectionUse::Fresh, now + INTERVAL * n, 0));
        let later = now + INTERVAL * 10;
        assert_eq!(due.late(ConnectionUse::Fresh, later, INTERVAL), None);
        assert!(due.under_way());
        drop(under_way);
        assert!(due.late(ConnectionUse::Fresh, later, INTERVAL).is_some());
        assert!(!due.under_way());
    }
}
