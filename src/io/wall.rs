//! The wall clock, which dates hookwatch's output. The daemon's own clock never steps, so it may differ.

use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use super::{Clock, lock};
use crate::domain::time::{Time, WallReading};

/// The last reading of the wall clock.
#[derive(Debug, Default)]
pub struct WallClock(Mutex<WallReading>);

impl WallClock {
    /// Reads the wall clock together with the daemon's `clock`. A difference of less than 1 s to the last reading is ignored, so
    /// that dates do not jitter; a larger one is a step of the wall clock or a pause of the machine.
    pub fn look(&self, clock: &Clock) {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let newer = WallReading {
            ours: clock(),
            wall: Time::from_unix(wall),
        };
        let mut known = lock(&self.0);
        *known = known.renewed(newer);
    }

    /// The reading by which instants are dated now.
    pub fn reading(&self) -> WallReading {
        *lock(&self.0)
    }

    /// Converts an instant of the daemon's clock to the wall clock's time.
    pub fn date(&self, instant: Time) -> Time {
        self.reading().date(instant)
    }
}
