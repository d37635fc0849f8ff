//! `campaign document`: prints docs/diagnosis.md from the tables in the code and the figures of a report and an ablation.

mod page;

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Deserialize;

/// Arguments of `document`.
#[derive(Debug, clap::Args)]
pub struct DocumentArguments {
    /// Report of a campaign, as `--output json` writes it
    #[arg(long, value_name = "FILE")]
    pub report: PathBuf,
    /// Results of an ablation, as `ablate --into` writes them
    #[arg(long, value_name = "FILE")]
    pub ablation: PathBuf,
}

/// The part of an ablation that the page uses.
#[derive(Debug, Deserialize)]
struct Ablation {
    before: Before,
    rows: Vec<Tried>,
}

#[derive(Debug, Deserialize)]
struct Before {
    incidents: usize,
}

/// One change and its result.
#[derive(Debug, Deserialize)]
struct Tried {
    change: Change,
    differ: usize,
    sooner: usize,
    moved: Option<Moved>,
}

#[derive(Debug, Deserialize)]
struct Change {
    name: String,
    factor: f64,
}

#[derive(Debug, Deserialize)]
struct Moved {
    right: f64,
    wrong: f64,
    innocent: i64,
}

/// The part of a report that the page uses.
#[derive(Debug, Deserialize)]
struct Figures {
    seed: u64,
    incidents: usize,
    culprit_faults: usize,
    rules: Vec<RuleFigures>,
}

#[derive(Debug, Deserialize)]
struct RuleFigures {
    name: String,
    health: String,
    measured: usize,
    webhook: Option<f64>,
    cause: Option<f64>,
    named_first: f64,
    named: f64,
}

/// The page as Markdown.
///
/// # Errors
/// When the report or the ablation cannot be read.
pub fn text(arguments: &DocumentArguments) -> anyhow::Result<String> {
    let figures: Figures = from_json(&arguments.report, "report of a campaign")?;
    let ablation: Ablation = from_json(&arguments.ablation, "result of an ablation")?;
    Ok(page::page(&|name| {
        figures.measured(name).or_else(|| ablation.cost(name))
    }))
}

fn from_json<T: serde::de::DeserializeOwned>(path: &Path, what: &str) -> anyhow::Result<T> {
    let read = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_slice(&read).with_context(|| format!("{} is no {what}", path.display()))
}

impl Ablation {
    /// The effects of half and of twice a threshold's value, as two cells of a table; `None` when they were not tried.
    fn cost(&self, name: &str) -> Option<String> {
        let cell = |factor: f64| {
            let mut rows = self.rows.iter().map(|row| (&row.change, row));
            let row = rows.find(|(change, _)| change.name == name && change.factor == factor);
            row.map(|(_, row)| row.cell(self.before.incidents))
        };
        Some(format!("{} | {}", cell(0.5)?, cell(2.0)?))
    }
}

impl Tried {
    fn cell(&self, incidents: usize) -> String {
        let Some(moved) = &self.moved else {
            return "cannot be played".to_owned();
        };
        if self.differ == 0 {
            return "nothing".to_owned();
        }
        let mut said = vec![format!("{:.0} %", 100.0 * self.differ as f64 / incidents as f64)];
        for (what, points) in [("right", moved.right), ("wrong", moved.wrong)] {
            said.extend((points.abs() >= 0.05).then(|| format!("{what} {points:+.1}")));
        }
        said.extend((moved.innocent != 0).then(|| format!("innocent bypasses {:+}", moved.innocent)));
        said.extend((self.sooner > 0).then(|| format!("{} bypasses sooner", self.sooner)));
        said.join(", ")
    }
}

impl Figures {
    fn measured(&self, name: &str) -> Option<String> {
        if name.is_empty() {
            return Some(format!(
                "{} incidents of seed {}, with {} faults of webhooks that users felt. The run had no conversion \
                 webhook, no APIService and no bypass: the rules for those made no verdict in it.",
                self.incidents, self.seed, self.culprit_faults
            ));
        }
        let rule = self.rules.iter().find(|rule| rule.name == name)?;
        Some(rule.sentence())
    }
}

impl RuleFigures {
    fn sentence(&self) -> String {
        let (Some(webhook), Some(cause)) = (self.webhook, self.cause) else {
            return "no verdict in this run.".to_owned();
        };
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        let (webhook, cause) = (percent(webhook), percent(cause));
        let mut sentence = format!(
            "the webhook was at fault in {webhook} of {} verdicts, and for the named cause in {cause}.",
            self.measured
        );
        if self.health == "Failing" {
            let (first, ever) = (percent(self.named_first), percent(self.named));
            // Writing to a `String` cannot fail.
            let _ = write!(
                sentence,
                " The rule named {ever} of the faults, {first} before any other rule."
            );
        }
        sentence
    }
}
