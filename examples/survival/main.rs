//! Plays outages repeatedly and prints which parts of the control plane survive them, as docs/survival.md.
//!
//! `cargo run --release --example survival -- --runs 10 --results FILE [--control-plane envtest] [SCENARIO...]`
//!
//! Every run is a separate process, `hookwatch demo --lasting`, and one line of the results file. Runs whose results are
//! already in the file are not repeated. Nothing else should run on the machine: the figures are seconds.

mod table;

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use serde_json::Value;

#[derive(Debug, Parser)]
struct Arguments {
    /// Scenarios to play; all of them if none is named
    scenarios: Vec<String>,
    /// How often to play each with hookwatch
    #[arg(long, default_value_t = 10)]
    runs: usize,
    /// How often to play each without hookwatch
    #[arg(long, default_value_t = 2)]
    without: usize,
    /// The control plane to play on: envtest or embedded
    #[arg(long, default_value = "envtest")]
    control_plane: String,
    /// File with the results, one run per line
    #[arg(long)]
    results: PathBuf,
    /// Only print the table of the existing results
    #[arg(long)]
    print: bool,
    /// The hookwatch binary
    #[arg(long, default_value = "target/release/hookwatch")]
    hookwatch: PathBuf,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let shapes: Vec<_> = table::SHAPES
        .into_iter()
        .filter(|(name, _)| arguments.scenarios.is_empty() || arguments.scenarios.iter().any(|it| it == name))
        .collect();
    let mut results = read(&arguments.results)?;
    if !arguments.print {
        // Round by round, so that an interrupted run has results of every scenario.
        for round in 0..arguments.runs.max(arguments.without) {
            for (name, seconds) in &shapes {
                for (breaker, wanted) in [(true, arguments.runs), (false, arguments.without)] {
                    let there = results.get(*name).map_or(0, |runs| count(runs, breaker));
                    if round < wanted && there <= round {
                        let result = play(&arguments, name, Duration::from_secs(*seconds), breaker)?;
                        eprintln!("{}", table::line(&result));
                        results.entry((*name).to_owned()).or_default().push(result);
                    }
                }
            }
        }
    }
    print!("{}", table::document(&results));
    Ok(ExitCode::SUCCESS)
}

fn count(runs: &[Value], breaker: bool) -> usize {
    runs.iter().filter(|run| run["with_breaker"] == breaker).count()
}

/// The existing results by scenario; empty when there is no file.
fn read(path: &Path) -> anyhow::Result<BTreeMap<String, Vec<Value>>> {
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeMap::new()),
        read => read.with_context(|| format!("reading {}", path.display()))?,
    };
    table::results(&text).with_context(|| format!("in {}", path.display()))
}

/// Plays a scenario once and appends its result to the file.
fn play(arguments: &Arguments, name: &str, lasting: Duration, breaker: bool) -> anyhow::Result<Value> {
    let mut command = Command::new(&arguments.hookwatch);
    command
        .args([
            "demo",
            "--scenario",
            name,
            "--control-plane",
            &arguments.control_plane,
        ])
        .args(["--lasting", &format!("{}s", lasting.as_secs())])
        .args(breaker.then_some("--auto-break"))
        .stdin(Stdio::null());
    let output = command
        .output()
        .with_context(|| format!("starting {}", arguments.hookwatch.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{name}: {}: {said}", output.status);
    let mut result: Value =
        serde_json::from_slice(&output.stdout).with_context(|| format!("reading the result of {name}"))?;
    result["played_on"] = jiff::Zoned::now().date().to_string().into();
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&arguments.results)?;
    writeln!(file, "{result}").with_context(|| format!("writing to {}", arguments.results.display()))?;
    Ok(result)
}
