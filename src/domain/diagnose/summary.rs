//! The one-sentence summaries: of a verdict, with the advice for an operator, and of the control plane's writes.

use crate::cluster::condition::BypassCondition;
use crate::cluster::hook::HookKind;
use crate::diagnose::rules::CONDITIONS_ERR;
use crate::diagnose::verdict::{NonHookCause, Verdict};
use crate::vocabulary::{Cause, Effect, Health, NotAHook, Writes};

/// Most hooks named besides the culprits.
const BESIDE: usize = 5;

/// The verdict in one sentence. `spared`: whether what a shield spares gets through; `None` if not observed. `part`: how many
/// calls a webhook that hangs for some of them leaves unanswered, and of how many.
pub fn of_hook(verdict: &Verdict, spared: Option<bool>, part: Option<(f64, f64)>) -> String {
    let who = match (&verdict.configuration, verdict.kind) {
        (_, HookKind::Conversion) => format!("The conversion webhook of {}", verdict.webhook),
        (_, HookKind::Aggregated) => format!("The aggregated API {}", verdict.webhook),
        (Some(configuration), _) => format!("{} ({configuration})", verdict.webhook),
        (None, _) => verdict.webhook.to_string(),
    };
    let Some(cause) = verdict.cause else {
        let rest = bypassed(verdict, spared).unwrap_or_default();
        return match verdict.health {
            Health::Healthy => format!("{who} is healthy{rest}."),
            _ => format!("{who}: no evidence yet, neither traffic nor probe answers."),
        };
    };
    let part = part.filter(|_| cause == Cause::Hanging);
    let some = part.map(|(failed, calls)| format!("leaves {failed:.0} of {calls:.0} calls unanswered"));
    let what = match cause {
        _ if verdict.rule == CONDITIONS_ERR => "has a match condition that errs",
        Cause::Hanging if let Some(some) = &some => some,
        Cause::Slow => "answers late",
        Cause::Hanging => "does not answer",
        Cause::Refused => "refuses connections",
        Cause::NoEndpoints => "has no ready endpoint",
        Cause::NoService => "has no Service",
        Cause::Erroring => "answers with errors",
        Cause::TlsInvalid => "fails the TLS handshake under its own caBundle",
        Cause::Partial => "has some backends that fail",
        Cause::RolloutGap => "drops calls whenever its endpoints change",
        Cause::StaleConnection => "is called on stale connections to a backend that is gone",
        Cause::Unreachable => "cannot be reached",
        Cause::FailingOpen => "is being skipped",
        Cause::Denying => "works and denies most requests",
    };
    let passing = part.is_some() || matches!(cause, Cause::RolloutGap | Cause::StaleConnection);
    let effect = bypassed(verdict, spared).unwrap_or_else(|| affected(verdict, cause, passing).to_owned());
    let certain = verdict.health == Health::Failing
        || matches!(cause, Cause::Denying | Cause::Partial | Cause::RolloutGap);
    let seems = if certain { "" } else { "suspected: " };
    format!("{seems}{who} {what}{effect}.")
}

/// What that does to requests, as the rest of the summary. `passing`: most of them are answered.
fn affected(verdict: &Verdict, cause: Cause, passing: bool) -> &'static str {
    match (verdict.kind, verdict.effect) {
        (_, Effect::None) => "",
        (HookKind::Conversion, Effect::Delaying) => {
            "; reads and writes of this resource in another version than the stored one are slow"
        }
        (HookKind::Conversion, _) => {
            "; reads and writes of this resource in another version than the stored one fail"
        }
        (HookKind::Aggregated, Effect::Delaying) => "; requests for this group and version are slow",
        (HookKind::Aggregated, _) => "; requests for this group and version fail",
        (_, Effect::Blocking) if passing => "; writes that meet that are refused",
        (_, Effect::FailingOpen) if passing => "; writes that meet that pass without review",
        (_, Effect::Blocking) if verdict.fails_open => {
            "; writes that match it wait longer than clients do, and those that get through are not reviewed"
        }
        (_, Effect::Blocking) if cause == Cause::Slow => {
            "; writes that match it are slow, and some of them take longer than clients wait"
        }
        (_, Effect::Blocking) => "; writes that match it are refused",
        (_, Effect::Delaying) if verdict.fails_open => {
            "; writes that match it wait for it and pass without review"
        }
        (_, Effect::Delaying) => "; writes that match it are slow",
        (_, Effect::FailingOpen) => "; writes that match it pass without review",
    }
}

/// The bypass and what it does to requests, as the rest of the summary; `None` where there is none.
fn bypassed(verdict: &Verdict, spared: Option<bool>) -> Option<String> {
    let rung = match verdict.bypass? {
        BypassCondition::Skip => return Some("; it is bypassed (skip): no write reaches it".to_owned()),
        BypassCondition::Probation => {
            return Some("; it is on probation: only hookwatch's dry runs reach it".to_owned());
        }
        BypassCondition::Shield => "; it is bypassed (shield)",
    };
    let own = match spared {
        Some(true) => "the control plane's own writes flow",
        Some(false) => "the control plane's own writes do not reach it, and some still wait or fail",
        None => "the control plane's own writes do not reach it",
    };
    let others = match verdict.effect {
        Effect::Blocking if verdict.fails_open => ", all others that match it wait, many for too long",
        Effect::Blocking => ", all others that match it are refused",
        Effect::Delaying if verdict.fails_open => ", all others that match it wait and pass without review",
        Effect::Delaying => ", all others that match it are slow",
        _ => "",
    };
    Some(format!("{rung}: {own}{others}"))
}

