//! How it prints, and the baseline.

use std::path::Path;

use hookwatch::domain::audit::findings::KINDS;
use serde_json::Value;

use super::{audit, example};

fn opa() -> String {
    example("gke-opa-outage.yaml").to_str().unwrap().to_owned()
}

#[test]
fn json_has_the_keys_that_are_promised_and_no_others() {
    let ran = audit(&["--output", "json", &opa()], "");
    let document: Value = serde_json::from_str(&ran.out).unwrap();
    let keys = |value: &Value| {
        let mut keys: Vec<String> = value.as_object().unwrap().keys().cloned().collect();
        keys.sort_unstable();
        keys.join(" ")
    };
    assert_eq!(keys(&document), "findings forecasts");
    for finding in document["findings"].as_array().unwrap() {
        assert_eq!(keys(finding), "id message object patch severity");
        assert!(KINDS.iter().any(|kind| finding["id"] == kind.id), "{finding}");
    }
    for forecast in document["forecasts"].as_array().unwrap() {
        assert_eq!(keys(forecast), "casualties configuration if webhook");
        for casualty in forecast["casualties"].as_array().unwrap() {
            assert_eq!(keys(casualty), "after_seconds what");
        }
    }
}

#[test]
fn sarif_names_file_line_and_rule() {
    let ran = audit(&["--output", "sarif", &opa()], "");
    let document: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(document["version"], "2.1.0");
    let run = &document["runs"][0];
    let rules: Vec<&Value> = run["tool"]["driver"]["rules"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rule| &rule["id"])
        .collect();
    assert_eq!(rules.len(), KINDS.len());
    for result in run["results"].as_array().unwrap() {
        assert!(rules.contains(&&result["ruleId"]));
        let place = &result["locations"][0]["physicalLocation"];
        assert!(
            place["artifactLocation"]["uri"]
                .as_str()
                .unwrap()
                .ends_with("gke-opa-outage.yaml")
        );
        assert!(place["region"]["startLine"].as_u64().unwrap() > 1);
    }
    assert_eq!(run["results"][0]["level"], "error");
}

#[test]
fn junit_counts_what_fails_and_what_is_told_only() {
    let ran = audit(&["--output", "junit", &opa()], "");
    let count = |what: &str| ran.out.matches(what).count();
    assert!(ran.out.starts_with("<?xml"));
    assert!(
        ran.out.contains(&format!(
            "failures=\"{}\" skipped=\"{}\"",
            count("<failure "),
            count("<skipped ")
        )),
        "{}",
        ran.out
    );
    assert!(count("<failure ") > 1);
    let ran = audit(
        &["--output", "junit", example("well-scoped.yaml").to_str().unwrap()],
        "",
    );
    assert!(ran.out.contains("tests=\"1\" failures=\"0\""), "{}", ran.out);
}

#[test]
fn what_is_accepted_in_a_baseline_is_told_no_more_and_what_is_new_is() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("audit-baseline.json");
    let path = path.to_str().unwrap();
    let ran = audit(&["--write-baseline", path, &opa()], "");
    assert_eq!(ran.code, 0, "{}", ran.err);
    let ran = audit(&["--baseline", path, &opa()], "");
    assert_eq!(ran.code, 0, "{}", ran.out);
    assert!(ran.out.contains("accepted by the baseline"), "{}", ran.out);
    let other = example("zone-lost.yaml");
    let ran = audit(&["--baseline", path, &opa(), other.to_str().unwrap()], "");
    assert_eq!(ran.code, 1);
    assert!(
        ran.out.contains("long-timeout") && !ran.out.contains("one-replica"),
        "{}",
        ran.out
    );
    let first = opa();
    let both = [&*first, other.to_str().unwrap()];
    let again = ["--baseline", path, "--write-baseline", path];
    let ran = audit(&[&again[..], &both].concat(), "");
    assert_eq!(ran.code, 0, "{}", ran.err);
    let ran = audit(&["--baseline", path, both[0], both[1]], "");
    assert_eq!(ran.code, 0, "what was accepted first stays so: {}", ran.out);
    let ran = audit(&["--baseline", "/nonexistent", &opa()], "");
    assert_eq!(ran.code, 64);
}

#[test]
fn a_baseline_accepts_up_to_the_severity_that_it_was_written_with() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("audit-baseline-severity.json");
    let (path, opa) = (path.to_str().unwrap(), opa());
    audit(&["--write-baseline", path, &opa], "");
    let written = std::fs::read_to_string(path).unwrap();
    let accepted = |from: &str, to: &str| {
        std::fs::write(path, written.replace(from, to)).unwrap();
        let ran = audit(&["--baseline", path, &opa], "");
        (ran.code, ran.out.contains("control-plane-in-reach"))
    };
    assert_eq!(accepted("", ""), (0, false));
    assert_eq!(accepted("\"critical\"", "\"warning\""), (2, true), "it got worse");
    let mut old: Value = serde_json::from_str(&written).unwrap();
    for entry in old["accepted"].as_array_mut().unwrap() {
        entry.as_object_mut().unwrap().remove("severity").unwrap();
    }
    assert_eq!(
        accepted(&written, &old.to_string()),
        (2, true),
        "an older file accepts warnings"
    );
    let ran = audit(
        &[
            "--baseline",
            path,
            example("zone-lost.yaml").to_str().unwrap(),
            &opa,
        ],
        "",
    );
    assert!(!ran.out.contains("one-replica"), "{}", ran.out);
}

#[test]
fn one_webhook_that_is_asked_about_is_told_in_depth_and_one_that_is_not_there_is_bad_usage() {
    let ran = audit(
        &[
            "--if-down",
            "opa-validating-webhook/validating-webhook.openpolicyagent.org",
            &opa(),
        ],
        "",
    );
    assert_eq!(ran.code, 2);
    assert!(
        ran.out
            .contains("refused or given up after 5 s: UPDATE leases.coordination.k8s.io"),
        "{}",
        ran.out
    );
    let ran = audit(&["--if-down", "opa-validating-webhook/none", &opa()], "");
    assert_eq!(ran.code, 64);
    assert!(ran.err.contains("there is no webhook \"none\""), "{}", ran.err);
}

#[test]
fn without_a_cluster_it_says_what_is_assumed() {
    let ran = audit(&[&opa()], "");
    assert!(
        ran.out
            .contains("a usual control plane in kube-system is assumed"),
        "{}",
        ran.out
    );
}
