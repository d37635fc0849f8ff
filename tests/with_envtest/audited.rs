//! The audit of a real cluster, and its forecast held against what then happens: real kube-controller-manager and
//! kube-scheduler, kubelets and an API server's start with the timers of the real ones, and the writes of the others.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::Command;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hookwatch::domain::audit::{Auditor, Failure, Forecast, Function};
use hookwatch::io::estate::{Object, assemble};
use hookwatch::lab::backend::{Behaviour, Role};
use hookwatch::lab::certs::Authority;
use hookwatch::lab::clients::ControlPlaneClients;
use hookwatch::lab::cluster::client_for;
use hookwatch::lab::control_plane::ControlPlane;
use hookwatch::lab::directory::PrivateDirectory;
use hookwatch::lab::envtest::{Envtest, binaries};
use hookwatch::lab::workload::{Workload, WorkloadOptions};
use http::{Method, Request};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::cases::hooks::backend;
use super::privileges::cluster::{Cluster, ask, block_on, until};
use super::{Named, Outcome as Played, missing, named};

pub fn tests() -> Vec<Named> {
    vec![
        named("the_audit_of_a_cluster_reads_and_writes_nothing", of_a_cluster),
        named(
            "every_casualty_is_foretold_and_every_one_foretold_happens",
            foretold,
        ),
    ]
}

/// Runs `hookwatch audit` on a cluster.
fn of_a_cluster() -> Played {
    if let Some(skipped) = missing() {
        return skipped;
    }
    block_on(async {
        let cluster = Cluster::start().await;
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "opa", "namespace": "default"},
                                 "spec": {"ports": [{"port": 443}]}});
        cluster.apply(&service).await;
        let of_service = |name: &str, service: &str| {
            let mut hook = webhook(
                name,
                &json!({"failurePolicy": "Ignore", "timeoutSeconds": 1}),
                "",
                "",
            );
            hook["webhooks"][0]["clientConfig"] =
                json!({"service": {"namespace": "default", "name": service}});
            hook
        };
        cluster.apply(&of_service("without-endpoints", "opa")).await;
        cluster.apply(&of_service("without-service", "gone")).await;
        // Last: nothing can be written once it is known.
        let hook = webhook("hang", &json!({}), "https://127.0.0.1:1", "");
        cluster.apply(&hook).await;
        let kubeconfig = cluster.admin_kubeconfig();
        let run = move || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_hookwatch"));
            command
                .args(["audit", "--output", "json", "--kubeconfig"])
                .arg(&kubeconfig)
                .output()
                .unwrap()
        };
        assert_eq!(requests(&cluster), (0, 0));
        let output = tokio::task::spawn_blocking(run).await.unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        let (reads, writes) = requests(&cluster);
        assert!(
            reads > 5 && writes == 0,
            "it reads, {reads} times, and wrote {writes} times"
        );
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let findings: BTreeSet<(String, String)> = document["findings"]
            .as_array()
            .unwrap()
            .iter()
            .map(|finding| {
                let object = finding["object"]
                    .as_str()
                    .unwrap()
                    .split('/')
                    .nth(1)
                    .unwrap_or_default()
                    .to_owned();
                (finding["id"].as_str().unwrap().to_owned(), object)
            })
            .collect();
        for (id, object) in [
            ("control-plane-in-reach", "hang"),
            ("no-endpoints", "without-endpoints"),
            ("service-missing", "without-service"),
        ] {
            assert!(
                findings.contains(&(id.to_owned(), object.to_owned())),
                "{id} of {object}: {findings:?}"
            );
        }
        assert!(
            !findings.iter().any(|(id, _)| id == "unreadable-input"),
            "{findings:?}"
        );
    });
    Played::Held
}

/// How often hookwatch has read and written, by the audit log.
fn requests(cluster: &Cluster) -> (usize, usize) {
    let log = std::fs::read_to_string(cluster.audit_log()).unwrap();
    let events = log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let verbs = events.filter_map(|event| {
        let ours = event["userAgent"].as_str()?.contains("hookwatch");
        ours.then(|| event["verb"].as_str().unwrap_or_default().to_owned())
    });
    let (reads, writes): (Vec<String>, Vec<String>) =
        verbs.partition(|verb| ["get", "list", "watch"].contains(&verb.as_str()));
    (reads.len(), writes.len())
}

