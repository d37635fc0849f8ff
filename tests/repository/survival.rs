//! The table of what was lost in outages is what was measured.

#[path = "../../examples/survival/table.rs"]
#[allow(dead_code, reason = "the line for whoever waits is the example's alone")]
mod table;

use super::{read, same_document};

#[test]
fn the_table_of_survivors_is_that_of_the_results() {
    let results = table::results(&read("docs/survival.jsonl")).unwrap();
    for (name, runs) in &results {
        assert!(table::SHAPES.iter().any(|(shape, _)| shape == name), "{name}");
        assert!(runs.iter().all(|run| run["leaders"] == "real"), "{name}");
    }
    same_document("docs/survival.md", &table::document(&results), "survival");
}

/// The releases that outages were played on beside the newest.
const OLDER: [&str; 2] = ["1.27", "1.31"];

#[test]
fn the_tables_of_older_releases_are_those_of_their_results() {
    let mut document = read("docs/versions.md");
    for release in OLDER {
        let results = table::results(&read(&format!("docs/survival-{release}.jsonl"))).unwrap();
        let begin = format!("<!-- survival-{release}:begin -->\n");
        let (before, rest) = document.split_once(&begin).unwrap();
        let (_, after) = rest
            .split_once(&format!("<!-- survival-{release}:end -->"))
            .unwrap();
        document = format!(
            "{before}{begin}{}<!-- survival-{release}:end -->{after}",
            table::played(&results)
        );
    }
    same_document("docs/versions.md", &document, "survival");
}
