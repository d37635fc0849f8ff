//! Seats of its own: tenants' hung writes hold every seat of the level that accounts share, and hookwatch is served.

use std::time::Duration;

use hookwatch::lab::cluster::client_for;
use hookwatch::lab::envtest::Options;
use http::{Method, Request};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::lab::{CATCHES_ALL, HANGS, Hanging, done, everything_in_namespaces, hanging};
use crate::privileges::cluster::{CONFIGURATIONS, Cluster, until};

/// A fifth of what an API server has by default, so that a small machine can fill it. The shares are the default ones.
const FEWER_SEATS: &[&str] = &[
    "--max-requests-inflight=80",
    "--max-mutating-requests-inflight=40",
];
/// Writes of the tenants at once: more than all seats there are.
const WRITES: usize = 200;
/// Within this, somebody who is served has his answer, and a seat that a hung write holds (for 30 s) is not free yet.
const SOON: Duration = Duration::from_secs(12);

/// What an API server says of a request: its code, and the FlowSchema that it went by.
struct Served {
    status: u16,
    schema: String,
}

async fn served(client: &Client, method: Method, target: &str, body: &Value) -> Option<Served> {
    let request = Request::builder()
        .method(method)
        .uri(target)
        .header("content-type", "application/merge-patch+json")
        .header("accept", "*/*");
    let bytes = match body {
        Value::Null => Vec::new(),
        body => body.to_string().into_bytes(),
    };
    let asking = async {
        let answer = client.send(request.body(Body::from(bytes)).unwrap()).await.ok()?;
        let schema = answer.headers().get("x-kubernetes-pf-flowschema-uid").cloned();
        let served = Served {
            status: answer.status().as_u16(),
            schema: schema.map_or_else(String::new, |uid| uid.to_str().unwrap_or_default().to_owned()),
        };
        answer.into_body().collect().await.ok()?;
        Some(served)
    };
    tokio::time::timeout(SOON, asking).await.ok()?
}

/// What hookwatch does all day, and what it does in an outage: how many of these are answered soon, and well.
async fn answered(account: &Client, schema: &str) -> Vec<bool> {
    let patch = format!("{CONFIGURATIONS}/validatingwebhookconfigurations/{CATCHES_ALL}?dryRun=All");
    let nothing = json!({});
    let list = format!("{CONFIGURATIONS}/validatingwebhookconfigurations");
    let (read, scraped, patched) = tokio::join!(
        served(account, Method::GET, &list, &Value::Null),
        served(account, Method::GET, "/metrics", &Value::Null),
        served(account, Method::PATCH, &patch, &nothing),
    );
    [read, scraped, patched]
        .into_iter()
        .map(|served| served.is_some_and(|served| served.status == 200 && served.schema == schema))
        .collect()
}

async fn uid_of(cluster: &Cluster, schema: &str) -> String {
    let target = format!("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/{schema}");
    let object = super::lab::get(cluster, &target).await;
    object["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// A tenant, who may write ConfigMaps, and whose writes go by `workload-low`.
async fn tenant(cluster: &Cluster) -> String {
    let of_tenant = |kind: &str, group: &str, more: Value| {
        let mut object =
            json!({"apiVersion": group, "kind": kind, "metadata": {"name": "writer", "namespace": "tenant"}});
        object
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        object
    };
    let rbac = "rbac.authorization.k8s.io/v1";
    for object in [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tenant"}}),
        of_tenant("ServiceAccount", "v1", json!({})),
        of_tenant(
            "Role",
            rbac,
            json!({"rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]}]}),
        ),
        of_tenant(
            "RoleBinding",
            rbac,
            json!({
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "writer"},
                "subjects": [{"kind": "ServiceAccount", "name": "writer", "namespace": "tenant"}],
            }),
        ),
    ] {
        cluster.apply(&object).await;
    }
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}});
    let target = "/api/v1/namespaces/tenant/serviceaccounts/writer/token";
    let answer = cluster.admin(Method::POST, target, &request).await;
    answer["status"]["token"].as_str().unwrap().to_owned()
}

/// A gauge of the API server's, for a priority level.
async fn gauge(cluster: &Cluster, name: &str, level: &str) -> f64 {
    let request = Request::get("/metrics").body(Vec::new()).unwrap();
    let text = cluster.admin.request_text(request).await.unwrap();
    let of_level = format!("priority_level=\"{level}\"");
    text.lines()
        .filter(|line| line.starts_with(&format!("{name}{{")) && line.contains(&of_level))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

/// Tenants' writes until no seat is left and others wait for one. They hang for as long as the returned value lives.
async fn seats_are_taken(cluster: &Cluster, kubeconfig: &str) -> JoinSet<()> {
    // All begin at once: the first must not be over when the last has begun.
    let mut clients = Vec::new();
    for _ in 0..WRITES {
        clients.push(client_for(kubeconfig).await.unwrap());
    }
    let mut writes = JoinSet::new();
    for (number, client) in clients.into_iter().enumerate() {
        writes.spawn(async move {
            let body = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("c{number}")},
            });
            let request = Request::post("/api/v1/namespaces/tenant/configmaps")
                .header("content-type", "application/json")
                .body(Body::from(body.to_string().into_bytes()))
                .unwrap();
            // What becomes of it is of no interest: it hangs, or is refused for there is no seat.
            let _ = client.send(request).await;
        });
    }
    until("writes wait for a seat of workload-low", async || {
        gauge(
            cluster,
            "apiserver_flowcontrol_current_inqueue_requests",
            "workload-low",
        )
        .await
            > 0.0
    })
    .await;
    writes
}

pub async fn the_account_is_served_while_hung_writes_hold_every_seat() {
    let cluster = Cluster::start_with(Options {
        flags: FEWER_SEATS,
        ..Options::default()
    })
    .await;
    cluster.deploy("overlays/breaker").await;
    let token = tenant(&cluster).await;
    let (kubeconfig, _) = cluster.kubeconfig("tenant", &token);
    let kubeconfig = std::fs::read_to_string(kubeconfig).unwrap();
    let account = cluster.client("hookwatch").await;
    let Hanging { backend, hook } = hanging(&everything_in_namespaces()).await;
    cluster.apply(&hook).await;
    let (own, shared) = (
        uid_of(&cluster, "hookwatch").await,
        uid_of(&cluster, "service-accounts").await,
    );
    until("its requests go by its own FlowSchema, and may", async || {
        answered(&account, &own).await == [true; 3]
    })
    .await;

    let mut writes = seats_are_taken(&cluster, &kubeconfig).await;
    assert!(backend.counters().reviews() > 0, "{HANGS} was never called");
    for _ in 0..3 {
        assert_eq!(answered(&account, &own).await, [true; 3], "read, scrape, patch");
    }
    // Nobody's seats were needed for it.
    assert!(
        gauge(
            &cluster,
            "apiserver_flowcontrol_current_inqueue_requests",
            "workload-low"
        )
        .await
            > 0.0
    );
    writes.shutdown().await;

    // The same without it: the test can fail, and the FlowSchema is what makes the difference.
    done(
        &cluster.admin_kubeconfig(),
        "kubectl delete flowschema hookwatch; kubectl delete prioritylevelconfiguration hookwatch",
    )
    .await;
    until("its requests go the way of all accounts", async || {
        answered(&account, &shared).await == [true; 3]
    })
    .await;
    let mut writes = seats_are_taken(&cluster, &kubeconfig).await;
    assert_eq!(
        answered(&account, &shared).await,
        [false; 3],
        "it is served without seats of its own"
    );
    writes.shutdown().await;
}
