//! docs/configuration.md: complete, and right about defaults and ranges.

use std::collections::BTreeSet;

use hookwatch::app::config::{Config, ConfigArguments};

use crate::{fenced, quoted, read};

const DOCUMENT: &str = "docs/configuration.md";

fn parse(text: &str) -> Result<Config, Vec<hookwatch::app::config::ConfigError>> {
    Config::parse(text, &ConfigArguments::default())
}

/// The rows of all tables, each split into its cells.
fn rows(markdown: &str) -> Vec<Vec<&str>> {
    let rows = markdown.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect())
        .collect()
}

/// The rows about keys of the file, by their key.
fn key_rows(markdown: &str) -> Vec<(&str, &str)> {
    let table = markdown
        .split("| Key | Meaning | Allowed |")
        .nth(1)
        .expect("the table of keys");
    let table = table.split("\n\n").next().unwrap_or_default();
    rows(table)
        .into_iter()
        .map(|cells| (cells[0].trim_matches('`'), cells[2]))
        .collect()
}

#[test]
fn every_key_is_documented_and_no_other() {
    let document = read(DOCUMENT);
    let documented: BTreeSet<String> = key_rows(&document)
        .iter()
        .map(|(key, _)| (*key).to_owned())
        .collect();
    assert_eq!(documented, Config::keys());
}

#[test]
fn the_file_with_all_defaults_means_the_same_as_none() {
    let document = read(DOCUMENT);
    let (_, file) = fenced(&document)
        .into_iter()
        .find(|(language, text)| language == "yaml" && text.contains("scrapes:"))
        .expect("the whole file");
    assert_eq!(parse(&file), parse(""));
    // Each key is written out, else its default could not be wrong here.
    for (key, _) in key_rows(&document) {
        if !key.contains("[]") {
            let last = key.rsplit('.').next().unwrap();
            assert!(file.contains(&format!("{last}:")), "{key} is not in the file");
        }
    }
}

#[test]
fn documented_ranges_are_those_in_force() {
    let document = read(DOCUMENT);
    let mut count = 0;
    for (key, allowed) in key_rows(&document) {
        let Some((least, most)) = allowed.split_once(" to ") else {
            continue;
        };
        let (section, key) = key.split_once('.').unwrap();
        let with = |value: &str| parse(&format!("{section}: {{{key}: {value}}}"));
        for value in [least, most] {
            assert!(with(value).is_ok(), "{section}.{key}: {value} is refused");
        }
        // Just beyond: a unit less or more, which for a duration is a millisecond.
        let number = |text: &str, by: i64| match text.parse::<i64>() {
            Ok(number) => (number + by).to_string(),
            Err(_) => {
                let millis = humantime::parse_duration(text).unwrap().as_millis() as i64;
                format!("{}ms", millis + by)
            }
        };
        for value in [number(least, -1), number(most, 1)] {
            assert!(with(&value).is_err(), "{section}.{key}: {value} is taken");
        }
        count += 1;
    }
    assert!(count >= 9, "only {count} ranges were found");
}

#[test]
fn every_flag_and_every_variable_of_the_daemon_is_documented_and_no_other() {
    let document = read(DOCUMENT);
    let (mut flags, mut variables) = (BTreeSet::new(), BTreeSet::new());
    let command = hookwatch::cli::command();
    // Those of single commands are in docs/commands.md, which is made from them.
    let daemon = command.get_subcommands().filter(|it| it.get_name() == "run");
    for command in daemon.chain([&command]) {
        for argument in command.get_arguments() {
            flags.extend(argument.get_long().map(|flag| format!("--{flag}")));
            variables.extend(argument.get_env().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    let documented: BTreeSet<&str> = rows(&document)
        .into_iter()
        .flatten()
        .flat_map(|cell| {
            quoted(cell)
                .into_iter()
                .map(|quoted| quoted.split(' ').next().unwrap_or_default())
        })
        .collect();
    let beginning = |prefix: &str| -> BTreeSet<String> {
        let found = documented.iter().filter(|word| word.starts_with(prefix));
        found.map(|word| (*word).to_owned()).collect()
    };
    assert_eq!(beginning("--"), flags);
    assert_eq!(beginning("HOOKWATCH_"), variables);
}
