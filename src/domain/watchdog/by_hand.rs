//! The commands suggested for a manual bypass. None is suggested that `hookwatch break` would refuse.

use std::collections::{BTreeMap, BTreeSet};

use crate::act::breaker::{Ceiling, Rung};
use crate::act::bypass::{IGNORE_SECONDS, MATCH_CONDITIONS_SINCE, OPT_OUT_ANNOTATION};
use crate::cluster::hook::{FailurePolicy, Hook, HookKind, MAX_CONDITIONS};
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
/// The namespace that the command line assumes without `--namespace`.
const DEFAULT_NAMESPACE: &str = "hookwatch";

/// Most webhooks that one command names.
const MAX_WEBHOOKS: usize = 50;
/// Most bytes of one command that their names may take, each with a space.
const MAX_NAMES: usize = 8_000;

/// What hooks must share to be bypassed by one command.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Bypass {
    incident: String,
    kind: HookKind,
    rung: &'static str,
    meaning: &'static str,
    /// Whether the owner's annotation does not permit it.
    forbidden: bool,
}

/// Adds to each hook the command to bypass it manually. Hooks of one incident with the same bypass share a command, which goes to
/// the first of them; `all` is sorted by urgency, so that this is the most urgent one.
pub(super) fn advise(all: &mut [(Evidence<'_>, Verdict)]) {
    let mut groups: BTreeMap<Bypass, Vec<(usize, String)>> = BTreeMap::new();
    for (at, (evidence, verdict)) in all.iter().enumerate() {
        if let Some((bypass, name)) = bypass(evidence, verdict) {
            groups.entry(bypass).or_default().push((at, name));
        }
    }
    for (bypass, members) in groups {
        let mut rest = &*members;
        while let Some(((first, leader), _)) = rest.split_first() {
            let (shared, left) = rest.split_at(fitting(rest));
            for (at, name) in shared {
                let (evidence, verdict) = &mut all[*at];
                let names: Vec<&str> = if at == first {
                    shared.iter().map(|(_, name)| &**name).collect()
                } else {
                    vec![&**name]
                };
                verdict.by_hand = Some(BypassByHand {
                    shared_with: (at != first).then(|| leader.clone()),
                    ..bypass.by_hand(&names, &evidence.scene.seen.coverage.own_namespace)
                });
            }
            rest = left;
        }
    }
}

/// How many of these hooks one command can name: at least one.
fn fitting(members: &[(usize, String)]) -> usize {
    let mut length = 0;
    let fits = members.iter().take(MAX_WEBHOOKS).take_while(|(_, name)| {
        length += name.len() + 1;
        length <= MAX_NAMES
    });
    fits.count().max(1)
}

/// How to bypass a hook that holds writes up, and its name as commands take it. `None` where no bypass would help, and for a name
/// that cannot be pasted into a shell as it is; the API server accepts no such name.
fn bypass(evidence: &Evidence<'_>, verdict: &Verdict) -> Option<(Bypass, String)> {
    let harms = matches!(verdict.effect, Effect::Blocking | Effect::Delaying);
    if !harms || !verdict.fails_admission() || verdict.bypass.is_some() {
        return None;
    }
    let (hook, name) = (evidence.hook?, verdict.as_argument()?);
    let oldest = evidence.scene.seen.servers.oldest_release();
    let is_old = oldest.is_some_and(|release| release < MATCH_CONDITIONS_SINCE);
    let is_full = hook.owners_conditions().count() >= MAX_CONDITIONS;
    // Ignoring its failures needs the same permission as skipping it.
    let (rung, needs, meaning) = match (is_old, is_full) {
        (true, _) => (" --rung ignore", Rung::Skip, TOO_OLD),
        (_, true) => (" --rung ignore", Rung::Skip, NO_ROOM),
        _ if evidence.has_spared() => ("", Rung::Shield, SHIELD),
        _ => (" --rung skip", Rung::Skip, SKIP),
    };
    // `--rung ignore` does not help if failures are ignored already, or if patches cannot be applied: those refuse a write
    // under either policy.
    if (is_old || is_full) && (is_ignored(hook) || evidence.counters.patches_badly()) {
        return None;
    }
    let bypass = Bypass {
        incident: verdict.incident.clone(),
        kind: verdict.kind,
        rung,
        meaning,
        forbidden: !Ceiling::read(hook.breaker.as_deref()).permits(needs),
    };
    Some((bypass, name))
}

impl Bypass {
    /// The command for these hooks, given as CONFIG/WEBHOOK.
    fn by_hand(&self, names: &[&str], own_namespace: &str) -> BypassByHand {
        let Self { kind, rung, .. } = self;
        let namespace = match own_namespace {
            DEFAULT_NAMESPACE => String::new(),
            // A shield spares the objects of the namespace that it is given.
            own => format!(" --namespace {own}"),
        };
        let mut command = format!(
            "hookwatch break {} --kind {kind}{rung}{namespace} --reason TEXT",
            names.join(" ")
        );
        let mut meaning = self.meaning.to_owned();
        if names.len() > 1 {
            meaning = format!(
                "The command names {} webhooks that fail together. For each of them: {meaning}",
                names.len()
            );
        }
        if self.forbidden {
            let configurations = names.iter().filter_map(|name| name.split('/').next());
            let configurations: BTreeSet<&str> = configurations.collect();
            let configurations = Vec::from_iter(configurations).join(" ");
            let object = format!("{} {configurations}", kind.configuration_kind());
            command = format!("kubectl annotate {object} {OPT_OUT_ANNOTATION}- && {command}");
            meaning = format!("{FORBIDDEN} {meaning}");
        }
        BypassByHand {
            command,
            meaning,
            shared_with: None,
        }
    }
}

/// Whether its failures are ignored already, and its timeout is no longer than `--rung ignore` would make it.
fn is_ignored(hook: &Hook) -> bool {
    hook.failure_policy == FailurePolicy::Ignore && hook.timeout.as_secs() <= IGNORE_SECONDS
}
