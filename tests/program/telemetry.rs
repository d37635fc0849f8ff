//! Traces and metrics over OTLP: the daemon on the lab's control plane, and a receiver at the other end of the wire.

mod binary;
#[path = "../support/otlp.rs"]
mod otlp;
mod tls;
mod trouble;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::time::Duration;

use hookwatch::app::engine::Engine;
use hookwatch::domain::vocabulary::Health;
use hookwatch::io::report::metrics::Metrics;
use hookwatch::io::telemetry::TelemetrySettings;
use hookwatch::lab::backend::Behaviour;
use hookwatch::lab::cluster::{Cluster, LabHook};
use hookwatch::lab::control_plane::{ControlPlaneKind, LabControlPlane};
use hookwatch::lab::directory::PrivateDirectory;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;

use otlp::samples::{Samples, grows, of_otlp, of_text};
use otlp::{Manner, Receiver, Sent, attribute};

use crate::engines::config;

/// A guard against what never comes, not a measurement.
const GUARD: Duration = Duration::from_secs(90);
/// How often is looked.
const LOOK: Duration = Duration::from_millis(20);

const PROTOCOLS: [&str; 2] = ["grpc", "http/protobuf"];

/// A control plane with hooks, and a kubeconfig for it.
struct Lab {
    // In the order in which they end.
    cluster: Cluster,
    _control_plane: LabControlPlane,
    kubeconfig: PathBuf,
    directory: PrivateDirectory,
}

impl Lab {
    async fn start() -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let directory = PrivateDirectory::create().unwrap();
        let control_plane = LabControlPlane::start(ControlPlaneKind::Embedded, directory.path())
            .await
            .unwrap();
        let kubeconfig = directory
            .write("kubeconfig", &control_plane.kubeconfig())
            .unwrap();
        let cluster = Cluster::start(&control_plane.kubeconfig(), ControlPlaneKind::Embedded.reach())
            .await
            .unwrap();
        Self {
            cluster,
            _control_plane: control_plane,
            kubeconfig,
            directory,
        }
    }

    /// A daemon with these variables.
    async fn daemon(&self, variables: &[(&str, &str)]) -> Engine {
        let mut config = config(&self.kubeconfig, "");
        config.leadership.enabled = false;
        config.probes.rates.interval = config.probes.rates.alert_interval;
        let settings = TelemetrySettings::from_variables(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        });
        assert_eq!(settings.complaints, [""; 0]);
        Engine::start_with(&config, settings).await.unwrap()
    }

    async fn refuse(&self, hook: LabHook) {
        self.cluster
            .behave(hook, usize::MAX, &Behaviour::Refused)
            .await
            .unwrap();
    }

    /// Every trace context that a backend of the hook was sent.
    fn traceparents(&self, hook: LabHook) -> Vec<(u16, String)> {
        let backends = self.cluster.backends(hook).iter();
        backends
            .flat_map(|backend| {
                let port = backend.address().port();
                let all = backend.counters().traceparents();
                all.into_iter().map(move |traceparent| (port, traceparent))
            })
            .collect()
    }
}

/// Looks until there is something to see.
async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let waiting = async {
        loop {
            if let Some(seen) = look() {
                return seen;
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    match tokio::time::timeout(GUARD, waiting).await {
        Ok(seen) => seen,
        Err(_) => panic!("waited in vain until {what}"),
    }
}

fn is_failing(daemon: &Engine, hook: LabHook) -> Option<()> {
    let assessment = daemon.shown.assessment.borrow().clone()?;
    let mut culprits = assessment
        .hooks
        .iter()
        .filter(|verdict| verdict.health == Health::Failing);
    culprits
        .any(|verdict| &*verdict.webhook == hook.webhook())
        .then_some(())
}

fn text(daemon: &Engine) -> String {
    let assessment = daemon.shown.assessment.borrow().clone();
    let certificates = daemon.shown.certificates.lock().unwrap().clone();
    let metrics = &daemon.shown.metrics;
    let text = Metrics::text(&metrics.families(assessment.as_deref(), &certificates)).unwrap();
    String::from_utf8(text).unwrap()
}

/// A sample of the daemon's own metrics; 0 when it is not there.
fn sample(daemon: &Engine, name: &str) -> f64 {
    let samples = of_text(&text(daemon));
    samples.get(name).copied().map_or(0.0, f64::from_bits)
}

fn named<'a>(sent: &'a Sent, name: &str) -> Vec<&'a Span> {
    sent.spans.iter().filter(|span| span.name == name).collect()
}

