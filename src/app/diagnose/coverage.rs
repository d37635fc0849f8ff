//! Which canary covers which hook, in a report for people.

use crate::domain::diagnose::verdict::Verdict;
use crate::domain::observe::views::CanaryView;
use crate::domain::text::listed;

/// Hooks that are named in one line; the rest is a number.
const NAMED: usize = 5;

/// A line for each canary, with the hooks that its write goes through, and one for the hooks that no canary covers.
pub(super) fn lines(hooks: &[Verdict], canaries: &[CanaryView]) -> Vec<String> {
    let admission = || hooks.iter().filter(|verdict| verdict.kind.is_admission());
    let mut lines = Vec::new();
    for view in canaries {
        let met: Vec<&Verdict> = admission()
            .filter(|verdict| verdict.canaries.contains(&view.canary))
            .collect();
        if !met.is_empty() {
            lines.push(format!("  {} goes through {}", view.canary, names(&met)));
        }
    }
    let uncovered: Vec<&Verdict> = admission()
        .filter(|verdict| verdict.canaries.is_empty())
        .collect();
    if !uncovered.is_empty() {
        lines.push(format!(
            "  no canary goes through {}; one in canaries.further can",
            names(&uncovered)
        ));
    }
    lines
}

fn names(hooks: &[&Verdict]) -> String {
    let names: Vec<&str> = hooks.iter().map(|verdict| &*verdict.webhook).collect();
    listed(&names, NAMED)
}
