//! CPU and memory of a daemon that watches many webhooks, and what being watched costs the webhooks.

use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use hookwatch::lab::api::{ApiServer, ApiServerOptions};
use hookwatch::lab::backend::{BackendRole, Behaviour, LabBackend};
use hookwatch::lab::certs::Authority;
use hookwatch::lab::cluster::client_for;
use kube::Client;
use tokio::runtime::Runtime;

use crate::apiservers;
use crate::document::{Section, Table};
use crate::estate::{self, Daemon, RELEASE, Size};
use crate::noise::{Samples, seconds};
use crate::process::Process;

/// What the daemon watches: webhooks, Services with three endpoints each, and API servers with 60 MB of metrics (0: the
/// lab's own).
#[derive(Clone, Copy)]
struct Scale {
    webhooks: usize,
    services: usize,
    api_servers: u8,
    /// Whether there is an additional webhook, which hangs.
    one_hangs: bool,
}

impl Scale {
    fn called(self) -> String {
        if self.one_hangs {
            format!("{}, and one that hangs", self.webhooks)
        } else {
            self.webhooks.to_string()
        }
    }
}

/// Endpoints of each Service.
const ENDPOINTS: usize = 3;

const fn scale(webhooks: usize, services: usize, api_servers: u8) -> Scale {
    Scale {
        webhooks,
        services,
        api_servers,
        one_hangs: false,
    }
}

const CURVE: [Scale; 6] = [
    scale(10, 5, 0),
    scale(100, 20, 0),
    scale(1_000, 40, 0),
    scale(5_000, 40, 0),
    GOAL,
    Scale {
        one_hangs: true,
        ..GOAL
    },
];
const GOAL: Scale = scale(2_000, 40, 5);
const QUICK: [Scale; 1] = [scale(1_000, 40, 0)];

/// The measurements at one scale.
#[derive(Default)]
struct Cost {
    daemon: Samples,
    /// In MB.
    memory: Samples,
    /// CPU of one endpoint.
    backend: Samples,
    handshakes: Samples,
    requests: Samples,
}

/// Measures every scale.
///
/// # Errors
/// When the daemon's binary is missing or does not start.
pub fn measure(quick: bool) -> anyhow::Result<Section> {
    let runtime = Runtime::new()?;
    let mut section = Section::new("A daemon that watches many webhooks");
    section.say(
        "`hookwatch run` with default settings beside the embedded control plane, in quiet: its CPU and memory, and that of the \
         webhooks. Three processes serve one endpoint of each Service. Of those the CPU is per endpoint: what a webhook with a process \
         of its own would spend. Each spread over windows of ten seconds, from 75 s after the start on; in a quick run one, after 12 s. \
         In the last row one webhook more hangs, on a Service of its own, since 15 s before.",
    );
    let mut table = Table::new(&[
        "Webhooks",
        "Services of 3 endpoints",
        "API servers of 60 MB",
        "hookwatch, % of a core",
        "Memory, MB",
        "Handshakes a second",
        "Requests a second",
        "One webhook endpoint, % of a core",
    ]);
    let mut goal = None;
    let curve: &[Scale] = if quick { &QUICK } else { &CURVE };
    for size in curve {
        eprintln!("  {} webhooks", size.webhooks);
        let cost = runtime.block_on(watch(*size, quick))?;
        table.row(&[
            size.called(),
            size.services.to_string(),
            size.api_servers.to_string(),
            cost.daemon.times(100.0).to_string(),
            cost.memory.to_string(),
            cost.handshakes.to_string(),
            cost.requests.to_string(),
            cost.backend.times(100.0).to_string(),
        ]);
        if size.api_servers > 0 && !size.one_hangs {
            goal = Some(cost);
        }
    }
    section.table(table);
    let Some(cost) = goal else {
        section.skip("The goal (2,000 webhooks, 5 API servers)", "this was a quick run");
        return Ok(section);
    };
    section.goal(
        "CPU with 2,000 webhooks and 5 API servers, % of a core",
        cost.daemon.times(100.0),
        "10 or less",
        |share| share <= 10.0,
    );
    section.goal("its memory, MB", cost.memory, "150 or less", |memory| {
        memory <= 150.0
    });
    section.goal(
        "one webhook endpoint, % of a core",
        cost.backend.times(100.0),
        "0.5 or less",
        |share| share <= 0.5,
    );
    Ok(section)
}

