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
    let mut document = table::document(&read_all("docs/survival.jsonl"));
    for (release, name, said) in OLDER {
        let results = read_all(&format!("docs/survival-{release}.jsonl"));
        document.push_str(&on_older(name, said, &results));
    }
    same_document("docs/survival.md", &document, "survival");
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
            let _ = writeln!(text, "| `{name}` | {} |", table::cells(&with).join(" | "));
        }
    }
    text
}
