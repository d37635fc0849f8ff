//! The campaign: measures how often the diagnosis is right, on randomly drawn incidents.
//!
//! `cargo run --release --example campaign -- --incidents 2000 --seed 1` plays 2000 incidents on a model of an API
//! server that shares no code with the diagnosis. hookwatch's core (`hookwatch::domain`) and a naive judge both diagnose
//! each incident, and the report says how often each was right. `--only INDEX -v` plays one incident and prints its
//! timeline. `trace` records every change of a verdict and every action of the breaker; `compare` shows how the traces of
//! two builds differ. `fit` prints the confidences that each rule should have. `document` prints docs/diagnosis.md.
//! `ablate`, built with `--features ablation`, measures the effect of each rule and each threshold.

#[cfg(feature = "ablation")]
mod ablate;
mod breaking;
mod casualties;
mod compare;
mod document;
mod fit;
mod incident;
mod model;
mod naive;
mod observers;
mod play;
mod random;
#[cfg(test)]
mod recordings;
mod report;
mod score;
mod story;
mod trace;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::{Parser, Subcommand, ValueEnum};

use breaking::Farthest;
use compare::CompareArguments;
use document::DocumentArguments;
use fit::FitArguments;
use incident::draw::{self, Draws};
use model::SECOND;
use play::{Manner, play};
use report::Report;
use score::{Score, score};
use trace::TraceArguments;

/// Measures how often the diagnosis is right, on randomly drawn incidents.
#[derive(Debug, Parser)]
#[command(name = "campaign", args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    mode: Option<Mode>,
    /// How many incidents
    #[arg(long, default_value_t = 1_000)]
    incidents: u64,
    /// Seed of all random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How to print the result
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Threads; 0 for as many as there are cores
    #[arg(long, default_value_t = 0)]
    jobs: usize,
    /// Simulated days without a fault in which to count false alarms
    #[arg(long, default_value_t = 0.0)]
    quiet_days: f64,
    /// What to draw incidents from
    #[arg(long, value_enum, default_value_t = Draws::Usual)]
    draws: Draws,
    /// Turn the breaker on, up to this rung
    #[arg(long, value_enum)]
    breaker: Option<Farthest>,
    /// Play only the incident with this index
    #[arg(long)]
    only: Option<u64>,
    /// Play only the quiet hour with this index
    #[arg(long, conflicts_with = "only")]
    only_quiet: Option<u64>,
    /// With --only or --only-quiet: print the evidence of each verdict as well
    #[arg(short, long)]
    verbose: bool,
}

/// Subcommands; without one, the campaign measures and prints a report.
#[derive(Debug, Subcommand)]
enum Mode {
    /// Writes every change of a verdict and every action of the breaker to a file
    Trace(TraceArguments),
    /// Shows how two traces differ; exit code 0 when they are identical, 1 when they differ, 2 when one cannot be read
    Compare(CompareArguments),
    /// Prints the two confidences that each rule should have in the table, from how often it was right
    Fit(FitArguments),
    /// Prints docs/diagnosis.md, with the figures of a report and of an ablation
    Document(DocumentArguments),
    /// Measures the effect of each rule and each chosen threshold by removing or changing it
    #[cfg(feature = "ablation")]
    Ablate(ablate::AblateArguments),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

/// Simulated length of one quiet incident: one hour.
const QUIET: u64 = 3_600 * SECOND;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    #[cfg(feature = "ablation")]
    ablate::change_as_told();
    let done = match &arguments.mode {
        Some(Mode::Trace(arguments)) => trace::write(arguments).map(|()| ExitCode::SUCCESS),
        Some(Mode::Compare(arguments)) => {
            compare::print(arguments).map(|same| ExitCode::from(u8::from(!same)))
        }
        Some(Mode::Fit(arguments)) => {
            print!("{}", fit::text(arguments));
            Ok(ExitCode::SUCCESS)
        }
        Some(Mode::Document(arguments)) => document::text(arguments).map(|text| {
            print!("{text}");
            ExitCode::SUCCESS
        }),
        #[cfg(feature = "ablation")]
        Some(Mode::Ablate(arguments)) => ablate::print(arguments).map(|()| ExitCode::SUCCESS),
        None => {
            measure(&arguments);
            Ok(ExitCode::SUCCESS)
        }
    };
    done.unwrap_or_else(|error| {
        eprintln!("{error:#}");
        ExitCode::from(2)
    })
}

fn measure(arguments: &Arguments) {
    let manner = Manner {
        breaker: arguments.breaker,
        ..Manner::default()
    };
    let one = match (arguments.only, arguments.only_quiet) {
        (Some(index), _) => Some((index, arguments.draws.incident(arguments.seed, index))),
        (_, Some(index)) => Some((index, draw::quiet(arguments.seed, index, QUIET))),
        _ => None,
    };
    if let Some((index, incident)) = one {
        let in_full = arguments.verbose;
        let played = play(&incident, Manner { in_full, ..manner });
        let score = score(index, &incident, &played);
        print!("{}", story::tell(&incident, &played, &score, arguments.verbose));
        return;
    }
    let began = Instant::now();
    let hours = hours(arguments.quiet_days);
    let seed = (arguments.draws, arguments.seed);
    let scores = scores(arguments.jobs, arguments.incidents, seed, manner);
    let quiet = run(arguments.jobs, hours, "quiet hours", |index| {
        let incident = draw::quiet(arguments.seed, index, QUIET);
        score(index, &incident, &play(&incident, manner))
    });
    let report = Report::of(&scores, &quiet, arguments.seed);
    match arguments.output {
        Output::Text => print!("{report}"),
        Output::Json => match serde_json::to_string_pretty(&report) {
            Ok(json) => println!("{json}"),
            Err(error) => eprintln!("the report cannot be written: {error}"),
        },
    }
    eprintln!("took {:.0} s", began.elapsed().as_secs_f64());
}

/// Plays and scores the incidents from index 0 to `incidents` - 1.
fn scores(jobs: usize, incidents: u64, (draws, seed): (Draws, u64), manner: Manner) -> Vec<Score> {
    run(jobs, incidents, "incidents", |index| {
        let incident = draws.incident(seed, index);
        score(index, &incident, &play(&incident, manner))
    })
}

/// Number of quiet incidents (of one hour each) in this many days.
fn hours(days: f64) -> u64 {
    (days * 24.0).round() as u64
}

/// Runs `one` for each index below `count` on `jobs` threads (0: one per core). Returns the results in order of index;
/// those of a thread that panicked are missing.
fn run<T: Send>(jobs: usize, count: u64, what: &str, one: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let threads = match jobs {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        jobs => jobs,
    };
    let next = AtomicU64::new(0);
    let mut results: Vec<(u64, T)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let mut results = Vec::new();
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        if index >= count {
                            return results;
                        }
                        results.push((index, one(index)));
                        progress(index + 1, count, what);
                    }
                })
            })
            .collect();
        let results = workers.into_iter().filter_map(|worker| worker.join().ok());
        results.flatten().collect()
    });
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Prints progress to stderr: one line that is rewritten on a terminal, otherwise a line for each tenth of the work.
fn progress(done: u64, of: u64, what: &str) {
    let terminal = std::io::stderr().is_terminal();
    if terminal {
        let end = if done == of { "\n" } else { "" };
        eprint!("\r{done} of {of} {what}{end}");
    } else if done * 10 / of != (done - 1) * 10 / of {
        eprintln!("{done} of {of} {what}");
    }
}
