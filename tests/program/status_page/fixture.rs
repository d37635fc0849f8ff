//! Assessments to draw: what a recording was judged to be, made larger and nastier.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hookwatch::app::replay::replay_scrapes;
use hookwatch::domain::act::breaker::{HookStanding, HookState, Rung};
use hookwatch::domain::act::fence::{AutoBreak, BreakerView};
use hookwatch::domain::act::leadership::{LeadershipObject, ReplicaRole, ReplicaView};
use hookwatch::domain::audit::Finding;
use hookwatch::domain::audit::findings::{CONTROL_PLANE_IN_REACH, FindingKind};
use hookwatch::domain::audit::periodic::{AuditResult, PublishedFindings};
use hookwatch::domain::cluster::condition::BypassCondition;
use hookwatch::domain::cluster::hook::{Backend, BackendAddress, BackendPath, HookId, HookKind, ProbeLevel};
use hookwatch::domain::diagnose::verdict::{BackendView, BypassByHand, Verdict};
use hookwatch::domain::observe::canary::{CanaryOutcome, CanaryOverdue, CanaryReport, CanaryTarget};
use hookwatch::domain::observe::probe::{
    CertificateFacts, ConnectionKind, PhaseDurations, ProbeOutcome, ProbePhase, ProbeReport,
};
use hookwatch::domain::report::assessment::Assessment;
use hookwatch::domain::time::Time;
use hookwatch::domain::vocabulary::{BackendHealth, Cause, Effect, Health, Writes};
use hookwatch::domain::watchdog::{Event, LoggedChange};
use hookwatch::io::report::page::past::Past;
use serde_json::json;

/// The newest assessment of a recording of scrapes, as if the webhooks were listed as well.
pub fn recorded(name: &str) -> Assessment {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/recordings");
    let last = replay_scrapes(&folder.join(name)).unwrap().last.unwrap();
    let mut assessment = Assessment::clone(&last);
    assessment.sources.inventory_age_seconds = Some(0.4);
    assessment
}

/// The first verdict of a recording that named a culprit.
pub fn culprits(name: &str) -> Vec<Verdict> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/recordings");
    let turns = replay_scrapes(&folder.join(name)).unwrap().turns;
    let verdicts = turns.into_iter().map(|turn| turn.verdict);
    verdicts
        .filter(|verdict| verdict.health == Health::Failing)
        .take(1)
        .collect()
}

pub fn backend(number: usize) -> Backend {
    Backend {
        path: BackendPath::Endpoint,
        address: BackendAddress::Socket(
            format!("10.0.{}.{}:8443", number / 250, number % 250)
                .parse()
                .unwrap(),
        ),
    }
}

/// What the audit found of a hook, as bad as it can be.
pub fn finding(kind: &'static FindingKind, webhook: &str, message: &str) -> Finding {
    let id = HookId::new(HookKind::Validating, &format!("{webhook}-configuration"), webhook);
    let object = format!("ValidatingWebhookConfiguration/{}/{webhook}", id.configuration);
    Finding {
        hook: Some(id),
        patch: Some(json!([{"op": "add", "path": "/webhooks/0/timeoutSeconds", "value": 3}])),
        ..Finding::new(kind, object, message)
    }
}

pub fn found(findings: impl Iterator<Item = Finding>) -> Arc<PublishedFindings> {
    Arc::new(PublishedFindings::of(AuditResult {
        at: Time::from_unix_millis(0),
        took: Duration::ZERO,
        findings: findings.collect(),
    }))
}

/// One of two replicas; the other leads.
pub fn follower() -> ReplicaView {
    ReplicaView {
        identity: "pod-1".into(),
        role: ReplicaRole::Follower,
        holder: Some("pod-2".into()),
        by: Some(LeadershipObject::Lease),
        since: Time::from_unix_millis(0),
        trouble: None,
    }
}

/// A hook that is well, with three backends.
pub fn healthy(webhook: &str) -> Verdict {
    Verdict {
        kind: HookKind::Validating,
        configuration: Some(format!("{webhook}-configuration").into()),
        webhook: webhook.into(),
        incident: "policy/policy:443".to_owned(),
        health: Health::Healthy,
        cause: None,
        effect: Effect::None,
        confidence: 0.95,
        canaries: vec![CanaryTarget::OwnNamespace, CanaryTarget::KubeSystem],
        bypass: None,
        by_hand: None,
        webhook_confidence: 0.9,
        rule: "no-data",
        needs_shield: false,
        fails_open: false,
        excess_share: None,
        since: None,
        summary: "All 3 backends answer, the slowest in 4 ms.".into(),
        evidence: Vec::new(),
        advice: None,
        backends: (0..3)
            .map(|number| BackendView {
                backend: backend(number),
                state: BackendHealth::Alive,
                detail: "answered in 4 ms".into(),
            })
            .collect(),
    }
}

