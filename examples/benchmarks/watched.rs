//! A daemon that watches one webhook that breaks, beside others.

use std::any::Any;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use hookwatch::lab::api::{ApiServer, ApiServerOptions};
use hookwatch::lab::backend::{BackendRole, Behaviour, LabBackend};
use hookwatch::lab::certs::Authority;
use hookwatch::lab::cluster::client_for;
use kube::Client;
use serde_json::Value;

use crate::estate::{self, Daemon, RELEASE};
use crate::noise::seconds;

const WEBHOOK: &str = "broken.example.com";
/// Interval at which the daemon's log is read: the resolution of the measurement.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Longest wait for a verdict to change.
const PATIENCE: Duration = Duration::from_secs(120);

/// A daemon, the cluster that it watches, and the webhook that breaks.
pub struct Watched {
    pub daemon: Daemon,
    broken: LabBackend,
    // Kept alive until this is dropped.
    _server: ApiServer,
    _others: Box<dyn Any>,
}

impl Watched {
    /// Builds the others, then starts the daemon. The webhook that breaks is on the Service with this index, with a backend
    /// at 127.0.30.`host`.
    ///
    /// # Errors
    /// When something does not start, or the webhook is not judged healthy.
    pub async fn start<T: 'static>(
        host: u8,
        service: usize,
        others: impl AsyncFnOnce(&Client) -> anyhow::Result<T>,
    ) -> anyhow::Result<Self> {
        let server = ApiServer::start(ApiServerOptions::default()).await?;
        let client = client_for(&server.kubeconfig()).await?;
        let others = Box::new(others(&client).await?);
        let authority = Authority::new("broken")?;
        let certificate = authority.issue(&estate::server_name(service))?;
        let hosts = [IpAddr::from([127, 0, 30, host])];
        let broken = LabBackend::start_group(&hosts, BackendRole::Validating, &certificate).await?;
        let broken = broken.into_iter().next().context("a backend")?;
        estate::add(&client, service, WEBHOOK, broken.address(), &authority.pem()).await?;
        let watched = Self {
            daemon: Daemon::start(Path::new(RELEASE), &server.kubeconfig())?,
            broken,
            _server: server,
            _others: others,
        };
        watched.is_healthy().await?;
        Ok(watched)
    }

    /// Makes the webhook hang; returns the seconds until the daemon has found it.
    ///
    /// # Errors
    /// When it is not found.
    pub async fn breaks(&self) -> anyhow::Result<f64> {
        self.until(Behaviour::AcceptAndHang, |verdict| verdict["cause"] == "Hanging")
            .await
    }

    /// Makes it answer again, and waits until the daemon judges it healthy.
    ///
    /// # Errors
    /// When it is not found.
    pub async fn recovers(&self) -> anyhow::Result<()> {
        self.until(Behaviour::Healthy, |verdict| verdict["health"] == "healthy")
            .await?;
        Ok(())
    }

    /// Changes the webhook's behaviour; returns the seconds until the daemon logs a matching verdict. Reading the log costs the
    /// daemon nothing; polling its API would.
    async fn until(&self, behaviour: Behaviour, is_it: impl Fn(&Value) -> bool) -> anyhow::Result<f64> {
        let before = std::fs::read_to_string(self.daemon.log())?.len();
        self.broken.behave(behaviour).await?;
        let begun = Instant::now();
        loop {
            let log = std::fs::read_to_string(self.daemon.log())?;
            let logged = log.get(before..).unwrap_or_default().lines();
            // The last line may be half written.
            let logged: Vec<Value> = logged
                .filter_map(|line| serde_json::from_str(line).ok())
                .collect();
            let mut verdicts = logged.iter().filter(|line| line["webhook"] == WEBHOOK);
            if verdicts.any(&is_it) {
                return Ok(seconds(begun.elapsed()));
            }
            anyhow::ensure!(begun.elapsed() < PATIENCE, "no such verdict: {logged:?}");
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until the daemon has found the webhook and judged it healthy. It does not log that, so this polls its API.
    async fn is_healthy(&self) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            let assessment = estate::assessment(self.daemon.address).await;
            let hooks = assessment.as_ref().and_then(|seen| seen["hooks"].as_array());
            let is_it = |hook: &&Value| hook["webhook"] == WEBHOOK;
            let hook = hooks.and_then(|hooks| hooks.iter().find(is_it));
            if hook.is_some_and(|hook| hook["health"] == "Healthy") {
                return Ok(());
            }
            anyhow::ensure!(begun.elapsed() < PATIENCE, "the verdict stays {hook:?}");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}
