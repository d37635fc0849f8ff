//! What an API server counted between two scrapes.

use std::collections::BTreeMap;

use super::ask::Ask;

/// Metric families about hooks, with a `name` label.
const OF_HOOKS: [&str; 6] = [
    "apiserver_admission_webhook_admission_duration_seconds_count",
    "apiserver_admission_webhook_request_total",
    "apiserver_admission_webhook_rejection_count",
    "apiserver_admission_webhook_fail_open_count",
    "apiserver_admission_match_condition_exclusions_total",
    "apiserver_admission_match_condition_evaluation_errors_total",
];
/// Metric families about requests.
pub const REQUESTS: &str = "apiserver_request_total";
const OF_REQUESTS: [&str; 4] = [
    REQUESTS,
    "apiserver_request_duration_seconds_count",
    "apiserver_request_sli_duration_seconds_count",
    "apiserver_request_terminations_total",
];

/// Series by name and labels, labels in alphabetical order.
pub type Counters = BTreeMap<String, f64>;

/// The series that matter for one request: those of the hooks with its operation, and those of its verb and resource. The
/// API server's own writes change other series at any time.
pub fn read(text: &str, hooks: &[String], ask: &Ask) -> Counters {
    let mut counters = Counters::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((series, value)) = line.rsplit_once(' ') else {
            continue;
        };
        let Some((name, labels)) = series
            .split_once('{')
            .map(|(name, labels)| (name, labels.trim_end_matches('}')))
        else {
            continue;
        };
        let labels = split(labels);
        let label = |wanted: &str| {
            labels
                .iter()
                .find(|(name, _)| *name == wanted)
                .map(|(_, value)| *value)
        };
        let of_hook = OF_HOOKS.contains(&name)
            && label("name").is_some_and(|name| hooks.iter().any(|hook| hook == name))
            && label("operation").is_none_or(|operation| operation == ask.operation());
        let of_request = OF_REQUESTS.contains(&name)
            && label("verb") == Some(ask.verb())
            && label("resource") == Some(ask.resource());
        if of_hook || of_request {
            let mut labels: Vec<String> = labels
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            labels.sort();
            counters.insert(
                format!("{name}{{{}}}", labels.join(",")),
                value.parse().unwrap_or_default(),
            );
        }
    }
    counters
}

/// The series that have grown, and by how much.
pub fn gained(before: &Counters, after: &Counters) -> Counters {
    after
        .iter()
        .map(|(series, value)| {
            (
                series.clone(),
                value - before.get(series).copied().unwrap_or_default(),
            )
        })
        .filter(|(_, gained)| *gained != 0.0)
        .collect()
}

/// Label names and values. It does not handle escapes, which these values do not have.
fn split(labels: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut rest = labels;
    while let Some((name, after)) = rest.split_once("=\"") {
        let Some((value, after)) = after.split_once('"') else {
            break;
        };
        found.push((name, value));
        rest = after.trim_start_matches(',');
    }
    found
}
