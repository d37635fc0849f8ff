//! Which alerts fire: the Prometheus rules applied to an assessment, without a Prometheus.
//!
//! hookwatch can push its alerts to Alertmanagers itself, for outages that take the cluster's own Prometheus with them. A person
//! who gets both must recognize them as the same alert. So an alert here has the name, severity, labels and runbook of the rule
//! in `alerts/hookwatch.rules.yaml`, and the same `for` and `keep_firing_for`; a repository test checks that. It differs in the
//! label `source` and in its text, which comes from the verdict: a rule can compose a text only from labels.
//!
//! [`conditions`] returns the alert conditions that hold at one instant, [`Tracker`] follows how long each has held, and
//! [`AlertDelivery`] decides what to send to one Alertmanager.

mod breaker;
mod delivery;
mod incidents;
mod rules;
mod tracker;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::assessment::Assessment;
use crate::act::leadership::{ReplicaRole, ReplicaView};
use crate::audit::findings::{
    FindingKind, NO_ENDPOINTS, NODES_GOING, ONE_NODE, PORT_NOT_OFFERED, SERVED_ENDS, SERVICE_MISSING,
    TELLS_APART,
};
use crate::audit::{Finding, findings};
use crate::cluster::hook::{HookId, HookKind};
use crate::diagnose::verdict::Verdict;
use crate::observe::views::{STALE_INVENTORY, Sources};
use crate::text::{MAX_MESSAGE, bounded_to, human};
use crate::time::Time;
use crate::vocabulary::{Cause, Health, Writes};

pub use breaker::EXPECTED;
pub use delivery::{AlertDelivery, Batch, DeliveryPace, Voice};
pub use rules::{AlertRule, AlertSeverity, RULES};
pub use tracker::{Alert, Board, MAX_ALERTS, RETENTION, ResolvedAlert, Tracker};

/// The value of the label `source`, which no alert from Prometheus has.
pub const SOURCE: &str = "hookwatch";

/// All labels that a pushed alert can have. Operators cannot configure additional labels with these names.
pub const LABELS: [&str; 16] = [
    "alertname",
    "severity",
    "source",
    "kind",
    "configuration",
    "webhook",
    "cause",
    "effect",
    "incident",
    "state",
    "certificate",
    "missing",
    "problem",
    "risk",
    "rung",
    "reason",
];

/// An alert's labels by name. They are its identity.
pub type AlertLabels = Arc<BTreeMap<&'static str, String>>;

/// Longest label value, in bytes; longer ones are cut. Hooks' names have at most 253, unless only metrics name the hook.
const MAX_VALUE: usize = 1_024;
/// Longest command in a description, in bytes; a longer one is left out.
const MAX_COMMAND: usize = 400;
/// The age from which an assessment is out of date; the same as in the Prometheus rules.
const STALE_ASSESSMENT: Duration = Duration::from_secs(60);
/// How old the last good scrape may be before scrapes count as missing.
const NO_SCRAPE: Duration = Duration::from_secs(300);
/// How long before a certificate's end the alerts fire: a warning first, then a critical alert.
const CERTIFICATE_SOON: Duration = Duration::from_secs(14 * 86_400);
const CERTIFICATE_NOW: Duration = Duration::from_secs(2 * 86_400);

/// How long a finding counts as new. The alert HookwatchCriticalFinding fires only for new ones.
const NEW: Duration = Duration::from_secs(86_400);
/// Kinds of critical findings that do not fire the alert HookwatchCriticalFinding: they come and go with Pods and certificates,
/// and other alerts cover them.
pub const ALERTED_OTHERWISE: [&FindingKind; 5] = [
    NODES_GOING,
    SERVED_ENDS,
    NO_ENDPOINTS,
    SERVICE_MISSING,
    PORT_NOT_OFFERED,
];

/// The condition of a rule, found to hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertCondition {
    /// The rule.
    pub rule: &'static AlertRule,
    /// All labels of the alert.
    pub labels: AlertLabels,
    /// The annotation `summary`, at most [`MAX_MESSAGE`] bytes.
    pub summary: String,
    /// The annotation `description`, at most [`MAX_MESSAGE`] bytes.
    pub description: String,
    /// Since when it holds, if that is recorded outside this process; if `None`, it counts from the first evaluation.
    pub since: Option<Time>,
}

