//! The webhooks that the daemon watches in a measurement: Services with endpoints, and the processes that serve them.

use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use hookwatch::lab::backend::{BackendRole, LabBackend};
use hookwatch::lab::certs::Authority;
use hookwatch::lab::directory::PrivateDirectory;
use hookwatch::lab::ports::free_address;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::process::Process;

const NAMESPACE: &str = "watched";

/// The size of the estate.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    pub webhooks: usize,
    /// Number of different paths among the webhooks.
    pub paths: usize,
    pub services: usize,
    /// Endpoints of each Service, which is also the number of processes that serve them.
    pub endpoints: usize,
    /// Address of all endpoints, for one Service: a real API server rejects endpoints on the loopback device. With `None`,
    /// each endpoint has its own loopback address.
    pub host: Option<IpAddr>,
}

/// Serves one endpoint of each Service. Prints its port and certificate authority, and then, for each line of input, the
/// number of requests so far.
///
/// # Errors
/// When it cannot listen on an address.
pub async fn serve(process: usize, services: usize, host: Option<IpAddr>) -> anyhow::Result<()> {
    let hosts = (0..services).map(|service| endpoint(host, process, service));
    let hosts: Vec<IpAddr> = hosts.collect::<anyhow::Result<_>>()?;
    let authority = Authority::new(&format!("watching {process}"))?;
    let names: Vec<String> = (0..services).map(server_name).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let certificate = authority.issue_names(&names)?;
    let backends = LabBackend::start_group(&hosts, BackendRole::Validating, &certificate).await?;
    let port = backends.first().context("a backend")?.address().port();
    println!("{}", json!({"port": port, "ca": authority.pem()}));
    loop {
        let line = tokio::task::spawn_blocking(|| std::io::stdin().lines().next()).await?;
        if line.is_none() {
            return Ok(());
        }
        let counters = backends.iter().map(LabBackend::counters);
        let asked: u64 = counters
            .map(|counters| counters.others() + counters.reviews())
            .sum();
        println!("{asked}");
    }
}

fn endpoint(host: Option<IpAddr>, process: usize, service: usize) -> anyhow::Result<IpAddr> {
    match host {
        Some(host) => Ok(host),
        None => Ok(format!("127.0.{}.{}", 20 + process, 1 + service).parse()?),
    }
}

fn service_name(service: usize) -> String {
    format!("webhooks-{service}")
}

/// The DNS name in the certificate of a Service's backends.
pub fn server_name(service: usize) -> String {
    format!("{}.{NAMESPACE}.svc", service_name(service))
}

/// Starts the processes that serve the endpoints, and registers Services and webhooks.
///
/// # Errors
/// When a process does not start, or the API server refuses something.
pub async fn build(client: &Client, size: Size) -> anyhow::Result<Vec<Process>> {
    let itself = std::env::current_exe()?;
    let (mut processes, mut ports, mut bundle) = (Vec::new(), Vec::new(), String::new());
    for nth in 0..size.endpoints {
        let arguments = [format!("--serve={nth}"), format!("--services={}", size.services)];
        let host = size.host.map(|host| format!("--host={host}"));
        let mut process = Process::start(Command::new(&itself).args(arguments).args(host))?;
        let said: Value = serde_json::from_str(&process.line()?)?;
        ports.push(u16::try_from(said["port"].as_u64().context("a port")?)?);
        bundle.push_str(said["ca"].as_str().context("an authority")?);
        processes.push(process);
    }
    create_namespace(client).await?;
    for service in 0..size.services {
        let addresses = ports.iter().enumerate();
        let addresses = addresses
            .map(|(process, port)| Ok(SocketAddr::new(endpoint(size.host, process, service)?, *port)));
        register_service(client, service, &addresses.collect::<anyhow::Result<Vec<_>>>()?).await?;
    }
    register_webhooks(client, size, &bundle).await?;
    Ok(processes)
}

