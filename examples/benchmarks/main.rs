//! Measures what hookwatch costs, compared with other tools and with lower bounds, and prints docs/benchmarks.md.
//!
//! `cargo run --release --example benchmarks -- [--quick] [--only exposition] [--into docs/benchmarks.md]`
//!
//! Nothing else should run on the machine, and `cargo build --release` has to come first. For tools that are not installed
//! (valgrind, promtool, prometheus-blackbox-exporter), the document says that they are missing.

mod apiservers;
mod bad_input;
mod contestant;
mod document;
#[path = "../watching/estate.rs"]
mod estate;
mod exposition;
mod found;
mod heap;
#[path = "../../benches/instructions/src/hooks.rs"]
mod hooks;
mod load;
#[path = "../../tests/support/metric_family.rs"]
mod metric_family;
mod noise;
mod noticed;
mod peers;
mod probe;
#[path = "../watching/process.rs"]
mod process;
mod scale;
mod start;
mod stored;
#[path = "../survival/table.rs"]
#[allow(dead_code, reason = "its document is the other example's")]
mod survival;
mod tools;
mod watched;

use std::path::PathBuf;
use std::process::Command;

use anyhow::Context;
use clap::Parser;
use clap::builder::PossibleValuesParser;
use tokio::runtime::Runtime;

use document::Section;

#[derive(Debug, Parser)]
struct Arguments {
    /// Fewer measurements: less than two minutes in all, on two cores
    #[arg(long)]
    quick: bool,
    /// Measure only this; can be repeated
    #[arg(long, value_parser = PossibleValuesParser::new(ALL.map(|(name, _)| name)))]
    only: Vec<String>,
    /// Where to write the document; it is printed otherwise
    #[arg(long)]
    into: Option<PathBuf>,
    #[command(flatten)]
    part: Part,
}

/// Internal options for the child processes that are measured.
#[derive(Debug, clap::Args)]
struct Part {
    /// Read metrics of this format
    #[arg(long, hide = true)]
    read: Option<String>,
    /// Serve targets of probes, with the authority written to this file
    #[arg(long, hide = true)]
    serve_targets: Option<PathBuf>,
    /// Probe in this way
    #[arg(long, hide = true, requires = "ca")]
    probe: Option<String>,
    #[arg(long, hide = true)]
    ca: Option<PathBuf>,
    #[arg(long, hide = true, default_value_t = 1)]
    targets: usize,
    #[arg(long, hide = true, default_value_t = 443)]
    port: u16,
    /// Serve metrics as API servers do, with a body of this many megabytes
    #[arg(long, hide = true)]
    serve_metrics: Option<usize>,
    /// Serve one endpoint of each Service, these
    #[arg(long, hide = true)]
    serve: Option<usize>,
    #[arg(long, hide = true, default_value_t = 1)]
    services: usize,
}

impl Part {
    /// Runs as a child process if the options say so; returns whether they did.
    fn play(&self) -> anyhow::Result<bool> {
        if let Some(format) = &self.read {
            heap::child(format)?;
        } else if let Some(authority_into) = &self.serve_targets {
            Runtime::new()?.block_on(contestant::serve(authority_into))?;
        } else if let (Some(way), Some(ca)) = (&self.probe, &self.ca) {
            let probing = contestant::run(way.clone(), ca.clone(), self.targets, self.port);
            // On a worker thread, as the daemon starts its probes.
            Runtime::new()?.block_on(async { tokio::spawn(probing).await? })?;
        } else if let Some(megabytes) = self.serve_metrics {
            Runtime::new()?.block_on(apiservers::serve(megabytes))?;
        } else if let Some(process) = self.serve {
            Runtime::new()?.block_on(estate::serve(process, self.services, None))?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }
}

/// Measures one section; `true` for a quick run.
type Measure = fn(bool) -> anyhow::Result<Section>;

const ALL: [(&str, Measure); 9] = [
    ("exposition", exposition::measure),
    ("probe", probe::measure),
    ("scale", scale::measure),
    ("found", found::measure),
    ("noticed", noticed::measure),
    ("bad-input", bad_input::measure),
    ("start", start::measure),
    ("load", load::measure),
    ("stored", stored::measure),
];

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    // Fails only if a provider is already installed.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    if arguments.part.play()? {
        return Ok(());
    }
    let mut sections = Vec::new();
    for (name, measure) in ALL {
        if arguments.only.is_empty() || arguments.only.iter().any(|only| only == name) {
            eprintln!("measuring: {name}");
            sections.push(measure(arguments.quick).unwrap_or_else(|error| failed(name, &error)));
            // Written after each section, so that an interrupted run keeps its results.
            if let Some(path) = &arguments.into {
                let text = document::document(&head(arguments.quick), &sections);
                std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
            }
        }
    }
    if arguments.into.is_none() {
        print!("{}", document::document(&head(arguments.quick), &sections));
    }
    Ok(())
}

/// A section that says why the measurement failed; the others are still measured.
fn failed(name: &str, error: &anyhow::Error) -> Section {
    eprintln!("{name} could not be measured: {error:#}");
    let mut section = Section::new(name);
    section.skip("All of it", &format!("{error:#}"));
    section
}

fn head(quick: bool) -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default().to_owned();
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name\t: "))
        .unwrap_or("unknown");
    let said = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let day = said("date", &["-u", "+%Y-%m-%d"]).unwrap_or_default();
    let rustc = said("rustc", &["--version"]).unwrap_or_default();
    let length = if quick { "quick" } else { "full" };
    format!(
        "# Benchmarks\n\n\
         <!-- Written by examples/benchmarks. Do not edit. -->\n\n\
         What hookwatch costs, beside what others cost for the same work, and beside the limit. All of it comes from one run of\n\n    \
         cargo build --release && cargo run --release --example benchmarks -- --into docs/benchmarks.md\n\n\
         except what the last section names. A figure is a median; in brackets are the quartiles. `--quick` measures less of\n\
         everything.\n\n\
         This was a {length} run of {day}, on {cores} cores of {cpu},\n{rustc}; load average after it {load}.\n"
    )
}
