use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use opentelemetry::trace::SpanId;
use opentelemetry_sdk::trace::SpanData;

use super::*;
use crate::domain::cluster::hook::{BackendAddress, BackendPath, HookKind, ProbeLevel};
use crate::domain::diagnose::verdict::Verdict;
use crate::domain::observe::probe::{
    CertificateFacts, ConnectionKind, PhaseDurations, ProbeAnswer, ProbeOutcome, ProbePhase, ProbeReport,
};
use crate::domain::observe::snapshot::{ScrapeFailure, ScrapeFailureReason};
use crate::domain::vocabulary::{Cause, Effect};
use crate::io::report::metrics::Metrics;
use crate::io::telemetry::TelemetrySettings;
use crate::io::telemetry::queue::{Waiting, queue};

/// A tracer whose clock the test moves, and the receiver of its spans.
struct Bench {
    tracer: Tracer,
    waiting: Waiting,
    now: Arc<AtomicU64>,
    clock: Clock,
    metrics: Arc<Metrics>,
}

impl Bench {
    fn new() -> Self {
        let settings = TelemetrySettings::from_variables(|name| {
            (name == "OTEL_TRACES_EXPORTER").then(|| "otlp".to_owned())
        });
        let metrics = Arc::new(Metrics::new().unwrap());
        let (queue, waiting) = queue(10_000, metrics.telemetry().clone());
        let now = Arc::new(AtomicU64::new(1_795_219_862_000));
        let read = Arc::clone(&now);
        let clock: Clock = Arc::new(move || Time::from_unix_millis(read.load(Ordering::SeqCst)));
        Self {
            tracer: Tracer::new(settings.traces.unwrap(), queue, &clock, &metrics),
            waiting,
            now,
            clock,
            metrics,
        }
    }

    fn pass(&self, time: Duration) {
        let millis = u64::try_from(time.as_millis()).unwrap();
        self.now.fetch_add(millis, Ordering::SeqCst);
    }

    fn now(&self) -> Time {
        Time::from_unix_millis(self.now.load(Ordering::SeqCst))
    }

    /// All spans that have ended, by their names.
    fn ended(&mut self, name: &str) -> Vec<SpanData> {
        let all = self.waiting.take();
        all.into_iter().filter(|span| span.name == name).collect()
    }
}

fn hook(name: &str) -> HookId {
    HookId::new(HookKind::Validating, "policy", name)
}

fn backend() -> Backend {
    Backend {
        path: BackendPath::Endpoint,
        address: BackendAddress::Socket(SocketAddr::from(([127, 0, 0, 1], 443))),
    }
}

fn report(started: Time, took: Duration, phases: PhaseDurations, outcome: ProbeOutcome) -> ProbeReport {
    ProbeReport {
        hook: hook("a"),
        backend: backend(),
        level: ProbeLevel::Http,
        connection: ConnectionKind::Fresh,
        started,
        took,
        phases,
        outcome,
        certificates: CertificateFacts::default(),
        shared: false,
    }
}

fn change(name: &str, health: Health) -> LoggedChange {
    LoggedChange::Hook {
        from: Some((Health::Healthy, None)),
        verdict: Box::new(Verdict {
            kind: HookKind::Validating,
            configuration: Some("policy".into()),
            webhook: name.into(),
            incident: "policy/policy:443".to_owned(),
            health,
            cause: Some(Cause::Hanging),
            effect: Effect::Blocking,
            needs_shield: false,
            fails_open: false,
            webhook_confidence: 0.9,
            confidence: 0.9,
            rule: "no-data",
            excess_share: None,
            since: None,
            summary: "It does not answer.".to_owned(),
            evidence: vec!["A canary named it.".to_owned()],
            advice: None,
            backends: Vec::new(),
            canaries: Vec::new(),
            bypass: None,
            by_hand: None,
        }),
    }
}

fn says<'a>(span: &'a SpanData, key: &str) -> Option<&'a opentelemetry::Value> {
    let found = span
        .attributes
        .iter()
        .find(|attribute| attribute.key.as_str() == key);
    found.map(|attribute| &attribute.value)
}

#[test]
fn off_everything_is_empty() {
    let tracer = Tracer::default();
    let probe = tracer.probe([&hook("a")].into_iter(), &backend());
    assert!(probe.0.is_none());
    assert_eq!(probe.traceparent(), None);
    assert_eq!(tracer.changed(&change("a", Health::Failing)), None);
    tracer.judged(None);
}

