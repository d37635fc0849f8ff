//! `hookwatch run`: the daemon.

use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::{Context, bail};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::config::Config;
use super::engine::Engine;
use crate::io::http;
use crate::io::telemetry::TelemetrySettings;

/// The running daemon.
#[derive(Debug)]
pub struct RunningDaemon {
    /// The main listener's address; if the configured port was 0, with the port that the system chose.
    pub address: SocketAddr,
    engine: Engine,
    server: JoinHandle<()>,
    stop: watch::Sender<bool>,
}

impl RunningDaemon {
    /// Begins to listen, then to observe.
    ///
    /// # Errors
    /// When it cannot listen, a file of `serve` cannot be used, or the engine cannot start (for example: no usable kubeconfig).
    pub async fn start(config: Config) -> anyhow::Result<Self> {
        let mut listening = config.serve.listen(config.listen).await?;
        let labels = &config.alertmanager.envelope.labels;
        listening.cluster = labels.get("cluster").cloned();
        let address = listening
            .main
            .local_addr()
            .context("the listening socket has no address")?;
        if !address.ip().is_loopback() && !listening.access.reaches_beyond_this_host() {
            tracing::warn!(
                %address,
                "only this host may read the page and the API; serve.tokenFile or serve.clientCAFile permits others"
            );
        }
        let engine = Engine::start_with(&config, TelemetrySettings::from_environment()).await?;
        let (stop, stopped) = watch::channel(false);
        let server = tokio::spawn(http::serve(listening, engine.shown.clone(), stopped));
        tracing::info!(
            %address,
            auto_break = config.auto_break.as_str(),
            namespace = config.namespace,
            alertmanagers = config.alertmanager.targets.len(),
            version = env!("CARGO_PKG_VERSION"),
            "hookwatch is watching"
        );
        Ok(Self {
            address,
            engine,
            server,
            stop,
        })
    }

    /// Stops observing and lets requests in flight end.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        self.engine.stop().await;
        // A client that never finishes its request does not hold the daemon up.
        let _ = tokio::time::timeout(std::time::Duration::from_secs(5), self.server).await;
    }
}

/// Runs the daemon until SIGINT or SIGTERM.
///
/// # Errors
/// When it cannot start, or a part of it ends.
pub async fn until_signal(config: Config) -> anyhow::Result<ExitCode> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    // Credentials may come from an exec plugin that takes long: a signal must end the process even then.
    let mut daemon = tokio::select! {
        started = RunningDaemon::start(config) => started?,
        _ = interrupt.recv() => return Ok(ExitCode::SUCCESS),
        _ = terminate.recv() => return Ok(ExitCode::SUCCESS),
    };
    let broken = tokio::select! {
        _ = interrupt.recv() => None,
        _ = terminate.recv() => None,
        how = daemon.engine.ended() => Some(how),
        ended = &mut daemon.server => {
            daemon.engine.stop().await;
            bail!("the HTTP server ended: {ended:?}")
        }
    };
    tracing::info!("hookwatch is stopping");
    // Also after a failure: stopping lets another replica lead at once, and the end of the recording shows why.
    daemon.stop().await;
    broken.map_or(Ok(ExitCode::SUCCESS), |how| Err(anyhow::anyhow!(how)))
}
