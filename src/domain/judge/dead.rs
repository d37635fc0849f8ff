//! What our probes alone are worth, while the API server has said nothing yet.

use std::time::Duration;

use super::witnesses::Counters;
use super::{Case, Finding};
use crate::domain::hook::Backend;
use crate::domain::probing::Dead;
use crate::domain::time::Time;
use crate::domain::verdict::{Cause, Health};

/// A hook that is dead by our probes alone is named after this long.
const ALONE: Duration = Duration::from_secs(5);
/// Between two probes nobody sees a backend die.
const UNSEEN: Duration = Duration::from_secs(6);
/// A hook named so long before another one seemed to die is reason enough for canaries to be late.
const LONG_BEFORE: Duration = Duration::from_secs(10);
/// A canary that is late by this much has its connection: one without is given up after 5 s.
const CONNECTED: Duration = Duration::from_millis(5_500);

/// All backends are dead by our probes, and the API server has not said so yet.
pub(super) fn dead_by_probes(
    case: &Case<'_>,
    counters: &Counters,
    worst: &Dead,
    dead: &[(&Backend, &Dead)],
) -> Finding {
    let since = dead
        .iter()
        .map(|(_, dead)| dead.since)
        .max()
        .unwrap_or(worst.since);
    let finding = |health, confidence| Finding::new(health, worst.cause, confidence).since(Some(worst.since));
    if case.self_doubt {
        return finding(Health::Suspect, 0.3);
    }
    // What the API server was answered since, it will be answered again: whoever hangs, it is not this one.
    if counters.answered_since(since) {
        return finding(Health::Suspect, 0.4);
    }
    // Nor is it one that does not hang for a write that was sent when it hung for us.
    if worst.cause == Cause::Hanging && case.canary_passed.is_some_and(|sent| sent >= since) {
        return finding(Health::Suspect, 0.4);
    }
    let way_is_open = way_is_open(case, since) || counters.timed_out() && !case.ambiguous;
    // Somebody else held canaries up long before.
    let explained = case.explained
        || case
            .other_named
            .is_some_and(|at| worst.since.since(at) >= LONG_BEFORE);
    // A refused connection or a bad certificate is answered at once; a canary that is late speaks of a hang. One
    // that was late before speaks of something else.
    let canary_late = case
        .canary_late
        .filter(|late| *late < case.now.since(worst.since) + UNSEEN && (way_is_open || !explained));
    // When nothing of anybody's answers us, writes may hang for another reason than the one that we are blind for.
    let late = (canary_late.is_some() || case.stalled && !explained) && (way_is_open || case.alone);
    // A hook that was never reached from here hangs always; it is the one only if there is no other, and if the
    // canary waits for an answer rather than for a connection to an API server that hangs itself.
    let connected = canary_late.is_some_and(|late| late >= CONNECTED);
    let likely = worst.was_alive || connected && !case.others_hang;
    if late && worst.cause == Cause::Hanging && likely {
        return finding(Health::Failing, 0.9);
    }
    let settled = case.now.since(since) >= ALONE && dead.iter().all(|(_, dead)| dead.attempts >= 2);
    // A timeout without an earlier success may be a firewall between hookwatch and the pods.
    // With one, when nothing else has answered us since, it may be our own way to the pods that is gone.
    let unanswered = matches!(worst.cause, Cause::Hanging | Cause::Unreachable);
    let path_is_known = !unanswered || worst.was_alive && way_is_open;
    match settled && path_is_known && !case.inventory_is_old {
        true => finding(Health::Failing, 0.75),
        false => finding(Health::Suspect, 0.5),
    }
}

/// Another backend has answered us since, so that the way to the pods is there.
pub(super) fn way_is_open(case: &Case<'_>, since: Time) -> bool {
    case.reached_at.is_some_and(|at| at >= since)
}
