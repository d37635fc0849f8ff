//! What a person is told to type to get writes past a hook: nothing that the edit then refuses.

use crate::act::breaker::{Ceiling, Rung};
use crate::act::bypass::edit::MAX_CONDITIONS;
use crate::act::bypass::{IGNORE_SECONDS, MATCH_CONDITIONS_SINCE, OPT_OUT_ANNOTATION};
use crate::cluster::hook::{FailurePolicy, Hook};
use crate::diagnose::evidence::Evidence;
use crate::diagnose::verdict::{BypassByHand, Verdict};
use crate::vocabulary::Effect;

const SHIELD: &str =
    "It shields the webhook: control-plane writes skip it. With --rung skip all writes pass without review.";
const SKIP: &str = "All writes then pass without review. A shield would not help: no control-plane write matches the webhook.";
const TOO_OLD: &str = "A shield needs Kubernetes 1.28 on every API server. With this each write waits for the webhook for 1 s at most, \
     and passes without review when the call fails. It stays so until `hookwatch restore`.";
const NO_ROOM: &str = "A shield needs room for a match condition, and the webhook has as many as there may be. With this each write waits \
     for it for 1 s at most, and passes without review when the call fails. It stays so until `hookwatch restore`.";
const FORBIDDEN: &str = "The owner's annotation hookwatch.dev/breaker does not permit this: ask the owner first. The first command takes it \
     away, so put it back afterwards; the second bypasses the webhook.";
/// The namespace that a command line means which names none.
const DEFAULT_NAMESPACE: &str = "hookwatch";

/// How a person gets writes past a hook that holds them up. `None` where no bypass would, and for names that a shell would read as
/// more than a word; the API server admits none.
pub(super) fn by_hand(evidence: &Evidence<'_>, verdict: &Verdict) -> Option<BypassByHand> {
    let harms = matches!(verdict.effect, Effect::Blocking | Effect::Delaying);
    if !harms || !verdict.fails_admission() || verdict.bypass.is_some() {
        return None;
    }
    let (hook, name) = (evidence.hook?, verdict.as_argument()?);
    let oldest = evidence.scene.seen.servers.oldest_release();
    let is_old = oldest.is_some_and(|release| release < MATCH_CONDITIONS_SINCE);
    let is_full = hook.owners_conditions().count() >= MAX_CONDITIONS;
    // To have its failures ignored takes as much permission as to skip it.
    let (rung, needs, meaning) = match (is_old, is_full) {
        (true, _) => (" --rung ignore", Rung::Skip, TOO_OLD),
        (_, true) => (" --rung ignore", Rung::Skip, NO_ROOM),
        _ if evidence.has_spared() => ("", Rung::Shield, SHIELD),
        _ => (" --rung skip", Rung::Skip, SKIP),
    };
    if (is_old || is_full) && is_ignored(hook) {
        return None;
    }
    let namespace = match &*evidence.scene.seen.coverage.own_namespace {
        DEFAULT_NAMESPACE => String::new(),
        // A shield spares the objects of the namespace that it is told of.
        own => format!(" --namespace {own}"),
    };
    let command = format!("hookwatch break {name}{rung}{namespace} --reason TEXT");
    if Ceiling::read(hook.breaker.as_deref()).permits(needs) {
        let meaning = meaning.to_owned();
        return Some(BypassByHand { command, meaning });
    }
    let kind = hook.id.kind.configuration_kind();
    let object = format!("{kind} {}", hook.id.configuration);
    Some(BypassByHand {
        command: format!("kubectl annotate {object} {OPT_OUT_ANNOTATION}- && {command}"),
        meaning: format!("{FORBIDDEN} {meaning}"),
    })
}

/// Whether there is nothing left to ignore.
fn is_ignored(hook: &Hook) -> bool {
    hook.failure_policy == FailurePolicy::Ignore && hook.timeout.as_secs() <= IGNORE_SECONDS
}
