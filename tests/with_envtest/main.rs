//! Everything that needs a real etcd and kube-apiserver.
//!
//! One test after the other: two API servers at once would starve each other on a small machine, and starvation is one of
//! the things that are diagnosed here. Without the binaries nothing is run, and the last lines say what was not.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking, and helpers of an integration test count as code"
)]

mod audited;
mod balanced;
#[allow(dead_code, reason = "the lab in this process is tried in more ways")]
#[path = "../support/between.rs"]
mod between;
mod bypass;
#[path = "../support/bypassing.rs"]
mod bypassing;
#[path = "../support/fidelity/all.rs"]
mod cases;
mod credentials;
#[path = "../support/cutting.rs"]
mod cutting;
#[path = "../support/daemon.rs"]
mod daemon;
mod documents;
#[path = "../support/engines.rs"]
mod engines;
mod fidelity;
#[allow(dead_code, reason = "it serves others too")]
#[path = "../support/held.rs"]
mod held;
#[allow(dead_code, reason = "it serves others too")]
#[path = "../support/chart.rs"]
mod helm;
mod installed;
mod kinds;
mod leaders;
mod matcher;
mod needs;
#[allow(dead_code, reason = "it serves others too")]
#[path = "../../src/domain/act/bypass/tests/objects.rs"]
mod objects;
mod other_writers;
#[path = "../support/outage.rs"]
mod outage;
mod played;
#[allow(dead_code, reason = "the fence is explored in a test of its own")]
#[path = "../../src/domain/tests/fence/policy.rs"]
mod policy;
mod privileges;
#[allow(dead_code, reason = "it serves others too")]
#[path = "../support/programs.rs"]
mod programs;
mod replicas;
mod runbooks;
mod running;
mod shielded;
#[path = "../support/shielding.rs"]
mod shielding;
mod spared;
#[path = "../support/runbooks.rs"]
mod typed;
mod versions;
mod witness;
#[allow(dead_code, reason = "the fence is explored in a test of its own")]
#[path = "../../src/domain/tests/fence/world.rs"]
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

// What is shared with the tests of the domain names it so.
use hookwatch::domain;
use hookwatch::lab::envtest::binaries;

/// How a test that did not panic ended.
enum Outcome {
    Held,
    Skipped(String),
}

/// A test under the name it is listed by.
type Named = (String, Box<dyn Fn() -> Outcome>);

/// What a test runner of the usual kind understands, as far as it is of use here: names (or parts of them), `--exact`,
/// `--skip NAME` and `--list`. Other flags change nothing.
fn main() -> ExitCode {
    let (mut filters, mut left_out, mut exact, mut list) = (Vec::new(), Vec::new(), false, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--exact" => exact = true,
            "--list" => list = true,
            "--skip" => left_out.extend(arguments.next()),
            "--test-threads" | "--format" | "--color" | "--logfile" | "-Z" => drop(arguments.next()),
            flag if flag.starts_with('-') => {}
            _ => filters.push(argument),
        }
    }
    let fits = |name: &str, filter: &String| {
        if exact {
            name == filter
        } else {
            name.contains(filter.as_str())
        }
    };
    let chosen = tests().into_iter().filter(|(name, _)| {
        (filters.is_empty() || filters.iter().any(|filter| fits(name, filter)))
            && !left_out.iter().any(|filter| fits(name, filter))
    });
    if list {
        chosen.for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    run(chosen.collect())
}

/// Why nothing is to be played, if so: CI has neither the binaries nor the minutes unless somebody provides both
/// and says so.
fn not_asked_for() -> Option<String> {
    let is_set = |name: &str| std::env::var_os(name).is_some();
    (is_set("CI") && !is_set("HOOKWATCH_ENVTEST"))
        .then(|| "in CI only where HOOKWATCH_ENVTEST is set".to_owned())
}

fn run(tests: Vec<Named>) -> ExitCode {
    println!("\nrunning {} tests", tests.len());
    let (begin, mut held) = (Instant::now(), 0_usize);
    let minor = needs::minor();
    let (mut failed, mut skipped): (Vec<String>, Vec<(String, String)>) = (Vec::new(), Vec::new());
    for (name, test) in tests {
        let why_not = || not_asked_for().or_else(|| needs::lacked(&name, minor));
        let play = || why_not().map_or_else(&*test, Outcome::Skipped);
        match catch_unwind(AssertUnwindSafe(play)) {
            Ok(Outcome::Held) => {
                println!("test {name} ... ok");
                held += 1;
            }
            Ok(Outcome::Skipped(why)) => {
                println!("test {name} ... SKIPPED: {why}");
                skipped.push((name, why));
            }
            Err(_) => {
                println!("test {name} ... FAILED");
                failed.push(name);
            }
        }
    }
    let result = if failed.is_empty() { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {result}. {held} passed; {} failed; {} SKIPPED; finished in {:.2}s",
        failed.len(),
        skipped.len(),
        begin.elapsed().as_secs_f64()
    );
    for name in &failed {
        println!("  FAILED {name}");
    }
    for (name, why) in &skipped {
        println!("  SKIPPED {name}: {why}");
    }
    println!();
    ExitCode::from(u8::from(!failed.is_empty()))
}

/// A test under its name, which is not played where the binaries are missing.
fn named(name: &str, test: impl Fn() -> Outcome + 'static) -> Named {
    let test = move || match binaries::find() {
        Ok(_) => test(),
        Err(missing) => Outcome::Skipped(missing.to_string()),
    };
    (name.to_owned(), Box::new(test))
}

fn tests() -> Vec<Named> {
    let all = [
        played::tests(),
        audited::tests(),
        balanced::tests(),
        bypass::tests(),
        credentials::tests(),
        fidelity::tests(),
        installed::tests(),
        other_writers::tests(),
        kinds::tests(),
        leaders::tests(),
        matcher::tests(),
        privileges::tests(),
        replicas::tests(),
        runbooks::tests(),
        running::tests(),
        shielded::tests(),
        spared::tests(),
        versions::tests(),
        witness::tests(),
    ];
    all.into_iter().flatten().collect()
}
