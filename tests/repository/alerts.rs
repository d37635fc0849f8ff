//! The alerts: what they look at exists, each has a runbook, and promtool has seen them fire and not fire.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::LazyLock;

use serde_json::Value;

use crate::exposed::{EXPOSED, names_in, selector, values_of};
use crate::{files, read, root, skip};

const RULES: &str = "alerts/hookwatch.rules.yaml";
const TESTS: &str = "alerts/hookwatch.test.yaml";
/// The group that needs nothing of ours.
const FOREIGN_RULES: &str = "alerts/apiserver-only.rules.yaml";
const FOREIGN_TESTS: &str = "alerts/apiserver-only.test.yaml";
/// Without labels, and in no recording: nothing was ever counted.
const API_SERVER_PLAIN: [&str; 2] = [
    "apiserver_webhooks_x509_missing_san_total",
    "apiserver_webhooks_x509_insecure_sha1_total",
];

/// What a real API server of Kubernetes 1.36 serves, by sample name with the labels, as far as it was recorded.
static API_SERVER: LazyLock<BTreeMap<String, BTreeSet<String>>> = LazyLock::new(|| {
    let recorded = files("tests/fixtures/recordings", ".prom");
    let whole = ["tests/fixtures/formats/apiserver-1.36.2.prom".into()];
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in recorded.into_iter().chain(whole) {
        for line in read(path).lines().filter(|line| line.starts_with("apiserver_")) {
            let (name, labels) = selector(line);
            let labels = labels.into_iter().map(|label| label.name);
            found.entry(name.to_owned()).or_default().extend(labels);
        }
    }
    for plain in API_SERVER_PLAIN {
        found.entry(plain.to_owned()).or_default();
    }
    found
});
/// Labels that a Prometheus adds: the first two to every series, the third where it has several clusters.
const ADDED: [&str; 3] = ["job", "instance", "cluster"];
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
    rules_of(RULES)
}

fn rules_of(path: &str) -> Vec<Value> {
    let file = yaml(path);
    let groups = list(&file, "groups").iter();
    groups.flat_map(|group| list(group, "rules").to_vec()).collect()
}

/// The names of the alerts of a file; some consist of several rules.
fn alerts_of(path: &str) -> BTreeSet<String> {
    rules_of(path)
        .iter()
        .map(|rule| text(rule, "alert").to_owned())
        .collect()
}

/// The names of all alerts, those that need nothing of ours included.
pub fn all_names() -> BTreeSet<String> {
    let mut names = alerts_of(RULES);
    names.extend(alerts_of(FOREIGN_RULES));
    names
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
        let known = exposed.contains(&label.name) || ADDED.contains(&label.name.as_str());
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
        for name in names_in(&annotations) {
            assert!(EXPOSED.contains_key(&name), "{alert}: there is no {name}");
        }
        for used in annotations.split("$labels.").skip(1) {
            let label = used
                .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
                .next()
                .unwrap();
            let known = ADDED.contains(&label)
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
        let given: BTreeSet<String> = labels
            .into_iter()
            .map(|label| label.name)
            .filter(|name| name != "cluster")
            .collect();
        let wanted: BTreeSet<String> = EXPOSED[name]
            .iter()
            .cloned()
            .chain(["job".to_owned(), "instance".to_owned()])
            .collect();
        assert_eq!(given, wanted, "{told}");
    }
}

#[test]
fn every_group_is_evaluated_often_enough_for_its_shortest_wait_to_be_as_long_as_it_says() {
    for path in [RULES, FOREIGN_RULES] {
        let file = yaml(path);
        for group in list(&file, "groups") {
            let span = |text: &str| humantime::parse_duration(text).unwrap().as_secs();
            let interval = span(text(group, "interval"));
            let waits = list(group, "rules").iter().map(|rule| span(text(rule, "for")));
            let shortest = waits.filter(|wait| *wait > 0).min().unwrap();
            assert_eq!(shortest % interval, 0, "{path}: {}", group["name"]);
        }
    }
}

