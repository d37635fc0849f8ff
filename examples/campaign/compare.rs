//! `campaign compare`: shows how two traces differ.

mod acts;
mod blocks;
mod report;
mod states;

use std::cmp::Ordering;
use std::path::{Path, PathBuf};

use blocks::{Block, Blocks};
#[cfg(feature = "ablation")]
pub use report::Difference;
use report::{Found, Report};

/// Arguments of `compare`.
#[derive(Debug, clap::Args)]
pub struct CompareArguments {
    /// Trace of the build before
    #[arg(value_name = "A")]
    pub before: PathBuf,
    /// Trace of the build after
    #[arg(value_name = "B")]
    pub after: PathBuf,
    #[command(flatten)]
    pub options: Options,
}

#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub struct Options {
    /// Ignore differences in the confidence of verdicts
    #[arg(long)]
    pub ignore_confidence: bool,
    /// How many differing blocks to show, each with its first differing line
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub show: usize,
}

/// Prints how the traces differ; returns whether they are identical.
///
/// # Errors
/// When one of them cannot be read, or is not whole.
pub fn print(arguments: &CompareArguments) -> anyhow::Result<bool> {
    let report = compare(&arguments.before, &arguments.after, arguments.options)?;
    print!("{report}");
    Ok(report.is_identical())
}

/// Compares two traces block by block.
///
/// # Errors
/// When one of them cannot be read, or is not whole.
pub fn compare(before: &Path, after: &Path, options: Options) -> anyhow::Result<Report> {
    let (mut left, mut right) = (Blocks::open(before)?, Blocks::open(after)?);
    let mut report = Report::new(left.made_with(), right.made_with());
    let (mut a, mut b) = (left.next()?, right.next()?);
    loop {
        let order = match (&a, &b) {
            (None, None) => return Ok(report),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(a), Some(b)) => a.name.cmp(&b.name),
        };
        let (mut one, mut other) = (None, None);
        if order.is_le() {
            one = std::mem::replace(&mut a, left.next()?);
        }
        if order.is_ge() {
            other = std::mem::replace(&mut b, right.next()?);
        }
        match (one, other) {
            (Some(a), Some(b)) => hold(&a, &b, options, &mut report)?,
            (Some(block), None) => report.only_before(&block.name),
            (None, Some(block)) => report.only_after(&block.name),
            (None, None) => {}
        }
    }
}

fn hold(a: &Block, b: &Block, options: Options, report: &mut Report) -> anyhow::Result<()> {
    let kind = a.name.kind;
    if a.lines == b.lines {
        report.same(kind);
        return Ok(());
    }
    let (left, right) = (a.parsed(options)?, b.parsed(options)?);
    if left == right {
        report.same(kind);
        return Ok(());
    }
    let mut found = Found::default();
    states::differences(&left, &right, &mut found);
    acts::differences(&left, &right, &mut found);
    let at = left
        .iter()
        .zip(&right)
        .take_while(|(left, right)| left == right)
        .count();
    let shown = (report.differing() < options.show)
        .then(|| [&left, &right].map(|lines| lines.get(at).map(ToString::to_string)));
    report.differ(&a.name, &found, shown);
    Ok(())
}

#[cfg(test)]
mod tests;
