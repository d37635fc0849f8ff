//! The table of what was lost in outages is what was measured.

#[path = "../../examples/survival/table.rs"]
#[allow(dead_code, reason = "the line for whoever waits is the example's alone")]
pub(super) mod table;

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;

use super::{read, same_document};

/// Older releases, with what is to be said of them.
const OLDER: [(&str, &str, &str); 2] = [
    (
        "1.33",
        "Kubernetes 1.33.13",
        "The same outages with an API server, a controller manager and a scheduler of that release; of the API server that \
         starts meanwhile only the bootstrap writes. The runs are in [survival-1.33.jsonl](survival-1.33.jsonl).",
    ),
    (
        "1.27",
        "Kubernetes 1.27.16",
        "That API server knows no match conditions and no fence, so hookwatch names the culprit and bypasses nothing: a \
         person has to ([break and restore](breaker.md#break-and-restore)). The runs are in [survival-1.27.jsonl](survival-1.27.jsonl).",
    ),
];

#[test]
fn the_table_of_survivors_is_that_of_the_results() {
    let read_all = |path: &str| {
        let results = table::results(&read(path)).unwrap();
        for (name, runs) in &results {
            assert!(
                table::SHAPES.iter().any(|(shape, _)| shape == name),
                "{path}: {name}"
            );
            assert!(runs.iter().all(|run| run["leaders"] == "real"), "{path}: {name}");
        }
        results
    };
    let results = read_all("docs/survival.jsonl");
    keeps_the_control_plane_alive(&results);
    let mut document = table::document(&results);
    for (release, name, said) in OLDER {
        let results = read_all(&format!("docs/survival-{release}.jsonl"));
        document.push_str(&on_older(name, said, &results));
    }
    same_document("docs/survival.md", &document, "survival");
}

#[test]
fn the_readme_says_what_the_results_say() {
    let (readme, results) = (
        read("README.md"),
        table::results(&read("docs/survival.jsonl")).unwrap(),
    );
    for (outage, shape) in [
        (
            "A policy webhook hangs while a second API server starts",
            "gke-opa-outage",
        ),
        ("Two webhooks that ignore failures hang, 10 s each", "ignore-hang"),
        ("The path to every webhook is lost", "path-lost"),
        (
            "The first webhook of a cluster hangs from its first second",
            "first-hook-hang",
        ),
        ("Every backend refuses connections", "validating-refused"),
    ] {
        let bypassed = table::after(&results, &[shape], table::BYPASSED).unwrap();
        let row = format!("| {outage} | {:.1} s | nothing |", bypassed.median);
        assert!(readme.contains(&row), "the README has no {row:?}");
    }
}

/// A leader gives each attempt 5 s and attempts again every 2 s: it lives if a renewal begins after the bypass, and may have
/// begun one just before the fault. What fails at once leaves it 10 s.
fn keeps_the_control_plane_alive(results: &BTreeMap<String, Vec<Value>>) {
    for (field, at_least) in [(table::BYPASSED, 90), (table::WRITES_PASS, 30)] {
        let hanging = table::after(results, &table::HANGING, field).unwrap();
        assert!(hanging.runs >= at_least, "{field}: {hanging:?}");
        let at_once = table::after(results, &table::FAILING_AT_ONCE, field).unwrap();
        assert!(at_once.longest <= 8.0, "{field}: {at_once:?}");
        let lost = table::after(results, &["leader-lost"], field).unwrap();
        for soon in [hanging, lost] {
            assert!(
                soon.median <= 4.0 && soon.p95 <= 4.5 && soon.longest <= 5.0,
                "{field}: {soon:?}"
            );
        }
    }
    for run in results
        .values()
        .flatten()
        .filter(|run| run["with_breaker"] == true)
    {
        let lost = run["casualties"].as_object().unwrap();
        let lost = lost.iter().filter(|(what, _)| *what != "writes_timed_out");
        assert!(lost.into_iter().all(|(_, number)| *number == 0), "{run}");
        assert_eq!(run["innocents_bypassed"], serde_json::json!([]), "{run}");
    }
}

/// The same outages on an older release, as a further section.
fn on_older(release: &str, said: &str, results: &BTreeMap<String, Vec<Value>>) -> String {
    let mut text = format!(
        "\n## On {release}\n\n{said}\n\n\
         | Outage | Runs | Verdict, s | Bypassed, s | First control-plane write begun, s | Lost with hookwatch | Innocents \
         bypassed |\n|---|---|---|---|---|---|---|\n"
    );
    for (name, _) in table::SHAPES {
        let with: Vec<&Value> = results.get(name).into_iter().flatten().collect();
        if !with.is_empty() {
            let [runs, verdict, bypassed, _, begun, lost, innocents] = table::cells(&with);
            let cells = [runs, verdict, bypassed, begun, lost, innocents];
            let _ = writeln!(text, "| `{name}` | {} |", cells.join(" | "));
        }
    }
    text
}
