//! A recording: every observation with its instant, one line of JSON each.
//!
//! The core is a function of its observations, so a recording replays to exactly the verdicts that the daemon gave.
//! It contains what the core receives: names, numbers and the texts of failures, but no objects, keys or caBundles.
//!
//! A daemon writes its recording in parts, so that the oldest can be deleted to make room. Each part begins with a [`Header`],
//! then has the last [known](RecordingLine::Known) observation of each kind that comes only when it changes. So a part can
//! be played alone, with less memory of the past.

use serde::{Deserialize, Serialize};

use super::observe::canary::FurtherCanary;
use super::time::Time;
use super::watchdog::{Event, Watchdog, WatchdogEffect};

/// The version of the format. [`Player`] accepts only this one.
pub const VERSION: u32 = 1;

/// The first line of a part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The format's version, [`VERSION`].
    pub version: u32,
    /// The release of hookwatch that wrote the part.
    pub hookwatch: String,
    /// When the daemon began to record: the same in all parts of one recording.
    pub began: Time,
    /// Which part this is, from 0.
    pub part: u32,
    /// The namespace of the daemon.
    pub namespace: String,
    /// The canaries that were configured in addition to the built-in ones.
    #[serde(default)]
    pub canaries: Vec<FurtherCanary>,
}

/// One line of a recording. `E` is [`Event`] for a reader and may be a reference for a writer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordingLine<E = Event> {
    /// The first line of a part.
    Recording(Header),
    /// An observation from before the part began. A player of the whole previous part has it already, and skips it.
    Known(Time, E),
    /// An observation, and when it was made.
    Observed(Time, E),
    /// This many observations are missing here, because they came faster than the disk could write them.
    Lost(Time, u64),
}

/// Plays the lines of a recording to a [`Watchdog`] of its own.
#[derive(Debug, Default)]
pub struct Player {
    playing: Option<Playing>,
    /// Lines of the part that is played are missing, perhaps the only one with the inventory.
    is_damaged: bool,
    /// How many observations the played lines say are missing ([`RecordingLine::Lost`]).
    pub lost: u64,
}

#[derive(Debug)]
struct Playing {
    began: Time,
    part: u32,
    /// Whether the previous part was not played, so that the [`RecordingLine::Known`] lines are news.
    alone: bool,
    core: Watchdog,
}

/// Why a line cannot be played.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unplayable {
    /// It comes before any header.
    #[error("it does not begin as a recording of hookwatch does")]
    NoHeader,
    /// The header has another version than [`VERSION`].
    #[error(
        "it is in version {found} of the format, written by hookwatch {by}; this release reads version {VERSION}"
    )]
    OtherVersion {
        /// The header's version.
        found: u32,
        /// The release of hookwatch that wrote it.
        by: String,
    },
}

impl Player {
    /// Plays one line. Returns the core's effects with the line's instant; `None` for a line that the core does not get.
    ///
    /// # Errors
    /// When the line comes before any header, or is a header of another version.
    pub fn play(&mut self, line: RecordingLine) -> Result<Option<(Time, Vec<WatchdogEffect>)>, Unplayable> {
        match line {
            RecordingLine::Recording(header) => {
                self.begin(header)?;
                Ok(None)
            }
            RecordingLine::Known(at, event) => {
                let playing = self.playing()?;
                // A core that played the previous part has it already, and must not get it twice.
                Ok(playing.alone.then(|| (at, playing.core.handle(event, at))))
            }
            RecordingLine::Observed(at, event) => Ok(Some((at, self.playing()?.core.handle(event, at)))),
            RecordingLine::Lost(_, count) => {
                self.playing()?;
                self.lost = self.lost.saturating_add(count);
                Ok(None)
            }
        }
    }

    /// Says that lines of the part played last could not be read: the next part starts a new core and its
    /// [`RecordingLine::Known`] lines count.
    pub const fn damaged(&mut self) {
        self.is_damaged = true;
    }

    /// Whether a header was played.
    pub const fn has_begun(&self) -> bool {
        self.playing.is_some()
    }

    fn playing(&mut self) -> Result<&mut Playing, Unplayable> {
        self.playing.as_mut().ok_or(Unplayable::NoHeader)
    }

