//! Results that are kept in the repository because measuring them takes hours or a real API server.

use std::path::Path;

use anyhow::Context;

use super::document::{Section, Table};
use super::noise::Samples;
use super::survival;

/// Summarises the stored results.
///
/// # Errors
/// When the results of the survival table cannot be read.
pub fn measure(_quick: bool) -> anyhow::Result<Section> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/survival.jsonl");
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let results = survival::results(&text)?;
    let mut table = Table::new(&["Outage", "Runs", "Fault to verdict, s", "Fault to bypass, s"]);
    for (name, _) in survival::SHAPES {
        let runs = results.get(name).into_iter().flatten();
        let runs: Vec<_> = runs.filter(|run| run["with_breaker"] == true).collect();
        let spread = |key: &str| {
            let seconds: Samples = runs.iter().filter_map(|run| run[key].as_f64()).collect();
            seconds.to_string()
        };
        table.row(&[
            format!("`{name}`"),
            runs.len().to_string(),
            spread("verdict_after_seconds"),
            spread("bypassed_after_seconds"),
        ]);
    }
    let mut section = Section::new("Measured elsewhere");
    section.say(
        "Not in this run: it takes hours, or a real API server. From a fault to the verdict and to the bypass, on a real control plane \
         1.36.2: the results of [Who survives](survival.md), as often as each was played so far.",
    );
    section.table(table);
    section.say(
        "The README's first build took 3 minutes on two cores in November 2026, with all sources there.",
    );
    Ok(section)
}
