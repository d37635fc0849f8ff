//! How many series hookwatch itself has: bounded, whatever a cluster holds and whatever its hooks are called.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hookwatch::app::replay::replay_scrapes;
use hookwatch::domain::cluster::hook::{Backend, BackendAddress, BackendPath, HookId, HookKind, ProbeLevel};
use hookwatch::domain::diagnose::verdict::{BackendView, Verdict};
use hookwatch::domain::observe::exposition::Exposition;
use hookwatch::domain::observe::probe::{
    CertificateFacts, ConnectionKind, PhaseDurations, ProbeAnswer, ProbeOutcome, ProbePhase, ProbeReport,
    TlsFault,
};
use hookwatch::domain::report::assessment::Assessment;
use hookwatch::domain::time::Time;
use hookwatch::domain::vocabulary::{BackendHealth, Cause, Effect, Health};
use hookwatch::io::report::metrics::{CertificateEnd, Metrics};

use crate::bounds::{most_series, samples};

fn now() -> Time {
    Time::from_unix_millis(1_795_219_862_156)
}

fn hook(number: usize) -> HookId {
    HookId::new(
        HookKind::Validating,
        &format!("configuration-{number}"),
        &format!("hook-{number}.example.com"),
    )
}

fn backend(path: BackendPath) -> Backend {
    Backend {
        path,
        address: BackendAddress::Host("127.0.0.1".to_owned(), 443),
    }
}

fn probe(id: &HookId, path: BackendPath, connection: ConnectionKind, outcome: ProbeOutcome) -> ProbeReport {
    let took = Some(Duration::from_millis(3));
    ProbeReport {
        hook: id.clone(),
        backend: backend(path),
        level: ProbeLevel::Http,
        connection,
        started: now(),
        took: Duration::from_millis(3),
        phases: PhaseDurations {
            resolve: took,
            connect: took,
            tls: took,
            first_byte: took,
            body: took,
        },
        outcome,
        certificates: CertificateFacts::default(),
        shared: false,
    }
}

/// Every way in which a probe can end.
fn outcomes() -> Vec<ProbeOutcome> {
    let why = String::new;
    vec![
        ProbeOutcome::Answered(ProbeAnswer::Http { status: 405 }),
        ProbeOutcome::Answered(ProbeAnswer::Discovery { status: 500 }),
        ProbeOutcome::Answered(ProbeAnswer::ReviewRefused { status: 500 }),
        ProbeOutcome::Answered(ProbeAnswer::NotAnAdmissionReview { why: why() }),
        ProbeOutcome::ClientCertificateWanted,
        ProbeOutcome::VerifierDiffers { why: why() },
        ProbeOutcome::TimedOut {
            phase: ProbePhase::Tls,
        },
        ProbeOutcome::Refused,
        ProbeOutcome::Unreachable { why: why() },
        ProbeOutcome::Unresolvable { why: why() },
        ProbeOutcome::TlsRejected {
            fault: TlsFault::Other,
            why: why(),
        },
        ProbeOutcome::Lost {
            phase: ProbePhase::Tls,
            why: why(),
        },
        ProbeOutcome::NotProbed { why: why() },
    ]
}

/// An assessment as the core makes it of a recording, with other hooks.
fn assessment(ids: &[HookId], make: impl Fn(usize, &mut Verdict)) -> Assessment {
    let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/recordings/quiet");
    let replayed = replay_scrapes(&recording).unwrap().last.unwrap();
    let mut assessment = Assessment::clone(&replayed);
    let template = assessment.hooks[0].clone();
    let hooks = ids.iter().enumerate().map(|(number, id)| {
        let mut verdict = Verdict {
            kind: id.kind,
            configuration: Some(Arc::clone(&id.configuration)),
            webhook: Arc::clone(&id.webhook),
            incident: "policy/policy:443".to_owned(),
            health: Health::Healthy,
            cause: None,
            effect: Effect::None,
            confidence: 0.98,
            canaries: Vec::new(),
            bypass: None,
            by_hand: None,
            needs_shield: false,
            fails_open: false,
            excess_share: None,
            ..template.clone()
        };
        verdict.backends = vec![view(BackendHealth::Alive), view(BackendHealth::Alive)];
        make(number, &mut verdict);
        verdict
    });
    assessment.hooks = hooks.collect();
    assessment
}

