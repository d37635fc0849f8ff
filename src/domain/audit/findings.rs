//! The findings of an audit. Each says what would happen and which change prevents it.
//!
//! [`KINDS`] lists every kind, and docs/audit.md has a section for each. Findings about outages come from the forecast, not from
//! a field alone.

mod backends;
mod command;
mod converted;
mod fields;
mod observed;
mod placement;
mod reach;
mod trust;

use std::cmp::Reverse;

use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use strum::IntoStaticStr;

use super::estate::{AuditedHook, SourceLocation};
use super::forecast::Auditor;
use super::reach::MAX_TENANTS;
use crate::cluster::hook::HookId;
use crate::text::named;
use crate::time::Time;

pub use command::PatchCommand;
pub use reach::forecast_sentence;

/// How severe a finding is, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "snake_case")]
pub enum FindingSeverity {
    /// Worth knowing.
    Info,
    /// Makes an outage likelier or longer.
    Warning,
    /// An outage of the webhook is an outage of the cluster, or the webhook cannot work.
    Critical,
}

named!(FindingSeverity, "The value of `severity` in reports.");

impl FindingSeverity {
    /// All of them, the worst first.
    pub const ALL: [Self; 3] = [Self::Critical, Self::Warning, Self::Info];
}

/// A kind of finding.
#[derive(Debug, PartialEq, Eq)]
pub struct FindingKind {
    /// Its stable identifier in reports and baselines.
    pub id: &'static str,
    /// The highest severity that a finding of this kind can have.
    pub severity: FindingSeverity,
    /// What is wrong, in a few words.
    pub title: &'static str,
}

macro_rules! kinds {
    ($($name:ident: $id:literal, $severity:ident, $title:literal;)+) => {
        $(
            #[doc = $title]
            pub const $name: &FindingKind = &FindingKind { id: $id, severity: FindingSeverity::$severity, title: $title };
        )+
        /// Every kind of finding. Of findings with one severity the daemon publishes those of earlier kinds first.
        pub const KINDS: &[&FindingKind] = &[$($name),+];
    };
}

kinds! {
    NODES_GOING: "nodes-going", Critical, "All of its Pods are on nodes that are about to lose them";
    CONTROL_PLANE_IN_REACH: "control-plane-in-reach", Critical, "The control plane stops with this webhook";
    FAIL_OPEN_IN_REACH: "fail-open-in-reach", Critical, "Failures are ignored, but the control plane still stops";
    OWN_PODS_IN_REACH: "own-pods-in-reach", Critical, "The webhook keeps its own Pods from coming back";
    HOOK_LOOP: "hook-loop", Critical, "Webhooks keep each other's Pods from coming back";
    CHAIN_OVER_DEADLINE: "chain-over-deadline", Warning, "Together webhooks take longer than a request may";
    NODE_RECOVERY_BLOCKED: "node-recovery-blocked", Warning, "No node can join while this webhook is down";
    CONDITIONS_ERR: "conditions-err", Critical, "Match conditions fail on the control plane's writes today";
    CONDITION_NOT_CEL: "condition-not-cel", Critical, "A match condition does not compile";
    CRITICAL_RESOURCES: "critical-resources", Warning, "Rules name what the control plane lives on";
    LEASE_TIMEOUT: "lease-timeout", Warning, "Leases wait longer than 3 s for this webhook";
    LONG_TIMEOUT: "long-timeout", Warning, "The timeout is longer than 15 s";
    TIMEOUT_NOT_SET: "timeout-not-set", Info, "The timeout is not set";
    CATCH_ALL_RULES: "catch-all-rules", Warning, "Rules take every resource";
    VIRTUAL_RESOURCES: "virtual-resources", Warning, "Rules take reviews and bindings";
    MUTATES_CONTROL_PLANE: "mutates-control-plane", Warning, "It may change objects of the control plane";
    DRY_RUN_REFUSED: "dry-run-refused", Warning, "Dry runs that match are refused";
    UNWATCHED_FAIL_OPEN: "unwatched-fail-open", Info, "What it should change goes in unchanged while it is down";
    EXACT_MATCH_POLICY: "exact-match-policy", Info, "A request in another version passes it by";
    NEVER_CALLED: "never-called", Warning, "Selectors or rules that nothing can match";
    DUPLICATE_NAME: "duplicate-name", Warning, "Two webhooks have one name";
    INVALID_TARGET: "invalid-target", Critical, "It cannot be called";
    CA_UNUSABLE: "ca-unusable", Critical, "Its caBundle holds no certificate";
    CA_ENDS: "ca-ends", Critical, "Its caBundle ends soon";
    CA_NAMES_ANOTHER: "ca-names-another", Critical, "Its caBundle is a certificate for another name";
    CA_EMPTY: "ca-empty", Critical, "It has no caBundle";
    SERVICE_MISSING: "service-missing", Critical, "Its Service does not exist";
    PORT_NOT_OFFERED: "port-not-offered", Critical, "Its Service does not offer the port";
    NO_ENDPOINTS: "no-endpoints", Critical, "Its Service has no ready endpoint";
    CONVERSION_SERVICE_MISSING: "conversion-service-missing", Critical, "The Service that converts its objects does not exist";
    CONVERSION_STORED_VERSIONS: "conversion-stored-versions", Warning, "Reads of its objects need a webhook";
    ONE_REPLICA: "one-replica", Warning, "It has one Pod";
    ONE_NODE: "one-node", Warning, "All of its Pods are on one node";
    ONE_ZONE: "one-zone", Info, "All of its Pods are in one zone";
    NOT_SPREAD: "not-spread", Warning, "Nothing keeps its Pods apart";
    NO_DISRUPTION_BUDGET: "no-disruption-budget", Info, "A drain may take all of its Pods at once";
    NO_READINESS_PROBE: "no-readiness-probe", Warning, "Its Pods are Ready before they serve";
    READINESS_ELSEWHERE: "readiness-elsewhere", Info, "Its readiness probe looks at another port than the one that serves";
    NO_LIVENESS_PROBE: "no-liveness-probe", Warning, "A Pod of it that hangs is not restarted";
    NO_GRACE: "no-grace", Warning, "Its Pods stop before requests stop coming";
    TELLS_APART: "tells-canaries-apart", Warning, "It treats hookwatch unlike every other client";
    SERVED_ENDS: "served-certificate-ends", Critical, "The certificate that it serves ends soon";
    CLOSE_TO_TIMEOUT: "close-to-timeout", Warning, "Its calls usually take a good part of its timeout";
    UNREADABLE_FIELD: "unreadable-field", Warning, "A field makes no sense";
    UNREADABLE_INPUT: "unreadable-input", Warning, "A document could not be read";
}

