//! The rules, as far as they can be told from within.

use std::time::Duration;
use strum::IntoStaticStr;

use crate::domain::text::named;

/// Where the runbooks are.
const RUNBOOKS: &str = "https://github.com/hookwatch/hookwatch/blob/main/docs/runbooks/";

/// How urgent an alert is; the most urgent comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum AlertSeverity {
    /// Wake somebody.
    Critical,
    /// Today.
    Warning,
    /// When there is time.
    Info,
}

named!(AlertSeverity, "The value of the label `severity`.");

/// One rule of `alerts/hookwatch.rules.yaml`. Name, severity and the label that it sets tell it from the others.
#[derive(Debug, PartialEq, Eq)]
pub struct AlertRule {
    /// The alert's name.
    pub alert: &'static str,
    /// How urgent it is.
    pub severity: AlertSeverity,
    /// The label that it sets beside the severity, where several rules of one name differ by it.
    pub label: Option<(&'static str, &'static str)>,
    /// For how long its condition has to hold before it fires: the rule's `for`.
    pub hold: Duration,
}

impl AlertRule {
    const fn new(alert: &'static str, severity: AlertSeverity, hold_seconds: u64) -> Self {
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
        Self::new("HookwatchBlind", AlertSeverity::Warning, hold_seconds).with("missing", missing)
    }

    const fn at_risk(risk: &'static str, severity: AlertSeverity, hold_seconds: u64) -> Self {
        Self::new("HookwatchHookAtRisk", severity, hold_seconds).with("risk", risk)
    }

    const fn certificate(problem: &'static str, severity: AlertSeverity, hold_seconds: u64) -> Self {
        Self::new("HookwatchHookCertificate", severity, hold_seconds).with("problem", problem)
    }

    /// Where its runbook is.
    pub fn runbook_url(&self) -> String {
        format!("{RUNBOOKS}{}.md", self.alert)
    }
}

pub(super) static WRITES_BLOCKED: AlertRule =
    AlertRule::new("HookwatchWritesBlocked", AlertSeverity::Critical, 15);
pub(super) static WRITES_DELAYED: AlertRule =
    AlertRule::new("HookwatchWritesDelayed", AlertSeverity::Warning, 45);
pub(super) static NOT_A_HOOK: AlertRule = AlertRule::new("HookwatchNotAHook", AlertSeverity::Warning, 120);
pub(super) static NOT_A_HOOK_BLOCKING: AlertRule =
    AlertRule::new("HookwatchNotAHook", AlertSeverity::Critical, 15);
pub(super) static HOOK_BLOCKING: AlertRule =
    AlertRule::new("HookwatchHookFailing", AlertSeverity::Critical, 15);
pub(super) static HOOK_DELAYING: AlertRule =
    AlertRule::new("HookwatchHookFailing", AlertSeverity::Warning, 45);
pub(super) static API_FAILING: AlertRule = AlertRule::new("HookwatchApiFailing", AlertSeverity::Warning, 120);
pub(super) static HOOK_FAILING_OPEN: AlertRule =
    AlertRule::new("HookwatchHookFailingOpen", AlertSeverity::Warning, 120);
pub(super) static HOOK_PARTIAL: AlertRule = AlertRule::at_risk("Partial", AlertSeverity::Warning, 600);
pub(super) static HOOK_SUSPECT: AlertRule = AlertRule::at_risk("Suspect", AlertSeverity::Info, 1_800);
pub(super) static NODES_GOING: AlertRule = AlertRule::at_risk("nodes-going", AlertSeverity::Warning, 60);
pub(super) static ONE_NODE: AlertRule = AlertRule::at_risk("one-node", AlertSeverity::Info, 3_600);
pub(super) static TELLS_APART: AlertRule =
    AlertRule::at_risk("tells-canaries-apart", AlertSeverity::Info, 3_600);
pub(super) static CRITICAL_FINDING: AlertRule =
    AlertRule::new("HookwatchCriticalFinding", AlertSeverity::Warning, 900);
pub(super) static CERTIFICATE_SOON: AlertRule = AlertRule::certificate("ends", AlertSeverity::Warning, 3_600);
pub(super) static CERTIFICATE_NOW: AlertRule = AlertRule::certificate("ends", AlertSeverity::Critical, 600);
pub(super) static CERTIFICATE_MISMATCH: AlertRule =
    AlertRule::certificate("mismatch", AlertSeverity::Warning, 600);
pub(super) static BYPASSED: AlertRule = AlertRule::new("HookwatchBypassed", AlertSeverity::Warning, 60);
pub(super) static CONTESTED: AlertRule = AlertRule::new("HookwatchContested", AlertSeverity::Critical, 60);
pub(super) static HELD_BACK: AlertRule = AlertRule::new("HookwatchHeldBack", AlertSeverity::Warning, 120);
pub(super) static BYPASS_ORPHANED: AlertRule =
    AlertRule::new("HookwatchBypassOrphaned", AlertSeverity::Critical, 600);
pub(super) static IGNORED: AlertRule = AlertRule::new("HookwatchBypassOrphaned", AlertSeverity::Warning, 0);
pub(super) static BLIND_INVENTORY: AlertRule = AlertRule::blind("inventory", 120);
pub(super) static BLIND_SCRAPES: AlertRule = AlertRule::blind("scrapes", 300);
pub(super) static BLIND_ANSWERS: AlertRule = AlertRule::blind("answers", 600);
pub(super) static BLIND_LEADER: AlertRule = AlertRule::blind("leader", 300);

/// Every rule whose alert can be pushed. That hookwatch is absent is for others to say, and what looks back over many
/// minutes (calls lost of late, probes that ceased) is for whoever keeps a history.
pub static RULES: [&AlertRule; 26] = [
    &WRITES_BLOCKED,
    &WRITES_DELAYED,
    &NOT_A_HOOK,
    &NOT_A_HOOK_BLOCKING,
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
