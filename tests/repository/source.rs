//! The source itself: files of a size that one person holds in the head, and nothing put off.

use std::collections::BTreeMap;
use std::path::Path;

use crate::{files, read, shipped};

/// Lines of code that a file has beside its tests, at most: comments and blank lines are not counted.
const LONGEST: usize = 400;

fn is_test(path: &Path) -> bool {
    path.ends_with("tests.rs") || path.iter().any(|part| part == "tests")
}

fn is_code((_, line): &(usize, &str)) -> bool {
    let line = line.trim_start();
    !line.is_empty() && !line.starts_with("//")
}

#[test]
fn no_file_is_too_long_to_hold_in_the_head() {
    let mut found = Vec::new();
    for path in files("src", ".rs").into_iter().filter(|path| !is_test(path)) {
        let lines = shipped(&read(&path)).into_iter().filter(is_code).count();
        if lines > LONGEST {
            found.push(format!(
                "{}: {lines} lines of code, {LONGEST} are enough",
                path.display()
            ));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The name of the struct, enum, trait or alias that a line defines. An alias that is indented belongs to an implementation.
fn defined_type(line: &str) -> Option<&str> {
    let is_indented = line.starts_with(' ');
    let line = line.trim_start();
    let line = match line.strip_prefix("pub(") {
        Some(scoped) => scoped.split_once(") ")?.1,
        None => line.strip_prefix("pub ").unwrap_or(line),
    };
    let (keyword, rest) = line.split_once(' ')?;
    let is_keyword = ["struct", "enum", "trait"].contains(&keyword) || keyword == "type" && !is_indented;
    let is_type = is_keyword && rest.starts_with(char::is_uppercase);
    let is_outside = |c: char| !c.is_alphanumeric() && c != '_';
    is_type.then(|| rest.split(is_outside).next()).flatten()
}

#[test]
fn a_type_name_is_defined_once_in_the_crate() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in files("src", ".rs").into_iter().filter(|path| !is_test(path)) {
        for (number, line) in shipped(&read(&path)) {
            if let Some(name) = defined_type(line) {
                let place = format!("{}:{}", path.display(), number);
                places.entry(name.to_owned()).or_default().push(place);
            }
        }
    }
    assert!(
        places.contains_key("HookId") && places.contains_key("Clock"),
        "no types are found"
    );
    places.retain(|_, places| places.len() > 1);
    let twice: Vec<String> = places
        .iter()
        .map(|(name, places)| format!("{name} is defined in {}", places.join(" and ")))
        .collect();
    assert!(twice.is_empty(), "{}", twice.join("\n"));
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
