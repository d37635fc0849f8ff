//! What the binary exposes: every metric with its labels, as read off a real exposition.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use std::time::Duration;

use hookwatch::app::replay::replay_scrapes;
use hookwatch::domain::act::breaker::{HeldBack, Rung};
use hookwatch::domain::act::leadership::{LeadershipObject, ReplicaRole, ReplicaView};
use hookwatch::domain::audit::findings::{KINDS, ONE_NODE};
use hookwatch::domain::audit::periodic::{AuditResult, PublishedFindings};
use hookwatch::domain::audit::{Finding, FindingSeverity};
use hookwatch::domain::cluster::hook::{Backend, BackendAddress, BackendPath, HookId, HookKind, ProbeLevel};
use hookwatch::domain::diagnose::verdict::{BackendView, NonHookCause};
use hookwatch::domain::observe::canary::{CanaryOutcome, CanaryReport, CanaryTarget};
use hookwatch::domain::observe::probe::{
    CertificateFacts, ConnectionKind, PhaseDurations, ProbeOutcome, ProbePhase, ProbeReport,
};
use hookwatch::domain::observe::readiness::ReadinessView;
use hookwatch::domain::observe::snapshot::{Scrape, ScrapeFailure, ScrapeFailureReason};
use hookwatch::domain::observe::views::ScrapeView;
use hookwatch::domain::report::assessment::Assessment;
use hookwatch::domain::time::Time;
use hookwatch::domain::vocabulary::{BackendHealth, Cause, Effect, Health, NotAHook};
use hookwatch::io::endpoint::EndpointError;
use hookwatch::io::report::events::EventOutcome;
use hookwatch::io::report::metrics::{Dropped, Metrics};
use hookwatch::io::report::metrics::{Loss, Signal};

use crate::root;

/// Every sample name with the labels it carries.
pub static EXPOSED: LazyLock<BTreeMap<String, BTreeSet<String>>> = LazyLock::new(|| labels(&exposition()));

/// The values that a label with a closed set can have; `None` for a label whose values are open.
pub fn values_of(label: &str) -> Option<Vec<&'static str>> {
    /// A compile error here means that a cause was added: add it to the list below, too.
    const fn complete(cause: Cause) {
        match cause {
            Cause::Slow
            | Cause::Hanging
            | Cause::Refused
            | Cause::NoEndpoints
            | Cause::NoService
            | Cause::Erroring
            | Cause::TlsInvalid
            | Cause::Partial
            | Cause::RolloutGap
            | Cause::StaleConnection
            | Cause::Unreachable
            | Cause::FailingOpen
            | Cause::Denying => {}
        }
    }
    complete(Cause::Slow);
    let causes = [
        Cause::Slow,
        Cause::Hanging,
        Cause::Refused,
        Cause::NoEndpoints,
        Cause::NoService,
        Cause::Erroring,
        Cause::TlsInvalid,
        Cause::Partial,
        Cause::RolloutGap,
        Cause::StaleConnection,
        Cause::Unreachable,
        Cause::FailingOpen,
        Cause::Denying,
    ];
    Some(match label {
        "health" => all_of(Health::ALL),
        "state" => all_of(hookwatch::domain::vocabulary::Writes::ALL)
            .into_iter()
            // Those of a backend.
            .chain(["alive", "slow", "wavering", "dead", "untried"])
            // Those of a hook as the breaker sees it.
            .chain(["enforcing", "bypassed", "probation", "contested", "ignored"])
            .collect(),
        "cause" => causes
            .map(Cause::as_str)
            .into_iter()
            .chain(NotAHook::ALL.iter().copied().map(NotAHook::as_str))
            .collect(),
        "effect" => [
            Effect::None,
            Effect::Blocking,
            Effect::Delaying,
            Effect::FailingOpen,
        ]
        .map(Effect::as_str)
        .to_vec(),
        "kind" => [
            HookKind::Mutating,
            HookKind::Validating,
            HookKind::Conversion,
            HookKind::Aggregated,
        ]
        .map(HookKind::as_str)
        .to_vec(),
        "risk" => KINDS.iter().map(|kind| kind.id).collect(),
        "severity" => all_of(&FindingSeverity::ALL),
        "signal" => all_of(Signal::ALL),
        "by" => all_of(LeadershipObject::ALL),
        "role" => all_of(ReplicaRole::ALL),
        "rung" => all_of(Rung::ALL),
        "action" => vec!["bypass", "probation", "restore"],
        "certificate" => vec!["served", "ca"],
        "result" => vec![
            "success",
            ScrapeFailureReason::Unreachable.as_str(),
            ScrapeFailureReason::TimedOut.as_str(),
            ScrapeFailureReason::Forbidden.as_str(),
            ScrapeFailureReason::Refused.as_str(),
            ScrapeFailureReason::NotMetrics.as_str(),
            ScrapeFailureReason::Truncated.as_str(),
        ],
        "reason" => EndpointError::REASONS
            .into_iter()
            .chain(Dropped::ALL.iter().copied().map(Dropped::as_str))
            .chain(Loss::ALL.iter().copied().map(Loss::as_str))
            .chain(HeldBack::ALL.iter().copied().map(HeldBack::as_str))
            .collect(),
        _ => return None,
    })
}

