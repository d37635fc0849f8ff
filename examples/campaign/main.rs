//! The campaign: how often the diagnosis is right, measured on incidents drawn at random.
//!
//! `cargo run --release --example campaign -- --incidents 2000 --seed 1` plays as many incidents on a model of an
//! API server that shares no code with the diagnosis, lets the pure core and a naive judge look at each, and reports
//! how right both were. `--only INDEX -v` plays one of them and tells its story. `trace` writes down every change of a
//! verdict and every act of the breaker; `compare` tells in what two builds differ by their traces. `fit` prints how
//! right each rule is: what its confidences should be. `document` prints docs/diagnosis.md. Built with
//! `--features ablation`, `ablate` tells what each rule and each threshold of the diagnosis is worth.

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

/// Measures how often the diagnosis is right, on incidents drawn at random.
#[derive(Debug, Parser)]
#[command(name = "campaign", args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    mode: Option<Mode>,
    /// How many incidents
    #[arg(long, default_value_t = 1_000)]
    incidents: u64,
    /// What all chance comes from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How to print the result
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Threads; 0 for as many as there are cores
    #[arg(long, default_value_t = 0)]
    jobs: usize,
    /// Quiet days to listen for false alarms in
    #[arg(long, default_value_t = 0.0)]
    quiet_days: f64,
    /// What to draw incidents from
    #[arg(long, value_enum, default_value_t = Draws::Usual)]
    draws: Draws,
    /// With the breaker on, and how far it may go
    #[arg(long, value_enum)]
    breaker: Option<Farthest>,
    /// Play this incident alone
    #[arg(long)]
    only: Option<u64>,
    /// Play this quiet hour alone
    #[arg(long, conflicts_with = "only")]
    only_quiet: Option<u64>,
    /// Tell the story of the one incident, with its evidence
    #[arg(short, long)]
    verbose: bool,
}

/// What to do instead of measuring.
#[derive(Debug, Subcommand)]
enum Mode {
    /// Writes every change of a verdict and every act of the breaker to a file
    Trace(TraceArguments),
    /// Tells in what two traces differ; exit code 0 when in nothing, 1 when in something, 2 when one cannot be read
    Compare(CompareArguments),
    /// Prints how right each rule is: what to write into the table as its two confidences
    Fit(FitArguments),
    /// Prints docs/diagnosis.md, with the figures of a report
    Document(DocumentArguments),
    /// Tells what each rule and each chosen threshold is worth: what is said without it, or with another
    #[cfg(feature = "ablation")]
    Ablate(ablate::AblateArguments),
}

/// How to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

/// The length of one stretch of quiet.
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

/// Plays so many incidents, and reckons up each.
fn scores(jobs: usize, incidents: u64, (draws, seed): (Draws, u64), manner: Manner) -> Vec<Score> {
    run(jobs, incidents, "incidents", |index| {
        let incident = draws.incident(seed, index);
        score(index, &incident, &play(&incident, manner))
    })
}

/// The stretches of quiet in so many days.
fn hours(days: f64) -> u64 {
    (days * 24.0).round() as u64
}

/// Does `count` of them on `jobs` threads, or as many as there are cores when that is 0; the results are in order.
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

/// A line that is written over on a terminal, and a line every tenth elsewhere.
fn progress(done: u64, of: u64, what: &str) {
    let terminal = std::io::stderr().is_terminal();
    if terminal {
        let end = if done == of { "\n" } else { "" };
        eprint!("\r{done} of {of} {what}{end}");
    } else if done * 10 / of != (done - 1) * 10 / of {
        eprintln!("{done} of {of} {what}");
    }
}
