//! The alerts: what they look at exists, each has a runbook, and promtool has seen them fire and not fire.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use crate::exposed::{EXPOSED, names_in, selector, values_of};
use crate::{files, read, root, skip};

const RULES: &str = "alerts/hookwatch.rules.yaml";
const TESTS: &str = "alerts/hookwatch.test.yaml";
const RUNBOOKS: &str = "https://github.com/hookwatch/hookwatch/blob/main/";

fn yaml(path: &str) -> Value {
    serde_saphyr::from_str(&read(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The elements of a list within an object.
fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key]
        .as_array()
        .unwrap_or_else(|| panic!("{key} is no list in {value}"))
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key]
        .as_str()
        .unwrap_or_else(|| panic!("{key} is no text in {value}"))
}

fn rules() -> Vec<Value> {
    let file = yaml(RULES);
    let groups = list(&file, "groups").iter();
    groups.flat_map(|group| list(group, "rules").to_vec()).collect()
}

/// The names of all alerts; some consist of several rules.
fn alerts() -> BTreeSet<String> {
    rules()
        .iter()
        .map(|rule| text(rule, "alert").to_owned())
        .collect()
}

/// The series of the tests, as written.
fn series() -> Vec<String> {
    let file = yaml(TESTS);
    let tests = list(&file, "tests").iter();
    tests
        .flat_map(|test| list(test, "input_series").to_vec())
        .map(|input| text(&input, "series").to_owned())
        .collect()
}

/// Checks a selector of ours against what the binary exposes.
fn check(where_: &str, told: &str) {
    let (name, labels) = selector(told);
    let exposed = EXPOSED
        .get(name)
        .unwrap_or_else(|| panic!("{where_}: there is no {name}"));
    for label in labels {
        let known = exposed.contains(&label.name) || ["job", "instance"].contains(&label.name.as_str());
        assert!(known, "{where_}: {name} has no label {:?}", label.name);
        if let Some(values) = values_of(&label.name) {
            assert!(
                values.contains(&label.value.as_str()) && !label.operator.contains('~'),
                "{where_}: {name} is never {}={:?}",
                label.name,
                label.value
            );
        }
    }
}

#[test]
fn every_alert_looks_at_metrics_labels_and_values_that_exist() {
    for rule in rules() {
        let (alert, expression) = (text(&rule, "alert"), text(&rule, "expr"));
        assert!(
            !names_in(expression).is_empty(),
            "{alert} looks at nothing of ours"
        );
        for (at, _) in expression.match_indices("hookwatch_") {
            check(alert, &expression[at..]);
        }
        // What stands in the text has to be there as well.
        let annotations = rule["annotations"].to_string();
        for used in annotations.split("$labels.").skip(1) {
            let label = used
                .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
                .next()
                .unwrap();
            let known = label == "instance"
                || names_in(expression)
                    .iter()
                    .any(|name| EXPOSED[name].contains(label));
            assert!(known, "{alert} tells a label {label:?} that it does not have");
        }
    }
}

#[test]
fn the_series_in_the_tests_of_the_alerts_are_whole() {
    for told in series() {
        check(TESTS, &told);
        let (name, labels) = selector(&told);
        let given: BTreeSet<String> = labels.into_iter().map(|label| label.name).collect();
        let wanted: BTreeSet<String> = EXPOSED[name]
            .iter()
            .cloned()
            .chain(["job".to_owned(), "instance".to_owned()])
            .collect();
        assert_eq!(given, wanted, "{told}");
    }
}

#[test]
fn every_alert_says_what_a_person_needs() {
    let rules = rules();
    let names = alerts().len();
    assert!(names < 15, "{names} alerts: who is to know them all?");
    for rule in &rules {
        let alert = text(rule, "alert");
        assert!(alert.starts_with("Hookwatch"), "{alert}");
        assert!(rule["for"].is_string(), "{alert} has no `for`");
        let severity = text(&rule["labels"], "severity");
        assert!(
            ["critical", "warning", "info"].contains(&severity),
            "{alert}: {severity}"
        );
        let annotations = &rule["annotations"];
        for key in ["summary", "description"] {
            assert!(
                text(annotations, key).ends_with('.'),
                "{alert}: {key} is no sentence"
            );
        }
        let runbook = format!("{RUNBOOKS}docs/runbooks/{alert}.md");
        assert_eq!(text(annotations, "runbook_url"), runbook, "{alert}");
    }
}

#[test]
fn every_alert_is_shown_firing_and_not_firing() {
    let file = yaml(TESTS);
    let (mut fires, mut silent) = (BTreeSet::new(), BTreeSet::new());
    for test in list(&file, "tests") {
        for expected in list(test, "alert_rule_test") {
            let fired = expected["exp_alerts"]
                .as_array()
                .is_some_and(|alerts| !alerts.is_empty());
            let seen = if fired { &mut fires } else { &mut silent };
            seen.insert(text(expected, "alertname").to_owned());
        }
    }
    assert_eq!((fires, silent), (alerts(), alerts()));
}

#[test]
fn every_alert_has_a_runbook_with_its_four_sections_and_every_runbook_an_alert() {
    let mut written = BTreeSet::new();
    for path in files("docs/runbooks", ".md") {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let runbook = read(&path);
        let prose = crate::prose(&runbook);
        let headings: Vec<&str> = prose.lines().filter(|line| line.starts_with('#')).collect();
        let title = format!("# {name}");
        assert_eq!(
            headings,
            [
                title.as_str(),
                "## Meaning",
                "## Impact",
                "## Diagnosis",
                "## Mitigation"
            ],
            "{}",
            path.display()
        );
        written.insert(name);
    }
    assert_eq!(written, alerts());
}

#[test]
fn promtool_agrees() {
    if Command::new("promtool").arg("--version").output().is_err() {
        return skip("no promtool on this machine, so the alerts are not tested; it comes with Prometheus");
    }
    for arguments in [["check", "rules", RULES], ["test", "rules", TESTS]] {
        let output = Command::new("promtool")
            .args(arguments)
            .current_dir(root())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "promtool {}: {}{}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