#[test]
fn however_many_observations_there_are_a_trace_has_only_so_many() {
    let mut bench = Bench::new();
    for _ in 0..3 * MOST {
        drop(bench.tracer.probe([&hook("a")].into_iter(), &backend()));
    }
    let mut children: HashMap<TraceId, usize> = HashMap::new();
    for probe in bench.ended("probe") {
        *children.entry(probe.span_context.trace_id()).or_default() += 1;
    }
    assert_eq!(children.into_values().collect::<Vec<_>>(), [MOST; 3]);
}

#[test]
fn a_round_without_a_change_ends_when_it_is_long_but_not_without_observations() {
    let mut bench = Bench::new();
    bench.pass(LONGEST * 3);
    bench.tracer.judged(None);
    assert!(bench.ended("round").is_empty());
    drop(bench.tracer.scrape("127.0.0.1:6443"));
    bench.tracer.judged(None);
    let rounds = bench.ended("round");
    assert_eq!(rounds.len(), 1);
    assert_eq!(says(&rounds[0], "hookwatch.round.end").unwrap().as_str(), "time");
    drop(bench.tracer.scrape("127.0.0.1:6443"));
    bench.pass(LONGEST / 2);
    bench.tracer.judged(None);
    assert!(bench.ended("round").is_empty());
}

#[test]
fn a_change_ends_its_round_and_links_to_the_newest_probes_of_its_hook() {
    let mut bench = Bench::new();
    let mut newest = Vec::new();
    for _ in 0..3 * LINKS {
        drop(bench.tracer.probe([&hook("b")].into_iter(), &backend()));
        let probe = bench.tracer.probe([&hook("a")].into_iter(), &backend());
        newest.push(probe.traceparent().unwrap().to_str().unwrap()[36..52].to_owned());
    }
    let trace = bench.tracer.changed(&change("a", Health::Failing)).unwrap();
    bench.tracer.judged(None);
    let all = bench.waiting.take();
    let round = all.iter().find(|span| span.name == "round").unwrap();
    assert_eq!(round.span_context.trace_id(), trace);
    assert_eq!(says(round, "hookwatch.round.end").unwrap().as_str(), "changed");
    let verdict = all.iter().find(|span| span.name == "verdict").unwrap();
    assert_eq!(verdict.parent_span_id, round.span_context.span_id());
    let links: Vec<String> = verdict
        .links
        .iter()
        .map(|link| link.span_context.span_id().to_string())
        .collect();
    let expected: Vec<String> = newest.into_iter().rev().take(LINKS).collect();
    assert_eq!(links, expected);
}

#[test]
fn the_first_look_at_a_hook_that_is_well_is_no_news() {
    let mut bench = Bench::new();
    let LoggedChange::Hook { verdict, .. } = change("a", Health::Healthy) else {
        return;
    };
    let first = LoggedChange::Hook { from: None, verdict };
    assert_eq!(bench.tracer.changed(&first), None);
    bench.tracer.judged(None);
    assert!(bench.waiting.take().is_empty());
}

#[test]
fn what_is_remembered_of_a_hook_goes_with_it() {
    let bench = Bench::new();
    for name in ["a", "b", "c"] {
        drop(bench.tracer.probe([&hook(name)].into_iter(), &backend()));
    }
    bench.tracer.keep_only(&BTreeSet::from([hook("b")]));
    let rounds = bench.tracer.0.as_ref().unwrap();
    let known: Vec<HookId> = rounds.lock().probes.keys().cloned().collect();
    assert_eq!(known, [hook("b")]);
}

