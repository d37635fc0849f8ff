//! The source itself: files of a size that one person holds in the head, and nothing put off.

use std::path::Path;

use crate::{files, read};

/// Lines that a file has before its tests, at most.
const LONGEST: usize = 500;

/// Files that may be longer, each with its own bound and the reason.
const LONGER: [(&str, usize, &str); 0] = [];

/// Lines before the first thing that exists in tests only.
fn lines_before_tests(text: &str) -> usize {
    text.lines().take_while(|line| *line != "#[cfg(test)]").count()
}

fn is_test(path: &Path) -> bool {
    path.ends_with("tests.rs") || path.iter().any(|part| part == "tests")
}

#[test]
fn no_file_is_too_long_to_hold_in_the_head() {
    let mut found = Vec::new();
    for path in files("src", ".rs").into_iter().filter(|path| !is_test(path)) {
        let longer = LONGER.iter().find(|(longer, ..)| path == Path::new(longer));
        let (bound, lines) = (
            longer.map_or(LONGEST, |(_, bound, _)| *bound),
            lines_before_tests(&read(&path)),
        );
        if lines > bound {
            found.push(format!("{}: {lines} lines, {bound} are enough", path.display()));
        }
        if longer.is_some() && lines <= LONGEST {
            found.push(format!("{} is short enough to leave the list", path.display()));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn nothing_is_put_off() {
    // Put together here, so that this file does not accuse itself.
    let words = [
        ["TO", "DO"].concat(),
        ["FIX", "ME"].concat(),
        ["XX", "X"].concat(),
    ];
    let texts = ["src", "tests", "docs", "alerts", ".ci"]
        .into_iter()
        .flat_map(|folder| {
            let endings = [".rs", ".md", ".yaml", "run"];
            endings.into_iter().flat_map(move |ending| files(folder, ending))
        });
    let top = [
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "Cargo.toml",
        "deny.toml",
    ];
    for path in texts.chain(top.map(Into::into)) {
        let text = read(&path);
        for word in &words {
            let used = text
                .split(|c: char| !c.is_alphanumeric())
                .any(|found| found == word.as_str());
            assert!(!used, "{} has a {word}", path.display());
        }
    }
}
