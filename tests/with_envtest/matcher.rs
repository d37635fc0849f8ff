//! Whether a webhook is called: what hookwatch says, held against which calls a real API server made.
//!
//! Webhooks and requests are drawn by a fixed seed. All webhooks stand in one API server and ignore failures, so that each
//! request meets all that match it; a server in this process notes which of them were called.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hookwatch::domain::cluster::hook::{Hook, Labels};
use hookwatch::domain::cluster::matching::conditions::Asked;
use hookwatch::domain::cluster::matching::outcome::{Compiler, Forecast, Known, Outcome};
use hookwatch::domain::cluster::matching::{RequestShape, Requester};
use hookwatch::io::cluster::inventory::convert;
use hookwatch::lab::certs::Authority;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use serde_json::{Value, json};
use tokio_rustls::TlsAcceptor;

use super::privileges::cluster::{Cluster, block_on, until};
use super::{Named, Outcome as Played, missing, named};

const SEED: u64 = 20_261_124;
/// Webhooks per configuration, and configurations.
const HOOKS: usize = 12;
const CONFIGURATIONS: usize = 6;
/// Called for every dry run, last of all: when it is, the others are known as well.
const MARKER: &str = "marker.example.com";

pub fn tests() -> Vec<Named> {
    vec![named(
        "a_webhook_is_called_exactly_where_the_matcher_says_so",
        matcher,
    )]
}

/// Numbers that are the same each time.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }

    fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// Conditions of webhooks as projects publish them.
