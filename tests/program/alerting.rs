//! From a fault to the page that somebody gets, through a real Prometheus and a real Alertmanager.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hookwatch::lab::monitoring::{Monitoring, Programs, ReceivedAlert};
use serde_json::{Value, json};

use crate::programs::skip;
use crate::schemas;

/// A guard against a test that hangs, not a measurement.
const LIMIT: Duration = Duration::from_secs(180);

/// The programs, or word that nothing is tested without them.
fn programs() -> Option<Programs> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match Programs::find() {
        Ok(programs) => Some(programs),
        Err(missing) => {
            skip(&format!("{missing}; no alert was followed to its end"));
            None
        }
    }
}

fn demo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hookwatch"));
    command
        .arg("demo")
        .args(arguments)
        .args(["--with-prometheus", "--output", "json"])
        .stderr(Stdio::inherit());
    command
}

#[test]
fn a_hook_that_hangs_pages_once_with_its_name_and_the_page_ends_with_the_fault() {
    if programs().is_none() {
        return;
    }
    let output = demo(&["--scenario", "validating-hang"]).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(output.status.success(), "{report:#}");
    schemas::holds("demo.v1.json", &report);
    let pages = report["pages"].as_array().unwrap();
    let critical: Vec<&Value> = pages
        .iter()
        .filter(|page| page["severity"] == "critical")
        .collect();
    // That writes are blocked fires as well, and is silent under its cause.
    let [page] = critical.as_slice() else {
        panic!("one page: {pages:#?}")
    };
    assert_eq!(page["alert"], "HookwatchHookFailing");
    let said = page["description"].as_str().unwrap();
    for word in [
        "validating-webhook.openpolicyagent.org",
        "opa-validating-webhook",
        "Hanging",
        "Blocking",
    ] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert!(page["delivered_after_seconds"].is_number(), "{page}");
    assert!(page["resolved_after_seconds"].is_number(), "{page}");
}

#[test]
fn an_interrupted_demo_leaves_no_prometheus_and_no_files_behind() {
    if programs().is_none() {
        return;
    }
    let mut child = demo(&["--hold"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    let told: Value = serde_json::from_str(&line).unwrap();
    let reached = |url: &Value| {
        let address = url.as_str().unwrap().strip_prefix("http://").unwrap();
        std::net::TcpStream::connect(address).is_ok()
    };
    assert!(
        reached(&told["prometheus"]) && reached(&told["alertmanager"]),
        "{told}"
    );
    let id = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(
        !reached(&told["prometheus"]) && !reached(&told["alertmanager"]),
        "{told}"
    );
    let kubeconfig = std::path::Path::new(told["kubeconfig"].as_str().unwrap());
    assert!(!kubeconfig.exists());
}

#[test]
fn without_prometheus_the_demo_says_where_to_get_it_and_is_skipped() {
    let output = demo(&[]).env("PATH", "").stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(77));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("no prometheus in PATH") && said.contains("packages"),
        "{said}"
    );
}

/// Somebody who sends alerts.
struct Sender<'a> {
    monitoring: &'a Monitoring,
    client: reqwest::Client,
}

