//! The diagnosis: from the evidence on a hook to the verdict on it, and the state of the control plane.

mod conditions;
mod cost;
mod counters;
pub mod evidence;
pub mod excess;
mod extension;
mod passing;
pub mod plane;
pub mod probes;
pub mod rules;
pub mod scene;
mod scope;
pub mod summary;
pub mod verdict;
mod words;

use std::cmp::Ordering;
use std::sync::Arc;

use super::cluster::hook::HookKind;
use super::diagnose::verdict::Verdict;
use super::vocabulary::{Cause, Effect, Health};

use conditions::Hit;
use cost::Costs;
use evidence::Evidence;
use rules::DiagnosisRule;
use scene::Scene;

pub use cost::meets_starts;

/// Most hooks reported that only metrics name: this many admission webhooks, and this many conversion webhooks and APIServices.
const MAX_UNLISTED: usize = 200;

/// Judges every hook from its evidence: each separately, and then what all of them together cost a request.
pub fn diagnose<'a>(all: impl Iterator<Item = Evidence<'a>>) -> Vec<(Evidence<'a>, Verdict)> {
    let (rules, found): (Vec<_>, Vec<_>) = all.map(find).unzip();
    let costs = Costs::of(&found);
    let judged = rules.into_iter().zip(found);
    let judged = judged.map(|(rule, (evidence, health, hit))| {
        let verdict = verdict(&evidence, rule, health, hit, &costs);
        (evidence, verdict)
    });
    judged.collect()
}

