//! Verdicts in words: the observations as sentences, the one that weighs most first.

use std::time::Duration;

use super::witnesses::{Counters, Probes};
use super::{Accusation, Case, Finding, bypassed, latest, rollout, ruled_out, scope, stale, structural};
use crate::domain::changes::Changes;
use crate::domain::hook::{Backend, HookId, ServiceState, ServiceTarget, Target};
use crate::domain::probing::{BackendState, Dead};
use crate::domain::time::Time;
use crate::domain::verdict::{BackendView, Cause, Effect, Health, Verdict, human, human_seconds};

/// Changes longer before the trouble than this are not told.
const JUST_BEFORE: Duration = Duration::from_secs(120);
/// A watch may deliver a change a moment after its consequences were seen.
const SEEN_LATE: Duration = Duration::from_secs(2);
/// Changes told, the latest.
const CHANGES_TOLD: usize = 3;

/// The observations, the one that weighs most first.
pub(super) fn evidence(
    case: &Case<'_>,
    counters: &Counters,
    probes: &Probes<'_>,
    named: &[Accusation<'_>],
    &Finding { health, cause, .. }: &Finding,
    since: Option<Time>,
) -> Vec<String> {
    if let Some(said) = bypassed::evidence(case, probes) {
        return said;
    }
    let mut said = Vec::new();
    // What was refused before writes got through again is no evidence any more.
    if let Some(latest) = latest(named).filter(|latest| latest.current || cause.is_some()) {
        let age = match latest.current {
            true => String::new(),
            false => format!(", {} ago", human(case.now.since(latest.started + latest.took))),
        };
        let whom = match named.iter().any(|accusation| accusation.sure) {
            true => "this hook",
            false => "this hook or another one of the same name",
        };
        said.push(format!(
            "The API server refused a dry-run write of {} after {}{age}, and named {whom}: {}.",
            latest.target,
            human(latest.took),
            latest.failure.text
        ));
    } else if let (Some(late), Some(Cause::Hanging)) = (case.canary_late, cause) {
        said.push(format!(
            "A dry-run write that meets this hook has been waiting for {}.",
            human(late)
        ));
    }
    said.extend(stale::sentence(case, cause));
    said.extend(rollout::sentences(case, cause));
    match (structural(case), case.hook.map(|hook| &hook.target)) {
        (Some(_), Some(Target::Service(target))) => said.push(without_backends(target)),
        _ => said.extend(probes.sentences()),
    }
    if let (Some(Cause::Unreachable), Probes::Good { .. }) = (cause, probes) {
        said.push(
            "hookwatch reaches it and the API server does not: what lies between the control plane and the pods \
             (a firewall rule, the tunnel, routes) is to blame, not the hook."
                .to_owned(),
        );
    }
    // Good calls from before the trouble began say nothing about it.
    let from_before = since
        .zip(counters.from())
        .is_some_and(|(since, from)| from < since);
    if counters.failed >= 1.0 || counters.denied >= 1.0 || cause == Some(Cause::Slow) || !from_before {
        said.extend(counters.sentences(case));
    }
    if let Some(share) = case
        .excess_share
        .filter(|_| cause.is_some_and(|cause| cause != Cause::Denying))
    {
        said.push(format!(
            "{:.0} % of the extra time per write is spent in this hook.",
            share * 100.0
        ));
    }
    if let (Some(took), Some(Cause::Slow)) = (case.canary_slow, cause) {
        said.push(format!(
            "A dry-run write that meets this hook took {}.",
            human(took)
        ));
    }
    if let (Some(hook), Some(since)) = (case.hook, since) {
        said.extend(just_before(case.changes, &hook.id, since));
    }
    if let (Some(hook), Health::Failing) = (case.hook, health) {
        let namespaces = case.inventory.map(|inventory| &inventory.namespaces);
        said.extend(scope::sentence(hook, namespaces));
    }
    if health == Health::Unknown {
        said.push(ruled_out::cannot_tell(case, counters, probes));
    }
    if let (Some(cause), Health::Failing) = (cause, health) {
        said.extend(ruled_out::sentences(
            case,
            counters,
            probes,
            named,
            (cause, since),
        ));
    }
    if case.self_doubt && cause.is_some() {
        said.push("Probes of every hook fail at once: hookwatch's own network may be at fault.".to_owned());
    }
    if case.inventory_is_old && cause.is_some() {
        said.push("The inventory is old: its addresses may not be the present ones.".to_owned());
    }
    if case.ambiguous {
        said.push(
            "Several configurations use this webhook name; the API server's counters do not tell them apart."
                .to_owned(),
        );
    }
    if case.hook.is_none() {
        said.push("No webhook configuration that hookwatch can read has a hook of this name.".to_owned());
    }
    said
}

/// What changed around the hook before its trouble began: where most people would have begun to look.
fn just_before(changes: &Changes, hook: &HookId, since: Time) -> Option<String> {
    let told: Vec<String> = changes
        .of(hook, since.before(JUST_BEFORE))
        .filter(|change| change.at <= since + SEEN_LATE)
        .map(|change| format!("{} at {}", change.what.sentence(), change.at))
        .collect();
    let latest = &told[told.len().saturating_sub(CHANGES_TOLD)..];
    (!latest.is_empty()).then(|| format!("Shortly before: {}.", latest.join("; ")))
}

pub(super) fn without_backends(target: &ServiceTarget) -> String {
    let service = format!("Service {}/{}", target.namespace, target.name);
    match &target.service {
        ServiceState::Missing => format!("{service} does not exist."),
        ServiceState::NoSuchPort { offered } => {
            format!(
                "{service} does not offer port {} (it offers {offered:?}).",
                target.port
            )
        }
        ServiceState::Found { endpoints, .. } => match endpoints.len() {
            0 => format!("{service} has no endpoint."),
            n => format!("{service} has {n} endpoints and none of them is ready."),
        },
        ServiceState::Unknown { why } => format!("{service} is not known: {why}."),
    }
}

impl Probes<'_> {
    pub(super) fn sentences(&self) -> Vec<String> {
        /// Backends told one by one; the rest is a number.
        const TOLD: usize = 3;
        let list = |dead: &[(&Backend, &Dead)]| {
            let mut said: Vec<String> = dead
                .iter()
                .take(TOLD)
                .map(|(backend, dead)| format!("{backend} {}", dead.detail))
                .collect();
            if dead.len() > TOLD {
                said.push(format!("{} more", dead.len() - TOLD));
            }
            said.join("; ")
        };
        match self {
            Self::Silent => Vec::new(),
            Self::Good { answered, of } => vec![match (answered, of) {
                (1, 1) => "Its backend answers a direct probe.".to_owned(),
                (n, of) if n == of => format!("All {n} backends answer direct probes."),
                (n, of) => format!("{n} of {of} backends answer direct probes."),
            }],
            Self::Slow { took, .. } => {
                vec![format!(
                    "Direct probes are answered late, the slowest after {}.",
                    human(*took)
                )]
            }
            Self::Some { dead, of } => {
                vec![format!(
                    "{} of {of} backends are bad: {}.",
                    dead.len(),
                    list(dead)
                )]
            }
            Self::All { dead, .. } => vec![match dead.len() {
                1 => format!("Its only backend is bad: {}.", list(dead)),
                n => format!("All {n} backends are bad: {}.", list(dead)),
            }],
        }
    }
}