const PUBLISHED: [(&str, &str); 20] = [
    // kubernetes/website, examples/access, of 1.33.
    (
        "Kubernetes",
        r#"!(request.resource.group == "coordination.k8s.io" && request.resource.resource == "leases")"#,
    ),
    ("Kubernetes", r#"!("system:nodes" in request.userInfo.groups)"#),
    (
        "Kubernetes",
        r#"request.resource.group != "rbac.authorization.k8s.io""#,
    ),
    // kubernetes/kubernetes, cluster/gce/addons/cloud-pvl-admission.
    ("Kubernetes", "has(object.spec.gcePersistentDisk)"),
    // kyverno/kyverno 111e07bbec: pkg/controllers/webhook/bootstrap_exclusion.go, and test/conformance/chainsaw.
    (
        "Kyverno",
        r#"!(request.resource.group == "" && request.resource.resource == "nodes") && !(request.resource.group == "certificates.k8s.io" && request.resource.resource == "certificatesigningrequests")"#,
    ),
    (
        "Kyverno",
        "!((object.apiVersion == 'v1' && object.kind =='Pod')) || (has(object.metadata.labels) && has(object.metadata.labels.prod) && object.metadata.labels.prod == 'true')",
    ),
    (
        "Kyverno",
        "!((object.apiVersion == 'batch/v1' && object.kind =='CronJob')) || (has(object.spec.jobTemplate.spec.template.metadata.labels) && has(object.spec.jobTemplate.spec.template.metadata.labels.prod) && object.spec.jobTemplate.spec.template.metadata.labels.prod == 'true')",
    ),
    (
        "Kyverno",
        "!((object.apiVersion == 'apps/v1' && object.kind =='DaemonSet') || (object.apiVersion == 'apps/v1' && object.kind =='Deployment') || (object.apiVersion == 'apps/v1' && object.kind =='ReplicaSet') || (object.apiVersion == 'apps/v1' && object.kind =='StatefulSet') || (object.apiVersion == 'batch/v1' && object.kind =='Job')) || (has(object.spec.template.metadata.labels) && has(object.spec.template.metadata.labels.prod) && object.spec.template.metadata.labels.prod == 'true')",
    ),
    ("Kyverno", r#"("system:masters" in request.userInfo.groups)"#),
    // projectcapsule/capsule 65a4e19e: charts/capsule/values.yaml.
    (
        "Capsule",
        r#"!has(request.subResource) || request.subResource == """#,
    ),
    ("Capsule", r#"request.resource.resource != "events""#),
    (
        "Capsule",
        "request.resource.group == \"capsule.clastix.io\" ||\n!(\n  request.userInfo.username in [\n    \"kubernetes-admin\"\n  ]\n)\n",
    ),
    // rancher/webhook 31c772b1: pkg/resources/core/v1/secret/mutator.go.
    (
        "Rancher",
        r#"request.operation == 'DELETE' || (object != null && object.type == "provisioning.cattle.io/cloud-credential" && request.operation == 'CREATE') || (object != null && object.metadata.namespace == "cattle-local-user-passwords")"#,
    ),
    // kubevirt/kubevirt d923fdb815: pkg/virt-operator/resource/generate/components/webhooks.go.
    ("KubeVirt", r#"object.metadata.name.startsWith("virt-launcher")"#),
    ("KubeVirt", r#"object.metadata.name.startsWith("hp-volume-")"#),
    // DataDog/datadog-agent: pkg/clusteragent/admission, of 0d98898008 and later.
    ("Datadog", "!(request.userInfo.username.startsWith('system:'))"),
    (
        "Datadog",
        r#"has(object.metadata.annotations) && "autoscaling.datadoghq.com/managed-by-dpa" in object.metadata.annotations"#,
    ),
    // solo-io/gloo, pull request 10554.
    (
        "Gloo",
        r#"request.resource.resource != "secrets" || ("labels" in oldObject.metadata && "foo" in oldObject.metadata.labels)"#,
    ),
    // hashicorp/vault-helm, pull request 1079.
    (
        "Vault",
        "has(object.metadata.annotations) && 'vault.hashicorp.com/agent-inject' in object.metadata.annotations",
    ),
    // kubernetes/kubernetes, test/integration/apiserver/admissionwebhook/match_conditions_test.go.
    ("Kubernetes", "object.metadata.namespace != 'kube-system'"),
];

/// Others, about every field and function that is evaluated.
const OTHERS: [&str; 13] = [
    r#"request.resource.resource != "leases""#,
    r#"!(request.userInfo.username.startsWith("system:serviceaccount:kube-system:"))"#,
    r#"has(request.namespace) ? !(request.namespace in ["kube-system", "matcher-b"]) : true"#,
    r#"!has(request.subResource) || request.subResource != "status""#,
    r#"request.operation != "DELETE""#,
    r#"object != null && has(object.metadata.labels) && "app" in object.metadata.labels"#,
    r#"oldObject == null || object == null || object.metadata.uid == oldObject.metadata.uid"#,
    r#"object.metadata.?labels["tier"].orValue("none") != "none""#,
    r#"request.kind.kind in ["Pod", "ConfigMap", "Deployment", "Widget", "Namespace"]"#,
    r#"request.userInfo.groups.exists(group, group.startsWith("system:serviceaccounts"))"#,
    r#"request.name.matches("^matcher.*")"#,
    // Those that err for some.
    r#"request.namespace != "matcher-a""#,
    r#"object.metadata.labels["app"] == "web""#,
];

/// In the documentation of Kubernetes as well: what is not known before.
const UNKNOWN: &str = r#"authorizer.group("example.com").resource("widgets").check("breakglass").allowed()"#;

const SELECTORS: [&str; 8] = [
    r#"{}"#,
    r#"{"matchLabels": {"env": "prod"}}"#,
    r#"{"matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["prod"]}]}"#,
    r#"{"matchExpressions": [{"key": "env", "operator": "Exists"}]}"#,
    r#"{"matchExpressions": [{"key": "env", "operator": "DoesNotExist"}]}"#,
    r#"{"matchExpressions": [{"key": "env", "operator": "In", "values": ["dev", "prod"]}]}"#,
    r#"{"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "matcher-b"]}]}"#,
    r#"{"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]}"#,
];

fn rule(draw: &mut Draw) -> Value {
    let operations: &[&[&str]] = &[
        &["*"],
        &["CREATE"],
        &["UPDATE"],
        &["CREATE", "UPDATE"],
        &["DELETE"],
        &["CREATE", "UPDATE", "DELETE"],
    ];
    let groups: &[&[&str]] = &[
        &["*"],
        &["*"],
        &["*"],
        &["", "apps"],
        &[""],
        &["matcher.example"],
        &["events.k8s.io", "autoscaling"],
        &["coordination.k8s.io", "", "rbac.authorization.k8s.io"],
    ];
    let versions: &[&[&str]] = &[
        &["*"],
        &["*"],
        &["v1"],
        &["v2"],
        &["v1", "v2"],
        &["v3", "v1beta1"],
    ];
    let resources: &[&[&str]] = &[
        &["*/*"],
        &["*"],
        &["*/*"],
        &["pods", "configmaps", "widgets"],
        &["pods/*", "*/status"],
        &["widgets", "widgets/status", "events", "horizontalpodautoscalers"],
        &["deployments", "deployments/scale", "leases", "namespaces"],
        &["nodes", "clusterroles", "namespaces", "configmaps"],
        &["*/scale", "*"],
    ];
    let scopes = ["*", "*", "Namespaced", "Cluster"];
    json!({
        "operations": draw.one(operations), "apiGroups": draw.one(groups), "apiVersions": draw.one(versions),
        "resources": draw.one(resources), "scope": draw.one(&scopes),
    })
}

/// Of three webhooks, the first has conditions that are published, each of them in its turn, the second others.
fn conditions(draw: &mut Draw, place: usize) -> Vec<Value> {
    let mut chosen: BTreeSet<&str> = BTreeSet::new();
    match place % 3 {
        0 => {
            chosen.insert(PUBLISHED[place / 3 % PUBLISHED.len()].1);
            if draw.chance(30) {
                chosen.insert(draw.one(&PUBLISHED).1);
            }
            if draw.chance(10) {
                chosen.insert(UNKNOWN);
            }
        }
        1 => {
            chosen.extend((0..=draw.below(2)).map(|_| *draw.one(&OTHERS)));
        }
        _ => {}
    }
    let named = chosen.iter().enumerate();
    named
        .map(|(at, text)| json!({"name": format!("c-{at}"), "expression": text}))
        .collect()
}

fn webhook(draw: &mut Draw, (name, place): (&str, usize), url: &str, ca: &str) -> Value {
    let mut rules = vec![rule(draw)];
    if draw.chance(60) {
        rules.push(rule(draw));
    }
    if draw.chance(72) {
        rules.push(json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "scope": "*"}));
    }
    let selector = |draw: &mut Draw| -> Value {
        let text = if draw.chance(60) {
            SELECTORS[0]
        } else {
            *draw.one(&SELECTORS)
        };
        serde_json::from_str(text).unwrap()
    };
    let conditions = conditions(draw, place);
    let policy = if draw.chance(60) { "Equivalent" } else { "Exact" };
    json!({
        "name": name, "clientConfig": {"url": format!("{url}/{name}"), "caBundle": ca}, "failurePolicy": "Ignore",
        "timeoutSeconds": 5, "sideEffects": "None", "admissionReviewVersions": ["v1"], "rules": rules,
        "matchPolicy": policy, "namespaceSelector": selector(draw), "objectSelector": selector(draw),
        "matchConditions": conditions,
    })
}

/// Notes who was called for dry runs.
async fn listen(authority: &Authority, called: Arc<Mutex<BTreeSet<String>>>) -> SocketAddr {
    let certificate = authority.issue("127.0.0.1").unwrap();
    let acceptor = TlsAcceptor::from(certificate.server_config().unwrap());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, called) = (acceptor.clone(), Arc::clone(&called));
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else {
                    return;
                };
                let answer = service_fn(move |request: Request<Incoming>| {
                    let called = Arc::clone(&called);
                    async move {
                        let path = request.uri().path().trim_start_matches('/').to_owned();
                        let body = request.into_body().collect().await.unwrap().to_bytes();
                        let review: Value = serde_json::from_slice(&body).unwrap();
                        if review["request"]["dryRun"] == true {
                            called.lock().unwrap_or_else(PoisonError::into_inner).insert(path);
                        }
                        let answer = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                                            "response": {"uid": review["request"]["uid"], "allowed": true}});
                        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(answer.to_string()))))
                    }
                });
                let _ = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), answer)
                    .await;
            });
        }
    });
    address
}

