//! What is promised about the repository as a whole: who may know whom, and that what is written about the code
//! is true of the code.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking, and helpers of an integration test count as code"
)]

mod alerts;
mod arrows;
mod audit;
mod benchmarks;
#[path = "../support/bounds.rs"]
mod bounds;
mod chart;
mod commands;
mod configuration;
mod contract;
mod dashboards;
mod deploy;
mod diagnosis;
mod exposed;
#[path = "../support/chart.rs"]
mod helm;
mod installed;
mod links;
mod monitoring;
mod pushed;
mod reference;
mod release;
mod runbooks;
mod security;
mod shield;
mod source;
mod survival;
mod telemetry;
mod typed;
mod words;

use std::fs;
use std::path::{Path, PathBuf};

/// The repository's root.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The text of a file, by its path within the repository.
fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every file below a folder whose name ends as given, as paths within the repository, in order.
fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    fn walk(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                if !["target", ".git", "corpus", "artifacts"].contains(&name.as_str()) {
                    walk(&path, ending, found);
                }
            } else if name.ends_with(ending) {
                found.push(path.strip_prefix(root()).unwrap().to_owned());
            }
        }
    }
    let mut found = Vec::new();
    walk(&root().join(folder), ending, &mut found);
    found.sort();
    found
}

/// Every fenced block of a Markdown text with the word behind its fence.
fn fenced(markdown: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut open: Option<(String, String)> = None;
    for line in markdown.lines() {
        match (line.trim_start().strip_prefix("```"), open.take()) {
            (Some(_), Some(block)) => blocks.push(block),
            (Some(language), None) => open = Some((language.trim().to_owned(), String::new())),
            (None, Some((language, text))) => open = Some((language, format!("{text}{line}\n"))),
            (None, None) => {}
        }
    }
    assert_eq!(open, None, "a fence is not closed");
    blocks
}

/// A Markdown text without its fenced blocks.
fn prose(markdown: &str) -> String {
    let mut fence = false;
    let mut text = String::new();
    for line in markdown.lines() {
        if line.trim_start().starts_with("```") {
            fence = !fence;
        } else if !fence {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

/// Every stretch of text between two backquotes on one line.
fn quoted(markdown: &str) -> Vec<&str> {
    markdown
        .lines()
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .collect()
}

/// Whether CI runs this; there nothing may be left out.
fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true")
}

/// Says that something was left out, past the capture of the test runner.
fn skip(what: &str) {
    use std::io::Write;
    assert!(!in_ci(), "in CI this must not be left out: {what}");
    let _ = writeln!(std::io::stderr(), "\nSKIPPED: {what}\n");
}

/// Holds a generated document against the one in the repository, or writes it where `HOOKWATCH_BLESS` is set. `test` is
/// the test that writes it.
fn same_document(path: &str, generated: &str, test: &str) {
    if std::env::var_os("HOOKWATCH_BLESS").is_some() {
        std::fs::write(root().join(path), generated).unwrap();
        return;
    }
    // Without the texts: they are whole documents.
    assert!(
        read(path) == generated,
        "{path} is out of date: HOOKWATCH_BLESS=1 cargo test --test repository {test}"
    );
}
