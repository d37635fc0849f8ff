//! What the API server at hand has of what hookwatch uses, against the table of docs/versions.md.

use hookwatch::app::engine::Engine;
use hookwatch::domain::act::fence::AutoBreak;
use hookwatch::domain::act::leadership::ReplicaRole;
use http::Method;
use serde_json::{Value, json};

use super::cases::WITH_CONDITIONS;
use super::documents::rows;
use super::installed::lab::{done, shell};
use super::privileges::cluster::{CONFIGURATIONS, Cluster, ask, assessed, block_on, config, play, until};
use super::{Named, Outcome, named};

pub fn tests() -> Vec<Named> {
    vec![
        named(
            "versions_the_api_server_has_what_the_table_says",
            the_api_server_has_what_the_table_says,
        ),
        named(
            "versions_what_is_lacking_costs_its_feature_alone",
            what_is_lacking_costs_its_feature_alone,
        ),
    ]
}

/// The first minor release with version 1 of ValidatingAdmissionPolicy.
const WITH_FENCE: u32 = 30;

/// A row of the table: what it is about, and what the column of a release says.
struct Row {
    what: String,
    cell: String,
}

/// The rows, or nothing where the table has no column for this release.
fn table(release: &str) -> Option<Vec<Row>> {
    let mut rows = rows("versions").into_iter();
    let column = rows.next()?.iter().position(|title| title == release)?;
    let rows = rows.map(|mut row| Row {
        cell: row.swap_remove(column),
        what: row.swap_remove(0).trim_matches('`').to_owned(),
    });
    Some(rows.collect())
}

fn the_api_server_has_what_the_table_says() -> Outcome {
    let mut outcome = Outcome::Held;
    block_on(async {
        let cluster = Cluster::start().await;
        let version = get(&cluster, "/version").await.unwrap();
        let minor = version["minor"]
            .as_str()
            .unwrap()
            .trim_end_matches('+')
            .to_owned();
        let Some(rows) = table(&format!("1.{minor}")) else {
            outcome = Outcome::Skipped(format!("docs/versions.md has no column for 1.{minor}"));
            return;
        };
        provoke(&cluster).await;
        let metrics = metrics(&cluster).await;
        let (mut wrong, mut tried) = (Vec::new(), 0);
        for row in rows {
            if row.cell == "untested" {
                continue;
            }
            let found = if row.what == "matchConditions" {
                keeps_conditions(&cluster).await
            } else if let Some((resource, group)) = row.what.split_once('.') {
                is_served(&cluster, resource, group).await
            } else {
                metrics.contains(&format!("# TYPE {} ", row.what))
            };
            let found = if found { "yes" } else { "no" };
            if found != row.cell {
                wrong.push(format!(
                    "{}: the table says {}, and it is {found}",
                    row.what, row.cell
                ));
            }
            tried += 1;
        }
        assert!(wrong.is_empty(), "1.{minor}:\n{}", wrong.join("\n"));
        assert!(tried > 15, "{tried} rows");
    });
    outcome
}

/// The kinds of deploy/ that a release does not have.
pub fn lacking(minor: u32) -> &'static [&'static str] {
    match minor {
        ..29 => &[
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
            "FlowSchema",
            "PriorityLevelConfiguration",
        ],
        29 => &["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"],
        _ => &[],
    }
}

/// What a release without the fence, or without match conditions, still does: with `autoBreak: on` the daemon plans and says why,
/// and people have the rung that needs neither.
fn what_is_lacking_costs_its_feature_alone() -> Outcome {
    play(async {
        let cluster = Cluster::start().await;
        let minor = cluster.minor().await;
        cluster.deploy("overlays/breaker").await;
        let token = cluster.token("hookwatch", None).await;
        let (kubeconfig, _token) = cluster.kubeconfig("daemon", &token);
        let engine = Engine::start(&config(&kubeconfig, "autoBreak: on"))
            .await
            .unwrap();
        assessed(&engine, "the breaker is decided, and writes flow", |it| {
            let breaker = &it.breaker;
            let is_as_expected = if minor >= WITH_FENCE {
                breaker.effective == AutoBreak::On
            } else {
                breaker.effective == AutoBreak::Plan && breaker.why.contains("Kubernetes 1.30")
            };
            is_as_expected
                && it.control_plane.writes.as_str() == "flowing"
                && it
                    .replica
                    .as_ref()
                    .is_some_and(|replica| replica.role == ReplicaRole::Leader)
        })
        .await;
        engine.stop().await;
        people_can_act(&cluster, minor).await;
    })
}