/// A kind that requests are about: group, version, resource, kind, whether it is in namespaces.
type Kind = (&'static str, &'static str, &'static str, &'static str, bool);

const KINDS: [Kind; 17] = [
    ("", "v1", "configmaps", "ConfigMap", true),
    ("", "v1", "pods", "Pod", true),
    ("", "v1", "services", "Service", true),
    ("", "v1", "events", "Event", true),
    ("events.k8s.io", "v1", "events", "Event", true),
    ("apps", "v1", "deployments", "Deployment", true),
    (
        "autoscaling",
        "v1",
        "horizontalpodautoscalers",
        "HorizontalPodAutoscaler",
        true,
    ),
    (
        "autoscaling",
        "v2",
        "horizontalpodautoscalers",
        "HorizontalPodAutoscaler",
        true,
    ),
    ("coordination.k8s.io", "v1", "leases", "Lease", true),
    ("matcher.example", "v1", "widgets", "Widget", true),
    ("matcher.example", "v2", "widgets", "Widget", true),
    ("", "v1", "namespaces", "Namespace", false),
    ("", "v1", "nodes", "Node", false),
    ("", "v1", "persistentvolumes", "PersistentVolume", false),
    ("", "v1", "secrets", "Secret", true),
    (
        "rbac.authorization.k8s.io",
        "v1",
        "clusterroles",
        "ClusterRole",
        false,
    ),
    (
        "scheduling.k8s.io",
        "v1",
        "priorityclasses",
        "PriorityClass",
        false,
    ),
];

