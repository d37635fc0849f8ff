//! A control plane whose webhooks fail: what is foretold of it, and what is then lost.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hookwatch::domain::audit::estate::Unlisted;
use hookwatch::domain::audit::{Auditor, BackendFailure, Casualty, Function};
use hookwatch::io::cluster::estate::{EstateObject, assemble};
use hookwatch::lab::backend::{BackendRole, Behaviour, LabBackend};
use hookwatch::lab::certs::Authority;
use hookwatch::lab::clients::ControlPlaneClients;
use hookwatch::lab::cluster::client_for;
use hookwatch::lab::control_plane::LabControlPlane;
use hookwatch::lab::directory::PrivateDirectory;
use hookwatch::lab::envtest::Envtest;
use hookwatch::lab::workload::{LabWorkload, WorkloadOptions};
use http::{Method, Request};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::super::cases::hooks::backend;
use super::super::privileges::cluster::{ask, content_type, until};
use super::cases::Case;

/// Longest that a play is watched: the last casualty is an API server's start, at 49 s.
const WATCHED: Duration = Duration::from_secs(54);

const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1";

/// A control plane that is ready to lose its webhooks.
pub struct Play {
    foretold: Vec<Casualty>,
    failure: BackendFailure,
    timeout: Duration,
    has_pods: bool,
    tries: Vec<Try>,
    client: Client,
    clients: ControlPlaneClients,
    failing: LabBackend,
    /// Whatever is called elsewhere.
    _healthy: LabBackend,
    _users: LabWorkload,
    _control_plane: LabControlPlane,
    _directory: PrivateDirectory,
}

impl Play {
    /// Starts a control plane with the webhooks of a case, and foretells what is lost with them.
    pub async fn prepare(case: &Case) -> Self {
        let directory = PrivateDirectory::create().unwrap();
        let control_plane = LabControlPlane::Envtest(Envtest::start(directory.path()).await.unwrap());
        let kubeconfig = control_plane.kubeconfig();
        let client = client_for(&kubeconfig).await.unwrap();
        let no_tenants = WorkloadOptions {
            clients: 0,
            ..WorkloadOptions::default()
        };
        let users = LabWorkload::start(&kubeconfig, &no_tenants).await.unwrap();
        let nodes = ["node-1".to_owned(), "node-2".to_owned()];
        let clients = ControlPlaneClients::start(&control_plane, None, &nodes, &users)
            .await
            .unwrap();
        let own = own_namespace(case);
        stage(&client, case, &own).await;
        // Of a cluster: its namespaces count, with their labels.
        let (estate, unreadable) = assemble(cluster(case, &client).await, Some(Unlisted::default()), None);
        assert_eq!(unreadable, []);
        let mut hooks = estate.subjects.iter();
        let asked = hooks
            .position(|subject| case.asked.is_empty() || &*subject.hook.id.webhook == case.asked)
            .unwrap();
        let hook = &estate.subjects[asked].hook;
        let (place, timeout) = (hook.target.place(), hook.timeout);
        let foretold = Auditor::new(&estate).forecast(asked, case.failure).casualties;
        let places = estate.subjects.iter();
        let fails: BTreeSet<String> = places
            .filter(|subject| subject.hook.target.place() == place)
            .map(|subject| subject.hook.id.webhook.to_string())
            .collect();
        let authority = Authority::new("audited").unwrap();
        let failing = backend(&authority, BackendRole::Validating, Behaviour::Healthy).await;
        let healthy = backend(&authority, BackendRole::Validating, Behaviour::Healthy).await;
        let ca = BASE64_STANDARD.encode(authority.pem());
        for object in &case.objects {
            let mut configuration = object.value.clone();
            let Some(webhooks) = configuration["webhooks"].as_array_mut() else {
                continue;
            };
            // A Service leads nowhere here, as nothing forwards to its address.
            for webhook in webhooks {
                let at_fault = fails.contains(webhook["name"].as_str().unwrap());
                let address = if at_fault {
                    failing.address()
                } else {
                    healthy.address()
                };
                webhook["clientConfig"] = json!({"url": format!("https://{address}/admit"), "caBundle": ca});
            }
            let kind = configuration["kind"].as_str().unwrap().to_lowercase();
            post(&client, &format!("{CONFIGURATIONS}/{kind}s"), &configuration).await;
        }
        Self {
            foretold,
            failure: case.failure,
            timeout,
            has_pods: !own.is_empty(),
            tries: tries(case, &own, &pod_labels(case)),
            client,
            clients,
            failing,
            _healthy: healthy,
            _users: users,
            _control_plane: control_plane,
            _directory: directory,
        }
    }

