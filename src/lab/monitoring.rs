//! A real Prometheus and a real Alertmanager around a daemon, with the shipped rules and a receiver of pages.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::directory::PrivateDirectory;
use super::envtest::process::{Process, ProcessGuard};
use super::ports::free_address;

/// The shipped alert rules. The demo has no others.
const RULES: &str = include_str!("../../alerts/hookwatch.rules.yaml");
/// The shipped inhibition rules.
const INHIBITION: &str = include_str!("../../alerts/alertmanager-inhibit.yaml");

/// Longest wait for either to be ready.
const READY: Duration = Duration::from_secs(30);
/// Longest wait for one answer.
const ANSWER: Duration = Duration::from_secs(2);
/// Largest answer and largest notification that are read, in bytes.
const MAX_BYTES: usize = 4 << 20;
/// Most received alerts that are kept; later ones are dropped.
const MAX_KEPT: usize = 1_000;
/// Most attempts to start: another process can take a free port before the process that it was chosen for.
const ATTEMPTS: usize = 3;

/// Where the two programs are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Programs {
    prometheus: PathBuf,
    alertmanager: PathBuf,
}

/// A program that is not in `PATH`.
#[derive(Debug, thiserror::Error)]
#[error("no {0} in PATH; Debian and Ubuntu have the packages prometheus and prometheus-alertmanager")]
pub struct MissingProgram(&'static str);

impl Programs {
    /// Looks for both in `PATH`.
    ///
    /// # Errors
    /// When one is not there.
    pub fn find() -> Result<Self, MissingProgram> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let one_of = |names: &[&str]| {
            std::env::split_paths(&path)
                .flat_map(|folder| names.iter().map(move |name| folder.join(name)))
                .find(|file| file.is_file())
        };
        Ok(Self {
            prometheus: one_of(&["prometheus"]).ok_or(MissingProgram("prometheus"))?,
            alertmanager: one_of(&["prometheus-alertmanager", "alertmanager"])
                .ok_or(MissingProgram("alertmanager"))?,
        })
    }
}

/// An alert as Prometheus has it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct PrometheusAlert {
    /// All labels, `alertname` and `severity` among them.
    pub labels: BTreeMap<String, String>,
    /// All annotations, such as `summary`.
    pub annotations: BTreeMap<String, String>,
    /// `pending` or `firing`.
    pub state: String,
}

/// An alert as a receiver of Alertmanager gets it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ReceivedAlert {
    /// The group that it is delivered with: for a pager, one incident.
    #[serde(skip)]
    pub group: String,
    /// `firing` as long as any alert of that group is.
    #[serde(skip)]
    pub group_status: String,
    /// `firing` or `resolved`.
    pub status: String,
    /// All labels.
    pub labels: BTreeMap<String, String>,
    /// All annotations, such as `summary`.
    pub annotations: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Notification {
    group_key: String,
    status: String,
    alerts: Vec<ReceivedAlert>,
}

#[derive(Debug, Deserialize)]
struct AlertsAnswer {
    data: Alerts,
}

#[derive(Debug, Deserialize)]
struct Alerts {
    alerts: Vec<PrometheusAlert>,
}

type Received = Arc<Mutex<Vec<ReceivedAlert>>>;

/// Everything between a daemon's metrics and the person who is paged. Dropping it ends both programs.
#[derive(Debug)]
pub struct Monitoring {
    prometheus: Process,
    alertmanager: Process,
    // Dropped after the processes: when this process is killed before they are ended, it ends them.
    _guard: ProcessGuard,
    // Dropped after everything that has files in it.
    _directory: PrivateDirectory,
    _receiver: JoinSet<()>,
    received: Received,
    http: reqwest::Client,
    prometheus_at: SocketAddr,
    alertmanager_at: SocketAddr,
}

impl Monitoring {
    /// Starts a receiver, Alertmanager and Prometheus, which scrapes a daemon every second, and waits until they are
    /// ready.
    ///
    /// # Errors
    /// When one of them does not start.
    pub async fn start(programs: &Programs, daemon: &str) -> anyhow::Result<Self> {
        let mut attempt = 1;
        loop {
            match Self::attempt(programs, daemon).await {
                Err(_) if attempt < ATTEMPTS => attempt += 1,
                ended => return ended,
            }
        }
    }

    async fn attempt(programs: &Programs, daemon: &str) -> anyhow::Result<Self> {
        let directory = PrivateDirectory::create()?;
        let guard = ProcessGuard::start(directory.path())?;
        let received = Received::default();
        let (receiver_at, receiver) = receive(Arc::clone(&received)).await?;
        let (alertmanager_at, prometheus_at) = (free_address()?, free_address()?);
        directory.write("rules.yaml", RULES)?;
        let routing = directory.write("alertmanager.yaml", &routing(receiver_at))?;
        let scraping = directory.write("prometheus.yaml", &scraping(daemon, alertmanager_at))?;
        let data = |name: &str| directory.path().join(name);
        let alertmanager = Process::start(
            "alertmanager",
            &programs.alertmanager,
            [
                flag("config.file", &routing),
                flag("storage.path", &data("alertmanager")),
                format!("--web.listen-address={alertmanager_at}").into(),
                // A single Alertmanager needs no gossip, and a machine without a network has no address for it.
                "--cluster.listen-address=".into(),
            ],
            directory.path(),
            &guard,
        )?;
        let prometheus = Process::start(
            "prometheus",
            &programs.prometheus,
            [
                flag("config.file", &scraping),
                flag("storage.tsdb.path", &data("prometheus")),
                format!("--web.listen-address={prometheus_at}").into(),
            ],
            directory.path(),
            &guard,
        )?;
        let http = reqwest::Client::builder()
            .no_proxy()
            .tls_certs_only([])
            .timeout(ANSWER)
            .build()
            .context("making an HTTP client")?;
        let monitoring = Self {
            prometheus,
            alertmanager,
            _guard: guard,
            _directory: directory,
            _receiver: receiver,
            received,
            http,
            prometheus_at,
            alertmanager_at,
        };
        monitoring.until_ready().await?;
        Ok(monitoring)
    }