fn view(state: BackendHealth) -> BackendView {
    BackendView {
        backend: backend(BackendPath::Endpoint),
        state,
        detail: String::new(),
    }
}

fn certificates(ids: &[HookId]) -> Vec<CertificateEnd> {
    let each = |id: &HookId| [(id.clone(), "served", now()), (id.clone(), "ca", now())];
    ids.iter().flat_map(each).collect()
}

fn is_series(line: &&str) -> bool {
    !line.starts_with('#') && !line.is_empty()
}

fn gathered(metrics: &Metrics, assessment: &Assessment, ids: &[HookId]) -> String {
    let text = Metrics::text(&metrics.families(Some(assessment), &certificates(ids))).unwrap();
    String::from_utf8(text).unwrap()
}

fn series(text: &str) -> usize {
    text.lines().filter(is_series).count()
}

/// Probes each hook by each path, on each connection, with each outcome.
fn probe_all(metrics: &Metrics, ids: &[HookId], outcomes: &[ProbeOutcome]) {
    for id in ids {
        for path in [BackendPath::Endpoint, BackendPath::ClusterIp] {
            for &connection in ConnectionKind::ALL {
                for outcome in outcomes {
                    metrics.probed(&probe(id, path, connection, outcome.clone()));
                }
            }
        }
    }
}

fn most_of_all(metrics: &Metrics) -> usize {
    let each = metrics.declared().iter();
    each.map(|declared| most_series(declared).expect("a bound for every label"))
        .sum()
}

/// A verdict that fills every series a hook can have at one moment.
fn as_bad_as_can_be(verdict: &mut Verdict) {
    (verdict.health, verdict.cause, verdict.effect) = (Health::Failing, Some(Cause::Slow), Effect::Delaying);
    verdict.excess_share = Some(0.1);
    verdict.fails_open = true;
    verdict.backends = BackendHealth::ALL.iter().copied().map(view).collect();
}

#[test]
fn five_thousand_hooks_stay_within_the_documented_bound_even_in_the_worst_case() {
    let ids: Vec<HookId> = (0..5_000).map(hook).collect();
    let metrics = Metrics::new().unwrap();
    probe_all(&metrics, &ids, &outcomes());
    let worst = assessment(&ids, |_, verdict| as_bad_as_can_be(verdict));
    let text = gathered(&metrics, &worst, &ids);
    let (series, most) = (series(&text), most_of_all(&metrics));
    println!("5,000 hooks, each as bad as can be: {series} series of {most}");
    assert!(series <= most, "{series} series, {most} are documented");
    for declared in metrics.declared() {
        let names = samples(declared);
        let own = text.lines().filter(|line| {
            let name = line.split(['{', ' ']).next().unwrap_or_default();
            names.iter().any(|sample| sample == name)
        });
        let (own, most) = (own.count(), most_series(declared).unwrap());
        assert!(
            own <= most,
            "{}: {own} series, {most} are documented",
            declared.name
        );
    }
    // What the bound leaves out is told, and counted all the same.
    assert!(text.contains("\nhookwatch_hooks_without_series 3000\n"));
    assert!(text.contains("\nhookwatch_hooks{health=\"failing\"} 5000\n"));
    let probes = text
        .lines()
        .filter(|line| line.starts_with("hookwatch_probes_total"));
    let counted: f64 = probes
        .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
        .sum();
    assert_eq!(counted, (5_000 * 2 * 2 * outcomes().len()) as f64);
}

#[test]
fn hooks_that_are_well_cost_less_than_ten_series_each() {
    for count in [2_000, 5_000] {
        let ids: Vec<HookId> = (0..count).map(hook).collect();
        let metrics = Metrics::new().unwrap();
        probe_all(&metrics, &ids, &outcomes()[..1]);
        let text = gathered(&metrics, &assessment(&ids, |_, _| {}), &ids);
        println!(
            "{count} hooks that are well: {} series, {} bytes",
            series(&text),
            text.len()
        );
        assert!(series(&text) < 10 * 2_000);
    }
}