impl Sender<'_> {
    /// Says that these alerts are firing, or that they are over.
    async fn send(&self, alerts: &[Value], over: bool) {
        let now = jiff::Timestamp::now();
        let ends = if over {
            now
        } else {
            now + jiff::SignedDuration::from_secs(300)
        };
        let alerts: Vec<Value> = alerts
            .iter()
            .map(|labels| {
                json!({"labels": labels, "annotations": {"summary": "s"}, "endsAt": ends.to_string()})
            })
            .collect();
        let url = format!("{}/api/v2/alerts", self.monitoring.alertmanager_url());
        let answer = self.client.post(url).json(&alerts).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{:?}", answer.text().await);
    }

    /// Which of the alerts that Alertmanager has are held back, by name and source.
    async fn silent(&self) -> Vec<(String, String)> {
        let url = format!("{}/api/v2/alerts", self.monitoring.alertmanager_url());
        let alerts: Value = self.client.get(url).send().await.unwrap().json().await.unwrap();
        let mut silent: Vec<(String, String)> = alerts
            .as_array()
            .unwrap()
            .iter()
            .filter(|alert| !alert["status"]["inhibitedBy"].as_array().unwrap().is_empty())
            .map(|alert| {
                let of = |label: &str| alert["labels"][label].as_str().unwrap_or_default().to_owned();
                (of("alertname"), of("source"))
            })
            .collect();
        silent.sort();
        silent
    }

    /// Waits until what was delivered is as wanted.
    async fn until(&self, what: &str, wanted: impl Fn(&[ReceivedAlert]) -> bool) -> Vec<ReceivedAlert> {
        let begin = Instant::now();
        loop {
            let received = self.monitoring.received();
            if wanted(&received) {
                return received;
            }
            assert!(begin.elapsed() < LIMIT, "{what}: {received:#?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

fn source(page: &ReceivedAlert) -> &str {
    page.labels.get("source").map_or("", String::as_str)
}

#[tokio::test(flavor = "multi_thread")]
async fn two_senders_of_one_alert_make_one_incident_that_lasts_until_both_are_done() {
    let Some(programs) = programs() else { return };
    // Nobody is there to be scraped: every alert here is sent by hand.
    let monitoring = Monitoring::start(&programs, "127.0.0.1:9").await.unwrap();
    let sender = Sender {
        monitoring: &monitoring,
        client: reqwest::Client::new(),
    };
    let labels = json!({"alertname": "HookwatchHookFailing", "severity": "critical", "effect": "Blocking",
        "incident": "<script>\"\n"});
    let with = |more: Value| {
        let mut labels = labels.clone();
        let more = more.as_object().unwrap().clone();
        labels.as_object_mut().unwrap().extend(more);
        labels
    };
    let scraped = with(json!({"job": "hookwatch", "instance": "a"}));
    // Whatever else it says.
    let pushed = with(json!({"source": "hookwatch", "cause": "Refused"}));
    let blocked = json!({"alertname": "HookwatchWritesBlocked", "severity": "critical", "state": "blocked",
        "job": "hookwatch", "instance": "a"});
    let other_hook = json!({"alertname": "HookwatchHookFailing", "severity": "warning", "effect": "Delaying",
        "source": "hookwatch", "incident": "m"});
    let known = json!({"alertname": "ApiServerWebhookCallsFail", "severity": "critical", "name": "<script>\"\n",
        "webhook": "<script>\"\n", "type": "validating", "job": "apiserver"});
    let both = [scraped.clone(), pushed.clone(), blocked, other_hook, known];
    sender.send(&both, false).await;
    let received = sender
        .until("both incidents", |received| received.len() >= 2)
        .await;
    assert!(
        received
            .iter()
            .all(|page| source(page).is_empty() || page.labels["incident"] == "m"),
        "{received:#?}"
    );
    let held_back = [
        ("ApiServerWebhookCallsFail", ""),
        ("HookwatchHookFailing", "hookwatch"),
        ("HookwatchWritesBlocked", ""),
    ];
    assert_eq!(
        sender.silent().await,
        held_back.map(|(name, source)| (name.to_owned(), source.to_owned()))
    );
    let incident = received
        .iter()
        .find(|page| source(page).is_empty())
        .unwrap()
        .group
        .clone();

    // Prometheus is done, or dies; hookwatch still fires.
    sender.send(&[scraped], true).await;
    let mine = |page: &&ReceivedAlert| page.group == incident;
    sender
        .until("hookwatch's own comes forward", |received| {
            received
                .iter()
                .filter(mine)
                .any(|page| source(page) == "hookwatch" && page.status == "firing")
        })
        .await;
    let received = monitoring.received();
    assert!(
        received
            .iter()
            .filter(mine)
            .all(|page| page.group_status == "firing"),
        "the incident was closed in between: {received:#?}"
    );

    sender.send(&[pushed], true).await;
    let received = sender
        .until("the incident ends", |received| {
            received
                .iter()
                .filter(mine)
                .any(|page| page.group_status == "resolved")
        })
        .await;
    let incidents: std::collections::BTreeSet<&str> = received
        .iter()
        .filter(|page| page.labels["alertname"] == "HookwatchHookFailing" && page.labels["incident"] != "m")
        .map(|page| page.group.as_str())
        .collect();
    assert_eq!(incidents.len(), 1, "{received:#?}");
}
