//! The daemon's own push, with real Alertmanagers behind it and servers that only claim to be one.

#[path = "../support/alertmanagers.rs"]
mod alertmanagers;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use hookwatch::app::config::{Config, ConfigArguments};
use hookwatch::app::run::RunningDaemon;
use hookwatch::domain::report::alerts::{Alert, Batch, ResolvedAlert};
use hookwatch::domain::time::{Time, WallReading};
use hookwatch::io::endpoint::{Auth, EndpointTarget};
use hookwatch::io::report::alertmanager::{AlertEnvelope, Alertmanager as Way, body};
use hookwatch::lab::api::{ApiServer, ApiServerOptions};
use hookwatch::lab::backend::Behaviour;
use hookwatch::lab::certs::Authority;
use hookwatch::lab::cluster::{Cluster, LabHook};
use hookwatch::lab::control_plane::BackendReach;
use hookwatch::lab::directory::PrivateDirectory;
use hookwatch::lab::ports::free_address;
use hookwatch::lab::workload::{LabWorkload, WorkloadOptions};
use serde_json::{Value, json};

use alertmanagers::{Alertmanager, Bad, Receiver, answer, until};

use crate::programs::{Running, is_there};

const HOOK: LabHook = LabHook::Opa;

fn ready() -> bool {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    is_there("prometheus-alertmanager", "no alert was pushed to a real one")
}

/// A Prometheus with the shipped rules that scrapes the daemon and tells the Alertmanager.
fn prometheus(folder: &Path, daemon: &str, alertmanager: &str) -> Running {
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("alerts/hookwatch.rules.yaml");
    let configuration = format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n\
         rule_files: [{rules:?}]\n\
         alerting: {{alertmanagers: [{{path_prefix: /am, static_configs: [{{targets: [{alertmanager:?}]}}]}}]}}\n\
         scrape_configs: [{{job_name: hookwatch, static_configs: [{{targets: [{daemon:?}]}}]}}]\n"
    );
    let file = folder.join("prometheus.yaml");
    std::fs::write(&file, configuration).unwrap();
    Running::start(
        Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .arg(format!("--web.listen-address={}", free_address().unwrap())),
    )
}

/// Files for an Alertmanager that wants TLS, a client certificate and a password, and its part of our configuration.
fn guarded(folder: &Path) -> (String, String) {
    let authority = Authority::new("lab").unwrap();
    let server = authority.issue_names(&["localhost", "127.0.0.1"]).unwrap();
    let client = authority.issue_client("hookwatch", "monitoring", false).unwrap();
    let file = |name: &str, content: &str| {
        let path = folder.join(name);
        std::fs::write(&path, content).unwrap();
        path.display().to_string()
    };
    let ca = file("ca.pem", &authority.pem());
    let web = format!(
        "tls_server_config: {{cert_file: {:?}, key_file: {:?}, client_ca_file: {ca:?}, \
         client_auth_type: RequireAndVerifyClientCert}}\n\
         basic_auth_users: {{hookwatch: $2b$04$abcdefghijklmnopqrstuuV3duMsC0HpUex6N9qapiuOHHWkwRXVm}}\n",
        file("server.pem", &server.chain_pem()),
        file("server.key", &server.key_pem()),
    );
    let ours = format!(
        "caFile: {ca:?}, certFile: {:?}, keyFile: {:?}, username: hookwatch, passwordFile: {:?}",
        file("client.pem", &client.chain_pem()),
        file("client.key", &client.key_pem()),
        file("password", "hunter2\n"),
    );
    (file("web.yaml", &web), ours)
}

