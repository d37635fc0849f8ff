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
