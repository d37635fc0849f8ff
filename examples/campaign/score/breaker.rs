//! Holds what the breaker did against what was true.

use hookwatch::domain::act::breaker::{Rung, To};
use hookwatch::domain::vocabulary::Health;

use super::{GRACE, PROBE_INTERVAL, is_felt};
use crate::breaking::{Act, Broken};
use crate::incident::{Fault, Incident, Kind};
use crate::model::manner::Manner;
use crate::model::{At, SECOND, as_seconds};
use crate::play::Played;

/// What a fault does to those who write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub enum Harm {
    /// Writes are refused.
    Blocking,
    /// Writes get through late.
    Delaying,
    /// Writes get through.
    None,
}

/// What the breaker did about one fault of a hook.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Handled {
    pub kind: Kind,
    pub harm: Harm,
    /// Somebody felt it; or would have, had the hook not been bypassed.
    pub felt: bool,
    /// How far one of its hooks was bypassed.
    pub rung: Option<Rung>,
    /// From the fault's beginning to the first bypass, in probe intervals.
    pub intervals: Option<f64>,
    /// Seconds from the fault's end until its hooks were all as their owners have them; below zero where that was
    /// before it.
    pub restored: Option<f64>,
    /// How often it failed again after it had been let back, be it to canaries alone.
    pub relapses: usize,
    /// Where it was not bypassed: what held the breaker back last, if anything did.
    pub held_back: Option<&'static str>,
}

/// The reckoning of the breaker in one incident.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Reckoning {
    pub handled: Vec<Handled>,
    pub bypasses: usize,
    /// Bypasses of hooks that nothing was wrong with at that time, or that did no more than deny.
    pub innocent: Vec<String>,
    /// For how many seconds the one of them stood that stood the longest, at most until the end.
    pub innocent_stood: Option<f64>,
    /// Bypasses that were begun when the fault was over already.
    pub late: Vec<String>,
    /// Bypasses of hooks that were not called `Failing` by then: the verdict came later than the breaker needed.
    pub unnamed: Vec<String>,
    /// Skips of hooks that fail open.
    pub dead: usize,
    /// Those of them that were begun while nothing kept the hook from answering.
    pub alive: Vec<String>,
    /// Hooks that were never brought back.
    pub left: Vec<usize>,
}

/// Reckons up.
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
        // What is said after the incident's end is not written down.
        if act.at <= incident.end && last.is_none_or(|turn| turn.health != Health::Failing) {
            let id = &incident.cluster.hooks[act.hook].id;
            reckoning
                .unnamed
                .push(format!("{id} at {:.1} s", as_seconds(act.at)));
        }
    }
    // What was dead and answers again is shielded: that is on its way back.
    let begun = |act: &&Act| was_bypassed(&broken.acts, act) != Some(To::Bypass(Rung::Skip));
    for act in bypasses().filter(begun) {
        // What has always been so is how the hook is, and no outage.
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

/// The most of what there is.
pub fn longest(seconds: impl IntoIterator<Item = Option<f64>>) -> Option<f64> {
    seconds.into_iter().flatten().max_by(f64::total_cmp)
}

/// Seconds from a bypass until the hook was as its owner has it again.
fn stood(acts: &[Act], act: &Act, end: At) -> f64 {
    let mut later = acts
        .iter()
        .filter(|other| other.hook == act.hook && other.at > act.at);
    let back = later.find(|other| other.to == To::Original);
    as_seconds(back.map_or(end, |back| back.at).saturating_sub(act.at))
}

/// The hook had been bypassed before, and was not let back since: how far.
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

/// How often a hook of it was bypassed after having been let back.
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

/// What a fault does to those who write, in truth.
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
        // Each call is waited for before it is let pass.
        Kind::Hanging => Harm::Delaying,
        Kind::Unreachable if dropped => Harm::Delaying,
        _ => Harm::None,
    }
}
