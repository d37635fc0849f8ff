//! `hookwatch status` and `hookwatch top`: a running daemon's assessment, in a terminal.

mod guard;
mod status;
mod top;
pub mod view;

use std::path::PathBuf;

use self::view::shown::{NoAssessment, ShownAssessment};
use super::BadUsage;
use super::contexts::{self, CommandAim};
use super::text::CleanText;
use crate::io::client::Connection;
use crate::io::daemon::tunnel::Tunnel;
use crate::io::daemon::{Address, AskError, DaemonClient, DaemonFiles, DaemonRoute};
use crate::io::endpoint::Auth;

pub use guard::TerminalGuard;
pub use status::{StatusArguments, status};
pub use top::{TopArguments, top};

/// Address at which a daemon listens by default.
const HERE: &str = "http://127.0.0.1:9880";

/// Which daemon is asked, and what it is shown to prove who asks.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ServerArguments {
    /// Address of the daemon [default: http://127.0.0.1:9880, or with --cluster a Pod]
    #[arg(long, env = "HOOKWATCH_SERVER", value_name = "URL")]
    pub server: Option<Address>,
    /// Ask a daemon in the cluster, through a port-forward
    ///
    /// This is the default of `kubectl hookwatch`, and of --kubeconfig and --context, which also win over HOOKWATCH_SERVER.
    #[arg(long)]
    pub cluster: bool,
    /// Kubeconfig to use; default: as kubectl finds it
    #[arg(long, env = "HOOKWATCH_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, env = "HOOKWATCH_CONTEXT", value_name = "NAME")]
    pub context: Option<String>,
    /// Namespace of the daemon in the cluster
    #[arg(
        long,
        env = "HOOKWATCH_NAMESPACE",
        value_name = "NAME",
        default_value = "hookwatch"
    )]
    pub namespace: String,
    /// PEM file with the CAs of the daemon's certificate; a daemon in the cluster is then asked over TLS
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// PEM file with the client certificate and its chain
    #[arg(long, value_name = "FILE", requires = "key_file")]
    pub cert_file: Option<PathBuf>,
    /// PEM file with the key of the client certificate
    #[arg(long, value_name = "FILE", requires = "cert_file")]
    pub key_file: Option<PathBuf>,
    /// File with the bearer token for the daemon
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}

/// Parses a daemon's answer, and adapts the commands in it to this program and cluster.
fn parse(assessment: &[u8], aim: &CommandAim) -> Result<ShownAssessment, NoAssessment> {
    let mut seen = ShownAssessment::parse(assessment)?;
    for by_hand in seen.hooks.iter_mut().filter_map(|hook| hook.by_hand.as_mut()) {
        by_hand.command = CleanText::command(&aim.of(&by_hand.command));
    }
    Ok(seen)
}

/// Refuses files that only TLS uses if the daemon is asked without TLS: they would be ignored silently.
fn needs_tls(files: &DaemonFiles, address: &Address) -> Result<(), BadUsage> {
    let given = files.ca.is_some() || files.certificate.is_some();
    if address.encrypted || !given {
        return Ok(());
    }
    Err(BadUsage::new(
        "--ca-file, --cert-file and --key-file are for a daemon that serves TLS: give an https:// address, or in a cluster \
         --ca-file as well",
    ))
}

impl ServerArguments {
    /// Whether the daemon is reached through the API server. `in_cluster`: the default without arguments. `cluster`, which reading
    /// the command line sets for a typed --context or --kubeconfig, too, overrides a `server` from the environment.
    const fn is_in_cluster(&self, in_cluster: bool) -> bool {
        let named = self.kubeconfig.is_some() || self.context.is_some();
        self.cluster || self.server.is_none() && (named || in_cluster)
    }

    /// Adapts the commands in the daemon's answers: the daemon does not know the context by which its cluster is reached from
    /// here.
    fn aim(&self, program: &'static str, in_cluster: bool) -> CommandAim {
        let source = if self.is_in_cluster(in_cluster) {
            contexts::source(self.kubeconfig.as_deref(), self.context.as_deref())
        } else {
            String::new()
        };
        CommandAim { program, source }
    }

    async fn daemon(&self, in_cluster: bool) -> anyhow::Result<DaemonClient> {
        let files = DaemonFiles {
            ca: self.ca_file.clone(),
            certificate: self.cert_file.clone().zip(self.key_file.clone()),
            auth: match self.token_file.clone() {
                Some(token_file) => Auth::Bearer { token_file },
                None => Auth::None,
            },
        };
        if !self.is_in_cluster(in_cluster) {
            let address = match &self.server {
                Some(address) => address.clone(),
                None => HERE.parse()?,
            };
            needs_tls(&files, &address)?;
            return Ok(DaemonClient::new(address, DaemonRoute::Direct, files));
        }
        let connection = Connection::open(self.kubeconfig.as_deref(), self.context.as_deref()).await;
        let connection = connection.map_err(BadUsage::new)?;
        // In the Pod, the tunnel always ends at the loopback address. TLS needs the name in the certificate, and HTTP a name
        // that the daemon accepts as its own host.
        let address = Address {
            encrypted: files.ca.is_some(),
            host: match files.ca {
                Some(_) => format!("hookwatch.{}.svc", self.namespace),
                None => "localhost".to_owned(),
            },
            port: 9880,
            prefix: String::new(),
        };
        needs_tls(&files, &address)?;
        let tunnel = Tunnel::new(connection, self.namespace.clone());
        Ok(DaemonClient::new(
            address,
            DaemonRoute::Tunnel(Box::new(tunnel)),
            files,
        ))
    }

    /// What a user can do about an error; `None` if the error says enough.
    fn hint(&self, error: &AskError, program: &str, in_cluster: bool) -> Option<String> {
        let source = self.aim("", in_cluster).source;
        let without = format!("`{program} diagnose{source}` looks for itself, without a daemon");
        let namespace = &self.namespace;
        match error {
            AskError::Unreachable { .. } | AskError::Another { .. } => {
                Some(if self.is_in_cluster(in_cluster) {
                    format!(
                        "hookwatch asks the Pod's port named http, else 9880; if the daemon serves TLS, give --ca-file; \
                         {without}"
                    )
                } else if self.server.as_ref().is_none_or(Address::is_this_host) {
                    format!(
                        "a daemon in a cluster is reached by `{program} status --cluster`, or while `kubectl -n {namespace} \
                         port-forward deployment/hookwatch 9880` runs; {without}"
                    )
                } else {
                    without
                })
            }
            AskError::Tunnel(_) => Some(without),
            AskError::Refused { status: 401, .. } => {
                Some("give --token-file, with the token that the daemon wants now".to_owned())
            }
            AskError::Refused { .. } => Some(
                "if it wants a certificate, give one that it permits (--cert-file and --key-file), over https:// or in a cluster \
                 with --ca-file"
                    .to_owned(),
            ),
            AskError::NotYet { .. } | AskError::Trust(_) => None,
        }
    }
}
