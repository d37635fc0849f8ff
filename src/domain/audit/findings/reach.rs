//! Findings from forecasts: what an outage of webhooks costs the control plane.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::{
    CHAIN_OVER_DEADLINE, CONDITIONS_ERR, CONTROL_PLANE_IN_REACH, FAIL_OPEN_IN_REACH, Finding,
    FindingSeverity, HOOK_LOOP, NODE_RECOVERY_BLOCKED, OWN_PODS_IN_REACH, object,
};
use crate::audit::estate::{Estate, service_key};
use crate::audit::forecast::{Auditor, BackendFailure, Casualty, Forecast};
use crate::audit::patch::scoping;
use crate::audit::reach::Reach;
use crate::audit::{Function, seconds};
use crate::cluster::hook::{FailurePolicy, Hook, HookKind, Labels, NamespacedName};
use crate::cluster::matching::RequestShape;

/// Most Services that are checked for loops: every pair of them is.
const MAX_PLACES: usize = 200;
/// Namespaces of network plugins that do not run in kube-system. A node is not Ready without its network plugin.
const NETWORK_PLUGINS: [&str; 4] = ["calico-system", "tigera-operator", "kube-flannel", "cilium"];
/// Most further Services that a loop's message counts, in addition to the one that it names.
const MAX_PARTNERS: usize = 5;

pub(super) fn of_one(auditor: &Auditor<'_>, at: usize, found: &mut Vec<Finding>) {
    let subject = auditor.subject(at);
    let hook = &subject.hook;
    let all = auditor.forecasts_alone(at);
    let worst = all.iter().find(|forecast| forecast.vital().next().is_some());
    if let Some(worst) = worst {
        let certain = all
            .iter()
            .flat_map(Forecast::vital)
            .any(|casualty| casualty.is_certain);
        let own_only = all
            .iter()
            .flat_map(Forecast::vital)
            .all(|casualty| casualty.what == Function::OwnPods);
        if own_only && !certain && lets_own_pods_by(auditor, at) {
            return nodes_and_errors(auditor, at, found);
        }
        let kind = match (own_only, hook.failure_policy) {
            (true, _) => OWN_PODS_IN_REACH,
            (false, FailurePolicy::Fail) => CONTROL_PLANE_IN_REACH,
            (false, FailurePolicy::Ignore) => FAIL_OPEN_IN_REACH,
        };
        let scoping = scoping(auditor, at);
        let mut message = forecast_sentence(worst);
        if !own_only && worst.failure == BackendFailure::Hang && all[1].vital().next().is_none() {
            message.push_str(" Were its backends refused at once, none of that would happen.");
        }
        match &scoping {
            Some(scoping) => {
                let _ = write!(
                    message,
                    " The patch takes the control plane out of its reach. It no longer reviews {}.",
                    scoping.unreviewed
                );
            }
            None => message.push_str(" No change of its scope alone prevents that: narrow its rules."),
        }
        let finding = Finding::of(kind, subject, message).with(scoping.map(|scoping| scoping.patch));
        found.push(finding.at_most_if(!certain, FindingSeverity::Warning));
    }
    nodes_and_errors(auditor, at, found);
}

/// Whether the webhook probably does not review its own Pods: their labels are unknown, and its `objectSelector` requires a label.
fn lets_own_pods_by(auditor: &Auditor<'_>, at: usize) -> bool {
    let selector = &auditor.subject(at).hook.object_selector;
    auditor.pods[at].is_empty() && !selector.matches(&Labels::new())
}

