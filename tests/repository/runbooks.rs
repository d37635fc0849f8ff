//! The runbooks: one for each alert, all of one form.

use std::collections::BTreeSet;

use crate::{alerts, files, prose, read};

const FOLDER: &str = "docs/runbooks";

#[test]
fn every_alert_has_a_runbook_with_its_four_sections_and_every_runbook_an_alert() {
    let mut written = BTreeSet::new();
    for path in files(FOLDER, ".md") {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if name == "README" {
            continue;
        }
        let runbook = prose(&read(&path));
        let headings: Vec<&str> = runbook.lines().filter(|line| line.starts_with('#')).collect();
        let title = format!("# {name}");
        assert_eq!(
            headings,
            [
                title.as_str(),
                "## Meaning",
                "## Impact",
                "## Diagnosis",
                "## Mitigation"
            ],
            "{}",
            path.display()
        );
        written.insert(name);
    }
    assert_eq!(written, alerts::all_names());
}

#[test]
fn the_index_has_every_runbook_and_the_two_ways_out() {
    let index = read("docs/runbooks/README.md");
    for name in alerts::all_names() {
        assert!(index.contains(&format!("[{name}]({name}.md)")), "{name}");
    }
    for heading in [
        "## When hookwatch is gone",
        "## When the API server answers only now and then",
    ] {
        assert!(index.lines().any(|line| line == heading), "{heading}");
    }
}
