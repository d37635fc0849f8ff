//! What a demo plays on: a control plane, its users, and the daemon that is told nothing.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;

use super::assessment::Assessment;
use super::{DaemonArguments, DaemonHandle, StartingDaemon};
use crate::lab::api::{ApiServer, ApiServerOptions};
use crate::lab::cluster::Cluster;
use crate::lab::scenario::Target;
use crate::lab::workload::{Workload, WorkloadOptions};

/// Longest wait for one assessment.
const POLL_LIMIT: Duration = Duration::from_secs(2);
/// Largest assessment that is read, in bytes.
const MAX_ASSESSMENT: usize = 4 << 20;

/// Everything that runs during a demo. Dropping it ends all but the daemon; [`Stage::leave`] ends that too.
pub struct Stage {
    /// The users.
    pub workload: Workload,
    cluster: Cluster,
    api: ApiServer,
    kubeconfig: String,
    directory: PrivateDirectory,
    daemon: DaemonHandle,
    http: reqwest::Client,
}

impl Stage {
    /// Starts the lab, its users, and then the daemon, which gets a kubeconfig and nothing else.
    ///
    /// # Errors
    /// When any of them does not start.
    pub async fn set_up(
        start_daemon: impl FnOnce(DaemonArguments) -> StartingDaemon,
    ) -> anyhow::Result<Self> {
        let api = ApiServer::start(ApiServerOptions::default())
            .await
            .context("starting the lab's API server")?;
        let kubeconfig = api.kubeconfig();
        let cluster = Cluster::start(&kubeconfig).await?;
        let workload = Workload::start(&kubeconfig, &WorkloadOptions::default()).await?;
        let directory = PrivateDirectory::create()?;
        directory.write("kubeconfig", &kubeconfig)?;
        let arguments = DaemonArguments {
            kubeconfig: directory.path().join("kubeconfig"),
            listen: "127.0.0.1:0".to_owned(),
        };
        let daemon = start_daemon(arguments).await.context("starting the daemon")?;
        // No roots and no proxy: the daemon is asked by plain HTTP on loopback and nothing else is.
        let http = reqwest::Client::builder()
            .no_proxy()
            .tls_certs_only([])
            .timeout(POLL_LIMIT)
            .build()
            .context("making an HTTP client")?;
        Ok(Self {
            workload,
            cluster,
            api,
            kubeconfig,
            directory,
            daemon,
            http,
        })
    }

    /// What scenarios are carried out on.
    pub fn target(&self) -> Target<'_> {
        Target {
            cluster: &self.cluster,
            kubeconfig: &self.kubeconfig,
            knobs: Some(self.api.knobs()),
        }
    }

    /// The daemon's present assessment.
    ///
    /// # Errors
    /// When the daemon does not answer with one in time.
    pub async fn assessment(&self) -> anyhow::Result<Assessment> {
        let url = format!("{}/api/v1/assessment", self.daemon_url());
        let mut response = self.http.get(url).send().await?.error_for_status()?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            anyhow::ensure!(
                body.len() + chunk.len() <= MAX_ASSESSMENT,
                "the assessment is larger than {MAX_ASSESSMENT} bytes"
            );
            body.extend_from_slice(&chunk);
        }
        serde_json::from_slice(&body).context("reading the assessment")
    }

    /// The API server's URL.
    pub fn api_url(&self) -> String {
        format!("https://{}", self.api.address())
    }

    /// The daemon's URL.
    pub fn daemon_url(&self) -> String {
        format!("http://{}", self.daemon.address)
    }

    /// Where the kubeconfig lies.
    pub fn kubeconfig_path(&self) -> PathBuf {
        self.directory.path().join("kubeconfig")
    }

    /// Stops the daemon first, so that it does not take the end of the lab for an outage, and then the rest.
    ///
    /// # Errors
    /// When the daemon had failed or does not stop.
    pub async fn leave(self) -> anyhow::Result<()> {
        const LIMIT: Duration = Duration::from_secs(15);
        let stopped = tokio::time::timeout(LIMIT, self.daemon.stop).await;
        self.workload.stop().await;
        stopped.context("the daemon did not stop in time")?
    }
}

/// A directory that only its owner can enter, removed with everything in it when dropped.
struct PrivateDirectory {
    path: PathBuf,
}

impl PrivateDirectory {
    fn create() -> anyhow::Result<Self> {
        // The hasher's keys are random; the mode and the refusal of an existing directory are what protects it.
        let random = RandomState::new().hash_one(std::process::id());
        let path = std::env::temp_dir().join(format!("hookwatch-demo-{random:016x}"));
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .with_context(|| format!("making the directory {}", path.display()))?;
        Ok(Self { path })
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let path = self.path.join(name);
        std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .with_context(|| format!("writing {}", path.display()))
    }
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            tracing::warn!(%error, path = %self.path.display(), "a temporary directory stays behind");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_kubeconfig_is_for_its_owner_only_and_goes_away() {
        let directory = PrivateDirectory::create().unwrap();
        let path = directory.path().to_owned();
        directory.write("kubeconfig", "secret").unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&path.join("kubeconfig"))), (0o700, 0o600));
        drop(directory);
        assert!(!path.exists());
    }
}
