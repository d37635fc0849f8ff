//! Which alerts are on: what the rules for Prometheus would say of an assessment, said without a Prometheus.
//!
//! hookwatch can hand its alerts to Alertmanager itself, for when the cluster's own Prometheus is caught in the outage.
//! Whoever gets both must see that they are the same. So an alert here has the name, the severity, the labels and the
//! runbook of the rule in `alerts/hookwatch.rules.yaml`, and waits as long before it fires; a repository test holds
//! that. It differs by the label `source`, and by its text: what a rule can only put together from labels, the
//! verdict says in its own words.
//!
//! [`conditions`] says what holds at one instant, [`Tracker`] for how long it has, and [`Delivery`] what one
//! Alertmanager is to be told.

mod breaker;
mod delivery;
mod rules;
mod tracker;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::canary::bounded;
use super::hook::{HookId, HookKind};
use super::risk::RiskKind;
use super::time::Time;
use super::verdict::{Assessment, Verdict};
use super::vocabulary::{Cause, Effect, Health, Writes, human};

pub use breaker::EXPECTED;
pub use delivery::{Batch, Delivery, Pace, Voice};
pub use rules::{RULES, Rule, Severity};
pub use tracker::{Alert, Board, Ended, MAX_ALERTS, RETENTION, Tracker};

/// The value of the label `source`, which no alert from Prometheus has.
pub const SOURCE: &str = "hookwatch";

/// The labels that an alert gets here. None of them can be set by an operator.
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

/// Labels by name: what makes an alert the same alert.
pub type Labels = Arc<BTreeMap<&'static str, String>>;

/// Bytes of a label's value that are kept. Names of hooks have 253 at most, unless only metrics name them.
const MAX_VALUE: usize = 1_024;
/// An inventory is out of date after this, and an assessment after [`STALE_ASSESSMENT`], as the rules have it.
const STALE_INVENTORY: Duration = Duration::from_secs(300);
const STALE_ASSESSMENT: Duration = Duration::from_secs(60);
/// Without a good scrape for this long there are none.
const NO_SCRAPE: Duration = Duration::from_secs(300);
/// Before a certificate ends: one alert from the longer time on, another from the shorter one.
const CERTIFICATE_SOON: Duration = Duration::from_secs(14 * 86_400);
const CERTIFICATE_NOW: Duration = Duration::from_secs(2 * 86_400);

/// What a rule looks for, found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// The rule.
    pub rule: &'static Rule,
    /// All labels of the alert.
    pub labels: Labels,
    /// One sentence.
    pub summary: String,
    /// The explanation, at most 1024 bytes.
    pub description: String,
}

impl Condition {
    fn new(rule: &'static Rule, own: &[(&'static str, &str)], summary: &str, description: &str) -> Self {
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
        }
    }
}