/// One sample of the daemon's metrics.
async fn sample(daemon: &str, series: &str) -> f64 {
    let text = reqwest::get(format!("http://{daemon}/metrics")).await.unwrap();
    let text = text.text().await.unwrap();
    let line = text
        .lines()
        .find(|line| {
            line.strip_prefix(series)
                .is_some_and(|rest| rest.starts_with(' '))
        })
        .unwrap_or_else(|| panic!("there is no {series} in {text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// The label sets of the alerts that fire for a hook or for writes, from us (true) or from Prometheus, as far as both
/// can have them.
fn comparable(alerts: &[Value], ours: bool) -> BTreeSet<BTreeMap<String, String>> {
    let labels = alerts.iter().map(|alert| {
        let labels = alert["labels"].as_object().unwrap();
        let text = |(name, value): (&String, &Value)| (name.clone(), value.as_str().unwrap().to_owned());
        labels.iter().map(text).collect::<BTreeMap<_, _>>()
    });
    let wanted = ["HookwatchHookFailing", "HookwatchWritesBlocked"];
    labels
        .filter(|labels| wanted.contains(&labels["alertname"].as_str()))
        .filter(|labels| labels.contains_key("source") == ours)
        .map(|mut labels| {
            for not_theirs in ["source", "job", "instance"] {
                labels.remove(not_theirs);
            }
            labels
        })
        .collect()
}

/// Whether an alert about an incident is about the hook of these tests.
fn names_it(alert: &Value) -> bool {
    let text = alert["annotations"]["description"].as_str();
    text.is_some_and(|text| text.contains(HOOK.webhook()))
}

/// A control plane with hooks and users.
struct Lab {
    // In the order in which they end.
    _users: LabWorkload,
    cluster: Cluster,
    api: ApiServer,
    arguments: ConfigArguments,
    _directory: PrivateDirectory,
}

impl Lab {
    async fn start() -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let api = ApiServer::start(ApiServerOptions::default()).await.unwrap();
        let cluster = Cluster::start(&api.kubeconfig(), BackendReach::Loopback)
            .await
            .unwrap();
        let users = LabWorkload::start(&api.kubeconfig(), &WorkloadOptions::default())
            .await
            .unwrap();
        let directory = PrivateDirectory::create().unwrap();
        let arguments = ConfigArguments {
            kubeconfig: Some(directory.write("kubeconfig", &api.kubeconfig()).unwrap()),
            listen: Some("127.0.0.1:0".to_owned()),
            ..ConfigArguments::default()
        };
        Self {
            _users: users,
            cluster,
            api,
            arguments,
            _directory: directory,
        }
    }

    async fn daemon(&self, configuration: &str) -> RunningDaemon {
        let config = Config::parse(configuration, &self.arguments).unwrap();
        RunningDaemon::start(config).await.unwrap()
    }

    async fn behave(&self, behaviour: Behaviour) {
        let behaving = self.cluster.behave(HOOK, HOOK.backends(), &behaviour);
        behaving.await.unwrap();
    }
}

/// Good ones, one of them well guarded, among those that are down, hang, refuse, redirect, babble or come back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_arrives_with_its_culprit_and_ends_whatever_other_alertmanagers_do() {
    if !ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (web, credentials) = guarded(folder.path());
    let (plain_receiver, guarded_receiver) = (Receiver::start().await, Receiver::start().await);
    let plain = Alertmanager::start(&plain_receiver, &["--web.route-prefix=/am"]);
    let guarded = Alertmanager::start(&guarded_receiver, &[&format!("--web.config.file={web}")]);
    let down = free_address().unwrap().to_string();
    let hanging = Bad::start(vec![String::new()]).await;
    let refusing = Bad::start(vec![answer("400 Bad Request", "\"bad label set\"")]).await;
    let redirecting = Bad::start(vec![
        "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n".to_owned(),
    ])
    .await;
    let babbling = Bad::start(vec!["<html>no HTTP".repeat(100_000)]).await;
    let returning = Bad::start(vec![answer("500 Oops", ""), answer("200 OK", "")]).await;

    let lab = Lab::start().await;
    let bad = [
        (&down, "unreachable"),
        (&hanging.address, "timeout"),
        (&refusing.address, "refused"),
        (&redirecting.address, "refused"),
        (&babbling.address, "unreachable"),
        (&returning.address, "unavailable"),
    ];
    let others: Vec<_> = bad
        .iter()
        .map(|(address, _)| format!("{{url: 'http://{address}'}}"))
        .collect();
    let text = format!(
        "alertmanager: {{resendInterval: 2s, timeout: 2s, externalURL: 'https://hookwatch.example.com/', targets: [\
         {{url: 'http://{}/am'}}, {{url: 'https://localhost:{}', {credentials}}}, {}]}}",
        plain.address,
        guarded.address.rsplit(':').next().unwrap(),
        others.join(", ")
    );
    let daemon = lab.daemon(&text).await;
    let address = daemon.address.to_string();
    let compare = is_there(
        "prometheus",
        "its alerts were not compared with those that are pushed",
    );
    let _prometheus = compare.then(|| prometheus(folder.path(), &address, &plain.address));

    lab.behave(Behaviour::AcceptAndHang).await;
    let told = until("the hook is named on a page", async || {
        let alerts = guarded_receiver.alerts();
        let named = alerts
            .iter()
            .find(|alert| alert["labels"]["alertname"] == "HookwatchHookFailing" && names_it(alert));
        named.cloned().ok_or_else(|| format!("{alerts:#?}"))
    })
    .await;
    assert_eq!(told["status"], "firing");
    assert_eq!(told["labels"]["source"], "hookwatch");
    assert_eq!(told["generatorURL"], "https://hookwatch.example.com/");
    for annotation in ["summary", "description"] {
        let text = told["annotations"][annotation].as_str().unwrap();
        assert!(!text.is_empty(), "{told}");
    }
    assert!(
        told["annotations"]["summary"]
            .as_str()
            .unwrap()
            .contains(HOOK.webhook()),
        "{told}"
    );
    if compare {
        let same = until("both say the same of the same outage", async || {
            let alerts = plain.alerts("/am").await?;
            let (ours, theirs) = (comparable(&alerts, true), comparable(&alerts, false));
            let inhibited = alerts
                .iter()
                .filter(|alert| alert["labels"]["source"] == "hookwatch")
                .all(|alert| alert["status"]["state"] == "suppressed");
            if ours == theirs && ours.len() >= 2 && inhibited {
                Ok(ours)
            } else {
                Err(format!("{alerts:#?}"))
            }
        })
        .await;
        let names: Vec<_> = same.iter().map(|labels| &labels["alertname"]).collect();
        let _ = std::io::Write::write_all(
            &mut std::io::stderr(),
            format!("the same from both: {names:?}\n").as_bytes(),
        );
    }
    for (address_of_bad, reason) in bad {
        let series = format!(
            "hookwatch_alertmanager_pushes_failed_total{{alertmanager=\"{address_of_bad}\",reason=\"{reason}\"}}"
        );
        until(&format!("{series} counts"), async || {
            match sample(&address, &series).await {
                0.0 => Err("0".to_owned()),
                _ => Ok(()),
            }
        })
        .await;
    }
    let sent = |of: &str| format!("hookwatch_alertmanager_alerts_sent_total{{alertmanager=\"{of}\"}}");
    assert!(sample(&address, &sent(&returning.address)).await > 0.0);
    assert_eq!(sample(&address, &sent(&refusing.address)).await, 0.0);

    lab.behave(Behaviour::Healthy).await;
    until("its end is told", async || {
        let alerts = guarded_receiver.alerts();
        let ended = alerts.iter().any(|alert| {
            alert["status"] == "resolved"
                && alert["labels"]["alertname"] == "HookwatchHookFailing"
                && names_it(alert)
        });
        ended.then_some(()).ok_or_else(|| format!("{alerts:#?}"))
    })
    .await;
    assert!(refusing.requests() < 40, "{}", refusing.requests());
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_leader_sends_alerts_and_every_replica_when_the_api_server_is_gone() {
    let lab = Lab::start().await;
    let mut replicas = Vec::new();
    for _ in 0..2 {
        let taking = Bad::start(vec![answer("200 OK", "")]).await;
        let text = format!(
            "leadership: {{leaseDuration: 5s}}\n\
             alertmanager: {{resendInterval: 1s, targets: [{{url: 'http://{}'}}]}}",
            taking.address
        );
        replicas.push((lab.daemon(&text).await, taking));
    }
    let pushes = || {
        replicas
            .iter()
            .map(|(_, taking)| taking.requests())
            .collect::<Vec<_>>()
    };
    lab.behave(Behaviour::AcceptAndHang).await;
    until("the leader has spoken several times", async || {
        match pushes().iter().max() {
            Some(5..) => Ok(()),
            _ => Err(format!("{:?}", pushes())),
        }
    })
    .await;
    assert!(pushes().contains(&0), "both have spoken: {:?}", pushes());

    let Lab { api, .. } = lab;
    drop(api);
    until("the other speaks as well", async || {
        if pushes().contains(&0) {
            Err(format!("{:?}", pushes()))
        } else {
            Ok(())
        }
    })
    .await;
    let before = pushes();
    until("both go on", async || {
        if pushes()
            .iter()
            .zip(&before)
            .all(|(now, before)| now >= &(before + 3))
        {
            Ok(())
        } else {
            Err(format!("{before:?} and then {:?}", pushes()))
        }
    })
    .await;
}

/// An alert as Prometheus would send it.
async fn as_prometheus(alertmanager: &Alertmanager, webhook: &str, ends: &str) {
    let alert = json!([{"labels": labels(webhook, &[("job", "hookwatch"), ("instance", "10.0.0.7:9880")]),
        "annotations": {"summary": "by a rule"}, "endsAt": ends}]);
    let url = format!("http://{}/api/v2/alerts", alertmanager.address);
    let answer = reqwest::Client::new()
        .post(url)
        .header("content-type", "application/json")
        .body(alert.to_string())
        .send()
        .await
        .unwrap();
    assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
}

fn labels<'a>(webhook: &'a str, further: &[(&'a str, &'a str)]) -> BTreeMap<&'a str, String> {
    let own = [
        ("alertname", "HookwatchHookFailing"),
        ("severity", "critical"),
        ("kind", "validating"),
        ("configuration", "policy"),
        ("webhook", webhook),
        ("cause", "Hanging"),
        ("effect", "Blocking"),
    ];
    let all = own.iter().chain(further);
    all.map(|(name, value)| (*name, (*value).to_owned())).collect()
}