/// A configuration with one validating webhook, catch-all under `Fail` with 10 s, and `more` laid over it.
fn webhook(name: &str, more: &Value, url: &str, ca: &str) -> Value {
    let mut entry = json!({
        "name": format!("{name}.example.com"), "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": format!("{url}/admit"), "caBundle": ca}, "failurePolicy": "Fail", "timeoutSeconds": 10,
        "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}],
    });
    for (field, value) in more.as_object().unwrap() {
        entry[field] = value.clone();
    }
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name}, "webhooks": [entry],
    })
}

/// What is foretold and then played: a name, how the webhook fails, and its fields.
fn configurations() -> Vec<(&'static str, Failure, Value)> {
    let rule = |groups: &[&str], resources: &[&str]| json!([{"operations": ["CREATE", "UPDATE", "DELETE"], "apiGroups": groups, "apiVersions": ["*"], "resources": resources}]);
    let not = |names: &[&str]| json!({"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": names}]});
    let condition = |text: &str| json!([{"name": "c", "expression": text}]);
    vec![
        ("catch-all-hangs", Failure::Hang, json!({})),
        ("catch-all-refuses", Failure::Refuse, json!({})),
        (
            "leases-left-out",
            Failure::Hang,
            json!({"matchConditions": condition("request.resource.resource != 'leases'")}),
        ),
        (
            "kube-system-left-out",
            Failure::Hang,
            json!({"timeoutSeconds": 5, "namespaceSelector": not(&["kube-system", "kube-node-lease"])}),
        ),
        (
            "pods-alone",
            Failure::Refuse,
            json!({"rules": rule(&[""], &["pods"])}),
        ),
        (
            "ignored-for-6-s",
            Failure::Hang,
            json!({"failurePolicy": "Ignore", "timeoutSeconds": 6}),
        ),
        (
            "ignored-for-3-s",
            Failure::Hang,
            json!({"failurePolicy": "Ignore", "timeoutSeconds": 3}),
        ),
        (
            "node-leases-alone",
            Failure::Hang,
            json!({"rules": rule(&["coordination.k8s.io"], &["leases"]),
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-node-lease"}}}),
        ),
        (
            "nodes-spared",
            Failure::Refuse,
            json!({"matchConditions": condition("!('system:nodes' in request.userInfo.groups)")}),
        ),
        (
            "deployments-alone",
            Failure::Hang,
            json!({"rules": rule(&["apps"], &["deployments"]), "timeoutSeconds": 2}),
        ),
    ]
}

/// Longest that a play is watched: the last casualty is an API server's start, at 49 s.
const WATCHED: Duration = Duration::from_secs(56);

fn foretold() -> Played {
    if let Some(skipped) = missing() {
        return skipped;
    }
    if binaries::find().unwrap().controllers.is_none() {
        return Played::Skipped(
            "no kube-controller-manager and kube-scheduler beside kube-apiserver".to_owned(),
        );
    }
    block_on(async {
        let (mut table, mut wrong) = (String::new(), Vec::new());
        for (name, failure, more) in configurations() {
            let forecast = forecast(name, failure, &more);
            let observed = play(name, failure, &more).await;
            let expected: BTreeMap<Function, [f64; 2]> = forecast
                .casualties
                .iter()
                .map(|casualty| (casualty.what, casualty.after.map(|after| after.as_secs_f64())))
                .collect();
            for function in Function::ALL {
                let (foretold, seen) = (
                    expected.get(&function),
                    observed.get(&function).map(Duration::as_secs_f64),
                );
                let holds = match (foretold, seen) {
                    (None, None) => continue,
                    (Some([earliest, latest]), Some(seen)) => (*earliest..=*latest).contains(&seen),
                    _ => false,
                };
                let interval = foretold.map_or("-".to_owned(), |[earliest, latest]| {
                    format!("{earliest:.1} to {latest:.1}")
                });
                let seen = seen.map_or("-".to_owned(), |seen| format!("{seen:.1}"));
                let mark = if holds { "" } else { "  WRONG" };
                let row = format!(
                    "{name:<22} {:<7} {:<18} {interval:<14} {seen:>5}{mark}",
                    failure.as_str(),
                    function.as_str()
                );
                println!("{row}");
                let _ = writeln!(table, "{row}");
                if !holds {
                    wrong.push(row);
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(table.lines().count() > 30, "{table}");
    });
    Played::Held
}

/// What is foretold of a configuration, before anything is started.
fn forecast(name: &str, failure: Failure, more: &Value) -> Forecast {
    let object = Object {
        value: webhook(name, more, "https://127.0.0.1:1", ""),
        source: None,
        lines: Default::default(),
    };
    let (estate, unreadable) = assemble(vec![object], false, None);
    assert_eq!(unreadable, []);
    Auditor::new(&estate).forecast(0, failure)
}

/// What was lost, and how long after the fault.
async fn play(name: &str, failure: Failure, more: &Value) -> BTreeMap<Function, Duration> {
    let directory = PrivateDirectory::create().unwrap();
    let control_plane = ControlPlane::Envtest(Envtest::start(directory.path()).await.unwrap());
    let kubeconfig = control_plane.kubeconfig();
    let client = client_for(&kubeconfig).await.unwrap();
    let no_tenants = WorkloadOptions {
        clients: 0,
        ..WorkloadOptions::default()
    };
    let users = Workload::start(&kubeconfig, &no_tenants).await.unwrap();
    let nodes = ["node-1".to_owned(), "node-2".to_owned()];
    let clients = ControlPlaneClients::start(&control_plane, &nodes, &users)
        .await
        .unwrap();
    stage(&client).await;
    let authority = Authority::new("audited").unwrap();
    let backend = backend(&authority, Role::Validating, Behaviour::Healthy).await;
    let ca = BASE64_STANDARD.encode(authority.pem());
    let configuration = webhook(name, more, &format!("https://{}", backend.address()), &ca);
    post(
        &client,
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
        &configuration,
    )
    .await;
    // Known to the API server, and at some phase of every timer.
    sleep(Duration::from_secs(7)).await;
    clients.count_casualties();
    let behaviour = if failure == Failure::Refuse {
        Behaviour::Refused
    } else {
        Behaviour::HangAfterTls
    };
    backend.behave(behaviour).await.unwrap();
    let began = Instant::now();
    clients.start_api_server();
    let mut tries = JoinSet::new();
    for (function, by, method, path, body) in tried() {
        let client = client.clone();
        tries.spawn(async move {
            let lost = is_lost(&client, by, method, path, &body).await;
            (function, lost.then(|| began.elapsed()))
        });
    }
    let mut seen: BTreeMap<Function, Duration> = BTreeMap::new();
    let note = |seen: &mut BTreeMap<Function, Duration>, function, at: Duration| {
        let known = seen.entry(function).or_insert(at);
        *known = at.min(*known);
    };
    let mut leaders = None;
    while began.elapsed() < WATCHED {
        sleep(Duration::from_millis(100)).await;
        while let Some(Ok((function, lost))) = tries.try_join_next() {
            if let Some(at) = lost {
                note(&mut seen, function, at);
            }
        }
        let (lost, at) = (clients.casualties(), began.elapsed());
        let counted = [
            (Function::LeaderElection, lost.leaders_lost),
            (Function::NodeHeartbeat, lost.node_leases_expired),
            (Function::ApiServerStart, lost.servers_not_started),
        ];
        for (function, _) in counted.into_iter().filter(|(_, count)| *count > 0) {
            note(&mut seen, function, at);
        }
        if lost.leaders_lost == 2 {
            leaders.get_or_insert(at);
        }
    }
    // What leaders do ends with the second of them at the latest.
    if let Some(at) = leaders {
        for function in [
            Function::PodScheduling,
            Function::KubeSystemPods,
            Function::NamespaceDelete,
            Function::ServiceEndpoints,
        ] {
            seen.entry(function).or_insert(at);
        }
    }
    backend.behave(Behaviour::Healthy).await.unwrap();
    clients.stop().await;
    seen
}

/// Writes that are tried at once, each as by its writer.
type Try = (Function, &'static [&'static str], Method, &'static str, Value);

const SCHEDULER: &[&str] = &["system:kube-scheduler"];
const REPLICAS: &[&str] = &[
    "system:serviceaccount:kube-system:replicaset-controller",
    "system:serviceaccounts",
];
const SLICES: &[&str] = &[
    "system:serviceaccount:kube-system:endpointslice-controller",
    "system:serviceaccounts",
];
const NODE: &[&str] = &["system:node:node-1", "system:nodes"];
const PERSON: &[&str] = &["a-person"];

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "example/c"}]}})
}