#[test]
fn every_join_and_every_look_up_stays_within_its_cluster() {
    for rule in rules().into_iter().chain(rules_of(FOREIGN_RULES)) {
        let (alert, expression) = (text(&rule, "alert"), text(&rule, "expr"));
        for joined in expression.split("on (").skip(1) {
            let (labels, _) = joined.split_once(')').unwrap();
            assert!(
                labels.split(", ").any(|label| label == "cluster"),
                "{alert}: {labels}"
            );
        }
        let annotations = text(&rule["annotations"], "summary").to_owned();
        let annotations = annotations + text(&rule["annotations"], "description");
        // What is looked up stands between backquotes.
        for looked_up in annotations.split('`').skip(1).step_by(2) {
            let metrics = looked_up.matches("hookwatch_").count() + looked_up.matches("apiserver_").count();
            let selected = looked_up.matches("{cluster=%").count();
            assert_eq!(selected, metrics, "{alert} looks in all clusters: {looked_up}");
        }
    }
}

#[test]
fn every_alert_says_what_a_person_needs() {
    for (file, prefix) in [(RULES, "Hookwatch"), (FOREIGN_RULES, "ApiServer")] {
        let names = alerts_of(file).len();
        assert!(names <= 15, "{names} alerts: who is to know them all?");
        for rule in rules_of(file) {
            let alert = text(&rule, "alert");
            assert!(alert.starts_with(prefix), "{alert}");
            says_what_a_person_needs(&rule);
        }
    }
}

fn says_what_a_person_needs(rule: &Value) {
    let alert = text(rule, "alert");
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

#[test]
fn every_alert_is_shown_firing_and_not_firing() {
    for (rules, tests) in [(RULES, TESTS), (FOREIGN_RULES, FOREIGN_TESTS)] {
        let file = yaml(tests);
        let (mut fires, mut silent) = (BTreeSet::new(), BTreeSet::new());
        // Rules of one name are told apart by their static labels: each has to have fired.
        let mut unseen: Vec<Value> = rules_of(rules);
        for test in list(&file, "tests") {
            for expected in list(test, "alert_rule_test") {
                let name = text(expected, "alertname");
                let fired = expected["exp_alerts"].as_array().cloned().unwrap_or_default();
                let seen = if fired.is_empty() { &mut silent } else { &mut fires };
                seen.insert(name.to_owned());
                for alert in &fired {
                    unseen.retain(|rule| {
                        let mut labels = rule["labels"].as_object().unwrap().iter();
                        text(rule, "alert") != name
                            || !labels.all(|(label, value)| alert["exp_labels"][label] == *value)
                    });
                }
            }
        }
        assert_eq!((fires, silent), (alerts_of(rules), alerts_of(rules)), "{tests}");
        assert!(unseen.is_empty(), "{tests}: never seen firing: {unseen:#?}");
    }
}

#[test]
fn the_alerts_that_need_nothing_of_ours_look_at_what_an_api_server_serves() {
    let words = |text: &str| -> Vec<String> {
        text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
            .filter(|word| word.starts_with("apiserver_"))
            .map(str::to_owned)
            .collect()
    };
    for rule in rules_of(FOREIGN_RULES) {
        let whole = format!("{rule}");
        assert!(names_in(&whole).is_empty(), "{rule}");
        for word in words(&whole) {
            assert!(API_SERVER.contains_key(&word), "there is no {word}");
        }
    }
    for test in list(&yaml(FOREIGN_TESTS), "tests") {
        for input in list(test, "input_series") {
            let told = text(input, "series");
            let name = words(told).remove(0);
            let known = API_SERVER
                .get(&name)
                .unwrap_or_else(|| panic!("there is no {name}"));
            let given = selector(told).1.into_iter().map(|label| label.name);
            let given: BTreeSet<String> = given.filter(|name| name != "cluster").collect();
            let added = ["job", "instance"].map(str::to_owned);
            assert_eq!(given, known.iter().cloned().chain(added).collect(), "{told}");
        }
    }
}

#[test]
fn promtool_agrees() {
    if Command::new("promtool").arg("--version").output().is_err() {
        return skip("no promtool on this machine, so the alerts are not tested; it comes with Prometheus");
    }
    for arguments in [
        ["check", "rules", RULES],
        ["test", "rules", TESTS],
        ["check", "rules", FOREIGN_RULES],
        ["test", "rules", FOREIGN_TESTS],
    ] {
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
