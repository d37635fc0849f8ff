//! Webhooks to be watched: Services with endpoints, and the processes that serve them.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context;
use hookwatch::lab::backend::{Backend, Role};
use hookwatch::lab::certs::Authority;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use serde_json::{Value, json};

use crate::process::Process;

const NAMESPACE: &str = "watched";

/// How many there are of what.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    pub webhooks: usize,
    /// Different paths among them.
    pub paths: usize,
    pub services: usize,
    /// Of each Service; so many processes serve them.
    pub endpoints: usize,
    /// Where the endpoints are, of one Service: a real API server takes none on the loopback device. Otherwise each has an
    /// address of its own there.
    pub host: Option<IpAddr>,
}

/// Serves one endpoint of each Service: says where and under which authority, and then what was asked whenever a line
/// comes in.
///
/// # Errors
/// When an address cannot be had.
pub async fn serve(process: usize, services: usize, host: Option<IpAddr>) -> anyhow::Result<()> {
    let hosts = (0..services).map(|service| endpoint(host, process, service));
    let hosts: Vec<IpAddr> = hosts.collect::<anyhow::Result<_>>()?;
    let authority = Authority::new(&format!("watching {process}"))?;
    let names: Vec<String> = (0..services)
        .map(|service| format!("{}.{NAMESPACE}.svc", service_name(service)))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let certificate = authority.issue_names(&names)?;
    let backends = Backend::start_group(&hosts, Role::Validating, &certificate).await?;
    let port = backends.first().context("a backend")?.address().port();
    println!("{}", json!({"port": port, "ca": authority.pem()}));
    loop {
        let line = tokio::task::spawn_blocking(|| std::io::stdin().lines().next()).await?;
        if line.is_none() {
            return Ok(());
        }
        let counters = backends.iter().map(Backend::counters);
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

/// Starts the processes that serve, and registers everything.
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
    post(
        client,
        "",
        "Namespace",
        "namespaces",
        json!({"metadata": {"name": NAMESPACE}}),
    )
    .await?;
    for service in 0..size.services {
        let addresses = ports.iter().enumerate();
        let addresses = addresses
            .map(|(process, port)| Ok(SocketAddr::new(endpoint(size.host, process, service)?, *port)));
        register_service(client, service, &addresses.collect::<anyhow::Result<Vec<_>>>()?).await?;
    }
    register_webhooks(client, size, &bundle).await?;
    Ok(processes)
}

/// The daemon, serving its metrics and page at this address.
///
/// # Errors
/// When it does not start.
pub fn start_daemon(binary: &Path, kubeconfig: &Path, address: SocketAddr) -> anyhow::Result<Process> {
    let mut command = Command::new(binary);
    command
        .args(["run", "--listen", &address.to_string(), "--kubeconfig"])
        .arg(kubeconfig);
    command.stderr(Stdio::null());
    Process::start(&mut command)
}

/// Handshakes that the daemon has made so far.
///
/// # Errors
/// When it does not say.
pub async fn handshakes(address: SocketAddr) -> anyhow::Result<f64> {
    const SERIES: &str = "hookwatch_probe_phase_duration_seconds_count{phase=\"tls\"} ";
    let text = reqwest::get(format!("http://{address}/metrics"))
        .await?
        .text()
        .await?;
    let found = text.lines().find_map(|line| line.strip_prefix(SERIES));
    let found = found.context("the daemon has made no handshake yet: the machine is too busy to measure")?;
    Ok(found.parse()?)
}

async fn post(client: &Client, group: &str, kind: &str, plural: &str, object: Value) -> anyhow::Result<()> {
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

async fn register_service(client: &Client, service: usize, addresses: &[SocketAddr]) -> anyhow::Result<()> {
    let name = service_name(service);
    let object = json!({
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"clusterIP": "None", "selector": {"app": name}, "ports": [{"name": "https", "port": 443}]},
    });
    post(client, "", "Service", "services", object).await?;
    for (nth, address) in addresses.iter().enumerate() {
        let slice = json!({
            "metadata": {
                "name": format!("{name}-{nth}"),
                "namespace": NAMESPACE,
                "labels": {
                    "kubernetes.io/service-name": name,
                    "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
                },
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": [address.ip()], "conditions": {"ready": true}}],
            "ports": [{"name": "https", "port": address.port(), "protocol": "TCP"}],
        });
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

async fn register_webhooks(client: &Client, size: Size, bundle: &str) -> anyhow::Result<()> {
    use base64::Engine;
    let bundle = base64::prelude::BASE64_STANDARD.encode(bundle);
    let webhook = |nth: usize| {
        json!({
            "name": format!("w{nth}.example.com"),
            "clientConfig": {
                "service": {
                    "namespace": NAMESPACE,
                    "name": service_name(nth % size.services),
                    "path": format!("/check/{}", nth / size.services % size.paths.max(1)),
                },
                "caBundle": bundle,
            },
            "rules": [{
                "operations": ["CREATE"], "apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["widgets"],
            }],
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        })
    };
    let all: Vec<Value> = (0..size.webhooks).map(webhook).collect();
    for (nth, some) in all.chunks(50).enumerate() {
        let configuration = json!({"metadata": {"name": format!("watched-{nth}")}, "webhooks": some});
        let (kind, plural) = (
            "ValidatingWebhookConfiguration",
            "validatingwebhookconfigurations",
        );
        post(
            client,
            "admissionregistration.k8s.io",
            kind,
            plural,
            configuration,
        )
        .await?;
    }
    Ok(())
}
