//! Reads objects from files, folders and standard input: multi-document YAML, JSON, lists, rendered charts. Never uses the
//! network.
//!
//! A document that cannot be read is reported with file and line; the others are still read.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use super::{EstateObject, UnreadableObject};
use crate::domain::audit::SourceLocation;
use crate::io::client::request::items;

/// Most bytes of all files together: 100 MiB.
pub const MAX_BYTES: u64 = 100 * 1024 * 1024;
/// Most files of one folder, including its subfolders.
const MAX_FILES: usize = 10_000;
/// Deepest level of subfolders that is read.
const MAX_DEPTH: usize = 32;
/// Most values of one YAML document; an anchor counts at each use, because anchors can expand a short text without limit.
/// Enough for a list of some ten thousand objects.
const MAX_NODES: usize = 600_000;
/// Most parser events of one YAML document.
const MAX_EVENTS: usize = 2_500_000;
/// Most unreadable documents that are reported.
const MAX_TOLD: usize = 200;
/// The start of an action in a Go template, as in a Helm chart.
const BRACES: &str = "{{";
/// Kinds in which [`BRACES`] mean an unrendered template. Other kinds may contain braces for reasons of their own, for example
/// the descriptions in a CustomResourceDefinition.
const READ: [&str; 9] = [
    "ValidatingWebhookConfiguration",
    "MutatingWebhookConfiguration",
    "Namespace",
    "Service",
    "EndpointSlice",
    "Deployment",
    "StatefulSet",
    "DaemonSet",
    "PodDisruptionBudget",
];

/// The objects read so far, and what could not be read.
#[derive(Debug, Default)]
pub struct Manifests {
    /// The objects in the order in which they were read.
    pub objects: Vec<EstateObject>,
    /// The documents and files that could not be read, at most 200.
    pub unreadable: Vec<UnreadableObject>,
    /// Bytes that may still be read.
    left: u64,
}

/// Reads files, folders (their `.yaml`, `.yml` and `.json` files, recursively, sorted by path) and `-`, standard input.
pub fn read(paths: &[PathBuf]) -> Manifests {
    let mut manifests = Manifests {
        left: MAX_BYTES,
        ..Manifests::default()
    };
    for path in paths {
        if path == Path::new("-") {
            manifests.stream("-", io::stdin().lock());
        } else if path.is_dir() {
            let mut files = Vec::new();
            manifests.walk(path, 0, &mut files);
            files.into_iter().for_each(|file| manifests.file(&file));
        } else {
            manifests.file(path);
        }
    }
    manifests
}

impl Manifests {
    fn refuse(&mut self, file: &str, line: usize, why: String) {
        if self.unreadable.len() == MAX_TOLD {
            return;
        }
        self.unreadable.push(UnreadableObject {
            source: Some(SourceLocation {
                file: file.to_owned(),
                line,
            }),
            object: "document".to_owned(),
            why,
        });
    }

    fn walk(&mut self, folder: &Path, depth: usize, files: &mut Vec<PathBuf>) {
        let listed = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let mut entries = match listed {
            Ok(entries) => entries,
            Err(error) => {
                return self.refuse(
                    &folder.display().to_string(),
                    1,
                    format!("it cannot be listed: {error}"),
                );
            }
        };
        entries.sort_by_key(fs::DirEntry::path);
        for entry in entries {
            let path = entry.path();
            // Symbolic links to folders are not followed: they may form a loop.
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let ending = path.extension().and_then(|ending| ending.to_str());
            let is_manifest = matches!(ending, Some("yaml" | "yml" | "json"));
            let why = if is_folder && depth < MAX_DEPTH {
                self.walk(&path, depth + 1, files);
                continue;
            } else if is_folder {
                format!("folders more than {MAX_DEPTH} levels down are not read")
            } else if !is_manifest {
                continue;
            } else if files.len() < MAX_FILES {
                files.push(path);
                continue;
            } else {
                format!("only {MAX_FILES} files of a folder are read")
            };
            self.refuse(&path.display().to_string(), 1, why);
            if !is_folder {
                return;
            }
        }
    }

    fn file(&mut self, path: &Path) {
        let name = path.display().to_string();
        match File::open(path) {
            Ok(file) => self.stream(&name, file),
            Err(error) => self.refuse(&name, 1, format!("it cannot be opened: {error}")),
        }
    }

    fn stream(&mut self, name: &str, from: impl Read) {
        let mut bytes = Vec::new();
        if let Err(error) = from.take(self.left + 1).read_to_end(&mut bytes) {
            return self.refuse(name, 1, format!("it cannot be read: {error}"));
        }
        let length = bytes.len() as u64;
        if length > self.left {
            let why = format!(
                "more than {} MB in all are not read; audit fewer files at a time",
                MAX_BYTES >> 20
            );
            return self.refuse(name, 1, why);
        }
        self.left -= length;
        match String::from_utf8(bytes) {
            Ok(text) => self.text(name, &text),
            Err(error) => {
                let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
                let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
                self.refuse(name, line, "it is not UTF-8 text".to_owned());
            }
        }
    }

