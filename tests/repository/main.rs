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
#[path = "../support/programs.rs"]
#[allow(dead_code, reason = "what is run here has its own way to be looked for")]
mod programs;
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

use programs::{in_ci, skip};

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

/// The lines of a source file with their numbers, without the items that exist in tests only.
fn shipped(source: &str) -> Vec<(usize, &str)> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let (mut shipped, mut lines) = (Vec::new(), source.lines().zip(1..));
    while let Some((line, number)) = lines.next() {
        if line.trim_start() != "#[cfg(test)]" {
            shipped.push((number, line));
            continue;
        }
        // As it is formatted, an item's braces are indented like it, and so is its end.
        let mut is_open = false;
        let ends = |(within, _): &(&str, usize)| {
            let text = within.trim_start();
            if indent(within) != indent(line) || text.starts_with("#[") {
                return false;
            }
            let ends = if is_open {
                text.trim_end_matches([';', ',']) == "}"
            } else {
                text.ends_with([';', '}', ','])
            };
            is_open |= text.ends_with('{');
            ends
        };
        lines.find(ends);
    }
    shipped
}

/// The text of such lines.
fn text_of(lines: &[(usize, &str)]) -> String {
    let lines: Vec<&str> = lines.iter().map(|(_, line)| *line).collect();
    lines.join("\n")
}

#[test]
fn what_exists_in_tests_only_is_left_out_and_what_comes_after_it_is_not() {
    let source = "use a;\n#[cfg(test)]\nmod tests;\nfn one() {\n    1\n}\n#[cfg(test)]\n#[allow(x)]\nmod more {\n    fn f() {}\n}\n\
                  impl A {\n    #[cfg(test)]\n    fn g(\n        a: u8,\n    ) {\n        b;\n    }\n    c: D,\n}";
    let expected = "use a;\nfn one() {\n    1\n}\nimpl A {\n    c: D,\n}";
    assert_eq!(text_of(&shipped(source)), expected);
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

/// Holds a generated document against the one in the repository, or writes it where `HOOKWATCH_BLESS` is set and CI does not run
/// this. `test` is the test that writes it.
fn same_document(path: &str, generated: &str, test: &str) {
    if std::env::var_os("HOOKWATCH_BLESS").is_some() && !in_ci() {
        std::fs::write(root().join(path), generated).unwrap();
        return;
    }
    // Without the texts: they are whole documents.
    assert!(
        read(path) == generated,
        "{path} is out of date: HOOKWATCH_BLESS=1 cargo test --test repository {test}"
    );
}