/// Every version that the definition of a custom resource lists, served or not; of others hookwatch knows by itself.
fn known_as(kind: &Kind) -> Option<&'static [(&'static str, &'static str)]> {
    (kind.0 == "matcher.example").then_some(&[
        ("matcher.example", "v1"),
        ("matcher.example", "v2"),
        ("matcher.example", "v3"),
    ])
}

const NAMESPACES: [(&str, &[(&str, &str)]); 3] = [
    ("matcher-a", &[("env", "prod"), ("app", "web"), ("tier", "x")]),
    ("matcher-b", &[("env", "dev")]),
    ("kube-system", &[]),
];

const LABELS: [&[(&str, &str)]; 4] = [
    &[],
    &[("env", "prod")],
    &[("app", "web"), ("tier", "front")],
    &[("env", "dev"), ("app", "api")],
];

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

/// A valid object of a kind.
fn object(kind: &Kind, namespace: &str, name: &str, pairs: &[(&str, &str)]) -> Value {
    let (group, version, _, kind_name, namespaced) = *kind;
    let api_version = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    let mut object = json!({"apiVersion": api_version, "kind": kind_name, "metadata": {"name": name}});
    if !pairs.is_empty() {
        object["metadata"]["labels"] = json!(labels(pairs));
    }
    let is_web = pairs.contains(&("app", "web"));
    if is_web {
        object["metadata"]["annotations"] = json!({"vault.hashicorp.com/agent-inject": "true", "autoscaling.datadoghq.com/managed-by-dpa": "a/b"});
    }
    if namespaced {
        object["metadata"]["namespace"] = namespace.into();
    }
    let template = json!({"containers": [{"name": "c", "image": "example/c"}]});
    let scaled = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name});
    let more = match (kind_name, group, version) {
        ("Pod", ..) => json!({"spec": template}),
        ("Service", ..) => json!({"spec": {"ports": [{"port": 80}]}}),
        ("Deployment", ..) => json!({"spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": template}}}),
        ("HorizontalPodAutoscaler", ..) => json!({"spec": {"maxReplicas": 2, "scaleTargetRef": scaled}}),
        ("Event", "", _) => json!({"involvedObject": {"namespace": namespace}}),
        ("Event", ..) => {
            json!({"eventTime": "2026-11-24T00:00:00.000000Z", "reportingController": "example.com/c",
            "reportingInstance": "c", "action": "a", "reason": "r", "type": "Normal", "regarding": {"namespace": namespace}})
        }
        ("PriorityClass", ..) => json!({"value": 5}),
        ("Secret", ..) => {
            json!({"type": if is_web { "provisioning.cattle.io/cloud-credential" } else { "Opaque" }})
        }
        ("PersistentVolume", ..) => {
            let source = if is_web {
                json!({"gcePersistentDisk": {"pdName": "d"}})
            } else {
                json!({"hostPath": {"path": "/d"}})
            };
            let mut spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]});
            json_patch::merge(&mut spec, &source);
            json!({"spec": spec})
        }
        _ => json!({}),
    };
    json_patch::merge(&mut object, &more);
    object
}