/// The same, hanging.
pub fn failing(webhook: &str, since: Time) -> Verdict {
    let hanging = |view: BackendView| BackendView {
        state: BackendHealth::Dead,
        detail: "has been hanging for 42 s (in the TLS handshake)".into(),
        ..view
    };
    let well = healthy(webhook);
    Verdict {
        health: Health::Failing,
        cause: Some(Cause::Hanging),
        effect: Effect::Blocking,
        confidence: 0.97,
        excess_share: Some(0.93),
        since: Some(since),
        summary: format!("Hook {webhook} hangs: it takes the request and does not answer."),
        evidence: vec![
            "A dry-run write that meets this webhook was refused after 10.0 s in its name.".into(),
            "All 3 backends are bad.".into(),
        ],
        advice: Some(Cause::Hanging.advice()),
        backends: well.backends.into_iter().map(hanging).collect(),
        by_hand: Some(BypassByHand {
            command: format!("hookwatch break opa/{webhook} --reason TEXT"),
            meaning: "It shields the webhook.".to_owned(),
            shared_with: None,
        }),
        configuration: well.configuration,
        ..healthy(webhook)
    }
}

/// An assessment with these hooks, the worst first.
pub fn with(hooks: Vec<Verdict>) -> Assessment {
    let mut assessment = recorded("quiet");
    let plane = &mut assessment.control_plane;
    if let Some(culprit) = hooks.iter().find(|verdict| verdict.health == Health::Failing) {
        plane.writes = Writes::Blocked;
        plane.summary = format!("Writes are blocked by {}.", culprit.webhook);
        plane.since = culprit.since.unwrap_or(assessment.at);
        plane.write_seconds = Some(3.2);
        plane.create_seconds = Some(4.1);
        plane.update_seconds = Some(2.6);
        plane.usual_write_seconds = Some(0.007);
        plane.clocks = vec!["Leases of nodes run out in 21 s.".into()];
    }
    assessment.hooks = hooks;
    assessment
}

/// An hour that ends with this assessment: quiet, then some minutes as it says.
pub fn hour(assessment: &Assessment, minutes: u64) -> Past {
    let mut past = hour_until(assessment, minutes, 0);
    past.assessed(assessment);
    past
}

/// The same without its last seconds.
fn hour_until(assessment: &Assessment, minutes: u64, spared: u64) -> Past {
    let mut past = Past::default();
    let end = assessment.at;
    let begin = end.before(Duration::from_secs(3_590));
    let broke = end.before(Duration::from_secs(minutes * 60));
    let shown: Vec<&Verdict> = assessment.hooks.iter().take(40).collect();
    // What a sample is taken of, without what no sample has.
    let mut broken = recorded("quiet");
    broken.control_plane.writes = assessment.control_plane.writes;
    broken.control_plane.write_seconds = assessment.control_plane.write_seconds;
    broken.control_plane.create_seconds = assessment.control_plane.create_seconds;
    broken.control_plane.update_seconds = assessment.control_plane.update_seconds;
    broken.control_plane.usual_write_seconds = Some(0.007);
    broken.hooks = assessment.culprits().take(1).cloned().collect();
    let mut quiet = broken.clone();
    quiet.control_plane.writes = Writes::Flowing;
    quiet.control_plane.write_seconds = Some(0.007);
    quiet.control_plane.create_seconds = Some(0.009);
    quiet.control_plane.update_seconds = Some(0.005);
    quiet.hooks.clear();
    for second in (0..3_590 - spared).step_by(2) {
        let now = begin + Duration::from_secs(second);
        let bad = now >= broke && minutes > 0;
        if second % 30 == 0 {
            for verdict in &shown {
                probe(&mut past, verdict, now, bad && verdict.health == Health::Failing);
            }
        }
        let then = if bad { &mut broken } else { &mut quiet };
        then.at = now;
        if bad {
            let waiting = Duration::from_secs(now.since(broke).as_secs() % 11);
            let late = CanaryOverdue {
                target: CanaryTarget::KubeSystem,
                started: now.before(waiting),
                waiting,
            };
            past.observed(&Event::CanaryOverdue(late), now);
        }
        past.assessed(then);
    }
    if minutes > 0 {
        for verdict in assessment.hooks.iter().filter(|verdict| verdict.cause.is_some()) {
            let change = LoggedChange::Hook {
                from: Some((Health::Healthy, None)),
                verdict: Box::new(verdict.clone()),
            };
            past.told(&change, broke + Duration::from_secs(5));
        }
        let plane = Box::new(assessment.control_plane.clone());
        past.told(&LoggedChange::ControlPlane(plane), broke + Duration::from_secs(6));
    }
    past
}

fn probe(past: &mut Past, verdict: &Verdict, now: Time, bad: bool) {
    let configuration = verdict.configuration.as_deref().unwrap_or_default();
    for (number, view) in verdict.backends.iter().enumerate().take(8) {
        let spread = (now.unix_millis() / 30_000 + number as u64) * 7_919 % 13;
        let took = Duration::from_millis(if bad { 10_000 } else { 2 + spread });
        let report = ProbeReport {
            hook: HookId::new(verdict.kind, configuration, &verdict.webhook),
            backend: view.backend.clone(),
            level: ProbeLevel::Http,
            connection: ConnectionKind::Fresh,
            started: now,
            took,
            phases: PhaseDurations::default(),
            outcome: if bad {
                ProbeOutcome::TimedOut {
                    phase: ProbePhase::Tls,
                }
            } else {
                ProbeOutcome::ClientCertificateWanted
            },
            certificates: CertificateFacts::default(),
            shared: false,
        };
        past.observed(&Event::Probed(Box::new(report)), now);
    }
}

