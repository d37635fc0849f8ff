//! What all of these tests need: kubectl, a backend that hangs, and a hook that brings everybody to it.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::Output;

use hookwatch::lab::backend::{BackendRole, Behaviour, LabBackend};
use hookwatch::lab::certs::Authority;
use hookwatch::lab::envtest::binaries;
use serde_json::{Value, json};

use crate::privileges::cluster::Cluster;

/// The webhook that everything hangs in.
pub const HANGS: &str = "hangs.example.com";
/// Its configuration.
pub const CATCHES_ALL: &str = "catches-all";

/// The kubectl beside the API server.
pub fn kubectl() -> Option<PathBuf> {
    let binaries = binaries::find().ok()?;
    let kubectl = binaries.kube_apiserver.with_file_name("kubectl");
    kubectl.exists().then_some(kubectl)
}

/// Where a command line of the documentation finds `kubectl` and `hookwatch`.
fn path() -> std::ffi::OsString {
    let beside = |file: PathBuf| file.parent().unwrap().to_owned();
    let ours = [
        beside(kubectl().unwrap()),
        beside(env!("CARGO_BIN_EXE_hookwatch").into()),
    ];
    let others = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(ours.into_iter().chain(std::env::split_paths(&others))).unwrap()
}

/// Runs a piece of shell as an administrator would, in the repository.
pub async fn shell(kubeconfig: &std::path::Path, script: &str) -> Output {
    let mut command = std::process::Command::new("sh");
    command
        .args(["-euc", script])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("PATH", path())
        .env("KUBECONFIG", kubeconfig);
    tokio::task::spawn_blocking(move || command.output().unwrap())
        .await
        .unwrap()
}

/// The same, where anything but a success is a failure of the test.
pub async fn done(kubeconfig: &std::path::Path, script: &str) -> String {
    let output = shell(kubeconfig, script).await;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{script}\n{said}");
    String::from_utf8(output.stdout).unwrap()
}

/// A backend and the hook in front of it.
pub struct Hanging {
    pub backend: LabBackend,
    pub hook: Value,
}

/// A backend that reads every review and never answers, and a hook by which it gets what these rules say.
pub async fn hanging(rules: &Value) -> Hanging {
    let authority = Authority::new("somebody's").unwrap();
    let certificate = authority.issue_names(&["127.0.0.1"]).unwrap();
    let hosts = [IpAddr::V4(Ipv4Addr::LOCALHOST)];
    let mut backends = LabBackend::start_group(&hosts, BackendRole::Validating, &certificate)
        .await
        .unwrap();
    let backend = backends.remove(0);
    backend.behave(Behaviour::HangAfterTls).await.unwrap();
    let hook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": CATCHES_ALL},
        "webhooks": [{
            "name": HANGS, "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
            "timeoutSeconds": 30, "rules": rules,
            "clientConfig": {
                "url": format!("https://{}/", backend.address()),
                "caBundle": base64::Engine::encode(&base64::prelude::BASE64_STANDARD, authority.pem()),
            },
        }],
    });
    Hanging { backend, hook }
}

/// Everything, whatever the scope.
pub fn everything() -> Value {
    json!([{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}])
}

/// Everything in a namespace.
pub fn everything_in_namespaces() -> Value {
    let mut rules = everything();
    rules[0]["scope"] = "Namespaced".into();
    rules
}

/// What an API server has of an object.
pub async fn get(cluster: &Cluster, target: &str) -> Value {
    cluster.admin(http::Method::GET, target, &Value::Null).await
}
