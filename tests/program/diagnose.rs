//! `hookwatch diagnose` as a person runs it: the binary, a kubeconfig, and a cluster in one state or another.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use hookwatch::domain::time::Time;
use serde_json::Value;

use crate::held::HeldDemo;

const HOOKWATCH: &str = env!("CARGO_BIN_EXE_hookwatch");

/// Half of what a look at a webhook that hangs may take here. A conclusion is reported once it has lasted 3 s, or 8 s if it is
/// less certain.
const SETTLED_BY: Duration = Duration::from_secs(30);

/// A cluster with users, in which a scenario's fault stays.
struct Cluster {
    demo: HeldDemo,
    kubeconfig: PathBuf,
}

impl Cluster {
    fn held(arguments: &[&str]) -> Self {
        let demo = HeldDemo::start(arguments);
        let kubeconfig = demo.text("kubeconfig").into();
        Self { demo, kubeconfig }
    }

    /// Waits until the demo's own daemon has seen what `wanted` asks of the assessment.
    fn until(&self, wanted: impl Fn(&Value) -> bool) {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(self.demo.assessment(wanted));
    }

    /// Looks for as long as it takes to say something, and no longer than `at_most`: on a loaded machine writes are slow now
    /// and then.
    fn diagnose(&self, at_most: &str) -> Output {
        let diagnose = Command::new(HOOKWATCH)
            .args(["diagnose", "--output", "json", "--for", at_most, "--kubeconfig"])
            .arg(&self.kubeconfig)
            .output();
        diagnose.expect("the binary starts")
    }

    /// Ends the API server; the kubeconfig stays as long as this does.
    fn shut_down(&mut self) {
        let copy = std::env::temp_dir().join(format!("hookwatch-test-{}.kubeconfig", std::process::id()));
        std::fs::copy(&self.kubeconfig, &copy).expect("the kubeconfig can be copied");
        self.kubeconfig = copy;
        self.demo.stop();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.demo.stop();
        let _ = std::fs::remove_file(&self.kubeconfig);
    }
}

fn conclusion(output: &Output) -> (Option<i32>, String, Value) {
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    let conclusion = report["conclusion"].as_str().unwrap_or_default().to_owned();
    (output.status.code(), conclusion, report)
}

/// How long before the report's last assessment an instant was.
fn before_its_end(report: &Value, instant: &Value) -> Duration {
    let read = |text: &Value| serde_json::from_value::<Time>(text.clone()).expect("an instant");
    read(&report["assessment"]["at"]).since(read(instant))
}

fn trust() {
    // Fails when another test of this file came first, which is as good.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

#[test]
fn a_healthy_cluster_ends_with_0_and_one_that_is_gone_with_2() {
    trust();
    let mut cluster = Cluster::held(&[]);
    let (code, said, report) = conclusion(&cluster.diagnose("60s"));
    assert_eq!((code, said.as_str()), (Some(0), "healthy"), "{report:#}");
    cluster.shut_down();
    let (code, said, report) = conclusion(&cluster.diagnose("10s"));
    assert_eq!((code, said.as_str()), (Some(2), "could_not_tell"), "{report:#}");
}

#[test]
fn a_hanging_hook_ends_with_1_and_is_named_without_a_baseline() {
    trust();
    let cluster = Cluster::held(&["--scenario", "validating-hang"]);
    cluster.until(|assessment| assessment["control_plane"]["writes"] == "Blocked");
    let (code, said, report) = conclusion(&cluster.diagnose("60s"));
    assert_eq!((code, said.as_str()), (Some(1), "hook_failing"), "{report:#}");
    let culprit = &report["assessment"]["hooks"][0];
    assert_eq!(culprit["webhook"], "validating-webhook.openpolicyagent.org");
    assert_eq!(culprit["cause"], "Hanging");
    assert!(culprit["advice"].is_string());
    // Reported once it has lasted, by its own clock, and not after the minute that it may look for: the webhook hung all along.
    let lasted = before_its_end(&report, &culprit["since"]);
    assert!(lasted < SETTLED_BY, "{lasted:?}: {report:#}");
}

#[test]
fn a_slow_etcd_ends_with_3_without_a_baseline() {
    trust();
    let cluster = Cluster::held(&["--scenario", "etcd-slow"]);
    cluster.until(|assessment| assessment["control_plane"]["not_a_hook"]["cause"] == "EtcdSlow");
    let (code, said, report) = conclusion(&cluster.diagnose("60s"));
    assert_eq!((code, said.as_str()), (Some(3), "not_a_hook"), "{report:#}");
}