fn ours(webhook: &str) -> Alert {
    let labels = [
        "alertname",
        "severity",
        "kind",
        "configuration",
        "webhook",
        "cause",
        "effect",
    ];
    let mut values = self::labels(webhook, &[]);
    let mut labels: BTreeMap<&'static str, String> = labels
        .into_iter()
        .map(|name| (name, values.remove(name).unwrap()))
        .collect();
    // As seen a moment later: that is still the same trouble.
    labels.insert("cause", "Refused".to_owned());
    labels.insert("source", "hookwatch".to_owned());
    Alert {
        labels: labels.into(),
        summary: format!("{webhook:?} is Refused."),
        description: "Nobody listens.".to_owned(),
        runbook_url: "https://example.com/runbook.md".to_owned(),
        since: Time::from_unix_millis(1_000),
    }
}

async fn push(way: &mut Way, firing: Vec<Alert>, ended: Vec<Alert>) {
    let envelope = AlertEnvelope {
        labels: BTreeMap::new(),
        generator_url: None,
        ahead: Duration::from_secs(130),
    };
    let now = Time::from_unix_millis(20_000);
    let ended = ended
        .into_iter()
        .map(|alert| ResolvedAlert { alert, at: now })
        .collect();
    let batch = Batch { firing, ended };
    let shown = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let wall = WallReading {
        ours: now,
        wall: Time::from_unix(shown),
    };
    let body = body(&batch, &envelope, now, wall);
    until("it takes the push", async || {
        way.push(body.clone()).await.map_err(|error| error.to_string())
    })
    .await;
}

