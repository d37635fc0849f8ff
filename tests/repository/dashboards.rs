//! The dashboards: their files are what the generator writes, and what they query exists.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::exposed::{EXPOSED, names_in, selector, values_of};
use crate::{files, read};

#[path = "../../examples/dashboards/breaker.rs"]
mod breaker;
#[path = "../../examples/dashboards/grafana.rs"]
mod grafana;
#[path = "../../examples/dashboards/overview.rs"]
mod overview;
#[path = "../../examples/dashboards/webhook.rs"]
mod webhook;

/// What is queried of an API server's own metrics: families that Kubernetes 1.36 serves.
const API_SERVER: [&str; 5] = [
    "apiserver_request_duration_seconds_bucket",
    "apiserver_admission_webhook_admission_duration_seconds_bucket",
    "apiserver_admission_webhook_rejection_count",
    "apiserver_admission_webhook_fail_open_count",
    "apiserver_admission_webhook_request_total",
];

fn dashboards() -> Vec<(&'static str, Value)> {
    [
        ("overview.json", overview::dashboard()),
        ("webhook.json", webhook::dashboard()),
        ("breaker.json", breaker::dashboard()),
    ]
    .into_iter()
    .map(|(name, dashboard)| (name, serde_json::to_value(dashboard).unwrap()))
    .collect()
}

fn panels(dashboard: &Value) -> &[Value] {
    dashboard["panels"].as_array().unwrap()
}