#[test]
fn phases_are_laid_end_to_end_up_to_the_end_of_the_probe() {
    let mut bench = Bench::new();
    let started = bench.now();
    let probe = bench.tracer.probe([&hook("a")].into_iter(), &backend());
    let millis = Duration::from_millis;
    // 5 ms went to a pooled connection that was closed; these are the phases of the one after it.
    let phases = PhaseDurations {
        resolve: None,
        connect: Some(millis(1)),
        tls: Some(millis(20)),
        first_byte: Some(millis(3)),
        body: None,
    };
    let outcome = ProbeOutcome::TimedOut {
        phase: ProbePhase::FirstByte,
    };
    probe.probed(&report(started, millis(29), phases, outcome));
    let all = bench.waiting.take();
    let names: Vec<&str> = all.iter().map(|span| &*span.name).collect();
    assert_eq!(names, ["first_byte", "tls", "connect", "probe"]);
    let begin = system(WallReading::default(), started);
    let at = |span: &SpanData| {
        let since = |time: SystemTime| time.duration_since(begin).unwrap().as_millis();
        (since(span.start_time), since(span.end_time))
    };
    assert_eq!(
        all.iter().map(at).collect::<Vec<_>>(),
        [(26, 29), (6, 26), (5, 6), (0, 29)]
    );
    let probe = all[3].span_context.span_id();
    assert_ne!(probe, SpanId::INVALID);
    assert!(all[..3].iter().all(|phase| phase.parent_span_id == probe));
    let failed: Vec<bool> = all
        .iter()
        .map(|span| matches!(span.status, opentelemetry::trace::Status::Error { .. }))
        .collect();
    assert_eq!(failed, [true, false, false, true]);
}

#[test]
fn a_span_is_dated_by_the_wall_clock_as_it_was_set_when_it_began() {
    let mut bench = Bench::new();
    let before = bench.tracer.scrape("a:1");
    // The machine's clock is far from the one that the daemon began with.
    bench.metrics.wall.look(&bench.clock);
    let wall = bench.metrics.wall.reading();
    let after = bench.tracer.scrape("a:1");
    let trouble = ScrapeFailure {
        target: "a:1".to_owned(),
        at: bench.now(),
        reason: ScrapeFailureReason::TimedOut,
        why: "no answer".to_owned(),
    };
    before.scraped(Err(&trouble));
    after.scraped(Err(&trouble));
    let spans = bench.ended("scrape");
    let dates: Vec<_> = spans
        .iter()
        .map(|span| (span.start_time, span.end_time))
        .collect();
    let expected = [WallReading::default(), wall].map(|wall| system(wall, trouble.at));
    assert_ne!(expected[0], expected[1]);
    assert_eq!(dates, expected.map(|at| (at, at)));
}

#[test]
fn an_unusable_answer_is_an_error_of_the_probe_and_of_no_phase() {
    let mut bench = Bench::new();
    let phases = PhaseDurations {
        first_byte: Some(Duration::from_millis(1)),
        ..PhaseDurations::default()
    };
    let refused = ProbeOutcome::Answered(ProbeAnswer::ReviewRefused { status: 500 });
    let probe = bench.tracer.probe([&hook("a")].into_iter(), &backend());
    probe.probed(&report(bench.now(), Duration::from_millis(1), phases, refused));
    let all = bench.waiting.take();
    assert!(matches!(all[0].status, opentelemetry::trace::Status::Unset));
    assert!(matches!(
        all[1].status,
        opentelemetry::trace::Status::Error { .. }
    ));
    assert_eq!(
        says(&all[1], "http.response.status_code"),
        Some(&opentelemetry::Value::I64(500))
    );
}

#[test]
fn nothing_begins_before_its_round_while_others_observe() {
    let mut bench = Bench::new();
    let read = Arc::new(AtomicU64::new(1));
    // Every look at it is a later instant, and another thread may come in between.
    let clock: Clock = Arc::new(move || {
        let now = read.fetch_add(1, Ordering::SeqCst);
        std::thread::yield_now();
        Time::from_unix_millis(now)
    });
    let rounds = Arc::get_mut(bench.tracer.0.as_mut().unwrap()).unwrap();
    rounds.clock = clock;
    rounds.lock().round =
        TraceRound::begin(&rounds.tracer, Time::from_unix_millis(0), WallReading::default());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..1_000 {
                    drop(bench.tracer.probe([&hook("a")].into_iter(), &backend()));
                }
            });
        }
        for _ in 0..1_000 {
            bench.tracer.changed(&change("a", Health::Failing));
            bench.tracer.judged(None);
        }
    });
    bench.tracer.end();
    let all = bench.waiting.take();
    let rounds = all.iter().filter(|span| span.name == "round");
    let began: HashMap<SpanId, SystemTime> = rounds
        .map(|round| (round.span_context.span_id(), round.start_time))
        .collect();
    let mut children = all.iter().filter(|span| span.name != "round");
    assert!(children.all(|span| began[&span.parent_span_id] <= span.start_time));
}
