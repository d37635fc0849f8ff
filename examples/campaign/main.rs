//! The campaign: how often the diagnosis is right, measured on incidents drawn at random.
//!
//! `cargo run --release --example campaign -- --incidents 2000 --seed 1` plays as many incidents on a model of an
//! API server that shares no code with the diagnosis, lets the pure core and a naive judge look at each, and reports
//! how right both were. `--only INDEX -v` plays one of them and tells its story.

mod breaking;
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

use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::{Parser, ValueEnum};

use breaking::Farthest;
use incident::draw;
use model::SECOND;
use play::{Manner, play};
use report::Report;
use score::{Score, score};

/// Measures how often the diagnosis is right, on incidents drawn at random.
#[derive(Debug, Parser)]
#[command(name = "campaign")]
struct Arguments {
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

/// How to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

/// The length of one stretch of quiet.
const QUIET: u64 = 3_600 * SECOND;

fn main() {
    let arguments = Arguments::parse();
    let manner = Manner {
        breaker: arguments.breaker,
        ..Manner::default()
    };
    let one = match (arguments.only, arguments.only_quiet) {
        (Some(index), _) => Some((index, draw::incident(arguments.seed, index))),
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
    let hours = (arguments.quiet_days * 24.0).round() as u64;
    let scores = run(&arguments, arguments.incidents, "incidents", |index| {
        let incident = draw::incident(arguments.seed, index);
        score(index, &incident, &play(&incident, manner))
    });
    let quiet = run(&arguments, hours, "quiet hours", |index| {
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

/// Does `count` of them on as many threads as were asked for; the results are in order.
fn run(arguments: &Arguments, count: u64, what: &str, one: impl Fn(u64) -> Score + Sync) -> Vec<Score> {
    let threads = match arguments.jobs {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        jobs => jobs,
    };
    let next = AtomicU64::new(0);
    let mut scores: Vec<Score> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let mut scores = Vec::new();
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        if index >= count {
                            return scores;
                        }
                        scores.push(one(index));
                        progress(index + 1, count, what);
                    }
                })
            })
            .collect();
        let results = workers.into_iter().filter_map(|worker| worker.join().ok());
        results.flatten().collect()
    });
    scores.sort_by_key(|score| score.index);
    scores
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
