//! `campaign document`: docs/diagnosis.md, of the tables in the code and of the figures in a report.

mod page;

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use serde::Deserialize;

/// What `document` was asked for.
#[derive(Debug, clap::Args)]
pub struct DocumentArguments {
    /// Report of a campaign, as `--output json` writes it
    #[arg(long, value_name = "FILE")]
    pub report: PathBuf,
}

/// What the page takes from a report.
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

/// Writes the page.
///
/// # Errors
/// When the report cannot be read.
pub fn text(arguments: &DocumentArguments) -> anyhow::Result<String> {
    let path = &arguments.report;
    let report = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let figures: Figures = serde_json::from_slice(&report)
        .with_context(|| format!("{} is no report of a campaign", path.display()))?;
    Ok(page::page(&|name| figures.measured(name)))
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
