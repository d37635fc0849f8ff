//! Instants on the daemon's own clock, and how they relate to the wall clock.
//!
//! Nothing in `domain` reads a clock: a [`Time`] comes in with every observation. That is what makes an
//! incident a plain test and lets a recording replay to the same verdict.

use std::fmt;
use std::ops::Add;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

const DAY: Duration = Duration::from_secs(86_400);

/// An instant, in whole milliseconds from the Unix epoch, on a clock that never steps back. Not finer than milliseconds, so that
/// an instant that was serialized reads back as the same one.
///
/// The daemon's clock starts at the wall clock's time and from then on adds monotonic time, so that differences are always right
/// and an instant can still be shown to a person. A [`WallReading`] corrects for changes of the wall clock since then. A
/// recording brings its own instants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(Duration);

impl Time {
    /// The instant `millis` milliseconds after the Unix epoch.
    pub const fn from_unix_millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }

    /// The instant `since_epoch` after the Unix epoch, rounded down to a millisecond.
    pub const fn from_unix(since_epoch: Duration) -> Self {
        Self::from_unix_millis(since_epoch.as_millis() as u64)
    }

    /// The instant this many seconds after the Unix epoch; the epoch itself for a negative number.
    pub fn from_unix_seconds(seconds: i64) -> Self {
        Self::from_unix(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
    }

    /// The instant of a timestamp, rounded down to a millisecond; `None` for one before the Unix epoch.
    pub fn of(timestamp: jiff::Timestamp) -> Option<Self> {
        let millis = u64::try_from(timestamp.as_millisecond()).ok()?;
        Some(Self::from_unix_millis(millis))
    }

    /// The instant that an RFC 3339 text names, the format of Kubernetes; `None` for any other text, or before the Unix epoch.
    pub fn parse(text: &str) -> Option<Self> {
        Self::of(text.parse().ok()?)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn unix_millis(self) -> u64 {
        self.0.as_millis() as u64
    }

    /// Seconds since the Unix epoch, with their fraction.
    pub const fn unix_seconds(self) -> f64 {
        self.0.as_secs_f64()
    }

    /// How long after `earlier` this is; zero when this is not later.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// This instant for a person who reads it at `now`: its UTC time of day, to the second, with the date if it is a day old.
    pub fn as_read_at(self, now: Self) -> String {
        let whole = self.to_string();
        let Some((date, clock)) = whole.split_once('T') else {
            return whole;
        };
        let clock = clock.get(..8).unwrap_or(clock);
        if now.since(self) < DAY {
            clock.to_owned()
        } else {
            format!("{date} {clock}")
        }
    }

    /// The instant `ago` before this one, but not before the Unix epoch.
    pub fn before(self, ago: Duration) -> Self {
        Self(self.0.saturating_sub(ago))
    }
}

/// What the daemon's clock and the wall clock showed at the same moment. It converts between the two: dates that others compare
/// with their own clocks must be by the wall clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WallReading {
    /// The moment by the daemon's clock.
    pub ours: Time,
    /// The same moment by the wall clock.
    pub wall: Time,
}

impl WallReading {
    /// A drift of the wall clock below this is ignored, so that the date of a past instant does not change with every reading.
    const TOLERANCE: Duration = Duration::from_secs(1);

    /// The wall clock's date of an instant of the daemon's clock, as the wall clock is set now.
    pub fn date(self, instant: Time) -> Time {
        if instant <= self.ours {
            self.wall.before(self.ours.since(instant))
        } else {
            self.wall + instant.since(self.ours)
        }
    }

    /// The daemon's instant of a date of the wall clock, as the wall clock is set now; the inverse of [`date`](Self::date).
    pub fn instant(self, date: Time) -> Time {
        let swapped = Self {
            ours: self.wall,
            wall: self.ours,
        };
        swapped.date(date)
    }