/// What an operator should do next, in one or two sentences; `None` without a cause.
pub fn advice(verdict: &Verdict) -> Option<&'static str> {
    let cause = verdict.cause?;
    Some(match (verdict.kind, verdict.bypass) {
        (kind @ (HookKind::Conversion | HookKind::Aggregated), _) => advice_on_extension(kind, cause),
        (_, Some(bypass)) if verdict.health != Health::Healthy => match bypass {
            BypassCondition::Shield => {
                "Fix the webhook. Until then tenants' writes that match it are refused or wait; control-plane writes pass."
            }
            BypassCondition::Skip | BypassCondition::Probation => {
                "Fix the webhook. Until it is restored, objects are admitted without its review."
            }
        },
        _ if verdict.rule == CONDITIONS_ERR => {
            "Correct its match condition: it must test with has() whether an object has the field that it reads."
        }
        _ => cause.advice(),
    })
}

const fn advice_on_extension(kind: HookKind, cause: Cause) -> &'static str {
    match (cause, kind) {
        (Cause::Slow, _) => "Check its server's CPU, memory and what it calls.",
        (Cause::Hanging | Cause::StaleConnection, _) => "Restart its Pods. It cannot be bypassed.",
        (Cause::Refused, _) => {
            "Start its server: its Pods have addresses, but nothing listens on the port. It cannot be bypassed."
        }
        (Cause::NoEndpoints, _) => "Get a Pod of its Service Ready. It cannot be bypassed.",
        (Cause::NoService, HookKind::Conversion) => {
            "Create the Service. Do not delete the CustomResourceDefinition: that deletes all its objects."
        }
        (Cause::NoService, _) => "Create the Service, or delete the APIService if it was left behind.",
        (Cause::Erroring | Cause::FailingOpen | Cause::Denying, HookKind::Conversion) => {
            "Read its server's log: it answers, but not with a valid ConversionReview."
        }
        (Cause::Erroring | Cause::FailingOpen | Cause::Denying, _) => {
            "Read its server's log: it answers, but not with its discovery document."
        }
        (Cause::Unreachable, _) => "Check routes, firewall and DNS between the control plane and its Pods.",
        _ => cause.advice(),
    }
}

/// The top of every report: a summary of writes, and, unless all is in order, the symptoms. `blind`: a failing webhook could be
/// missed, so that the summary must not say that there is none.
pub fn of_control_plane(
    writes: Writes,
    verdicts: &[Verdict],
    elsewhere: Option<&NonHookCause>,
    symptoms: &[String],
    blind: bool,
) -> String {
    let said = of_writes(writes, verdicts, elsewhere, blind);
    let well = matches!(writes, Writes::Flowing | Writes::Unknown) && elsewhere.is_none();
    let well = well && !verdicts.iter().any(|verdict| verdict.health == Health::Failing);
    let symptoms = if well { &[] } else { symptoms };
    [&[said], symptoms].concat().join(" ")
}

fn of_writes(writes: Writes, verdicts: &[Verdict], elsewhere: Option<&NonHookCause>, blind: bool) -> String {
    // While writes do not flow, a webhook that no user's write reaches cannot be the reason.
    let is_culprit = |verdict: &Verdict| {
        verdict.can_hold_writes_up() || writes == Writes::Flowing && verdict.fails_admission()
    };
    let culprits = || verdicts.iter().filter(|verdict| is_culprit(verdict));
    // A shield spares canaries, so that they say nothing about the writes that it does not spare.
    let shielded = culprits().any(|verdict| verdict.bypass == Some(BypassCondition::Shield));
    let state = match writes {
        Writes::Flowing if shielded => "Some writes flow",
        Writes::Flowing => "Writes flow",
        Writes::Delayed => "Writes are slow",
        Writes::Blocked => "Writes are blocked",
        Writes::Unknown => "Whether writes flow is not known",
    };
    let mut named: Vec<&str> = culprits()
        .map(|verdict| verdict.summary.trim_end_matches('.'))
        .collect();
    let known = elsewhere.filter(|found| found.cause != NotAHook::Unexplained && !named.is_empty());
    named.extend(known.map(|found| found.cause.sentence()));
    let beside = verdicts.iter().filter(|verdict| match verdict.health {
        Health::Failing => !is_culprit(verdict),
        _ => verdict.bypass.is_some(),
    });
    let beside: Vec<&str> = beside
        .map(|verdict| verdict.summary.as_str())
        .take(BESIDE)
        .collect();
    let who = match (named.as_slice(), elsewhere, writes) {
        ([], Some(found), _) if found.cause == NotAHook::Unexplained => {
            let first = found.evidence.first().map_or("", String::as_str);
            format!("; no webhook is known to be failing. {first}")
        }
        ([], Some(found), _) => format!("; no webhook is to blame: {}.", found.cause.sentence()),
        ([], None, Writes::Blocked | Writes::Delayed) => "; the cause is not known yet.".to_owned(),
        ([], None, _) if blind => ".".to_owned(),
        ([], None, Writes::Unknown) => "; no webhook is known to be failing.".to_owned(),
        ([], None, Writes::Flowing) if beside.is_empty() => "; no webhook is failing.".to_owned(),
        ([], None, Writes::Flowing) => ".".to_owned(),
        (culprits, ..) => format!("; {}.", culprits.join("; and ")),
    };
    let beside = (!beside.is_empty()).then(|| format!(" Beside that: {}", beside.join(" ")));
    format!("{state}{who}{}", beside.unwrap_or_default())
}