fn is_error(span: &Span) -> bool {
    span.status
        .as_ref()
        .is_some_and(|status| status.code() == StatusCode::Error)
}

/// A probe that was refused. A canary may have told so before any was.
fn refused(sent: &Sent) -> Option<&Span> {
    let is_refused = |probe: &&Span| attribute(&probe.attributes, "error.type") == Some("refused");
    named(sent, "probe").into_iter().find(is_refused)
}

/// The spans of a hook's refused probes, with what led to the verdict.
async fn a_verdict_can_be_traced_to_the_probes_before_it(protocol: &str) {
    let lab = Lab::start().await;
    let receiver = Receiver::start(Manner::Well).await;
    let endpoint = format!("http://{}", receiver.address);
    let daemon = lab
        .daemon(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
            ("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=team%20a"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            ("OTEL_SERVICE_NAME", "watch"),
            ("OTEL_RESOURCE_ATTRIBUTES", "k8s.cluster.name=north"),
            ("OTEL_BSP_SCHEDULE_DELAY", "50"),
            ("OTEL_METRICS_EXPORTER", "none"),
        ])
        .await;
    // A few probes while all is well, so that there are answers with all phases.
    until("a probe was answered", || {
        receiver.look(|sent| {
            let probes = named(sent, "probe");
            probes.iter().any(|probe| !is_error(probe)).then_some(())
        })
    })
    .await;
    lab.refuse(LabHook::Opa).await;
    until("the hook is failing", || is_failing(&daemon, LabHook::Opa)).await;
    until(
        "a failing verdict and all that hangs together with it arrived",
        || {
            receiver.look(|sent| {
                let verdicts = named(sent, "verdict");
                let failing = verdicts.into_iter().find(|verdict| {
                    attribute(&verdict.attributes, "hookwatch.verdict.health") == Some("failing")
                })?;
                let known: HashSet<&[u8]> = sent.spans.iter().map(|span| &*span.span_id).collect();
                let linked = failing.links.iter().all(|link| known.contains(&*link.span_id));
                refused(sent)?;
                (linked && known.contains(&*failing.parent_span_id)).then_some(())
            })
        },
    )
    .await;
    daemon.stop().await;

    receiver.look(|sent| {
        let by_id: HashMap<&[u8], &Span> = sent.spans.iter().map(|span| (&*span.span_id, span)).collect();
        assert_eq!(by_id.len(), sent.spans.len(), "a span was sent twice");
        for span in &sent.spans {
            hangs_together(span, &by_id);
        }
        an_answered_probe_has_its_phases(sent);

        let verdict = named(sent, "verdict")
            .into_iter()
            .find(|verdict| attribute(&verdict.attributes, "hookwatch.verdict.health") == Some("failing"))
            .unwrap();
        let says = |key| attribute(&verdict.attributes, key);
        assert_eq!(says("hookwatch.hook.webhook"), Some(LabHook::Opa.webhook()));
        assert_eq!(
            says("hookwatch.hook.configuration"),
            Some(LabHook::Opa.configuration())
        );
        // A call that was under way when its backend went is told as an error, if it is told first.
        let cause = says("hookwatch.verdict.cause");
        assert!(matches!(cause, Some("Refused" | "Erroring")), "{verdict:?}");
        assert_eq!(by_id[&*verdict.parent_span_id].name, "round");
        let linked: Vec<&Span> = verdict.links.iter().map(|link| by_id[&*link.span_id]).collect();
        assert!((1..=8).contains(&linked.len()), "{linked:?}");
        for probe in &linked {
            assert_eq!(probe.name, "probe");
            let of = attribute(&probe.attributes, "hookwatch.hook.webhook");
            assert_eq!(of, Some(LabHook::Opa.webhook()));
        }
        let refused = refused(sent).unwrap();
        assert!(is_error(refused));
        let phases = children(sent, refused);
        assert_eq!(phases.len(), 1);
        assert_eq!(phases[0].name, "connect");
        assert!(is_error(phases[0]), "{phases:?}");

        for name in ["canary", "scrape", "control_plane"] {
            assert!(!named(sent, name).is_empty(), "no {name}");
        }
        for resource in &sent.resources {
            assert_eq!(attribute(&resource.attributes, "service.name"), Some("watch"));
            assert_eq!(attribute(&resource.attributes, "k8s.cluster.name"), Some("north"));
        }
        for headers in &sent.headers {
            assert_eq!(headers["x-tenant"], "team a");
            let agent = headers["user-agent"].to_str().unwrap();
            assert!(agent.starts_with("hookwatch/"), "{agent}");
        }
    });
}