    /// Reads the content of a file. `name`: the file's name for reports.
    pub fn text(&mut self, name: &str, text: &str) {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        if text.trim_start().starts_with('{') && !text.trim_start().starts_with(BRACES) {
            return self.json(name, text);
        }
        for (first, document) in documents(text) {
            self.document(name, first, document);
        }
    }

    /// Reads a stream of JSON values.
    fn json(&mut self, name: &str, text: &str) {
        let (lines, before) = (Arc::new(names(text, 1)), self.objects.len());
        for value in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
            match value {
                Ok(value) => self.object(name, 1, value, &lines),
                // A single line may be YAML in flow style, which looks like JSON.
                Err(_) if self.objects.len() == before && text.lines().nth(1).is_none() => {
                    return self.document(name, 1, text);
                }
                Err(error) => return self.refuse(name, error.line(), format!("it is not JSON: {error}")),
            }
        }
    }

    /// Reads one YAML document. `first`: the line in the file at which it begins, from 1.
    fn document(&mut self, name: &str, first: usize, document: &str) {
        let is_empty = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
        if document.lines().all(is_empty) {
            return;
        }
        let braces = document
            .lines()
            .position(|line| line.contains(BRACES) && !is_empty(line));
        let is_read = || {
            let kind = document.lines().find_map(|line| line.strip_prefix("kind:"));
            kind.is_none_or(|kind| READ.contains(&kind.trim().trim_matches(['"', '\''])))
        };
        let options = serde_saphyr::options! {
            budget: serde_saphyr::budget! { max_nodes: MAX_NODES, max_events: MAX_EVENTS },
        };
        let read = serde_saphyr::from_str_with_options::<Value>(document, options);
        match (read, braces) {
            (Ok(value), at) if at.is_none() || !is_read() => {
                // The object begins after comments and empty lines.
                let skipped = document.lines().take_while(|line| is_empty(line)).count();
                self.object(name, first + skipped, value, &Arc::new(names(document, first)));
            }
            (Err(error), None) => {
                let line = error.location().map_or(1, |location| location.line() as usize);
                let said = error.to_string();
                let said = said.lines().next().unwrap_or_default();
                let why = if said.contains("budget breached") {
                    format!("it is too large for YAML, split it or write it as JSON: {said}")
                } else {
                    format!("it is not YAML: {said}")
                };
                self.refuse(name, first + line - 1, why);
            }
            (_, at) => {
                let why = "it is a template: render it first (helm template, kustomize build)";
                self.refuse(name, first + at.unwrap_or_default(), why.to_owned());
            }
        }
    }

    /// Adds an object, or the items of a list.
    fn object(&mut self, name: &str, line: usize, mut value: Value, lines: &Arc<BTreeMap<String, usize>>) {
        let kind = value["kind"].as_str().and_then(|kind| kind.strip_suffix("List"));
        let Some(kind) = kind.filter(|_| value["items"].is_array()).map(str::to_owned) else {
            if !value.is_null() {
                self.push(name, line, value, lines);
            }
            return;
        };
        let version = value["apiVersion"].clone();
        for mut item in items(&mut value) {
            // Items of a typed list such as ServiceList need no kind of their own.
            if let Some(item) = item.as_object_mut().filter(|_| !kind.is_empty()) {
                item.entry("kind").or_insert_with(|| kind.as_str().into());
                item.entry("apiVersion").or_insert_with(|| version.clone());
            }
            self.push(name, line, item, lines);
        }
    }

    fn push(&mut self, name: &str, line: usize, value: Value, lines: &Arc<BTreeMap<String, usize>>) {
        if !value.is_object() || value["kind"].as_str().is_none() {
            return self.refuse(
                name,
                line,
                "it is no object of Kubernetes: it has no kind".to_owned(),
            );
        }
        self.objects.push(EstateObject {
            value,
            source: Some(SourceLocation {
                file: name.to_owned(),
                line,
            }),
            lines: Arc::clone(lines),
        });
    }
}

/// The documents of a YAML stream, each with the line at which it begins, from 1.
fn documents(text: &str) -> Vec<(usize, &str)> {
    let (mut found, mut begin, mut first, mut at) = (Vec::new(), 0, 1, 0);
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let bare = line.trim_end();
        // Content may follow the marker. Only unindented markers count: one inside a block scalar is indented.
        let is_marker = bare == "---" || bare.starts_with("--- ") || bare == "...";
        at += line.len();
        if is_marker {
            found.push((first, &text[begin..at - line.len()]));
            let rest = if bare.starts_with("--- ") && !bare[4..].trim_start().starts_with('#') {
                line.len() - 4
            } else {
                0
            };
            begin = at - rest;
            first = number + if rest == 0 { 2 } else { 1 };
        }
    }
    found.push((first, &text[begin..]));
    found
}

/// The line of the first `name` field with each value. `first`: the line of the file at which the document begins.
fn names(document: &str, first: usize) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for (at, line) in document.lines().enumerate() {
        let field = line.trim_start().trim_start_matches("- ").trim_start();
        let value = field
            .strip_prefix("name:")
            .or_else(|| field.strip_prefix("\"name\":"));
        if let Some(value) = value {
            let value = value.trim().trim_end_matches(',').trim_matches(['"', '\'']);
            found.entry(value.to_owned()).or_insert(first + at);
        }
    }
    found
}
