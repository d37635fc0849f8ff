//! Third-party programs that are measured or that measure.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hookwatch::lab::directory::PrivateDirectory;
use hookwatch::lab::ports::free_address;

use crate::process::Process;

/// Finds a program: installed, or unpacked into `target/monitoring`, as .ci/run does.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let taken_out = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/monitoring/usr/bin");
    let places = std::env::split_paths(&path).chain([taken_out]);
    places.map(|place| place.join(name)).find(|path| path.is_file())
}

/// Starts a prometheus-blackbox-exporter with a module `webhook` that verifies as an API server does: against this authority
/// (a PEM file) and server name.
///
/// # Errors
/// When it does not listen.
pub fn start_exporter(
    binary: &Path,
    directory: &Path,
    ca: &Path,
    server_name: &str,
) -> anyhow::Result<(Process, SocketAddr)> {
    let config = directory.join("blackbox.yml");
    let text = format!(
        "modules:\n  webhook:\n    prober: http\n    timeout: 10s\n    http:\n      method: GET\n      \
         valid_status_codes: [405]\n      fail_if_not_ssl: true\n      follow_redirects: false\n      enable_http2: false\n      \
         preferred_ip_protocol: ip4\n      tls_config:\n        ca_file: {}\n        server_name: {server_name}\n",
        ca.display(),
    );
    std::fs::write(&config, text)?;
    let address = free_address()?;
    let mut command = Command::new(binary);
    command
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--web.listen-address={address}"))
        .arg("--log.level=error")
        .stderr(Stdio::null());
    let process = Process::start(&mut command)?;
    let up = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        std::net::TcpStream::connect(address).is_ok()
    });
    anyhow::ensure!(up, "{} does not listen", binary.display());
    Ok((process, address))
}

/// A scrape job of Prometheus (YAML, an item of `scrape_configs`) for the API server of a kubeconfig with a token.
///
/// # Errors
/// When the kubeconfig is not the lab's.
pub fn api_server_job(directory: &PrivateDirectory, kubeconfig: &str) -> anyhow::Result<String> {
    let value = |key: &str| {
        let mut lines = kubeconfig.lines().map(str::trim);
        lines
            .find_map(|line| line.strip_prefix(key))
            .context("the lab's kubeconfig")
    };
    let ca = BASE64_STANDARD.decode(value("certificate-authority-data: ")?)?;
    let ca = directory.write("api-server-ca.pem", std::str::from_utf8(&ca)?)?;
    let token = directory.write("token", value("token: ")?)?;
    Ok(format!(
        "- job_name: apiserver\n  scheme: https\n  tls_config: {{ca_file: {}}}\n  \
         authorization: {{credentials_file: {}}}\n  static_configs: [{{targets: [\"{}\"]}}]\n",
        ca.display(),
        token.display(),
        value("server: https://")?,
    ))
}

/// Starts a Prometheus with this configuration (YAML); returns where it listens.
///
/// # Errors
/// When it does not start.
pub fn start_prometheus(
    binary: &Path,
    directory: &PrivateDirectory,
    config: &str,
) -> anyhow::Result<(Process, SocketAddr)> {
    let config = directory.write("prometheus.yaml", config)?;
    let address = free_address()?;
    let mut command = Command::new(binary);
    command
        .arg(format!("--config.file={}", config.display()))
        .arg(format!(
            "--storage.tsdb.path={}",
            directory.path().join("data").display()
        ))
        .arg(format!("--web.listen-address={address}"))
        .stderr(Stdio::null());
    Ok((Process::start(&mut command)?, address))
}
