//! The rules, as far as they can be told from within.

use std::time::Duration;
use strum::IntoStaticStr;

/// Where the runbooks are.
const RUNBOOKS: &str = "https://github.com/hookwatch/hookwatch/blob/main/docs/runbooks/";

/// How urgent an alert is; the most urgent comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Severity {
    /// Wake somebody.
    Critical,
    /// Today.
    Warning,
    /// When there is time.
    Info,
}

impl Severity {
    /// The value of the label `severity`.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// One rule of `alerts/hookwatch.rules.yaml`. Name, severity and the label that it sets tell it from the others.
#[derive(Debug, PartialEq, Eq)]
pub struct Rule {
    /// The alert's name.
    pub alert: &'static str,
    /// How urgent it is.
    pub severity: Severity,
    /// The label that it sets beside the severity, where several rules of one name differ by it.
    pub label: Option<(&'static str, &'static str)>,
    /// For how long its condition has to hold before it fires: the rule's `for`.
    pub hold: Duration,
}

impl Rule {
    const fn new(alert: &'static str, severity: Severity, hold_seconds: u64) -> Self {
        Self {
            alert,
            severity,
            label: None,
            hold: Duration::from_secs(hold_seconds),
        }
    }

    const fn with(self, name: &'static str, value: &'static str) -> Self {
        Self {
            label: Some((name, value)),
            ..self
        }
    }

    const fn blind(missing: &'static str, hold_seconds: u64) -> Self {
        Self::new("HookwatchBlind", Severity::Warning, hold_seconds).with("missing", missing)
    }

    const fn at_risk(risk: &'static str, severity: Severity, hold_seconds: u64) -> Self {
        Self::new("HookwatchHookAtRisk", severity, hold_seconds).with("risk", risk)
    }

    const fn certificate(problem: &'static str, severity: Severity, hold_seconds: u64) -> Self {
        Self::new("HookwatchHookCertificate", severity, hold_seconds).with("problem", problem)
    }

    /// Where its runbook is.
    pub fn runbook_url(&self) -> String {
        format!("{RUNBOOKS}{}.md", self.alert)
    }
}

pub(super) static WRITES_BLOCKED: Rule = Rule::new("HookwatchWritesBlocked", Severity::Critical, 15);
pub(super) static WRITES_DELAYED: Rule = Rule::new("HookwatchWritesDelayed", Severity::Warning, 45);
pub(super) static NOT_A_HOOK: Rule = Rule::new("HookwatchNotAHook", Severity::Warning, 120);
pub(super) static HOOK_BLOCKING: Rule = Rule::new("HookwatchHookFailing", Severity::Critical, 15);
pub(super) static HOOK_DELAYING: Rule = Rule::new("HookwatchHookFailing", Severity::Warning, 45);
pub(super) static API_FAILING: Rule = Rule::new("HookwatchApiFailing", Severity::Warning, 120);
pub(super) static HOOK_FAILING_OPEN: Rule = Rule::new("HookwatchHookFailingOpen", Severity::Warning, 120);
pub(super) static HOOK_PARTIAL: Rule = Rule::at_risk("Partial", Severity::Warning, 600);
pub(super) static HOOK_SUSPECT: Rule = Rule::at_risk("Suspect", Severity::Info, 1_800);
pub(super) static NODES_GOING: Rule = Rule::at_risk("nodes-going", Severity::Warning, 60);
pub(super) static ONE_NODE: Rule = Rule::at_risk("one-node", Severity::Info, 3_600);
pub(super) static TELLS_APART: Rule = Rule::at_risk("tells-canaries-apart", Severity::Info, 3_600);
pub(super) static CRITICAL_FINDING: Rule = Rule::new("HookwatchCriticalFinding", Severity::Warning, 900);
pub(super) static CERTIFICATE_SOON: Rule = Rule::certificate("ends", Severity::Warning, 3_600);
pub(super) static CERTIFICATE_NOW: Rule = Rule::certificate("ends", Severity::Critical, 600);
pub(super) static CERTIFICATE_MISMATCH: Rule = Rule::certificate("mismatch", Severity::Warning, 600);
pub(super) static BYPASSED: Rule = Rule::new("HookwatchBypassed", Severity::Warning, 60);
pub(super) static CONTESTED: Rule = Rule::new("HookwatchContested", Severity::Critical, 60);
pub(super) static HELD_BACK: Rule = Rule::new("HookwatchHeldBack", Severity::Warning, 120);
pub(super) static BYPASS_ORPHANED: Rule = Rule::new("HookwatchBypassOrphaned", Severity::Critical, 600);
pub(super) static IGNORED: Rule = Rule::new("HookwatchBypassOrphaned", Severity::Warning, 0);
pub(super) static BLIND_INVENTORY: Rule = Rule::blind("inventory", 120);
pub(super) static BLIND_SCRAPES: Rule = Rule::blind("scrapes", 300);
pub(super) static BLIND_ANSWERS: Rule = Rule::blind("answers", 600);
pub(super) static BLIND_LEADER: Rule = Rule::blind("leader", 300);

/// Every rule whose alert can be pushed. That hookwatch is absent is for others to say, and what looks back over many
/// minutes (calls lost of late, probes that ceased) is for whoever keeps a history.
pub static RULES: [&Rule; 25] = [
    &WRITES_BLOCKED,
    &WRITES_DELAYED,
    &NOT_A_HOOK,
    &HOOK_BLOCKING,
    &HOOK_DELAYING,
    &API_FAILING,
    &HOOK_FAILING_OPEN,
    &HOOK_PARTIAL,
    &HOOK_SUSPECT,
    &NODES_GOING,
    &ONE_NODE,
    &TELLS_APART,
    &CRITICAL_FINDING,
    &CERTIFICATE_SOON,
    &CERTIFICATE_NOW,
    &CERTIFICATE_MISMATCH,
    &BYPASSED,
    &CONTESTED,
    &HELD_BACK,
    &BYPASS_ORPHANED,
    &IGNORED,
    &BLIND_INVENTORY,
    &BLIND_SCRAPES,
    &BLIND_ANSWERS,
    &BLIND_LEADER,
];
