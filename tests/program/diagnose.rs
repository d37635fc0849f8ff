//! `hookwatch diagnose` as a person runs it: the binary, a kubeconfig, and a cluster in one state or another.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const HOOKWATCH: &str = env!("CARGO_BIN_EXE_hookwatch");
/// Nothing here takes this long; it only keeps a broken test from hanging.
const GUARD: Duration = Duration::from_secs(90);

/// A held demo: a cluster with users, in which a scenario's fault stays.
struct Cluster {
    demo: Child,
    kubeconfig: PathBuf,
    daemon: String,
}

impl Cluster {
    fn held(scenario: Option<&str>) -> Self {
        let mut command = Command::new(HOOKWATCH);
        command
            .args(["demo", "--hold", "--output", "json"])
            .stdout(Stdio::piped());
        if let Some(scenario) = scenario {
            command.args(["--scenario", scenario]);
        }
        let mut demo = command.spawn().expect("the binary starts");
        let stdout = demo.stdout.take().expect("stdout is piped");
        let mut line = String::new();
        BufReader::new(stdout)
            .read_line(&mut line)
            .expect("the demo says where it is");
        let said: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"));
        let text = |key: &str| said[key].as_str().expect("the demo names it").to_owned();
        Self {
            demo,
            kubeconfig: text("kubeconfig").into(),
            daemon: text("daemon"),
        }
    }

    /// Waits until the demo's own daemon has seen what `wanted` asks of the assessment.
    fn until(&self, wanted: impl Fn(&Value) -> bool) {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let url = format!("{}/api/v1/assessment", self.daemon);
        let (began, mut last) = (Instant::now(), Value::Null);
        runtime.block_on(async {
            let client = reqwest::Client::new();
            while began.elapsed() < GUARD {
                if let Ok(answer) = client.get(&url).send().await
                    && let Ok(assessment) = answer.json().await
                {
                    last = assessment;
                    if wanted(&last) {
                        return;
                    }
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            panic!("it never came to that: {last:#}");
        });
    }

    fn diagnose(&self) -> Output {
        let diagnose = Command::new(HOOKWATCH)
            .args(["diagnose", "--output", "json", "--for", "20s", "--kubeconfig"])
            .arg(&self.kubeconfig)
            .output();
        diagnose.expect("the binary starts")
    }

    /// Ends the API server; the kubeconfig stays as long as this does.
    fn shut_down(&mut self) {
        let copy = std::env::temp_dir().join(format!("hookwatch-test-{}.kubeconfig", std::process::id()));
        std::fs::copy(&self.kubeconfig, &copy).expect("the kubeconfig can be copied");
        self.kubeconfig = copy;
        self.stop();
    }

    fn stop(&mut self) {
        if !matches!(self.demo.try_wait(), Ok(None)) {
            return;
        }
        // SIGINT lets the demo take its files along; the standard library can only kill.
        let _ = Command::new("kill")
            .args(["-INT", &self.demo.id().to_string()])
            .status();
        let _ = self.demo.wait();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop();
        let _ = std::fs::remove_file(&self.kubeconfig);
    }
}

fn conclusion(output: &Output) -> (Option<i32>, String, Value) {
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    let conclusion = report["conclusion"].as_str().unwrap_or_default().to_owned();
    (output.status.code(), conclusion, report)
}

fn trust() {
    // Fails when another test of this file came first, which is as good.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

#[test]
fn a_healthy_cluster_ends_with_0_and_one_that_is_gone_with_2() {
    trust();
    let mut cluster = Cluster::held(None);
    let (code, said, report) = conclusion(&cluster.diagnose());
    assert_eq!((code, said.as_str()), (Some(0), "healthy"), "{report:#}");
    cluster.shut_down();
    let (code, said, report) = conclusion(&cluster.diagnose());
    assert_eq!((code, said.as_str()), (Some(2), "could_not_tell"), "{report:#}");
}

#[test]
fn a_hanging_hook_ends_with_1_and_is_named_to_somebody_who_saw_no_better_times() {
    trust();
    let cluster = Cluster::held(Some("validating-hang"));
    cluster.until(|assessment| assessment["control_plane"]["writes"] == "Blocked");
    let (code, said, report) = conclusion(&cluster.diagnose());
    assert_eq!((code, said.as_str()), (Some(1), "hook_failing"), "{report:#}");
    let culprit = &report["assessment"]["hooks"][0];
    assert_eq!(culprit["webhook"], "validating-webhook.openpolicyagent.org");
    assert_eq!(culprit["cause"], "Hanging");
    assert!(culprit["advice"].is_string());
}

#[test]
fn a_slow_etcd_ends_with_3_for_somebody_who_saw_no_better_times() {
    trust();
    let cluster = Cluster::held(Some("etcd-slow"));
    cluster.until(|assessment| assessment["control_plane"]["not_a_hook"]["cause"] == "EtcdSlow");
    let (code, said, report) = conclusion(&cluster.diagnose());
    assert_eq!((code, said.as_str()), (Some(3), "not_a_hook"), "{report:#}");
}
