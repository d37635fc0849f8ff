//! Measures what being watched costs: webhooks of one Service with two endpoints, each a process of its own, and the
//! daemon as a third.
//!
//! `cargo run --release --example watching -- [--webhooks 200] [--paths 1] [--seconds 60] [--hookwatch BINARY]`
//!
//! Prints one line: handshakes and requests a second at the webhooks, and the part of a core that the daemon and each of
//! the two webhook processes took. Nothing else should run meanwhile.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use hookwatch::lab::api::{ApiServer, ApiServerOptions};
use hookwatch::lab::backend::{Backend, Role};
use hookwatch::lab::certs::Authority;
use hookwatch::lab::cluster::client_for;
use hookwatch::lab::directory::PrivateDirectory;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use serde_json::{Value, json};

const NAMESPACE: &str = "watched";
const SERVICE: &str = "webhooks";
/// Until every webhook was found and probed.
const WARM_UP: Duration = Duration::from_secs(20);

#[derive(Debug, Parser)]
struct Arguments {
    /// Webhooks of the Service
    #[arg(long, default_value_t = 200)]
    webhooks: usize,
    /// Different paths among them
    #[arg(long, default_value_t = 1)]
    paths: usize,
    /// How long to measure
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// The hookwatch to measure
    #[arg(long, default_value = "target/release/hookwatch")]
    hookwatch: PathBuf,
    /// Be one of the webhooks, at this address
    #[arg(long, hide = true)]
    serve: Option<IpAddr>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    // Fails when there is one already, which is as good.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match arguments.serve {
        Some(host) => serve(host).await,
        None => measure(&arguments).await,
    }
}

/// A webhook: says where it listens and under which authority, and then what it was asked whenever a line comes in.
async fn serve(host: IpAddr) -> anyhow::Result<()> {
    let authority = Authority::new(&format!("watching {host}"))?;
    let certificate = authority.issue(&format!("{SERVICE}.{NAMESPACE}.svc"))?;
    let backends = Backend::start_group(&[host], Role::Validating, &certificate).await?;
    let backend = backends.first().context("a backend")?;
    println!("{}", json!({"address": backend.address(), "ca": authority.pem()}));
    loop {
        let line = tokio::task::spawn_blocking(|| std::io::stdin().lines().next()).await?;
        if line.is_none() {
            return Ok(());
        }
        let counters = backend.counters();
        println!("{}", counters.others() + counters.reviews());
    }
}

/// A process that ends with this one.
struct Process(Child, Option<BufReader<std::process::ChildStdout>>);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    fn start(command: &mut Command) -> anyhow::Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let out = child.stdout.take().map(BufReader::new);
        Ok(Self(child, out))
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        self.1.as_mut().context("its output")?.read_line(&mut line)?;
        Ok(line)
    }

    fn requests(&mut self) -> anyhow::Result<u64> {
        use std::io::Write;
        writeln!(self.0.stdin.as_mut().context("its input")?)?;
        Ok(self.line()?.trim().parse()?)
    }

    /// Seconds of CPU time so far.
    fn cpu(&self) -> anyhow::Result<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id()))?;
        let (_, fields) = stat.rsplit_once(')').context("the fields of stat")?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let ticks: f64 = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
        // Linux counts in hundredths of a second, whatever the kernel does inside.
        Ok(ticks / 100.0)
    }
}

async fn measure(arguments: &Arguments) -> anyhow::Result<()> {
    let server = ApiServer::start(ApiServerOptions::default()).await?;
    let kubeconfig = server.kubeconfig();
    let client = client_for(&kubeconfig).await?;
    let itself = std::env::current_exe()?;
    let mut webhooks = Vec::new();
    let mut addresses = Vec::new();
    let mut bundle = String::new();
    for host in ["127.0.0.21", "127.0.0.22"] {
        let mut process = Process::start(Command::new(&itself).args(["--serve", host]))?;
        let said: Value = serde_json::from_str(&process.line()?)?;
        addresses.push(
            said["address"]
                .as_str()
                .context("an address")?
                .parse::<SocketAddr>()?,
        );
        bundle.push_str(said["ca"].as_str().context("an authority")?);
        webhooks.push(process);
    }
    register(&client, arguments, &addresses, &bundle).await?;
    let directory = PrivateDirectory::create()?;
    // Free a moment ago.
    let address = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let kubeconfig = directory.write("kubeconfig", &kubeconfig)?;
    let daemon = start_daemon(&arguments.hookwatch, &kubeconfig, address)?;
    tokio::time::sleep(WARM_UP).await;
    let before = figures(&mut webhooks, &daemon, address).await?;
    tokio::time::sleep(Duration::from_secs(arguments.seconds)).await;
    let after = figures(&mut webhooks, &daemon, address).await?;
    let per_second = |at: usize| (after[at] - before[at]) / arguments.seconds as f64;
    println!(
        "{} webhooks with {} paths at two endpoints: {:.1} handshakes/s, {:.1} requests/s; hookwatch {:.2} % of a core, \
         the webhook processes {:.2} % and {:.2} %",
        arguments.webhooks,
        arguments.paths,
        per_second(0),
        per_second(1) + per_second(2),
        per_second(3) * 100.0,
        per_second(4) * 100.0,
        per_second(5) * 100.0
    );
    Ok(())
}

