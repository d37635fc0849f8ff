//! The real kube-controller-manager and kube-scheduler, where their binaries lie beside kube-apiserver.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context;

use super::process::{Process, ProcessGuard};
use super::server::Launch;
use super::{Envtest, SecondApiServer, flag};

/// All controllers that are on by default but those that write endpoints: the lab writes the EndpointSlices of its hooks itself,
/// and a controller that finds no Pods behind their Services would empty them. Releases before 1.28 know only these names.
const CONTROLLERS: &str = "*,-endpoint,-endpointslice,-endpointslicemirroring";

/// A process that leads by a Lease of its own name in kube-system. Dropping it kills the process.
#[derive(Debug)]
pub struct Controller {
    launch: Launch,
    guard: Arc<ProcessGuard>,
    process: Mutex<Option<Process>>,
}

impl Envtest {
    /// kube-controller-manager and kube-scheduler with their default leader election, not started yet, the latter at a second
    /// API server if one is given; `None` where their binaries are not installed.
    ///
    /// # Errors
    /// When their files cannot be written.
    pub fn controllers(
        &self,
        schedulers: Option<&SecondApiServer>,
    ) -> anyhow::Result<Option<[Controller; 2]>> {
        let Some(binaries) = &self.controllers else {
            return Ok(None);
        };
        let keys = &self.origin.files.directory;
        let manager = [
            flag("controllers", CONTROLLERS),
            flag("use-service-account-credentials", "true"),
            flag("service-account-private-key-file", keys.join("accounts.key")),
            // The authority that signed the API server's certificate signs those of clients as well.
            flag("root-ca-file", keys.join("clients.crt")),
        ];
        Ok(Some([
            self.controller(
                ("kube-controller-manager", &binaries.manager),
                self.address,
                manager.to_vec(),
            )?,
            self.controller(
                ("kube-scheduler", &binaries.scheduler),
                schedulers.map_or(self.address, SecondApiServer::address),
                Vec::new(),
            )?,
        ]))
    }

    fn controller(
        &self,
        (name, binary): (&'static str, &Path),
        address: SocketAddr,
        mut arguments: Vec<OsString>,
    ) -> anyhow::Result<Controller> {
        let directory = self.origin.launch.directory.join(name);
        DirBuilder::new()
            .mode(0o700)
            .create(&directory)
            .with_context(|| format!("making {}", directory.display()))?;
        let file = directory.join("kubeconfig");
        let user = format!("system:{name}");
        let kubeconfig = self.kubeconfig_of((&user, "system:authenticated"), false, address)?;
        std::fs::write(&file, kubeconfig).with_context(|| format!("writing {}", file.display()))?;
        arguments.extend([
            flag("kubeconfig", &file),
            // The lab reads neither its health nor its metrics, and a port could be taken.
            flag("secure-port", "0"),
        ]);
        Ok(Controller {
            launch: Launch {
                name,
                binary: binary.to_owned(),
                arguments,
                directory,
            },
            guard: Arc::clone(&self.guard),
            process: Mutex::new(None),
        })
    }
}

impl Controller {
    /// The name of the process and of its Lease.
    pub const fn name(&self) -> &'static str {
        self.launch.name
    }

    /// Starts it, or starts it again.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&self) -> anyhow::Result<()> {
        *self.lock() = Some(self.launch.start(&self.guard)?);
        Ok(())
    }

    /// Fails unless it runs, with the end of its log.
    ///
    /// # Errors
    /// When it has exited or was not started.
    pub fn check(&self) -> anyhow::Result<()> {
        match &*self.lock() {
            Some(process) => process.check(),
            None => anyhow::bail!("{} was not started", self.name()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
