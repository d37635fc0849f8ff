//! Counts the instructions of the hot paths and compares them with `baseline.tsv`.
//!
//! `cargo run --release -p hookwatch-instructions -- [--bless] [PATH...]`
//!
//! An instruction count does not depend on the load of the machine, so a change of a few percent means that the code changed.
//! Valgrind's cachegrind counts two runs that repeat the work a different number of times. Their difference is the work alone:
//! preparation cancels out, and no debug symbols are needed.

mod hooks;
mod paths;
mod quiet;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::Context;
use clap::Parser;

use paths::{ALL, HotPath};

/// Change from the baseline, as a fraction of it, that counts as slower or faster. Random hash map keys and the addresses that the
/// allocator picks move a count by less than 1 %.
const MARGIN: f64 = 0.03;

#[derive(Debug, Parser)]
struct Arguments {
    /// The paths to count; all unless named
    paths: Vec<String>,
    /// Store the counts as the new baseline
    #[arg(long)]
    bless: bool,
    /// Repeat the work of the path this many times, and count nothing
    #[arg(long, hide = true)]
    times: Option<usize>,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let wanted =
        |path: &&HotPath| arguments.paths.is_empty() || arguments.paths.iter().any(|name| name == path.name);
    let chosen: Vec<&HotPath> = ALL.iter().filter(wanted).collect();
    anyhow::ensure!(!chosen.is_empty(), "no hot path is called {:?}", arguments.paths);
    if let Some(times) = arguments.times {
        for path in chosen {
            (path.run)(times)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    if cfg!(not(target_arch = "x86_64")) {
        eprintln!("SKIPPED: the baseline is of x86-64, so no instructions are counted.");
        return Ok(ExitCode::SUCCESS);
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!(
            "SKIPPED: no valgrind on this machine, so no instructions are counted. It is a package of that name."
        );
        return Ok(ExitCode::SUCCESS);
    }
    let mut baseline = read()?;
    let mut slower = Vec::new();
    for path in chosen {
        let counted = count(path)?;
        let before = baseline.insert(path.name.to_owned(), counted);
        let change = before.map(|before| counted as f64 / before as f64 - 1.0);
        println!("{}", line(path, counted, change));
        if change.is_none_or(|change| change > MARGIN) {
            slower.push(path.name);
        }
    }
    if arguments.bless {
        std::fs::write(file(), text(&baseline)).with_context(|| format!("writing {}", file().display()))?;
    } else if !slower.is_empty() {
        eprintln!(
            "More instructions than {} allows (by more than {:.0} %), or none stored: {}. Find out why; if it is worth it, or \
             the compiler is another one, accept it with\n\n    cargo run --release -p hookwatch-instructions -- --bless {}\n",
            file().display(),
            MARGIN * 100.0,
            slower.join(", "),
            slower.join(" ")
        );
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

fn line(path: &HotPath, counted: u64, change: Option<f64>) -> String {
    let said = match change {
        None => "not in the baseline".to_owned(),
        Some(change) if change > MARGIN => format!("{:+.1} %: SLOWER", change * 100.0),
        Some(change) if change < -MARGIN => {
            format!("{:+.1} %: faster; --bless keeps it so", change * 100.0)
        }
        Some(change) => format!("{:+.1} %", change * 100.0),
    };
    format!(
        "{:<20} {counted:>12} instructions, {said} ({})",
        path.name, path.what
    )
}

/// Instructions of one repetition of the work.
fn count(path: &HotPath) -> anyhow::Result<u64> {
    let [fewer, more] = path.times;
    let (low, high) = (instructions(path.name, fewer)?, instructions(path.name, more)?);
    Ok(high.saturating_sub(low) / (more - fewer) as u64)
}

fn instructions(name: &str, times: usize) -> anyhow::Result<u64> {
    let output = Command::new("valgrind")
        .args([
            "--tool=cachegrind",
            "--cache-sim=no",
            "--cachegrind-out-file=/dev/null",
        ])
        .arg(std::env::current_exe()?)
        .args([name, "--times", &times.to_string()])
        .output()
        .context("starting valgrind")?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{name} under valgrind: {said}");
    let refs = said
        .lines()
        .find_map(|line| line.split_once("refs:"))
        .map(|(_, count)| count);
    let digits: String = refs
        .unwrap_or_default()
        .chars()
        .filter(char::is_ascii_digit)
        .collect();
    digits
        .parse()
        .with_context(|| format!("no count of instructions in: {said}"))
}

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("baseline.tsv")
}

/// Reads the baseline: a path's name, a tab and its count on each line, and comments after `#`.
fn read() -> anyhow::Result<BTreeMap<String, u64>> {
    let path = file();
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, count) = line
                .split_once('\t')
                .with_context(|| format!("{line:?} has no tab"))?;
            Ok((name.to_owned(), count.parse()?))
        })
        .collect()
}

fn text(baseline: &BTreeMap<String, u64>) -> String {
    let mut text = "# Instructions of the hot paths on x86-64, written by --bless.\n".to_owned();
    for (name, count) in baseline {
        // Writing to a String does not fail.
        let _ = writeln!(text, "{name}\t{count}");
    }
    text
}
