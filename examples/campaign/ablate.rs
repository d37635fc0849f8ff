//! `campaign ablate`: measures the effect of each rule and each chosen threshold of the diagnosis.
//!
//! A change applies to a whole process, so each change runs in a child process that traces the same incidents. Its trace
//! and figures are compared with those without a change.

mod suites;
mod table;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use clap::ValueEnum;
use hookwatch::domain::diagnose::rules::TABLE;
use hookwatch::domain::thresholds::{CHOSEN, ablation};

use crate::breaking::Farthest;
use crate::compare::{Difference, Options, compare};
use crate::incident::draw::Draws;
use crate::run;
use crate::trace::Figures;
use table::{Row, Table};

/// Factors that each threshold is multiplied with.
const FACTORS: [f64; 2] = [0.5, 2.0];

/// Applies the change that the environment variable [`ablation::VARIABLE`] has as `name=factor`, if any.
pub fn change_as_told() {
    let told = std::env::var(ablation::VARIABLE).ok();
    let change = told.as_deref().and_then(|told| told.split_once('='));
    if let Some((name, factor)) = change
        && let Ok(factor) = factor.parse()
    {
        ablation::change(name, factor);
    }
}

/// Arguments of `ablate`.
#[derive(Debug, clap::Args)]
pub struct AblateArguments {
    /// How many incidents
    #[arg(long, default_value_t = 300)]
    incidents: u64,
    /// Seed of all random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// What to draw incidents from
    #[arg(long, value_enum, default_value_t = Draws::Usual)]
    draws: Draws,
    /// Turn the breaker on, up to this rung
    #[arg(long, value_enum)]
    breaker: Option<Farthest>,
    /// Folders with recordings of the daemon, as `trace` takes them
    #[arg(long, value_name = "DIR", num_args = 1..)]
    recordings: Vec<PathBuf>,
    /// Folders with scrapes, as `trace` takes them
    #[arg(long, value_name = "DIR", num_args = 1..)]
    scrapes: Vec<PathBuf>,
    /// Try only these rules and thresholds
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Also run the core's tests with each change that made no difference in the campaign
    #[arg(long)]
    tests: bool,
    /// Also write the result of each change as JSON, for `document`
    #[arg(long, value_name = "FILE")]
    into: Option<PathBuf>,
    /// How many processes run at a time, with one thread each
    #[arg(long, default_value_t = 2)]
    jobs: usize,
}

/// One threshold multiplied by `factor`, or one rule turned off (`factor` 0).
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Change {
    name: String,
    factor: f64,
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}={}", self.name, self.factor)
    }
}

/// A change, and its description.
struct Trial {
    change: Change,
    done: String,
}

/// The changes to try: each rule except the last, which applies to everything, and each chosen threshold. If `only` is not
/// empty, only those named in it.
fn trials(only: &[String]) -> anyhow::Result<Vec<Trial>> {
    let trial = |name: &str, factor: f64, done: String| Trial {
        change: Change {
            name: name.to_owned(),
            factor,
        },
        done,
    };
    let rules = &TABLE[..TABLE.len() - 1];
    let rules = rules.iter().map(|rule| trial(rule.name, 0.0, "off".to_owned()));
    let mut trials: Vec<Trial> = rules.collect();
    for threshold in CHOSEN {
        let value = threshold.value;
        trials.extend(FACTORS.map(|factor| trial(threshold.name, factor, format!("{value} x {factor}"))));
    }
    if only.is_empty() {
        return Ok(trials);
    }
    if let Some(unknown) = only
        .iter()
        .find(|name| !trials.iter().any(|trial| trial.change.name == **name))
    {
        bail!("there is no rule and no chosen threshold called {unknown}");
    }
    trials.retain(|trial| only.contains(&trial.change.name));
    Ok(trials)
}

