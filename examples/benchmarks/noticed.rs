//! How soon a broken webhook is noticed by hookwatch, and by alerts of a real Prometheus: on hookwatch's metrics, on the API
//! server's metrics, and on probes of each endpoint by the blackbox exporter. All of them watch the same fault.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt};
use hookwatch::app::config::{Config, ConfigArguments};
use hookwatch::app::run::RunningDaemon;
use hookwatch::domain::act::fence::AutoBreak;
use hookwatch::lab::api::{ApiServer, ApiServerOptions};
use hookwatch::lab::backend::Behaviour;
use hookwatch::lab::cluster::{Cluster, LabHook};
use hookwatch::lab::control_plane::BackendReach;
use hookwatch::lab::directory::PrivateDirectory;
use hookwatch::lab::workload::{LabWorkload, WorkloadOptions};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::document::{Section, Table};
use crate::estate;
use crate::noise::{Samples, digits, seconds};
use crate::tools;

const HOOK: LabHook = LabHook::Opa;
/// The faults: name, fault, and number of labs that play it.
const FAULTS: [(&str, Fault, usize); 6] = [
    ("hangs", Fault::Behaves(Behaviour::AcceptAndHang), 30),
    ("refuses connections", Fault::Behaves(Behaviour::Refused), 30),
    // Much slower than usual but within every deadline: a warning, not a page.
    (
        "answers after 1 s",
        Fault::Behaves(Behaviour::Slow(Duration::from_secs(1))),
        12,
    ),
    (
        "answers after 6 s",
        Fault::Behaves(Behaviour::Slow(Duration::from_secs(6))),
        12,
    ),
    (
        "answers 500",
        Fault::Behaves(Behaviour::HttpStatus(500, Cow::Borrowed("broken\n"))),
        12,
    ),
    ("certificate expired", Fault::CertificateExpired, 12),
];
/// Labs that run at the same time; each mostly waits, for a minute or two.
const AT_ONCE: usize = 6;
/// Time without a fault at the start of each lab.
const CALM: Duration = Duration::from_secs(60);
/// Prometheus' scrape and evaluation interval. The faults begin at instants spread over it.
const INTERVAL: Duration = Duration::from_secs(15);
/// Longest wait for an alert.
const PATIENCE: Duration = Duration::from_secs(180);
/// Intervals at which the daemon and (`LOOK_AT_ALERTS`) Prometheus are polled.
const LOOK: Duration = Duration::from_millis(100);
const LOOK_AT_ALERTS: Duration = Duration::from_millis(500);

/// What notices the fault: the columns of the table.
const NOTICES: [&str; 5] = [
    "hookwatch names it, s",
    "hookwatch's shield in force, s",
    "Alert on hookwatch's metrics, s",
    "Alert on the API server's metrics, s",
    "Alert on a blackbox probe, s",
];
/// The alerts of the last three columns: the first alert that fires counts.
const ALERTS: [&[&str]; 3] = [
    &[
        "HookwatchHookFailing",
        "HookwatchWritesBlocked",
        "HookwatchWritesDelayed",
    ],
    &["ApiServerWebhookCallsFail", "ApiServerWebhookSlow"],
    &["EndpointDown"],
];

/// The fault of every backend of the webhook.
enum Fault {
    Behaves(Behaviour),
    CertificateExpired,
}

impl Fault {
    async fn begin(&self, cluster: &Cluster) -> anyhow::Result<()> {
        match self {
            Self::Behaves(behaviour) => cluster.behave(HOOK, usize::MAX, behaviour).await,
            Self::CertificateExpired => cluster.renew_certificates(HOOK, true).await,
        }
    }
}

/// Seconds from the fault until each column noticed it; `None` for not within [`PATIENCE`].
type Noticed = [Option<f64>; NOTICES.len()];