    /// What was foretold, and what was lost how long after the fault.
    pub async fn watch(self) -> (Vec<Casualty>, BTreeMap<Function, Duration>) {
        self.clients.count_casualties();
        let behaviour = match self.failure {
            BackendFailure::Hang => Behaviour::HangAfterTls,
            BackendFailure::Refuse => Behaviour::Refused,
            BackendFailure::Slow => Behaviour::Slow(self.timeout - Duration::from_millis(300)),
        };
        self.failing.behave(behaviour).await.unwrap();
        let began = Instant::now();
        self.clients.start_api_server();
        let mut tries = JoinSet::new();
        for (function, by, method, path, body) in self.tries.clone() {
            let client = self.client.clone();
            tries.spawn(async move {
                let lost = is_lost(&client, by, method, &path, &body).await;
                (function, lost.then(|| began.elapsed()))
            });
        }
        let mut seen: BTreeMap<Function, Duration> = BTreeMap::new();
        let mut leaders: BTreeMap<String, Duration> = BTreeMap::new();
        while began.elapsed() < WATCHED && seen.len() < Function::ALL.len() {
            sleep(Duration::from_millis(100)).await;
            while let Some(tried) = tries.try_join_next() {
                if let (function, Some(at)) = tried.unwrap() {
                    let known = seen.entry(function).or_insert(at);
                    *known = at.min(*known);
                }
            }
            let (lost, at) = (self.clients.casualties(), began.elapsed());
            for (function, count) in [
                (Function::LeaderElection, lost.leaders_lost),
                (Function::NodeHeartbeat, lost.node_leases_expired),
                (Function::ApiServerStart, lost.servers_not_started),
            ] {
                if count > 0 {
                    seen.entry(function).or_insert(at);
                }
            }
            for leader in self.clients.lost_leaders() {
                leaders.entry(leader).or_insert(at);
            }
        }
        self.without(&leaders, &mut seen);
        self.failing.behave(Behaviour::Healthy).await.unwrap();
        self.clients.stop().await;
        (self.foretold, seen)
    }

    /// What leaders do ends with them: a Pod is made by the one and bound by the other.
    fn without(&self, leaders: &BTreeMap<String, Duration>, seen: &mut BTreeMap<Function, Duration>) {
        for (function, by) in [
            (Function::PodScheduling, &LEADERS[1..]),
            (Function::KubeSystemPods, &LEADERS[..]),
            (Function::OwnPods, &LEADERS[..]),
            (Function::NamespaceDelete, &LEADERS[..1]),
            (Function::ServiceEndpoints, &LEADERS[..1]),
        ] {
            let first = by.iter().filter_map(|leader| leaders.get(*leader)).min();
            if let Some(at) = first.filter(|_| function != Function::OwnPods || self.has_pods) {
                seen.entry(function).or_insert(*at);
            }
        }
    }
}

const LEADERS: [&str; 2] = ["kube-controller-manager", "kube-scheduler"];

/// The objects of a case, and the namespaces of its cluster.
async fn cluster(case: &Case, client: &Client) -> Vec<EstateObject> {
    let found = ask(client, Method::GET, "/api/v1/namespaces", &Value::Null).await;
    let namespaces = found.body["items"].as_array().unwrap().iter().map(|item| {
        let mut value = item.clone();
        (value["apiVersion"], value["kind"]) = ("v1".into(), "Namespace".into());
        EstateObject {
            value,
            source: None,
            lines: Default::default(),
        }
    });
    case.objects.iter().cloned().chain(namespaces).collect()
}

/// The namespace of the Service that is called.
fn own_namespace(case: &Case) -> String {
    let mut webhooks = case
        .objects
        .iter()
        .flat_map(|object| object.value["webhooks"].as_array().into_iter().flatten());
    let asked = webhooks.find(|webhook| case.asked.is_empty() || webhook["name"] == case.asked);
    let service = &asked.unwrap()["clientConfig"]["service"];
    service["namespace"].as_str().unwrap().to_owned()
}

/// The labels of the webhook's own Pods.
fn pod_labels(case: &Case) -> Value {
    let mut objects = case.objects.iter();
    let workload = objects
        .find(|object| object.value["kind"] == "Deployment")
        .unwrap();
    workload.value["spec"]["template"]["metadata"]["labels"].clone()
}

/// Writes that are tried at once, each as by its writer.
pub type Try = (Function, &'static [&'static str], Method, String, Value);

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
pub const PERSON: &[&str] = &["a-person"];

fn pod(name: &str, labels: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels},
           "spec": {"containers": [{"name": "c", "image": "example/c"}]}})
}

fn slice(name: &str) -> Value {
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": name}, "addressType": "IPv4", "endpoints": []})
}

fn deployment() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "new"}, "spec": {"replicas": 0,
        "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod("x", &json!({}))["spec"]}}})
}