#[test]
fn no_failing_hook_is_among_those_left_out() {
    let ids: Vec<HookId> = (0..5_000).map(hook).collect();
    let metrics = Metrics::new().unwrap();
    // The worst come first in an assessment.
    let few = assessment(&ids, |number, verdict| {
        if number < 1_500 {
            as_bad_as_can_be(verdict);
        }
    });
    let text = gathered(&metrics, &few, &ids);
    let named = text
        .lines()
        .filter(|line| line.starts_with("hookwatch_hook_health") && line.contains("health=\"failing\""));
    assert_eq!(named.count(), 1_500);
}

#[test]
fn series_of_hooks_that_are_gone_go() {
    let ids: Vec<HookId> = (0..10).map(hook).collect();
    let metrics = Metrics::new().unwrap();
    probe_all(&metrics, &ids, &outcomes());
    metrics.keep_only(&ids[..1].iter().cloned().collect());
    let text = gathered(&metrics, &assessment(&ids[..1], |_, _| {}), &ids[..1]);
    assert!(text.contains("hook-0.example.com"));
    assert!(!text.contains("hook-1.example.com"), "{text}");
}

/// Names that no API server takes. What is shown may still come from one that is broken, or from somebody who poses as
/// one.
const NAMES: [&str; 8] = [
    "<script>alert(1)</script>",
    "with \"quotes\"",
    "with\na newline",
    "with\ra carriage return and\ta tab",
    "back\\slash\\",
    "\u{202e}from right to left\u{202c} \u{5e9}\u{5dc}\u{5d5}\u{5dd}",
    "\u{1f4a5}\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467} and\0a null",
    "a\"} 1\nhookwatch_self_doubt 1\n# HELP x",
];

fn oddly_named() -> (String, Vec<HookId>) {
    let ids: Vec<HookId> = NAMES
        .iter()
        .map(|name| HookId::new(HookKind::Validating, name, name))
        .collect();
    let metrics = Metrics::new().unwrap();
    probe_all(&metrics, &ids, &outcomes());
    let bad = assessment(&ids, |_, verdict| as_bad_as_can_be(verdict));
    (gathered(&metrics, &bad, &ids), ids)
}

#[test]
fn our_own_reader_reads_every_odd_name_back() {
    let (text, ids) = oddly_named();
    // It wants an API server's families, so ours gets the name of one of them.
    let families = [
        (
            "hookwatch_hook_confidence_ratio{",
            "apiserver_admission_webhook_fail_open_count{",
        ),
        ("webhook=", "name="),
        ("kind=", "type="),
    ];
    let mut exposition = Exposition::new();
    let mut lines = 0;
    for line in text.lines().filter(|line| line.starts_with(families[0].0)) {
        let line = families.iter().fold(line.to_owned(), |line, (ours, theirs)| {
            line.replacen(ours, theirs, 1)
        });
        exposition.feed(line.as_bytes());
        exposition.feed(b"\n");
        lines += 1;
    }
    let (snapshot, complaints) = exposition.finish();
    assert_eq!(
        (lines, complaints.unreadable, complaints.left_out),
        (ids.len(), 0, 0),
        "{complaints:?}"
    );
    let read: Vec<&str> = snapshot.hooks.keys().map(|(_, name)| name.as_str()).collect();
    let mut names = NAMES.to_vec();
    names.sort_unstable();
    assert_eq!(read, names);
    // No name has made a line of its own.
    assert_eq!(
        text.lines()
            .filter(|line| line.starts_with("hookwatch_self_doubt "))
            .count(),
        1
    );
}

#[test]
fn promtool_finds_nothing_wrong_with_what_is_served() {
    use std::io::Write;
    use std::process::{Command, Stdio};
    if !crate::programs::is_there(
        "promtool",
        "what is served was not checked; it comes with Prometheus",
    ) {
        return;
    }
    let (text, _) = oddly_named();
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}