/// Findings about nodes that cannot join, and about match conditions that err.
fn nodes_and_errors(auditor: &Auditor<'_>, at: usize, found: &mut Vec<Finding>) {
    let subject = auditor.subject(at);
    let hook = &subject.hook;
    let blocked = blocked_nodes(hook, auditor.estate);
    if hook.failure_policy == FailurePolicy::Fail && !blocked.is_empty() {
        let message = format!(
            "While it is down, no node joins or is repaired: {} {} refused. Leave nodes, their certificates and the namespaces of \
             network plugins out.",
            blocked.join(", "),
            if blocked.len() == 1 { "is" } else { "are" },
        );
        found.push(Finding::of(NODE_RECOVERY_BLOCKED, subject, message));
    }
    let errs: BTreeSet<&str> = auditor
        .reaches(at)
        .filter(|(_, reach)| *reach == Reach::Errs)
        .map(|(write, _)| write.name)
        .collect();
    if !errs.is_empty() {
        let names: Vec<&str> = errs.into_iter().take(4).collect();
        let fails = hook.failure_policy == FailurePolicy::Fail;
        let what = if fails {
            "is refused today, whatever state the webhook is in"
        } else {
            "passes it by"
        };
        let message = format!(
            "Its match conditions end in an error for some writes, so that {} {what}. Put has() before each field that may be \
             absent.",
            names.join(", ")
        );
        let finding = Finding::of(CONDITIONS_ERR, subject, message);
        found.push(finding.at_most_if(!fails, FindingSeverity::Info));
    }
}

/// The steps of joining the cluster that are refused to a node while the webhook is down.
fn blocked_nodes(hook: &Hook, estate: &Estate) -> Vec<&'static str> {
    let steps = [
        ("the registration of a node", "CREATE", ["", "nodes", ""]),
        // A new node has a taint that node-controller removes once the node is Ready.
        ("a change of a node's taints", "UPDATE", ["", "nodes", ""]),
        ("the status of a node", "UPDATE", ["", "nodes", "status"]),
        (
            "the certificate request of a node",
            "CREATE",
            ["certificates.k8s.io", "certificatesigningrequests", ""],
        ),
        (
            "the approval of a node's certificate",
            "UPDATE",
            ["certificates.k8s.io", "certificatesigningrequests", "approval"],
        ),
    ];
    if !hook.match_conditions.is_empty() || !hook.object_selector.is_empty() {
        return Vec::new();
    }
    let blocked = steps
        .into_iter()
        .filter(|(_, operation, [group, resource, subresource])| {
            hook.could_match(&RequestShape::new(
                operation,
                [group, "v1", resource, subresource],
            ))
        });
    let makes_plugin = |namespace: &&str| {
        let labels = estate.labels(namespace);
        estate.namespaces.contains_key(*namespace)
            && hook.could_match(&RequestShape {
                namespace: Some(namespace),
                namespace_labels: Some(&labels),
                ..RequestShape::new("CREATE", ["", "v1", "pods", ""])
            })
    };
    let mut plugins = NETWORK_PLUGINS.iter();
    let plugin = plugins.any(makes_plugin);
    let blocked = blocked.map(|(name, ..)| name);
    blocked
        .chain(plugin.then_some("the creation of its network plugin's Pod"))
        .collect()
}

pub(super) fn of_all(auditor: &Auditor<'_>, pause: &dyn Fn(), found: &mut Vec<Finding>) {
    loops(auditor, pause, found);
    together(auditor, pause, found);
}

/// Findings about pairs of webhooks whose Pods cannot start without each other. Webhooks of one Service count as one.
fn loops(auditor: &Auditor<'_>, pause: &dyn Fn(), found: &mut Vec<Finding>) {
    let subjects = &auditor.estate.subjects;
    let places = places(auditor.estate);
    let first_of = |at: usize| service_key(&subjects[at].hook).and_then(|key| places.get(&key).copied());
    let firsts: Vec<usize> = places.values().copied().take(MAX_PLACES).collect();
    let mut asked: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (at, subject) in subjects.iter().enumerate() {
        let first = first_of(at).filter(|_| subject.hook.failure_policy == FailurePolicy::Fail);
        if let Some(first) = first {
            asked.entry(first).or_default().push(at);
        }
    }
    // Whether the Pods of one Service cannot start without another one. Evaluated only for the pairs that are checked.
    let needs = |of: usize, other: usize| {
        let mut hooks = asked.get(&other).into_iter().flatten();
        hooks.any(|at| auditor.reaches_pods_of(*at, of) == Reach::Yes)
    };
    for of in firsts.iter().inspect(|_| pause()) {
        let both = |other: &&usize| *other != of && needs(*of, **other) && needs(**other, *of);
        let in_loop: Vec<usize> = firsts
            .iter()
            .filter(both)
            .take(MAX_PARTNERS + 1)
            .copied()
            .collect();
        let Some(first) = in_loop.first() else { continue };
        let more = match in_loop.len() - 1 {
            0 => String::new(),
            MAX_PARTNERS => format!(", and so is it with {MAX_PARTNERS} others or more"),
            more => format!(", and so is it with {more} others"),
        };
        let message = format!(
            "When the Pods of both are gone, as after a power cut, neither comes back: its Service and that of {} are each asked \
             about the other's Pods{more}. Leave the namespaces of both out of both.",
            object(&subjects[*first]),
        );
        found.push(Finding::of(HOOK_LOOP, &subjects[*of], message));
    }
}

