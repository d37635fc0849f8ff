//! What a release is made of: its notes, its SBOM, the krew manifest, and the workflow that calls for them.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::{files, read, root, skip};

const WORKFLOW: &str = ".github/workflows/release.yaml";

fn script(name: &str, arguments: &[&str]) -> Output {
    Command::new(root().join(".ci").join(name))
        .args(arguments)
        .env_remove("GITHUB_SERVER_URL")
        .env_remove("GITHUB_REPOSITORY")
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn release_notes_are_a_section_of_the_changelog_whose_links_lead_out_of_the_repository() {
    let changelog = read("CHANGELOG.md");
    let headings = changelog.lines().filter_map(|line| line.strip_prefix("## ["));
    for heading in headings {
        let version = heading.split(']').next().unwrap();
        let notes = said(&script("release-notes", &[version]));
        let (_, section) = changelog.split_once(&format!("## [{version}]")).unwrap();
        let section = section.split("\n## ").next().unwrap();
        // The same lines, but for links.
        let words = |text: &str| {
            text.split_whitespace()
                .filter(|word| !word.contains("]("))
                .count()
        };
        let (_, body) = section.split_once('\n').unwrap();
        assert_eq!(words(&notes), words(body), "{version}");
        for link in notes.split("](").skip(1) {
            assert!(link.starts_with("https://"), "{version}: {link:.60}");
        }
    }
    assert!(!script("release-notes", &["9.9.9"]).status.success());
}

#[test]
fn the_krew_manifest_has_the_checksum_of_each_archive_and_none_is_made_up() {
    let folder = tempfile::tempdir().unwrap();
    let sums = folder.path().join("SHA256SUMS");
    let (amd64, arm64) = ("a".repeat(64), "b".repeat(64));
    let text = format!(
        "{amd64}  kubectl-hookwatch-v1.2.3-linux-amd64.tar.gz\n{arm64}  kubectl-hookwatch-v1.2.3-linux-arm64.tar.gz\n"
    );
    std::fs::write(&sums, text).unwrap();
    let krew = |version: &str| script("krew", &[version, sums.to_str().unwrap()]);
    let manifest: Value = serde_saphyr::from_str(&said(&krew("1.2.3"))).unwrap();
    assert_eq!(manifest["kind"], "Plugin");
    // krew takes a plugin by the name that kubectl knows it by.
    assert_eq!(manifest["metadata"]["name"], "hookwatch");
    assert_eq!(manifest["spec"]["version"], "v1.2.3");
    let platforms = manifest["spec"]["platforms"].as_array().unwrap();
    assert_eq!(platforms.len(), 2);
    for (platform, (arch, sum)) in platforms.iter().zip([("amd64", &amd64), ("arm64", &arm64)]) {
        assert_eq!(platform["selector"]["matchLabels"]["arch"], arch);
        assert_eq!(platform["sha256"], **sum);
        assert_eq!(platform["bin"], "kubectl-hookwatch");
        let uri = platform["uri"].as_str().unwrap();
        assert!(
            uri.ends_with(&format!(
                "/releases/download/v1.2.3/kubectl-hookwatch-v1.2.3-linux-{arch}.tar.gz"
            )),
            "{uri}"
        );
    }
    assert!(!krew("1.2.4").status.success(), "a checksum is made up");
}

#[test]
fn the_sbom_has_every_dependency_with_its_licence_and_no_tool_of_the_tests() {
    let output = script("sbom", &[]);
    if !output.status.success() && String::from_utf8_lossy(&output.stderr).contains("jq: command not found") {
        return skip("no jq on this machine, so no SBOM is made");
    }
    let sbom: Value = serde_json::from_str(&said(&output)).unwrap();
    assert_eq!(sbom["bomFormat"], "CycloneDX");
    assert_eq!(
        sbom["metadata"]["component"]["version"],
        env!("CARGO_PKG_VERSION")
    );
    let components = sbom["components"].as_array().unwrap();
    let names: Vec<&str> = components
        .iter()
        .map(|component| component["name"].as_str().unwrap())
        .collect();
    let manifest = read("Cargo.toml");
    let table = |name: &str| {
        let (_, rest) = manifest.split_once(&format!("\n[{name}]\n")).unwrap();
        let lines = rest.lines().take_while(|line| !line.starts_with('['));
        let lines = lines.filter(|line| !line.starts_with('#'));
        let names = lines.filter_map(|line| line.split_once([' ', '.']).map(|(name, _)| name.to_owned()));
        names.collect::<Vec<String>>()
    };
    // Only the lab needs them, and what is released has no lab.
    for name in table("dependencies") {
        let is_linked = !["rcgen", "tempfile"].contains(&name.as_str());
        assert_eq!(names.contains(&name.as_str()), is_linked, "{name}");
    }
    for name in ["boon", "proptest", "prometheus-parse"] {
        assert!(
            table("dev-dependencies").iter().any(|it| it == name) && !names.contains(&name),
            "{name}"
        );
    }
    for component in components {
        assert!(
            component["licenses"][0]["expression"].is_string(),
            "{component} has no licence"
        );
    }
}

/// Every `uses:` and every `run:` of the workflow.
fn steps(workflow: &Value) -> Vec<&Value> {
    let jobs = workflow["jobs"].as_object().unwrap().values();
    jobs.flat_map(|job| job["steps"].as_array().unwrap()).collect()
}

#[test]
fn the_workflow_pins_what_it_uses_and_may_write_only_where_it_publishes() {
    let text = read(WORKFLOW);
    let workflow: Value = serde_saphyr::from_str(&text).unwrap();
    assert_eq!(workflow["permissions"], serde_json::json!({"contents": "read"}));
    for (name, job) in workflow["jobs"].as_object().unwrap() {
        assert!(job["timeout-minutes"].is_u64(), "{name} may go on without end");
        let writes = job["permissions"]["contents"] == "write";
        assert_eq!(writes, name == "release", "{name}");
    }
    let mut used = 0;
    for step in steps(&workflow) {
        if let Some(action) = step["uses"].as_str() {
            let (_, commit) = action.split_once('@').unwrap();
            let is_commit = commit.len() == 40 && commit.chars().all(|c| c.is_ascii_hexdigit());
            assert!(is_commit, "{action} can change under us");
            used += 1;
        }
        if let Some(run) = step["run"].as_str() {
            // What a tag or a variable contains must be data, never part of a script.
            assert!(!run.contains("${{"), "{run}");
            for word in run.split_whitespace().filter(|word| word.starts_with(".ci/")) {
                assert!(root().join(word).exists(), "{word} is not there");
            }
        }
    }
    assert!(used >= 8, "only {used} actions were found");
}

#[test]
fn every_script_of_the_release_says_how_it_is_called() {
    for path in files(".ci", "") {
        let text = read(&path);
        assert!(text.starts_with("#!/usr/bin/env bash\n#"), "{}", path.display());
        assert!(text.contains("set -euo pipefail"), "{}", path.display());
    }
    assert!(Path::new(root()).join(".ci/krew").exists());
}
