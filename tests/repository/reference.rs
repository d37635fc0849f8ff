//! docs/commands.md is what the command line declares.

use std::fmt::Write;

use clap::{Arg, ArgAction, Command};

use crate::same_document;

const DOCUMENT: &str = "docs/commands.md";

/// A text that may stand in a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace("\n\n", ". ").replace('\n', " ")
}

/// What is typed: `--flag VALUE`, or the name of what stands in a place.
fn typed(argument: &Arg) -> String {
    let name = |long: Option<&str>| match (long, argument.get_short()) {
        (Some(long), Some(short)) => format!("-{short}, --{long}"),
        (Some(long), None) => format!("--{long}"),
        (None, Some(short)) => format!("-{short}"),
        (None, None) => String::new(),
    };
    let takes_value = matches!(argument.get_action(), ArgAction::Set | ArgAction::Append);
    let values: Vec<&str> = argument
        .get_value_names()
        .unwrap_or_default()
        .iter()
        .map(|name| name.as_str())
        .collect();
    let values = values.join(" ");
    let optional = argument
        .get_num_args()
        .is_some_and(|range| range.min_values() == 0);
    match (argument.is_positional(), takes_value, optional) {
        (true, ..) => values,
        (false, true, true) => format!("{}[={values}]", name(argument.get_long())),
        (false, true, false) => format!("{} {values}", name(argument.get_long())),
        (false, false, _) => name(argument.get_long()),
    }
}

/// What it means, and what is taken for it.
fn meaning(argument: &Arg) -> String {
    let help = argument.get_long_help().or(argument.get_help());
    let mut text = help.map(ToString::to_string).unwrap_or_default();
    let possible = argument.get_possible_values();
    let possible: Vec<String> = possible
        .iter()
        .filter(|value| !value.is_hide_set())
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    if !possible.is_empty() && argument.get_action().takes_values() {
        write!(text, ": {}", possible.join(", ")).unwrap();
    }
    text
}

fn rows<'a>(arguments: impl Iterator<Item = &'a Arg>) -> String {
    let mut text = String::new();
    for argument in arguments {
        let defaults = argument.get_default_values();
        let default: Vec<_> = defaults
            .iter()
            .map(|value| format!("`{}`", value.to_string_lossy()))
            .collect();
        let default = if argument.get_action().takes_values() {
            default.join(" ")
        } else {
            String::new()
        };
        let variable = argument
            .get_env()
            .map(|name| format!("`{}`", name.to_string_lossy()));
        writeln!(
            text,
            "| `{}` | {} | {} | {} |",
            cell(&typed(argument)),
            cell(&meaning(argument)),
            cell(&default),
            variable.unwrap_or_default()
        )
        .unwrap();
    }
    text
}

fn table<'a>(arguments: impl Iterator<Item = &'a Arg>) -> String {
    let rows = rows(arguments);
    if rows.is_empty() {
        String::new()
    } else {
        format!("| Argument | Meaning | Default | Variable |\n|---|---|---|---|\n{rows}\n")
    }
}