/// Every query of a dashboard: of its panels, annotations and variables.
fn queries(dashboard: &Value) -> Vec<String> {
    let of_panels = panels(dashboard)
        .iter()
        .flat_map(|panel| panel["targets"].as_array().unwrap())
        .map(|target| target["expr"].as_str().unwrap());
    let annotations = dashboard["annotations"]["list"].as_array().unwrap();
    let of_annotations = annotations.iter().map(|list| list["expr"].as_str().unwrap());
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let of_variables = variables
        .iter()
        .filter_map(|variable| variable["query"]["query"].as_str());
    of_panels
        .chain(of_annotations)
        .chain(of_variables)
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_file_is_what_the_generator_writes() {
    let written: BTreeSet<String> = files("dashboards", ".json")
        .iter()
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    let made = dashboards();
    let names: BTreeSet<String> = made.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(written, names);
    for (name, made) in made {
        let file: Value = serde_json::from_str(&read(format!("dashboards/{name}"))).unwrap();
        assert_eq!(file, made, "{name}: run `cargo run --example dashboards`");
    }
}

#[test]
fn every_query_looks_at_metrics_labels_and_values_that_exist() {
    for (name, dashboard) in dashboards() {
        for query in queries(&dashboard) {
            for (at, _) in query.match_indices("hookwatch_") {
                let (metric, labels) = selector(&query[at..]);
                let exposed = EXPOSED.get(metric);
                let exposed = exposed.unwrap_or_else(|| panic!("{name}: there is no {metric}"));
                for label in labels.iter().filter(|label| label.name != "cluster") {
                    assert!(
                        exposed.contains(&label.name),
                        "{name}: {metric} has no label {}",
                        label.name
                    );
                    if let Some(values) = values_of(&label.name).filter(|_| label.operator == "=") {
                        assert!(
                            values.contains(&label.value.as_str()),
                            "{name}: {metric} is never {}={:?}",
                            label.name,
                            label.value
                        );
                    }
                }
            }
            let foreign = query
                .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
                .filter(|word| word.starts_with("apiserver_"));
            for word in foreign {
                assert!(API_SERVER.contains(&word), "{name}: {word}");
            }
            assert!(
                !names_in(&query).is_empty() || query.contains("apiserver_"),
                "{name}: {query} looks at nothing"
            );
            // A dashboard for several clusters must not mix them, wherever it looks.
            let selectors = query.matches('{').count();
            let chosen = query.matches("cluster=~\"$cluster\"").count();
            let asks_for_clusters = query.ends_with(", cluster)");
            assert!(asks_for_clusters || selectors == chosen, "{name}: {query}");
        }
    }
}

#[test]
fn a_panel_that_names_a_state_asks_for_the_states_of_now_and_for_none_that_is_over() {
    for (name, dashboard) in dashboards() {
        for panel in panels(&dashboard) {
            let names_a_state = panel["options"]["textMode"] == "name";
            for target in panel["targets"].as_array().unwrap() {
                let is_instant = target["instant"] == true;
                assert_ne!(target["range"], target["instant"]);
                assert_eq!(
                    is_instant,
                    names_a_state || panel["type"] == "table",
                    "{name}: {}",
                    panel["title"]
                );
            }
        }
    }
}

#[test]
fn neither_missing_data_nor_a_stuck_hookwatch_is_shown_as_good_news() {
    for (name, dashboard) in dashboards() {
        for panel in panels(&dashboard) {
            if let Some(said) = panel["fieldConfig"]["defaults"]["noValue"].as_str() {
                assert!(
                    said.ends_with(", or no data"),
                    "{name}: {}: {said}",
                    panel["title"]
                );
            }
            for target in panel["targets"].as_array().unwrap() {
                let query = target["expr"].as_str().unwrap();
                let may_be_good = ["_plane_writes{", "_hook_health{"]
                    .iter()
                    .any(|metric| query.starts_with("max by (cluster, ") && query.contains(metric));
                let is_fresh = query
                    .contains("time() - hookwatch_assessment_timestamp_seconds{cluster=~\"$cluster\"} < 60");
                let names_culprits = query.contains("health=\"failing\"");
                assert!(!may_be_good || is_fresh || names_culprits, "{name}: {query}");
            }
        }
    }
}

#[test]
fn no_cluster_hides_another_one_and_no_replica_one_whose_data_is_old() {
    let of_each = [
        "Control-plane writes",
        "Bypassed",
        "Time per CREATE and UPDATE",
        "Extra time by webhook",
        "Failing webhooks",
        "Failures over time",
        "Other causes",
        "Age of the data",
    ];
    for (name, dashboard) in dashboards() {
        for panel in panels(&dashboard) {
            let title = panel["title"].as_str().unwrap();
            if name == "webhook.json" || name == "overview.json" && !of_each.contains(&title) {
                continue;
            }
            for target in panel["targets"].as_array().unwrap() {
                let query = target["expr"].as_str().unwrap();
                assert!(query.contains(" by (cluster"), "{name}: {title}: {query}");
                let legend = target["legendFormat"].as_str().unwrap();
                let columns = panel["transformations"].to_string();
                let shown = legend.contains("{{cluster}}") || columns.contains("\"cluster\":\"Cluster\"");
                assert!(shown, "{name}: {title} does not say which cluster");
                let is_age = query.starts_with("time() - max");
                assert!(
                    !is_age || query.contains(" by (cluster, instance"),
                    "{title}: {query}"
                );
            }
        }
    }
}

#[test]
fn every_override_is_of_a_column_or_by_a_pattern_that_does_not_want_the_whole_name() {
    for (name, dashboard) in dashboards() {
        for panel in panels(&dashboard) {
            let columns = panel["transformations"].to_string();
            let legends = panel["targets"].as_array().unwrap().iter();
            let legends: Vec<&str> = legends.map(|it| it["legendFormat"].as_str().unwrap()).collect();
            for found in panel["fieldConfig"]["overrides"].as_array().unwrap() {
                let wanted = found["matcher"]["options"].as_str().unwrap();
                let is_there = if panel["type"] == "table" {
                    columns.contains(&format!("{wanted:?}"))
                } else {
                    // What Grafana reads as a pattern within a name, and not as a whole one, stands between slashes.
                    let pattern = wanted
                        .strip_prefix('/')
                        .and_then(|wanted| wanted.strip_suffix("$/"));
                    let ending = pattern.filter(|pattern| pattern.starts_with(' '));
                    let begins = wanted.starts_with("/^") && wanted.ends_with("( |$)/");
                    begins || ending.is_some_and(|ending| legends.iter().any(|it| it.ends_with(ending)))
                };
                assert!(
                    is_there,
                    "{name}: {}: nothing is called {wanted:?}",
                    panel["title"]
                );
            }
        }
    }
}

#[test]
fn every_panel_says_what_it_shows_in_which_unit_and_stands_where_no_other_stands() {
    let mut uids = BTreeSet::new();
    for (name, dashboard) in dashboards() {
        assert!(uids.insert(dashboard["uid"].to_string()), "{name}");
        let colours = dashboard.to_string();
        assert!(
            !colours.contains("\"green\""),
            "{name}: green beside red, to the colour-blind one colour"
        );
        let mut taken = BTreeSet::new();
        let mut titles = BTreeSet::new();
        for panel in panels(&dashboard) {
            let title = panel["title"].as_str().unwrap();
            assert!(titles.insert(title), "{name}: {title} twice");
            let description = panel["description"].as_str().unwrap();
            assert!(description.ends_with('.'), "{name}: {title}: {description:?}");
            let kind = panel["type"].as_str().unwrap();
            let has_unit = panel["fieldConfig"]["defaults"]["unit"].is_string();
            assert!(
                has_unit || ["table", "state-timeline"].contains(&kind),
                "{name}: {title}"
            );
            let at = |key: &str| panel["gridPos"][key].as_u64().unwrap();
            assert!(at("x") + at("w") <= 24, "{name}: {title} is out of the grid");
            for x in at("x")..at("x") + at("w") {
                for y in at("y")..at("y") + at("h") {
                    assert!(taken.insert((x, y)), "{name}: {title} covers another panel");
                }
            }
        }
    }
}