async fn watch(size: Scale, quick: bool) -> anyhow::Result<Cost> {
    // The daemon knows the number of API servers after a minute.
    let (warm_up, windows) = if quick { (12, 1) } else { (75, 3) };
    let server = ApiServer::start(ApiServerOptions::default()).await?;
    let mut kubeconfig = server.kubeconfig();
    let client = client_for(&kubeconfig).await?;
    let mut servers = None;
    if size.api_servers > 0 {
        let started = apiservers::start(&client, &kubeconfig, size.api_servers, 60).await?;
        kubeconfig = started.1;
        servers = Some(started.0);
    }
    let mut webhooks = estate::build(
        &client,
        Size {
            webhooks: size.webhooks,
            paths: 1,
            services: size.services,
            endpoints: ENDPOINTS,
            host: None,
        },
    )
    .await?;
    let broken = if size.one_hangs {
        Some(one_more(&client, size.services).await?)
    } else {
        None
    };
    let daemon = Daemon::start(Path::new(RELEASE), &kubeconfig)?;
    tokio::time::sleep(Duration::from_secs(warm_up)).await;
    if let Some(broken) = &broken {
        broken.behave(Behaviour::AcceptAndHang).await?;
        // Wait until the daemon has found the fault.
        tokio::time::sleep(Duration::from_secs(15)).await;
    }
    let mut cost = Cost::default();
    for _ in 0..windows {
        window(&mut cost, &daemon, &mut webhooks, size).await?;
    }
    if let Some(servers) = servers {
        eprintln!("  a scrape has {} bytes", servers.bytes);
    }
    Ok(cost)
}

/// Adds a Service with a webhook that can be made to hang.
async fn one_more(client: &Client, service: usize) -> anyhow::Result<LabBackend> {
    let authority = Authority::new("one more")?;
    let certificate = authority.issue(&estate::server_name(service))?;
    let hosts = [IpAddr::from([127, 0, 30, 4])];
    let backends = LabBackend::start_group(&hosts, BackendRole::Validating, &certificate).await?;
    let backend = backends.into_iter().next().context("a backend")?;
    let (name, bundle) = ("hangs.example.com", authority.pem());
    estate::add(client, service, name, backend.address(), &bundle).await?;
    Ok(backend)
}

/// Measures for ten seconds. The requests for the daemon's metrics are outside the span of its CPU measurement.
async fn window(
    cost: &mut Cost,
    daemon: &Daemon,
    webhooks: &mut [Process],
    size: Scale,
) -> anyhow::Result<()> {
    let (handshakes, requests) = (daemon.handshakes().await?, asked(webhooks)?);
    let counted = Instant::now();
    let (own, served) = (daemon.process.cpu()?, cpu(webhooks)?);
    let begun = Instant::now();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let spent = seconds(begun.elapsed());
    let endpoints = (ENDPOINTS * size.services) as f64;
    cost.daemon.push((daemon.process.cpu()? - own) / spent);
    cost.backend.push((cpu(webhooks)? - served) / spent / endpoints);
    cost.memory.push(daemon.process.memory()? / 1e6);
    let spent = seconds(counted.elapsed());
    cost.requests.push((asked(webhooks)? - requests) / spent);
    cost.handshakes
        .push((daemon.handshakes().await? - handshakes) / spent);
    Ok(())
}

fn asked(webhooks: &mut [Process]) -> anyhow::Result<f64> {
    let mut sum = 0.0;
    for webhook in webhooks {
        sum += webhook.ask("")?.trim().parse::<f64>()?;
    }
    Ok(sum)
}

fn cpu(webhooks: &[Process]) -> anyhow::Result<f64> {
    webhooks.iter().map(Process::cpu).sum()
}