impl Counters {
    fn sentences(&self, case: &Case<'_>) -> Vec<String> {
        let Some((from, to)) = self.span else {
            return Vec::new();
        };
        let span = human(to.since(from));
        let mut said = Vec::new();
        if self.failed >= 1.0 {
            let let_pass = if self.fail_open >= 1.0 {
                " and let pass"
            } else {
                ""
            };
            let after = self.failed_mean.map_or_else(String::new, |mean| {
                format!(", after {} each", human_seconds(mean))
            });
            said.push(format!(
                "The API server counted {:.0} failed calls{let_pass} of {:.0} in {span}{after}.",
                self.failed,
                self.calls.max(self.failed)
            ));
        } else if let Some(mean) = self.mean {
            let usual = case.usual.map_or_else(String::new, |usual| {
                format!(" (usually {})", human_seconds(usual))
            });
            said.push(format!(
                "The API server counted {:.0} calls in {span}, {} each{usual}.",
                self.calls,
                human_seconds(mean)
            ));
        }
        if self.denied >= 1.0 {
            said.push(format!(
                "It denied {:.0} of {:.0} requests in {span}.",
                self.denied, self.calls
            ));
        }
        said
    }
}

pub(super) fn summary(verdict: &Verdict) -> String {
    let who = match &verdict.configuration {
        Some(configuration) => format!("{} ({configuration})", verdict.webhook),
        None => verdict.webhook.to_string(),
    };
    let Some(cause) = verdict.cause else {
        let rest = bypassed::rest(verdict).unwrap_or_default();
        return match verdict.health {
            Health::Healthy => format!("{who} is healthy{rest}."),
            _ => format!("{who}: not enough is known to tell."),
        };
    };
    let what = match cause {
        Cause::Slow => "answers late",
        Cause::Hanging => "does not answer",
        Cause::Refused => "refuses connections",
        Cause::NoEndpoints => "has no ready endpoint",
        Cause::NoService => "has no Service to be called at",
        Cause::Erroring => "answers with errors",
        Cause::TlsInvalid => "fails the TLS handshake under its own caBundle",
        Cause::Partial => "has bad backends among good ones",
        Cause::RolloutGap => "loses calls whenever its endpoints change",
        Cause::StaleConnection => "is called on connections to a backend that is gone",
        Cause::Unreachable => "cannot be reached",
        Cause::FailingOpen => "is being skipped",
        Cause::Denying => "denies most of what it is shown; it works",
    };
    let passing = matches!(cause, Cause::RolloutGap | Cause::StaleConnection);
    let effect = match verdict.effect {
        Effect::None => "",
        Effect::Blocking if passing => "; writes that meet that are refused",
        Effect::FailingOpen if passing => "; writes that meet that pass unchecked",
        Effect::Blocking => "; writes that match it are refused",
        Effect::Delaying => "; writes that match it are slow",
        Effect::FailingOpen if matches!(cause, Cause::Hanging | Cause::Unreachable) => {
            "; writes that match it pass unchecked, after waiting for it"
        }
        Effect::FailingOpen => "; writes that match it pass unchecked",
    };
    let effect = bypassed::rest(verdict).unwrap_or(effect);
    let seems = if verdict.health == Health::Failing {
        ""
    } else {
        "perhaps: "
    };
    let seems = if matches!(cause, Cause::Denying | Cause::Partial | Cause::RolloutGap) {
        ""
    } else {
        seems
    };
    format!("{seems}{who} {what}{effect}.")
}

pub(super) fn view(backend: &Backend, state: &BackendState) -> BackendView {
    let (state, detail) = match state {
        BackendState::Untried { why } => (
            "untried",
            why.clone().unwrap_or_else(|| "not probed yet".to_owned()),
        ),
        BackendState::Alive { took, .. } => ("alive", format!("answered in {}", human(*took))),
        BackendState::Slow { took, .. } => ("slow", format!("answered in {}", human(*took))),
        BackendState::Wavering { detail } => ("wavering", detail.clone()),
        BackendState::Dead(dead) => ("dead", dead.detail.clone()),
    };
    BackendView {
        backend: backend.clone(),
        state,
        detail,
    }
}
