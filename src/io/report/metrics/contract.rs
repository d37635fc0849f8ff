//! What can be relied on of the metrics: which there are, in which unit, and which values their labels can have.
//!
//! What there is comes from what is registered. Only the values of labels have to be said here, once per label, and
//! `docs/metrics.md` is made from both.

use strum::VariantNames as _;

use super::alertmanager::Dropped;
use super::breaker::{ACTIONS, OUTCOMES};
use super::hooks::MAX_HOOKS;
use super::make::SECONDS;
use super::probes::{MAX_OUTCOMES, OTHER};
use super::{Loss, Signal};
use crate::domain::act::breaker::{HeldBack, HookState, Rung};
use crate::domain::act::fence::AutoBreak;
use crate::domain::act::leadership::{LeadershipObject, ReplicaRole};
use crate::domain::audit::standing::MAX_FINDINGS;
use crate::domain::audit::{FindingSeverity, findings};
use crate::domain::cluster::hook::HookKind;
use crate::domain::observe::canary::{CanaryOutcome, CanaryTarget, MAX_FURTHER};
use crate::domain::observe::probe::{ConnectionKind, ProbeOutcome, ProbePhase};
use crate::domain::observe::readiness::MAX_FAILING;
use crate::domain::observe::snapshot::ScrapeFailureReason;
use crate::domain::vocabulary::{BackendHealth, Cause, Effect, Health, NotAHook, Writes};
use crate::io::report::alertmanager::{MAX_ALERTMANAGERS, PushError};
use crate::io::report::events::EventOutcome;

/// API servers that are told apart at most.
const MAX_TARGETS: usize = 64;

/// One metric as it was registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declared {
    /// The whole name. A histogram's series end in `_bucket`, `_sum` and `_count` beside.
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// What it means, as a sentence.
    pub help: String,
    /// The names of its labels.
    pub labels: Vec<String>,
}

