use super::*;

/// What these variables ask for.
fn with(variables: &[(&str, &str)]) -> TelemetrySettings {
    TelemetrySettings::from_variables(|name| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    })
}

fn endpoints(settings: &TelemetrySettings) -> [Option<String>; 2] {
    [
        settings
            .traces
            .as_ref()
            .map(|traces| traces.destination.endpoint.to_string()),
        settings
            .metrics
            .as_ref()
            .map(|metrics| metrics.destination.endpoint.to_string()),
    ]
}

fn sent_to(traces: &str, metrics: &str) -> [Option<String>; 2] {
    [Some(traces.to_owned()), Some(metrics.to_owned())]
}

const HERE: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");

#[test]
fn without_variables_nothing_is_sent() {
    assert!(with(&[]).is_off());
    assert!(with(&[("OTEL_SERVICE_NAME", "x"), ("OTEL_TRACES_SAMPLER", "always_on")]).is_off());
    assert!(with(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]).is_off());
}

#[test]
fn an_endpoint_is_enough_and_each_signal_has_its_path() {
    let settings = with(&[HERE]);
    let expected = sent_to(
        "http://127.0.0.1:4318/v1/traces",
        "http://127.0.0.1:4318/v1/metrics",
    );
    assert_eq!(endpoints(&settings), expected);
    let below = with(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "https://o.example/otlp/")]);
    let expected = sent_to(
        "https://o.example/otlp/v1/traces",
        "https://o.example/otlp/v1/metrics",
    );
    assert_eq!(endpoints(&below), expected);
    let settings = with(&[HERE, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]);
    let expected = sent_to("http://127.0.0.1:4318/", "http://127.0.0.1:4318/");
    assert_eq!(endpoints(&settings), expected);
}

#[test]
fn an_exporter_that_is_asked_for_by_name_has_a_default_endpoint() {
    let settings = with(&[("OTEL_TRACES_EXPORTER", "otlp")]);
    assert_eq!(
        endpoints(&settings),
        [Some("http://localhost:4318/v1/traces".to_owned()), None]
    );
    let settings = with(&[
        ("OTEL_METRICS_EXPORTER", "otlp"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
    ]);
    assert_eq!(
        endpoints(&settings),
        [None, Some("http://localhost:4317/".to_owned())]
    );
}

#[test]
fn a_signal_can_be_left_out_or_sent_elsewhere() {
    let settings = with(&[HERE, ("OTEL_METRICS_EXPORTER", "none")]);
    assert_eq!(
        endpoints(&settings),
        [Some("http://127.0.0.1:4318/v1/traces".to_owned()), None]
    );
    let settings = with(&[HERE, ("OTEL_TRACES_EXPORTER", "none")]);
    assert_eq!(
        endpoints(&settings),
        [None, Some("http://127.0.0.1:4318/v1/metrics".to_owned())]
    );
    // What is said of one signal is the whole URL.
    let settings = with(&[
        HERE,
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://t.example:1/in"),
    ]);
    let expected = sent_to("http://t.example:1/in", "http://127.0.0.1:4318/v1/metrics");
    assert_eq!(endpoints(&settings), expected);
    assert!(with(&[HERE, ("OTEL_SDK_DISABLED", "true")]).is_off());
    assert!(!with(&[HERE, ("OTEL_SDK_DISABLED", "false")]).is_off());
}

#[test]
fn what_is_said_of_one_signal_overrides_what_is_said_of_both() {
    let settings = with(&[
        HERE,
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "1500"),
        ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "2500"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
        ("OTEL_EXPORTER_OTLP_METRICS_COMPRESSION", "none"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b,Tenant=one"),
        ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "api-key=c"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/ca.pem"),
        ("OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE", "/own.pem"),
        ("OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY", "/own.key"),
    ]);
    assert_eq!(settings.complaints, [""; 0]);
    let traces = settings.traces.unwrap().destination;
    let metrics = settings.metrics.unwrap().destination;
    assert_eq!(
        (traces.protocol, metrics.protocol),
        (Protocol::Grpc, Protocol::HttpProtobuf)
    );
    assert_eq!(traces.timeout, Duration::from_millis(1_500));
    assert_eq!(metrics.timeout, Duration::from_millis(2_500));
    assert_eq!((traces.gzip, metrics.gzip), (true, false));
    assert_eq!((traces.headers.len(), metrics.headers.len()), (2, 1));
    assert_eq!(
        (&traces.headers["api-key"], &traces.headers["tenant"]),
        (&"a b".parse().unwrap(), &"one".parse().unwrap())
    );
    assert_eq!(metrics.headers["api-key"], "c");
    assert_eq!(traces.certificate, Some("/ca.pem".into()));
    assert_eq!(traces.identity, Some(("/own.pem".into(), "/own.key".into())));
    assert_eq!(metrics.identity, None);
}

#[test]
fn a_secret_is_in_no_text() {
    let settings = with(&[
        HERE,
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20hush"),
        (
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
            "http://me:hush@127.0.0.1:4318",
        ),
    ]);
    assert!(!format!("{settings:?}").contains("hush"), "{settings:?}");
    assert_eq!(settings.complaints.len(), 1, "{:?}", settings.complaints);
    assert!(settings.metrics.is_none());
}

#[test]
fn a_host_and_a_port_will_do_for_grpc() {
    let to = |insecure| {
        with(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_INSECURE", insecure),
        ])
    };
    assert_eq!(
        endpoints(&to("true")),
        sent_to("http://collector:4317/", "http://collector:4317/")
    );
    assert_eq!(
        endpoints(&to("")),
        sent_to("https://collector:4317/", "https://collector:4317/")
    );
}

