//! Plays one incident: the model, the observers, and the two judges, on simulated time.

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

/// How often it is looked whether hookwatch goes on after a pause.
const BETWEEN: At = SECOND / 5;

/// What is bypassed in the end is waited for, until it is back.
const WAY_BACK: At = 1_800 * SECOND;

/// A hook's verdict from an instant on.
#[derive(Debug, Clone, PartialEq)]
pub struct Turn {
    pub at: At,
    pub health: Health,
    pub cause: Option<Cause>,
    /// The highest that was reached before the next turn.
    pub confidence: f64,
    /// The rules that said it, one after the other.
    pub spoken: Vec<Spoken>,
    /// Only where it was asked for.
    pub evidence: Vec<String>,
}

/// Which rule made a verdict from an instant on, and how sure it was.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spoken {
    pub at: At,
    pub rule: &'static str,
    /// That the webhook is at fault.
    pub webhook: f64,
    /// That the cause is right as well.
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

/// How likely a verdict says it is that the webhook is at fault, and that its cause is right as well.
fn confidences(verdict: &Verdict) -> (f64, f64) {
    (verdict.webhook_confidence, verdict.confidence)
}

/// What was said to be no hook's from an instant on.
#[derive(Debug, Clone, PartialEq)]
pub struct PlaneTurn {
    pub at: At,
    pub writes: Writes,
    pub not_a_hook: Option<NotAHook>,
    pub evidence: Vec<String>,
}

/// Everything that the core said.
#[derive(Debug, Default)]
pub struct Trace {
    /// By hook of the model.
    pub hooks: Vec<Vec<Turn>>,
    pub plane: Vec<PlaneTurn>,
    /// Hooks that the inventory does not have, by name.
    pub strangers: Vec<(At, String)>,
}

/// What came of an incident.
#[derive(Debug)]
pub struct Played {
    pub trace: Trace,
    pub ledger: Ledger,
    pub naive: Naive,
    /// The replica that canaries were sent to first.
    pub canaries_at: usize,
    /// What the breaker did, where there was one.
    pub broken: Option<Broken>,
}

/// How it is played.
#[derive(Debug, Clone, Copy, Default)]
pub struct Manner {
    /// What hookwatch looks at.
    pub watching: Watching,
    /// How far the breaker may go, where there is one.
    pub breaker: Option<Farthest>,
    /// Everything is written down.
    pub in_full: bool,
}

/// Writes down what changes.
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

/// What comes in while hookwatch stands still, it reads when it goes on.
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

/// Plays an incident from its beginning to its end.
pub fn play(incident: &Incident, manner: Manner) -> Played {
    play_with(incident, manner, &mut |_, _| {})
}

/// The same, with every assessment handed to `each`, those after the incident's end included.
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
            // While hookwatch stands still nothing sets the next one.
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
                        // What is said later is about the way back alone.
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
