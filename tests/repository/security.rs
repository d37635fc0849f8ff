//! docs/security.md: each test that it names exists.

use std::collections::BTreeSet;

use crate::{files, quoted, read};

/// The names of tests behind "Test:", up to the end of a cell or paragraph's line.
fn named(text: &str) -> Vec<&str> {
    let lines = text.lines().filter_map(|line| line.split_once("Test: "));
    let names = lines.flat_map(|(_, rest)| quoted(rest));
    names.filter(|name| name.matches('_').count() >= 3).collect()
}

#[test]
fn every_test_that_is_said_to_hold_something_is_there() {
    let text = read("docs/security.md");
    let named = named(&text);
    assert!(named.len() >= 25, "only {} are found", named.len());
    let mut there = BTreeSet::new();
    for file in files("src", ".rs").into_iter().chain(files("tests", ".rs")) {
        let source = read(file);
        let after = |mark: &str| -> Vec<String> {
            let parts = source.split(mark).skip(1);
            let word = |part: &str| {
                part.split(|c: char| !c.is_alphanumeric() && c != '_')
                    .next()
                    .map(str::to_owned)
            };
            parts.filter_map(word).collect()
        };
        // What is played on a real API server goes by a name in quotes.
        there.extend(
            after("fn ")
                .into_iter()
                .chain(after("named(\""))
                .chain(after("            \"")),
        );
    }
    for name in named {
        assert!(
            there.contains(name),
            "docs/security.md names {name}, and there is no such test"
        );
    }
}
