//! Verdicts on hooks beside admission in words, which say whom it concerns and whom not.

use super::{Conversions, OtherCase, Theirs};
use crate::domain::hook::{HookKind, OtherKind, Target};
use crate::domain::judge::structural_of;
use crate::domain::judge::witnesses::Probes;
use crate::domain::judge::words::without_backends;
use crate::domain::verdict::{Cause, Effect, Health, human, human_seconds};

/// Versions told one by one; the rest is a number.
const TOLD: usize = 4;

pub(super) fn summary(case: &OtherCase<'_>, health: Health, cause: Option<Cause>, effect: Effect) -> String {
    let who = match case.kind {
        HookKind::Conversion => format!("The conversion webhook of {}", case.name),
        _ => format!("The aggregated API {}", case.name),
    };
    let Some(cause) = cause else {
        return match health {
            Health::Healthy => format!("{who} is healthy."),
            _ => format!("{who}: not enough is known to tell."),
        };
    };
    let what = match cause {
        Cause::Slow => "answers late",
        // A rollout gap and a stale connection are told of admission hooks only, whose calls are counted.
        Cause::Hanging | Cause::StaleConnection => "does not answer",
        Cause::Refused => "refuses connections",
        Cause::NoEndpoints => "has no ready endpoint",
        Cause::NoService => "has no Service to be called at",
        Cause::Erroring | Cause::FailingOpen | Cause::Denying => "answers with errors",
        Cause::TlsInvalid => "fails the TLS handshake under its own caBundle",
        Cause::Partial | Cause::RolloutGap => "has bad backends among good ones",
        Cause::Unreachable => "cannot be reached",
    };
    let effect = match (effect, case.kind) {
        (Effect::None | Effect::FailingOpen, _) => "",
        (Effect::Blocking, HookKind::Conversion) => {
            "; reads and writes of this resource in another version than the stored one fail"
        }
        (Effect::Delaying, HookKind::Conversion) => {
            "; reads and writes of this resource in another version than the stored one are slow"
        }
        (Effect::Blocking, _) => "; requests for this group and version fail",
        (Effect::Delaying, _) => "; requests for this group and version are slow",
    };
    let seems = match (health, cause) {
        (Health::Failing, _) | (_, Cause::Partial) => "",
        _ => "perhaps: ",
    };
    format!("{seems}{who} {what}{effect}.")
}

pub(super) fn evidence(
    case: &OtherCase<'_>,
    probes: &Probes<'_>,
    theirs: &Theirs,
    cause: Option<Cause>,
    effect: Effect,
) -> Vec<String> {
    let mut said = Vec::new();
    if let Some(counted) = theirs.counted {
        said.push(counted.sentence(case.name));
    }
    said.extend(aggregator(case, theirs));
    let target = case.hook.map(|hook| &hook.target);
    match (case.hook.and_then(structural_of), target) {
        (Some(_), Some(Target::Service(target))) => said.push(without_backends(target)),
        _ => said.extend(probes.sentences()),
    }
    if cause.is_some() && effect != Effect::None {
        said.extend(concerned(case));
    }
    if case.self_doubt && cause.is_some() {
        said.push("Probes of every hook fail at once: hookwatch's own network may be at fault.".to_owned());
    }
    if case.hook.is_none() {
        said.push(format!(
            "No {} of this name that hookwatch can read is served by a hook.",
            case.kind.configuration_kind()
        ));
    }
    said
}

impl Conversions {
    fn sentence(&self, crd: &str) -> String {
        let span = human(self.to.since(self.from));
        let each = |mean: Option<f64>| {
            mean.map_or_else(String::new, |mean| format!(", {} each", human_seconds(mean)))
        };
        let (succeeded, failed) = (&self.series.succeeded, &self.series.failed);
        if failed.count >= 1.0 {
            return format!(
                "The API server counted {:.0} failed conversions of {crd} of {:.0} in {span}{}.",
                failed.count,
                failed.count + succeeded.count,
                each(failed.mean())
            );
        }
        format!(
            "The API server counted {:.0} conversions of {crd} in {span}{}.",
            succeeded.count,
            each(succeeded.mean())
        )
    }
}

