//! docs/audit.md has every finding and every casualty, as the code has them.

use hookwatch::domain::audit::Function;
use hookwatch::domain::audit::findings::KINDS;

use crate::{quoted, read};

#[test]
fn every_finding_has_its_section_with_its_severity_and_no_other_has_one() {
    let text = read("docs/audit.md");
    let sections = text.split("\n### `").skip(1).map(|section| {
        let (id, rest) = section.split_once("`\n\n").expect("a name alone in the heading");
        (
            id,
            rest.split("\n\n").next().unwrap_or_default().replace('\n', " "),
        )
    });
    let sections: Vec<(&str, String)> = sections.collect();
    let wanted = KINDS.iter().map(|kind| {
        (
            kind.id,
            format!("At most {}. {}.", kind.severity.as_str(), kind.title),
        )
    });
    assert_eq!(sections, wanted.collect::<Vec<_>>());
}

#[test]
fn every_casualty_is_explained() {
    let text = read("docs/audit.md");
    for &function in Function::ALL {
        assert!(
            quoted(&text).contains(&function.as_str()),
            "{}",
            function.as_str()
        );
    }
}