    /// A part that directly follows the previous one of the same recording, read whole, keeps the core; any other starts a new one.
    fn begin(&mut self, header: Header) -> Result<(), Unplayable> {
        if header.version != VERSION {
            return Err(Unplayable::OtherVersion {
                found: header.version,
                by: header.hookwatch,
            });
        }
        let was_whole = !std::mem::take(&mut self.is_damaged);
        match &mut self.playing {
            Some(playing)
                if was_whole
                    && playing.began == header.began
                    && playing.part.checked_add(1) == Some(header.part) =>
            {
                (playing.part, playing.alone) = (header.part, false);
            }
            playing => {
                *playing = Some(Playing {
                    began: header.began,
                    part: header.part,
                    alone: true,
                    core: Watchdog::new(&header.namespace).with_canaries(header.canaries),
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cluster::inventory::{Inventory, Problem};

    fn header(part: u32) -> RecordingLine {
        RecordingLine::Recording(Header {
            version: VERSION,
            hookwatch: "test".into(),
            began: Time::from_unix_millis(7),
            part,
            namespace: "hookwatch".into(),
            canaries: Vec::new(),
        })
    }

    /// An inventory that can be told from others by the assessments made of it.
    fn inventory(name: &str) -> Event {
        Event::Inventory(Arc::new(Inventory {
            problems: vec![Problem {
                object: name.into(),
                what: "odd".into(),
            }],
            ..Inventory::default()
        }))
    }

    fn problems(player: &mut Player) -> Vec<String> {
        let tick = RecordingLine::Observed(Time::from_unix_millis(9_000), Event::Tick);
        let (_, effects) = player.play(tick).unwrap().unwrap();
        let published = effects.into_iter().find_map(|effect| match effect {
            WatchdogEffect::Publish(assessment, _) => Some(assessment),
            _ => None,
        });
        let problems = &published.unwrap().problems;
        problems.iter().map(|problem| problem.object.clone()).collect()
    }

    #[test]
    fn a_part_that_is_read_alone_begins_with_what_was_known() {
        let mut player = Player::default();
        player.play(header(3)).unwrap();
        player
            .play(RecordingLine::Known(
                Time::from_unix_millis(8),
                inventory("known"),
            ))
            .unwrap();
        assert_eq!(problems(&mut player), ["known"]);
    }

    #[test]
    fn a_part_after_the_one_before_goes_on_and_is_not_told_twice() {
        let mut player = Player::default();
        player.play(header(3)).unwrap();
        player
            .play(RecordingLine::Observed(
                Time::from_unix_millis(8),
                inventory("observed"),
            ))
            .unwrap();
        player.play(header(4)).unwrap();
        let known = RecordingLine::Known(Time::from_unix_millis(8), inventory("known"));
        assert!(player.play(known).unwrap().is_none());
        assert_eq!(problems(&mut player), ["observed"]);
    }

    #[test]
    fn a_part_after_a_damaged_one_starts_a_new_core_and_the_one_after_that_goes_on() {
        let mut player = Player::default();
        player.play(header(3)).unwrap();
        player.damaged();
        player.play(header(4)).unwrap();
        let known = |name| RecordingLine::Known(Time::from_unix_millis(8), inventory(name));
        player.play(known("known")).unwrap();
        assert_eq!(problems(&mut player), ["known"]);
        player.play(header(5)).unwrap();
        assert!(player.play(known("again")).unwrap().is_none());
    }

    #[test]
    fn no_line_is_played_before_a_header() {
        let lost = RecordingLine::Lost(Time::from_unix_millis(8), 1);
        assert_eq!(Player::default().play(lost).err(), Some(Unplayable::NoHeader));
    }

    #[test]
    fn a_part_after_a_missing_one_starts_a_new_core() {
        let mut player = Player::default();
        player.play(header(3)).unwrap();
        player
            .play(RecordingLine::Observed(
                Time::from_unix_millis(8),
                inventory("observed"),
            ))
            .unwrap();
        player.play(header(5)).unwrap();
        assert_eq!(problems(&mut player), [""; 0]);
    }

    #[test]
    fn what_does_not_begin_as_a_recording_is_refused() {
        let tick = RecordingLine::Observed(Time::from_unix_millis(9), Event::Tick);
        assert_eq!(Player::default().play(tick), Err(Unplayable::NoHeader));
    }

    #[test]
    fn another_version_is_refused_by_its_number() {
        let RecordingLine::Recording(mut header) = header(0) else {
            unreachable!()
        };
        header.version = 99;
        let refused = Player::default()
            .play(RecordingLine::Recording(header))
            .unwrap_err();
        assert!(refused.to_string().contains("version 99"), "{refused}");
    }
}
