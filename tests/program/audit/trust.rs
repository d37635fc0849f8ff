//! What is found of certificates: those that are trusted, and those that are not there.

use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hookwatch::domain::audit::{Estate, FindingSeverity};
use hookwatch::domain::time::Time;
use serde_json::{Value, json};

use super::findings::rule;
use super::{estate_of, found_in, webhook};

/// A bundle of one self-signed certificate, as a modest webhook `policy` in a namespace of that name has it.
fn with_bundle(names: &[&str], signs: bool) -> Estate {
    let key = rcgen::KeyPair::generate().unwrap();
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = rcgen::CertificateParams::new(names).unwrap();
    // What Go does not look at.
    let common = "policy.policy.svc";
    params.distinguished_name.push(rcgen::DnType::CommonName, common);
    params.is_ca = if signs {
        rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained)
    } else {
        rcgen::IsCa::ExplicitNoCa
    };
    let pem = params.self_signed(&key).unwrap().pem();
    let mut hook = webhook(
        "Validating",
        "policy",
        json!({"rules": rule(&["example.com"], &["widgets"]), "timeoutSeconds": 3}),
    );
    hook["metadata"]["annotations"] = json!({});
    hook["webhooks"][0]["clientConfig"]["caBundle"] = BASE64_STANDARD.encode(pem).into();
    estate_of(vec![hook], true)
}

fn one(estate: &Estate, id: &str) -> Option<(FindingSeverity, String)> {
    let mut found = found_in(estate).into_iter();
    let found = found.find(|finding| finding.kind.id == id);
    found.map(|finding| (finding.severity, finding.message))
}

fn names_another(names: &[&str], signs: bool) -> Option<(FindingSeverity, String)> {
    one(&with_bundle(names, signs), "ca-names-another")
}

#[test]
fn a_bundle_that_signs_nothing_and_has_not_the_name_that_is_called_can_never_be_what_is_served() {
    let (severity, message) = names_another(&["other.policy.svc"], false).unwrap();
    assert_eq!(severity, FindingSeverity::Critical);
    assert!(
        message.contains("other.policy.svc") && message.contains("policy.policy.svc"),
        "{message}"
    );
    let (severity, message) = names_another(&[], false).unwrap();
    assert_eq!(severity, FindingSeverity::Critical);
    assert!(message.contains("no subjectAltName"), "{message}");
    assert_eq!(names_another(&["x", "Policy.policy.svc"], false), None);
    assert_eq!(names_another(&["*.policy.svc"], false), None);
    assert!(names_another(&["*.svc"], false).is_some(), "a star is one label");
}

#[test]
fn a_bundle_that_may_sign_is_an_authority_and_doubtful_only_where_it_has_other_names() {
    assert_eq!(names_another(&[], true), None);
    assert_eq!(names_another(&["policy.policy.svc"], true), None);
    let (severity, message) = names_another(&["localhost"], true).unwrap();
    assert_eq!(severity, FindingSeverity::Info);
    assert!(message.contains("serves that certificate itself"), "{message}");
}

#[test]
fn an_authority_that_a_probe_trusted_has_no_wrong_name_and_what_signs_nothing_has_whatever_a_probe_saw() {
    let trusted = |signs| {
        let mut estate = with_bundle(&["gatekeeper-ca"], signs);
        estate.evidence.trusted = [estate.subjects[0].hook.id.clone()].into();
        one(&estate, "ca-names-another").map(|(severity, _)| severity)
    };
    assert_eq!(trusted(true), None);
    assert_eq!(trusted(false), Some(FindingSeverity::Critical));
}

/// A modest webhook without a CA, or with a placeholder, whose configuration is so old.
fn unfilled(
    placeholder: Option<&str>,
    age: Duration,
    policy: &str,
    annotations: Value,
    is_cluster: bool,
) -> Estate {
    let mut hook = webhook(
        "Validating",
        "policy",
        json!({"rules": rule(&["example.com"], &["widgets"]), "timeoutSeconds": 3, "failurePolicy": policy}),
    );
    hook["metadata"]["annotations"] = annotations;
    let created = Time::from_unix_millis(1_795_219_862_000).before(age);
    hook["metadata"]["creationTimestamp"] = created.to_string().into();
    if let Some(placeholder) = placeholder {
        hook["webhooks"][0]["clientConfig"]["caBundle"] = BASE64_STANDARD.encode(placeholder).into();
    }
    estate_of(vec![hook], is_cluster)
}

#[test]
fn a_bundle_that_nothing_has_filled_in_for_ten_minutes_is_an_outage_in_a_cluster_annotation_or_not() {
    let injected = || json!({"cert-manager.io/inject-ca-from": "a/b"});
    let (old, new) = (Duration::from_secs(600), Duration::from_secs(599));
    for (placeholder, id) in [(None, "ca-empty"), (Some("\n"), "ca-unusable")] {
        let told = |age, policy, annotations, is_cluster| {
            one(&unfilled(placeholder, age, policy, annotations, is_cluster), id)
        };
        for annotations in [injected(), json!({})] {
            let severity =
                |policy| told(old, policy, annotations.clone(), true).map(|(severity, _)| severity);
            assert_eq!(
                severity("Fail"),
                Some(FindingSeverity::Critical),
                "{id} {annotations}"
            );
            assert_eq!(
                severity("Ignore"),
                Some(FindingSeverity::Warning),
                "{id} {annotations}"
            );
        }
        let (_, message) = told(old, "Fail", injected(), true).unwrap();
        assert!(message.contains("its injector has not filled it in"), "{message}");
        let (_, message) = told(old, "Fail", json!({}), true).unwrap();
        assert!(message.contains("nothing has filled it in"), "{message}");
        let mild = |age, is_cluster| told(age, "Fail", injected(), is_cluster).map(|(severity, _)| severity);
        let wanted = placeholder.map(|_| FindingSeverity::Info);
        assert_eq!([mild(new, true), mild(old, false)], [wanted, wanted], "{id}");
    }
    let (severity, _) = one(&unfilled(None, new, "Fail", json!({}), true), "ca-empty").unwrap();
    assert_eq!(severity, FindingSeverity::Info);
}
