//! Scores the breaker: compares its changes with the ground truth.

use hookwatch::domain::act::breaker::{Rung, To};
use hookwatch::domain::vocabulary::Health;

use super::{GRACE, PROBE_INTERVAL, is_felt};
use crate::breaking::{Act, Broken};
use crate::incident::{Fault, Incident, Kind};
use crate::model::manner::Manner;
use crate::model::{At, SECOND, as_seconds};
use crate::play::Played;

/// The effect of a fault on writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub enum Harm {
    /// Writes are refused.
    Blocking,
    /// Writes are delayed.
    Delaying,
    /// Writes are neither refused nor delayed.
    None,
}

/// What the breaker did about one fault of webhooks.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Handled {
    pub kind: Kind,
    pub harm: Harm,
    /// It affected enough calls, or was bypassed before it could.
    pub felt: bool,
    /// The highest rung of its webhooks' bypasses; `None` without a bypass.
    pub rung: Option<Rung>,
    /// From the fault's beginning to the first bypass, in probe intervals.
    pub intervals: Option<f64>,
    /// Seconds from the fault's end until all of its webhooks were restored; negative when that was earlier. `None` without a
    /// bypass, or when one was never restored.
    pub restored: Option<f64>,
    /// How often a webhook was bypassed again after it had been restored or put on probation.
    pub relapses: usize,
    /// Without a bypass: the last reason that the breaker gave for holding back, if any.
    pub held_back: Option<&'static str>,
}

/// The breaker's score in one incident.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Reckoning {
    pub handled: Vec<Handled>,
    pub bypasses: usize,
    /// Bypasses of innocent webhooks: without a fault at that time, or with nothing but denials.
    pub innocent: Vec<String>,
    /// Seconds that the longest of the innocent bypasses lasted, at most until the incident's end.
    pub innocent_stood: Option<f64>,
    /// Bypasses that began after the fault was over.
    pub late: Vec<String>,
    /// Bypasses of webhooks that were not called `Failing` at that time: the breaker was earlier than the verdict.
    pub unnamed: Vec<String>,
    /// Skips of webhooks that fail open.
    pub dead: usize,
    /// Those of them that began while no fault kept the webhook from answering.
    pub alive: Vec<String>,
    /// Webhooks that were never restored.
    pub left: Vec<usize>,
}

/// Scores the breaker; `None` when it was off.
pub(super) fn reckon(incident: &Incident, played: &Played) -> Option<Reckoning> {
    let broken = played.broken.as_ref()?;
    let bypasses = || broken.acts.iter().filter(|act| matches!(act.to, To::Bypass(_)));
    let mut reckoning = Reckoning {
        bypasses: bypasses().count(),
        left: broken.left.clone(),
        ..Reckoning::default()
    };
    for act in bypasses().filter(|act| act.to == To::Bypass(Rung::Skip)) {
        let hook = &incident.cluster.hooks[act.hook];
        if hook.fails {
            continue;
        }
        reckoning.dead += 1;
        let keeps_it = |fault: &&Fault| fault.hooks.contains(&act.hook) && fault.kind.fails_calls();
        let mut keep_it = incident.faults.iter().filter(keeps_it);
        if !keep_it.any(|fault| (fault.from..=fault.until + SECOND).contains(&act.at)) {
            let at = as_seconds(act.at);
            reckoning.alive.push(format!("{} at {at:.1} s", hook.id));
        }
    }
    for act in bypasses().filter(|act| was_bypassed(&broken.acts, act).is_none()) {
        let turns = played.trace.hooks[act.hook].iter();
        let last = turns.take_while(|turn| turn.at <= act.at).last();
        // Verdicts after the incident's end are not recorded.
        if act.at <= incident.end && last.is_none_or(|turn| turn.health != Health::Failing) {
            let id = &incident.cluster.hooks[act.hook].id;
            reckoning
                .unnamed
                .push(format!("{id} at {:.1} s", as_seconds(act.at)));
        }
    }
    // A change from skip to another bypass is a step of the restoration and not a new bypass.
    let begun = |act: &&Act| was_bypassed(&broken.acts, act) != Some(To::Bypass(Rung::Skip));
    for act in bypasses().filter(begun) {
        // A fault from instant 0 is the webhook's normal behaviour and justifies no bypass.
        let guilty =
            |fault: &&Fault| fault.hooks.contains(&act.hook) && fault.kind != Kind::Denying && fault.from > 0;
        let guilty = || incident.faults.iter().filter(guilty);
        if guilty().any(|fault| (fault.from..=fault.until).contains(&act.at)) {
            continue;
        }
        let story = format!(
            "{} to {:?} for {} at {:.1} s",
            incident.cluster.hooks[act.hook].id,
            act.to,
            act.cause.map_or("nothing", |cause| cause.as_str()),
            as_seconds(act.at)
        );
        let over = guilty()
            .map(|fault| fault.until)
            .filter(|until| *until < act.at)
            .max();
        if over.is_some_and(|until| act.at <= until + GRACE || was_bypassed(&broken.acts, act).is_some()) {
            reckoning.late.push(story)
        } else {
            reckoning.innocent.push(story);
            let stood = Some(stood(&broken.acts, act, incident.end));
            reckoning.innocent_stood = longest([reckoning.innocent_stood, stood]);
        }
    }
    let of_hooks = incident.faults.iter().filter(|fault| !fault.hooks.is_empty());
    reckoning.handled = of_hooks
        .map(|fault| handled(fault, incident, played, broken))
        .collect();
    Some(reckoning)
}