#[test]
fn times_and_sizes_have_the_defaults_of_the_specification_and_can_be_set() {
    let settings = with(&[HERE]);
    let (traces, metrics) = (settings.traces.unwrap(), settings.metrics.unwrap());
    assert_eq!((traces.queue, traces.batch), (2_048, 512));
    assert_eq!(traces.delay, Duration::from_secs(5));
    assert_eq!(traces.destination.timeout, Duration::from_secs(10));
    assert_eq!(metrics.interval, Duration::from_secs(60));
    let settings = with(&[
        HERE,
        ("OTEL_BSP_MAX_QUEUE_SIZE", "64"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "128"),
        ("OTEL_BSP_SCHEDULE_DELAY", "250"),
        ("OTEL_BSP_EXPORT_TIMEOUT", "700"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "1000"),
        ("OTEL_METRIC_EXPORT_TIMEOUT", "800"),
    ]);
    let (traces, metrics) = (settings.traces.unwrap(), settings.metrics.unwrap());
    // A batch that is larger than the queue would never be full.
    assert_eq!((traces.queue, traces.batch), (64, 64));
    assert_eq!(traces.delay, Duration::from_millis(250));
    assert_eq!(traces.destination.timeout, Duration::from_millis(700));
    assert_eq!(metrics.interval, Duration::from_secs(1));
    assert_eq!(metrics.destination.timeout, Duration::from_millis(800));
}

#[test]
fn every_sampler_of_the_specification_that_needs_no_other_service_is_there() {
    let root = |name: &str, argument: &str| {
        let settings = with(&[
            HERE,
            ("OTEL_TRACES_SAMPLER", name),
            ("OTEL_TRACES_SAMPLER_ARG", argument),
        ]);
        assert_eq!(settings.complaints, [""; 0], "{name}");
        format!("{:?}", settings.traces.unwrap().sampler)
    };
    for prefix in ["", "parentbased_"] {
        assert_eq!(root(&format!("{prefix}always_on"), ""), "ParentBased(AlwaysOn)");
        assert_eq!(root(&format!("{prefix}always_off"), ""), "ParentBased(AlwaysOff)");
        let ratio = root(&format!("{prefix}traceidratio"), "0.25");
        assert_eq!(ratio, "ParentBased(TraceIdRatioBased(0.25))");
    }
}

#[test]
fn probes_carry_the_context_unless_it_is_turned_off() {
    let propagate = |value| {
        let settings = with(&[HERE, ("OTEL_PROPAGATORS", value)]);
        assert_eq!(settings.complaints, [""; 0], "{value}");
        settings.traces.unwrap().propagate
    };
    assert!(propagate(""));
    assert!(propagate("tracecontext,baggage"));
    assert!(!propagate("none"));
    assert!(!propagate("baggage"));
}

#[test]
fn the_name_and_the_attributes_of_the_service_can_be_set() {
    let value = |variables: &[(&str, &str)], key: &'static str| {
        let settings = with(&[&[HERE], variables].concat());
        let value = settings.resource.get(&opentelemetry::Key::new(key));
        value.map(|value| value.to_string())
    };
    assert_eq!(value(&[], "service.name").as_deref(), Some("hookwatch"));
    assert!(value(&[], "service.instance.id").is_some_and(|id| !id.is_empty()));
    assert_eq!(value(&[], "telemetry.sdk.name").as_deref(), Some("opentelemetry"));
    let instance = ("OTEL_RESOURCE_ATTRIBUTES", "service.instance.id=one");
    assert_eq!(value(&[instance], "service.instance.id").as_deref(), Some("one"));
    let attributes = (
        "OTEL_RESOURCE_ATTRIBUTES",
        "service.name=a,cluster=north%2Ceast, team = sre",
    );
    assert_eq!(value(&[attributes], "service.name").as_deref(), Some("a"));
    assert_eq!(value(&[attributes], "cluster").as_deref(), Some("north,east"));
    assert_eq!(value(&[attributes], "team").as_deref(), Some("sre"));
    let name = ("OTEL_SERVICE_NAME", "b");
    assert_eq!(value(&[attributes, name], "service.name").as_deref(), Some("b"));
}

#[test]
fn what_makes_no_sense_is_said_and_counts_as_not_set() {
    let nonsense = [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "brotli"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "no-equals-sign"),
        ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "/own.key"),
        ("OTEL_TRACES_EXPORTER", "otlp,zipkin"),
        ("OTEL_TRACES_SAMPLER", "jaeger_remote"),
        ("OTEL_PROPAGATORS", "tracecontext,b3"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
        ("OTEL_BSP_SCHEDULE_DELAY", "-1"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "1s"),
        ("OTEL_RESOURCE_ATTRIBUTES", "a=%zz"),
        ("OTEL_SDK_DISABLED", "maybe"),
    ];
    for (name, value) in nonsense {
        let settings = with(&[HERE, (name, value)]);
        assert_eq!(settings.complaints.len(), 1, "{name}: {:?}", settings.complaints);
        assert!(!settings.is_off(), "{name}");
    }
    let all = with(&[&[HERE], &nonsense[..]].concat());
    assert_eq!(all.complaints.len(), nonsense.len(), "{:#?}", all.complaints);
    for endpoint in ["127.0.0.1:4318", "ftp://127.0.0.1", "http://", "\u{7f}"] {
        let settings = with(&[("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)]);
        assert!(settings.is_off(), "{endpoint:?}");
        assert!(!settings.complaints.is_empty(), "{endpoint:?}");
    }
}