/// The values that a label can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bound {
    /// These and no others.
    OneOf(Vec<&'static str>),
    /// Names from outside, of which there are at most so many.
    AtMost(usize, &'static str),
    /// Part of a hook's identity: kind, configuration and webhook together are bounded.
    Hook(&'static str),
}

impl Declared {
    /// The unit: what the name says, as Prometheus wants it.
    pub fn unit(&self) -> &'static str {
        let name = self.name.strip_suffix("_total").unwrap_or(&self.name);
        if name.ends_with("_timestamp_seconds") {
            "seconds since the epoch"
        } else if name.ends_with("_seconds") {
            "seconds"
        } else if name.ends_with("_bytes") {
            "bytes"
        } else if name.ends_with("_ratio") {
            "0 to 1"
        } else {
            "number"
        }
    }

    /// The names of its series.
    pub fn samples(&self) -> Vec<String> {
        match self.kind {
            "histogram" => ["_bucket", "_sum", "_count"]
                .map(|ending| format!("{}{ending}", self.name))
                .to_vec(),
            _ => vec![self.name.clone()],
        }
    }

    /// What values one of its labels can have; `None` for a label that nobody has bounded, which is a mistake.
    pub fn bound(&self, label: &str) -> Option<Bound> {
        bound(&self.name, label)
    }

    /// Whether each hook has series of its own.
    pub fn is_per_hook(&self) -> bool {
        self.labels.iter().any(|label| label == "webhook")
    }

    /// How many series one hook has of it at most.
    fn per_hook(&self) -> Option<usize> {
        Some(match self.name.as_str() {
            // A hook has one health and one cause at a time.
            "hookwatch_hook_health" | "hookwatch_hook_cause" => 1,
            "hookwatch_probes_total" => MAX_OUTCOMES + ConnectionKind::ALL.len(),
            _ => self.product(|label| !matches!(self.bound(label), Some(Bound::Hook(_))))?,
        })
    }

    /// How many series there are of it at most; `None` when a label has no bound.
    pub fn most_series(&self) -> Option<usize> {
        if self.name == "hookwatch_hook_risk" {
            // All of them together are bounded.
            return Some(MAX_FINDINGS);
        }
        let combinations = match self.is_per_hook() {
            // Beyond the bound hooks are counted together, by kind.
            true if self.kind == "counter" => {
                self.per_hook()? * MAX_HOOKS
                    + self.product(|label| !matches!(label, "configuration" | "webhook"))?
            }
            true => self.per_hook()? * MAX_HOOKS,
            false => self.product(|_| true)?,
        };
        Some(match self.kind {
            // Each edge and infinity, the sum and the count.
            "histogram" => combinations * (SECONDS.len() + 3),
            _ => combinations,
        })
    }

    fn product(&self, of: impl Fn(&str) -> bool) -> Option<usize> {
        let labels = self.labels.iter().filter(|label| of(label));
        labels
            .map(|label| match self.bound(label)? {
                Bound::OneOf(values) => Some(values.len()),
                Bound::AtMost(most, _) => Some(most),
                Bound::Hook(_) if label == "kind" => Some(KINDS.len()),
                Bound::Hook(_) => None,
            })
            .product()
    }
}

const KINDS: [HookKind; 4] = [
    HookKind::Mutating,
    HookKind::Validating,
    HookKind::Conversion,
    HookKind::Aggregated,
];

/// How probes that are answered can end.
const ANSWERED: [&str; 4] = [
    "answered",
    "discovery_refused",
    "review_refused",
    "not_an_admission_review",
];

fn bound(metric: &str, label: &str) -> Option<Bound> {
    let metric = metric.strip_prefix("hookwatch_").unwrap_or(metric);
    names_from_outside(metric, label).or_else(|| closed_set(metric, label).map(Bound::OneOf))
}

/// What is known of a label whose values come from the cluster: how many there can be.
fn names_from_outside(metric: &str, label: &str) -> Option<Bound> {
    Some(match (metric, label) {
        (_, "configuration") => Bound::Hook("the object's name; empty when no object has the webhook"),
        (_, "webhook") => Bound::Hook("the webhook's name"),
        (_, "incident") => Bound::Hook(
            "where its calls go, or `lost path` where all webhooks became unreachable in one moment; webhooks that fail and have this in \
             common are one incident",
        ),
        (_, "kind") => Bound::Hook("mutating, validating, conversion or aggregated"),
        (_, "target") => Bound::AtMost(MAX_TARGETS, "addresses of API servers"),
        ("api_server_info", "version") => Bound::AtMost(1, "release of that API server"),
        (_, "version") => Bound::AtMost(1, "release of hookwatch"),
        (_, "check") => Bound::AtMost(MAX_FAILING, "checks of /readyz"),
        (_, "alertmanager") => Bound::AtMost(MAX_ALERTMANAGERS, "host, port and path of an Alertmanager"),
        (_, "canary") => Bound::AtMost(
            CanaryTarget::ALL.len() + MAX_FURTHER,
            "`own_namespace`, `kube_system`, `node_lease`, and the names in `canaries.further`",
        ),
        _ => return None,
    })
}

/// All values of any other label.
fn closed_set(metric: &str, label: &str) -> Option<Vec<&'static str>> {
    Some(match (metric, label) {
        ("not_a_hook", "cause") => all_of(NotAHook::ALL),
        (_, "cause") => all_of(Cause::ALL),
        (_, "effect") => all_of(Effect::ALL),
        (_, "health") => all_of(Health::ALL),
        ("hook_backends", "state") => all_of(BackendHealth::ALL),
        ("breaker_hooks", "state") => HookState::VARIANTS.to_vec(),
        ("breaker_held_back_total" | "breaker_held_back", "reason") => all_of(HeldBack::ALL),
        ("breaker_actions_total", "outcome") => OUTCOMES.to_vec(),
        (_, "action") => ACTIONS.to_vec(),
        (_, "rung") => all_of(Rung::ALL),
        (_, "state") => all_of(Writes::ALL),
        (_, "risk") => findings::KINDS.iter().map(|kind| kind.id).collect(),
        ("hook_risk", "severity") => vec!["critical", "warning"],
        (_, "severity") => all_of(&FindingSeverity::ALL),
        ("alertmanager_pushes_failed_total", "reason") => PushError::REASONS.to_vec(),
        ("alertmanager_alerts_dropped_total", "reason") => all_of(Dropped::ALL),
        (_, "signal") => all_of(Signal::ALL),
        ("telemetry_dropped_total", "reason") => all_of(Loss::ALL),
        (_, "certificate") => vec!["served", "ca"],
        (_, "connection") => all_of(ConnectionKind::ALL),
        ("probes_total", "outcome") => [&ANSWERED[..], &ProbeOutcome::VARIANTS[1..], &[OTHER]].concat(),
        ("canaries_total", "outcome") => CanaryOutcome::VARIANTS.to_vec(),
        ("events_total", "outcome") => all_of(EventOutcome::ALL),
        (_, "phase") => all_of(&ProbePhase::ALL),
        (_, "result") => [all_of(ScrapeFailureReason::ALL), vec!["success"]].concat(),
        (_, "answers") => vec!["yes", "no"],
        (_, "mode") => all_of(AutoBreak::ALL),
        (_, "by") => all_of(LeadershipObject::ALL),
        (_, "role") => all_of(ReplicaRole::ALL),
        _ => return None,
    })
}

/// What these are called in labels.
fn all_of<T: Copy + Into<&'static str>>(all: &[T]) -> Vec<&'static str> {
    all.iter().map(|it| (*it).into()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::observe::probe::ProbeAnswer;
    use crate::io::report::metrics::Metrics;

    #[test]
    fn every_label_of_every_metric_is_bounded() {
        let metrics = Metrics::new().unwrap();
        for declared in metrics.declared() {
            for label in &declared.labels {
                assert!(
                    declared.bound(label).is_some(),
                    "say in src/io/report/metrics/contract.rs what values {label} of {} can have",
                    declared.name
                );
            }
            assert!(declared.most_series().is_some(), "{}", declared.name);
        }
    }

    #[test]
    fn names_end_as_their_kind_demands_and_helps_are_sentences() {
        let metrics = Metrics::new().unwrap();
        for declared in metrics.declared() {
            let is_counter = declared.kind == "counter";
            assert_eq!(declared.name.ends_with("_total"), is_counter, "{}", declared.name);
            assert!(declared.help.ends_with('.'), "{}", declared.name);
            assert_ne!(declared.kind, "untyped", "{}", declared.name);
        }
    }

    #[test]
    fn no_probe_ends_in_a_way_that_is_not_listed() {
        let why = String::new();
        let answered = [
            ProbeAnswer::Handshake,
            ProbeAnswer::Discovery { status: 500 },
            ProbeAnswer::ReviewRefused { status: 500 },
            ProbeAnswer::NotAnAdmissionReview { why },
        ];
        let answered = answered.map(|answer| ProbeOutcome::Answered(answer).as_str());
        assert_eq!(answered, ANSWERED);
        assert_eq!(ProbeOutcome::VARIANTS[0], "answered");
    }
}