/// What these are called in labels.
fn all_of<T: Copy + Into<&'static str>>(all: &[T]) -> Vec<&'static str> {
    all.iter().map(|it| (*it).into()).collect()
}

/// An exposition in which every metric has a sample.
fn exposition() -> String {
    let metrics = Metrics::new().unwrap();
    let at = Time::from_unix_millis(1_795_219_862_156);
    let id = HookId::new(HookKind::Validating, "policy", "p.example.com");
    let backend = Backend {
        path: BackendPath::Endpoint,
        address: BackendAddress::Host("127.0.0.1".to_owned(), 443),
    };
    let took = Duration::from_millis(3);
    metrics.held_back(HeldBack::Hold);
    metrics.acted("bypass", "applied");
    metrics.seen_bypassed(at);
    metrics.probed(&ProbeReport {
        hook: id.clone(),
        backend: backend.clone(),
        level: ProbeLevel::Http,
        connection: ConnectionKind::Fresh,
        started: at,
        took,
        phases: PhaseDurations {
            resolve: Some(took),
            connect: Some(took),
            tls: Some(took),
            first_byte: Some(took),
            body: Some(took),
        },
        outcome: ProbeOutcome::TimedOut {
            phase: ProbePhase::Tls,
        },
        certificates: CertificateFacts::default(),
        shared: false,
    });
    metrics.canary_written(&CanaryReport {
        target: CanaryTarget::KubeSystem,
        started: at,
        took,
        created: false,
        outcome: CanaryOutcome::Written,
    });
    metrics.scrape_failed(&ScrapeFailure {
        target: "127.0.0.1:6443".to_owned(),
        at,
        reason: ScrapeFailureReason::TimedOut,
        why: "no answer within 10 s".to_owned(),
    });
    metrics.stored_read(Err(&ScrapeFailure {
        target: "http://127.0.0.1:9090".to_owned(),
        at,
        reason: ScrapeFailureReason::Refused,
        why: String::new(),
    }));
    metrics.scraped(&Scrape {
        target: "127.0.0.1:6443".to_owned(),
        at,
        took,
        bytes: 1,
        snapshot: Default::default(),
        complaints: Default::default(),
    });
    metrics.event_written(EventOutcome::Written);
    metrics.role_changed(ReplicaRole::Leader);
    metrics.alertmanager_known("127.0.0.1:9093");
    metrics.telemetry().sent(Signal::Traces, 1);
    metrics.telemetry().dropped(Signal::Traces, Loss::QueueFull, 1);
    metrics.telemetry().queued(Signal::Traces, 1);
    let mut assessment = an_assessment();
    assessment.replica = Some(ReplicaView {
        identity: "a".into(),
        role: ReplicaRole::Leader,
        holder: Some("a".into()),
        by: Some(LeadershipObject::Lease),
        since: at,
        trouble: None,
    });
    let verdict = &mut assessment.hooks[0];
    (verdict.health, verdict.cause, verdict.effect) =
        (Health::Failing, Some(Cause::Hanging), Effect::Blocking);
    verdict.configuration = Some("policy".into());
    verdict.fails_open = true;
    verdict.excess_share = Some(0.5);
    verdict.backends = vec![BackendView {
        backend,
        state: BackendHealth::Dead,
        detail: String::new(),
    }];
    metrics.verdict_changed(verdict);
    let finding = Finding {
        hook: verdict.hook(),
        ..Finding::new(ONE_NODE, String::new(), "")
    };
    assessment.audit = std::sync::Arc::new(PublishedFindings::of(AuditResult {
        at,
        took: std::time::Duration::ZERO,
        findings: vec![finding],
    }));
    assessment.control_plane.not_a_hook = Some(NonHookCause {
        cause: NotAHook::EtcdSlow,
        confidence: 0.9,
        evidence: Vec::new(),
    });
    assessment.sources.scrapes = vec![ScrapeView {
        target: "127.0.0.1:6443".to_owned(),
        replicas: 1,
        age_seconds: Some(1.0),
        failure: None,
        failing_since: None,
        silent: Vec::new(),
        version: Some("v1.36.2".to_owned()),
        readiness: ReadinessView {
            state: "not_ready",
            failing: vec!["poststarthook/rbac/bootstrap-roles".to_owned()],
            ..ReadinessView::default()
        },
        missing: Vec::new(),
    }];
    String::from_utf8(Metrics::text(&metrics.families(Some(&assessment), &[(id, "served", at)])).unwrap())
        .unwrap()
}