/// Plays every fault.
///
/// # Errors
/// When something does not start.
pub fn measure(quick: bool) -> anyhow::Result<Section> {
    let mut section = Section::new("Who notices first");
    if quick {
        section.skip("How soon a fault is noticed", "this was a quick run");
        return Ok(section);
    }
    let programs = ["prometheus", "prometheus-blackbox-exporter"].map(tools::find);
    let [Some(prometheus), Some(exporter)] = &programs else {
        section.skip(
            "How soon a fault is noticed",
            "no prometheus or no prometheus-blackbox-exporter",
        );
        return Ok(section);
    };
    section.say(&format!(
        "A webhook for everything with `failurePolicy: Fail` breaks on the embedded control plane, to which eight writes a second \
         are sent. hookwatch runs with default settings, but it may shield, leads without a Lease and protects nothing by a fence. \
         A real Prometheus scrapes hookwatch, the API server and a \
         blackbox exporter that probes each endpoint, and evaluates rules, all every {} s (the rules' own intervals \
         are left out); the alerts are [those that are shipped](../alerts/), and `probe_success == 0` for a minute. Seconds from the fault, each \
         in a new lab: median, quartiles and worst. {AT_ONCE} labs are played at once and share the machine's cores.",
        INTERVAL.as_secs()
    ));
    let mut head = vec!["Fault", "Times"];
    head.extend(NOTICES);
    let mut table = Table::new(&head);
    let runtime = Runtime::new()?;
    for (name, fault, times) in &FAULTS {
        let runs = futures::stream::iter(0..*times).map(|run| async move {
            let later = INTERVAL.mul_f64(run as f64 / *times as f64);
            let noticed = play(later, fault, (prometheus, exporter)).await?;
            eprintln!("  {name}, {run}: {noticed:.1?}");
            anyhow::Ok(noticed)
        });
        let all: Vec<Noticed> = runtime.block_on(runs.buffer_unordered(AT_ONCE).try_collect())?;
        let mut row = vec![(*name).to_owned(), times.to_string()];
        row.extend((0..NOTICES.len()).map(|who| cell(&all, who)));
        table.row(&row);
    }
    section.table(table);
    Ok(section)
}

fn cell(all: &[Noticed], who: usize) -> String {
    let found: Samples = all.iter().filter_map(|noticed| noticed[who]).collect();
    let never = all.iter().filter(|noticed| noticed[who].is_none()).count();
    match (found.is_empty(), never) {
        (true, _) => "never".to_owned(),
        (false, 0) => format!("{found}, at most {}", digits(found.quantile(1.0))),
        (false, never) => format!("{found}, {never} times not within {} s", PATIENCE.as_secs()),
    }
}

/// Plays one lab from start to end. Its fault begins `later` after [`CALM`].
async fn play(
    later: Duration,
    fault: &Fault,
    (prometheus, exporter): (&Path, &Path),
) -> anyhow::Result<Noticed> {
    let server = ApiServer::start(ApiServerOptions::default()).await?;
    let cluster = Cluster::start(&server.kubeconfig(), BackendReach::Loopback).await?;
    let load = WorkloadOptions {
        clients: 2,
        pace: Duration::from_millis(250),
    };
    let _workload = LabWorkload::start(&server.kubeconfig(), &load).await?;
    let directory = PrivateDirectory::create()?;
    let daemon = start_daemon(&directory, &server.kubeconfig()).await?;
    let ca = directory.write("webhook-ca.pem", &cluster.authority())?;
    let (_exporter, probed) = tools::start_exporter(exporter, directory.path(), &ca, &HOOK.server_name())?;
    let scrapes = scrapes(
        &directory,
        &server.kubeconfig(),
        daemon.address,
        &probed,
        &cluster,
    )?;
    let (_prometheus, at) = tools::start_prometheus(prometheus, &directory, &scrapes)?;
    tokio::time::sleep(CALM + later).await;
    fault.begin(&cluster).await?;
    let noticed = watch(daemon.address, at, Instant::now()).await;
    daemon.stop().await;
    Ok(noticed)
}