fn slice(name: &str) -> Value {
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": name}, "addressType": "IPv4", "endpoints": []})
}

fn deployment() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "new"}, "spec": {"replicas": 0,
        "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod("x")["spec"]}}})
}

fn tried() -> Vec<Try> {
    let deletion = json!({"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"]});
    let labels = json!({"metadata": {"labels": {"changed": "yes"}}});
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "there"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"}});
    let token = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["a"], "expirationSeconds": 3_600}});
    vec![
        (
            Function::PodScheduling,
            SCHEDULER,
            Method::POST,
            "/api/v1/namespaces/tenant/pods/there/binding",
            binding,
        ),
        (
            Function::KubeSystemPods,
            REPLICAS,
            Method::POST,
            "/api/v1/namespaces/kube-system/pods",
            pod("new"),
        ),
        (
            Function::NamespaceCreate,
            PERSON,
            Method::POST,
            "/api/v1/namespaces",
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new"}}),
        ),
        (
            Function::NamespaceDelete,
            PERSON,
            Method::DELETE,
            "/api/v1/namespaces/tenant",
            deletion.clone(),
        ),
        (
            Function::NamespaceDelete,
            PERSON,
            Method::DELETE,
            "/api/v1/namespaces/tenant/pods/there",
            deletion,
        ),
        (
            Function::ServiceEndpoints,
            SLICES,
            Method::POST,
            "/apis/discovery.k8s.io/v1/namespaces/tenant/endpointslices",
            slice("new"),
        ),
        (
            Function::ServiceEndpoints,
            SLICES,
            Method::PATCH,
            "/apis/discovery.k8s.io/v1/namespaces/tenant/endpointslices/there",
            labels.clone(),
        ),
        (
            Function::TokenRequest,
            NODE,
            Method::POST,
            "/api/v1/namespaces/tenant/serviceaccounts/there/token",
            token,
        ),
        (
            Function::TenantWrites,
            REPLICAS,
            Method::POST,
            "/api/v1/namespaces/tenant/pods",
            pod("new"),
        ),
        (
            Function::TenantWrites,
            PERSON,
            Method::POST,
            "/apis/apps/v1/namespaces/tenant/deployments",
            deployment(),
        ),
        (
            Function::TenantWrites,
            PERSON,
            Method::PATCH,
            "/api/v1/namespaces/tenant/configmaps/there",
            labels,
        ),
    ]
}

