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
    let word = |part: &str| {
        let mut words = part.split(|c: char| !c.is_alphanumeric() && c != '_');
        words.next().unwrap_or_default().to_owned()
    };
    // Of tokio's and proptest's tests, too.
    let is_mark = |line: &&&str| {
        line.starts_with("#[")
            && line
                .split(['(', ']'])
                .next()
                .unwrap_or_default()
                .ends_with("test")
    };
    let mut there = BTreeSet::new();
    for file in files("src", ".rs").into_iter().chain(files("tests", ".rs")) {
        let source = read(&file);
        let lines: Vec<&str> = source.lines().map(str::trim_start).collect();
        for (at, line) in lines.iter().enumerate() {
            let function = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
            let is_test = lines[at.saturating_sub(3)..at].iter().any(|line| is_mark(&line));
            there.extend(function.filter(|_| is_test).map(word));
        }
        // What is played on a real API server goes by a name in quotes.
        if file.starts_with("tests/with_envtest") {
            there.extend(source.split('"').skip(1).map(word));
        }
    }
    for name in named {
        assert!(
            there.contains(name),
            "docs/security.md names {name}, and there is no such test"
        );
    }
}