fn path(kind: &Kind, namespace: &str) -> String {
    let (group, version, resource, _, namespaced) = *kind;
    let prefix = if group.is_empty() {
        format!("/api/{version}")
    } else {
        format!("/apis/{group}/{version}")
    };
    if namespaced {
        format!("{prefix}/namespaces/{namespace}/{resource}")
    } else {
        format!("{prefix}/{resource}")
    }
}

/// One request.
struct Asking {
    kind: Kind,
    operation: &'static str,
    subresource: &'static str,
    namespace: (&'static str, &'static [(&'static str, &'static str)]),
    name: String,
    by: Requester<'static>,
    new: Option<Value>,
    old: Option<Value>,
}

const WRITERS: [Requester<'static>; 4] = [
    Requester {
        user: "a-person",
        groups: &["system:masters", "system:authenticated"],
    },
    Requester {
        user: "kubernetes-admin",
        groups: &["system:masters", "system:authenticated"],
    },
    Requester {
        user: "system:node:n",
        groups: &["system:masters", "system:nodes", "system:authenticated"],
    },
    Requester {
        user: "system:serviceaccount:kube-system:c",
        groups: &[
            "system:masters",
            "system:serviceaccounts",
            "system:serviceaccounts:kube-system",
            "system:authenticated",
        ],
    },
];

/// The name of the object that stands for a kind, one for each of the labels.
fn stands(at: usize) -> String {
    format!("matcher-{at}")
}

fn metadata_labels(object: &Value) -> Labels {
    let fields = object["metadata"]["labels"].as_object().into_iter().flatten();
    fields
        .map(|(key, value)| (key.clone(), value.as_str().unwrap().to_owned()))
        .collect()
}

impl Asking {
    fn target(&self) -> String {
        let below = if self.subresource.is_empty() {
            String::new()
        } else {
            format!("/{}", self.subresource)
        };
        let base = path(&self.kind, self.namespace.0);
        let one = if self.operation == "CREATE" {
            base
        } else {
            format!("{base}/{}{below}", self.name)
        };
        format!("{one}?dryRun=All")
    }