/// The first rule that applies, the health that it gives the hook, and what it found.
fn find(evidence: Evidence<'_>) -> (&'static DiagnosisRule, (Evidence<'_>, Health, Hit)) {
    let (rule, hit) = rules::first(rules::TABLE, &evidence);
    // It may be broken, but a hook that matches nothing must not page.
    let never_called = evidence.hook.is_some_and(|hook| hook.rules.is_empty());
    let health = match rule.health {
        Health::Failing if never_called && evidence.is_admission() => Health::Suspect,
        health => health,
    };
    (rule, (evidence, health, hit))
}

/// Puts a verdict together. `since` stays what it was for as long as the cause stays the same.
fn verdict(
    evidence: &Evidence<'_>,
    rule: &'static DiagnosisRule,
    health: Health,
    hit: Hit,
    costs: &Costs<'_>,
) -> Verdict {
    let (hook, before, scene) = (evidence.hook, evidence.before, evidence.scene);
    let admission = evidence.is_admission();
    let since = match before {
        Some(before) if before.cause.is_some() && before.cause == hit.cause => before.since.or(hit.since),
        _ => hit.since.or_else(|| hit.cause.map(|_| scene.now)),
    };
    let effect = effect(evidence, hit.cause, health, costs);
    let fails = admission && effect != Effect::None && hit.cause != Some(Cause::Slow);
    let mut verdict = Verdict {
        kind: evidence.kind,
        configuration: hook.map(|hook| Arc::clone(&hook.id.configuration)),
        webhook: hook.map_or_else(|| evidence.webhook.into(), |hook| Arc::clone(&hook.id.webhook)),
        incident: incident(evidence),
        health,
        cause: hit.cause,
        effect,
        needs_shield: hook.is_some_and(|hook| costs.needs_shield(&hook.id)),
        fails_open: fails && evidence.fails_open(),
        confidence: rule.confidence,
        webhook_confidence: rule.webhook_confidence,
        rule: rule.name,
        excess_share: evidence.excess_share,
        since,
        summary: String::new(),
        evidence: Vec::new(),
        advice: None,
        backends: evidence.backends.iter().map(words::backends::view).collect(),
        canaries: evidence.covered_by.to_vec(),
        bypass: evidence.bypass,
        by_hand: None,
    };
    let passed = hook.and_then(|hook| costs.sentence(&hook.id));
    let own = (rule.says)(evidence).into_iter().chain(passed);
    verdict.evidence = words::evidence(evidence, own.collect(), &verdict);
    verdict.advice = summary::advice(&verdict);
    verdict.summary = summary::of_hook(&verdict, evidence.spared_pass(), evidence.unanswered_part());
    verdict
}

fn effect(evidence: &Evidence<'_>, cause: Option<Cause>, health: Health, costs: &Costs<'_>) -> Effect {
    let failing = health == Health::Failing;
    let Some(cause) = cause.filter(|cause| *cause != Cause::Denying) else {
        return Effect::None;
    };
    if let Some(theirs) = &evidence.theirs {
        return match cause {
            Cause::Slow => Effect::Delaying,
            _ if theirs.fails.is_some() || failing => Effect::Blocking,
            // Only our probes fail: perhaps no request has met that.
            _ => Effect::None,
        };
    }
    // A hook that gets no writes has no effect on them. Nor has a failure that only probes show: no call has met it yet.
    let passes = matches!(cause, Cause::Partial | Cause::StaleConnection | Cause::RolloutGap);
    let met = failing || evidence.counters.failed >= 1.0 || !passes && evidence.is_met_by_calls();
    let called = !evidence.is_uncalled() && evidence.hook.is_none_or(|hook| !hook.rules.is_empty());
    let waited_for = evidence.hook.and_then(|hook| costs.effect(&hook.id));
    match cause {
        _ if !called => Effect::None,
        Cause::Slow => waited_for.unwrap_or(Effect::Delaying),
        _ if !met => Effect::None,
        _ if evidence.fails_open() => waited_for.unwrap_or(Effect::FailingOpen),
        _ => Effect::Blocking,
    }
}

/// The incident of webhooks whose network path was lost together, across Services.
pub const LOST_PATH: &str = "lost path";

/// The key of the hook's incident, the same for all hooks in it. One that lost its path with the others stays in that incident
/// until one of its backends answers.
fn incident(evidence: &Evidence<'_>) -> String {
    let was = evidence.before.is_some_and(|before| before.on_lost_path) && evidence.worst().is_some();
    if evidence.is_admission() && (evidence.scene.path_lost || was) {
        return LOST_PATH.to_owned();
    }
    let place = evidence.hook.and_then(|hook| hook.target.place());
    place.unwrap_or_else(|| evidence.webhook.to_owned())
}

/// Hooks that the metrics name and the inventory does not have. Not those that were just removed: calls that began before the
/// removal are counted after it.
pub fn unlisted<'a>(scene: &Scene<'a>) -> Vec<(HookKind, &'a str)> {
    let Some(recent) = &scene.plane.windows.recent else {
        return Vec::new();
    };
    let removed = scene.seen.changes.removed_calls_end_after(recent.from);
    let is_unlisted = |hook: &(HookKind, &str)| {
        let mut named = scene.seen.named(hook.1);
        !named.any(|known| known.id.kind == hook.0) && !removed.contains(hook)
    };
    let gained = &recent.gained;
    let called = gained.hooks.iter();
    let called = called.filter(|(_, series)| series.calls.count >= 1.0 || series.failed() >= 1.0);
    let called = called.map(|((kind, name), _)| (*kind, name.as_str()));
    let failing = gained.others.conversions.iter();
    let failing = failing.filter(|(_, series)| series.failed.count >= 1.0);
    let failing = failing.map(|(crd, _)| (HookKind::Conversion, crd.as_str()));
    let unavailable = gained.others.unavailable.keys();
    let unavailable = unavailable.map(|name| (HookKind::Aggregated, name.as_str()));
    let others = failing.chain(unavailable).filter(is_unlisted);
    let called = called.filter(is_unlisted).take(MAX_UNLISTED);
    called.chain(others.take(MAX_UNLISTED)).collect()
}

/// The order in which verdicts are shown: by health, then effect, then confidence (highest first), then name.
pub fn most_urgent_first(a: &Verdict, b: &Verdict) -> Ordering {
    use Effect::{Blocking, Delaying, FailingOpen};
    use Health::{Failing, Suspect, Unknown};
    let urgency = |verdict: &Verdict| {
        let health = [Failing, Suspect, Unknown].map(|health| verdict.health != health);
        let harm = [Blocking, Delaying, FailingOpen].map(|harm| verdict.effect != harm);
        (health, harm)
    };
    urgency(a)
        .cmp(&urgency(b))
        .then(b.confidence.total_cmp(&a.confidence))
        .then_with(|| a.subject().cmp(&b.subject()))
}
