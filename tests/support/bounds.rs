//! The guarantees of the metrics: the unit of each, the possible values of its labels, and so its maximum number of series.
//!
//! The metrics come from the registry. Only the values of labels are declared here, once per label. `docs/metrics.md` is
//! generated from both.

use hookwatch::domain::act::breaker::{HeldBack, HookState, Rung};
use hookwatch::domain::act::fence::AutoBreak;
use hookwatch::domain::act::leadership::{LeadershipObject, ReplicaRole};
use hookwatch::domain::audit::periodic::MAX_FINDINGS;
use hookwatch::domain::audit::{FindingSeverity, findings};
use hookwatch::domain::cluster::hook::HookKind;
use hookwatch::domain::observe::canary::{CanaryOutcome, CanaryTarget, MAX_FURTHER};
use hookwatch::domain::observe::probe::{ConnectionKind, ProbeOutcome, ProbePhase};
use hookwatch::domain::observe::readiness::MAX_FAILING;
use hookwatch::domain::observe::snapshot::ScrapeFailureReason;
use hookwatch::domain::vocabulary::{BackendHealth, Cause, Effect, Health, NotAHook, Writes};
use hookwatch::io::endpoint::EndpointError;
use hookwatch::io::report::alertmanager::MAX_ALERTMANAGERS;
use hookwatch::io::report::events::EventOutcome;
use hookwatch::io::report::metrics::{Declared, Dropped, Loss, MAX_HOOKS, MAX_OUTCOMES, SECONDS, Signal};
use strum::VariantNames as _;

/// Most API servers that are distinguished.
const MAX_TARGETS: usize = 64;

/// The values that a label can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bound {
    /// These and no others.
    OneOf(Vec<&'static str>),
    /// Names from outside, with their maximum number and a description.
    AtMost(usize, &'static str),
    /// Part of a hook's identity: kind, configuration and webhook together are bounded.
    Hook(&'static str),
}

/// The unit, from the metric's name by the conventions of Prometheus.
pub fn unit(declared: &Declared) -> &'static str {
    let name = declared.name.strip_suffix("_total").unwrap_or(&declared.name);
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

/// The names of the metric's samples.
pub fn samples(declared: &Declared) -> Vec<String> {
    match declared.kind {
        "histogram" => ["_bucket", "_sum", "_count"]
            .map(|ending| format!("{}{ending}", declared.name))
            .to_vec(),
        _ => vec![declared.name.clone()],
    }
}

/// The possible values of a label; `None` for an unbounded label, which is a mistake.
pub fn bound(declared: &Declared, label: &str) -> Option<Bound> {
    let metric = &declared.name;
    let metric = metric.strip_prefix("hookwatch_").unwrap_or(metric);
    names_from_outside(metric, label).or_else(|| closed_set(metric, label).map(Bound::OneOf))
}

/// Whether each hook has its own series.
pub fn is_per_hook(declared: &Declared) -> bool {
    declared.labels.iter().any(|label| label == "webhook")
}

/// The maximum number of series of one hook.
fn per_hook(declared: &Declared) -> Option<usize> {
    Some(match declared.name.as_str() {
        // A hook has one health and one cause at a time.
        "hookwatch_hook_health" | "hookwatch_hook_cause" => 1,
        "hookwatch_probes_total" => MAX_OUTCOMES + ConnectionKind::ALL.len(),
        _ => product(declared, |label| {
            !matches!(bound(declared, label), Some(Bound::Hook(_)))
        })?,
    })
}

/// The maximum number of series; `None` when a label is unbounded.
pub fn most_series(declared: &Declared) -> Option<usize> {
    if declared.name == "hookwatch_hook_risk" {
        // The number of findings is bounded as a whole.
        return Some(MAX_FINDINGS);
    }
    let combinations = match is_per_hook(declared) {
        // Above the limit, hooks are counted together by kind.
        true if declared.kind == "counter" => {
            per_hook(declared)? * MAX_HOOKS
                + product(declared, |label| !matches!(label, "configuration" | "webhook"))?
        }
        true => per_hook(declared)? * MAX_HOOKS,
        false => product(declared, |_| true)?,
    };
    Some(match declared.kind {
        // A bucket for each edge and infinity, the sum and the count.
        "histogram" => combinations * (SECONDS.len() + 3),
        _ => combinations,
    })
}

fn product(declared: &Declared, of: impl Fn(&str) -> bool) -> Option<usize> {
    let labels = declared.labels.iter().filter(|label| of(label));
    labels
        .map(|label| match bound(declared, label)? {
            Bound::OneOf(values) => Some(values.len()),
            Bound::AtMost(most, _) => Some(most),
            Bound::Hook(_) if label == "kind" => Some(KINDS.len()),
            Bound::Hook(_) => None,
        })
        .product()
}

const KINDS: [HookKind; 4] = [
    HookKind::Mutating,
    HookKind::Validating,
    HookKind::Conversion,
    HookKind::Aggregated,
];

/// The outcomes of answered probes.
pub const ANSWERED: [&str; 4] = [
    "answered",
    "discovery_refused",
    "review_refused",
    "not_an_admission_review",
];

/// The bound of a label whose values come from the cluster.
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
        ("breaker_actions_total", "outcome") => {
            vec!["applied", "conflict", "gave_up", "gone", "refused", "unclear"]
        }
        (_, "action") => vec!["bypass", "probation", "restore"],
        (_, "rung") => all_of(Rung::ALL),
        (_, "state") => all_of(Writes::ALL),
        (_, "risk") => findings::KINDS.iter().map(|kind| kind.id).collect(),
        ("hook_risk", "severity") => vec!["critical", "warning"],
        (_, "severity") => all_of(&FindingSeverity::ALL),
        ("alertmanager_pushes_failed_total", "reason") => EndpointError::REASONS.to_vec(),
        ("alertmanager_alerts_dropped_total", "reason") => all_of(Dropped::ALL),
        (_, "signal") => all_of(Signal::ALL),
        ("telemetry_dropped_total", "reason") => all_of(Loss::ALL),
        (_, "certificate") => vec!["served", "ca"],
        (_, "connection") => all_of(ConnectionKind::ALL),
        ("probes_total", "outcome") => [&ANSWERED[..], &ProbeOutcome::VARIANTS[1..], &["other"]].concat(),
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

/// The label values of these.
fn all_of<T: Copy + Into<&'static str>>(all: &[T]) -> Vec<&'static str> {
    all.iter().map(|it| (*it).into()).collect()
}
