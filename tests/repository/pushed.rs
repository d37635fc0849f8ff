//! What hookwatch pushes itself is what the rules say, and is kept back where Prometheus says it.

use std::collections::{BTreeMap, BTreeSet};

use hookwatch::domain::report::alerts::{EXPECTED, LABELS, RULES, SOURCE};
use serde_json::Value;

use crate::read;

/// Rules that are for a Prometheus alone, with the label beside the severity; docs/configuration.md lists them.
const NOT_PUSHED: [(&str, Option<(&str, &str)>); 3] = [
    ("HookwatchAbsent", None),
    ("HookwatchHookAtRisk", Some(("risk", "LostCalls"))),
    ("HookwatchBlind", Some(("missing", "probes"))),
];

fn yaml(path: &str) -> Value {
    serde_saphyr::from_str(&read(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key]
        .as_array()
        .unwrap_or_else(|| panic!("{key} is no list in {value}"))
}

#[test]
fn every_alert_that_is_pushed_is_one_of_the_rules() {
    let file = yaml("alerts/hookwatch.rules.yaml");
    let groups = list(&file, "groups").iter();
    let rules: Vec<&Value> = groups.flat_map(|group| list(group, "rules")).collect();
    for pushed in RULES {
        // All labels that the rule sets: one more would be missing from what is pushed.
        let labels: BTreeMap<&str, &str> = [("severity", pushed.severity.as_str())]
            .into_iter()
            .chain(pushed.label)
            .collect();
        let found: Vec<&&Value> = rules
            .iter()
            .filter(|rule| {
                rule["alert"] == pushed.alert && rule["labels"] == serde_json::to_value(&labels).unwrap()
            })
            .collect();
        let [rule] = found.as_slice() else {
            panic!("{pushed:?} is {} of the rules", found.len());
        };
        let span = |key: &str| humantime::parse_duration(rule[key].as_str().unwrap_or("0s")).unwrap();
        assert_eq!(
            (span("for"), span("keep_firing_for")),
            (pushed.hold, pushed.keep),
            "{pushed:?}"
        );
        assert_eq!(rule["annotations"]["runbook_url"], pushed.runbook_url());
        let own = pushed.label.map(|(name, _)| name);
        assert!(own.is_none_or(|name| LABELS.contains(&name)), "{pushed:?}");
        let expression = rule["expr"].as_str().unwrap();
        if pushed.alert == "HookwatchHeldBack" && pushed.label.is_none() {
            let left_out: BTreeSet<&str> = expression
                .split("reason!=\"")
                .skip(1)
                .filter_map(|rest| rest.split_once('"'))
                .map(|(reason, _)| reason)
                .collect();
            let expected: BTreeSet<&str> = EXPECTED.iter().map(|reason| reason.as_str()).collect();
            assert_eq!(left_out, expected);
        }
    }
}

#[test]
fn every_rule_is_pushed_but_those_that_the_documents_leave_to_a_prometheus() {
    let file = yaml("alerts/hookwatch.rules.yaml");
    let rules = list(&file, "groups")
        .iter()
        .flat_map(|group| list(group, "rules"));
    let mut left_out = 0;
    for rule in rules {
        let labels = rule["labels"].as_object().unwrap();
        let own = labels.iter().find(|(name, _)| *name != "severity");
        let own = own.map(|(name, value)| (name.as_str(), value.as_str().unwrap()));
        let name = rule["alert"].as_str().unwrap();
        let pushed = RULES.iter().any(|pushed| {
            pushed.alert == name && pushed.severity.as_str() == labels["severity"] && pushed.label == own
        });
        let not_pushed = NOT_PUSHED.contains(&(name, own));
        assert!(pushed != not_pushed, "{name} {own:?}: pushed: {pushed}");
        left_out += usize::from(not_pushed);
    }
    assert_eq!(left_out, NOT_PUSHED.len());
}

#[test]
fn what_is_pushed_is_kept_back_by_its_twin_whatever_both_see_differently() {
    let file = yaml("alerts/alertmanager-inhibit.yaml");
    let ours = format!("source=\"{SOURCE}\"");
    let rules: Vec<_> = list(&file, "inhibit_rules")
        .iter()
        .filter(|rule| list(rule, "target_matchers").contains(&Value::from(ours.as_str())))
        .collect();
    let [rule] = rules.as_slice() else {
        panic!("one rule keeps back what is pushed, not {}", rules.len());
    };
    assert!(
        !list(rule, "source_matchers").contains(&Value::from(ours)),
        "else replicas would silence each other"
    );
    let equal: BTreeSet<&str> = list(rule, "equal")
        .iter()
        .map(|name| name.as_str().unwrap())
        .collect();
    for needed in [
        "alertname",
        "severity",
        "cluster",
        "kind",
        "configuration",
        "webhook",
        "incident",
    ] {
        assert!(equal.contains(needed), "{needed} is not compared");
    }
    for differs in ["source", "cause", "effect", "state", "job", "instance"] {
        assert!(
            !equal.contains(differs),
            "{differs} may differ between two that mean the same"
        );
    }
}
