//! Which deadlines of clients are reported, and since when they run.

use crate::cluster::condition::SHIELDED_NAMESPACES;
use crate::cluster::hook::Labels;
use crate::cluster::matching::{LEASES, RequestShape};
use crate::diagnose::plane::PlaneEvidence;
use crate::diagnose::verdict::Verdict;
use crate::observe::deadlines;
use crate::observe::observations::Observations;
use crate::time::Time;
use crate::vocabulary::{Effect, Writes};

/// Which clients give up next, as sentences, given the state of `writes` and since when it holds. A slow hook may hold some
/// writes past their deadline while writes as a whole are not blocked: the deadlines then run since its trouble began.
pub(super) fn running_deadlines(
    seen: &Observations,
    plane: &PlaneEvidence<'_>,
    (writes, since): (Writes, Time),
    verdicts: &[Verdict],
) -> Vec<String> {
    let blocking = verdicts
        .iter()
        .filter(|it| it.fails_admission() && it.effect == Effect::Blocking);
    let held_up = match writes {
        Writes::Blocked => Some(since),
        _ => blocking.clone().filter_map(|it| it.since).min(),
    };
    let told = held_up.map(|since| {
        let release = seen.servers.oldest_release();
        let leases = (leaders_may_wait(seen, blocking), plane.renewals_fail());
        deadlines::running(&seen.canaries, leases, release, since, plane.now)
    });
    told.unwrap_or_default()
}

/// Whether what delays the canary for leaders may delay leaders' renewals too: one of the webhooks that block writes could be
/// called for renewals, or no webhook is known to block writes.
fn leaders_may_wait<'v>(seen: &Observations, blocking: impl Iterator<Item = &'v Verdict>) -> bool {
    let [system, _] = SHIELDED_NAMESPACES;
    let inventory = seen.inventory.as_ref();
    let unlabelled = Labels::new();
    let renewal = RequestShape {
        namespace: Some(system),
        namespace_labels: inventory.and_then(|inventory| inventory.namespaces.get(system)),
        object_labels: Some(&unlabelled),
        ..RequestShape::new("UPDATE", LEASES)
    };
    let mut blocking = blocking.peekable();
    // The rules of a webhook that is not listed are not known: it could be called for anything.
    blocking.peek().is_none()
        || blocking.any(|verdict| {
            let id = verdict.hook();
            let hook = seen.hooks().find(|hook| Some(&hook.id) == id.as_ref());
            hook.is_none_or(|hook| hook.could_match(&renewal))
        })
}