impl AlertCondition {
    fn new(rule: &'static AlertRule, own: &[(&'static str, &str)], summary: &str, description: &str) -> Self {
        let mut labels = BTreeMap::from([
            ("alertname", rule.alert.to_owned()),
            ("severity", rule.severity.as_str().to_owned()),
            ("source", SOURCE.to_owned()),
        ]);
        let own = own.iter().copied().chain(rule.label);
        // An empty label is the same as none, to Prometheus and to Alertmanager.
        for (name, value) in own.filter(|(_, value)| !value.is_empty()) {
            let end = value.floor_char_boundary(MAX_VALUE);
            labels.insert(name, value[..end].to_owned());
        }
        Self {
            rule,
            labels: Arc::new(labels),
            summary: readable(summary),
            description: readable(description),
            since: None,
        }
    }

    fn held_since(self, since: Option<Time>) -> Self {
        Self { since, ..self }
    }
}

/// The conditions of all rules that hold for an assessment at `now`. `certificates` are the hooks' certificates: hook, `served` or
/// `ca`, and the end of validity.
pub fn conditions(
    assessment: &Assessment,
    certificates: &[(HookId, &'static str, Time)],
    now: Time,
) -> Vec<AlertCondition> {
    let mut found = Vec::new();
    writes(assessment, &mut found);
    incidents::conditions(&assessment.hooks, &mut found);
    for verdict in &assessment.hooks {
        hook(verdict, assessment.sources.self_doubt, &mut found);
    }
    for finding in &assessment.audit.findings {
        risk(finding, now, &mut found);
    }
    for (id, which, end) in certificates {
        certificate(id, which, *end, now, &mut found);
    }
    breaker::conditions(assessment, &mut found);
    itself(assessment, now, &mut found);
    found
}

fn writes(assessment: &Assessment, conditions: &mut Vec<AlertCondition>) {
    let plane = &assessment.control_plane;
    let culprits = assessment
        .culprits()
        .map(|verdict| format!("{}: {}", name(verdict), verdict.summary));
    let mut explanation = vec![plane.summary.clone()];
    explanation.extend(culprits.take(3));
    // The summary already has the first sentence of this evidence.
    let found = plane.not_a_hook.iter().flat_map(|it| &it.evidence);
    let found: Vec<String> = found
        .filter(|said| !plane.summary.contains(*said))
        .cloned()
        .collect();
    explanation.extend(found.iter().cloned());
    explanation.extend(plane.clocks.iter().chain(&plane.symptoms).cloned());
    let explanation = explanation.join(" ");
    let state = [("state", plane.writes.as_str())];
    let rule = match plane.writes {
        Writes::Blocked => Some(&rules::WRITES_BLOCKED),
        Writes::Delayed => Some(&rules::WRITES_DELAYED),
        Writes::Flowing | Writes::Unknown => None,
    };
    conditions.extend(rule.map(|rule| AlertCondition::new(rule, &state, &plane.summary, &explanation)));
    if let Some(elsewhere) = &plane.not_a_hook {
        let cause = elsewhere.cause.as_str();
        let (rule, how) = if plane.writes == Writes::Blocked {
            (&rules::NOT_A_HOOK_BLOCKING, "blocked")
        } else {
            (&rules::NOT_A_HOOK, "impaired")
        };
        conditions.push(AlertCondition::new(
            rule,
            &[],
            &format!("Writes are {how} by {cause}, not by a webhook."),
            &format!("{} {}", plane.summary, found.join(" ")),
        ));
    }
}

fn belongs(verdict: &Verdict) -> String {
    match &verdict.configuration {
        Some(configuration) => format!("The webhook belongs to {configuration:?}."),
        None => "The webhook belongs to a configuration that hookwatch cannot see.".to_owned(),
    }
}

/// What to do. It comes first in a description, because the end may be cut off.
fn remedy(verdict: &Verdict) -> Vec<String> {
    let bypass = verdict.by_hand.as_ref().map(|by_hand| match &*by_hand.command {
        // A command that is cut off is useless.
        long if long.len() > MAX_COMMAND => {
            "To bypass it: `hookwatch diagnose` prints the command.".to_owned()
        }
        command => format!("To bypass it: {command}. {}", by_hand.meaning),
    });
    let advice = verdict.advice.map(str::to_owned);
    advice.into_iter().chain(bypass).collect()
}

/// The description: what to do, then `members` (sentences about webhooks that fail together), then the facts of the verdict.
fn explanation(verdict: &Verdict, members: Vec<String>) -> String {
    let named = vec![belongs(verdict), verdict.summary.clone()];
    [remedy(verdict), members, named, verdict.evidence.clone()]
        .concat()
        .join(" ")
}

fn hook(verdict: &Verdict, self_doubt: bool, found: &mut Vec<AlertCondition>) {
    let Some(cause) = verdict.cause else { return };
    let rule = match verdict.health {
        Health::Failing if !verdict.kind.is_admission() => &rules::API_FAILING,
        // While hookwatch doubts itself, every hook is suspect.
        Health::Suspect if !self_doubt => match cause {
            Cause::Partial => &rules::HOOK_PARTIAL,
            Cause::TlsInvalid => &rules::CERTIFICATE_MISMATCH,
            // A webhook that denies works; rollout gaps and stale connections end by themselves.
            Cause::Denying | Cause::RolloutGap | Cause::StaleConnection => return,
            _ => &rules::HOOK_SUSPECT,
        },
        _ => return,
    };
    let labels = [
        ("kind", verdict.kind.as_str()),
        ("configuration", verdict.configuration.as_deref().unwrap_or("")),
        ("webhook", &*verdict.webhook),
        ("effect", verdict.effect.as_str()),
        ("incident", &*verdict.incident),
        ("cause", cause.as_str()),
    ];
    let summary = format!("{} is {cause}. {}", name(verdict), verdict.summary);
    found.push(AlertCondition::new(
        rule,
        &labels,
        &summary,
        &explanation(verdict, Vec::new()),
    ));
}

/// The alert condition for an audit finding, if there is a rule for it.
fn risk(finding: &Finding, now: Time, found: &mut Vec<AlertCondition>) {
    let Some(id) = &finding.hook else { return };
    let is_new = finding.since.is_some_and(|since| now.since(since) < NEW);
    let rule = match finding.kind {
        kind if kind == NODES_GOING => &rules::NODES_GOING,
        kind if kind == ONE_NODE => &rules::ONE_NODE,
        kind if kind == TELLS_APART => &rules::TELLS_APART,
        kind if ALERTED_OTHERWISE.contains(&kind) => return,
        _ if is_new && finding.severity == findings::FindingSeverity::Critical => &rules::CRITICAL_FINDING,
        _ => return,
    };
    let labels = [
        ("kind", id.kind.as_str()),
        ("configuration", &*id.configuration),
        ("webhook", &*id.webhook),
        ("risk", finding.kind.id),
    ];
    let who = format!("{} {:?}", noun(id.kind), id.webhook);
    let summary = format!("{}, of the {who}.", finding.kind.title);
    found.push(AlertCondition::new(rule, &labels, &summary, &finding.message));
}

fn certificate(id: &HookId, which: &'static str, end: Time, now: Time, found: &mut Vec<AlertCondition>) {
    let left = end.since(now);
    let (rule, ahead) = match left {
        _ if left < CERTIFICATE_NOW => (&rules::CERTIFICATE_NOW, CERTIFICATE_NOW),
        _ if left < CERTIFICATE_SOON => (&rules::CERTIFICATE_SOON, CERTIFICATE_SOON),
        _ => return,
    };
    let when = if end <= now {
        format!("has ended, at {end}")
    } else {
        format!("ends at {end}")
    };
    let labels = [
        ("kind", id.kind.as_str()),
        ("configuration", &*id.configuration),
        ("webhook", &*id.webhook),
        ("certificate", which),
    ];
    let whose = match which {
        "served" => "a backend serves",
        _ => "is in the caBundle and vouches for what is served, as far as that was seen",
    };
    let condition = AlertCondition::new(
        rule,
        &labels,
        &format!(
            "The {which} certificate of {} {:?} {when}.",
            noun(id.kind),
            id.webhook
        ),
        &format!(
            "A certificate of {} {:?} of {:?}, which {whose}, {when}. From then on every call of it fails.",
            noun(id.kind),
            id.webhook,
            id.configuration
        ),
    );
    found.push(condition.held_since(Some(end.before(ahead))));
}

/// Alert conditions about hookwatch itself: what keeps it from judging.
fn itself(assessment: &Assessment, now: Time, found: &mut Vec<AlertCondition>) {
    let age = now.since(assessment.at);
    without_inventory(&assessment.sources, age, found);
    without_scrapes(&assessment.sources, age, found);
    without_answers(assessment, found);
    if let Some(replica) = &assessment.replica {
        without_leader(replica, now, found);
    }
}

fn without_inventory(sources: &Sources, age: Duration, found: &mut Vec<AlertCondition>) {
    let inventory = sources.inventory_age_seconds;
    if age > STALE_ASSESSMENT
        || inventory.is_none_or(|seconds| seconds + age.as_secs_f64() > STALE_INVENTORY.as_secs_f64())
    {
        let trouble = sources.inventory_trouble.join(" ");
        found.push(AlertCondition::new(
            &rules::BLIND_INVENTORY,
            &[],
            "hookwatch has not been able to follow the webhook configurations.",
            &format!("hookwatch works from an outdated list of webhooks, or has stopped judging. {trouble}"),
        ));
    }
}

fn without_scrapes(sources: &Sources, age: Duration, found: &mut Vec<AlertCondition>) {
    let (scrapes, stored) = (&sources.scrapes, sources.prometheus.as_ref());
    let fresh = |seconds: f64| seconds + age.as_secs_f64() < NO_SCRAPE.as_secs_f64();
    let is_read = scrapes.iter().any(|scrape| scrape.age_seconds.is_some_and(fresh));
    if is_read || stored.is_some_and(|stored| stored.used) {
        return;
    }
    let failed = scrapes.iter().filter_map(|scrape| scrape.failure.as_deref());
    let failed = failed.map(|why| format!("The last scrape failed: {why}"));
    let no_stand_in = stored.map(|stored| {
        let why = stored
            .failure
            .as_deref()
            .unwrap_or("it has no new scrapes of an API server");
        format!("The Prometheus at {} does not stand in: {why}", stored.source)
    });
    if let Some(first) = failed.chain(no_stand_in).next() {
        found.push(AlertCondition::new(
            &rules::BLIND_SCRAPES,
            &[],
            "hookwatch cannot read the API server's metrics.",
            &format!("hookwatch judges by probes and canaries alone. {first}"),
        ));
    }
}

fn without_answers(assessment: &Assessment, found: &mut Vec<AlertCondition>) {
    let mut no_answers = |labels: &[(&'static str, &str)], why: &str| {
        let summary = "hookwatch cannot tell whether writes flow or webhooks answer.";
        found.push(AlertCondition::new(&rules::BLIND_ANSWERS, labels, summary, why));
    };
    if assessment.sources.self_doubt {
        no_answers(
            &[],
            "Every probe fails, and nothing shows that the fault is not hookwatch's own.",
        );
    }
    if assessment.control_plane.writes == Writes::Unknown {
        no_answers(
            &[("state", Writes::Unknown.as_str())],
            &format!(
                "Neither canaries nor the API server's metrics tell whether writes get through. {}",
                assessment.control_plane.summary
            ),
        );
    }
}

fn without_leader(replica: &ReplicaView, now: Time, found: &mut Vec<AlertCondition>) {
    if replica.role != ReplicaRole::Unknown {
        return;
    }
    let why = replica
        .trouble
        .as_ref()
        .map(|why| format!(" Reason: {why}."))
        .unwrap_or_default();
    let since = human(now.since(replica.since));
    found.push(AlertCondition::new(
        &rules::BLIND_LEADER,
        &[],
        "No replica of hookwatch leads.",
        &format!(
            "For {since} this replica has known no leader. Every replica keeps watching, serving and shielding, but none \
             restores a bypass, goes beyond a shield, or writes Events.{why}"
        ),
    ));
}

/// A hook's name at the beginning of a sentence.
fn name(verdict: &Verdict) -> String {
    // Debug format, because the name may hold anything: it escapes characters that cannot be printed.
    format!("The {} {:?}", noun(verdict.kind), verdict.webhook)
}

const fn noun(kind: HookKind) -> &'static str {
    match kind {
        HookKind::Validating => "validating webhook",
        HookKind::Mutating => "mutating webhook",
        HookKind::Conversion => "conversion webhook of",
        HookKind::Aggregated => "aggregated API",
    }
}

/// A text made fit for an alert: at most [`MAX_MESSAGE`] bytes, on one line, without characters that change the text's direction.
fn readable(text: &str) -> String {
    const CUT: &str = "…";
    let turns = |c: char| matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let lines: Vec<&str> = text.split_whitespace().collect();
    let line = lines.join(" ").replace(turns, "\u{fffd}");
    if line.len() <= MAX_MESSAGE {
        return bounded_to(MAX_MESSAGE, &line);
    }
    bounded_to(MAX_MESSAGE - CUT.len(), &line) + CUT
}

#[cfg(test)]
pub(super) mod tests;
