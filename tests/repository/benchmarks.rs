//! What docs/benchmarks.md repeats of the results that are kept in the repository is what they say.

#[path = "../../examples/benchmarks/document.rs"]
#[allow(dead_code, reason = "the rest is measured by the example alone")]
mod document;
#[path = "../../examples/benchmarks/noise.rs"]
#[allow(dead_code, reason = "the rest is measured by the example alone")]
mod noise;
#[path = "../../examples/benchmarks/stored.rs"]
mod stored;

use super::survival::table as survival;
use super::{read, same_document};

#[test]
fn what_was_measured_elsewhere_is_what_the_results_say() {
    const PATH: &str = "docs/benchmarks.md";
    let text = read(PATH);
    // It is the last section.
    let (before, _) = text.split_once("## Measured elsewhere\n").unwrap();
    let section = stored::measure(false).unwrap();
    same_document(PATH, &format!("{before}{}", section.text()), "benchmarks");
}
