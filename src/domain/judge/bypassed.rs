//! A hook that is bypassed: what nobody calls is judged by what still can be seen of it, and said to be bypassed.
//!
//! While no write is shown to a hook, the API server counts nothing new of it, canaries pass it by, and what was counted
//! before says nothing of how it is now. Probes are all there is; on probation hookwatch's own dry runs as well.

use super::dead::dead_by_probes;
use super::witnesses::{Counters, Probes};
use super::words::without_backends;
use super::{Accusation, Before, Case, Finding, healthy, structural};
use crate::domain::changes::What;
use crate::domain::hook::Target;
use crate::domain::time::Time;
use crate::domain::verdict::{Bypass, Cause, Effect, Health, Verdict};

/// How far back a change is looked for.
const LOOK_BACK: std::time::Duration = std::time::Duration::from_secs(3_600);

/// How the hook is bypassed, when no user's write is shown to it.
pub(super) fn uncalled(case: &Case<'_>) -> Option<Bypass> {
    case.hook
        .and_then(Bypass::of)
        .filter(|bypass| bypass.is_for_everybody())
}

/// When its entry was last changed, which is when the bypass came to what it is.
fn changed_at(case: &Case<'_>) -> Option<Time> {
    let changes = case.changes.of(&case.hook?.id, case.now.before(LOOK_BACK));
    let mut changes = changes.filter(|change| matches!(change.what, What::Reconfigured(_)));
    changes.next_back().map(|change| change.at)
}

/// What is to be concluded of a hook that nobody calls, or nobody but tenants; `None` where its own canaries, the API
/// server or the inventory speak.
pub(super) fn conclude(
    case: &Case<'_>,
    probes: &Probes<'_>,
    named: &[Accusation<'_>],
    previous: Option<Before>,
) -> Option<Finding> {
    let bypass = case.hook.and_then(Bypass::of)?;
    if structural(case).is_some() {
        return None;
    }
    let failing_with = previous
        .filter(|before| before.health == Health::Failing)
        .and_then(|before| before.cause);
    if bypass == Bypass::Shield {
        // It is called, but perhaps by nobody just now, and what canaries write is spared.
        return match probes {
            Probes::All { worst, .. } if failing_with == Some(worst.cause) && !case.self_doubt => {
                Some(Finding::new(Health::Failing, worst.cause, 0.9).since(Some(worst.since)))
            }
            _ => None,
        };
    }
    let since = changed_at(case);
    let is_news = |sent: Time| since.is_none_or(|since| sent >= since);
    if bypass == Bypass::Probation {
        let accused =
            |accusation: &Accusation<'_>| accusation.named.current && is_news(accusation.named.started);
        if named.iter().any(accused) {
            return None;
        }
        if case.canary_passed.is_some_and(is_news) && matches!(probes, Probes::Good { .. }) {
            return Some(healthy(0.9));
        }
    }
    Some(match probes {
        Probes::All { worst, .. } if failing_with == Some(worst.cause) => {
            Finding::new(Health::Failing, worst.cause, 0.9).since(Some(worst.since))
        }
        Probes::All { worst, dead } if worst.certain => {
            dead_by_probes(case, &Counters::default(), worst, dead)
        }
        Probes::All { worst, .. } => Finding::new(Health::Suspect, worst.cause, 0.5).since(Some(worst.since)),
        Probes::Some { dead, .. } => {
            let since = dead.iter().map(|(_, dead)| dead.since).min();
            Finding::new(Health::Suspect, Cause::Partial, 0.85).since(since)
        }
        Probes::Slow { since, .. } => Finding::new(Health::Suspect, Cause::Slow, 0.5).since(Some(*since)),
        // hookwatch reached it all the time. Whether the API server does is not known before it tries.
        Probes::Good { .. } if previous.and_then(|before| before.cause) == Some(Cause::Unreachable) => {
            Finding::new(Health::Suspect, Cause::Unreachable, 0.5)
        }
        Probes::Good { .. } => healthy(0.8),
        Probes::Silent => match previous.and_then(|before| before.cause) {
            Some(cause) => Finding::new(Health::Suspect, cause, 0.5),
            None => Finding {
                health: Health::Unknown,
                cause: None,
                confidence: 0.0,
                since: None,
            },
        },
    })
}

/// The observations that are worth a word while nobody calls it.
pub(super) fn evidence(case: &Case<'_>, probes: &Probes<'_>) -> Option<Vec<String>> {
    let bypass = uncalled(case)?;
    let when = changed_at(case).map_or_else(String::new, |at| format!(" since {at}"));
    let whom = match bypass {
        Bypass::Probation => "hookwatch's own dry runs alone reach it",
        Bypass::Shield | Bypass::Skip => "no write reaches it",
    };
    let mut said = vec![format!(
        "It is bypassed{when}: {whom}, and what was counted before says nothing of how it is now."
    )];
    match (structural(case), case.hook.map(|hook| &hook.target)) {
        (Some(_), Some(Target::Service(target))) => said.push(without_backends(target)),
        _ => said.extend(probes.sentences()),
    }
    Some(said)
}

/// The rest of the summary: what the bypass makes of the effect; `None` where there is none.
pub(super) fn rest(verdict: &Verdict) -> Option<&'static str> {
    Some(match (verdict.bypass?, verdict.effect) {
        (Bypass::Skip, _) => "; it is bypassed (skip): no write is shown to it",
        (Bypass::Probation, _) => "; it is on probation: hookwatch's own dry runs alone reach it",
        (Bypass::Shield, Effect::Blocking) => {
            "; it is bypassed (shield): the control plane's own writes flow, all others that match it are refused"
        }
        (Bypass::Shield, Effect::Delaying) => {
            "; it is bypassed (shield): the control plane's own writes flow, all others that match it are slow"
        }
        (Bypass::Shield, _) => {
            "; it is bypassed (shield): the control plane's own writes are not shown to it"
        }
    })
}

/// What a person would do next about a hook that is bypassed and not well.
pub(super) const fn advice(bypass: Bypass) -> &'static str {
    match bypass {
        Bypass::Shield => {
            "Mend the hook; until then everybody but the control plane waits for it, unless its owner permits more."
        }
        Bypass::Skip | Bypass::Probation => {
            "Mend the hook: until it is restored, objects are admitted that it has not seen."
        }
    }
}
