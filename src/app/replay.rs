//! `hookwatch replay`: the diagnosis of what was recorded, offline.
//!
//! Two things can be replayed: a recording that the daemon wrote, which holds every observation, and a folder of
//! scrapes named `*_<unix-ms>.prom`, saved manually. Either is fed to the same core that the daemon runs, with the
//! recorded instants as time, so a verdict can be reviewed long after the incident.

mod read;

use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};

use crate::domain::cluster::hook::{HookKind, Subject};
use crate::domain::diagnose::verdict::Verdict;
use crate::domain::recording::Player;
use crate::domain::report::assessment::Assessment;
use crate::domain::time::Time;
use crate::domain::vocabulary::{Cause, Effect, Health, NotAHook};
use crate::domain::watchdog::{Event, Watchdog, WatchdogEffect};

/// What `replay` was asked for.
#[derive(Debug, Clone, clap::Args)]
pub struct ReplayArguments {
    /// Recording of the daemon: a file, or the folder with all its parts
    #[arg(value_name = "RECORDING", required_unless_present = "scrapes")]
    pub recording: Option<PathBuf>,
    /// Folder of scrapes named `*_<unix-ms>.prom`, or `.prom.gz`
    #[arg(long, value_name = "DIR", conflicts_with = "recording")]
    pub scrapes: Option<PathBuf>,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    pub output: super::Output,
}

impl ReplayArguments {
    /// Replays what was asked for.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn replay(&self) -> anyhow::Result<Replay> {
        match (&self.recording, &self.scrapes) {
            (Some(recording), _) => replay(recording),
            (None, Some(folder)) => replay_scrapes(folder),
            (None, None) => anyhow::bail!("nothing to replay was named"),
        }
    }
}

/// The result of a replay.
#[derive(Debug, Clone, Default)]
pub struct Replay {
    /// Observations played.
    pub observations: usize,
    /// Every change of a hook's health or cause, in order.
    pub turns: Vec<Turn>,
    /// Every change of the cause of trouble that is not a webhook, in order.
    pub elsewhere: Vec<NonHookCauseChange>,
    /// The hooks that were named as culprits, each with the cause it was named for with the most confidence.
    pub culprits: Vec<Culprit>,
    /// The last assessment.
    pub last: Option<Arc<Assessment>>,
    /// What could not be used of the recording, one sentence each.
    pub complaints: Vec<String>,
    /// Health and cause of each hook as of its last turn. Scrapes alone do not say which configuration a hook is in.
    told: BTreeMap<Subject, (Health, Option<Cause>)>,
}

/// Callback for every assessment of a replay, with its time.
pub type Each<'a> = &'a mut dyn FnMut(Time, &Assessment);

/// One change of a hook's health or cause.
#[derive(Debug, Clone, PartialEq)]
pub struct Turn {
    /// When it changed.
    pub at: Time,
    /// The verdict from then on.
    pub verdict: Verdict,
}

/// One change of what is wrong with the control plane itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NonHookCauseChange {
    /// When it changed.
    pub at: Time,
    /// What is wrong from then on; `None` when that is over.
    pub cause: Option<NotAHook>,
}

/// A hook that was named as a culprit.
#[derive(Debug, Clone, PartialEq)]
pub struct Culprit {
    /// Its kind.
    pub kind: HookKind,
    /// Its name; metrics alone do not say which configuration it belongs to.
    pub webhook: Arc<str>,
    /// What it was named for with the highest confidence.
    pub cause: Cause,
    /// The effect on writes in that verdict.
    pub effect: Effect,
    /// The highest confidence reached.
    pub confidence: f64,
    /// When it was first named.
    pub at: Time,
}

/// Replays what the daemon recorded: one part, or a folder with all of them.
///
/// # Errors
/// When it cannot be read, or is no recording. A damaged line or end is only a complaint in the result.
pub fn replay(recording: &Path) -> anyhow::Result<Replay> {
    replay_with(recording, &mut |_, _| {})
}

/// As [`replay`], and calls `each` with every assessment.
///
/// # Errors
/// Those of [`replay`].
pub fn replay_with(recording: &Path, each: Each<'_>) -> anyhow::Result<Replay> {
    let mut result = Replay::default();
    let mut player = Player::default();
    for part in read::parts(recording)? {
        let content = read::open(&part)?;
        result.play(&mut player, content, &part, each)?;
    }
    result.ended(&player)
}

/// As [`replay`], for a single part in memory.
///
/// # Errors
/// When it is no recording.
pub fn replay_part(content: &[u8]) -> anyhow::Result<Replay> {
    let mut result = Replay::default();
    let mut player = Player::default();
    result.play(
        &mut player,
        read::decompressed(content)?,
        Path::new("the recording"),
        &mut |_, _| {},
    )?;
    result.ended(&player)
}