/// Tries every change and prints the results.
///
/// # Errors
/// When the trace without a change fails, a name is not known, or a file cannot be written.
pub fn print(arguments: &AblateArguments) -> anyhow::Result<()> {
    let trials = trials(&arguments.only)?;
    let folder = std::env::temp_dir().join(format!("campaign-ablate-{}", std::process::id()));
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let table = table(arguments, &trials, &folder);
    // Best effort: a leftover temporary folder does no harm.
    let _ = std::fs::remove_dir_all(&folder);
    let table = table?;
    print!("{table}");
    if let Some(path) = &arguments.into {
        let written = serde_json::to_vec_pretty(&table)?;
        std::fs::write(path, written).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if arguments.tests {
        for (change, done) in table.without_effect() {
            println!("{change} ({done}): {}", suites::try_with(change));
        }
        println!("{}", suites::NOT_RUN);
    }
    Ok(())
}

fn table(arguments: &AblateArguments, trials: &[Trial], folder: &Path) -> anyhow::Result<Table> {
    let before = folder.join("before.gz");
    let figures = trace(arguments, None, &before)?;
    eprintln!("{} changes on {} incidents", trials.len(), figures.incidents);
    let count = trials.len() as u64;
    let rows = run(arguments.jobs, count, "changes", |index| {
        let trial = &trials[index as usize];
        let after = folder.join(format!("{index}.gz"));
        let row = one(arguments, trial, &before, &after, &figures);
        let _ = std::fs::remove_file(&after);
        eprintln!("{row}");
        row
    });
    Ok(Table::new(figures, rows))
}

fn one(arguments: &AblateArguments, trial: &Trial, before: &Path, after: &Path, figures: &Figures) -> Row {
    let (change, done) = (trial.change.clone(), trial.done.clone());
    let seen = || {
        let changed = trace(arguments, Some(&trial.change), after)?;
        let options = Options::default();
        anyhow::Ok((changed, compare(before, after, options)?))
    };
    match seen() {
        Ok((changed, report)) => Row {
            change,
            done,
            differ: report.differing(),
            sooner: report.count(Difference::BypassSooner).0,
            moved: Some(table::Moved::between(figures, &changed)),
            broke: None,
        },
        Err(error) => Row {
            change,
            done,
            differ: 0,
            sooner: 0,
            moved: None,
            broke: Some(format!("{error:#}")),
        },
    }
}

/// Traces in a child process; returns its figures.
fn trace(arguments: &AblateArguments, change: Option<&Change>, into: &Path) -> anyhow::Result<Figures> {
    let figures = into.with_extension("json");
    let mut command = Command::new(std::env::current_exe().context("who am I?")?);
    command.args(["trace", "--jobs", "1"]);
    command.args(["--incidents", &arguments.incidents.to_string()]);
    command.args(["--seed", &arguments.seed.to_string()]);
    command.arg("--into").arg(into).arg("--figures").arg(&figures);
    let named = |flag, value: Option<clap::builder::PossibleValue>| {
        value.map(|value| [flag, value.get_name().to_owned()])
    };
    let breaker = arguments.breaker.and_then(|breaker| breaker.to_possible_value());
    let draws = arguments.draws.to_possible_value();
    for flag in [
        named("--breaker".to_owned(), breaker),
        named("--draws".to_owned(), draws),
    ] {
        command.args(flag.into_iter().flatten());
    }
    for (flag, folders) in [
        ("--recordings", &arguments.recordings),
        ("--scrapes", &arguments.scrapes),
    ] {
        if !folders.is_empty() {
            command.arg(flag).args(folders);
        }
    }
    if let Some(change) = change {
        command.env(ablation::VARIABLE, change.to_string());
    }
    let output = command.output().context("cannot run the campaign itself")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{}", said.trim().lines().last().unwrap_or("it died"));
    }
    let read = std::fs::read(&figures).with_context(|| format!("cannot read {}", figures.display()))?;
    Ok(serde_json::from_slice(&read)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_but_the_last_is_tried_once_and_every_chosen_threshold_twice() {
        let all = trials(&[]).unwrap();
        assert_eq!(all.len(), TABLE.len() - 1 + 2 * CHOSEN.len());
        assert!(!all.iter().any(|trial| trial.change.name == "no-data"));
        let some = trials(&["late".to_owned()]).unwrap();
        assert_eq!(some.len(), 2);
        assert!(trials(&["never-heard-of".to_owned()]).is_err());
    }

    #[test]
    fn no_rule_and_threshold_have_one_name() {
        let rules = TABLE.iter().map(|rule| rule.name);
        assert!(
            !rules
                .into_iter()
                .any(|rule| CHOSEN.iter().any(|it| it.name == rule))
        );
    }
}
