//! Links in documents: a relative one leads to a file that exists, and to a heading that it has.

use std::path::{Component, Path, PathBuf};

use crate::{files, prose, read, root};

/// The targets of `[text](target)`.
fn targets(markdown: &str) -> Vec<String> {
    let parts = markdown.split("](").skip(1);
    parts
        .filter_map(|part| part.split_once(')'))
        .map(|(target, _)| target.to_owned())
        .collect()
}

/// The anchors of a document's headings, as GitHub makes them.
fn anchors(markdown: &str) -> Vec<String> {
    let text = prose(markdown);
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let heading = line.trim_start_matches('#').trim().to_lowercase();
            heading
                .chars()
                .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
                .map(|c| if c == ' ' { '-' } else { c })
                .collect()
        })
        .collect()
}

/// Takes `..` out of a path.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                assert!(plain.pop(), "{} leads out of the repository", path.display());
            }
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

#[test]
fn every_relative_link_leads_somewhere() {
    let mut count = 0;
    for document in files("", ".md") {
        for target in targets(&prose(&read(&document))) {
            if target.contains("://") {
                continue;
            }
            count += 1;
            let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let linked = match path {
                "" => document.clone(),
                path => plain(&document.parent().unwrap().join(path)),
            };
            let told = format!("{}: {target}", document.display());
            assert!(root().join(&linked).exists(), "{told} leads nowhere");
            if !anchor.is_empty() {
                let anchors = anchors(&read(&linked));
                assert!(anchors.iter().any(|known| known == anchor), "{told}: {anchors:?}");
            }
        }
    }
    assert!(count > 20, "only {count} links were found");
}
