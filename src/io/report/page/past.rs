//! What the page shows of the last hour, in bounded memory.
//!
//! The core judges the present and forgets what it does not need for that; a person who opens the page ten minutes into
//! an incident wants to see how it began. At the bounds below this takes at most some 15 MB, with a few hundred hooks
//! less than one.

mod actions;
mod track;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::domain::cluster::hook::{Backend, HookId, HookKind};
use crate::domain::diagnose::verdict::{ControlPlane, Verdict};
use crate::domain::observe::canary::CanaryTarget;
use crate::domain::observe::probe::{ProbeOutcome, ProbeReport};
use crate::domain::report::assessment::Assessment;
use crate::domain::text::stable_hash;
use crate::domain::time::Time;
use crate::domain::vocabulary::{Health, Writes};
use crate::domain::watchdog::{Event, LoggedChange};

use actions::Actions;
pub use actions::PastAction;
use track::Track;
pub use track::{Cell, SLOT, SLOTS};

/// How far back the page looks.
pub const SPAN: Duration = Duration::from_secs(3_600);
/// Between two samples.
const EVERY: Duration = Duration::from_secs(2);
/// Marks kept.
const MAX_MARKS: usize = 200;
/// Marks about hooks at one instant; how many more there were is counted.
const MAX_AT_ONCE: usize = 20;
/// Backends with a track. Beyond it a backend is shown without one.
const MAX_BACKENDS: usize = 30_000;
/// Late canaries of one kind known at once: one every half second until the API server cuts them at 34 s.
const MAX_OUT: usize = 100;
/// What the last canary of a kind took says nothing after this.
const CANARY_COUNTS: Duration = Duration::from_secs(30);

/// How writes went at one instant. All durations in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PastSample {
    /// The instant.
    pub at: Time,
    /// Whether the control plane took writes.
    pub writes: Writes,
    /// Recent mean time per CREATE or UPDATE.
    pub write: Option<f32>,
    /// The same of CREATE alone.
    pub create: Option<f32>,
    /// And of UPDATE.
    pub update: Option<f32>,
    /// Which part of that was the culprits'.
    pub culprits: f32,
    /// The slowest canary: what it took, or for how long it has been waiting.
    pub canary: Option<f32>,
}

/// What kind of thing happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkKind {
    /// A hook was named as a culprit, or for another cause than before.
    Failing,
    /// Something about a hook deserves a look.
    Suspect,
    /// A hook recovered.
    Well,
    /// Writes go differently than before.
    Writes(Writes),
    /// The breaker did something; `None`: what may be done about a culprit changed.
    Breaker(Option<PastAction>),
    /// So many more webhooks changed at that instant.
    More(u32),
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub struct Mark {
    /// When it was noticed.
    pub at: Time,
    /// What kind of thing.
    pub kind: MarkKind,
    /// The hook, where it is about one.
    pub hook: Option<MarkSubject>,
    /// Since when it was so, where that is known to be earlier.
    pub began: Option<Time>,
    /// The sentence that was said then.
    pub text: String,
}

/// Who something is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkSubject {
    /// This hook's identity, as [`anchor`] makes it.
    pub anchor: u64,
    /// The webhook's name.
    pub webhook: Arc<str>,
}

/// A number for the hook that a verdict is about, the same on every page.
pub fn anchor(verdict: &Verdict) -> u64 {
    let configuration = verdict.configuration.as_deref().unwrap_or_default();
    anchor_of(verdict.kind, configuration, &verdict.webhook)
}

/// The same of a hook by its names.
pub fn anchor_of(kind: HookKind, configuration: &str, webhook: &str) -> u64 {
    stable_hash(&[kind.as_str(), configuration, webhook])
}

/// The canaries of one kind.
#[derive(Debug, Default)]
struct CanaryTrack {
    /// When the last one came back, and after how many seconds.
    back: Option<(Time, f32)>,
    /// When that one was sent. Those that were sent before it do not count any more.
    back_since: Option<Time>,
    /// When the late ones were sent; each is reported as late once, while the next one is sent.
    out: BTreeSet<Time>,
}

