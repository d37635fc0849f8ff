//! The stage of a demo: a control plane, its users, and a daemon that does not know the scenario.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context;

use super::timeline::DemoEvent;
use super::{DaemonArguments, DaemonHandle, StartingDaemon};
use crate::app::terminal::view::shown::ShownAssessment;
use crate::domain::act::bypass::Rung;
use crate::lab::clients::ControlPlaneClients;
use crate::lab::cluster::{Cluster, LabHook};
use crate::lab::control_plane::{ControlPlaneKind, LabControlPlane};
use crate::lab::directory::PrivateDirectory;
use crate::lab::envtest::SecondApiServer;
use crate::lab::monitoring::{Monitoring, Programs};
use crate::lab::scenario::{Scenario, ScenarioTarget, SecondApiServerRole};
use crate::lab::workload::{LabWorkload, WorkloadOptions};

/// Timeout of one request for an assessment.
const POLL_LIMIT: Duration = Duration::from_secs(2);
/// Longest wait until the first of two replicas leads.
const LEADS: Duration = Duration::from_secs(30);
/// Largest assessment that is read, in bytes.
const MAX_ASSESSMENT: usize = 4 << 20;

/// Everything that runs during a demo. Dropping it stops all but the daemon; [`DemoStage::leave`] stops the daemon too.
pub struct DemoStage {
    /// The users, whose writes go through the webhooks.
    pub workload: LabWorkload,
    /// The leaders (simulated or real), the kubelets, and an API server that a scenario can start.
    pub clients: ControlPlaneClients,
    cluster: Arc<Cluster>,
    control_plane: LabControlPlane,
    /// Served until it is dropped.
    _second: Option<SecondApiServer>,
    // Declared after the control plane, which is dropped first: its files are in this directory.
    directory: PrivateDirectory,
    daemon: DaemonHandle,
    /// The leading replica, if the scenario has two; `daemon` is then the other one, whose assessment is read.
    leader: Mutex<Option<DaemonHandle>>,
    http: reqwest::Client,
}

impl DemoStage {
    /// Starts the lab as the scenario needs it, its users, and then the daemon, which gets a kubeconfig and nothing else.
    pub async fn set_up(
        kind: ControlPlaneKind,
        scenario: Option<&Scenario>,
        auto_break: Option<Rung>,
        mut start_daemon: impl FnMut(DaemonArguments) -> StartingDaemon,
    ) -> anyhow::Result<Self> {
        let directory = PrivateDirectory::create()?;
        let control_plane = LabControlPlane::start(kind, directory.path()).await?;
        let second = match scenario.map(|scenario| scenario.second_api_server) {
            Some(SecondApiServerRole::Serves) => Some(control_plane.second().await?),
            _ => None,
        };
        let kubeconfig = control_plane.kubeconfig();
        let cluster = Arc::new(Cluster::start(&kubeconfig, control_plane.reach()).await?);
        let target = ScenarioTarget {
            cluster: &cluster,
            control_plane: &control_plane,
        };
        if let Some(scenario) = scenario {
            scenario.arrange(&target).await?;
        }
        let workload = LabWorkload::start(&kubeconfig, &users(scenario)).await?;
        let nodes = cluster.nodes();
        let clients = ControlPlaneClients::start(&control_plane, second.as_ref(), &nodes, &workload).await?;
        let arguments = DaemonArguments {
            kubeconfig: directory.write("kubeconfig", &kubeconfig)?,
            listen: "127.0.0.1:0".to_owned(),
            record: None,
            auto_break,
            configurations: if auto_break.is_some_and(|most| most > Rung::Shield) {
                LabHook::ALL.iter().copied().map(LabHook::configuration).collect()
            } else {
                Vec::new()
            },
        };
        let mut daemon = start_daemon(arguments.clone())
            .await
            .context("starting the daemon")?;
        let http = http_client()?;
        let mut leader = None;
        if scenario.is_some_and(|scenario| scenario.loses_leader) {
            if auto_break.is_some() {
                leads(&http, &daemon).await?;
            }
            let second = start_daemon(arguments).await;
            leader = Some(std::mem::replace(
                &mut daemon,
                second.context("starting a replica")?,
            ));
        }
        Ok(Self {
            workload,
            clients,
            cluster,
            control_plane,
            _second: second,
            directory,
            daemon,
            leader: Mutex::new(leader),
            http,
        })
    }