fn start_daemon(binary: &Path, kubeconfig: &Path, address: SocketAddr) -> anyhow::Result<Process> {
    let mut command = Command::new(binary);
    command
        .args(["run", "--listen", &address.to_string(), "--kubeconfig"])
        .arg(kubeconfig);
    command.stderr(Stdio::null());
    Process::start(&mut command).with_context(|| format!("starting {}", binary.display()))
}

/// Handshakes, requests at both webhooks, and the CPU time of all three.
async fn figures(
    webhooks: &mut [Process],
    daemon: &Process,
    address: SocketAddr,
) -> anyhow::Result<[f64; 6]> {
    let text = reqwest::get(format!("http://{address}/metrics"))
        .await?
        .text()
        .await?;
    let handshakes = text
        .lines()
        .find_map(|line| line.strip_prefix("hookwatch_probe_phase_duration_seconds_count{phase=\"tls\"} "));
    let [one, two] = webhooks else {
        anyhow::bail!("two webhooks");
    };
    Ok([
        handshakes.context("handshakes")?.parse()?,
        one.requests()? as f64,
        two.requests()? as f64,
        daemon.cpu()?,
        one.cpu()?,
        two.cpu()?,
    ])
}

async fn register(
    client: &Client,
    arguments: &Arguments,
    addresses: &[SocketAddr],
    bundle: &str,
) -> anyhow::Result<()> {
    use base64::Engine;
    let bundle = base64::prelude::BASE64_STANDARD.encode(bundle);
    let post = async |group: &str, kind: &str, plural: &str, object: Value| {
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", kind), plural);
        let api: Api<DynamicObject> = if object["metadata"]["namespace"].is_string() {
            Api::namespaced_with(client.clone(), NAMESPACE, &resource)
        } else {
            Api::all_with(client.clone(), &resource)
        };
        api.create(&PostParams::default(), &serde_json::from_value(object)?)
            .await?;
        anyhow::Ok(())
    };
    post(
        "",
        "Namespace",
        "namespaces",
        json!({"metadata": {"name": NAMESPACE}}),
    )
    .await?;
    let service = json!({
        "metadata": {"name": SERVICE, "namespace": NAMESPACE},
        "spec": {"clusterIP": "None", "selector": {"app": SERVICE}, "ports": [{"name": "https", "port": 443}]},
    });
    post("", "Service", "services", service).await?;
    for (nth, address) in addresses.iter().enumerate() {
        let slice = json!({
            "metadata": {
                "name": format!("{SERVICE}-{nth}"),
                "namespace": NAMESPACE,
                "labels": {
                    "kubernetes.io/service-name": SERVICE,
                    "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
                },
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": [address.ip()], "conditions": {"ready": true}}],
            "ports": [{"name": "https", "port": address.port(), "protocol": "TCP"}],
        });
        post("discovery.k8s.io", "EndpointSlice", "endpointslices", slice).await?;
    }
    let webhook = |nth: usize| {
        json!({
            "name": format!("w{nth}.example.com"),
            "clientConfig": {
                "service": {
                    "namespace": NAMESPACE,
                    "name": SERVICE,
                    "path": format!("/check/{}", nth % arguments.paths.max(1)),
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
    let all: Vec<Value> = (0..arguments.webhooks).map(webhook).collect();
    for (nth, some) in all.chunks(50).enumerate() {
        let configuration = json!({"metadata": {"name": format!("watched-{nth}")}, "webhooks": some});
        let (kind, plural) = (
            "ValidatingWebhookConfiguration",
            "validatingwebhookconfigurations",
        );
        post("admissionregistration.k8s.io", kind, plural, configuration).await?;
    }
    Ok(())
}
