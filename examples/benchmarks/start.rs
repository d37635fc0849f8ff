//! How soon a daemon judges after its start, its memory and size on disk, and how soon it reacts to a fault.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use hookwatch::lab::api::{ApiServer, ApiServerOptions};
use hookwatch::lab::cluster::client_for;
use tokio::runtime::Runtime;

use crate::document::{Section, Table};
use crate::estate::{self, Daemon, RELEASE, Size};
use crate::noise::{Samples, digits, seconds};
use crate::process::Process;

/// Longest wait for the first assessment.
const PATIENCE: Duration = Duration::from_secs(30);

/// Number of windows in which an idle daemon is measured.
const WINDOWS: usize = 3;

/// Measures several starts, and one idle daemon.
///
/// # Errors
/// When the daemon's binary is missing or does not start.
pub fn measure(quick: bool) -> anyhow::Result<Section> {
    let runtime = Runtime::new()?;
    // The daemon knows after a minute that there is only one API server.
    let (runs, settle, window) = if quick { (3, 5, 2) } else { (9, 75, 20) };
    let [mut ready, mut judged, mut share, mut memory] = <[Samples; 4]>::default();
    runtime.block_on(async {
        for run in 0..runs {
            let started = start(&mut ready, &mut judged).await?;
            if run == 0 {
                tokio::time::sleep(Duration::from_secs(settle)).await;
                let daemon = &started.daemon.process;
                for _ in 0..WINDOWS {
                    let (begun, before) = (Instant::now(), daemon.cpu()?);
                    tokio::time::sleep(Duration::from_secs(window)).await;
                    share.push((daemon.cpu()? - before) / seconds(begun.elapsed()) * 100.0);
                    memory.push(daemon.memory()? / 1e6);
                }
            }
        }
        anyhow::Ok(())
    })?;
    let mut section = Section::new("A start, and idling");
    section.say("`hookwatch run` beside the embedded control plane with three webhooks on one Service with two endpoints.");
    let mut table = Table::new(&["What", "Measured"]);
    let binary = std::fs::metadata(RELEASE).with_context(|| format!("looking at {RELEASE}"))?;
    for (what, found) in [
        (
            "Start to the first assessment, ms".to_owned(),
            ready.times(1e3).to_string(),
        ),
        (
            "Start to all webhooks judged healthy, ms".to_owned(),
            judged.times(1e3).to_string(),
        ),
        (
            format!(
                "CPU while idle, % of a core, in {WINDOWS} windows of {window} s, {settle} s after the start"
            ),
            share.to_string(),
        ),
        (
            "Resident memory at the end of each window, MB".to_owned(),
            memory.to_string(),
        ),
        (
            "Binary of `cargo build --release`, MB".to_owned(),
            digits(binary.len() as f64 / 1e6),
        ),
    ] {
        table.row(&[what, found]);
    }
    section.table(table);
    if quick {
        section.skip("Goals of idling", "a daemon idles only after a minute");
        return Ok(section);
    }
    section.goal(
        "CPU while idle, % of a core",
        share,
        "0.45 or less, half of 0.9",
        |share| share <= 0.45,
    );
    section.goal(
        "resident memory, MB",
        memory,
        "15 or less, half of 30",
        |memory| memory <= 15.0,
    );
    Ok(section)
}

struct Started {
    daemon: Daemon,
    _server: ApiServer,
    _webhooks: Vec<Process>,
}

async fn start(ready: &mut Samples, judged: &mut Samples) -> anyhow::Result<Started> {
    let server = ApiServer::start(ApiServerOptions::default()).await?;
    let client = client_for(&server.kubeconfig()).await?;
    let size = Size {
        webhooks: 3,
        paths: 1,
        services: 1,
        endpoints: 2,
        host: None,
    };
    let webhooks = estate::build(&client, size).await?;
    let begun = Instant::now();
    let daemon = Daemon::start(Path::new(RELEASE), &server.kubeconfig())?;
    let mut first = None;
    loop {
        let seen = estate::assessment(daemon.address).await;
        if seen.is_some() && first.is_none() {
            first = Some(begun.elapsed());
        }
        let hooks = seen.as_ref().and_then(|seen| seen["hooks"].as_array());
        let healthy = hooks.is_some_and(|hooks| {
            hooks.len() == size.webhooks && hooks.iter().all(|hook| hook["health"] == "Healthy")
        });
        if healthy {
            break;
        }
        anyhow::ensure!(
            begun.elapsed() < PATIENCE,
            "not all webhooks were judged healthy: {seen:?}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    ready.push(seconds(first.unwrap_or_default()));
    judged.push(seconds(begun.elapsed()));
    Ok(Started {
        daemon,
        _server: server,
        _webhooks: webhooks,
    })
}
