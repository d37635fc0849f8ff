//! The alert rules that the daemon itself can evaluate.

use std::time::Duration;
use strum::IntoStaticStr;

use crate::text::named;

/// The URL of the directory with the runbooks.
const RUNBOOKS: &str = "https://github.com/hookwatch/hookwatch/blob/main/docs/runbooks/";

/// How urgent an alert is; the most urgent comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum AlertSeverity {
    /// Page the on-call engineer.
    Critical,
    /// Look into it today.
    Warning,
    /// Look into it when there is time.
    Info,
}

named!(AlertSeverity, "The value of the label `severity`.");

/// One rule of `alerts/hookwatch.rules.yaml`. Name, severity and the label that it sets identify it.
#[derive(Debug, PartialEq, Eq)]
pub struct AlertRule {
    /// The alert's name.
    pub alert: &'static str,
    /// How urgent it is.
    pub severity: AlertSeverity,
    /// A label that all its alerts have, in addition to the severity. It distinguishes rules with the same name and severity.
    pub label: Option<(&'static str, &'static str)>,
    /// How long its condition must hold before it fires: the rule's `for`.
    pub hold: Duration,
    /// How long it keeps firing after its condition has stopped holding: the rule's `keep_firing_for`.
    pub keep: Duration,
}

impl AlertRule {
    const fn new(alert: &'static str, severity: AlertSeverity, hold_seconds: u64) -> Self {
        Self {
            alert,
            severity,
            label: None,
            hold: Duration::from_secs(hold_seconds),
            keep: Duration::ZERO,
        }
    }

    /// A rule that keeps firing for 30 s. Its alert inhibits the alerts about its symptoms, so it must outlast them.
    const fn cause(alert: &'static str, severity: AlertSeverity, hold_seconds: u64) -> Self {
        Self {
            keep: Duration::from_secs(30),
            ..Self::new(alert, severity, hold_seconds)
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

    /// The URL of its runbook.
    pub fn runbook_url(&self) -> String {
        format!("{RUNBOOKS}{}.md", self.alert)
    }
}

macro_rules! rules {
    ($($name:ident = $rule:expr;)+) => {
        $(pub(super) static $name: AlertRule = $rule;)+

        /// Every rule whose alert hookwatch can push. It cannot alert on its own absence, and rules over many minutes (lost
        /// calls, ceased probes) need a history, so Prometheus alone has those.
        pub static RULES: &[&AlertRule] = &[$(&$name),+];
    };
}

rules! {
    WRITES_BLOCKED = AlertRule::new("HookwatchWritesBlocked", AlertSeverity::Critical, 15);
    WRITES_DELAYED = AlertRule::new("HookwatchWritesDelayed", AlertSeverity::Warning, 30);
    NOT_A_HOOK = AlertRule::cause("HookwatchNotAHook", AlertSeverity::Warning, 120);
    NOT_A_HOOK_BLOCKING = AlertRule::cause("HookwatchNotAHook", AlertSeverity::Critical, 15);
    HOOK_BLOCKING = AlertRule::cause("HookwatchHookFailing", AlertSeverity::Critical, 15);
    HOOK_DELAYING = AlertRule::cause("HookwatchHookFailing", AlertSeverity::Warning, 30);
    API_FAILING = AlertRule::new("HookwatchApiFailing", AlertSeverity::Warning, 120);
    HOOK_FAILING_OPEN = AlertRule::new("HookwatchHookFailingOpen", AlertSeverity::Warning, 120)
        .with("effect", "FailingOpen");
    HOOK_PARTIAL = AlertRule::at_risk("Partial", AlertSeverity::Warning, 600);
    HOOK_SUSPECT = AlertRule::at_risk("Suspect", AlertSeverity::Info, 1_800);
    NODES_GOING = AlertRule::at_risk("nodes-going", AlertSeverity::Warning, 60);
    ONE_NODE = AlertRule::at_risk("one-node", AlertSeverity::Info, 3_600);
    TELLS_APART = AlertRule::at_risk("tells-canaries-apart", AlertSeverity::Info, 3_600);
    CRITICAL_FINDING = AlertRule::new("HookwatchCriticalFinding", AlertSeverity::Warning, 900);
    CERTIFICATE_SOON = AlertRule::certificate("ends", AlertSeverity::Warning, 3_600);
    CERTIFICATE_NOW = AlertRule::certificate("ends", AlertSeverity::Critical, 600);
    CERTIFICATE_MISMATCH = AlertRule::certificate("mismatch", AlertSeverity::Warning, 600);
    BYPASSED = AlertRule::new("HookwatchBypassed", AlertSeverity::Warning, 60);
    CONTESTED = AlertRule::new("HookwatchContested", AlertSeverity::Critical, 60);
    HELD_BACK = AlertRule::new("HookwatchHeldBack", AlertSeverity::Warning, 120);
    HELD_BACK_BY_FENCE = AlertRule::new("HookwatchHeldBack", AlertSeverity::Warning, 300).with("reason", "fence");
    FROZEN = AlertRule::new("HookwatchHeldBack", AlertSeverity::Warning, 43_200).with("reason", "freeze");
    BYPASS_ORPHANED = AlertRule::new("HookwatchBypassOrphaned", AlertSeverity::Critical, 600);
    IGNORED = AlertRule::new("HookwatchBypassOrphaned", AlertSeverity::Warning, 0);
    BLIND_INVENTORY = AlertRule::blind("inventory", 120);
    BLIND_SCRAPES = AlertRule::blind("scrapes", 300);
    BLIND_ANSWERS = AlertRule::blind("answers", 600);
    BLIND_LEADER = AlertRule::blind("leader", 300);
}
