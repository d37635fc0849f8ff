//! `campaign fit`: how right each rule of the table is, as the two numbers that it should have.

use std::fmt::Write;

use crate::breaking::Farthest;
use crate::incident::draw::Draws;
use crate::play::Manner;
use crate::report::{PerRule, per_rule};
use crate::scores;

/// What stands above the rules.
const HEAD: &str = "\
# rule, webhook, cause, claims
# The shares that were right, (right + 1) / (claims + 2): with few claims nearer to one half (Laplace).
# A rule that suspects is measured by all its suspicions, however short.
# A dash: it said nothing that can be right or wrong.
";

/// What `fit` was asked for.
#[derive(Debug, clap::Args)]
pub struct FitArguments {
    /// How many incidents
    #[arg(long, default_value_t = 5_000)]
    pub incidents: u64,
    /// What all chance comes from
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// With the breaker on, and how far it may go: only then do the rules of a bypass say anything
    #[arg(long, value_enum)]
    pub breaker: Option<Farthest>,
    /// Threads; 0 for as many as there are cores
    #[arg(long, default_value_t = 0)]
    pub jobs: usize,
}

/// Measures, and says it with a line for each rule.
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
