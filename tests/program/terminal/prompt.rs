//! The question that `break` asks, on a terminal.

use std::path::Path;

use hookwatch::domain::cluster::hook::HookKind;
use hookwatch::lab::api::{ApiServer, ApiServerOptions};
use hookwatch::lab::cluster::{client_for, configurations};
use hookwatch::lab::directory::PrivateDirectory;
use kube::api::{DynamicObject, PostParams};
use serde_json::json;

use super::pty::{Pty, keep};

async fn bypassed(client: &kube::Client) -> bool {
    let object = configurations(client, HookKind::Validating)
        .get("policy")
        .await
        .unwrap();
    object
        .metadata
        .annotations
        .is_some_and(|annotations| annotations.contains_key("hookwatch.dev/bypass"))
}

fn ask(command: &str, rows: u16, columns: u16, kubeconfig: &Path) -> Pty {
    let mut arguments: Vec<&str> = command.split(' ').collect();
    arguments.extend(["--kubeconfig", kubeconfig.to_str().unwrap()]);
    Pty::hookwatch(rows, columns, &arguments, &[("USER", "anna")])
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_changed_before_a_person_types_y() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let server = ApiServer::start(ApiServerOptions::default()).await.unwrap();
    let client = client_for(&server.kubeconfig()).await.unwrap();
    let object = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "policy"},
        "webhooks": [{
            "name": "a.example.com", "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "rules": [{"apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["widgets"]}],
        }],
    });
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    configurations(&client, HookKind::Validating)
        .create(&PostParams::default(), &object)
        .await
        .unwrap();
    let folder = PrivateDirectory::create().unwrap();
    let kubeconfig = folder.write("kubeconfig", &server.kubeconfig()).unwrap();
    let broken = "break policy/a.example.com --reason ticket-7";

    for (typed, name) in [
        ("\r", "nothing"),
        ("n\r", "n"),
        ("yeah\r", "other"),
        ("\u{4}", "end of file"),
    ] {
        let terminal = ask(broken, 40, 100, &kubeconfig);
        let asked = terminal.wait_for_text("Change this? [y/N]");
        keep("break-asks", &asked);
        assert!(asked.contains("hookwatch.dev/shield"), "{asked}");
        assert!(asked.contains("On https://127.0.0.1:"), "{asked}");
        terminal.type_keys(typed);
        let (ended, screen) = terminal.end();
        assert_eq!(ended.code(), Some(1), "{name}");
        assert!(
            screen.contents().contains("nothing was changed"),
            "{name}: {}",
            screen.contents()
        );
        assert!(!bypassed(&client).await, "{name}");
    }
    // Ctrl-C is the end of it, too.
    let terminal = ask(broken, 40, 100, &kubeconfig);
    terminal.wait_for_text("Change this? [y/N]");
    terminal.type_keys("\u{3}");
    assert!(!terminal.end().0.success());
    assert!(!bypassed(&client).await);

    let terminal = ask(broken, 40, 100, &kubeconfig);
    terminal.wait_for_text("Change this? [y/N]");
    terminal.type_keys("y\r");
    let (ended, screen) = terminal.end();
    keep("break-done", &screen.contents());
    assert!(ended.success(), "{}", screen.contents());
    assert!(bypassed(&client).await);

    let terminal = ask("restore --all", 40, 20, &kubeconfig);
    keep("restore-asks-in-20-columns", &terminal.wait_for_text("[y/N]"));
    terminal.type_keys("y\r");
    let (ended, screen) = terminal.end();
    assert!(ended.success(), "{}", screen.contents());
    assert!(!bypassed(&client).await);
}