/// An assessment as the core makes it; with hooks, for a recording names some.
fn an_assessment() -> Assessment {
    let recording = root().join("tests/fixtures/recordings/quiet");
    let assessment = replay_scrapes(&recording).unwrap().last.unwrap();
    Assessment::clone(&assessment)
}

fn labels(exposition: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in exposition.lines().filter(|line| !line.starts_with('#')) {
        let (name, labels) = selector(line);
        found
            .entry(name.to_owned())
            .or_default()
            .extend(labels.into_iter().map(|label| label.name));
    }
    found
}

/// One `name="value"` within braces, with its operator.
pub struct Label {
    pub name: String,
    pub operator: String,
    pub value: String,
}

/// Splits at the quote that closes a value: one that no backslash stands before.
fn closed(text: &str) -> (&str, &str) {
    let mut escaped = false;
    for (at, character) in text.char_indices() {
        match character {
            '"' if !escaped => return (&text[..at], &text[at + 1..]),
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    panic!("a value is not closed: {text}");
}

/// Splits `name{label="value",...}`, whatever follows it. Values are left as they are escaped.
pub fn selector(text: &str) -> (&str, Vec<Label>) {
    let end = text
        .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let mut labels = Vec::new();
    let Some(mut rest) = rest.strip_prefix('{') else {
        return (name, labels);
    };
    while let Some((before, after)) = rest.split_once('"') {
        let (value, after) = closed(after);
        let before = before.trim_matches([',', ' ']);
        let split = before.find(['=', '!']).expect("an operator");
        labels.push(Label {
            name: before[..split].to_owned(),
            operator: before[split..].to_owned(),
            value: value.to_owned(),
        });
        if after.starts_with('}') {
            break;
        }
        rest = after;
    }
    (name, labels)
}

/// Every name in a text that begins as ours do.
pub fn names_in(text: &str) -> BTreeSet<String> {
    let ours = |word: &&str| word.starts_with("hookwatch_") && word.len() > "hookwatch_".len();
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .filter(ours)
        .map(str::to_owned)
        .collect()
}