async fn people_can_act(cluster: &Cluster, minor: u32) {
    let kubeconfig = cluster.admin_kubeconfig();
    cluster.apply(&webhook("tried", "Fail", &json!([]))).await;
    let path = format!("{CONFIGURATIONS}/validatingwebhookconfigurations/tried");
    let original = get(cluster, &path).await.unwrap();
    let conditions = minor >= WITH_CONDITIONS;
    for (rung, works) in [
        ("shield", conditions),
        ("skip", conditions),
        ("ignore", !conditions),
    ] {
        let command =
            format!("hookwatch break tried/tried.example.com --rung {rung} --reason versions --yes");
        let output = shell(&kubeconfig, &command).await;
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), works, "{rung} on 1.{minor}: {said}");
        assert!(works || conditions || said.contains("Kubernetes 1.28"), "{said}");
        if works {
            done(&kubeconfig, "hookwatch restore tried/tried.example.com --yes").await;
        }
        let object = get(cluster, &path).await.unwrap();
        assert_eq!(object["webhooks"], original["webhooks"], "{rung}");
        assert!(object["metadata"]["annotations"].is_null(), "{rung}: {object:#}");
    }
}

async fn get(cluster: &Cluster, target: &str) -> Option<Value> {
    let answer = ask(&cluster.admin, Method::GET, target, &Value::Null).await;
    answer.is_success().then_some(answer.body)
}

async fn metrics(cluster: &Cluster) -> String {
    let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
    cluster.admin.request_text(request).await.unwrap()
}

/// Whether discovery has a resource of `GROUP/VERSION`.
async fn is_served(cluster: &Cluster, resource: &str, group: &str) -> bool {
    let Some(list) = get(cluster, &format!("/apis/{group}")).await else {
        return false;
    };
    let mut resources = list["resources"].as_array().unwrap().iter();
    resources.any(|served| served["name"] == resource)
}

async fn keeps_conditions(cluster: &Cluster) -> bool {
    let path = format!("{CONFIGURATIONS}/validatingwebhookconfigurations/excluded");
    get(cluster, &path).await.unwrap()["webhooks"][0]["matchConditions"].is_array()
}

/// Nothing listens there.
const REFUSES: &str = "https://127.0.0.1:1/";

/// A webhook that nothing answers, for ConfigMaps of one namespace.
fn webhook(name: &str, policy: &str, conditions: &Value) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": name},
        "webhooks": [{
            "name": format!("{name}.example.com"), "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "failurePolicy": policy, "timeoutSeconds": 1, "clientConfig": {"url": REFUSES},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
            "matchConditions": conditions,
        }],
    })
}

/// Makes the API server count what it counts: a series is there from its first sample on.
async fn provoke(cluster: &Cluster) {
    let never = json!([{"name": "never", "expression": "false"}]);
    for (name, policy, conditions) in [
        ("refuses", "Fail", json!([])),
        ("ignored", "Ignore", json!([])),
        ("excluded", "Ignore", never),
    ] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        cluster.apply(&namespace).await;
        cluster.apply(&webhook(name, policy, &conditions)).await;
    }
    let map = json!({"metadata": {"generateName": "a-"}});
    let write = async |namespace: &str| {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps?dryRun=All");
        ask(&cluster.admin, Method::POST, &path, &map).await.is_success()
    };
    // The last one that was written is in force, and with it those before.
    until("a write is refused", async || !write("refuses").await).await;
    for namespace in ["ignored", "excluded"] {
        assert!(write(namespace).await, "{namespace}");
    }
    // The administrator waits for no seat; anyone else does, however shortly.
    let request = http::Request::get("/version").header("impersonate-user", "someone");
    let asked = cluster
        .admin
        .request_text(request.body(Vec::new()).unwrap())
        .await;
    asked.unwrap();
    convert(cluster).await;
    become_unavailable(cluster).await;
}

/// Asks for an object in another version than the stored one.
async fn convert(cluster: &Cluster) {
    let version = |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {"type": "object"}}});
    cluster
        .apply(&json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.lab.hookwatch.dev"},
            "spec": {
                "group": "lab.hookwatch.dev", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
                "versions": [version("v1", true), version("v2", false)],
                "conversion": {"strategy": "Webhook", "webhook": {
                    "conversionReviewVersions": ["v1"], "clientConfig": {"url": REFUSES},
                }},
            },
        }))
        .await;
    let of = |version: &str| format!("/apis/lab.hookwatch.dev/{version}/namespaces/default/widgets");
    let widget = json!({"apiVersion": "lab.hookwatch.dev/v2", "kind": "Widget", "metadata": {"name": "one"}});
    until("a conversion fails", async || {
        let answer = ask(&cluster.admin, Method::POST, &of("v2"), &widget).await;
        answer.status == 500
    })
    .await;
}

/// Takes an API away that was there.
async fn become_unavailable(cluster: &Cluster) {
    let mut api = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1.gone.hookwatch.dev"},
        "spec": {"group": "gone.hookwatch.dev", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10},
    });
    cluster.apply(&api).await;
    let path = "/apis/apiregistration.k8s.io/v1/apiservices/v1.gone.hookwatch.dev";
    let is = async |status: &str| {
        let object = get(cluster, path).await.unwrap();
        let conditions = object["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        conditions
            .iter()
            .any(|condition| condition["type"] == "Available" && condition["status"] == status)
    };
    until("it is available", async || is("True").await).await;
    api["spec"]["service"] = json!({"namespace": "default", "name": "nowhere"});
    api["spec"]["insecureSkipTLSVerify"] = true.into();
    cluster.apply(&api).await;
    until("it is not available", async || is("False").await).await;
}
