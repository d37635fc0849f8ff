//! docs/diagnosis.md is what the tables of rules and thresholds say. What was measured of a rule is the campaign's to
//! write (`campaign document`), and stays as it is here.

#[path = "../../examples/campaign/document/page.rs"]
mod page;

use std::collections::{BTreeMap, BTreeSet};

use hookwatch::domain::diagnose::rules::TABLE;
use hookwatch::domain::thresholds::{CHOSEN, KUBERNETES, MEASURED};

use crate::{read, same_document};

const DOCUMENT: &str = "docs/diagnosis.md";

/// What was measured, by rule; the run stands above the first of them.
fn measured(document: &str) -> BTreeMap<&str, &str> {
    let mut rule = "";
    let mut found = BTreeMap::new();
    for line in document.lines() {
        if let Some(heading) = line.strip_prefix("### `") {
            rule = heading.trim_end_matches('`');
        } else if let Some(figures) = line.strip_prefix(page::MEASURED) {
            found.insert(rule, figures);
        } else if let Some((name, cost)) = cost(line) {
            found.insert(name, cost);
        }
    }
    found
}

/// The name of a chosen threshold and the last two cells of its row.
fn cost(row: &str) -> Option<(&str, &str)> {
    let row = row.strip_prefix("| `")?.strip_suffix(" |")?;
    let (name, cells) = row.split_once("` | ")?;
    let starts: Vec<usize> = cells.match_indices(" | ").map(|(at, _)| at + 3).collect();
    let cost = starts
        .get(starts.len().checked_sub(2)?)
        .filter(|_| starts.len() == 3)?;
    Some((name, cells.get(*cost..)?))
}

#[test]
fn the_rules_and_their_document_are_the_same() {
    let document = read(DOCUMENT);
    let measured = measured(&document);
    let generated = page::page(&|name| measured.get(name).map(|figures| (*figures).to_owned()));
    same_document(DOCUMENT, &generated, "diagnosis");
}

#[test]
fn every_rule_and_every_threshold_has_its_place() {
    let document = read(DOCUMENT);
    let names: BTreeSet<&str> = TABLE.iter().map(|rule| rule.name).collect();
    assert_eq!(names.len(), TABLE.len(), "two rules have one name");
    for rule in TABLE {
        assert!(
            document.contains(&format!("### `{}`\n", rule.name)),
            "{}",
            rule.name
        );
    }
    for threshold in [KUBERNETES, MEASURED, CHOSEN].into_iter().flatten() {
        let row = format!("\n| `{}` | ", threshold.name);
        assert!(document.contains(&row), "{}", threshold.name);
    }
    for (name, figures) in measured(&document) {
        let is_cost = CHOSEN.iter().any(|threshold| threshold.name == name);
        assert!(is_cost || figures.len() > 10, "{name}: {figures:?}");
    }
}