/// Whether a write is refused for the webhook, or takes longer than an API server gives it.
async fn is_lost(client: &Client, by: &[&str], method: Method, path: &str, body: &Value) -> bool {
    let kind = if method == Method::PATCH {
        "application/merge-patch+json"
    } else {
        "application/json"
    };
    let (user, groups) = by.split_first().unwrap();
    let mut request = Request::builder()
        .method(method.clone())
        .uri(format!("{path}?dryRun=All"))
        .header("content-type", kind)
        .header("impersonate-user", *user)
        // Who may do everything meets no role's limit on the way to the webhook.
        .header("impersonate-group", "system:masters");
    for group in groups {
        request = request.header("impersonate-group", *group);
    }
    let request = request.body(Body::from(body.to_string().into_bytes())).unwrap();
    let answer = timeout(Duration::from_secs(36), client.send(request)).await;
    let Ok(answer) = answer else { return true };
    let answer = answer.unwrap();
    let status = answer.status();
    let said = String::from_utf8_lossy(&answer.into_body().collect().await.unwrap().to_bytes()).into_owned();
    assert!(
        status.is_success() || said.contains("failed calling webhook"),
        "{method} {path}: {status} {said}"
    );
    !status.is_success()
}

async fn post(client: &Client, path: &str, object: &Value) {
    let answer = ask(client, Method::POST, path, "application/json", object).await;
    assert!(answer.is_success() || answer.status == 409, "{path}: {answer:?}");
}

/// What is written to.
async fn stage(client: &Client) {
    post(
        client,
        "/api/v1/namespaces",
        &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tenant"}}),
    )
    .await;
    for namespace in ["tenant", "kube-system"] {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "there"}});
        post(
            client,
            &format!("/api/v1/namespaces/{namespace}/serviceaccounts"),
            &account,
        )
        .await;
        // Pods take the account `default`, which the controller makes.
        until("there is an account", async || {
            let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default");
            ask(client, Method::GET, &path, "application/json", &Value::Null)
                .await
                .is_success()
        })
        .await;
    }
    post(client, "/api/v1/namespaces/tenant/pods", &pod("there")).await;
    post(
        client,
        "/apis/discovery.k8s.io/v1/namespaces/tenant/endpointslices",
        &slice("there"),
    )
    .await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "there"}});
    post(client, "/api/v1/namespaces/tenant/configmaps", &map).await;
}
