//! Metrics that have series of their own for each hook.
//!
//! A large cluster has thousands of hooks, so each is worth a handful of series: one for what it is instead of one for
//! everything it might be, a sum instead of a histogram, and beyond [`MAX_HOOKS`] none at all.

use prometheus::{Gauge, GaugeVec};

use super::{CertificateEnd, Maker, set};
use crate::domain::audit::FindingSeverity;
use crate::domain::audit::standing::Findings;
use crate::domain::cluster::hook::HookId;
use crate::domain::diagnose::verdict::Verdict;
use crate::domain::report::assessment::Assessment;
use crate::domain::vocabulary::Health;

/// So many hooks have series of their own; of more, the worst have them.
pub const MAX_HOOKS: usize = 2_000;

const HOOK: [&str; 3] = ["kind", "configuration", "webhook"];

#[derive(Debug)]
pub(super) struct HookMetrics {
    by_health: GaugeVec,
    left_out: Gauge,
    health: GaugeVec,
    cause: GaugeVec,
    confidence: GaugeVec,
    excess_share: GaugeVec,
    backends: GaugeVec,
    risk: GaugeVec,
    findings: GaugeVec,
    certificate_not_after: GaugeVec,
}

impl HookMetrics {
    pub(super) fn new(make: &Maker<'_>) -> prometheus::Result<Self> {
        Ok(Self {
            by_health: make.gauges("hooks", "All webhooks, by their health.", &["health"])?,
            left_out: make.gauge(
                "hooks_without_series",
                "Hooks beyond the bound of those that have gauges of their own; the worst are the last to be among them.",
            )?,
            health: make.passing(
                "hook_health",
                "1 for the health the webhook has now; no series for the others.",
                &hook_and("health"),
            )?,
            cause: make.passing(
                "hook_cause",
                "1 for what is wrong with a webhook and what that does; no series for a webhook that is well.",
                &["kind", "configuration", "webhook", "cause", "effect", "incident"],
            )?,
            confidence: make.passing(
                "hook_confidence_ratio",
                "How sure the verdict on the webhook is, 0 to 1.",
                &HOOK,
            )?,
            excess_share: make.passing(
                "hook_excess_share_ratio",
                "Which part of the extra time per write is this webhook's, 0 to 1; no series without extra time.",
                &HOOK,
            )?,
            backends: make.passing(
                "hook_backends",
                "Backends of the webhook by what direct probes say of them; no series for a state that none is in.",
                &hook_and("state"),
            )?,
            risk: make.passing(
                "hook_risk",
                "1 for each critical finding or warning of the audit about a webhook; of many, the worst have series.",
                &["kind", "configuration", "webhook", "risk", "severity"],
            )?,
            findings: make.passing(
                "findings",
                "Findings of the last audit by severity; no series before the first.",
                &["severity"],
            )?,
            certificate_not_after: make.passing(
                "certificate_not_after_timestamp_seconds",
                "When the first certificate of the webhook ends: the one its backends serve, or one in its caBundle.",
                &hook_and("certificate"),
            )?,
        })
    }

    /// Fills the gauges as the assessment has them. Its hooks are in order, the worst first.
    pub(super) fn fill(&self, assessment: &Assessment) {
        let hooks = &assessment.hooks;
        for &health in Health::ALL {
            let count = hooks.iter().filter(|verdict| verdict.health == health).count();
            set(&self.by_health, &[health.as_str()], count as f64);
        }
        self.left_out.set(hooks.len().saturating_sub(MAX_HOOKS) as f64);
        for verdict in hooks.iter().take(MAX_HOOKS) {
            self.fill_hook(verdict);
        }
        self.fill_findings(&assessment.audit);
    }

    /// What the last audit found; what is only worth knowing is counted and has no series of its own.
    fn fill_findings(&self, audit: &Findings) {
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

    /// Fills in when certificates end; beyond the bound those that end first.
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

/// The names of a hook's labels with one more.
pub(super) fn hook_and(label: &'static str) -> [&'static str; 4] {
    [HOOK[0], HOOK[1], HOOK[2], label]
}

pub(super) fn labels(id: &HookId) -> [&str; 3] {
    [id.kind.as_str(), &id.configuration, &id.webhook]
}
