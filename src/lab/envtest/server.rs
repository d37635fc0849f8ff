//! API servers beside or after the first one, on the same etcd.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;

use super::process::{Process, ProcessGuard};
use super::{Envtest, EnvtestFiles, api_server_arguments, kubeconfig, namespace, ready};
use crate::lab::ports::free_port;

/// How a process of the control plane is started, and started again.
#[derive(Debug)]
pub(super) struct Launch {
    /// The name of the process and of its log.
    pub name: &'static str,
    pub binary: PathBuf,
    pub arguments: Vec<OsString>,
    pub directory: PathBuf,
}

impl Launch {
    pub(super) fn start(&self, guard: &ProcessGuard) -> anyhow::Result<Process> {
        Process::start(
            self.name,
            &self.binary,
            self.arguments.clone(),
            &self.directory,
            guard,
        )
    }
}

/// What starts the first API server again, and a second one beside it.
#[derive(Debug)]
pub(super) struct Origin {
    pub launch: Launch,
    pub etcd_port: u16,
    pub files: EnvtestFiles,
}

/// The last byte of a second API server's address in a network namespace. With the same address it would replace the first
/// one among the endpoints of the Service `kubernetes`.
const SECOND_ADDRESS: u8 = 10;

/// How another API server of the same cluster is started.
#[derive(Debug)]
pub struct SecondLaunch {
    launch: Launch,
    guard: Arc<ProcessGuard>,
    address: SocketAddr,
    kubeconfig: String,
}

/// Another API server of the same cluster. Dropping it kills it.
#[derive(Debug)]
pub struct SecondApiServer {
    process: Process,
    address: SocketAddr,
    kubeconfig: String,
}

impl Envtest {
    /// Kills the API server. [`Self::restart`] brings it back.
    pub fn kill(&self) {
        self.kube_apiserver.end();
    }

    /// Kills the API server and restarts it at the same address, on the same etcd; waits until it is ready.
    ///
    /// # Errors
    /// When it does not start or does not become ready; with the end of its log.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        self.kube_apiserver.end();
        self.kube_apiserver = self.origin.launch.start(&self.guard)?;
        self.ready().await
    }

    /// Starts a second API server ([`Self::second_launch`]). Does not wait for it: the caller may want to know whether it becomes
    /// ready.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn second(&self) -> anyhow::Result<SecondApiServer> {
        self.second_launch()?.start()
    }

    /// A second API server on the same etcd, with the same keys and users, on a port of its own, not started yet.
    ///
    /// # Errors
    /// When no port is free.
    pub fn second_launch(&self) -> anyhow::Result<SecondLaunch> {
        let first = self.address;
        let port = if first.ip().is_loopback() {
            free_port()?
        } else {
            // All endpoints of the Service `kubernetes` have the same port: that of the API server that wrote them last.
            first.port()
        };
        let address = SocketAddr::from((second_host(first.ip()), port));
        let Origin {
            launch: first,
            etcd_port,
            files,
        } = &*self.origin;
        let launch = Launch {
            name: "kube-apiserver-2",
            binary: first.binary.clone(),
            arguments: api_server_arguments(files, *etcd_port, address),
            directory: first.directory.clone(),
        };
        Ok(SecondLaunch {
            launch,
            guard: Arc::clone(&self.guard),
            address,
            kubeconfig: kubeconfig(&files.authority.pem(), address, &files.token),
        })
    }
}

/// Where the second API server listens if the first one listens at `first`.
pub(super) const fn second_host(first: IpAddr) -> IpAddr {
    if first.is_loopback() {
        first
    } else {
        namespace::address(SECOND_ADDRESS)
    }
}

impl SecondLaunch {
    /// Starts it, and does not wait until it is ready.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&self) -> anyhow::Result<SecondApiServer> {
        Ok(SecondApiServer {
            process: self.launch.start(&self.guard)?,
            address: self.address,
            kubeconfig: self.kubeconfig.clone(),
        })
    }
}

impl SecondApiServer {
    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// A kubeconfig (YAML) of a user that may do everything, at this API server.
    pub fn kubeconfig(&self) -> String {
        self.kubeconfig.clone()
    }

    /// Waits until it is ready.
    ///
    /// # Errors
    /// When it has ended, or is not ready after `limit`; with the end of its log.
    pub async fn ready(&self, limit: Duration) -> anyhow::Result<()> {
        ready(&self.kubeconfig, &[&self.process], limit).await
    }

    /// Fails when it has exited, with the end of its log.
    ///
    /// # Errors
    /// When it has exited.
    pub fn check(&self) -> anyhow::Result<()> {
        self.process.check()
    }

    /// Stops it by SIGSTOP: the kernel still accepts connections, but nothing is answered any more.
    pub fn pause(&self) {
        self.process.signal(Signal::STOP);
    }

    /// Resumes it after [`Self::pause`].
    pub fn resume(&self) {
        self.process.signal(Signal::CONT);
    }
}