    async fn until_ready(&self) -> anyhow::Result<()> {
        for (url, process) in [
            (self.alertmanager_url(), &self.alertmanager),
            (self.prometheus_url(), &self.prometheus),
        ] {
            let begin = Instant::now();
            loop {
                process.check()?;
                let answer = self.http.get(format!("{url}/-/ready")).send().await;
                if answer.is_ok_and(|answer| answer.status() == StatusCode::OK) {
                    break;
                }
                anyhow::ensure!(begin.elapsed() < READY, "{}", process.last_words());
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        Ok(())
    }

    /// Fails when one of the two has exited.
    ///
    /// # Errors
    /// When one of them has exited; with the end of its log.
    pub fn check(&self) -> anyhow::Result<()> {
        self.prometheus.check()?;
        self.alertmanager.check()
    }

    /// Every alert that is pending or firing now.
    ///
    /// # Errors
    /// When Prometheus does not answer in time.
    pub async fn alerts(&self) -> anyhow::Result<Vec<PrometheusAlert>> {
        let url = format!("{}/api/v1/alerts", self.prometheus_url());
        Ok(self.read::<AlertsAnswer>(&url).await?.data.alerts)
    }

    /// Everything that was delivered so far, in order.
    pub fn received(&self) -> Vec<ReceivedAlert> {
        self.received
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Where Prometheus is.
    pub fn prometheus_url(&self) -> String {
        format!("http://{}", self.prometheus_at)
    }

    /// Where Alertmanager is.
    pub fn alertmanager_url(&self) -> String {
        format!("http://{}", self.alertmanager_at)
    }

    async fn read<T: DeserializeOwned>(&self, url: &str) -> anyhow::Result<T> {
        let mut response = self.http.get(url).send().await?.error_for_status()?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            anyhow::ensure!(
                body.len() + chunk.len() <= MAX_BYTES,
                "{url} answers with more than {MAX_BYTES} bytes"
            );
            body.extend_from_slice(&chunk);
        }
        serde_json::from_slice(&body).with_context(|| format!("reading the answer of {url}"))
    }
}

fn flag(name: &str, path: &Path) -> OsString {
    let mut flag = OsString::from(format!("--{name}="));
    flag.push(path);
    flag
}

/// The configuration of Prometheus. It scrapes every second, so that a person can watch. The rules, their evaluation interval and
/// their `for` are as shipped.
fn scraping(daemon: &str, alertmanager: SocketAddr) -> String {
    format!(
        "global: {{scrape_interval: 1s, scrape_timeout: 1s}}\n\
         rule_files: [rules.yaml]\n\
         alerting: {{alertmanagers: [{{static_configs: [{{targets: [{alertmanager:?}]}}]}}]}}\n\
         scrape_configs: [{{job_name: hookwatch, static_configs: [{{targets: [{daemon:?}]}}]}}]\n",
        alertmanager = alertmanager.to_string(),
    )
}

/// The configuration of Alertmanager: the shipped inhibition and the grouping that it advises. The usual waits of 30 s and 5 min
/// would hide what happens; 10 s are two evaluations of the rules, within which a cause may follow its symptom.
fn routing(receiver: SocketAddr) -> String {
    format!(
        "{INHIBITION}\n\
         route:\n  \
           receiver: demo\n  \
           group_by: [alertname, cluster, incident]\n  \
           group_wait: 10s\n  \
           group_interval: 3s\n\
         receivers:\n\
         - name: demo\n  \
           webhook_configs: [{{url: \"http://{receiver}/\", send_resolved: true}}]\n"
    )
}

/// Takes notifications, as a pager would.
async fn receive(received: Received) -> anyhow::Result<(SocketAddr, JoinSet<()>)> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let app = Router::new()
        .route("/", post(take))
        .layer(DefaultBodyLimit::max(MAX_BYTES))
        .with_state(received);
    let serving = JoinSet::from_iter([async move {
        // It ends with the demo, which then has no use for an error.
        let _ = axum::serve(listener, app).await;
    }]);
    Ok((address, serving))
}

async fn take(State(received): State<Received>, Json(notification): Json<Notification>) {
    let mut received = received.lock().unwrap_or_else(PoisonError::into_inner);
    let room = MAX_KEPT.saturating_sub(received.len());
    let pages = notification.alerts.into_iter().map(|page| ReceivedAlert {
        group: notification.group_key.clone(),
        group_status: notification.status.clone(),
        ..page
    });
    received.extend(pages.take(room));
}
