//! The daemon of a demo.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::app::config::{Config, ConfigArguments};
use crate::app::run::RunningDaemon;
use crate::domain::act::breaker::{Pattern, PolicyRule, RuleMatch};
use crate::domain::act::bypass::Rung;
use crate::domain::act::fence::AutoBreak;

/// What the daemon is started with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonArguments {
    /// A kubeconfig for the lab's API server.
    pub kubeconfig: PathBuf,
    /// Where to serve HTTP: a loopback address and port 0.
    pub listen: String,
    /// Where to record what it observes.
    pub record: Option<PathBuf>,
    /// The highest rung at which it may bypass a culprit; `None` for no bypass.
    pub auto_break: Option<Rung>,
    /// The configurations for which a rule permits more than a shield; empty if a shield is the most.
    pub configurations: Vec<&'static str>,
}

/// A running daemon whose HTTP server listens.
pub struct DaemonHandle {
    /// Where its HTTP server listens.
    pub address: SocketAddr,
    /// Time between two probes of one backend in calm times.
    pub probe_interval: Duration,
    /// Stops it when awaited, and says how it ended.
    pub stop: BoxFuture<'static, anyhow::Result<()>>,
}

/// A daemon that is starting.
pub type StartingDaemon = BoxFuture<'static, anyhow::Result<DaemonHandle>>;

/// Starts the daemon as a user would against the demo's cluster: with a kubeconfig, an address to listen on, perhaps a folder
/// to record to, and nothing else.
pub fn start_daemon(arguments: DaemonArguments) -> StartingDaemon {
    Box::pin(async move { start_configured(arguments.config()?).await })
}

impl DaemonArguments {
    /// The configuration that these arguments lead to.
    ///
    /// # Errors
    /// When an argument is invalid, such as an address that cannot be parsed.
    pub fn config(self) -> anyhow::Result<Config> {
        let Self {
            kubeconfig,
            listen,
            record,
            auto_break,
            configurations,
        } = self;
        let arguments = ConfigArguments {
            kubeconfig: Some(kubeconfig),
            listen: Some(listen),
            record,
            ..ConfigArguments::default()
        };
        let mut config = Config::parse("", &arguments)
            .map_err(|errors| anyhow::anyhow!("the demo's own arguments are refused: {errors:?}"))?;
        // To act, the daemon must keep leading whatever the fault does to the Lease. Otherwise there is nothing to elect: it is
        // the only replica.
        config.leadership.enabled = auto_break.is_some();
        if let Some(permitted) = auto_break {
            config.auto_break = AutoBreak::On;
            config.without_fence = true;
            let up_to = Rung::ALL.iter().copied().filter(|rung| *rung <= permitted);
            config.breaker.fallback.rungs = up_to.collect();
            if !configurations.is_empty() {
                let named = configurations.into_iter().flat_map(Pattern::parse);
                config.breaker.rules.push(PolicyRule {
                    name: "demo".into(),
                    matches: RuleMatch {
                        configurations: named.collect(),
                        ..RuleMatch::default()
                    },
                    skip_while_dead: true,
                    ..config.breaker.fallback.clone()
                });
            }
        }
        Ok(config)
    }
}

/// Starts a daemon with a complete configuration.
///
/// # Errors
/// When it cannot start.
pub async fn start_configured(config: Config) -> anyhow::Result<DaemonHandle> {
    let probe_interval = config.probes.rates.interval;
    let daemon = RunningDaemon::start(config).await?;
    Ok(DaemonHandle {
        address: daemon.address,
        probe_interval,
        stop: Box::pin(async move {
            daemon.stop().await;
            Ok(())
        }),
    })
}