fn tries(case: &Case, own: &str, pods: &Value) -> Vec<Try> {
    use Function::{KubeSystemPods, NamespaceCreate, NamespaceDelete, OwnPods, PodScheduling};
    use Function::{ServiceEndpoints, TenantWrites, TokenRequest};
    use Method as M;
    let deletion = json!({"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"]});
    let change = json!({"metadata": {"labels": {"changed": "yes"}}});
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "there"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"}});
    let token = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["a"], "expirationSeconds": 3_600}});
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new"}});
    let dns = json!({"k8s-app": "kube-dns", "pod-template-hash": "x"});
    let status = json!({"status": {"message": "x"}});
    let core = |namespace: &str, rest: &str| format!("/api/v1/namespaces/{namespace}/{rest}");
    let tenant = |rest: &str| core("tenant", rest);
    let slices = |namespace: &str| format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices");
    let slice_of = |namespace: &str| format!("{}/there", slices(namespace));
    let namespaces = "/api/v1/namespaces".to_owned();
    let deployments = "/apis/apps/v1/namespaces/tenant/deployments".to_owned();
    let new = pod("new", &case.labels);
    let mut all: Vec<Try> = vec![
        (
            PodScheduling,
            SCHEDULER,
            M::POST,
            tenant("pods/there/binding"),
            binding.clone(),
        ),
        (
            KubeSystemPods,
            REPLICAS,
            M::POST,
            core("kube-system", "pods"),
            pod("new", &dns),
        ),
        (
            KubeSystemPods,
            SCHEDULER,
            M::POST,
            core("kube-system", "pods/there/binding"),
            binding.clone(),
        ),
        (NamespaceCreate, PERSON, M::POST, namespaces, namespace),
        (
            NamespaceDelete,
            PERSON,
            M::DELETE,
            "/api/v1/namespaces/tenant".to_owned(),
            deletion.clone(),
        ),
        (
            NamespaceDelete,
            PERSON,
            M::DELETE,
            tenant("pods/there"),
            deletion.clone(),
        ),
        (ServiceEndpoints, SLICES, M::POST, slices("tenant"), slice("new")),
        (
            ServiceEndpoints,
            SLICES,
            M::PATCH,
            slice_of("tenant"),
            change.clone(),
        ),
        (
            TokenRequest,
            NODE,
            M::POST,
            tenant("serviceaccounts/there/token"),
            token.clone(),
        ),
        (TenantWrites, REPLICAS, M::POST, tenant("pods"), new),
        (TenantWrites, PERSON, M::POST, deployments, deployment()),
        (
            TenantWrites,
            PERSON,
            M::PATCH,
            tenant("configmaps/there"),
            change.clone(),
        ),
        (
            TenantWrites,
            PERSON,
            M::DELETE,
            tenant("configmaps/there"),
            deletion,
        ),
        (TenantWrites, PERSON, M::POST, slices("tenant"), slice("new")),
        (
            TenantWrites,
            PERSON,
            M::POST,
            tenant("serviceaccounts/there/token"),
            token.clone(),
        ),
        (OwnPods, REPLICAS, M::POST, core(own, "pods"), pod("new", pods)),
        (
            OwnPods,
            SCHEDULER,
            M::POST,
            core(own, "pods/there/binding"),
            binding,
        ),
        (
            OwnPods,
            NODE,
            M::POST,
            core(own, "serviceaccounts/there/token"),
            token,
        ),
        (OwnPods, NODE, M::PATCH, core(own, "pods/there/status"), status),
        (OwnPods, SLICES, M::PATCH, slice_of(own), change),
    ];
    all.extend(case.custom_write());
    all
}

/// Whether a write is refused for the webhook, or takes longer than an API server gives it.
async fn is_lost(client: &Client, by: &[&str], method: Method, path: &str, body: &Value) -> bool {
    let (user, groups) = by.split_first().unwrap();
    let mut request = Request::builder()
        .method(method.clone())
        .uri(format!("{path}?dryRun=All"))
        .header("content-type", content_type(&method, body))
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
    let answer = ask(client, Method::POST, path, object).await;
    assert!(answer.is_success() || answer.status == 409, "{path}: {answer:?}");
}

/// Makes what is written to.
async fn stage(client: &Client, case: &Case, own: &str) {
    let objects = case.objects.iter().map(|object| &object.value);
    for namespace in objects.filter(|object| object["kind"] == "Namespace") {
        post(client, "/api/v1/namespaces", namespace).await;
    }
    if let Some(definition) = case.definition() {
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        post(client, path, &definition).await;
        let (_, _, _, path, _) = case.custom_write().unwrap();
        until("custom resources are served", async || {
            ask(client, Method::GET, &path, &Value::Null).await.is_success()
        })
        .await;
    }
    let labels = pod_labels(case);
    for (name, labels, pods) in [
        ("tenant", &case.labels, &case.labels),
        ("kube-system", &json!({}), &json!({})),
        (own, &json!({}), &labels),
    ] {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
        post(client, "/api/v1/namespaces", &namespace).await;
        let base = format!("/api/v1/namespaces/{name}");
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "there"}});
        post(client, &format!("{base}/serviceaccounts"), &account).await;
        // Pods take the account `default`, which the controller makes.
        until("there is an account", async || {
            let path = format!("{base}/serviceaccounts/default");
            ask(client, Method::GET, &path, &Value::Null).await.is_success()
        })
        .await;
        post(client, &format!("{base}/pods"), &pod("there", pods)).await;
        let slices = format!("/apis/discovery.k8s.io/v1/namespaces/{name}/endpointslices");
        post(client, &slices, &slice("there")).await;
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "there", "labels": case.labels}});
        post(client, &format!("{base}/configmaps"), &map).await;
    }
}
