//! The binary, with variables in its environment.

use std::io::Read;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use super::*;
use crate::programs::{Running, hookwatch};

/// The daemon at a lab.
struct Daemon(Running);

impl Daemon {
    fn start(lab: &Lab, variables: &[(&str, &str)]) -> Self {
        let mut command = hookwatch();
        let child = command
            .args([
                "run",
                "--listen",
                "127.0.0.1:0",
                "--log-format",
                "json",
                "--kubeconfig",
            ])
            .arg(&lab.kubeconfig)
            .envs(variables.iter().copied())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self(Running(child))
    }

    /// Asks it to end, and returns what it has said.
    async fn end(mut self) -> Vec<serde_json::Value> {
        let id = Pid::from_child(&self.0.0);
        kill_process(id, Signal::TERM).unwrap();
        let mut said = String::new();
        let mut errors = self.0.0.stderr.take().unwrap();
        let (said, status) = tokio::task::spawn_blocking(move || {
            errors.read_to_string(&mut said).unwrap();
            (said, self.0.0.wait().unwrap())
        })
        .await
        .unwrap();
        assert!(status.success(), "{status}: {said}");
        said.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_line_names_the_trace_and_what_waits_is_delivered_before_the_end() {
    for protocol in PROTOCOLS {
        let lab = Lab::start().await;
        lab.refuse(LabHook::Opa).await;
        let receiver = Receiver::start(Manner::Well).await;
        let endpoint = format!("http://{}", receiver.address);
        let daemon = Daemon::start(
            &lab,
            &[
                ("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint),
                ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
                ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20hush"),
                // Nothing is sent before the end by itself.
                ("OTEL_BSP_SCHEDULE_DELAY", "3600000"),
                ("OTEL_BSP_MAX_QUEUE_SIZE", "65536"),
                ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "65536"),
                ("OTEL_METRIC_EXPORT_INTERVAL", "3600000"),
                ("OTEL_TRACES_SAMPLER", "nonsense"),
            ],
        );
        until("probes were made for a while", || {
            (lab.traceparents(LabHook::Quota).len() >= 8).then_some(())
        })
        .await;
        assert_eq!(receiver.requests(), 0);
        let said = daemon.end().await;

        assert!(said.iter().all(|line| !line.to_string().contains("hush")));
        let complaints = said
            .iter()
            .filter(|line| line.to_string().contains("OTEL_TRACES_SAMPLER"));
        assert_eq!(complaints.count(), 1, "{said:#?}");
        let traces: HashSet<&str> = said.iter().filter_map(|line| line["trace_id"].as_str()).collect();
        let failing = said
            .iter()
            .find(|line| line["health"] == "failing" && line["webhook"] == LabHook::Opa.webhook())
            .unwrap_or_else(|| panic!("nothing failed: {said:#?}"));
        assert!(
            traces.contains(failing["trace_id"].as_str().unwrap()),
            "{failing}"
        );
        receiver.look(|sent| {
            let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            let rounds: HashSet<String> = named(sent, "round")
                .iter()
                .map(|round| hex(&round.trace_id))
                .collect();
            for trace in &traces {
                assert!(rounds.contains(*trace), "{trace} was not sent");
            }
            let how = |round: &&Span| attribute(&round.attributes, "hookwatch.round.end") == Some("stopped");
            assert_eq!(named(sent, "round").into_iter().filter(how).count(), 1);
            let last = of_otlp(sent.metrics.last().expect("the last metrics"));
            assert!(last.contains_key(&format!(
                "hookwatch_build_info{{version=\"{}\"}}",
                env!("CARGO_PKG_VERSION")
            )));
            for headers in &sent.headers {
                assert_eq!(headers["authorization"], "Bearer hush");
            }
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_hangs_does_not_keep_the_daemon_from_ending() {
    let lab = Lab::start().await;
    let receiver = Receiver::start(Manner::Silent).await;
    let endpoint = format!("http://{}", receiver.address);
    let daemon = Daemon::start(
        &lab,
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint),
            // Longer than anybody would wait for the end of the test.
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "3600000"),
            ("OTEL_BSP_EXPORT_TIMEOUT", "3600000"),
            ("OTEL_METRIC_EXPORT_TIMEOUT", "3600000"),
            ("OTEL_BSP_SCHEDULE_DELAY", "10"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "100"),
        ],
    );
    until("both signals hang", || (receiver.requests() >= 2).then_some(())).await;
    let said = tokio::time::timeout(GUARD, daemon.end()).await.expect("it ends");
    let told = said
        .iter()
        .any(|line| line.to_string().contains("could not be delivered within 5 s"));
    assert!(told, "{said:#?}");
}

#[test]
fn check_config_says_which_variables_make_no_sense_and_takes_none_of_them_for_a_mistake() {
    let output = hookwatch()
        .arg("check-config")
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
        .env("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("hookwatch: OTEL_EXPORTER_OTLP_PROTOCOL is not used"),
        "{said}"
    );
}