fn children<'a>(sent: &'a Sent, parent: &Span) -> Vec<&'a Span> {
    let mut children: Vec<&Span> = sent
        .spans
        .iter()
        .filter(|span| span.parent_span_id == parent.span_id)
        .collect();
    children.sort_by_key(|child| child.start_time_unix_nano);
    children
}

/// Every span but a round is in the trace of its parent, and what is a part of a probe lies within it.
fn hangs_together(span: &Span, by_id: &HashMap<&[u8], &Span>) {
    assert!(span.start_time_unix_nano <= span.end_time_unix_nano, "{span:?}");
    let parent = match span.name.as_str() {
        "round" => {
            assert!(span.parent_span_id.is_empty(), "{span:?}");
            return;
        }
        _ => by_id
            .get(&*span.parent_span_id)
            .unwrap_or_else(|| panic!("no parent of {span:?}")),
    };
    assert_eq!(span.trace_id, parent.trace_id);
    assert!(
        parent.start_time_unix_nano <= span.start_time_unix_nano,
        "{span:?} in {parent:?}"
    );
    match span.name.as_str() {
        "probe" | "canary" | "scrape" => {
            assert_eq!(parent.name, "round");
            assert_eq!(span.kind(), SpanKind::Client);
        }
        "verdict" | "control_plane" => assert_eq!(parent.name, "round"),
        _ => {
            assert_eq!(parent.name, "probe");
            assert!(
                span.end_time_unix_nano <= parent.end_time_unix_nano,
                "{span:?} in {parent:?}"
            );
        }
    }
}