    /// The `newer` reading if the wall clock has been set in between or has drifted by a second or more, else this one.
    pub fn renewed(self, newer: Self) -> Self {
        let expected = self.date(newer.ours);
        let off = newer.wall.since(expected).max(expected.since(newer.wall));
        if off < Self::TOLERANCE { self } else { newer }
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, later: Duration) -> Self {
        Self(self.0.saturating_add(later))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = i64::try_from(self.unix_millis()).unwrap_or(i64::MAX);
        match jiff::Timestamp::from_millisecond(millis) {
            Ok(timestamp) => write!(f, "{timestamp:.3}"),
            // After the year 9999, which a timestamp cannot hold: print the number.
            Err(_) => write!(f, "{}ms", self.unix_millis()),
        }
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        let instant = match text.strip_suffix("ms") {
            Some(millis) => millis.parse().ok().map(Self::from_unix_millis),
            None => Self::parse(&text),
        };
        instant.ok_or_else(|| de::Error::custom(format!("{text:?} is not an instant")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_itself_as_an_rfc_3339_instant() {
        assert_eq!(
            Time::from_unix_millis(1_795_219_862_156).to_string(),
            "2026-11-21T00:11:02.156Z"
        );
    }

    #[test]
    fn a_person_reads_the_time_of_day_and_from_a_day_ago_on_the_date_too() {
        let then = Time::from_unix_millis(1_795_219_862_156);
        for (later, read) in [
            (0, "00:11:02"),
            (86_399, "00:11:02"),
            (86_400, "2026-11-21 00:11:02"),
            (5 * 86_400, "2026-11-21 00:11:02"),
        ] {
            assert_eq!(
                then.as_read_at(then + Duration::from_secs(later)),
                read,
                "{later} s"
            );
        }
        assert_eq!((then + Duration::from_secs(1)).as_read_at(then), "00:11:03");
        assert_eq!(
            Time::from_unix_millis(u64::MAX).as_read_at(then),
            format!("{}ms", u64::MAX)
        );
    }

    #[test]
    fn a_difference_never_underflows() {
        let (early, late) = (Time::from_unix_millis(1_000), Time::from_unix_millis(3_500));
        assert_eq!(late.since(early), Duration::from_millis(2_500));
        assert_eq!(early.since(late), Duration::ZERO);
    }

    #[test]
    fn reads_back_as_it_was_written() {
        for millis in [0, 1, 1_795_219_862_156, u64::MAX] {
            let time = Time::from_unix_millis(millis);
            let text = serde_json::to_string(&time).unwrap();
            assert_eq!(serde_json::from_str::<Time>(&text).unwrap(), time, "{text}");
        }
    }

    #[test]
    fn an_instant_is_dated_by_the_newest_wall_clock_whether_it_was_set_forward_or_back() {
        let at = Time::from_unix_millis;
        let start = WallReading::default();
        assert_eq!(start.date(at(5_000)), at(5_000));
        for wall in [900_000, 20_000] {
            let stepped = start.renewed(WallReading {
                ours: at(60_000),
                wall: at(wall),
            });
            assert_eq!(stepped.date(at(60_000)), at(wall));
            assert_eq!(stepped.date(at(59_000)), at(wall - 1_000));
            assert_eq!(stepped.date(at(61_000)), at(wall + 1_000));
            for instant in [59_000, 60_000, 61_000] {
                assert_eq!(stepped.instant(stepped.date(at(instant))), at(instant));
            }
        }
    }

    #[test]
    fn a_wall_clock_that_was_not_set_changes_no_date() {
        let at = Time::from_unix_millis;
        let first = WallReading {
            ours: at(1_000),
            wall: at(70_000),
        };
        let newer = WallReading {
            ours: at(9_000),
            wall: at(77_600),
        };
        assert_eq!(first.renewed(newer), first);
    }

    #[test]
    fn is_no_finer_than_what_is_written() {
        let fine = Duration::new(1, 2_345_678);
        assert_eq!(Time::from_unix(fine), Time::from_unix_millis(1_002));
    }
}