/// Polls until all have noticed, or [`PATIENCE`] is over.
async fn watch(daemon: SocketAddr, prometheus: SocketAddr, begun: Instant) -> Noticed {
    let mut noticed = Noticed::default();
    let mut looked = begun;
    while begun.elapsed() < PATIENCE && noticed.iter().any(Option::is_none) {
        tokio::time::sleep(LOOK).await;
        let assessment = estate::assessment(daemon).await.unwrap_or_default();
        let of_hook = |list: &Value| {
            let mut all = list.as_array().into_iter().flatten();
            all.find(|it| it["webhook"] == HOOK.webhook())
                .cloned()
                .unwrap_or_default()
        };
        let failing = of_hook(&assessment["hooks"])["health"] == "Failing";
        let shielded = of_hook(&assessment["breaker"]["hooks"])["effective"] == true;
        let mut seen = vec![(0, failing), (1, shielded)];
        if looked.elapsed() >= LOOK_AT_ALERTS {
            looked = Instant::now();
            let firing = firing(prometheus).await.unwrap_or_default();
            let fires = |alerts: &[&str]| firing.iter().any(|name| alerts.contains(&name.as_str()));
            seen.extend(
                ALERTS
                    .iter()
                    .enumerate()
                    .map(|(nth, alerts)| (2 + nth, fires(alerts))),
            );
        }
        for (who, is_so) in seen {
            if is_so {
                noticed[who].get_or_insert(seconds(begun.elapsed()));
            }
        }
    }
    noticed
}

/// The names of the firing alerts; `None` when Prometheus does not answer.
async fn firing(prometheus: SocketAddr) -> Option<Vec<String>> {
    let answer = reqwest::get(format!("http://{prometheus}/api/v1/alerts"))
        .await
        .ok()?;
    let answer: Value = serde_json::from_str(&answer.text().await.ok()?).ok()?;
    let alerts = answer["data"]["alerts"].as_array()?;
    let firing = alerts.iter().filter(|alert| alert["state"] == "firing");
    let names = firing.filter_map(|alert| alert["labels"]["alertname"].as_str());
    Some(names.map(str::to_owned).collect())
}

async fn start_daemon(directory: &PrivateDirectory, kubeconfig: &str) -> anyhow::Result<RunningDaemon> {
    let arguments = ConfigArguments {
        kubeconfig: Some(directory.write("kubeconfig", kubeconfig)?),
        listen: Some("127.0.0.1:0".to_owned()),
        ..ConfigArguments::default()
    };
    let config = Config::parse("", &arguments);
    let mut config = config.map_err(|mistakes| anyhow::anyhow!("{mistakes:?}"))?;
    config.auto_break = AutoBreak::On;
    // The lab's account is an administrator, so the fence would never hold.
    config.without_fence = true;
    config.leadership.enabled = false;
    RunningDaemon::start(config).await
}

/// The configuration of Prometheus: its scrapes and rules.
fn scrapes(
    directory: &PrivateDirectory,
    kubeconfig: &str,
    daemon: SocketAddr,
    exporter: &SocketAddr,
    cluster: &Cluster,
) -> anyhow::Result<String> {
    directory.write(
        "hookwatch.rules.yaml",
        &evenly(include_str!("../../alerts/hookwatch.rules.yaml")),
    )?;
    directory.write(
        "apiserver-only.rules.yaml",
        &evenly(include_str!("../../alerts/apiserver-only.rules.yaml")),
    )?;
    let down =
        "groups: [{name: blackbox, rules: [{alert: EndpointDown, expr: probe_success == 0, for: 1m}]}]\n";
    directory.write("blackbox.rules.yaml", down)?;
    let endpoints = cluster.backends(HOOK).iter();
    let endpoints: Vec<String> = endpoints
        .map(|it| format!("\"https://{}/\"", it.address()))
        .collect();
    Ok(format!(
        "global: {{scrape_interval: {interval}s, evaluation_interval: {interval}s}}\n\
         rule_files: [\"*.rules.yaml\"]\n\
         scrape_configs:\n\
         - {{job_name: hookwatch, static_configs: [{{targets: [\"{daemon}\"]}}]}}\n\
         {apiserver}\
         - job_name: blackbox\n  metrics_path: /probe\n  params: {{module: [webhook]}}\n  \
         static_configs: [{{targets: [{endpoints}]}}]\n  relabel_configs:\n  \
         - {{source_labels: [__address__], target_label: __param_target}}\n  \
         - {{source_labels: [__param_target], target_label: instance}}\n  \
         - {{target_label: __address__, replacement: \"{exporter}\"}}\n",
        interval = INTERVAL.as_secs(),
        apiserver = tools::api_server_job(directory, kubeconfig)?,
        endpoints = endpoints.join(", "),
    ))
}

/// The rules without the intervals of their groups, so that all compared alerts are evaluated equally often.
fn evenly(rules: &str) -> String {
    let lines = rules.split_inclusive('\n');
    lines.filter(|line| !line.starts_with("    interval:")).collect()
}