/// The largest of the values that exist.
pub fn longest(seconds: impl IntoIterator<Item = Option<f64>>) -> Option<f64> {
    seconds.into_iter().flatten().max_by(f64::total_cmp)
}

/// Seconds from a bypass until the webhook was restored, or until `end`.
fn stood(acts: &[Act], act: &Act, end: At) -> f64 {
    let mut later = acts
        .iter()
        .filter(|other| other.hook == act.hook && other.at > act.at);
    let back = later.find(|other| other.to == To::Original);
    as_seconds(back.map_or(end, |back| back.at).saturating_sub(act.at))
}

/// The webhook's previous bypass or probation, if it was not restored before this act.
fn was_bypassed(acts: &[Act], act: &Act) -> Option<To> {
    let mut before = acts
        .iter()
        .filter(|other| other.hook == act.hook && other.at < act.at);
    let last = before.next_back()?.to;
    (last != To::Original).then_some(last)
}

fn handled(fault: &Fault, incident: &Incident, played: &Played, broken: &Broken) -> Handled {
    let acts = || {
        let of_it = |act: &&Act| fault.hooks.contains(&act.hook) && act.at >= fault.from;
        broken.acts.iter().filter(of_it)
    };
    let bypasses: Vec<&Act> = acts()
        .filter(|act| matches!(act.to, To::Bypass(_)) && act.at <= fault.until + GRACE)
        .collect();
    let first = bypasses.first();
    let began = fault.from.max(incident.begin);
    let left = fault.hooks.iter().any(|hook| broken.left.contains(hook));
    let restored = acts()
        .filter(|act| act.to == To::Original)
        .map(|act| act.at)
        .max();
    let back = first.and(restored).filter(|_| !left);
    let held_back = || {
        let mut hooks = fault.hooks.iter();
        hooks.find_map(|hook| broken.held_back(*hook, (fault.from, fault.until + GRACE)))
    };
    Handled {
        kind: fault.kind,
        harm: harm(fault, incident),
        felt: first.is_some() || is_felt(fault, incident, played),
        rung: bypasses
            .iter()
            .filter_map(|act| match act.to {
                To::Bypass(rung) => Some(rung),
                _ => None,
            })
            .max(),
        intervals: first.map(|act| as_seconds(act.at.saturating_sub(began)) / PROBE_INTERVAL),
        restored: back.map(|at| as_seconds(at) - as_seconds(fault.until)),
        relapses: relapses(broken, fault),
        held_back: match first {
            Some(_) => None,
            None => held_back().map(|reason| reason.as_str()),
        },
    }
}

/// How often a webhook of the fault was bypassed again after it had been restored or put on probation.
fn relapses(broken: &Broken, fault: &Fault) -> usize {
    let relapses = |hook: &usize| {
        let acts: Vec<&Act> = broken.acts.iter().filter(|act| act.hook == *hook).collect();
        let again = |pair: &&[&Act]| {
            matches!(pair[1].to, To::Bypass(_)) && matches!(pair[0].to, To::Original | To::Probation)
        };
        acts.windows(2).filter(again).count()
    };
    fault.hooks.iter().map(relapses).sum()
}

/// The real effect of a fault on writes.
fn harm(fault: &Fault, incident: &Incident) -> Harm {
    let cluster = &incident.cluster;
    let fails = fault.hooks.iter().any(|hook| cluster.hooks[*hook].fails);
    let dropped = fault.hooks.iter().any(|hook| {
        let backends = &cluster.services[cluster.hooks[*hook].service].backends;
        let mut manners = backends.iter().map(|backend| backend.to_api.at(fault.from));
        manners.any(|manner| *manner == Manner::Vanished)
    });
    match fault.kind {
        Kind::Partial | Kind::Denying => Harm::None,
        Kind::Slow => Harm::Delaying,
        _ if fails => Harm::Blocking,
        // Each write waits for the timeout before failurePolicy Ignore admits it.
        Kind::Hanging => Harm::Delaying,
        Kind::Unreachable if dropped => Harm::Delaying,
        _ => Harm::None,
    }
}