/// What the API server's own aggregator says.
fn aggregator(case: &OtherCase<'_>, theirs: &Theirs) -> Vec<String> {
    let mut said = Vec::new();
    if let Some(available) = case.available() {
        let since = available.since.map_or_else(String::new, |since| {
            format!(" for {}", human(case.now.since(since)))
        });
        let told = match available.status {
            Some(true) => "available",
            Some(false) => "not available",
            None => "not known to be available",
        };
        let why = match available.status {
            Some(true) => String::new(),
            _ => format!(
                ", {}: {}",
                available.reason,
                available.message.trim_end_matches('.')
            ),
        };
        said.push(format!(
            "The API server's own aggregator has called it {told}{since}{why}."
        ));
    }
    if theirs.unavailable >= 1.0 {
        said.push(format!(
            "The metrics of {:.0} API server{} say that it is not available.",
            theirs.unavailable,
            if theirs.unavailable > 1.5 { "s" } else { "" }
        ));
    }
    if theirs.became_unavailable >= 2.0 {
        said.push(format!(
            "It became unavailable {:.0} times within a minute.",
            theirs.became_unavailable
        ));
    }
    said
}

/// Whom it concerns.
fn concerned(case: &OtherCase<'_>) -> Option<String> {
    Some(match case.hook?.other.as_ref()? {
        OtherKind::Conversion(conversion) => {
            let mut others: Vec<&str> = conversion.others.iter().take(TOLD).map(String::as_str).collect();
            let further = format!("{} more", conversion.others.len().saturating_sub(TOLD));
            if conversion.others.len() > TOLD {
                others.push(&further);
            }
            let others = match others.as_slice() {
                [] => "in another version".to_owned(),
                others => format!("in {}", others.join(", ")),
            };
            format!(
                "It concerns {} in group {} only: GET, watch and writes {others}, LIST once an object changes (until \
                 then the API server has them converted), and objects that are not stored as {}.",
                conversion.resource, conversion.group, conversion.stored
            )
        }
        OtherKind::Aggregated(aggregated) => format!(
            "It concerns {}/{} only; but whoever needs complete discovery suffers with it: the deletion of \
             namespaces, resource quota and garbage collection.",
            aggregated.group, aggregated.version
        ),
    })
}

/// What a person would do next, in one sentence.
pub(super) const fn advice(kind: HookKind, cause: Cause) -> &'static str {
    match (cause, kind) {
        (Cause::Slow, _) => "Look at its server's own CPU, memory and what it calls.",
        (Cause::Hanging | Cause::StaleConnection, _) => "Restart its pods; it cannot be bypassed.",
        (Cause::Refused, _) => {
            "Start its server: its pods are addressed but nobody listens on the port. It cannot be bypassed."
        }
        (Cause::NoEndpoints, _) => "Bring up a ready pod behind its Service. It cannot be bypassed.",
        (Cause::NoService, HookKind::Conversion) => {
            "Create the Service. Never delete the CustomResourceDefinition: all its objects would go with it."
        }
        (Cause::NoService, _) => "Create the Service, or delete the APIService if it was left behind.",
        (Cause::Erroring | Cause::FailingOpen | Cause::Denying, HookKind::Conversion) => {
            "Read its server's own log: it answers, but not with a usable ConversionReview."
        }
        (Cause::Erroring | Cause::FailingOpen | Cause::Denying, _) => {
            "Read its server's own log: it answers, but not with its discovery document."
        }
        (Cause::TlsInvalid, _) => {
            "Renew the serving certificate, or put the authority that signed it into caBundle."
        }
        (Cause::Partial | Cause::RolloutGap, _) => {
            "Replace the bad backends before the API server picks one of them."
        }
        (Cause::Unreachable, _) => "Look at routes, firewall and DNS between the control plane and its pods.",
    }
}