fn way(alertmanager: &Alertmanager) -> Way {
    let target = EndpointTarget {
        url: format!("http://{}/", alertmanager.address).parse().unwrap(),
        ca_file: None,
        client_certificate: None,
        auth: Auth::None,
    };
    Way::new(target, Duration::from_secs(10))
}

/// The statuses of the pages, each once in a row.
fn course(receiver: &Receiver) -> Vec<String> {
    let mut course: Vec<String> = receiver
        .notifications()
        .iter()
        .map(|it| it["status"].as_str().unwrap().to_owned())
        .collect();
    course.dedup();
    course
}

const FOREVER: &str = "2099-01-01T00:00:00Z";
const LONG_AGO: &str = "2020-01-01T00:00:00Z";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_is_one_page_whichever_of_two_senders_resolves_first() {
    if !ready() {
        return;
    }
    let receiver = Receiver::start().await;
    let alertmanager = Alertmanager::start(&receiver, &[]);
    let mut way = way(&alertmanager);
    let from_us = |alert: &Value| alert["labels"]["source"] == "hookwatch";

    push(&mut way, Vec::new(), Vec::new()).await;
    as_prometheus(&alertmanager, "w", FOREVER).await;
    until("there is a page", async || {
        if receiver.notifications().is_empty() {
            Err(String::new())
        } else {
            Ok(())
        }
    })
    .await;
    push(&mut way, vec![ours("w")], Vec::new()).await;
    let kept_back = async || {
        let alerts = alertmanager.alerts("").await?;
        let found = alerts.iter().find(|alert| from_us(alert));
        if found.is_some_and(|alert| alert["status"]["state"] == "suppressed") {
            Ok(())
        } else {
            Err(format!("{alerts:#?}"))
        }
    };
    until("ours is kept back", kept_back).await;
    assert!(!receiver.alerts().iter().any(from_us), "{:#?}", receiver.alerts());

    // Ours ends, theirs does not; then ours is there again.
    push(&mut way, Vec::new(), vec![ours("w")]).await;
    until("ours is gone", async || {
        let alerts = alertmanager.alerts("").await?;
        match alerts.len() {
            1 => Ok(()),
            _ => Err(format!("{alerts:#?}")),
        }
    })
    .await;
    push(&mut way, vec![ours("w")], Vec::new()).await;
    until("ours is kept back again", kept_back).await;
    assert_eq!(course(&receiver), ["firing"]);

    // Theirs ends, ours does not: the same page goes on.
    as_prometheus(&alertmanager, "w", LONG_AGO).await;
    until("ours takes its place", async || {
        let alerts = receiver.alerts();
        if alerts.iter().any(from_us) {
            Ok(())
        } else {
            Err(format!("{alerts:#?}"))
        }
    })
    .await;
    assert_eq!(course(&receiver), ["firing"]);
    push(&mut way, Vec::new(), vec![ours("w")]).await;
    until("the page ends", async || match course(&receiver).len() {
        2 => Ok(()),
        _ => Err(format!("{:#?}", receiver.notifications())),
    })
    .await;
    assert_eq!(course(&receiver), ["firing", "resolved"]);
    let pages: BTreeSet<_> = receiver
        .notifications()
        .iter()
        .map(|it| it["groupKey"].to_string())
        .collect();
    assert_eq!(pages.len(), 1, "{pages:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_alertmanager_takes_a_webhook_of_any_name() {
    if !ready() {
        return;
    }
    let receiver = Receiver::start().await;
    let alertmanager = Alertmanager::start(&receiver, &[]);
    let names: Vec<String> = [
        "<script>alert(1)</script>",
        "a\"b'c\\d{{ .Labels }}",
        "line\nbreak\r\t\u{0}",
        "\u{202e}\u{5e9}\u{5dc}\u{5d5}\u{5dd}",
        &"w".repeat(253),
    ]
    .map(str::to_owned)
    .to_vec();
    let firing: Vec<_> = names.iter().map(|name| ours(name)).collect();
    push(&mut way(&alertmanager), firing, Vec::new()).await;
    until("every one is on a page", async || {
        let alerts = receiver.alerts();
        let told: BTreeSet<_> = alerts
            .iter()
            .map(|alert| alert["labels"]["webhook"].as_str().unwrap().to_owned())
            .collect();
        if names.iter().all(|name| told.contains(name)) {
            Ok(())
        } else {
            Err(format!("{told:?}"))
        }
    })
    .await;
}
