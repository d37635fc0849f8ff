//! The control planes that a demo can run on, behind one interface.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::Duration;

use anyhow::Context;

use super::api::{ApiServer, ApiServerOptions, USUAL_MILLICORES};
use super::cluster::client_for;
use super::envtest::{Controller, Envtest, READY_LIMIT, SecondApiServer, SecondLaunch, Throttle, namespace};
use super::script::Script;
use super::workload::ReadFlood;

/// Which control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum ControlPlaneKind {
    /// The one in this process: nothing to install.
    #[default]
    Embedded,
    /// A real etcd and kube-apiserver, as setup-envtest installs them; with a real kube-controller-manager and
    /// kube-scheduler where they lie beside them.
    Envtest,
}

impl ControlPlaneKind {
    /// How a control plane of this kind reaches the hooks' backends on this machine.
    pub fn reach(self) -> BackendReach {
        match self {
            Self::Embedded => BackendReach::Loopback,
            Self::Envtest if namespace::entered() => BackendReach::Namespace,
            Self::Envtest => BackendReach::Url,
        }
    }
}

/// A running control plane. Dropping it ends it.
#[derive(Debug)]
pub enum LabControlPlane {
    /// In this process.
    Embedded(ApiServer),
    /// A real one.
    Envtest(Envtest),
}

/// How the API server reaches the hooks' backends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackendReach {
    /// Through Services whose endpoints are 127.0.0.x; only the embedded API server takes such endpoints.
    Loopback,
    /// Through Services whose endpoints are addresses of a network namespace of our own.
    Namespace,
    /// By `url`, with one backend per hook: where no address can be an endpoint.
    Url,
}

impl BackendReach {
    /// The address whose last byte is `last`.
    pub const fn host(self, last: u8) -> IpAddr {
        match self {
            Self::Namespace => namespace::address(last),
            Self::Loopback | Self::Url => IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)),
        }
    }
}

/// The usual latency of a storage operation of the embedded API server.
const USUAL_STORAGE: Duration = Duration::from_millis(1);
/// By up to this fraction of it a storage operation is shorter or longer at random.
const STORAGE_JITTER: f64 = 0.3;

/// How many times as many readers a real API server gets as the embedded one. With as many, writes on a real one with two cores
/// take ten times as long as usual, which is less than half of the embedded one's slowdown.
const FLOOD_FACTOR: usize = 3;

/// A fault of the control plane itself. Dropping it ends it, but a knob has to be turned back.
#[derive(Debug)]
pub enum ControlPlaneFault {
    /// A knob of the embedded API server was turned.
    Knob,
    /// etcd is being stopped again and again.
    Throttle(Throttle),
    /// Readers list without end.
    Flood(ReadFlood),
    /// A script runs in the background.
    Script(Script),
}

impl LabControlPlane {
    /// Starts a control plane. Its files go into `directory`, which must be private and outlive it.
    ///
    /// # Errors
    /// When it does not start; for envtest also when its binaries are missing.
    pub async fn start(kind: ControlPlaneKind, directory: &Path) -> anyhow::Result<Self> {
        Ok(match kind {
            ControlPlaneKind::Embedded => Self::Embedded(
                ApiServer::start(ApiServerOptions::default())
                    .await
                    .context("starting the lab's API server")?,
            ),
            ControlPlaneKind::Envtest => Self::Envtest(
                Envtest::start(directory)
                    .await
                    .context("starting a real control plane")?,
            ),
        })
    }

    /// A kubeconfig (YAML) of a user that may do everything.
    pub fn kubeconfig(&self) -> String {
        match self {
            Self::Embedded(api) => api.kubeconfig(),
            Self::Envtest(envtest) => envtest.kubeconfig(),
        }
    }

    /// The API server's URL.
    pub fn url(&self) -> String {
        let address = match self {
            Self::Embedded(api) => api.address(),
            Self::Envtest(envtest) => envtest.address(),
        };
        format!("https://{address}")
    }

