//! `hookwatch replay`: the diagnosis of a recording, offline.
//!
//! A recording is a folder of scrapes named `*_<unix-ms>.prom`. It is fed to the very core that the daemon
//! runs, with the recorded instants as time, so a verdict can be argued about long after the incident.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Serialize;

use crate::domain::exposition::Exposition;
use crate::domain::hook::HookKind;
use crate::domain::snapshot::Scrape;
use crate::domain::time::Time;
use crate::domain::verdict::{Assessment, Cause, Effect as HookEffect, Health, NotAHook, Verdict};
use crate::domain::watchdog::{Effect, Event, Watchdog};

/// A file larger than this is not a scrape.
const MAX_FILE: u64 = 1 << 30;

/// What `replay` was asked for.
#[derive(Debug, Clone, clap::Args)]
pub struct ReplayArguments {
    /// Folder of scrapes named `*_<unix-ms>.prom`
    pub recording: PathBuf,
    /// How to print the result
    #[arg(long, value_enum, default_value_t)]
    pub output: super::Output,
}

/// What a recording came out as.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Replay {
    /// Scrapes read.
    pub scrapes: usize,
    /// Every change of a hook's health or cause, in order.
    pub turns: Vec<Turn>,
    /// The hooks that were named as culprits, each with the cause it was named for with the most confidence.
    pub culprits: Vec<Culprit>,
    /// Every trouble that was laid to no hook, in the order of appearance.
    pub not_a_hook: Vec<NotAHook>,
    /// The assessment after the last scrape.
    pub last: Option<Arc<Assessment>>,
}

/// A recording knows no configuration: kind and webhook's name are all there is to tell hooks apart.
type Who = (HookKind, String);

/// One change of one hook.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Turn {
    /// When.
    pub at: Time,
    /// Validating or mutating.
    pub kind: HookKind,
    /// The webhook's name.
    pub webhook: String,
    /// How it is from then on.
    pub health: Health,
    /// What is wrong from then on.
    pub cause: Option<Cause>,
    /// What that does.
    pub effect: HookEffect,
    /// How sure that is.
    pub confidence: f64,
    /// Why.
    pub evidence: Vec<String>,
}

/// A hook that was named.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Culprit {
    /// Validating or mutating.
    pub kind: HookKind,
    /// The webhook's name.
    pub webhook: String,
    /// What was wrong with it.
    pub cause: Cause,
    /// What that did.
    pub effect: HookEffect,
    /// The highest confidence reached.
    pub confidence: f64,
    /// When it was first named.
    pub at: Time,
}

/// Replays a folder of scrapes.
///
/// # Errors
/// When the folder cannot be read or holds no file named like a scrape. A file that is damaged counts for what
/// can be read of it, as a scrape would.
pub fn replay(folder: &Path) -> anyhow::Result<Replay> {
    let files = scrapes_in(folder)?;
    let mut watchdog = Watchdog::new("hookwatch");
    let mut result = Replay {
        scrapes: files.len(),
        turns: Vec::new(),
        culprits: Vec::new(),
        not_a_hook: Vec::new(),
        last: None,
    };
    let mut told: std::collections::BTreeMap<Who, (Health, Option<Cause>)> = Default::default();
    for (at, path) in files {
        watchdog.handle(Event::Scraped(Box::new(read(&path, at)?)), at);
        for effect in watchdog.handle(Event::Tick, at) {
            let Effect::Publish(assessment) = effect else {
                continue;
            };
            for verdict in &assessment.hooks {
                let state = (verdict.health, verdict.cause);
                if told.insert((verdict.kind, verdict.webhook.to_string()), state) != Some(state) {
                    result.turns.push(Turn::of(at, verdict));
                }
                result.note_culprit(at, verdict);
            }
            if let Some(found) = &assessment.control_plane.not_a_hook
                && !result.not_a_hook.contains(&found.cause)
            {
                result.not_a_hook.push(found.cause);
            }
            result.last = Some(assessment);
        }
    }
    Ok(result)
}

impl Replay {
    fn note_culprit(&mut self, at: Time, verdict: &Verdict) {
        let Verdict {
            health: Health::Failing,
            cause: Some(cause),
            effect,
            confidence,
            webhook,
            kind,
            ..
        } = verdict
        else {
            return;
        };
        match self
            .culprits
            .iter_mut()
            .find(|known| known.kind == *kind && *known.webhook == **webhook)
        {
            Some(known) if known.confidence < *confidence => {
                (known.cause, known.effect, known.confidence) = (*cause, *effect, *confidence);
            }
            Some(_) => {}
            None => self.culprits.push(Culprit {
                kind: *kind,
                webhook: webhook.to_string(),
                cause: *cause,
                effect: *effect,
                confidence: *confidence,
                at,
            }),
        }
    }

    /// The result for people.
    pub fn to_text(&self) -> String {
        let mut text = format!("{} scrapes\n", self.scrapes);
        for turn in &self.turns {
            let cause = turn.cause.map_or_else(String::new, |cause| format!(" {cause}"));
            text.push_str(&format!(
                "{}  {} {}{cause}\n",
                turn.at,
                turn.webhook,
                turn.health.as_str()
            ));
            for sentence in &turn.evidence {
                text.push_str(&format!("    {sentence}\n"));
            }
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
        for cause in &self.not_a_hook {
            text.push_str(&format!("not a hook: {}, {}\n", cause.as_str(), cause.sentence()));
        }
        if self.culprits.is_empty() && self.not_a_hook.is_empty() {
            text.push_str("no culprit\n");
        }
        text
    }
}

impl Turn {
    fn of(at: Time, verdict: &Verdict) -> Self {
        Self {
            at,
            kind: verdict.kind,
            webhook: verdict.webhook.to_string(),
            health: verdict.health,
            cause: verdict.cause,
            effect: verdict.effect,
            confidence: verdict.confidence,
            evidence: verdict.evidence.clone(),
        }
    }
}

/// The scrapes of a folder with their instants, the earliest first.
fn scrapes_in(folder: &Path) -> anyhow::Result<Vec<(Time, PathBuf)>> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot read the folder {}", folder.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry
            .with_context(|| format!("cannot list {}", folder.display()))?
            .path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        let millis = name
            .strip_suffix(".prom")
            .and_then(|stem| stem.rsplit('_').next()?.parse().ok());
        if let Some(millis) = millis {
            files.push((Time::from_unix_millis(millis), path));
        }
    }
    if files.is_empty() {
        bail!(
            "{} holds no scrape: files are to be named like 0001_1795219862156.prom",
            folder.display()
        );
    }
    files.sort();
    Ok(files)
}

fn read(path: &Path, at: Time) -> anyhow::Result<Scrape> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut body = file.take(MAX_FILE);
    let mut exposition = Exposition::new();
    let (mut buffer, mut bytes) = (vec![0; 64 * 1024], 0);
    loop {
        let read = body
            .read(&mut buffer)
            .with_context(|| format!("cannot read {}", path.display()))?;
        if read == 0 {
            break;
        }
        bytes += read as u64;
        exposition.feed(&buffer[..read]);
    }
    let (snapshot, complaints) = exposition.finish();
    Ok(Scrape {
        target: "recording".to_owned(),
        at,
        took: Duration::ZERO,
        bytes,
        snapshot,
        complaints,
    })
}