/// Replays a folder of scrapes, without inventory, probes and canaries.
///
/// # Errors
/// When the folder cannot be read or holds no file named like a scrape. A file whose compression is damaged is only a failed
/// scrape, and a complaint in the result.
pub fn replay_scrapes(folder: &Path) -> anyhow::Result<Replay> {
    replay_scrapes_with(folder, &mut |_, _| {})
}

/// As [`replay_scrapes`], and calls `each` with every assessment.
///
/// # Errors
/// Those of [`replay_scrapes`].
pub fn replay_scrapes_with(folder: &Path, each: Each<'_>) -> anyhow::Result<Replay> {
    let mut watchdog = Watchdog::new("hookwatch");
    let mut result = Replay::default();
    for (at, path) in read::scrapes_in(folder)? {
        let scraped = match read::scrape(&path, at)? {
            Ok(scrape) => Event::Scraped(Box::new(scrape)),
            Err(failure) => {
                result.complaints.push(failure.why.clone());
                Event::ScrapeFailed(failure)
            }
        };
        result.observations += 1;
        watchdog.handle(scraped, at);
        result.take(at, watchdog.handle(Event::Tick, at), each);
    }
    Ok(result)
}

impl Replay {
    /// Plays one part. `path` is what it is called in complaints.
    fn play(
        &mut self,
        player: &mut Player,
        content: impl BufRead,
        path: &Path,
        each: Each<'_>,
    ) -> anyhow::Result<()> {
        let mut complaints = Vec::new();
        read::lines(content, path, &mut complaints, |line| {
            if let Some((at, effects)) = player.play(line)? {
                self.observations += 1;
                self.take(at, effects, each);
            }
            Ok(())
        })?;
        if !complaints.is_empty() {
            player.damaged();
        }
        self.complaints.extend(complaints);
        Ok(())
    }

    fn ended(mut self, player: &Player) -> anyhow::Result<Self> {
        if !player.has_begun() {
            let why = self.complaints.first().map_or("it is empty", String::as_str);
            anyhow::bail!("nothing was recorded: {why}");
        }
        if player.lost > 0 {
            self.complaints.push(format!(
                "{} observations were not recorded: the disk was too slow or full",
                player.lost
            ));
        }
        Ok(self)
    }

    fn take(&mut self, at: Time, effects: Vec<WatchdogEffect>, each: Each<'_>) {
        for effect in effects {
            let WatchdogEffect::Publish(assessment, _) = effect else {
                continue;
            };
            each(at, &assessment);
            for verdict in &assessment.hooks {
                self.take_verdict(at, verdict);
            }
            let cause = assessment
                .control_plane
                .not_a_hook
                .as_ref()
                .map(|found| found.cause);
            if self.elsewhere.last().and_then(|last| last.cause) != cause {
                self.elsewhere.push(NonHookCauseChange { at, cause });
            }
            self.last = Some(assessment);
        }
    }

    fn take_verdict(&mut self, at: Time, verdict: &Verdict) {
        let state = (verdict.health, verdict.cause);
        if self.told.insert(verdict.subject(), state) != Some(state) {
            self.turns.push(Turn {
                at,
                verdict: verdict.clone(),
            });
        }
        let (Health::Failing, Some(cause)) = state else {
            return;
        };
        let known = self
            .culprits
            .iter_mut()
            .find(|known| known.kind == verdict.kind && known.webhook == verdict.webhook);
        match known {
            Some(known) if known.confidence < verdict.confidence => {
                (known.cause, known.effect, known.confidence) = (cause, verdict.effect, verdict.confidence);
            }
            Some(_) => {}
            None => self.culprits.push(Culprit {
                kind: verdict.kind,
                webhook: Arc::clone(&verdict.webhook),
                cause,
                effect: verdict.effect,
                confidence: verdict.confidence,
                at,
            }),
        }
    }

    /// Every cause of trouble that was not a webhook, once each, in order of appearance.
    pub fn not_a_hook(&self) -> Vec<NotAHook> {
        let mut found = Vec::new();
        for cause in self.elsewhere.iter().filter_map(|change| change.cause) {
            if !found.contains(&cause) {
                found.push(cause);
            }
        }
        found
    }

