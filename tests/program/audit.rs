//! `hookwatch audit`: what it foretells, what it finds, what it makes of bad input, and how it prints.

mod daemon;
mod examples;
mod findings;
mod forecasts;
mod formats;
mod input;
mod pods;
mod published;
mod trust;

use std::path::{Path, PathBuf};

use hookwatch::domain::audit::estate::Unlisted;
use hookwatch::domain::audit::{
    Auditor, BackendFailure, Estate, Finding, Forecast, Function, findings as found,
};
use hookwatch::domain::time::Time;
use hookwatch::io::cluster::estate::manifests::Manifests;
use hookwatch::io::cluster::estate::{UnreadableObject, assemble};
use serde_json::{Value, json};

/// What the binary did.
struct Ran {
    code: i32,
    out: String,
    err: String,
}

/// Runs `hookwatch audit` where no kubeconfig can be found.
fn audit(arguments: &[&str], input: &str) -> Ran {
    use std::io::Write as _;
    use std::process::Stdio;
    let mut command = crate::programs::hookwatch();
    command
        .env_remove("KUBERNETES_SERVICE_HOST")
        .env("HOME", "/nonexistent")
        .env("KUBECONFIG", "/nonexistent/config");
    let command = command.arg("audit").args(arguments);
    let command = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    // A command that reads no input closes it.
    let writing = std::thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
    let output = child.wait_with_output().unwrap();
    writing.join().unwrap();
    Ran {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("examples/audit")
        .join(name)
}

/// An estate of manifests.
fn estate(texts: &[&str]) -> (Estate, Vec<UnreadableObject>) {
    let mut read = Manifests::default();
    for text in texts {
        read.text("test.yaml", text);
    }
    let (estate, mut unreadable) = assemble(
        read.objects,
        None,
        Some(Time::from_unix_millis(1_795_219_862_000)),
    );
    unreadable.extend(read.unreadable);
    (estate, unreadable)
}

/// An estate of objects, as in a cluster or as manifests.
fn estate_of(objects: Vec<Value>, is_cluster: bool) -> Estate {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
    let mut read = Manifests::default();
    read.text("test.json", &list);
    let at = Some(Time::from_unix_millis(1_795_219_862_000));
    let (estate, unreadable) = assemble(read.objects, is_cluster.then(Unlisted::default), at);
    assert_eq!(unreadable, []);
    estate
}

/// The least configuration with one webhook, with `more` laid over the webhook.
fn webhook(kind: &str, name: &str, more: Value) -> Value {
    let mut entry = json!({
        "name": format!("{name}.example.com"), "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"service": {"namespace": name, "name": name}},
        "failurePolicy": "Fail", "timeoutSeconds": 10,
        "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}],
    });
    for (field, value) in more.as_object().unwrap() {
        entry[field] = value.clone();
    }
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{kind}WebhookConfiguration"),
        "metadata": {"name": name, "annotations": {"cert-manager.io/inject-ca-from": "a/b"}}, "webhooks": [entry],
    })
}

/// What is foretold of the first webhook.
fn forecast(estate: &Estate, failure: BackendFailure) -> Forecast {
    Auditor::new(estate).forecast(0, failure)
}

fn lost(forecast: &Forecast) -> Vec<Function> {
    forecast.casualties.iter().map(|casualty| casualty.what).collect()
}

fn found_in(estate: &Estate) -> Vec<Finding> {
    found::audit(&Auditor::new(estate))
}

fn ids(findings: &[Finding]) -> Vec<&'static str> {
    findings.iter().map(|finding| finding.kind.id).collect()
}
