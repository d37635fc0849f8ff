//! The webhooks that projects publish: they read without trouble, and what the audit says of them can be acted on.

use std::fs;
use std::path::Path;

use hookwatch::domain::audit::{Auditor, FindingSeverity};
use serde_json::Value;

use super::{audit, estate, found_in};

fn files() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/program/audit/published");
    let mut files: Vec<(String, String)> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, fs::read_to_string(path).unwrap())
        })
        .collect();
    files.sort();
    files
}

#[test]
fn each_names_its_source_and_reads_without_trouble() {
    let files = files();
    assert!(files.len() >= 10);
    for (name, text) in files {
        let header: Vec<&str> = text.lines().take_while(|line| line.starts_with('#')).collect();
        let header = header.join(" ");
        assert!(
            header.contains(" at ") && header.contains("(2026-"),
            "{name}: {header}"
        );
        let (estate, unreadable) = estate(&[&text]);
        assert_eq!(unreadable, [], "{name}");
        assert!(!estate.subjects.is_empty(), "{name}");
        let has_pods = |at: usize| estate.workloads(&estate.subjects[at].hook).next().is_some();
        assert!((0..estate.subjects.len()).any(has_pods), "{name}");
    }
}

#[test]
fn the_patches_of_those_that_take_the_control_plane_along_leave_nothing_critical() {
    let mut patched = 0;
    for (name, text) in files() {
        let (before, _) = estate(&[&text]);
        let auditor = Auditor::new(&before);
        let findings = hookwatch::domain::audit::findings::audit(&auditor);
        let critical = findings
            .iter()
            .filter(|finding| finding.severity == FindingSeverity::Critical);
        let mut documents: Vec<Value> = text
            .split("\n---\n")
            .map(|text| serde_saphyr::from_str(text).unwrap())
            .collect();
        for finding in critical {
            let patch = finding
                .patch
                .clone()
                .unwrap_or_else(|| panic!("{name}: {finding:?}"));
            let configuration = finding.object.split('/').nth(1).unwrap();
            let document = documents
                .iter_mut()
                .find(|document| {
                    document["metadata"]["name"] == configuration
                        && finding.object.starts_with(document["kind"].as_str().unwrap())
                })
                .unwrap();
            let patch: json_patch::Patch = serde_json::from_value(patch).unwrap();
            json_patch::patch(document, &patch).unwrap();
            patched += 1;
        }
        let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": documents}).to_string();
        let (after, unreadable) = estate(&[&list]);
        assert_eq!(unreadable, [], "{name}");
        let left = found_in(&after);
        assert!(
            left.iter()
                .all(|finding| finding.severity < FindingSeverity::Critical),
            "{name}: {left:?}"
        );
    }
    assert!(patched > 0);
}

#[test]
fn a_rule_for_all_resources_of_a_group_costs_tenants_their_writes_of_that_group() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/program/audit/published/cert-manager.yaml");
    let ran = audit(
        &[
            "--kind",
            "validating",
            "--if-down",
            "cert-manager-webhook/webhook.cert-manager.io",
            path.to_str().unwrap(),
        ],
        "",
    );
    assert!(
        ran.out.contains("*.acme.cert-manager.io"),
        "{}{}",
        ran.out,
        ran.err
    );
}