/// So many hooks, the first few of which fail.
pub fn many(count: usize, bad: usize) -> Assessment {
    let since = recorded("quiet").at.before(Duration::from_secs(480));
    let names = (0..count).map(|number| format!("policy-{number:04}.validate.example.com"));
    let hooks = names.enumerate().map(|(number, name)| {
        if number < bad {
            failing(&name, since)
        } else {
            healthy(&name)
        }
    });
    with(hooks.collect())
}

/// Names that no page should let do anything.
pub const NASTY: [&str; 6] = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(2)>",
    "</style></script><svg onload=alert(3)>",
    "\u{202e}kcab\u{2066}.example.com",
    "שלום.example.com",
    "👩\u{200d}🚒🔥.example.com",
];

/// Hooks of such names, the first of which fails, with text of the same kind wherever text can be.
pub fn nasty() -> Assessment {
    let since = recorded("quiet").at.before(Duration::from_secs(480));
    let all = NASTY.join(" ");
    let hooks = NASTY.iter().enumerate().map(|(number, name)| {
        let mut verdict = match number {
            0 => failing(name, since),
            _ => healthy(name),
        };
        verdict.evidence = vec![all.clone()];
        verdict.backends[0].detail = all.clone();
        verdict.configuration = Some((*name).into());
        verdict
    });
    let mut assessment = with(hooks.collect());
    assessment.audit = found(
        NASTY
            .iter()
            .map(|name| finding(CONTROL_PLANE_IN_REACH, name, &all)),
    );
    assessment.control_plane.symptoms = vec![all.clone()];
    assessment.control_plane.clocks = vec![all.clone()];
    assessment.sources.inventory_trouble = vec![all];
    assessment
}

/// A page of it.
pub fn model(assessment: Assessment, minutes: u64) -> hookwatch::io::report::page::Model {
    let past = hour(&assessment, minutes);
    hookwatch::io::report::page::Model::new(Arc::new(assessment), &past, None)
}

/// One hook that is bypassed and three that are well, and an hour in which that came about.
pub fn bypassed() -> (Assessment, Past) {
    let end = recorded("quiet").at;
    let ago = |seconds: u64| end.before(Duration::from_secs(seconds));
    let mut culprit = failing("validating-webhook.openpolicyagent.org", ago(480));
    culprit.effect = Effect::None;
    culprit.excess_share = None;
    culprit.advice = Some("Fix the webhook. Until it is restored, objects are admitted without its review.");
    culprit.bypass = Some(BypassCondition::Skip);
    culprit.summary =
        "validating-webhook.openpolicyagent.org (opa) does not answer; it is bypassed (skip): no write is \
                       shown to it."
            .into();
    let well = (0..3).map(|number| healthy(&format!("policy-{number}.example.com")));
    let hook = HookId::new(
        culprit.kind,
        culprit.configuration.as_deref().unwrap(),
        &culprit.webhook,
    );
    let mut before = with(std::iter::once(culprit.clone()).chain(well).collect());
    let mut past = hour_until(&before, 8, 460);
    let written = CanaryReport {
        target: CanaryTarget::KubeSystem,
        started: ago(456),
        took: Duration::from_millis(9),
        created: false,
        outcome: CanaryOutcome::Written,
    };
    past.observed(&Event::CanaryWritten(written), ago(456));
    let stage = HookState::Bypassed {
        rung: Rung::Skip,
        effective: true,
    };
    let mut standing = HookStanding::new(hook, stage, ago(460));
    standing.words = "Every API server shows the bypass.".into();
    let breaker = |standing: &HookStanding| BreakerView {
        hooks: vec![standing.clone()],
        ..BreakerView::new(AutoBreak::On, None)
    };
    let plane = &mut before.control_plane;
    plane.writes = Writes::Flowing;
    plane.summary = format!("Writes flow; {}", culprit.summary);
    plane.clocks.clear();
    (plane.write_seconds, plane.create_seconds, plane.update_seconds) =
        (Some(0.007), Some(0.009), Some(0.005));
    for seconds in (0..=456).rev().step_by(2) {
        before.at = ago(seconds);
        if seconds % 30 == 0 {
            for verdict in &before.hooks {
                probe(
                    &mut past,
                    verdict,
                    ago(seconds),
                    verdict.health == Health::Failing,
                );
            }
        }
        // It was tried once, and failed again.
        let probation = (200..240).contains(&seconds);
        let mut stands = standing.clone();
        if probation {
            let stage = HookState::Probation;
            stands = HookStanding::new(standing.hook.clone(), stage, ago(240));
            stands.words = "Only dry-run canaries reach the webhook.".into();
        }
        before.breaker = breaker(&stands);
        past.assessed(&before);
    }
    (before, past)
}
