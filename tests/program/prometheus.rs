//! A real Prometheus between the API server and hookwatch: what it stored names the hook.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hookwatch::lab::ports::free_address;
use serde_json::Value;

use crate::held::HeldDemo;
use crate::programs::{Running, skip};

const HOOKWATCH: &str = env!("CARGO_BIN_EXE_hookwatch");
/// A guard against a test that hangs, not a measurement.
const GUARD: Duration = Duration::from_secs(180);

/// The program, or word that nothing is tested without it.
fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|folder| folder.join("prometheus"))
        .find(|file| file.is_file());
    if found.is_none() {
        skip("no prometheus in PATH; Debian and Ubuntu have the package prometheus");
    }
    found
}

/// A Prometheus that scrapes the API server of a kubeconfig every second, and its address.
fn prometheus(program: &Path, kubeconfig: &str, folder: &Path) -> (Running, String) {
    let config: Value = serde_saphyr::from_str(&std::fs::read_to_string(kubeconfig).unwrap()).unwrap();
    let cluster = &config["clusters"][0]["cluster"];
    let authority = cluster["certificate-authority-data"].as_str().unwrap();
    let write = |name: &str, content: &[u8]| std::fs::write(folder.join(name), content).unwrap();
    write("ca.pem", &BASE64_STANDARD.decode(authority).unwrap());
    write(
        "token",
        config["users"][0]["user"]["token"].as_str().unwrap().as_bytes(),
    );
    let server = cluster["server"].as_str().unwrap().trim_start_matches("https://");
    let scraping = format!(
        "global: {{scrape_interval: 1s, scrape_timeout: 1s}}\n\
         scrape_configs:\n\
         - job_name: kubernetes-apiservers\n  \
           scheme: https\n  \
           tls_config: {{ca_file: ca.pem}}\n  \
           authorization: {{credentials_file: token}}\n  \
           static_configs: [{{targets: ['{server}']}}]\n\
         - job_name: prometheus\n  \
           static_configs: [{{targets: ['127.0.0.1:1']}}]\n"
    );
    write("prometheus.yaml", scraping.as_bytes());
    let address = free_address().unwrap();
    let process = Running::start(
        Command::new(program)
            .current_dir(folder)
            .arg("--config.file=prometheus.yaml")
            .arg("--storage.tsdb.path=data")
            .arg(format!("--web.listen-address={address}")),
    );
    (process, format!("http://{address}"))
}

/// One look by nothing but the Prometheus: no scrape, probe or canary of hookwatch's own.
fn diagnose(kubeconfig: &str, folder: &Path, url: &str) -> (Option<i32>, Value) {
    let config = folder.join("hookwatch.yaml");
    // Its owner's annotation would override `probes.level`.
    let text = "scrapes: {enabled: false}\n\
                probes: {hooks: [{configuration: opa-validating-webhook, level: off, \
                webhook: validating-webhook.openpolicyagent.org}]}\n\
                canaries: {ownNamespace: false, kubeSystem: false, nodeLease: false}\n";
    std::fs::write(&config, text).unwrap();
    let output = Command::new(HOOKWATCH)
        .args([
            "diagnose",
            "--output",
            "json",
            "--kubeconfig",
            kubeconfig,
            "--prometheus",
            url,
        ])
        .arg("--config")
        .arg(&config)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    (output.status.code(), report)
}

#[test]
fn what_a_real_prometheus_has_stored_names_the_hook_that_hangs() {
    let Some(program) = program() else { return };
    let folder = tempfile::tempdir().unwrap();
    let demo = HeldDemo::start(&["--scenario", "validating-hang"]);
    let kubeconfig = demo.text("kubeconfig");
    let (_prometheus, url) = prometheus(&program, kubeconfig, folder.path());
    let begin = Instant::now();
    // The first calls are counted when their timeouts are over.
    let report = loop {
        let (code, report) = diagnose(kubeconfig, folder.path(), &url);
        if code == Some(1) {
            break report;
        }
        assert!(begin.elapsed() < GUARD, "{report:#}");
    };
    let sources = &report["assessment"]["sources"];
    assert_eq!(sources["scrapes"], serde_json::json!([]));
    let stored = &sources["prometheus"];
    assert_eq!(
        (&stored["used"], &stored["api_servers"]),
        (&true.into(), &1.into()),
        "{stored:#}"
    );
    let resolution = stored["resolution_seconds"].as_f64().unwrap();
    assert!((0.5..10.0).contains(&resolution), "{stored:#}");
    let hook = &report["assessment"]["hooks"][0];
    assert_eq!(
        (hook["health"].as_str(), hook["cause"].as_str()),
        (Some("Failing"), Some("Hanging")),
        "{hook:#}"
    );
    assert_eq!(hook["webhook"], "validating-webhook.openpolicyagent.org");
    let said = hook["evidence"]
        .as_array()
        .unwrap()
        .last()
        .unwrap()
        .as_str()
        .unwrap();
    assert!(
        said.contains(&format!("Prometheus at {url}: one scrape every")),
        "{said}"
    );
    assert!(said.contains("Confidence is lowered"), "{said}");
}