    /// Kills the leading replica, if there are two.
    pub fn lose_leader(&self) {
        // Dropped, not stopped: a killed process does not resign.
        drop(self.leader.lock().ok().and_then(|mut leader| leader.take()));
    }

    /// The event for the timeline that everything has started.
    pub fn started(&self) -> DemoEvent {
        DemoEvent::Started {
            api_server: self.api_url(),
            daemon: self.daemon_url(),
            leaders: self.clients.leaders(),
        }
    }

    pub fn target(&self) -> ScenarioTarget<'_> {
        ScenarioTarget {
            cluster: &self.cluster,
            control_plane: &self.control_plane,
        }
    }

    /// A client for the API server as its administrator.
    pub fn client(&self) -> kube::Client {
        self.cluster.client().clone()
    }

    /// Starts a Prometheus and an Alertmanager that watch the daemon.
    pub async fn monitor(&self, programs: &Programs) -> anyhow::Result<Monitoring> {
        Monitoring::start(programs, &self.daemon.address.to_string())
            .await
            .context("starting Prometheus and Alertmanager")
    }

    /// The daemon's current assessment.
    ///
    /// # Errors
    /// When the daemon does not answer with one in time.
    pub async fn assessment(&self) -> anyhow::Result<ShownAssessment> {
        assessment(&self.http, &self.daemon).await
    }

    /// Time between two probes of one backend in calm times.
    pub fn probe_interval(&self) -> Duration {
        self.daemon.probe_interval
    }

    pub fn api_url(&self) -> String {
        self.control_plane.url()
    }

    pub fn daemon_url(&self) -> String {
        format!("http://{}", self.daemon.address)
    }

    pub fn kubeconfig_path(&self) -> PathBuf {
        self.directory.path().join("kubeconfig")
    }

    /// Stops the daemon first, so that it does not take the end of the lab for an outage, and then the rest. Returns `done`.
    ///
    /// # Errors
    /// When `done` is an error, or the daemon fails or does not stop within 15 s.
    pub async fn leave<T>(self, done: anyhow::Result<T>) -> anyhow::Result<T> {
        const LIMIT: Duration = Duration::from_secs(15);
        let stopped = tokio::time::timeout(LIMIT, self.daemon.stop).await;
        self.clients.stop().await;
        self.workload.stop().await;
        // The first error says more than those that follow from it.
        let done = done?;
        stopped.context("the daemon did not stop in time")??;
        Ok(done)
    }
}

fn users(scenario: Option<&Scenario>) -> WorkloadOptions {
    if scenario.is_some_and(|scenario| scenario.hardly_any_users) {
        WorkloadOptions::hardly_any()
    } else {
        WorkloadOptions::default()
    }
}

/// Without CA certificates and proxy: it only asks the daemon, over plain HTTP on loopback.
fn http_client() -> anyhow::Result<reqwest::Client> {
    reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([])
        .timeout(POLL_LIMIT)
        .build()
        .context("making an HTTP client")
}

async fn assessment(http: &reqwest::Client, daemon: &DaemonHandle) -> anyhow::Result<ShownAssessment> {
    let url = format!("http://{}/api/v1/assessment", daemon.address);
    let mut response = http.get(url).send().await?.error_for_status()?;
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        anyhow::ensure!(
            body.len() + chunk.len() <= MAX_ASSESSMENT,
            "the assessment is larger than {MAX_ASSESSMENT} bytes"
        );
        body.extend_from_slice(&chunk);
    }
    ShownAssessment::parse(&body).context("reading the assessment")
}

/// Waits until this replica leads.
async fn leads(http: &reqwest::Client, daemon: &DaemonHandle) -> anyhow::Result<()> {
    let begin = Instant::now();
    while begin.elapsed() < LEADS {
        let replica = assessment(http, daemon).await.ok().and_then(|seen| seen.replica);
        if replica.is_some_and(|replica| replica.role.as_str() == "Leader") {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    anyhow::bail!("the first replica did not lead within {} s", LEADS.as_secs())
}
