//! CPU and memory of a probe: by hookwatch, by prometheus-blackbox-exporter, and of a bare handshake, on the same targets at
//! the same rate.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use hookwatch::io::observe::probe::ProbeLimits;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::contestant::{HYBRID, paced, server_name, target};
use crate::document::{Section, Table};
use crate::noise::{Samples, digits};
use crate::process::Process;
use crate::tools;

/// The contestants: name on the command line, and name in the table.
const CONTESTANTS: [(&str, &str); 6] = [
    ("bare", "bare rustls: connect, handshake, close"),
    ("handshake", "hookwatch, fresh, handshake"),
    ("http", "hookwatch, fresh, HTTP request"),
    (HYBRID, "hookwatch, fresh, HTTP request, with ML-KEM"),
    (KEPT, "hookwatch, HTTP request on a pooled connection"),
    (BLACKBOX, "prometheus-blackbox-exporter, HTTP request"),
];
const BLACKBOX: &str = "blackbox";
const KEPT: &str = "kept";

/// Number of targets, and probes per second in total.
const SIZES: [(usize, f64); 3] = [(10, 40.0), (200, 40.0), (2_000, 400.0)];

/// The processes that are compared, and the targets.
struct Arena {
    contestants: Vec<(&'static str, Process)>,
    blackbox: Option<String>,
    targets: usize,
    port: u16,
    _served: Process,
    _directory: TempDir,
}

/// Measures each contestant.
///
/// # Errors
/// When a process does not start, or a probe fails.
pub fn measure(quick: bool) -> anyhow::Result<Section> {
    let runtime = Runtime::new()?;
    let (rounds, seconds) = if quick { (3, 1.0) } else { (5, 3.0) };
    let mut section = Section::new("A probe");
    section.say(&format!(
        "All probe the same TLS 1.3 server (P-256) at the same rate, in turn for some seconds each, round after round. All agree on \
         X25519, which the exporter knows, but for one row: by default a daemon's probes offer X25519 with ML-KEM, as an API server \
         does. CPU is that of the process that probes, kernel included, which for an exporter includes being asked over HTTP; memory \
         is resident at the end. Ratios are of the same round. A daemon keeps {} connections at most, so pooled probes of more \
         targets than that are not measured.",
        ProbeLimits::default().pooled
    ));
    let mut table = Table::new(&[
        "Targets",
        "Probes a second",
        "What probes",
        "CPU a probe, ms",
        "Of a core, %",
        "Memory, MB",
        "Memory a target, kB",
    ]);
    let (mut to_blackbox, mut to_bare) = (Samples::default(), Samples::default());
    let sizes = if quick { &SIZES[1..2] } else { &SIZES[..] };
    for &(targets, rate) in sizes {
        let mut arena = Arena::new(targets)?;
        let mut spent: BTreeMap<&str, Samples> = BTreeMap::new();
        for round in 0..=rounds {
            for at in 0..arena.contestants.len() {
                let at = (at + round) % arena.contestants.len();
                // The first round probes every target once and is not counted.
                let count = if round == 0 {
                    targets
                } else {
                    (rate * seconds).ceil() as usize
                };
                let each = arena.spend(&runtime, at, count, if round == 0 { 400.0 } else { rate })?;
                if round > 0 {
                    spent.entry(arena.contestants[at].0).or_default().push(each);
                }
            }
        }
        for (name, title) in CONTESTANTS {
            let Some((_, process)) = arena.contestants.iter().find(|(known, _)| *known == name) else {
                continue;
            };
            let (each, memory) = (&spent[name], process.memory()?);
            table.row(&[
                targets.to_string(),
                digits(rate),
                title.to_owned(),
                each.times(1e3).to_string(),
                digits(each.median() * rate * 100.0),
                digits(memory / 1e6),
                digits(memory / 1e3 / targets as f64),
            ]);
        }
        to_bare.extend(spent["handshake"].over(&spent["bare"]));
        if let Some(blackbox) = spent.get(BLACKBOX) {
            to_blackbox.extend(spent["http"].over(blackbox));
        }
    }
    section.table(table);
    section.goal(
        "fresh handshake / bare handshake of the same library, over all sizes",
        to_bare,
        "1.2 or less",
        |ratio| ratio <= 1.2,
    );
    if to_blackbox.is_empty() {
        section.skip(
            "prometheus-blackbox-exporter",
            "it is not on this machine (Debian's package of that name)",
        );
    } else {
        section.goal(
            "fresh HTTP probe / the same of prometheus-blackbox-exporter, over all sizes",
            to_blackbox,
            "a third or less",
            |ratio| ratio <= 1.0 / 3.0,
        );
    }
    Ok(section)
}

impl Arena {
    fn new(targets: usize) -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        let ca = directory.path().join("ca.pem");
        let itself = std::env::current_exe()?;
        let mut served = Process::start(Command::new(&itself).arg("--serve-targets").arg(&ca))?;
        let port: u16 = served.line()?.trim().parse()?;
        let mut contestants = Vec::new();
        // With more targets than pooled connections, the pool could only keep some of the connections.
        let keeps_all = targets <= ProbeLimits::default().pooled;
        let ours = CONTESTANTS.into_iter().map(|(name, _)| name);
        for name in ours.filter(|name| *name != BLACKBOX && (*name != KEPT || keeps_all)) {
            let mut process = Process::start(
                Command::new(&itself)
                    .args(["--probe", name, "--targets", &targets.to_string()])
                    .args(["--port", &port.to_string(), "--ca"])
                    .arg(&ca),
            )?;
            process.line()?;
            contestants.push((name, process));
        }
        let blackbox = match tools::find("prometheus-blackbox-exporter") {
            Some(binary) => {
                let (process, at) = tools::start_exporter(&binary, directory.path(), &ca, &server_name())?;
                contestants.push((BLACKBOX, process));
                Some(format!("http://{at}/probe?module=webhook&target=https://"))
            }
            None => None,
        };
        Ok(Self {
            contestants,
            blackbox,
            targets,
            port,
            _served: served,
            _directory: directory,
        })
    }

    /// CPU seconds per probe, over `count` probes.
    fn spend(&mut self, runtime: &Runtime, at: usize, count: usize, rate: f64) -> anyhow::Result<f64> {
        let (name, process) = &mut self.contestants[at];
        let before = process.cpu()?;
        let failed: usize = match (*name, &self.blackbox) {
            (BLACKBOX, Some(url)) => {
                runtime.block_on(ask_exporter(url, (count, rate), self.targets, self.port))
            }
            _ => process.ask(&format!("{count} {rate}"))?.trim().parse()?,
        };
        anyhow::ensure!(failed == 0, "{name}: {failed} of {count} probes failed");
        // Include the CPU time for closing connections.
        std::thread::sleep(Duration::from_millis(50));
        Ok((process.cpu()? - before) / count as f64)
    }
}

/// Asks the exporter as Prometheus does, over persistent connections; returns how many probes failed.
async fn ask_exporter(url: &str, (count, rate): (usize, f64), targets: usize, port: u16) -> usize {
    let client = reqwest::Client::new();
    let mut next = 0;
    paced(count, rate, || {
        next += 1;
        let request = client
            .get(format!("{url}{}/", target(next % targets, port)))
            .send();
        async move {
            let answered = async { request.await?.text().await }
                .await
                .context("the exporter");
            answered.is_ok_and(|text| text.lines().any(|line| line == "probe_success 1"))
        }
    })
    .await
}