/// Creates the namespace of the Services.
///
/// # Errors
/// When the API server refuses it.
pub async fn create_namespace(client: &Client) -> anyhow::Result<()> {
    let namespace = json!({"metadata": {"name": NAMESPACE}});
    post(client, "", "Namespace", "namespaces", namespace).await
}

/// The binary that `cargo build --release` builds.
pub const RELEASE: &str = "target/release/hookwatch";

const LOG: &str = "log";

/// A daemon that serves its metrics and page at `address`.
pub struct Daemon {
    pub process: Process,
    pub address: SocketAddr,
    directory: PrivateDirectory,
}

impl Daemon {
    /// # Errors
    /// When it does not start.
    pub fn start(binary: &Path, kubeconfig: &str) -> anyhow::Result<Self> {
        let directory = PrivateDirectory::create()?;
        let address = free_address()?;
        let mut command = Command::new(binary);
        command
            .args(["run", "--listen", &address.to_string(), "--kubeconfig"])
            .arg(directory.write("kubeconfig", kubeconfig)?)
            // As in the container image.
            .env("MALLOC_ARENA_MAX", "1")
            .env("HOOKWATCH_LOG_FORMAT", "json")
            .stderr(File::create(directory.path().join(LOG))?);
        Ok(Self {
            process: Process::start(&mut command)?,
            address,
            directory,
        })
    }

    /// The file that it logs to, as lines of JSON.
    #[allow(dead_code, reason = "one of the two examples does not read it")]
    pub fn log(&self) -> PathBuf {
        self.directory.path().join(LOG)
    }

    /// TLS handshakes of its probes so far.
    ///
    /// # Errors
    /// When its metrics cannot be read or do not have the series.
    pub async fn handshakes(&self) -> anyhow::Result<f64> {
        const SERIES: &str = "hookwatch_probe_phase_duration_seconds_count{";
        let text = reqwest::get(format!("http://{}/metrics", self.address))
            .await?
            .text()
            .await?;
        let counted = text.lines().filter_map(|line| line.strip_prefix(SERIES));
        let of_tls = counted.filter_map(|line| line.split_once("phase=\"tls\"} "));
        let counts: Vec<f64> = of_tls.map(|(_, count)| count.parse()).collect::<Result<_, _>>()?;
        anyhow::ensure!(
            !counts.is_empty(),
            "the daemon has made no handshake yet: the machine is too busy to measure"
        );
        Ok(counts.iter().sum())
    }
}

/// The daemon's newest assessment, once there is one.
#[allow(dead_code, reason = "one of the two examples does not ask")]
pub async fn assessment(address: SocketAddr) -> Option<Value> {
    let answer = reqwest::get(format!("http://{address}/api/v1/assessment"))
        .await
        .ok()?;
    let text = answer.error_for_status().ok()?.text().await.ok()?;
    serde_json::from_str(&text).ok()
}

/// Creates an object in version 1 of its group.
///
/// # Errors
/// When the API server refuses it.
pub async fn post(
    client: &Client,
    group: &str,
    kind: &str,
    plural: &str,
    object: Value,
) -> anyhow::Result<()> {
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", kind), plural);
    let api: Api<DynamicObject> = if object["metadata"]["namespace"].is_string() {
        Api::namespaced_with(client.clone(), NAMESPACE, &resource)
    } else {
        Api::all_with(client.clone(), &resource)
    };
    api.create(&PostParams::default(), &serde_json::from_value(object)?)
        .await?;
    Ok(())
}

