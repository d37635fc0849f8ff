//! Links in documents: a relative one leads to a file that exists, and to a heading that it has; one to the outside is at
//! least a link. Nothing is dialled.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use http::Uri;

use crate::{files, prose, read, root};

/// What every document of `docs/` can be reached from.
const INDEX: &str = "docs/README.md";

/// A text without what stands between backquotes.
fn plain_words(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let kept: Vec<&str> = line.split('`').step_by(2).collect();
        kept.join("``")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// `[name]: target` lines.
fn definitions(text: &str) -> BTreeMap<&str, &str> {
    let lines = text.lines().filter_map(|line| line.strip_prefix('['));
    lines.filter_map(|line| line.split_once("]: ")).collect()
}

/// The targets of `[text](target)`, `[text][name]` and `<https://...>`.
fn targets(markdown: &str) -> Vec<String> {
    let text = plain_words(&prose(markdown));
    let definitions = definitions(&text);
    let after = |opening: &'static str, closing: char| {
        let parts = text.split(opening).skip(1);
        parts.filter_map(move |part| part.split_once(closing).map(|(target, _)| target))
    };
    let inline = after("](", ')').map(str::to_owned);
    let named = after("][", ']').map(|name| {
        let target = definitions.get(name);
        (*target.unwrap_or_else(|| panic!("[{name}] is not defined"))).to_owned()
    });
    let bare = after("<http", '>').map(|rest| format!("http{rest}"));
    inline.chain(named).chain(bare).collect()
}

/// The anchors of a document's headings, as GitHub makes them: the second of two equal ones ends in `-1`.
fn anchors(markdown: &str) -> BTreeSet<String> {
    let text = prose(markdown);
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    headings
        .map(|line| {
            let heading = line.trim_start_matches('#').trim().to_lowercase();
            let anchor: String = heading
                .chars()
                .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
                .map(|c| if c == ' ' { '-' } else { c })
                .collect();
            let before = seen.entry(anchor.clone()).or_default();
            *before += 1;
            match *before {
                1 => anchor,
                times => format!("{anchor}-{}", times - 1),
            }
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

fn leads_outside(target: &str) -> bool {
    target.contains("://")
}

/// The file that a relative link in a document leads to, and the heading in it.
fn followed<'a>(document: &Path, target: &'a str) -> (PathBuf, &'a str) {
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let linked = match path {
        "" => document.to_owned(),
        path => plain(&document.parent().unwrap().join(path)),
    };
    (linked, anchor)
}

#[test]
fn every_relative_link_leads_somewhere() {
    let mut count = 0;
    for document in files("", ".md") {
        for target in targets(&read(&document)) {
            if leads_outside(&target) {
                continue;
            }
            count += 1;
            let (linked, anchor) = followed(&document, &target);
            let told = format!("{}: {target}", document.display());
            assert!(root().join(&linked).exists(), "{told} leads nowhere");
            if !anchor.is_empty() {
                let anchors = anchors(&read(&linked));
                assert!(anchors.contains(anchor), "{told}: {anchors:?}");
            }
        }
    }
    assert!(count > 100, "only {count} links were found");
}

#[test]
fn every_link_to_the_outside_is_well_formed() {
    let mut count = 0;
    for document in files("", ".md") {
        for target in targets(&read(&document))
            .iter()
            .filter(|target| leads_outside(target))
        {
            let told = format!("{}: {target}", document.display());
            let url: Uri = target.parse().unwrap_or_else(|error| panic!("{told}: {error}"));
            let host = url.host().unwrap_or_default();
            let here = host == "localhost" || host.starts_with("127.");
            let scheme = url.scheme_str() == Some(if here { "http" } else { "https" });
            assert!(scheme && (here || host.contains('.')), "{told}");
            count += 1;
        }
    }
    assert!(count >= 10, "only {count} links were found");
}

#[test]
fn every_document_can_be_reached_from_the_index() {
    let mut reached = BTreeSet::from([PathBuf::from(INDEX)]);
    let mut left = vec![PathBuf::from(INDEX)];
    while let Some(document) = left.pop() {
        for target in targets(&read(&document)) {
            if leads_outside(&target) {
                continue;
            }
            let (linked, _) = followed(&document, &target);
            let is_document = linked.extension().is_some_and(|ending| ending == "md");
            if reached.insert(linked.clone()) && is_document {
                left.push(linked);
            }
        }
    }
    let lost: Vec<_> = files("docs", "")
        .into_iter()
        .filter(|file| !reached.contains(file))
        .collect();
    assert!(lost.is_empty(), "nothing leads from {INDEX} to {lost:?}");
    let readme = targets(&read("README.md"));
    assert!(
        readme.iter().any(|target| target == INDEX),
        "README.md does not lead to {INDEX}"
    );
}

#[test]
fn links_and_anchors_are_read_as_a_browser_reads_them() {
    let text = "[a](b.md#c) `[no](link)` [d][e] <https://f.example/g>\n\n```sh\n[no](link)\n```\n[e]: h.md\n";
    assert_eq!(targets(text), ["b.md#c", "h.md", "https://f.example/g"]);
    let text = "# One `two`, three\n## Again\n## Again\n```sh\n# no\n```\n";
    let expected = ["one-two-three", "again", "again-1"].map(str::to_owned);
    assert_eq!(anchors(text), BTreeSet::from(expected));
}

/// Tests with a real API server are not run everywhere.
#[test]
fn what_is_played_on_a_real_api_server_is_marked_in_the_documents() {
    let mut documents = files("docs", ".md");
    documents.extend(files("deploy", ".md"));
    let documents: Vec<String> = documents.iter().map(read).collect();
    let mut played = BTreeSet::new();
    for file in files("tests/with_envtest", ".rs") {
        let source = read(file);
        for call in ["documented(\"", "rows(\""] {
            let calls = source.split(call).skip(1);
            played.extend(calls.filter_map(|rest| rest.split_once('"').map(|(name, _)| name.to_owned())));
        }
    }
    assert!(played.len() > 5, "{played:?}");
    for name in played {
        let [begin, end] = ["begin", "end"].map(|side| format!("<!-- {name}:{side} -->\n"));
        let is_marked = |text: &String| {
            text.split_once(&begin)
                .is_some_and(|(_, rest)| rest.contains(&end))
        };
        assert!(documents.iter().any(is_marked), "{begin}");
    }
}
