//! docs/metrics.md is what the code registers, with who looks at it; and nobody looks at anything else.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::LazyLock;

use hookwatch::domain::observe::probe::{ProbeAnswer, ProbeOutcome};
use hookwatch::io::report::metrics::{Declared, Metrics};
use serde_json::Value;
use strum::VariantNames as _;

use crate::bounds::{ANSWERED, Bound, bound, is_per_hook, most_series, samples, unit};
use crate::exposed::{EXPOSED, names_in};
use crate::{files, read, root, same_document};

const DOCUMENT: &str = "docs/metrics.md";

/// Everything that is registered.
pub static DECLARED: LazyLock<Vec<Declared>> = LazyLock::new(|| Metrics::new().unwrap().declared().to_vec());

/// The metric that a name in a query or text belongs to.
pub fn metric_of(name: &str) -> Option<&'static Declared> {
    DECLARED
        .iter()
        .find(|declared| declared.name == name || samples(declared).iter().any(|sample| sample == name))
}

/// Who looks at each metric.
type Uses = BTreeMap<String, BTreeSet<String>>;

fn note(uses: &mut Uses, expression: &str, who: &str) {
    for name in names_in(expression) {
        let metric =
            metric_of(&name).unwrap_or_else(|| panic!("{who} looks at {name}, which does not exist"));
        uses.entry(metric.name.clone())
            .or_default()
            .insert(who.to_owned());
    }
}

/// What the rules of every rule file look at.
fn alerts() -> Uses {
    let mut uses = Uses::new();
    for path in files("alerts", ".rules.yaml") {
        let file: Value = serde_saphyr::from_str(&read(&path)).unwrap();
        for group in file["groups"].as_array().unwrap() {
            for rule in group["rules"].as_array().unwrap() {
                let name = rule["alert"].as_str().or(rule["record"].as_str()).unwrap();
                let runbook = format!("runbooks/{name}.md");
                let who = if root().join("docs").join(&runbook).exists() {
                    format!("[{name}]({runbook})")
                } else {
                    name.to_owned()
                };
                note(&mut uses, rule["expr"].as_str().unwrap(), &who);
            }
        }
    }
    uses
}

/// What the panels, variables and annotations of every dashboard look at.
fn panels() -> Uses {
    let mut uses = Uses::new();
    for path in files("dashboards", ".json") {
        let file: Value = serde_json::from_str(&read(&path)).unwrap();
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        for panel in file["panels"].as_array().unwrap() {
            let who = format!("{stem}: {}", panel["title"].as_str().unwrap());
            for target in panel["targets"].as_array().unwrap() {
                note(&mut uses, target["expr"].as_str().unwrap(), &who);
            }
        }
        for annotation in file["annotations"]["list"].as_array().unwrap() {
            let who = format!("{stem}: annotation {}", annotation["name"].as_str().unwrap());
            note(&mut uses, annotation["expr"].as_str().unwrap_or(""), &who);
        }
        for variable in file["templating"]["list"].as_array().unwrap() {
            let who = format!("{stem}: variable {}", variable["name"].as_str().unwrap());
            note(&mut uses, variable["query"]["query"].as_str().unwrap_or(""), &who);
        }
    }
    uses
}