/// Each Service with the index of the first webhook that is called there.
fn places(estate: &Estate) -> BTreeMap<NamespacedName, usize> {
    let mut found = BTreeMap::new();
    for (at, subject) in estate.subjects.iter().enumerate() {
        if let Some(key) = service_key(&subject.hook) {
            found.entry(key).or_insert(at);
        }
    }
    found
}

/// A finding if all webhooks with `failurePolicy: Ignore` together cost a function that no single one of them costs.
fn together(auditor: &Auditor<'_>, pause: &dyn Fn(), found: &mut Vec<Finding>) {
    let subjects = &auditor.estate.subjects;
    let ignored: Vec<usize> = (0..subjects.len())
        .filter(|at| subjects[*at].hook.failure_policy == FailurePolicy::Ignore)
        .collect();
    let Some(all) = auditor.forecast_together(&ignored, BackendFailure::Hang) else {
        return;
    };
    let alone: BTreeSet<Function> = ignored
        .iter()
        .inspect(|_| pause())
        .flat_map(|at| auditor.forecast(*at, BackendFailure::Hang).casualties)
        .map(|casualty| casualty.what)
        .collect();
    let new: Vec<&Casualty> = all
        .casualties
        .iter()
        .filter(|casualty| !alone.contains(&casualty.what))
        .collect();
    let Some(first) = new.first() else { return };
    let slowest = ignored.iter().max_by_key(|at| {
        let hook = &subjects[**at].hook;
        (hook.id.kind == HookKind::Mutating, hook.timeout)
    });
    let Some(slowest) = slowest else { return };
    let lost: Vec<&str> = new.iter().map(|casualty| casualty.what.as_str()).collect();
    let message = format!(
        "Failures of {} webhooks are ignored, and each call of them is still waited for. When the path to all of them is lost at \
         once, {}: {} is lost after {} s at the earliest. Give each a timeoutSeconds of 1 to 3, the longest first.",
        ignored.len(),
        first.why,
        lost.join(", "),
        seconds(first.after[0]),
    );
    found.push(Finding::of(CHAIN_OVER_DEADLINE, &subjects[*slowest], message));
}

/// A sentence about the functions that are lost, the soonest first.
pub fn forecast_sentence(forecast: &Forecast) -> String {
    let how = match forecast.failure {
        BackendFailure::Hang => "hang",
        BackendFailure::Refuse => "refuse connections",
        BackendFailure::Slow => "answer just before the timeout",
    };
    let lost = forecast.casualties.iter().map(|casualty| {
        let [earliest, latest] = casualty.after.map(seconds);
        let may = if casualty.is_certain { "" } else { ", perhaps" };
        format!(
            "{} after {earliest} to {latest} s{may} ({})",
            casualty.what.as_str(),
            casualty.why
        )
    });
    let lost: Vec<String> = lost.collect();
    if lost.is_empty() {
        return format!("If its backends {how}, nothing is lost.");
    }
    format!("If its backends {how}, these are lost: {}.", lost.join("; "))
}
