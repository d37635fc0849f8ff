//! A second API server on the same etcd, as every control plane has one that is to survive the loss of a machine.

use std::net::SocketAddr;

use rustix::process::Signal;

use super::process::Process;
use super::{Envtest, api_server_arguments, binaries, free_port};

/// A further API server with the same data, certificates and users. Dropping it kills its process.
#[derive(Debug)]
pub struct SecondApiServer {
    process: Process,
    address: SocketAddr,
}

impl Envtest {
    /// Starts a second API server on this one's etcd and waits until it is ready.
    ///
    /// # Errors
    /// When it does not start or does not become ready; with its last words.
    pub async fn second(&mut self) -> anyhow::Result<SecondApiServer> {
        let second = self.launch_second()?;
        self.ready(&second.process, second.address).await?;
        Ok(second)
    }

    /// Starts one and does not wait for it: where what it writes at start meets a hook, it may never be ready.
    ///
    /// # Errors
    /// When its process cannot be started.
    pub fn launch_second(&mut self) -> anyhow::Result<SecondApiServer> {
        let binaries = binaries::find()?;
        let address = SocketAddr::new(self.address.ip(), free_port(self.address.ip())?);
        let process = Process::start(
            "kube-apiserver-2",
            &binaries.kube_apiserver,
            api_server_arguments(&self.further.files, self.further.etcd_port, address),
            &self.further.directory,
            &mut self.guard,
        )?;
        Ok(SecondApiServer { process, address })
    }
}

impl SecondApiServer {
    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops it without ending it: connections are still taken by the system, and nothing is answered any more.
    pub fn pause(&self) {
        self.process.signal(Signal::STOP);
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.process.signal(Signal::CONT);
    }
}
