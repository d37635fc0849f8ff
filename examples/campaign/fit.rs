//! `campaign fit`: measures how often each rule is right, and prints the two confidences that it should have.

use std::fmt::Write;

use crate::breaking::Farthest;
use crate::incident::draw::Draws;
use crate::play::Manner;
use crate::report::{PerRule, per_rule};
use crate::scores;

/// The header of the output.
const HEAD: &str = "\
# rule, webhook, cause, claims
# The shares that were right, (right + 1) / (claims + 2): with few claims nearer to one half (Laplace).
# A rule that suspects is measured by all its suspicions, however short.
# A dash: it said nothing that can be right or wrong.
";

/// Arguments of `fit`.
#[derive(Debug, clap::Args)]
pub struct FitArguments {
    /// How many incidents
    #[arg(long, default_value_t = 5_000)]
    pub incidents: u64,
    /// Seed of all random numbers
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Turn the breaker on, up to this rung: only then do the rules about bypassed webhooks apply
    #[arg(long, value_enum)]
    pub breaker: Option<Farthest>,
    /// Threads; 0 for as many as there are cores
    #[arg(long, default_value_t = 0)]
    pub jobs: usize,
}

/// Runs the incidents and prints a line for each rule.
pub fn text(arguments: &FitArguments) -> String {
    let breaker = arguments.breaker;
    let manner = Manner {
        breaker,
        ..Manner::default()
    };
    let seed = (Draws::Usual, arguments.seed);
    let scores = scores(arguments.jobs, arguments.incidents, seed, manner);
    let mut text = HEAD.to_owned();
    for rule in per_rule(&scores) {
        text.push_str(&line(&rule));
    }
    text
}

fn line(rule: &PerRule) -> String {
    let measured = rule.measured();
    let mut line = format!("{} ", rule.name);
    // Writing to a `String` cannot fail.
    let _ = match measured.smoothed() {
        Some((webhook, cause)) => writeln!(line, "{webhook:.2} {cause:.2} {}", measured.claims),
        None => writeln!(line, "- - 0"),
    };
    line
}
