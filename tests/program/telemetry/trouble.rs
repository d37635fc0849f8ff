//! Receivers that are away, slow or wrong: the daemon goes on, and nothing grows.

use futures::future::join_all;
use hookwatch::io::report::metrics::{Loss, Metrics};
use hookwatch::lab::ports::free_address;

use super::*;

/// Runs a daemon against a receiver until both signals have lost something, and holds it to its bounds.
async fn loses_and_goes_on(endpoint: &str, protocol: &str, expected: &[Loss]) {
    const QUEUE: usize = 8;
    let lab = Lab::start().await;
    let daemon = lab
        .daemon(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "400"),
            ("OTEL_BSP_SCHEDULE_DELAY", "10"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", &QUEUE.to_string()),
            ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "50"),
        ])
        .await;
    let lost = |signal: &str, loss: Loss| {
        let reason = loss.as_str();
        let name = format!("hookwatch_telemetry_dropped_total{{reason=\"{reason}\",signal=\"{signal}\"}}");
        sample(&daemon, &name)
    };
    let queued = || sample(&daemon, "hookwatch_telemetry_queue_length{signal=\"traces\"}");
    // Many times what may wait is lost, and never more than that waits.
    until("many spans are lost", || {
        let waiting = queued();
        assert!(waiting <= QUEUE as f64, "{waiting} spans wait");
        let all: f64 = Loss::ALL.iter().copied().map(|loss| lost("traces", loss)).sum();
        (all >= (QUEUE * 10) as f64).then_some(())
    })
    .await;
    for signal in ["traces", "metrics"] {
        until("it is said why", || {
            let said: f64 = expected.iter().map(|loss| lost(signal, *loss)).sum();
            (said > 0.0).then_some(())
        })
        .await;
        let name = format!("hookwatch_telemetry_sent_total{{signal=\"{signal}\"}}");
        assert_eq!(sample(&daemon, &name), 0.0);
    }
    // What the daemon is for does not suffer.
    lab.refuse(LabHook::Opa).await;
    until("the hook is failing", || is_failing(&daemon, LabHook::Opa)).await;
    assert!(queued() <= QUEUE as f64);
    tokio::time::timeout(GUARD, daemon.stop())
        .await
        .expect("the daemon stops although nothing can be delivered");
}

async fn is_lost(manner: Manner, protocol: &str, expected: &[Loss]) {
    let receiver = Receiver::start(manner).await;
    loses_and_goes_on(&format!("http://{}", receiver.address), protocol, expected).await;
    assert!(receiver.connections() > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_is_down_costs_nothing_but_what_was_for_it() {
    let losses = [Loss::Unreachable, Loss::TimedOut];
    let of = async |protocol| {
        let down = free_address().unwrap();
        loses_and_goes_on(&format!("http://{down}"), protocol, &losses).await;
    };
    join_all(PROTOCOLS.map(of)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_never_answers_costs_nothing_but_what_was_for_it() {
    join_all(PROTOCOLS.map(|protocol| is_lost(Manner::Silent, protocol, &[Loss::TimedOut]))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_answers_400_costs_nothing_but_what_was_for_it() {
    join_all(PROTOCOLS.map(|protocol| is_lost(Manner::Refusing, protocol, &[Loss::Refused]))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_answers_garbage_costs_nothing_but_what_was_for_it() {
    // What either client makes of it is its own affair.
    let any = [Loss::Unreadable, Loss::Unreachable, Loss::TimedOut, Loss::Refused];
    join_all(PROTOCOLS.map(|protocol| is_lost(Manner::Garbage, protocol, &any))).await;
    let others = [Manner::Page, Manner::Endless];
    join_all(others.map(|manner| is_lost(manner, "http/protobuf", &[Loss::Unreadable]))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_receiver_throws_away_is_counted_and_the_rest_as_well() {
    let of = async |protocol| {
        let lab = Lab::start().await;
        let receiver = Receiver::start(Manner::Rejecting).await;
        let endpoint = format!("http://{}", receiver.address);
        let daemon = lab
            .daemon(&[
                ("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint),
                ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
                ("OTEL_METRICS_EXPORTER", "none"),
                ("OTEL_BSP_SCHEDULE_DELAY", "50"),
            ])
            .await;
        until("several requests arrived", || {
            (receiver.requests() >= 3).then_some(())
        })
        .await;
        let metrics = daemon.shown.metrics.clone();
        daemon.stop().await;
        let samples =
            of_text(&String::from_utf8(Metrics::text(&metrics.families(None, &[])).unwrap()).unwrap());
        let number = |sample: &str| f64::from_bits(samples[sample]);
        let rejected = number("hookwatch_telemetry_dropped_total{reason=\"rejected\",signal=\"traces\"}");
        let taken = number("hookwatch_telemetry_sent_total{signal=\"traces\"}");
        assert_eq!(rejected, receiver.requests() as f64, "{protocol}");
        assert_eq!(
            rejected + taken,
            receiver.look(|sent| sent.spans.len()) as f64,
            "{protocol}"
        );
    };
    join_all(PROTOCOLS.map(of)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_is_busy_for_a_while_gets_everything_in_the_end() {
    let of = async |protocol| {
        let lab = Lab::start().await;
        let receiver = Receiver::start(Manner::Busy(2)).await;
        let endpoint = format!("http://{}", receiver.address);
        let daemon = lab
            .daemon(&[
                ("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint),
                ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
                ("OTEL_METRICS_EXPORTER", "none"),
                ("OTEL_BSP_SCHEDULE_DELAY", "10"),
            ])
            .await;
        until("spans arrived", || {
            receiver.look(|sent| (sent.spans.len() >= 10).then_some(()))
        })
        .await;
        assert!(
            !text(&daemon).contains("hookwatch_telemetry_dropped_total{"),
            "{protocol}"
        );
        daemon.stop().await;
    };
    join_all(PROTOCOLS.map(of)).await;
}