impl CanaryTrack {
    /// The longer of how long the last one took and how long the first has been out, in seconds.
    fn seconds(&self, now: Time) -> Option<f32> {
        let back = self.back.filter(|(at, _)| now.since(*at) < CANARY_COUNTS);
        let back = back.map(|(_, seconds)| seconds);
        let out = self.out.first().map(|since| now.since(*since).as_secs_f32());
        back.into_iter().chain(out).reduce(f32::max)
    }
}

/// The last hour. See the module's head.
#[derive(Debug, Default)]
pub struct Past {
    samples: VecDeque<PastSample>,
    marks: VecDeque<Mark>,
    at_once: usize,
    impaired: bool,
    actions: Actions,
    canaries: BTreeMap<CanaryTarget, CanaryTrack>,
    tracks: BTreeMap<HookId, BTreeMap<Backend, Track>>,
    backends: usize,
}

/// The part of the past that one page shows.
#[derive(Debug, Clone, Default)]
pub struct ShownPast {
    /// The oldest first.
    pub samples: Vec<PastSample>,
    /// The newest first.
    pub marks: Vec<Mark>,
    /// The tracks of the hooks asked for, [`SLOTS`] cells each, the oldest first.
    pub tracks: BTreeMap<u64, BTreeMap<Backend, Vec<Cell>>>,
}

impl Past {
    /// Takes in an observation.
    pub fn observed(&mut self, event: &Event, now: Time) {
        match event {
            Event::Probed(report) => self.probed(report, now),
            Event::ProbeOverdue(late) => self.put(&late.hook, &late.backend, now, late.waiting, false),
            Event::CanaryWritten(report) => {
                let canary = self.canaries.entry(report.target).or_default();
                canary.back = Some((now, report.took.as_secs_f32()));
                canary.back_since = canary.back_since.max(Some(report.started));
                canary.out.retain(|sent| Some(*sent) > canary.back_since);
            }
            Event::CanaryOverdue(late) => {
                let canary = self.canaries.entry(late.target).or_default();
                if Some(late.started) > canary.back_since && canary.out.len() < MAX_OUT {
                    canary.out.insert(late.started);
                }
            }
            Event::Inventory(inventory) => {
                let there: BTreeSet<&HookId> = inventory.hooks.iter().map(|hook| &hook.id).collect();
                self.tracks.retain(|hook, _| there.contains(hook));
                for backends in self.tracks.values_mut() {
                    // Addresses come and go with every rollout; one that was not probed for the whole span is empty.
                    backends.retain(|_, track| track.is_within(now));
                }
                self.backends = self.tracks.values().map(BTreeMap::len).sum();
            }
            _ => {}
        }
    }

    fn probed(&mut self, report: &ProbeReport, now: Time) {
        if !matches!(report.outcome, ProbeOutcome::NotProbed { .. }) {
            let failed = !report.outcome.is_alive();
            self.put(&report.hook, &report.backend, now, report.took, failed);
        }
    }

    fn put(&mut self, hook: &HookId, backend: &Backend, at: Time, took: Duration, failed: bool) {
        if let Some(track) = self
            .tracks
            .get_mut(hook)
            .and_then(|backends| backends.get_mut(backend))
        {
            return track.put(at, took, failed);
        }
        if self.backends < MAX_BACKENDS {
            self.backends += 1;
            let tracks = self.tracks.entry(hook.clone()).or_default();
            tracks.entry(backend.clone()).or_default().put(at, took, failed);
        }
    }

