//! Plays one incident on simulated time: the model, the observers, hookwatch's core and the naive judge.

use std::collections::HashMap;
use std::sync::Arc;

use hookwatch::domain::act::breaker::Judged;
use hookwatch::domain::cluster::hook::Subject;
use hookwatch::domain::diagnose::verdict::Verdict;
use hookwatch::domain::report::assessment::Assessment;
use hookwatch::domain::thresholds;
use hookwatch::domain::vocabulary::{Cause, Health, NotAHook, Writes};
use hookwatch::domain::watchdog::{Event, Watchdog, WatchdogEffect};

use crate::breaking::{Breaking, Broken, Farthest};
use crate::incident::Incident;
use crate::model::cluster::HookSpec;
use crate::model::inventory::{instant, time};
use crate::model::world::{Ledger, World};
use crate::model::{At, SECOND};
use crate::naive::Naive;
use crate::observers::{Observers, Seen, Watching};

/// Interval of ticks while hookwatch's process is paused, to find the end of the pause.
const BETWEEN: At = SECOND / 5;

/// How long an incident may continue after its end until every bypassed webhook is restored.
const WAY_BACK: At = 1_800 * SECOND;

/// A webhook's verdict from an instant on, until its health or cause changes.
#[derive(Debug, Clone, PartialEq)]
pub struct Turn {
    pub at: At,
    pub health: Health,
    pub cause: Option<Cause>,
    /// The highest confidence before the next turn.
    pub confidence: f64,
    /// The rules that made this verdict, in order of time.
    pub spoken: Vec<Spoken>,
    /// The sentences of evidence; empty unless [`Manner::in_full`].
    pub evidence: Vec<String>,
}

/// The rule that made a verdict from an instant on, and its highest confidences.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spoken {
    pub at: At,
    pub rule: &'static str,
    /// Confidence that the webhook is at fault.
    pub webhook: f64,
    /// Confidence that the webhook is at fault and the cause is right.
    pub cause: f64,
}

impl Spoken {
    fn new(at: At, verdict: &Verdict) -> Self {
        let (webhook, cause) = confidences(verdict);
        Self {
            at,
            rule: verdict.rule,
            webhook,
            cause,
        }
    }
}

/// The two confidences of a verdict: that the webhook is at fault, and that its cause is right as well.
fn confidences(verdict: &Verdict) -> (f64, f64) {
    (verdict.webhook_confidence, verdict.confidence)
}

/// The verdict on the control plane from an instant on.
#[derive(Debug, Clone, PartialEq)]
pub struct PlaneTurn {
    pub at: At,
    pub writes: Writes,
    pub not_a_hook: Option<NotAHook>,
    pub evidence: Vec<String>,
}

/// All verdicts of the core in one incident.
#[derive(Debug, Default)]
pub struct Trace {
    /// One list for each webhook of the model.
    pub hooks: Vec<Vec<Turn>>,
    pub plane: Vec<PlaneTurn>,
    /// `Failing` verdicts on webhooks that the model does not have: instant and name.
    pub strangers: Vec<(At, String)>,
}

/// The result of playing an incident.
#[derive(Debug)]
pub struct Played {
    pub trace: Trace,
    pub ledger: Ledger,
    pub naive: Naive,
    /// The replica that canaries were sent to first.
    pub canaries_at: usize,
    /// What the breaker did; `None` when it was off.
    pub broken: Option<Broken>,
}

/// How to play an incident.
#[derive(Debug, Clone, Copy, Default)]
pub struct Manner {
    /// What hookwatch observes.
    pub watching: Watching,
    /// The highest rung that the breaker may use; `None` turns it off.
    pub breaker: Option<Farthest>,
    /// Whether to record the evidence of each verdict.
    pub in_full: bool,
}

/// Records the changes of verdicts.
struct Scribe {
    index: HashMap<Subject, usize>,
    trace: Trace,
    in_full: bool,
}

impl Scribe {
    fn new(hooks: &[HookSpec], in_full: bool) -> Self {
        let ids = hooks.iter().map(|hook| hook.id.clone());
        let subjects = ids.map(|id| (id.kind, Some(id.configuration), id.webhook));
        Self {
            index: subjects.zip(0..).collect(),
            trace: Trace {
                hooks: vec![Vec::new(); hooks.len()],
                ..Trace::default()
            },
            in_full,
        }
    }

    fn note(&mut self, at: At, assessment: &Assessment) {
        for verdict in &assessment.hooks {
            match self.index.get(&verdict.subject()) {
                Some(index) => note_verdict(&mut self.trace.hooks[*index], at, verdict, self.in_full),
                None if verdict.health == Health::Failing => {
                    self.trace.strangers.push((at, verdict.webhook.to_string()));
                }
                None => {}
            }
        }
        let plane = &assessment.control_plane;
        let not_a_hook = plane.not_a_hook.as_ref().map(|found| found.cause);
        let last = self.trace.plane.last();
        if last.is_none_or(|last| (last.writes, last.not_a_hook) != (plane.writes, not_a_hook)) {
            let evidence = plane
                .not_a_hook
                .iter()
                .flat_map(|found| found.evidence.iter().cloned());
            let mut evidence: Vec<String> = evidence.filter(|_| self.in_full).collect();
            if self.in_full {
                let canaries = plane.canaries.iter();
                evidence
                    .extend(canaries.map(|canary| format!("canary {:?}: {}", canary.canary, canary.detail)));
            }
            self.trace.plane.push(PlaneTurn {
                at,
                writes: plane.writes,
                not_a_hook,
                evidence,
            });
        }
    }
}