    fn request(&self) -> Request<Body> {
        let (method, kind, body) = match self.operation {
            "CREATE" => (Method::POST, "application/json", self.new.clone().unwrap()),
            "DELETE" => (
                Method::DELETE,
                "application/json",
                json!({"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"]}),
            ),
            _ => (
                Method::PATCH,
                "application/merge-patch+json",
                json!({"metadata": {"labels": self.new.as_ref().unwrap()["metadata"]["labels"]}}),
            ),
        };
        let mut request = Request::builder()
            .method(method)
            .uri(self.target())
            .header("content-type", kind)
            .header("accept", "application/json")
            .header("impersonate-user", self.by.user);
        for group in self.by.groups {
            request = request.header("impersonate-group", *group);
        }
        request.body(Body::from(body.to_string().into_bytes())).unwrap()
    }

    /// What hookwatch says.
    fn foretold(
        &self,
        hook: &Hook,
        conditions: &Forecast,
        known_labels: &BTreeMap<String, Labels>,
    ) -> Option<bool> {
        let (group, version, resource, kind_name, namespaced) = self.kind;
        let is_namespace = resource == "namespaces";
        let new_labels = self.new.as_ref().map(metadata_labels);
        let old_labels = self.old.as_ref().map(metadata_labels);
        let shape = RequestShape {
            operation: self.operation,
            group,
            version,
            resource,
            subresource: self.subresource,
            namespace: if is_namespace {
                Some(&self.name)
            } else {
                namespaced.then_some(self.namespace.0)
            },
            namespace_labels: if is_namespace {
                old_labels.as_ref()
            } else {
                known_labels.get(self.namespace.0)
            },
            object_labels: new_labels.as_ref(),
            old_labels: old_labels.as_ref(),
            known_as: known_as(&self.kind),
        };
        if !hook.could_match(&shape) {
            return Some(false);
        }
        let asked = Asked {
            shape,
            kind: Some(kind_name),
            name: &self.name,
            by: self.by,
            dry_run: true,
        };
        let known = |object: &'_ Option<Value>| object.clone();
        let (new, old) = (known(&self.new), known(&self.old));
        let object = new.as_ref().map_or(Known::Null, Known::Object);
        let old = old.as_ref().map_or(Known::Null, Known::Object);
        match conditions.outcome(&asked, object, old) {
            Outcome::True => Some(true),
            // Failures are ignored here.
            Outcome::False | Outcome::Error => Some(false),
            Outcome::Unknown => None,
        }
    }
}

/// Every request that is made, given what is stored.
fn askings(draw: &mut Draw, stored: &BTreeMap<(usize, usize, usize), Value>) -> Vec<Asking> {
    let mut all = Vec::new();
    for (at, kind) in KINDS.iter().enumerate() {
        for (place, namespace) in NAMESPACES.iter().enumerate() {
            if !kind.4 && place > 0 {
                continue;
            }
            let by = || WRITERS;
            for operation in ["CREATE", "UPDATE", "DELETE"] {
                // Of a namespace that is deleted, its own finalizers are asked for first; and kube-system is never.
                let of = draw.below(LABELS.len());
                let pairs = LABELS[draw.below(LABELS.len())];
                let old = stored.get(&(at, place, of));
                let Some(old) = old else { continue };
                let name = if operation == "CREATE" {
                    (*draw.one(&["matcher-new", "virt-launcher-new", "hp-volume-new"])).to_owned()
                } else {
                    stands(of)
                };
                let new = match operation {
                    "CREATE" => Some(object(kind, namespace.0, &name, pairs)),
                    "DELETE" => None,
                    _ => {
                        let mut new = old.clone();
                        // A merge patch adds labels and keeps the others.
                        if !pairs.is_empty() {
                            json_patch::merge(&mut new, &json!({"metadata": {"labels": labels(pairs)}}));
                        }
                        Some(new)
                    }
                };
                let subresource = match (operation, kind.2) {
                    ("UPDATE", "pods" | "widgets" | "deployments" | "nodes") if draw.chance(40) => "status",
                    _ => "",
                };
                // The status of these is written without their labels.
                let new = if matches!((kind.2, subresource), ("widgets" | "deployments", "status")) {
                    Some(old.clone())
                } else {
                    new
                };
                let writers = by();
                all.push(Asking {
                    kind: *kind,
                    operation,
                    subresource,
                    namespace: *namespace,
                    name,
                    by: *draw.one(&writers),
                    new,
                    old: (operation != "CREATE").then(|| old.clone()),
                });
            }
        }
    }
    all
}

fn definition() -> Value {
    let version = |name: &str, stored: bool, is_served: bool| {
        json!({"name": name, "served": is_served, "storage": stored, "subresources": {"status": {}},
               "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.matcher.example"},
        "spec": {"group": "matcher.example", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
                 "versions": [version("v1", true, true), version("v2", false, true), version("v3", false, false)]},
    })
}