fn an_answered_probe_has_its_phases(sent: &Sent) {
    let fresh = |probe: &&&Span| {
        let says = |key| attribute(&probe.attributes, key);
        says("hookwatch.probe.connection") == Some("fresh")
            && says("hookwatch.probe.outcome") == Some("answered")
    };
    let probes = named(sent, "probe");
    let probe = probes.iter().find(fresh).expect("an answered probe");
    let phases = children(sent, probe);
    let names: Vec<&str> = phases.iter().map(|phase| phase.name.as_str()).collect();
    assert_eq!(names, ["connect", "tls", "first_byte", "body"]);
    for pair in phases.windows(2) {
        assert_eq!(
            pair[0].end_time_unix_nano, pair[1].start_time_unix_nano,
            "{phases:?}"
        );
    }
    assert_eq!(phases[3].end_time_unix_nano, probe.end_time_unix_nano);
    assert!(phases.iter().all(|phase| !is_error(phase)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_verdict_can_be_traced_to_the_probes_before_it_over_grpc() {
    a_verdict_can_be_traced_to_the_probes_before_it("grpc").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_verdict_can_be_traced_to_the_probes_before_it_over_http() {
    a_verdict_can_be_traced_to_the_probes_before_it("http/protobuf").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_over_otlp_are_those_of_the_exposition() {
    for protocol in PROTOCOLS {
        let lab = Lab::start().await;
        let receiver = Receiver::start(Manner::Well).await;
        let endpoint = format!("http://{}", receiver.address);
        let daemon = lab
            .daemon(&[
                ("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint),
                ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
                ("OTEL_TRACES_EXPORTER", "none"),
                ("OTEL_METRIC_EXPORT_INTERVAL", "100"),
            ])
            .await;
        lab.refuse(LabHook::Opa).await;
        until("the hook is failing", || is_failing(&daemon, LabHook::Opa)).await;
        // A canary may have told before any probe was over.
        until("a probe was counted", || {
            text(&daemon).contains("\nhookwatch_probes_total{").then_some(())
        })
        .await;

        let before = of_text(&text(&daemon));
        let requests = receiver.look(|sent| sent.metrics.len());
        // The first one after may have been read off before.
        until("two more requests arrived", || {
            receiver.look(|sent| (sent.metrics.len() >= requests + 2).then_some(()))
        })
        .await;
        let arrived = receiver.look(|sent| of_otlp(&sent.metrics[requests + 1]));
        let after = of_text(&text(&daemon));
        lies_between(&before, &arrived, &after);

        // Stopped, nothing moves any more, and what is sent last is the same to the bit.
        let (metrics, assessment) = (daemon.shown.metrics.clone(), daemon.shown.assessment.clone());
        let certificates = daemon.shown.certificates.clone();
        daemon.stop().await;
        let last = receiver.look(|sent| of_otlp(sent.metrics.last().unwrap()));
        let assessment = assessment.borrow().clone();
        let certificates = certificates.lock().unwrap().clone();
        let text = Metrics::text(&metrics.families(assessment.as_deref(), &certificates)).unwrap();
        let stays = |samples: Samples| -> Samples {
            let ours = |(sample, _): &(String, u64)| !sample.starts_with("hookwatch_telemetry_");
            samples.into_iter().filter(ours).collect()
        };
        let text = stays(of_text(&String::from_utf8(text).unwrap()));
        assert!(text.len() > 100, "{}", text.len());
        assert_eq!(stays(last), text, "{protocol}");
    }
}

/// What was sent is between the two expositions that were read before and after it.
fn lies_between(before: &Samples, arrived: &Samples, after: &Samples) {
    let number = |samples: &Samples, sample: &String| samples.get(sample).copied().map(f64::from_bits);
    for (sample, first) in before {
        let Some(last) = after.get(sample) else { continue };
        let got = arrived.get(sample).unwrap_or_else(|| panic!("no {sample}"));
        if first == last {
            assert_eq!(got, first, "{sample}");
        } else if grows(sample) {
            let (first, got, last) = (
                f64::from_bits(*first),
                f64::from_bits(*got),
                f64::from_bits(*last),
            );
            assert!(first <= got && got <= last, "{sample}: {first} {got} {last}");
        }
    }
    for sample in arrived.keys() {
        assert!(
            before.contains_key(sample) || after.contains_key(sample),
            "{sample} is too much"
        );
    }
    let probes = arrived
        .keys()
        .find(|sample| sample.starts_with("hookwatch_probes_total{"));
    assert!(number(arrived, probes.unwrap()).unwrap() >= 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_tells_the_backend_which_span_it_is() {
    let lab = Lab::start().await;
    let receiver = Receiver::start(Manner::Well).await;
    let endpoint = format!("http://{}", receiver.address);
    let daemon = lab
        .daemon(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint),
            ("OTEL_BSP_SCHEDULE_DELAY", "50"),
        ])
        .await;
    let (port, traceparent) = until("a probe reached a backend", || {
        lab.traceparents(LabHook::Quota).into_iter().next()
    })
    .await;
    let parts: Vec<&str> = traceparent.split('-').collect();
    let [version, trace, span, flags] = parts[..] else {
        panic!("{traceparent}");
    };
    assert_eq!((version, flags, trace.len(), span.len()), ("00", "01", 32, 16));
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let probe = until("its span arrived", || {
        receiver.look(|sent| {
            let found = sent.spans.iter().find(|probe| hex(&probe.span_id) == span);
            found.cloned()
        })
    })
    .await;
    assert_eq!(hex(&probe.trace_id), trace);
    assert_eq!(probe.name, "probe");
    assert_eq!(
        attribute(&probe.attributes, "hookwatch.hook.webhook"),
        Some(LabHook::Quota.webhook())
    );
    let told = probe
        .attributes
        .iter()
        .find(|attribute| attribute.key == "server.port");
    let told = told.and_then(|attribute| attribute.value.clone()?.value);
    let expected = opentelemetry_proto::tonic::common::v1::any_value::Value::IntValue(i64::from(port));
    assert_eq!(told, Some(expected));
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_sampled_is_not_sent_and_says_so_to_the_backend() {
    let lab = Lab::start().await;
    let receiver = Receiver::start(Manner::Well).await;
    let endpoint = format!("http://{}", receiver.address);
    let daemon = lab
        .daemon(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint),
            ("OTEL_METRICS_EXPORTER", "none"),
            ("OTEL_TRACES_SAMPLER", "always_off"),
            ("OTEL_BSP_SCHEDULE_DELAY", "10"),
        ])
        .await;
    let all = until("some probes reached a backend", || {
        let all = lab.traceparents(LabHook::Opa);
        (all.len() >= 5).then_some(all)
    })
    .await;
    assert!(
        all.iter().all(|(_, traceparent)| traceparent.ends_with("-00")),
        "{all:?}"
    );
    daemon.stop().await;
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_carry_no_context_when_that_is_turned_off() {
    let lab = Lab::start().await;
    let receiver = Receiver::start(Manner::Well).await;
    let endpoint = format!("http://{}", receiver.address);
    let daemon = lab
        .daemon(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint),
            ("OTEL_PROPAGATORS", "none"),
            ("OTEL_BSP_SCHEDULE_DELAY", "10"),
        ])
        .await;
    until("spans of probes arrived", || {
        receiver.look(|sent| (named(sent, "probe").len() >= 5).then_some(()))
    })
    .await;
    daemon.stop().await;
    for &hook in LabHook::ALL {
        assert_eq!(lab.traceparents(hook), []);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_variables_nothing_is_sent_and_no_series_is_there() {
    let lab = Lab::start().await;
    let receiver = Receiver::start(Manner::Well).await;
    let endpoint = format!("http://{}", receiver.address);
    let disabled = [
        ("OTEL_SDK_DISABLED", "true"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
    ];
    let neither = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
        ("OTEL_TRACES_EXPORTER", "none"),
        ("OTEL_METRICS_EXPORTER", "none"),
    ];
    for variables in [&[][..], &disabled, &neither] {
        let daemon = lab.daemon(variables).await;
        until("probes were made", || {
            let all = of_text(&text(&daemon));
            let probes = all
                .iter()
                .filter(|(sample, _)| sample.starts_with("hookwatch_probes_total{"));
            let made: f64 = probes.map(|(_, count)| f64::from_bits(*count)).sum();
            (made >= 6.0).then_some(())
        })
        .await;
        assert!(!text(&daemon).contains("hookwatch_telemetry"), "{variables:?}");
        daemon.stop().await;
        assert_eq!(lab.traceparents(LabHook::Opa), []);
        assert_eq!(receiver.connections(), 0);
    }
}
