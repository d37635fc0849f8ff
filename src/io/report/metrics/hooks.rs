//! Metrics with series per hook.
//!
//! A large cluster has thousands of hooks, so each has only a handful of series: one for its current state instead of one per
//! possible state, a sum instead of a histogram. Beyond [`MAX_HOOKS`] a hook has none.

use super::{CertificateEnd, set};
use crate::domain::audit::FindingSeverity;
use crate::domain::audit::periodic::PublishedFindings;
use crate::domain::cluster::hook::HookId;
use crate::domain::diagnose::verdict::Verdict;
use crate::domain::report::assessment::Assessment;
use crate::domain::vocabulary::Health;

/// Most hooks with series of their own. With more, the worst have them.
pub const MAX_HOOKS: usize = 2_000;

const HOOK: [&str; 3] = ["kind", "configuration", "webhook"];

group! {
    HookMetrics:
    by_health = gauges("hooks", &["health"]): "All webhooks, by their health.";
    left_out = gauge("hooks_without_series"):
        "Hooks beyond the bound of those that have gauges of their own; the worst are the last to be among them.";
    health = passing("hook_health", &hook_and("health")):
        "1 for the health the webhook has now; no series for the others.";
    cause = passing("hook_cause", &["kind", "configuration", "webhook", "cause", "effect", "incident"]):
        "1 for what is wrong with a webhook and what that does; no series for a webhook that is well.";
    fails_open = passing("hook_fails_open", &HOOK):
        "1 for a webhook whose calls fail and whose failures are ignored, so that writes pass without its review; no series for others.";
    confidence = passing("hook_confidence_ratio", &HOOK): "How sure the verdict on the webhook is, 0 to 1.";
    excess_share = passing("hook_excess_share_ratio", &HOOK):
        "Which part of the extra time per write is this webhook's, 0 to 1; no series without extra time.";
    backends = passing("hook_backends", &hook_and("state")):
        "Backends of the webhook by what direct probes say of them; no series for a state that none is in.";
    risk = passing("hook_risk", &["kind", "configuration", "webhook", "risk", "severity"]):
        "1 for each critical finding or warning of the audit about a webhook; of many, the worst have series.";
    findings = passing("findings", &["severity"]):
        "Findings of the last audit by severity; no series before the first.";
    certificate_not_after = passing("certificate_not_after_timestamp_seconds", &hook_and("certificate")):
        "When the first certificate of the webhook ends: the one its backends serve, or the one in its caBundle that vouches for it.";
}

impl HookMetrics {
    /// Fills the gauges from the assessment, whose hooks are sorted, the worst first.
    pub(super) fn fill(&self, assessment: &Assessment) {
        let hooks = &assessment.hooks;
        for &health in Health::ALL {
            let count = assessment.count(health) as f64;
            set(&self.by_health, &[health.as_str()], count);
        }
        self.left_out.set(hooks.len().saturating_sub(MAX_HOOKS) as f64);
        for verdict in hooks.iter().take(MAX_HOOKS) {
            self.fill_hook(verdict);
        }
        self.fill_findings(&assessment.audit);
    }

    /// Fills in the findings of the last audit. Informational ones are only counted.
    fn fill_findings(&self, audit: &PublishedFindings) {
        if audit.at.is_none() {
            return;
        }
        for severity in FindingSeverity::ALL {
            set(&self.findings, &[severity.as_str()], audit.count(severity) as f64);
        }
        let told = audit.findings.iter();
        for finding in told.filter(|finding| finding.severity >= FindingSeverity::Warning) {
            let Some(id) = &finding.hook else { continue };
            let [kind, configuration, webhook] = labels(id);
            let values = [
                kind,
                configuration,
                webhook,
                finding.kind.id,
                finding.severity.as_str(),
            ];
            set(&self.risk, &values, 1.0);
        }
    }

    fn fill_hook(&self, verdict: &Verdict) {
        let hook = [
            verdict.kind.as_str(),
            verdict.configuration.as_deref().unwrap_or(""),
            &verdict.webhook,
        ];
        let with = |label| [hook[0], hook[1], hook[2], label];
        set(&self.health, &with(verdict.health.as_str()), 1.0);
        if let Some(cause) = verdict.cause {
            let labels = [
                hook[0],
                hook[1],
                hook[2],
                cause.as_str(),
                verdict.effect.as_str(),
                &verdict.incident,
            ];
            set(&self.cause, &labels, 1.0);
        }
        if verdict.fails_open {
            set(&self.fails_open, &hook, 1.0);
        }
        set(&self.confidence, &hook, verdict.confidence);
        if let Some(share) = verdict.excess_share {
            set(&self.excess_share, &hook, share);
        }
        for backend in &verdict.backends {
            self.backends
                .with_label_values(&with(backend.state.as_str()))
                .inc();
        }
    }

    /// Fills in when certificates expire. Of more than two per [`MAX_HOOKS`], only those that expire first have series.
    pub(super) fn fill_certificates(&self, certificates: &[CertificateEnd]) {
        let mut ends: Vec<&CertificateEnd> = certificates.iter().collect();
        if ends.len() > 2 * MAX_HOOKS {
            ends.sort_by_key(|(.., end)| *end);
            ends.truncate(2 * MAX_HOOKS);
        }
        for (id, which, end) in ends {
            let [kind, configuration, webhook] = labels(id);
            let labels = [kind, configuration, webhook, which];
            set(&self.certificate_not_after, &labels, end.unix_seconds());
        }
    }
}

/// The label names that identify a hook, and one more.
pub(super) fn hook_and(label: &'static str) -> [&'static str; 4] {
    [HOOK[0], HOOK[1], HOOK[2], label]
}

pub(super) fn labels(id: &HookId) -> [&str; 3] {
    [id.kind.as_str(), &id.configuration, &id.webhook]
}
