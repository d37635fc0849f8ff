//! The wall clock, by which hookwatch dates its output.

use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use super::{Clock, lock};
use crate::domain::time::{Time, WallReading};

/// What the wall clock showed when it was last looked at.
#[derive(Debug, Default)]
pub struct WallClock(Mutex<WallReading>);

impl WallClock {
    /// Looks at it, beside the daemon's clock: a step or a pause of the machine may have set it.
    pub fn look(&self, clock: &Clock) {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let newer = WallReading {
            ours: clock(),
            wall: Time::from_unix(wall),
        };
        let mut known = lock(&self.0);
        *known = known.renewed(newer);
    }

    /// The newest reading.
    pub fn reading(&self) -> WallReading {
        *lock(&self.0)
    }

    /// When an instant of the daemon's clock is, or was, by the wall clock.
    pub fn date(&self, instant: Time) -> Time {
        self.reading().date(instant)
    }
}