/// A Service with these endpoints.
///
/// # Errors
/// When the API server refuses something.
pub async fn register_service(
    client: &Client,
    service: usize,
    addresses: &[SocketAddr],
) -> anyhow::Result<()> {
    /// Most endpoints in one slice: the default of the EndpointSlice controller.
    const IN_A_SLICE: usize = 100;
    let name = service_name(service);
    let object = json!({
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"clusterIP": "None", "selector": {"app": name}, "ports": [{"name": "https", "port": 443}]},
    });
    post(client, "", "Service", "services", object).await?;
    let of_one_port = addresses.chunk_by(|one, next| one.port() == next.port());
    let slices = of_one_port.flat_map(|same| same.chunks(IN_A_SLICE));
    for (nth, addresses) in slices.enumerate() {
        let slice = slice(service, nth, addresses);
        post(
            client,
            "discovery.k8s.io",
            "EndpointSlice",
            "endpointslices",
            slice,
        )
        .await?;
    }
    Ok(())
}

fn slice(service: usize, nth: usize, addresses: &[SocketAddr]) -> Value {
    let name = service_name(service);
    let port = addresses.first().map(SocketAddr::port);
    let endpoint = |address: &SocketAddr| json!({"addresses": [address.ip()], "conditions": {"ready": true}});
    json!({
        "metadata": {
            "name": format!("{name}-{nth}"),
            "namespace": NAMESPACE,
            "labels": {
                "kubernetes.io/service-name": name,
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
            },
        },
        "addressType": "IPv4",
        "endpoints": addresses.iter().map(endpoint).collect::<Vec<_>>(),
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
    })
}

/// Replaces the endpoint of a Service that has one.
///
/// # Errors
/// When the API server refuses it.
#[allow(dead_code, reason = "one of the two examples moves none")]
pub async fn move_endpoint(client: &Client, service: usize, to: SocketAddr) -> anyhow::Result<()> {
    let slice = slice(service, 0, &[to]);
    let name = format!("{}-0", service_name(service));
    let patch = Patch::Merge(json!({"endpoints": slice["endpoints"], "ports": slice["ports"]}));
    let gvk = GroupVersionKind::gvk("discovery.k8s.io", "v1", "EndpointSlice");
    let resource = ApiResource::from_gvk_with_plural(&gvk, "endpointslices");
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), NAMESPACE, &resource);
    api.patch(&name, &PatchParams::default(), &patch).await?;
    Ok(())
}

async fn register_webhooks(client: &Client, size: Size, bundle: &str) -> anyhow::Result<()> {
    let all = (0..size.webhooks).map(|nth| {
        let path = nth / size.services % size.paths.max(1);
        webhook(&format!("w{nth}.example.com"), nth % size.services, path, bundle)
    });
    let all: Vec<Value> = all.collect();
    for (nth, some) in all.chunks(50).enumerate() {
        register(client, &format!("watched-{nth}"), some).await?;
    }
    Ok(())
}

/// Adds a Service with one backend, and a configuration with one webhook on it.
///
/// # Errors
/// When the API server refuses something.
#[allow(dead_code, reason = "one of the two examples has no such webhook")]
pub async fn add(
    client: &Client,
    service: usize,
    name: &str,
    backend: SocketAddr,
    bundle: &str,
) -> anyhow::Result<()> {
    register_service(client, service, &[backend]).await?;
    register(client, "one-more", &[webhook(name, service, 0, bundle)]).await
}

/// A webhook on a Service. Its rules match only objects that the measurement never writes.
pub fn webhook(name: &str, service: usize, path: usize, bundle: &str) -> Value {
    use base64::Engine;
    json!({
        "name": name,
        "clientConfig": {
            "service": {"namespace": NAMESPACE, "name": service_name(service), "path": format!("/check/{path}")},
            "caBundle": base64::prelude::BASE64_STANDARD.encode(bundle),
        },
        "rules": [{
            "operations": ["CREATE"], "apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["widgets"],
        }],
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    })
}

/// Registers webhooks in one configuration.
///
/// # Errors
/// When the API server refuses it.
pub async fn register(client: &Client, name: &str, webhooks: &[Value]) -> anyhow::Result<()> {
    let (group, kind) = ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration");
    let configuration = json!({"metadata": {"name": name}, "webhooks": webhooks});
    post(
        client,
        group,
        kind,
        "validatingwebhookconfigurations",
        configuration,
    )
    .await
}