    /// Records a published assessment; samples are taken at intervals.
    pub fn assessed(&mut self, assessment: &Assessment) {
        let now = assessment.at;
        let is_gone = |hook: &HookId| {
            let mut all = assessment.hooks.iter();
            assessment.sources.hooks_listed && !all.any(|verdict| verdict.hook().as_ref() == Some(hook))
        };
        for mark in self.actions.news(&assessment.breaker, is_gone, now) {
            self.mark(mark);
        }
        if let Some(last) = self.samples.back()
            && now.since(last.at) < EVERY
        {
            return;
        }
        let plane = &assessment.control_plane;
        let excess = match (plane.write_seconds, plane.usual_write_seconds) {
            (Some(write), Some(usual)) => (write - usual).max(0.0),
            _ => 0.0,
        };
        let share: f64 = assessment
            .culprits()
            .filter_map(|verdict| verdict.excess_share)
            .sum();
        let slowest = self
            .canaries
            .values()
            .filter_map(|canary| canary.seconds(now))
            .reduce(f32::max);
        self.samples.push_back(PastSample {
            at: now,
            writes: plane.writes,
            write: plane.write_seconds.map(|seconds| seconds as f32),
            create: plane.create_seconds.map(|seconds| seconds as f32),
            update: plane.update_seconds.map(|seconds| seconds as f32),
            culprits: (share.clamp(0.0, 1.0) * excess) as f32,
            canary: slowest,
        });
        let is_over = |at: Time| now.since(at) > SPAN;
        while self.samples.pop_front_if(|oldest| is_over(oldest.at)).is_some() {}
        while self.marks.pop_front_if(|oldest| is_over(oldest.at)).is_some() {}
    }

    /// Takes in a change that a person would want to read about.
    pub fn told(&mut self, change: &LoggedChange, now: Time) {
        match change {
            LoggedChange::Hook { from, verdict } => {
                self.hook_changed(from.map(|(health, _)| health), verdict, now);
            }
            LoggedChange::ControlPlane(plane) => self.plane_changed(plane, now),
            LoggedChange::Breaker(breaker) => self.mark(Mark {
                at: now,
                kind: MarkKind::Breaker(None),
                hook: None,
                began: None,
                text: breaker.frozen.as_ref().unwrap_or(&breaker.why).clone(),
            }),
            _ => {}
        }
    }

    fn hook_changed(&mut self, before: Option<Health>, verdict: &Verdict, now: Time) {
        let kind = match verdict.health {
            Health::Failing => MarkKind::Failing,
            Health::Suspect => MarkKind::Suspect,
            Health::Healthy if matches!(before, Some(Health::Failing | Health::Suspect)) => MarkKind::Well,
            Health::Healthy | Health::Unknown => return,
        };
        let mut mark = Mark {
            at: now,
            kind,
            hook: Some(MarkSubject {
                anchor: anchor(verdict),
                webhook: Arc::clone(&verdict.webhook),
            }),
            began: verdict
                .since
                .filter(|began| kind == MarkKind::Failing && *began < now),
            text: verdict.summary.clone(),
        };
        self.at_once = match self.marks.back() {
            Some(last) if last.at == now => self.at_once + 1,
            _ => 0,
        };
        if self.at_once >= MAX_AT_ONCE {
            let more = (self.at_once - MAX_AT_ONCE + 1) as u32;
            if more > 1 {
                self.marks.pop_back();
            }
            mark = Mark {
                kind: MarkKind::More(more),
                hook: None,
                began: None,
                text: format!("{more} more webhooks changed"),
                ..mark
            };
        }
        self.mark(mark);
    }

    fn plane_changed(&mut self, plane: &ControlPlane, now: Time) {
        let impaired = matches!(plane.writes, Writes::Blocked | Writes::Delayed);
        // That writes flow is news only after they did not.
        if impaired || (self.impaired && plane.writes == Writes::Flowing) {
            self.mark(Mark {
                at: now,
                kind: MarkKind::Writes(plane.writes),
                hook: None,
                began: None,
                text: plane.summary.clone(),
            });
        }
        self.impaired = impaired || (self.impaired && plane.writes == Writes::Unknown);
    }

    fn mark(&mut self, mark: Mark) {
        if self.marks.len() >= MAX_MARKS {
            self.marks.pop_front();
        }
        self.marks.push_back(mark);
    }

    /// What a page shows that draws the tracks of these hooks.
    pub fn show<'a>(&self, hooks: impl Iterator<Item = &'a Verdict>, now: Time) -> ShownPast {
        let tracks = hooks.filter_map(|verdict| {
            let tracks = self.tracks.get(&verdict.hook()?)?.iter();
            let cells = tracks.map(|(backend, track)| (backend.clone(), track.cells(now)));
            Some((anchor(verdict), cells.collect()))
        });
        ShownPast {
            samples: self.samples.iter().copied().collect(),
            marks: self.marks.iter().rev().cloned().collect(),
            tracks: tracks.collect(),
        }
    }
}