/// Makes what requests are about, and reads it back as it is stored.
async fn stage(cluster: &Cluster) -> BTreeMap<(usize, usize, usize), Value> {
    cluster.apply(&definition()).await;
    for (name, pairs) in NAMESPACES {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels(pairs)}});
        cluster.apply(&namespace).await;
    }
    until("custom resources are served", async || {
        let request = Request::get("/apis/matcher.example/v2/widgets")
            .body(Body::empty())
            .unwrap();
        cluster
            .admin
            .send(request)
            .await
            .is_ok_and(|answer| answer.status().is_success())
    })
    .await;
    let mut stored = BTreeMap::new();
    for (at, kind) in KINDS.iter().enumerate() {
        for (place, (namespace, _)) in NAMESPACES.iter().enumerate() {
            if !kind.4 && place > 0 {
                continue;
            }
            for (of, pairs) in LABELS.iter().enumerate() {
                let made = object(kind, namespace, &stands(of), pairs);
                let base = path(kind, namespace);
                let request = Request::post(&base)
                    .header("content-type", "application/json")
                    .body(Body::from(made.to_string().into_bytes()))
                    .unwrap();
                let answer = cluster.admin.send(request).await.unwrap();
                // The same object in another group or version is there already.
                let status = answer.status().as_u16();
                assert!(
                    matches!(status, 201 | 409),
                    "{base}: {status} {:?}",
                    answer.into_body().collect().await.unwrap().to_bytes()
                );
                let found = cluster
                    .admin(Method::GET, &format!("{base}/{}", stands(of)), &Value::Null)
                    .await;
                stored.insert((at, place, of), found);
            }
        }
    }
    stored
}

