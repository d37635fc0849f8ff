//! The periodic audit of what a daemon knows already.
//!
//! It takes too long to run between two observations, so the core requests it ([`Request`]), another thread runs it,
//! and the findings come back as an observation. It is a function of the request alone.

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

/// Findings that are published, at most.
pub const MAX_FINDINGS: usize = 500;
/// Bytes of messages and patches that are published, at most.
const MAX_BYTES: usize = 512 * 1_024;

/// What probes, canaries and Leases showed of what is audited.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AuditEvidence {
    /// Webhooks that distinguish hookwatch's canaries from the same writes of others.
    pub told_apart: BTreeSet<HookId>,
    /// When the first of the certificates ends that a webhook's backends serve.
    pub served_until: BTreeMap<HookId, Time>,
    /// Nodes whose Lease is late, with the time of the last observed renewal.
    pub late_nodes: BTreeMap<String, Time>,
    /// Seconds that calls of a webhook take on usual days.
    pub usual_seconds: BTreeMap<HookId, f64>,
}

/// The input of an audit.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The webhooks and what is behind them.
    pub inventory: Arc<Inventory>,
    /// What was seen of them.
    pub witnessed: AuditEvidence,
    /// When it was asked for.
    pub at: Time,
}

/// The result of one audit.
#[derive(Debug, Clone, PartialEq)]
pub struct Audited {
    /// When it was asked for.
    pub at: Time,
    /// Wall-clock duration, with the pauses.
    pub took: Duration,
    /// All findings, without the limit of [`MAX_FINDINGS`].
    pub findings: Vec<Finding>,
}

impl Request {
    /// Audits. `pause` is called many times in between: it takes seconds for thousands of webhooks.
    pub fn carry_out(&self, pause: &dyn Fn()) -> Vec<Finding> {
        let estate = self.estate();
        let mut found = findings::audit_pausing(&Auditor::pausing(&estate, pause), pause);
        for finding in &mut found {
            let hook = finding.hook.as_ref().and_then(|id| self.inventory.hook(id));
            // A patch of all conditions would take the bypass along.
            if hook.is_some_and(|hook| hook.match_conditions.iter().any(MatchCondition::is_ours)) {
                finding.patch = None;
            }
        }
        found
    }

    /// What is known, as an audit reads it: webhooks as their owners have them.
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
        for (node, since) in &self.witnessed.late_nodes {
            nodes.entry(node.clone()).or_default().signs.push(Sign {
                trouble: NodeTrouble::LeaseLate,
                since: Some(*since),
            });
        }
        Estate {
            subjects,
            namespaces: self.inventory.namespaces.clone(),
            nodes,
            is_cluster: true,
            at: Some(self.at),
            witnessed: self.witnessed.clone(),
            ..Estate::default()
        }
    }
}

/// The webhook without a bypass, which is no part of what its owner should fix.
fn without_bypass(hook: &Arc<Hook>) -> Arc<Hook> {
    if !hook.match_conditions.iter().any(MatchCondition::is_ours) {
        return Arc::clone(hook);
    }
    let mut own = Hook::clone(hook);
    own.match_conditions.retain(|condition| !condition.is_ours());
    Arc::new(own)
}

/// What is published of the last audit.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Findings {
    /// When it was asked for; `None` before the first.
    pub at: Option<Time>,
    /// Critical findings, including those beyond [`MAX_FINDINGS`].
    pub critical: usize,
    /// Warnings, including those beyond [`MAX_FINDINGS`].
    pub warning: usize,
    /// How many are worth knowing.
    pub info: usize,
    /// The worst first, at most [`MAX_FINDINGS`].
    pub findings: Vec<Finding>,
}

impl Findings {
    /// Puts them in order and within bounds.
    pub fn of(audited: Audited) -> Self {
        let mut findings = audited.findings;
        let count = |severity| findings.iter().filter(|found| found.severity == severity).count();
        let (critical, warning, info) = (
            count(FindingSeverity::Critical),
            count(FindingSeverity::Warning),
            count(FindingSeverity::Info),
        );
        let rank = |finding: &Finding| KINDS.iter().position(|kind| *kind == finding.kind);
        findings
            .sort_by_cached_key(|finding| (Reverse(finding.severity), rank(finding), finding.object.clone()));
        findings.truncate(MAX_FINDINGS);
        let mut left = MAX_BYTES;
        findings.retain(|finding| {
            let patch = finding.patch.as_ref().map_or(0, |patch| patch.to_string().len());
            let bytes = finding.message.len() + finding.object.len() + patch;
            let fits = bytes <= left;
            left = if fits { left - bytes } else { 0 };
            fits
        });
        Self {
            at: Some(audited.at),
            critical,
            warning,
            info,
            findings,
        }
    }

    /// How many are of a severity.
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