fn note_verdict(turns: &mut Vec<Turn>, at: At, verdict: &Verdict, in_full: bool) {
    if let Some(last) = turns.last_mut()
        && (last.health, last.cause) == (verdict.health, verdict.cause)
    {
        last.confidence = last.confidence.max(verdict.confidence);
        let spoken = Spoken::new(at, verdict);
        match last.spoken.last_mut().filter(|last| last.rule == spoken.rule) {
            Some(last) => {
                last.webhook = last.webhook.max(spoken.webhook);
                last.cause = last.cause.max(spoken.cause);
            }
            None => last.spoken.push(spoken),
        }
        return;
    }
    turns.push(Turn {
        at,
        health: verdict.health,
        cause: verdict.cause,
        confidence: verdict.confidence,
        spoken: vec![Spoken::new(at, verdict)],
        evidence: if in_full {
            verdict.evidence.clone()
        } else {
            Vec::new()
        },
    });
}

/// Holds back what arrives while hookwatch's process is paused, and delivers it when the pause ends.
struct Pauses<'a> {
    left: &'a [(At, At)],
    held: Vec<Seen>,
}

impl<'a> Pauses<'a> {
    const fn new(left: &'a [(At, At)]) -> Self {
        let held = Vec::new();
        Self { left, held }
    }

    fn pass(&mut self, now: At, events: Vec<Seen>) -> Vec<Seen> {
        let Some(((from, until), rest)) = self.left.split_first() else {
            return events;
        };
        if now < *from {
            return events;
        }
        if now < *until {
            let ticks = |seen: &Seen| matches!(seen, Seen::Event(Event::Tick));
            self.held.extend(events.into_iter().filter(|seen| !ticks(seen)));
            return Vec::new();
        }
        self.left = rest;
        let mut all = std::mem::take(&mut self.held);
        if std::time::Duration::from_micros(until - from) >= thresholds::stood_still() {
            all.push(Seen::Event(Event::Resumed));
        }
        all.extend(events);
        all
    }
}

pub fn play(incident: &Incident, manner: Manner) -> Played {
    play_with(incident, manner, &mut |_, _| {})
}

/// Like [`play`], and calls `each` with every assessment, including those after the incident's end.
pub fn play_with(incident: &Incident, manner: Manner, each: &mut dyn FnMut(At, &Assessment)) -> Played {
    let cluster = Arc::clone(&incident.cluster);
    let mut world = World::new(Arc::clone(&cluster), incident.world.clone());
    let mut observers = Observers::new(
        Arc::clone(&cluster),
        incident.observers.clone(),
        manner.watching,
        incident.begin,
    );
    let mut breaking = manner.breaker.map(|farthest| {
        let random = incident.observers.clone().fork();
        Breaking::new(Arc::clone(&cluster), farthest, random, incident.begin)
    });
    let canaries_at = observers.canaries_at();
    let mut watchdog = Watchdog::new("hookwatch");
    let mut naive = Naive::new(&cluster);
    let mut scribe = Scribe::new(&cluster.hooks, manner.in_full);
    let mut tick = incident.begin;
    let mut pauses = Pauses::new(&incident.pauses);
    loop {
        let (model, seen) = (world.next(), observers.next());
        let breaks = breaking.as_ref().map_or(At::MAX, Breaking::next);
        let now = model.min(seen).min(breaks).min(tick);
        let at_rest = || breaking.as_ref().is_none_or(Breaking::is_at_rest);
        if now > incident.end && (now > incident.end + WAY_BACK || at_rest()) {
            break;
        }
        if model == now {
            world.step();
            if !world.returned.is_empty() {
                observers.returned(&mut world);
            }
            continue;
        }
        if breaks == now {
            let changed = breaking
                .as_mut()
                .is_some_and(|breaking| breaking.step(&mut world));
            if changed {
                observers.reconfigured(now);
            }
            continue;
        }
        let events = if seen == now {
            observers.step(&mut world)
        } else {
            // Without this, the tick would not advance while hookwatch is paused: only the watchdog sets the next one.
            tick += BETWEEN;
            vec![Seen::Event(Event::Tick)]
        };
        for seen in pauses.pass(now, events) {
            let event = match seen {
                Seen::Event(event) => event,
                Seen::Reading(reading) => {
                    naive.take(&reading);
                    continue;
                }
            };
            let effects = watchdog.handle(event, time(now));
            tick = instant(watchdog.due()).max(now);
            for effect in effects {
                match effect {
                    WatchdogEffect::Publish(assessment, judged) => {
                        each(now, &assessment);
                        // Later assessments only concern the restoration of bypassed webhooks.
                        if now <= incident.end {
                            scribe.note(now, &assessment);
                        }
                        if let Some(breaking) = &mut breaking {
                            breaking.judged(Judged::clone(&judged), now);
                        }
                    }
                    WatchdogEffect::Attend(attention) => observers.attend(attention),
                    _ => {}
                }
            }
        }
    }
    Played {
        trace: scribe.trace,
        ledger: world.ledger,
        naive,
        canaries_at,
        broken: breaking.map(|breaking| breaking.over()),
    }
}
