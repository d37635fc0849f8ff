//! Calls that fail only around changes of the endpoints.

use std::time::Duration;

use super::witnesses::{Counters, Probes};
use super::{Case, Finding, structural};
use crate::domain::changes::What;
use crate::domain::hook::{Backend, BackendAddress, FailurePolicy};
use crate::domain::rollouts::{AFTER, Gap, MEMORY, by_rollout};
use crate::domain::verdict::{Cause, Health, human};

/// How long a gap is told of after the last call that fell into it.
const TOLD: Duration = Duration::from_secs(30);
/// Fewer lost calls than this, and only once, are bad luck.
const FEW: f64 = 3.0;
/// When more than this part of the failed calls failed at other times, rollouts are not why.
const ELSEWHERE: f64 = 0.1;

/// What to say in place of `found`, when a gap in rollouts is the better name for it.
///
/// Only what passes by itself can be one: a backend that does not serve long after its own change is bad, and all
/// backends together are an outage, whatever changed before.
pub(super) fn instead(
    case: &Case<'_>,
    counters: &Counters,
    probes: &Probes<'_>,
    found: Option<Cause>,
) -> Option<Finding> {
    let gap = &case.gap;
    let last = gap.last.filter(|last| case.now.since(*last) < TOLD)?;
    let may_be = match found {
        None
        | Some(Cause::Refused | Cause::FailingOpen | Cause::Unreachable | Cause::Partial | Cause::Denying) => {
            true
        }
        Some(Cause::Erroring) => counters.own_errors < 1.0,
        Some(_) => false,
    };
    let hook = case.hook?;
    let in_its_window = |backend: &Backend| {
        let BackendAddress::Socket(address) = backend.address else {
            return false;
        };
        let changes = case.changes.of(&hook.id, case.now.before(AFTER));
        let mut own = changes.filter(|change| by_rollout(&change.what));
        own.any(|change| change.what.endpoint() == Some(address))
    };
    let passes = match probes {
        Probes::Good { .. } => true,
        Probes::Some { dead, .. } => dead.iter().all(|(backend, _)| in_its_window(backend)),
        Probes::Silent | Probes::Slow { .. } | Probes::All { .. } => false,
    };
    if !may_be || !passes || structural(case).is_some() || gap.elsewhere > ELSEWHERE * gap.lost {
        return None;
    }
    let since = gap
        .bursts
        .first
        .or(gap.missed.as_ref().map(|(missed, ..)| missed.at))
        .unwrap_or(last);
    let (health, confidence) = match gap.lost >= FEW || gap.bursts.number >= 2 {
        true => (Health::Failing, 0.85),
        false => (Health::Suspect, 0.6),
    };
    Some(Finding::new(health, Cause::RolloutGap, confidence).since(Some(since)))
}

/// How much was lost, as sentences.
pub(super) fn sentences(case: &Case<'_>, cause: Option<Cause>) -> Vec<String> {
    if cause != Some(Cause::RolloutGap) {
        return Vec::new();
    }
    let Gap {
        calls,
        lost,
        bursts,
        missed,
        ..
    } = &case.gap;
    let mut said = Vec::new();
    if *lost >= 1.0 {
        let what = match case.hook.map(|hook| hook.failure_policy) {
            Some(FailurePolicy::Ignore) => "skipped",
            _ => "refused",
        };
        let times = match bursts.number {
            1 => String::new(),
            n => format!(", in {n} bursts"),
        };
        said.push(format!(
            "{lost:.0} of {calls:.0} calls ({}) were {what} within {} s of an endpoint change in the last {} \
             min{times}; at other times {}.",
            percent(lost / calls.max(1.0)),
            AFTER.as_secs(),
            MEMORY.as_secs() / 60,
            match case.gap.elsewhere >= 1.0 {
                true => format!("{:.0}", case.gap.elsewhere),
                false => "none".to_owned(),
            },
        ));
    }
    if let Some((missed, at, what)) = missed {
        let apart = match missed.at >= *at {
            true => human(missed.at.since(*at)),
            false => human(at.since(missed.at)),
        };
        said.push(match (what, missed.at >= *at) {
            (What::EndpointReady(_), true) => format!(
                "{} was listed as Ready and took no connection {apart} later.",
                capital(&missed.backend)
            ),
            (_, true) => format!(
                "{} took no connection {apart} after it was removed.",
                capital(&missed.backend)
            ),
            (_, false) => format!(
                "{} took no connection while it was still listed as Ready, {apart} before that changed.",
                capital(&missed.backend)
            ),
        });
    }
    said
}

fn capital(backend: &Backend) -> String {
    let text = backend.to_string();
    let mut characters = text.chars();
    let first = characters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(characters).collect()
}

/// A part of a whole as a person writes it.
fn percent(part: f64) -> String {
    let percent = part * 100.0;
    match percent < 1.0 {
        true => "under 1 %".to_owned(),
        false => format!("{percent:.0} %"),
    }
}
