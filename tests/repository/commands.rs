//! Commands in documents: whatever a reader would type is understood by the binary.

use std::process::Command;

use crate::{fenced, files, read};

/// The commands of ours in a document's shell blocks, each as its words after `hookwatch`.
fn commands(markdown: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for (language, text) in fenced(markdown) {
        if language != "sh" {
            continue;
        }
        for line in text.lines() {
            let line = line.split(" #").next().unwrap_or_default().trim();
            let ours = line
                .strip_prefix("hookwatch ")
                .or_else(|| line.strip_prefix("cargo run -- "));
            found.extend(ours.map(|rest| rest.split_whitespace().map(str::to_owned).collect()));
        }
    }
    found
}

#[test]
fn every_command_in_a_document_is_understood() {
    let mut count = 0;
    for document in files("", ".md") {
        let text = read(&document);
        // In running text a command stands between backquotes, and may be only its beginning.
        let mentioned = crate::prose(&text);
        let mentioned = crate::quoted(&mentioned)
            .into_iter()
            .filter_map(|quoted| quoted.strip_prefix("hookwatch "))
            .map(|rest| rest.split_whitespace().map(str::to_owned).collect());
        for words in commands(&text).into_iter().chain(mentioned) {
            let words: Vec<String> = words;
            if words == ["replay"] {
                continue;
            }
            count += 1;
            let typed = ["hookwatch".to_owned()].into_iter().chain(words.clone());
            if let Err(error) = hookwatch::cli::command().try_get_matches_from(typed) {
                panic!("{}: {words:?}: {error}", document.display());
            }
        }
    }
    assert!(count > 10, "only {count} commands were found");
}

#[test]
fn the_readme_has_the_demo_and_the_tests() {
    let readme = read("README.md");
    assert!(commands(&readme).contains(&vec!["demo".to_owned()]));
    let tests = |(language, text): &(String, String)| language == "sh" && text.trim() == "cargo test";
    assert!(fenced(&readme).iter().any(tests));
    let (begin, end) = (
        readme.find("<!-- demo:begin -->"),
        readme.find("<!-- demo:end -->"),
    );
    assert!(
        begin.is_some() && begin < end,
        "the demo's excerpt has lost its marks"
    );
    assert!(
        read(".ci/run").trim_end().ends_with("\ncargo test"),
        "the tests come last in CI"
    );
}

#[test]
fn the_binary_has_help_for_every_command() {
    for command in hookwatch::cli::command().get_subcommands() {
        let output = Command::new(env!("CARGO_BIN_EXE_hookwatch"))
            .args([command.get_name(), "--help"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", command.get_name());
        let help = String::from_utf8(output.stdout).unwrap();
        assert!(help.contains("Usage: hookwatch"), "{help}");
    }
}