    /// The result for programs: one entry per change.
    pub fn document(&self) -> Value {
        let verdicts = self.turns.iter().map(|Turn { at, verdict }| {
            json!({
                "at_unix_ms": at.unix_millis(),
                "kind": verdict.kind,
                "webhook": verdict.webhook,
                "configuration": verdict.configuration,
                "cause": verdict.cause,
                "confidence": verdict.confidence,
                "webhook_confidence": verdict.webhook_confidence,
                "rule": verdict.rule,
                "health": verdict.health,
            })
        });
        let verdicts: Vec<Value> = verdicts.collect();
        let not_a_hook = self
            .elsewhere
            .iter()
            .map(|NonHookCauseChange { at, cause }| json!({"at_unix_ms": at.unix_millis(), "cause": cause}));
        let not_a_hook: Vec<Value> = not_a_hook.collect();
        json!({
            "observations": self.observations,
            "complaints": self.complaints,
            "verdicts": verdicts,
            "not_a_hook": not_a_hook,
        })
    }

    /// The result for people.
    pub fn to_text(&self) -> String {
        let mut text = format!("{} observations\n", self.observations);
        for complaint in &self.complaints {
            text.push_str(&format!("note: {complaint}\n"));
        }
        for (at, lines) in self.timeline() {
            text.push_str(&format!("{at}  {lines}"));
        }
        for culprit in &self.culprits {
            text.push_str(&format!(
                "culprit: {} is {} (effect {}, confidence {:.2}), first named {}\n",
                culprit.webhook,
                culprit.cause,
                culprit.effect.as_str(),
                culprit.confidence,
                culprit.at
            ));
        }
        let elsewhere = self.not_a_hook();
        for cause in &elsewhere {
            text.push_str(&format!("not a hook: {}, {}\n", cause.as_str(), cause.sentence()));
        }
        if self.last.is_none() {
            text.push_str("nothing was judged\n");
        } else if self.culprits.is_empty() && elsewhere.is_empty() {
            text.push_str("no culprit\n");
        }
        text
    }

    fn timeline(&self) -> Vec<(Time, String)> {
        let turns = self.turns.iter().map(|Turn { at, verdict }| {
            let cause = verdict
                .cause
                .map_or_else(String::new, |cause| format!(" {cause}"));
            let mut lines = format!("{} {}{cause}\n", verdict.webhook, verdict.health.as_str());
            for sentence in &verdict.evidence {
                lines.push_str(&format!("    {sentence}\n"));
            }
            (*at, lines)
        });
        let elsewhere = self.elsewhere.iter().map(|change| {
            let line = match change.cause {
                Some(cause) => format!("control plane: {}, {}\n", cause.as_str(), cause.sentence()),
                None => "control plane: nothing but webhooks to blame from here on\n".to_owned(),
            };
            (change.at, line)
        });
        let mut all: Vec<(Time, String)> = turns.chain(elsewhere).collect();
        all.sort_by_key(|(at, _)| *at);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::recorder::{Recorder, RecorderOptions};

    /// A gzip file's own header and no more: what a kill leaves of a part that was just begun.
    const CUT: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 255];

    #[test]
    fn a_part_that_is_cut_in_its_first_line_does_not_keep_the_others_from_being_read() {
        let directory = tempfile::tempdir().unwrap();
        let began = |seconds: u64| Time::from_unix_millis(seconds * 1_000);
        for number in [1, 3] {
            let options = RecorderOptions {
                directory: directory.path().to_owned(),
                max_bytes: 1 << 20,
                namespace: "hookwatch".into(),
                canaries: Vec::new(),
            };
            let mut recorder = Recorder::start(options, began(number)).unwrap();
            recorder.record(began(number), &Event::Tick);
        }
        for number in [0, 2] {
            let name = format!("hookwatch-{:013}-00000.jsonl.gz", began(number).unix_millis());
            std::fs::write(directory.path().join(name), CUT).unwrap();
        }
        let replayed = replay(directory.path()).unwrap();
        assert_eq!((replayed.observations, replayed.complaints.len()), (2, 2));
    }

    #[test]
    fn a_scrape_whose_compression_is_damaged_is_a_failed_scrape_and_a_complaint() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("0001_1000.prom.gz"), CUT).unwrap();
        let replayed = replay_scrapes(directory.path()).unwrap();
        let [complaint] = &replayed.complaints[..] else {
            panic!("{:?}", replayed.complaints);
        };
        assert!(
            complaint.contains("0001_1000.prom.gz is damaged after 0 bytes"),
            "{complaint}"
        );
        let scrapes = &replayed.last.unwrap().sources.scrapes;
        assert_eq!(scrapes[0].failure.as_ref(), Some(complaint));
    }

    #[test]
    fn of_parts_that_are_all_cut_in_their_first_line_nothing_was_recorded() {
        let error = replay_part(&CUT).unwrap_err().to_string();
        assert!(error.starts_with("nothing was recorded: "), "{error}");
        let error = replay_part(b"").unwrap_err().to_string();
        assert_eq!(error, "nothing was recorded: it is empty");
    }
}