/// What every rule finds in an assessment at `now`. `certificates` are the ends of the hooks' certificates, each
/// `served` or `ca`.
pub fn conditions(
    assessment: &Assessment,
    certificates: &[(HookId, &'static str, Time)],
    now: Time,
) -> Vec<Condition> {
    let mut found = Vec::new();
    writes(assessment, &mut found);
    for verdict in &assessment.hooks {
        hook(verdict, assessment.sources.self_doubt, &mut found);
        risks(verdict, &mut found);
    }
    for (id, which, end) in certificates {
        certificate(id, which, *end, now, &mut found);
    }
    breaker::conditions(assessment, &mut found);
    itself(assessment, now, &mut found);
    found
}

fn writes(assessment: &Assessment, found: &mut Vec<Condition>) {
    let plane = &assessment.control_plane;
    let culprits = assessment
        .culprits()
        .map(|verdict| format!("{}: {}", name(verdict), verdict.summary));
    let mut explanation = vec![plane.summary.clone()];
    explanation.extend(culprits.take(3));
    explanation.extend(plane.not_a_hook.iter().flat_map(|it| it.evidence.clone()));
    explanation.extend(plane.clocks.iter().chain(&plane.symptoms).cloned());
    let explanation = explanation.join(" ");
    let state = [("state", plane.writes.as_str())];
    match plane.writes {
        Writes::Blocked => found.push(Condition::new(
            &rules::WRITES_BLOCKED,
            &state,
            &format!("Writes to the control plane are blocked. {}", plane.summary),
            &explanation,
        )),
        Writes::Delayed => found.push(Condition::new(
            &rules::WRITES_DELAYED,
            &state,
            &format!("Writes to the control plane are slow. {}", plane.summary),
            &explanation,
        )),
        Writes::Flowing | Writes::Unknown => {}
    }
    if let Some(elsewhere) = &plane.not_a_hook {
        let cause = elsewhere.cause.as_str();
        found.push(Condition::new(
            &rules::NOT_A_HOOK,
            &[("cause", cause)],
            &format!("Writes are impaired by {cause}, not by a hook."),
            &format!("{} {}", plane.summary, elsewhere.evidence.join(" ")),
        ));
    }
}

fn hook(verdict: &Verdict, self_doubt: bool, found: &mut Vec<Condition>) {
    let Some(cause) = verdict.cause else { return };
    let is_admission = verdict.kind.is_admission();
    let mut fire = |rule: &'static Rule| {
        let mut labels = vec![
            ("kind", verdict.kind.as_str()),
            ("configuration", verdict.configuration.as_deref().unwrap_or("")),
            ("webhook", &*verdict.webhook),
            ("effect", verdict.effect.as_str()),
            ("incident", verdict.incident.as_deref().unwrap_or("")),
        ];
        if rule.by_cause {
            labels.push(("cause", cause.as_str()));
        }
        let summary = format!("{} is {cause}. {}", name(verdict), verdict.summary);
        let mut explanation = vec![match &verdict.configuration {
            Some(configuration) => format!("The hook belongs to {configuration:?}."),
            None => "The hook belongs to a configuration that hookwatch cannot see.".to_owned(),
        }];
        explanation.push(verdict.summary.clone());
        // What to do is worth more at this length than the last observation.
        explanation.extend(verdict.evidence.iter().take(3).cloned());
        explanation.extend(verdict.advice.map(str::to_owned));
        explanation.extend(verdict.evidence.iter().skip(3).cloned());
        found.push(Condition::new(rule, &labels, &summary, &explanation.join(" ")));
    };
    match (verdict.health, verdict.effect) {
        (Health::Failing, effect) => {
            if !is_admission {
                fire(&rules::API_FAILING);
            }
            match effect {
                Effect::Blocking if is_admission => fire(&rules::HOOK_BLOCKING),
                Effect::Delaying if is_admission => fire(&rules::HOOK_DELAYING),
                Effect::FailingOpen => fire(&rules::HOOK_FAILING_OPEN),
                _ => {}
            }
        }
        // While hookwatch doubts itself, every hook is suspect.
        (Health::Suspect, _) if !self_doubt => match cause {
            Cause::Partial => fire(&rules::HOOK_PARTIAL),
            Cause::TlsInvalid => fire(&rules::CERTIFICATE_MISMATCH),
            // The first works; the others pass by themselves.
            Cause::Denying | Cause::RolloutGap | Cause::StaleConnection => {}
            _ => fire(&rules::HOOK_SUSPECT),
        },
        _ => {}
    }
}

fn risks(verdict: &Verdict, found: &mut Vec<Condition>) {
    for risk in &verdict.risks {
        let rule = match risk.kind {
            RiskKind::OneNode => &rules::ONE_NODE,
            RiskKind::NodeNotReady => &rules::NODE_NOT_READY,
            RiskKind::NamesHookwatch => &rules::NAMES_HOOKWATCH,
        };
        let labels = [
            ("kind", verdict.kind.as_str()),
            ("configuration", verdict.configuration.as_deref().unwrap_or("")),
            ("webhook", &*verdict.webhook),
        ];
        let summary = format!("{} is at risk. {}", name(verdict), risk.text);
        found.push(Condition::new(rule, &labels, &summary, &risk.text));
    }
}

fn certificate(id: &HookId, which: &'static str, end: Time, now: Time, found: &mut Vec<Condition>) {
    let left = end.since(now);
    let rule = match left {
        _ if left < CERTIFICATE_NOW => &rules::CERTIFICATE_NOW,
        _ if left < CERTIFICATE_SOON => &rules::CERTIFICATE_SOON,
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
        _ => "is in the caBundle",
    };
    found.push(Condition::new(
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
    ));
}

fn itself(assessment: &Assessment, now: Time, found: &mut Vec<Condition>) {
    let sources = &assessment.sources;
    let age = now.since(assessment.at);
    let inventory = sources.inventory_age_seconds;
    if age > STALE_ASSESSMENT
        || inventory.is_none_or(|seconds| seconds + age.as_secs_f64() > STALE_INVENTORY.as_secs_f64())
    {
        let trouble = sources.inventory_trouble.join(" ");
        found.push(Condition::new(
            &rules::BLIND_INVENTORY,
            &[],
            "hookwatch has not been able to follow the webhook configurations.",
            &format!("hookwatch judges by an old list of hooks, or has stopped judging. {trouble}"),
        ));
    }
    let scrapes = &sources.scrapes;
    let fresh = |seconds: f64| seconds + age.as_secs_f64() < NO_SCRAPE.as_secs_f64();
    let failures: Vec<&str> = scrapes
        .iter()
        .filter_map(|scrape| scrape.failure.as_deref())
        .collect();
    if let Some(first) = failures.first()
        && !scrapes.iter().any(|scrape| scrape.age_seconds.is_some_and(fresh))
    {
        found.push(Condition::new(
            &rules::BLIND_SCRAPES,
            &[],
            "hookwatch cannot read the API server's metrics.",
            &format!("hookwatch judges by probes and canaries alone. The last scrape failed: {first}"),
        ));
    }
    let mut no_answers = |labels: &[(&'static str, &str)], why: &str| {
        let summary = "hookwatch cannot tell whether writes flow or hooks answer.";
        found.push(Condition::new(&rules::BLIND_ANSWERS, labels, summary, why));
    };
    if sources.self_doubt {
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
    if let Some(replica) = &assessment.replica
        && replica.role == super::leadership::Role::Unknown
    {
        let trouble = replica.trouble.as_deref().unwrap_or_default();
        let since = human(now.since(replica.since));
        found.push(Condition::new(
            &rules::BLIND_LEADER,
            &[],
            "No replica of hookwatch leads.",
            &format!("For {since} this replica has known no leader, and no replica writes Events. {trouble}"),
        ));
    }
}

/// A hook as it stands at the beginning of a sentence.
fn name(verdict: &Verdict) -> String {
    // Quoted, for the name may hold anything: what cannot be printed comes out escaped.
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

/// As it is fit for a page: of bounded length, on one line, and without characters that turn the text around.
fn readable(text: &str) -> String {
    let turns = |c: char| matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let lines: Vec<&str> = text.split_whitespace().collect();
    bounded(&lines.join(" ").replace(turns, "\u{fffd}"))
}

#[cfg(test)]
mod tests;