/// A number as people write it.
fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn document() -> String {
    let most: usize = DECLARED
        .iter()
        .map(|declared| most_series(declared).unwrap())
        .sum();
    let per_hook = DECLARED.iter().filter(|declared| is_per_hook(declared));
    let per_hook: Vec<String> = per_hook.map(|declared| format!("`{}`", declared.name)).collect();
    let mut text = format!(
        "# Metrics\n\n\
         <!-- Written by the tests: `HOOKWATCH_BLESS=1 cargo test --test repository metrics`. -->\n\n\
         What `/metrics` serves. A name, a type, a unit or a label changes only with a line in the changelog.\n\n\
         There are never more than {} series, however many hooks a cluster has and whatever they are called. A hook \
         that is well has nine. At most {} hooks have series of their own: the worst in gauges, the ones probed first \
         in counters. Probes of the others are counted together under `configuration=\"other\", webhook=\"other\"`; \
         `hookwatch_hooks` counts every hook, and `hookwatch_hooks_without_series` those that are left out.\n\n\
         These have series for each hook: {}.\n\n\
         A gauge describes the newest assessment at the moment of the scrape, so a hook that is gone leaves no series \
         behind. Counters begin at 0 when hookwatch starts.\n",
        thousands(most),
        thousands(hookwatch::io::report::metrics::MAX_HOOKS),
        per_hook.join(", "),
    );
    let (alerts, panels) = (alerts(), panels());
    let joined = |uses: &Uses, name: &str| match uses.get(name) {
        Some(who) => who.iter().map(String::as_str).collect::<Vec<_>>().join("; "),
        None => "none".to_owned(),
    };
    for declared in DECLARED.iter() {
        let name = &declared.name;
        let series = most_series(declared).unwrap();
        write!(
            text,
            "\n## {name}\n\n{}\n\n- Type: {} ({}), {} series at most.\n",
            declared.help,
            declared.kind,
            unit(declared),
            thousands(series)
        )
        .unwrap();
        for label in &declared.labels {
            let values = match bound(declared, label).unwrap() {
                Bound::OneOf(values) => values
                    .iter()
                    .map(|value| format!("`{value}`"))
                    .collect::<Vec<_>>()
                    .join(", "),
                Bound::AtMost(1, what) => what.to_owned(),
                Bound::AtMost(most, what) => format!("{what}, at most {most}"),
                Bound::Hook(what) => what.to_owned(),
            };
            writeln!(text, "- Label `{label}`: {values}.").unwrap();
        }
        writeln!(text, "- Alerts: {}.", joined(&alerts, name)).unwrap();
        writeln!(text, "- Dashboards: {}.", joined(&panels, name)).unwrap();
    }
    text
}

#[test]
fn the_document_of_the_metrics_is_what_the_code_registers() {
    same_document(DOCUMENT, &document(), "metrics");
}

#[test]
fn metrics_that_are_registered_and_series_that_are_served_are_the_same() {
    for declared in DECLARED.iter() {
        for sample in samples(declared) {
            let labels = EXPOSED.get(&sample);
            let labels =
                labels.unwrap_or_else(|| panic!("{sample} has no sample in tests/repository/exposed.rs"));
            let labels = labels.iter().filter(|label| *label != "le").cloned();
            let wanted: BTreeSet<String> = declared.labels.iter().cloned().collect();
            assert_eq!(labels.collect::<BTreeSet<_>>(), wanted, "{sample}");
        }
    }
    for sample in EXPOSED.keys() {
        assert!(
            metric_of(sample).is_some(),
            "{sample} is served and not registered"
        );
    }
}

#[test]
fn metrics_that_are_named_anywhere_exist() {
    let named = ["alerts", "dashboards", "deploy", "docs"]
        .iter()
        .flat_map(|folder| [".yaml", ".yml", ".json", ".md"].map(|ending| files(folder, ending)))
        .flatten()
        .chain(["README.md".into(), "CHANGELOG.md".into()]);
    let mut count = 0;
    for path in named {
        for name in names_in(&read(&path)) {
            assert!(
                metric_of(&name).is_some(),
                "{}: there is no {name}",
                path.display()
            );
            count += 1;
        }
    }
    assert!(count > 50, "only {count} names were found");
}

#[test]
fn every_label_of_every_metric_is_bounded() {
    for declared in DECLARED.iter() {
        for label in &declared.labels {
            assert!(
                bound(declared, label).is_some(),
                "say in tests/support/bounds.rs what values {label} of {} can have",
                declared.name
            );
        }
        assert!(most_series(declared).is_some(), "{}", declared.name);
    }
}

#[test]
fn names_end_as_their_kind_demands_and_helps_are_sentences() {
    for declared in DECLARED.iter() {
        let is_counter = declared.kind == "counter";
        assert_eq!(declared.name.ends_with("_total"), is_counter, "{}", declared.name);
        assert!(declared.help.ends_with('.'), "{}", declared.name);
        assert_ne!(declared.kind, "untyped", "{}", declared.name);
    }
}

#[test]
fn no_probe_ends_in_a_way_that_is_not_listed() {
    let why = String::new();
    let answered = [
        ProbeAnswer::Handshake,
        ProbeAnswer::Discovery { status: 500 },
        ProbeAnswer::ReviewRefused { status: 500 },
        ProbeAnswer::NotAnAdmissionReview { why },
    ];
    let answered = answered.map(|answer| ProbeOutcome::Answered(answer).as_str());
    assert_eq!(answered, ANSWERED);
    assert_eq!(ProbeOutcome::VARIANTS[0], "answered");
}