    /// The real kube-controller-manager and kube-scheduler, not started yet, the latter at a second API server if one is given;
    /// `None` where their binaries are not installed, and on the embedded control plane.
    ///
    /// # Errors
    /// When their files cannot be written.
    pub fn controllers(
        &self,
        schedulers: Option<&SecondApiServer>,
    ) -> anyhow::Result<Option<[Controller; 2]>> {
        match self {
            Self::Embedded(_) => Ok(None),
            Self::Envtest(envtest) => envtest.controllers(schedulers),
        }
    }

    /// A second API server of a real control plane, which serves.
    ///
    /// # Errors
    /// On the embedded one, or when it does not start or does not become ready.
    pub async fn second(&self) -> anyhow::Result<SecondApiServer> {
        let launch = self.second_launch()?;
        let second = launch
            .context("the embedded control plane has one API server")?
            .start()?;
        second.ready(READY_LIMIT).await?;
        Ok(second)
    }

    /// A second API server of a real control plane, not started yet; `None` on the embedded one.
    ///
    /// # Errors
    /// When no port is free.
    pub fn second_launch(&self) -> anyhow::Result<Option<SecondLaunch>> {
        match self {
            Self::Embedded(_) => Ok(None),
            Self::Envtest(envtest) => envtest.second_launch().map(Some),
        }
    }

    /// How the API server reaches the hooks' backends.
    pub fn reach(&self) -> BackendReach {
        match self {
            Self::Embedded(_) => ControlPlaneKind::Embedded,
            Self::Envtest(_) => ControlPlaneKind::Envtest,
        }
        .reach()
    }

    /// Slows the storage down: every operation of the embedded one takes `delay`; a real etcd is stopped four fifths of
    /// the time, which has about the same effect.
    pub fn slow_storage(&self, delay: Duration) -> ControlPlaneFault {
        match self {
            Self::Embedded(api) => {
                api.knobs().set_storage_latency(delay, STORAGE_JITTER);
                ControlPlaneFault::Knob
            }
            Self::Envtest(envtest) => ControlPlaneFault::Throttle(envtest.throttle_etcd()),
        }
    }

    /// Drops every packet between the embedded API server and the hook of that server name.
    ///
    /// # Errors
    /// On a real control plane.
    pub fn firewall(&self, server_name: &str) -> anyhow::Result<ControlPlaneFault> {
        match self {
            Self::Embedded(api) => {
                api.knobs().firewall(Some(server_name));
                Ok(ControlPlaneFault::Knob)
            }
            Self::Envtest(_) => anyhow::bail!("a real API server has no such knob"),
        }
    }

    /// Lists without end by `readers` clients. The embedded one is limited to `millicores`; a real one has the
    /// machine's CPU, and needs several times the readers to be busy.
    ///
    /// # Errors
    /// When a client cannot be made.
    pub async fn flood(&self, readers: usize, millicores: u32) -> anyhow::Result<ControlPlaneFault> {
        let readers = match self {
            Self::Embedded(api) => {
                api.knobs().set_cpu(millicores);
                readers
            }
            Self::Envtest(_) => readers * FLOOD_FACTOR,
        };
        let kubeconfig = self.kubeconfig();
        let mut clients = Vec::new();
        for _ in 0..readers {
            clients.push(client_for(&kubeconfig).await?);
        }
        Ok(ControlPlaneFault::Flood(ReadFlood::start(clients)))
    }

    /// Ends these faults, and turns back the knobs of the embedded API server.
    pub fn mend(&self, troubles: Vec<ControlPlaneFault>) {
        drop(troubles);
        if let Self::Embedded(api) = self {
            api.knobs().set_storage_latency(USUAL_STORAGE, STORAGE_JITTER);
            api.knobs().set_cpu(USUAL_MILLICORES);
            api.knobs().firewall(None);
        }
    }
}