fn section(command: &Command, of_all: &[&str]) -> String {
    let name = command.get_name();
    let about = command.get_long_about().or(command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    // The first line is a heading of its own in --help, and has no full stop.
    let (first, rest) = about.split_once('\n').unwrap_or((&about, ""));
    let mut text = format!("## {name}\n\n{}.\n\n", first.trim_end_matches('.'));
    let rest = rest.trim();
    if !rest.is_empty() {
        writeln!(text, "{rest}\n").unwrap();
    }
    let usage = command
        .clone()
        .bin_name(format!("hookwatch {name}"))
        .render_usage()
        .to_string();
    writeln!(text, "```text\n{}\n```\n", usage.trim_start_matches("Usage: ")).unwrap();
    let own = command
        .get_arguments()
        .filter(|argument| !argument.is_hide_set() && !of_all.contains(&argument.get_id().as_str()));
    text.push_str(&table(own));
    text
}

/// What each command's exit code means: 0, 1, 2, 3.
const EXITS: [(&str, [&str; 4]); 14] = [
    ("run", ["stopped by a signal", "failed", "", ""]),
    (
        "diagnose",
        [
            "healthy",
            "a webhook is failing",
            "could not tell",
            "writes are impaired and no webhook is to blame",
        ],
    ),
    (
        "audit",
        [
            "no finding, or none worse than info",
            "a warning",
            "a critical finding",
            "nothing could be audited",
        ],
    ),
    (
        "status",
        [
            "healthy",
            "a webhook is failing",
            "could not tell, or no daemon answers",
            "writes are impaired and no webhook is to blame",
        ],
    ),
    ("top", ["closed", "failed", "", ""]),
    (
        "demo",
        [
            "the verdict was right",
            "the verdict was wrong, or the demo failed",
            "",
            "",
        ],
    ),
    ("replay", ["replayed", "failed", "", ""]),
    ("break", ["done", "not done", "", ""]),
    (
        "restore",
        [
            "done, or nothing to do",
            "something could not be restored",
            "",
            "",
        ],
    ),
    ("plan", ["shown", "failed", "", ""]),
    ("unchecked", ["listed", "not everything could be listed", "", ""]),
    ("freeze", ["done", "not done", "", ""]),
    ("unfreeze", ["done", "not done", "", ""]),
    ("check-config", ["valid", "", "", ""]),
];

fn exits() -> String {
    let mut text = "## Exit codes\n\n| Command | 0 | 1 | 2 | 3 |\n|---|---|---|---|---|\n".to_owned();
    for (command, codes) in EXITS {
        writeln!(text, "| `{command}` | {} |", codes.join(" | ")).unwrap();
    }
    text + "\n64 is bad usage, of every command: an unknown flag, a mistake in the configuration, an unusable kubeconfig. 77 is a demo that cannot \
            run here: a missing program, or a scenario that the control plane cannot play.\n\n"
}

#[test]
fn every_command_has_its_exit_codes() {
    let command = hookwatch::cli::command();
    let commands = command.get_subcommands().map(Command::get_name);
    let documented = EXITS.map(|(command, _)| command);
    assert_eq!(
        commands.filter(|name| *name != "help").collect::<Vec<_>>(),
        documented
    );
    // Where the help of a command has them too, it has as many.
    for command in command.get_subcommands() {
        let about = command
            .get_long_about()
            .map(ToString::to_string)
            .unwrap_or_default();
        let Some((_, told)) = about.split_once("Exit code") else {
            continue;
        };
        let (_, codes) = EXITS
            .iter()
            .find(|(name, _)| *name == command.get_name())
            .unwrap();
        for (code, meaning) in codes.iter().enumerate() {
            let is_told = told
                .split(|c: char| !c.is_ascii_digit())
                .any(|word| word == code.to_string());
            assert_eq!(is_told, !meaning.is_empty(), "{} {code}", command.get_name());
        }
    }
}

fn document() -> String {
    let mut command = hookwatch::cli::command();
    command.build();
    let automatic = ["help", "version"];
    let global: Vec<&Arg> = command
        .get_arguments()
        .filter(|argument| argument.is_global_set())
        .collect();
    let of_all: Vec<&str> = global
        .iter()
        .map(|argument| argument.get_id().as_str())
        .chain(automatic)
        .collect();
    let global = global
        .into_iter()
        .filter(|argument| !automatic.contains(&argument.get_id().as_str()));
    let mut text = format!(
        "# Commands\n\n\
         <!-- Written by the tests: `HOOKWATCH_BLESS=1 cargo test --test repository reference`. -->\n\n\
         Every command with its arguments, as `--help` prints them. [Configuration](configuration.md) says which key of the \
         configuration file each flag overrides. [JSON schemas](schemas/README.md) describe what the commands print for programs.\n\n\
         {}## All commands\n\n{}",
        exits(),
        table(global)
    );
    let commands = command
        .get_subcommands()
        .filter(|command| !command.is_hide_set() && command.get_name() != "help");
    for command in commands {
        text.push_str(&section(command, &of_all));
    }
    format!("{}\n", text.trim_end())
}

#[test]
fn the_commands_and_their_document_are_the_same() {
    same_document(DOCUMENT, &document(), "reference");
}

#[test]
fn every_argument_says_what_it_means() {
    for command in hookwatch::cli::command().get_subcommands() {
        for argument in command.get_arguments() {
            let told = format!("{} {}", command.get_name(), argument.get_id());
            assert!(
                argument
                    .get_help()
                    .is_some_and(|help| !help.to_string().is_empty()),
                "{told}"
            );
        }
    }
}