fn matcher() -> Played {
    if let Some(skipped) = missing() {
        return skipped;
    }
    block_on(async {
        let cluster = Cluster::start().await;
        let stored = stage(&cluster).await;
        let authority = Authority::new("matcher").unwrap();
        let called = Arc::new(Mutex::new(BTreeSet::new()));
        let url = format!("https://{}", listen(&authority, Arc::clone(&called)).await);
        let ca = BASE64_STANDARD.encode(authority.pem());
        let mut draw = Draw(SEED);
        let mut hooks: Vec<(Arc<Hook>, Forecast, bool)> = Vec::new();
        let compiler = Compiler::default();
        let mut used: BTreeSet<(&str, &str)> = BTreeSet::new();
        for at in 0..CONFIGURATIONS {
            let kind = if at % 2 == 0 { "Mutating" } else { "Validating" };
            let webhooks = (0..HOOKS).map(|entry| {
                webhook(
                    &mut draw,
                    (&format!("h{at}-{entry}.example.com"), at * HOOKS + entry),
                    &url,
                    &ca,
                )
            });
            let configuration = json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{kind}WebhookConfiguration"),
                "metadata": {"name": format!("matcher-{at}")}, "webhooks": webhooks.collect::<Vec<_>>(),
            });
            cluster.apply(&configuration).await;
            let made = if kind == "Mutating" {
                convert::mutating(serde_json::from_value(configuration).unwrap())
            } else {
                convert::validating(serde_json::from_value(configuration).unwrap())
            };
            for hook in made {
                let conditions = compiler.conditions(
                    hook.match_conditions
                        .iter()
                        .map(|condition| &*condition.expression),
                );
                let published = hook.match_conditions.iter().filter_map(|condition| {
                    let known = PUBLISHED.iter().find(|(_, text)| *text == condition.expression)?;
                    used.insert(*known);
                    Some(known)
                });
                let conditional = published.count() > 0;
                hooks.push((Arc::new(hook), conditions, conditional));
            }
        }
        for kind in ["Mutating", "Validating"] {
            let mut marker = webhook(&mut Draw(1), (MARKER, 2), &url, &ca);
            marker["rules"] = json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]);
            marker["matchConditions"] = json!([]);
            (marker["namespaceSelector"], marker["objectSelector"]) = (json!({}), json!({}));
            cluster.apply(&json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{kind}WebhookConfiguration"),
                "metadata": {"name": "zz-marker"}, "webhooks": [marker],
            })).await;
        }
        let take = || std::mem::take(&mut *called.lock().unwrap_or_else(PoisonError::into_inner));
        let askings = askings(&mut draw, &stored);
        until("the webhooks are in force", async || {
            let answer = cluster.admin.send(askings[0].request()).await.unwrap();
            drop(answer.into_body().collect().await);
            take().contains(MARKER)
        })
        .await;
        // The informers of the two kinds are not in step.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let known_labels: BTreeMap<String, Labels> = namespaces(&cluster).await;
        let (mut pairs, mut calls, mut conditional, mut may, mut may_of_published, mut passed_over) =
            (0, 0, 0, 0, 0, 0);
        let mut wrong = Vec::new();
        for asking in &askings {
            take();
            let answer = cluster.admin.send(asking.request()).await.unwrap();
            let status = answer.status().as_u16();
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            let called = take();
            if !called.contains(MARKER) || status >= 300 {
                passed_over += 1;
                println!(
                    "passed over: {} {}: {status} {}",
                    asking.operation,
                    asking.target(),
                    String::from_utf8_lossy(&body)
                        .chars()
                        .take(200)
                        .collect::<String>()
                );
                continue;
            }
            for (hook, conditions, has_conditions) in &hooks {
                pairs += 1;
                let really = called.contains(&*hook.id.webhook);
                calls += usize::from(really);
                conditional += usize::from(*has_conditions);
                match asking.foretold(hook, conditions, &known_labels) {
                    None => {
                        may += 1;
                        may_of_published += usize::from(*has_conditions);
                    }
                    Some(foretold) if foretold == really => {}
                    Some(foretold) => wrong.push(format!(
                        "{} {} by {}: foretold {foretold}, called {really}: rules {:?} {:?}, namespaces {:?}, objects {:?}, conditions {:?}",
                        asking.operation, asking.target(), asking.by.user, hook.rules, hook.match_policy, hook.namespace_selector, hook.object_selector, hook.match_conditions
                    )),
                }
            }
        }
        let projects: BTreeSet<&str> = used.iter().map(|(project, _)| *project).collect();
        println!(
            "{pairs} pairs of {} requests and {} webhooks: {calls} called ({} %); {may} may match; {} wrong; {passed_over} requests \
             were passed over; {conditional} pairs with {} published conditions of {} projects ({}), {may_of_published} of them may \
             match ({:.1} %)",
            askings.len() - passed_over,
            hooks.len(),
            100 * calls / pairs.max(1),
            wrong.len(),
            used.len(),
            projects.len(),
            projects.iter().copied().collect::<Vec<_>>().join(", "),
            100.0 * may_of_published as f64 / conditional as f64,
        );
        assert!(
            wrong.is_empty(),
            "{} wrong:\n{}",
            wrong.len(),
            wrong.iter().take(12).cloned().collect::<Vec<_>>().join("\n")
        );
        assert!(pairs >= 2_000, "{pairs}");
        assert!((33..=67).contains(&(100 * calls / pairs)), "{calls} of {pairs}");
        assert!(
            conditional >= 400 && may_of_published * 10 <= conditional,
            "{may_of_published} of {conditional}"
        );
        assert!(used.len() >= 12 && projects.len() >= 5, "{used:?}");
        assert!(passed_over * 5 < askings.len(), "{passed_over}");
    });
    Played::Held
}

/// The labels of all namespaces, as they are stored.
async fn namespaces(cluster: &Cluster) -> BTreeMap<String, Labels> {
    let list = cluster
        .admin(Method::GET, "/api/v1/namespaces", &Value::Null)
        .await;
    let items = list["items"].as_array().unwrap().iter();
    items
        .map(|item| {
            (
                item["metadata"]["name"].as_str().unwrap().to_owned(),
                metadata_labels(item),
            )
        })
        .collect()
}
