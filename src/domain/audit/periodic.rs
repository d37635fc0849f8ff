//! The periodic audit that a daemon makes of its own inventory and observations.
//!
//! An audit takes too long to run between two observations, so the core requests it ([`AuditRequest`]), another thread runs it,
//! and the findings come back as an observation. The result depends only on the request.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::estate::{AuditedHook, Estate};
use super::findings::{self, Finding, FindingSeverity, KINDS};
use super::forecast::Auditor;
use crate::cluster::hook::{Hook, HookId, MatchCondition};
use crate::cluster::inventory::{Inventory, NodeTrouble, Sign};
use crate::time::Time;

/// Most findings that are published.
pub const MAX_FINDINGS: usize = 500;
/// Most bytes of messages, object names and patches that are published.
const MAX_BYTES: usize = 512 * 1_024;

/// What probes, canaries, metrics and Leases showed about the audited webhooks and nodes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AuditEvidence {
    /// Webhooks whose selectors or conditions treat hookwatch's canaries differently from the same writes by others.
    pub distinguishes_canaries: BTreeSet<HookId>,
    /// Of the certificates that a webhook's backends serve, the end and the beginning of validity of the one that expires first.
    pub served_until: BTreeMap<HookId, (Time, Option<Time>)>,
    /// Webhooks whose `caBundle` verified the certificate that a backend serves.
    pub trusted: BTreeSet<HookId>,
    /// Nodes whose Lease is late, with the time of the last observed renewal.
    pub late_nodes: BTreeMap<String, Time>,
    /// Median seconds of a webhook's calls by its baseline, rounded down; absent where calls are fast.
    pub usual_seconds: BTreeMap<HookId, f64>,
}

/// The input of an audit.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditRequest {
    /// The webhooks and their backends.
    pub inventory: Arc<Inventory>,
    /// What was observed about them.
    pub evidence: AuditEvidence,
    /// When the audit was requested.
    pub at: Time,
}

/// The result of one audit.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditResult {
    /// When the audit was requested.
    pub at: Time,
    /// Wall-clock duration, including the pauses.
    pub took: Duration,
    /// All findings, without the limit of [`MAX_FINDINGS`].
    pub findings: Vec<Finding>,
}

impl AuditRequest {
    /// Runs the audit. It takes seconds for thousands of webhooks, so it calls `pause` at least once per webhook.
    pub fn run(&self, pause: &dyn Fn()) -> Vec<Finding> {
        let estate = self.estate();
        let mut found = findings::audit_pausing(&Auditor::pausing(&estate, pause), pause);
        for finding in &mut found {
            let hook = finding.hook.as_ref().and_then(|id| self.inventory.hook(id));
            // No patches while a webhook is bypassed: one that replaces its match conditions would remove the bypass.
            if hook.is_some_and(|hook| hook.match_conditions.iter().any(MatchCondition::is_ours)) {
                finding.patch = None;
            }
        }
        found
    }

    /// The inventory as an audit reads it, without hookwatch's match conditions. A failurePolicy or timeoutSeconds that
    /// `break --rung ignore` has set is audited as it stands.
    fn estate(&self) -> Estate {
        let admission = self.inventory.hooks.iter();
        let admission = admission.filter(|hook| hook.id.kind.is_admission());
        let mut subjects: Vec<AuditedHook> = admission
            .map(|hook| AuditedHook {
                hook: without_bypass(hook),
                source: None,
            })
            .collect();
        subjects.sort_by_cached_key(AuditedHook::order);
        let mut nodes = self.inventory.nodes.clone();
        // Also for nodes that are not in the inventory: without permission to list nodes, Leases are all there is.
        for (node, since) in &self.evidence.late_nodes {
            nodes.entry(node.clone()).or_default().signs.push(Sign {
                trouble: NodeTrouble::LeaseLate,
                since: Some(*since),
            });
        }
        // A daemon watches no workloads and no disruption budgets; a hook's Service is part of its target.
        Estate {
            subjects,
            namespaces: self.inventory.namespaces.clone(),
            nodes,
            is_cluster: true,
            at: Some(self.at),
            evidence: self.evidence.clone(),
            ..Estate::default()
        }
    }
}

/// The webhook without hookwatch's own match conditions: findings are about what its owner wrote.
fn without_bypass(hook: &Arc<Hook>) -> Arc<Hook> {
    if !hook.match_conditions.iter().any(MatchCondition::is_ours) {
        return Arc::clone(hook);
    }
    let mut own = Hook::clone(hook);
    own.match_conditions.retain(|condition| !condition.is_ours());
    Arc::new(own)
}

/// The published part of the last audit's result.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct PublishedFindings {
    /// When the audit was requested; `None` before the first result.
    pub at: Option<Time>,
    /// Critical findings, including those beyond [`MAX_FINDINGS`].
    pub critical: usize,
    /// Warnings, including those beyond [`MAX_FINDINGS`].
    pub warning: usize,
    /// Findings worth knowing, including those beyond [`MAX_FINDINGS`].
    pub info: usize,
    /// The worst first, at most [`MAX_FINDINGS`].
    pub findings: Vec<Finding>,
}

impl PublishedFindings {
    /// Sorts the findings, the worst first, and cuts them to [`MAX_FINDINGS`] and a bounded size.
    pub fn of(result: AuditResult) -> Self {
        let mut findings = result.findings;
        let count = |severity| findings.iter().filter(|found| found.severity == severity).count();
        let (critical, warning, info) = (
            count(FindingSeverity::Critical),
            count(FindingSeverity::Warning),
            count(FindingSeverity::Info),
        );
        // The limits below cut off the mildest findings and, within a severity, the kinds that KINDS lists last.
        let rank = |finding: &Finding| KINDS.iter().position(|kind| *kind == finding.kind);
        findings
            .sort_by_cached_key(|finding| (Reverse(finding.severity), rank(finding), finding.object.clone()));
        findings.truncate(MAX_FINDINGS);
        let mut left = MAX_BYTES;
        findings.retain(|finding| {
            let patch = finding.patch.as_ref().map_or(0, |patch| patch.to_string().len());
            let bytes = finding.message.len() + finding.object.len() + patch;
            let rest = left.checked_sub(bytes);
            // After the first that does not fit all others are dropped, too: none may overtake a more severe one.
            left = rest.unwrap_or(0);
            rest.is_some()
        });
        Self {
            at: Some(result.at),
            critical,
            warning,
            info,
            findings,
        }
    }

    /// The number of findings of a severity, including those beyond [`MAX_FINDINGS`].
    pub const fn count(&self, severity: FindingSeverity) -> usize {
        match severity {
            FindingSeverity::Critical => self.critical,
            FindingSeverity::Warning => self.warning,
            FindingSeverity::Info => self.info,
        }
    }
}

#[cfg(test)]
mod tests;
