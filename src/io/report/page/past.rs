//! Keeps the last hour for the page, in bounded memory.
//!
//! The core judges the present and forgets what it does not need for that. But a person who opens the page ten minutes into
//! an incident wants to see how it began. At the bounds below this takes about 15 MB, with a few hundred hooks less than 1 MB.

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

/// How far back the page shows events and samples: one hour.
pub const SPAN: Duration = Duration::from_secs(3_600);
/// Shortest time between two samples.
const EVERY: Duration = Duration::from_secs(2);
/// Most marks kept; the oldest are dropped.
const MAX_MARKS: usize = 200;
/// Most marks about hooks at one instant. One more mark says how many others there were.
const MAX_AT_ONCE: usize = 20;
/// Most backends with a track, over all hooks. Further backends are shown without one.
const MAX_BACKENDS: usize = 30_000;
/// Most overdue canaries of one kind at once. At one every half second, each ended by the API server after 34 s, there are
/// about 68.
const MAX_OUT: usize = 100;
/// After this time the duration of a finished canary is not shown any more.
const CANARY_COUNTS: Duration = Duration::from_secs(30);

/// The state of writes at one instant. Durations are in seconds; `None` where nothing was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PastSample {
    /// When the sample was taken.
    pub at: Time,
    /// Whether the control plane took writes.
    pub writes: Writes,
    /// Recent mean time per write (CREATE or UPDATE).
    pub write: Option<f32>,
    /// Recent mean time per CREATE.
    pub create: Option<f32>,
    /// Recent mean time per UPDATE.
    pub update: Option<f32>,
    /// The part of `write` that is due to culprits; 0 if unknown.
    pub culprits: f32,
    /// The slowest canary: the time that it took, or has been waiting so far.
    pub canary: Option<f32>,
}

/// The kind of an event in the page's history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkKind {
    /// A hook became a culprit, or its cause changed.
    Failing,
    /// A hook became suspect, or its suspected cause changed.
    Suspect,
    /// A failing or suspect hook is healthy again.
    Well,
    /// The state of the control plane's writes changed.
    Writes(Writes),
    /// The breaker changed something about a hook; `None`: its mode, the reason for
    /// that, or a freeze changed.
    Breaker(Option<PastAction>),
    /// This number of further webhooks changed at the same instant.
    More(u32),
}

/// An event in the page's history.
#[derive(Debug, Clone, PartialEq)]
pub struct Mark {
    /// When hookwatch noticed it.
    pub at: Time,
    /// Its kind.
    pub kind: MarkKind,
    /// The hook; `None` if the event is not about a single hook.
    pub hook: Option<MarkSubject>,
    /// When the trouble or state began, if that is known to be earlier than `at`.
    pub began: Option<Time>,
    /// The sentence about it, as of then.
    pub text: String,
}

/// The hook that an event is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkSubject {
    /// The hook's number from [`anchor`].
    pub anchor: u64,
    /// The webhook's name.
    pub webhook: Arc<str>,
}

/// A number that identifies a verdict's hook on the page; it stays the same across pages and restarts.
pub fn anchor(verdict: &Verdict) -> u64 {
    let configuration = verdict.configuration.as_deref().unwrap_or_default();
    anchor_of(verdict.kind, configuration, &verdict.webhook)
}

/// As [`anchor`], from the hook's kind and names.
pub fn anchor_of(kind: HookKind, configuration: &str, webhook: &str) -> u64 {
    stable_hash(&[kind.as_str(), configuration, webhook])
}

/// The canaries of one kind.
#[derive(Debug, Default)]
struct CanaryTrack {
    /// When the last one came back, and the seconds that it took.
    back: Option<(Time, f32)>,
    /// When the last-sent canary that has come back was sent. Canaries sent earlier do not count any more.
    back_since: Option<Time>,
    /// When the overdue ones were sent. Each is reported as overdue once, while the next is sent already.
    out: BTreeSet<Time>,
}

impl CanaryTrack {
    /// The seconds that the last one took or that the oldest overdue one has been waiting, whichever is longer.
    fn seconds(&self, now: Time) -> Option<f32> {
        let back = self.back.filter(|(at, _)| now.since(*at) < CANARY_COUNTS);
        let back = back.map(|(_, seconds)| seconds);
        let out = self.out.first().map(|since| now.since(*since).as_secs_f32());
        back.into_iter().chain(out).reduce(f32::max)
    }
}

/// The samples, events and probe tracks of the last hour.
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

/// The part of a [`Past`] that one page shows.
#[derive(Debug, Clone, Default)]
pub struct ShownPast {
    /// The samples, the oldest first.
    pub samples: Vec<PastSample>,
    /// The events, the newest first.
    pub marks: Vec<Mark>,
    /// The tracks of the requested hooks by [`anchor`] and backend, [`SLOTS`] cells each, the oldest first.
    pub tracks: BTreeMap<u64, BTreeMap<Backend, Vec<Cell>>>,
}

impl Past {
    /// Records an observation: probes, canaries, and which hooks are gone. Other events are ignored.
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
                    // Every rollout replaces addresses. A track without a probe within the span is empty: drop it.
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

    /// Records a published assessment: the breaker's actions, and a sample if the last one is at least 2 s old.
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

    /// Records a change that is logged as an event of the page's history.
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
        // Flowing writes are an event only after they were blocked or delayed.
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

    /// The part that a page shows. Contains only the tracks of these hooks.
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
