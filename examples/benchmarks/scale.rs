//! What a daemon costs that watches many webhooks, and what being watched costs them.

use std::path::Path;
use std::time::Duration;

use hookwatch::lab::api::{ApiServer, ApiServerOptions};
use hookwatch::lab::cluster::client_for;
use tokio::runtime::Runtime;

use crate::apiservers;
use crate::document::{Section, Table};
use crate::estate::{self, Daemon, RELEASE, Size};
use crate::noise::{Samples, digits};
use crate::process::Process;

/// Webhooks, Services of three endpoints each, and API servers with 60 MB of metrics instead of the lab's own.
#[derive(Clone, Copy)]
struct Scale {
    webhooks: usize,
    services: usize,
    api_servers: u8,
}

const fn scale(webhooks: usize, services: usize, api_servers: u8) -> Scale {
    Scale {
        webhooks,
        services,
        api_servers,
    }
}

const CURVE: [Scale; 5] = [
    scale(10, 5, 0),
    scale(100, 20, 0),
    scale(1_000, 40, 0),
    scale(5_000, 40, 0),
    GOAL,
];
const GOAL: Scale = scale(2_000, 40, 5);
const QUICK: [Scale; 1] = [scale(1_000, 40, 0)];

/// What was measured of one.
#[derive(Default)]
struct Cost {
    daemon: Samples,
    memory: f64,
    /// Of one backend that a webhook's process serves.
    backend: Samples,
    handshakes: f64,
    requests: f64,
}

/// Measures.
///
/// # Errors
/// When the daemon is not there or does not start.
pub fn measure(quick: bool) -> anyhow::Result<Section> {
    let runtime = Runtime::new()?;
    let mut section = Section::new("A daemon that watches many webhooks");
    section.say(
        "`hookwatch run` with default settings beside the embedded control plane, in quiet: its CPU and memory, and that of the \
         webhooks. Three processes serve one endpoint of each Service. Of those the CPU is per endpoint: what a webhook with a process \
         of its own would spend. Spread over windows of ten seconds.",
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
            size.webhooks.to_string(),
            size.services.to_string(),
            size.api_servers.to_string(),
            cost.daemon.times(100.0).to_string(),
            digits(cost.memory / 1e6),
            digits(cost.handshakes),
            digits(cost.requests),
            cost.backend.times(100.0).to_string(),
        ]);
        if size.api_servers > 0 {
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
    let memory = std::iter::once(cost.memory / 1e6).collect();
    section.goal("its memory, MB", memory, "150 or less", |memory| memory <= 150.0);
    section.goal(
        "one webhook endpoint, % of a core",
        cost.backend.times(100.0),
        "0.5 or less",
        |share| share <= 0.5,
    );
    Ok(section)
}

async fn watch(size: Scale, quick: bool) -> anyhow::Result<Cost> {
    const ENDPOINTS: usize = 3;
    let (warm_up, windows) = if quick { (12, 1) } else { (20, 3) };
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
    let daemon = Daemon::start(Path::new(RELEASE), &kubeconfig)?;
    tokio::time::sleep(Duration::from_secs(warm_up)).await;
    let (mut cost, mut spent) = (Cost::default(), Vec::new());
    let mut handshakes = daemon.handshakes().await?;
    let mut before = asked(&mut webhooks)?;
    spent.push(daemon.process.cpu()?);
    let mut served = cpu(&webhooks)?;
    for _ in 0..windows {
        tokio::time::sleep(Duration::from_secs(10)).await;
        spent.push(daemon.process.cpu()?);
        let now = cpu(&webhooks)?;
        let endpoints = (ENDPOINTS * size.services) as f64;
        cost.backend.push((now - served) / 10.0 / endpoints);
        served = now;
    }
    for pair in spent.windows(2) {
        cost.daemon.push((pair[1] - pair[0]) / 10.0);
    }
    let seconds = 10.0 * f64::from(windows);
    handshakes = daemon.handshakes().await? - handshakes;
    before = asked(&mut webhooks)? - before;
    (cost.handshakes, cost.requests) = (handshakes / seconds, before / seconds);
    cost.memory = daemon.process.memory()?;
    if let Some(servers) = servers {
        eprintln!("  a scrape has {} bytes", servers.bytes);
    }
    Ok(cost)
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