/// One finding.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// Its kind.
    pub kind: &'static FindingKind,
    /// How severe it is: at most as severe as its kind.
    pub severity: FindingSeverity,
    /// The object, as `KIND/CONFIGURATION/WEBHOOK` or `KIND/NAME`.
    pub object: String,
    /// The webhook, if the finding is about one.
    pub hook: Option<HookId>,
    /// The file that the object is in; `None` if it was read from a cluster.
    pub source: Option<SourceLocation>,
    /// What would happen, and what to do.
    pub message: String,
    /// Other webhooks that the finding applies to, because the same Pods serve them.
    pub others: Vec<HookId>,
    /// The change, as a JSON patch of the configuration; `None` if there is no single patch.
    pub patch: Option<Value>,
    /// When the finding began to apply, if that is known.
    pub since: Option<Time>,
}

/// The form in which the daemon publishes a finding.
impl Serialize for Finding {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Finding", 6)?;
        fields.serialize_field("id", self.kind.id)?;
        fields.serialize_field("severity", &self.severity)?;
        fields.serialize_field("object", &self.place())?;
        fields.serialize_field("message", &self.message)?;
        fields.serialize_field("patch", &self.patch)?;
        fields.serialize_field("since", &self.since)?;
        fields.end()
    }
}

impl Finding {
    /// A finding about an object, with the highest severity of its kind.
    pub fn new(kind: &'static FindingKind, object: String, message: impl Into<String>) -> Self {
        Self {
            kind,
            severity: kind.severity,
            object,
            hook: None,
            source: None,
            message: message.into(),
            others: Vec::new(),
            patch: None,
            since: None,
        }
    }

    fn of(kind: &'static FindingKind, subject: &AuditedHook, message: impl Into<String>) -> Self {
        Self {
            hook: Some(subject.hook.id.clone()),
            source: subject.source.clone(),
            ..Self::new(kind, object(subject), message)
        }
    }

    fn at_most(self, severity: FindingSeverity) -> Self {
        Self {
            severity: self.severity.min(severity),
            ..self
        }
    }

    /// Limits the severity if `milder`.
    fn at_most_if(self, milder: bool, severity: FindingSeverity) -> Self {
        if milder { self.at_most(severity) } else { self }
    }

    fn with(self, patch: Option<Value>) -> Self {
        Self { patch, ..self }
    }

    /// The object for reports, with its file and line if it was read from a file.
    pub fn place(&self) -> String {
        match &self.source {
            Some(SourceLocation { file, line }) => format!("{} ({file}:{line})", self.object),
            None => self.object.clone(),
        }
    }
}

/// The name of a webhook in findings: `KIND/CONFIGURATION/WEBHOOK`.
fn object(subject: &AuditedHook) -> String {
    let id = &subject.hook.id;
    let kind = id.kind.configuration_kind();
    format!("{kind}/{}/{}", id.configuration, id.webhook)
}

/// All findings, the worst first.
pub fn audit(auditor: &Auditor<'_>) -> Vec<Finding> {
    audit_pausing(auditor, &|| {})
}

/// Like [`audit`], but calls `pause` at least once per webhook, so that a long audit can yield.
pub fn audit_pausing(auditor: &Auditor<'_>, pause: &dyn Fn()) -> Vec<Finding> {
    let mut found = Vec::new();
    for at in 0..auditor.estate.subjects.len() {
        pause();
        reach::of_one(auditor, at, &mut found);
        fields::of_one(auditor, at, &mut found);
        trust::of_one(auditor, at, &mut found);
        backends::of_one(auditor, at, &mut found);
        placement::of_one(auditor, at, &mut found);
        observed::of_one(auditor, at, &mut found);
    }
    backends::of_all(auditor, &mut found);
    reach::of_all(auditor, pause, &mut found);
    fields::of_all(auditor, &mut found);
    converted::of_all(auditor.estate, &mut found);
    found.extend(left_out(auditor));
    sort(&mut found);
    found
}

/// A finding if there were too many kinds of namespaces to check.
fn left_out(auditor: &Auditor<'_>) -> Option<Finding> {
    let first = auditor.tenants.left_out.as_ref()?;
    let message = format!(
        "Namespaces have more than {MAX_TENANTS} different sets of labels that namespaceSelectors name. Writes in this one and others were \
         not looked at."
    );
    let finding = Finding::new(UNREADABLE_INPUT, format!("Namespace/{first}"), message);
    Some(finding.at_most(FindingSeverity::Info))
}

/// Sorts findings: the worst first, then by object, then by the id of their kind.
pub fn sort(found: &mut [Finding]) {
    found.sort_by_cached_key(|finding| (Reverse(finding.severity), finding.object.clone(), finding.kind.id));
}
