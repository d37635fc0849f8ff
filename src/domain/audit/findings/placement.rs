//! Findings about the nodes and zones that the Pods of a webhook are on. Only for clusters, not for manifests.

use std::collections::BTreeSet;
use std::time::Duration;

use super::backends::fails;
use super::{Finding, FindingSeverity, NODES_GOING, ONE_NODE, ONE_ZONE};
use crate::audit::estate::AuditedHook;
use crate::audit::forecast::{Auditor, zone};
use crate::cluster::hook::{Endpoint, FailurePolicy};
use crate::cluster::inventory::{NodeTrouble, Sign};
use crate::time::Time;

/// How long a Pod tolerates a NotReady node by default (kube-apiserver 1.36, `--default-not-ready-toleration-seconds`).
const TOLERATED: Duration = Duration::from_secs(300);

pub(super) fn of_one(auditor: &Auditor<'_>, at: usize, found: &mut Vec<Finding>) {
    let subject = auditor.subject(at);
    let (living, Some(nodes)) = (subject.hook.living(), subject.hook.nodes()) else {
        return;
    };
    let going: Option<Vec<(&str, Sign)>> = nodes
        .iter()
        .map(|node| Some((*node, auditor.estate.nodes.get(*node)?.trouble()?)))
        .collect();
    if let Some(going) = going {
        found.push(going_away(auditor, subject, &living, &going));
    } else if !living.iter().any(|endpoint| endpoint.ready) || living.len() < 2 {
        // ONE_REPLICA and NO_ENDPOINTS cover a single Pod and Pods that are not ready.
    } else if let (1, Some(node)) = (nodes.len(), nodes.first()) {
        let message = format!(
            "{} on node {node:?}: the webhook goes with it. Spread its Pods with podAntiAffinity or topologySpreadConstraints.",
            all_are(&living)
        );
        found.push(Finding::of(ONE_NODE, subject, message));
    } else if let Some(zone) = only_zone(auditor, &living)
        && auditor.zones.len() > 1
    {
        let message = format!(
            "{} in zone {zone:?}: the webhook goes with it. Spread its Pods with topologySpreadConstraints over zones.",
            all_are(&living)
        );
        found.push(Finding::of(ONE_ZONE, subject, message));
    }
}

/// The finding that every node with one of the webhook's endpoints will soon lose its Pods.
fn going_away(
    auditor: &Auditor<'_>,
    subject: &AuditedHook,
    living: &[&Endpoint],
    going: &[(&str, Sign)],
) -> Finding {
    let told = going.iter().map(|(node, sign)| {
        let since = sign
            .since
            .map_or_else(String::new, |since| format!(" since {since}"));
        format!("{node:?}, which {}{since}", sign.trouble.words())
    });
    let told: Vec<String> = told.collect();
    let all = all_are(living);
    let several = going.len() > 1;
    let place = match only_zone(auditor, living).filter(|_| several) {
        Some(zone) => format!("{all} in zone {zone:?}, on nodes {}", told.join("; ")),
        None if several => format!("{all} on nodes {}", told.join("; ")),
        None => format!("{all} on node {}", told.join("; ")),
    };
    // The webhook is lost when the last of its nodes is.
    let since = going.iter().map(|(_, sign)| sign.since).max().flatten();
    let message = format!(
        "{place}. {} Once they are gone, {}. Restart its workload now with `kubectl rollout restart`: new Pods start on other \
         nodes.",
        next(going, since),
        fails(subject)
    );
    let finding = Finding {
        since,
        ..Finding::of(NODES_GOING, subject, message)
    };
    let ignored = subject.hook.failure_policy == FailurePolicy::Ignore;
    finding.at_most_if(ignored, FindingSeverity::Warning)
}

/// What happens next to the Pods on these nodes, and when, as a sentence.
fn next(going: &[(&str, Sign)], since: Option<Time>) -> String {
    let last = going.iter().map(|(_, sign)| sign.trouble).max();
    match last {
        Some(NodeTrouble::NotReady | NodeTrouble::LeaseLate) => match since {
            Some(since) => format!(
                "Their Pods are replaced elsewhere at {} at the earliest, unless they tolerate it for another time than 5 minutes.",
                since + TOLERATED
            ),
            None => {
                "Their Pods are replaced elsewhere after 5 minutes, unless they tolerate it for another time."
                    .to_owned()
            }
        },
        Some(NodeTrouble::OutOfMemory | NodeTrouble::OutOfDisk | NodeTrouble::OutOfProcesses) => {
            "The kubelet evicts Pods, and none can start there.".to_owned()
        }
        _ => "Their Pods are evicted next, and none can start there.".to_owned(),
    }
}

/// The zone of all endpoints; `None` if there are several, or one endpoint's zone is unknown.
fn only_zone<'a>(auditor: &'a Auditor<'_>, living: &[&'a Endpoint]) -> Option<&'a str> {
    let zones: Option<BTreeSet<&str>> = living
        .iter()
        .map(|endpoint| zone(auditor.estate, endpoint))
        .collect();
    let zones = zones.filter(|zones| zones.len() == 1)?;
    zones.first().copied()
}

/// The beginning of a sentence about where all endpoints are.
fn all_are(living: &[&Endpoint]) -> String {
    let ready = if living.iter().any(|endpoint| endpoint.ready) {
        "ready "
    } else {
        ""
    };
    match living.len() {
        1 => format!("The only {ready}endpoint is"),
        2 => format!("Both {ready}endpoints are"),
        all => format!("All {all} {ready}endpoints are"),
    }
}
