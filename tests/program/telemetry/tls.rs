//! Receivers behind TLS.

use hookwatch::lab::certs::Authority;

use super::*;

/// Runs a daemon until `metric` of both signals is more than 0.
async fn until_both(lab: &Lab, variables: &[(&str, String)], metric: &str) {
    let variables: Vec<(&str, &str)> = variables
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    let daemon = lab.daemon(&variables).await;
    for signal in ["traces", "metrics"] {
        let name = metric.replace("SIGNAL", signal);
        until(&name, || (sample(&daemon, &name) > 0.0).then_some(())).await;
    }
    daemon.stop().await;
}

const LOST: &str = "hookwatch_telemetry_dropped_total{reason=\"unreachable\",signal=\"SIGNAL\"}";
const TAKEN: &str = "hookwatch_telemetry_sent_total{signal=\"SIGNAL\"}";

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_is_trusted_by_the_certificate_that_was_named_and_trusts_the_one_that_we_show() {
    let lab = Lab::start().await;
    let (authority, other) = (Authority::new("ours").unwrap(), Authority::new("other").unwrap());
    let receiver = Receiver::with_tls(&authority.issue("localhost").unwrap(), &authority).await;
    let endpoint = format!("https://localhost:{}", receiver.address.port());
    let own = authority.issue_client("hookwatch", "watchers", false).unwrap();
    let write = |name: &str, text: String| {
        let path = lab.directory.write(name, &text).unwrap();
        path.display().to_string()
    };
    let (right, wrong) = (
        write("right.pem", authority.pem()),
        write("wrong.pem", other.pem()),
    );
    let (certificate, key) = (write("own.pem", own.chain_pem()), write("own.key", own.key_pem()));
    for protocol in PROTOCOLS {
        let with = |trusted: &String, own: bool| {
            let mut variables = vec![
                ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.clone()),
                ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol.to_owned()),
                ("OTEL_EXPORTER_OTLP_CERTIFICATE", trusted.clone()),
                ("OTEL_EXPORTER_OTLP_TIMEOUT", "400".to_owned()),
                ("OTEL_BSP_SCHEDULE_DELAY", "10".to_owned()),
                ("OTEL_METRIC_EXPORT_INTERVAL", "50".to_owned()),
            ];
            if own {
                variables.push(("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", certificate.clone()));
                variables.push(("OTEL_EXPORTER_OTLP_CLIENT_KEY", key.clone()));
            }
            variables
        };
        let before = receiver.requests();
        until_both(&lab, &with(&wrong, true), LOST).await;
        until_both(&lab, &with(&right, false), LOST).await;
        assert_eq!(receiver.requests(), before, "{protocol}");
        until_both(&lab, &with(&right, true), TAKEN).await;
        assert!(receiver.requests() > before, "{protocol}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_cannot_be_read_turns_its_signal_off_and_nothing_else() {
    let lab = Lab::start().await;
    let receiver = Receiver::start(Manner::Well).await;
    let junk = lab
        .directory
        .write("junk.pem", "-----BEGIN CERTIFICATE-----\nhm")
        .unwrap();
    for protocol in PROTOCOLS {
        for path in ["/nowhere/ca.pem", junk.to_str().unwrap()] {
            let before = receiver.look(|sent| sent.metrics.len());
            let daemon = lab
                .daemon(&[
                    ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://localhost:1"),
                    ("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", path),
                    ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", protocol),
                    (
                        "OTEL_EXPORTER_OTLP_ENDPOINT",
                        &format!("http://{}", receiver.address),
                    ),
                    ("OTEL_METRIC_EXPORT_INTERVAL", "50"),
                ])
                .await;
            until("metrics arrived", || {
                receiver.look(|sent| (sent.metrics.len() > before).then_some(()))
            })
            .await;
            daemon.stop().await;
        }
    }
    assert_eq!(receiver.look(|sent| sent.spans.len()), 0);
    assert_eq!(lab.traceparents(LabHook::Opa), []);
}
