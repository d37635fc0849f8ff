//! Plain words: phrases that read like a translation are in nothing that a user or a maintainer reads. Documents, alerts, dashboards,
//! manifests, the strings in the source, of which log lines, Events, the page, the terminal and reports are made, and its comments.

use std::path::{Path, PathBuf};

use crate::{files, read, shipped, text_of};

/// What is banned, as whole words, whatever the case and the line breaks.
const BANNED: [&str; 29] = [
    "somebody",
    "nobody",
    "whoever",
    "everybody",
    "anybody",
    "anew",
    "of late",
    "by hand",
    "is to be",
    "are to be",
    "was to be",
    "were to be",
    "to be had",
    "for ever",
    "in vain",
    "nevertheless",
    "reckoned",
    "as its owner has it",
    "all is well",
    "is well again",
    "to the byte",
    "ever more rarely",
    "for want of",
    "goes on blocking",
    "held against the",
    "is foretold",
    "are foretold",
    "were foretold",
    "mend",
];

/// The banned phrases in a text.
fn found(text: &str) -> Vec<&'static str> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let text = words.join(" ").to_lowercase();
    let joins = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || "_-".contains(c));
    let is_in = |phrase: &&&str| {
        text.match_indices(**phrase).any(|(at, _)| {
            let (before, rest) = text.split_at(at);
            !joins(before.chars().next_back()) && !joins(rest[phrase.len()..].chars().next())
        })
    };
    BANNED.iter().filter(is_in).copied().collect()
}

/// The string literals of a piece of Rust, with escapes as they are written, but for line breaks.
fn literals(source: &str) -> Vec<String> {
    let mut literals = Vec::new();
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let skip = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(hashes) = raw(rest) {
            let body = &rest[hashes + 2..];
            let end = body.find(&format!("\"{}", "#".repeat(hashes)));
            let end = end.unwrap_or(body.len());
            literals.push(body[..end].to_owned());
            (hashes + 2 + end + 1 + hashes).min(rest.len())
        } else if first == '"' {
            let end = closing(&rest[1..]);
            let lines = rest[1..=end].split("\\\n").enumerate();
            literals.push(
                lines
                    .map(|(at, line)| if at == 0 { line } else { line.trim_start() })
                    .collect(),
            );
            end + 2
        } else if first == '\'' {
            character(rest)
        } else if first.is_alphanumeric() || first == '_' {
            // A whole word, so that an `r` at its end begins no raw string.
            let is_word = |c: char| c.is_alphanumeric() || c == '_';
            rest.find(|c| !is_word(c)).unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        rest = &rest[skip.min(rest.len())..];
    }
    literals
}

/// The comments of a piece of Rust that have lines of their own, those of adjacent lines as one.
fn comments(source: &str) -> Vec<String> {
    let lines: Vec<&str> = source.lines().map(str::trim_start).collect();
    let blocks = lines.split(|line| !line.starts_with("//"));
    let text = |line: &&str| line.trim_start_matches(['/', '!']).to_owned();
    let blocks = blocks.filter(|block| !block.is_empty());
    blocks
        .map(|block| block.iter().map(text).collect::<Vec<_>>().join("\n"))
        .collect()
}

/// How many hashes a raw string has that begins here.
fn raw(text: &str) -> Option<usize> {
    let rest = text.strip_prefix('r')?;
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    rest[hashes..].starts_with('"').then_some(hashes)
}

/// Where a string ends whose opening quote is before this.
fn closing(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at,
            _ => {}
        }
    }
    text.len()
}

/// The length of a character literal, or of the quote of a lifetime.
fn character(text: &str) -> usize {
    let inside = &text[1..];
    if inside.starts_with('\\') {
        return inside[2..].find('\'').map_or(1, |end| end + 4);
    }
    let length = inside.chars().next().map_or(0, char::len_utf8);
    if inside[length..].starts_with('\'') {
        length + 2
    } else {
        1
    }
}

/// What users read as it is: prose, alerts, dashboards, manifests.
fn documents() -> Vec<PathBuf> {
    let folders = [
        ("docs", ".md"),
        ("docs", ".json"),
        ("deploy", ".md"),
        ("deploy", ".yaml"),
        ("deploy", ".txt"),
        ("deploy", ".service"),
        ("alerts", ".yaml"),
        ("dashboards", ".json"),
        ("examples", ".md"),
        ("examples", ".sh"),
        (".ci", ""),
        (".github", ""),
        ("src/io/report/page", ".js"),
    ];
    let folders = folders
        .into_iter()
        .flat_map(|(folder, ending)| files(folder, ending));
    let top = [
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "fuzz/README.md",
        "deploy/Containerfile",
    ];
    let all = folders.chain(top.map(PathBuf::from));
    // Inputs and names of promtool's tests are nothing that a user reads.
    all.filter(|path| !path.to_string_lossy().ends_with(".test.yaml"))
        .collect()
}

fn is_test(path: &Path) -> bool {
    let named = ["tests.rs", "testing.rs"].iter().any(|name| path.ends_with(name));
    named || path.iter().any(|part| part == "tests")
}

#[test]
fn what_users_and_maintainers_read_is_in_plain_words() {
    let mut wrong = Vec::new();
    let mut accuse = |path: &Path, text: &str| {
        for phrase in found(text) {
            wrong.push(format!("{}: {phrase:?} in {text:.120}", path.display()));
        }
    };
    for path in documents() {
        for paragraph in read(&path).split("\n\n") {
            accuse(&path, paragraph);
        }
    }
    let mut count = 0;
    for path in files("src", ".rs").into_iter().filter(|path| !is_test(path)) {
        let source = read(&path);
        let source = text_of(&shipped(&source));
        for text in literals(&source).into_iter().chain(comments(&source)) {
            count += 1;
            accuse(&path, &text);
        }
    }
    assert!(count > 9000, "only {count} strings and comments were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_banned_phrase_is_found_across_lines_and_not_within_other_words() {
    assert_eq!(found("It stays so until SOMEBODY acts"), ["somebody"]);
    assert_eq!(found("what is\n  to be done"), ["is to be"]);
    assert_eq!(found("`whoever_owns_it`, bypassed-by-hand, anewly"), [""; 0]);
}

#[test]
fn the_strings_of_a_source_are_found_and_its_comments_are_not() {
    let source = "// \"no\"\nlet a = 'x'; let b: &'static str = \"yes\\\" \\\n    it is\"; /* \"no\" */ let c = ['\"', '\\''];\n\
                  for d in [r#\"raw \"quoted\" text\"#, r\"plain\"] { over\"last\" }";
    assert_eq!(
        literals(source),
        ["yes\\\" it is", "raw \"quoted\" text", "plain", "last"]
    );
}

#[test]
fn the_comments_of_a_source_are_found_and_adjacent_lines_are_one() {
    let source = "//! One\n//! line.\nlet a = \"// no\";\n    /// Two.\n    // Three.\n";
    assert_eq!(comments(source), [" One\n line.", " Two.\n Three."]);
}
