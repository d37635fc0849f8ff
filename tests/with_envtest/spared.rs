//! Each line of what a shield spares, at a real API server: by its writer the hook is not asked, by anybody else it is.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hookwatch::domain::cluster::condition::BypassCondition;
use hookwatch::domain::cluster::condition::spare::{LINES, SparedResource, SparedWriter, SparedWrites};
use hookwatch::domain::cluster::hook::Added;
use hookwatch::lab::backend::{BackendRole, Behaviour, LabBackend};
use hookwatch::lab::certs::Authority;
use http::{Method, Request};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use super::cases::hooks::backend;
use super::cases::shield::{pod, signing_request};
use super::privileges::cluster::{Answer, Cluster, apply, content_type, play, until};
use super::{Named, Outcome as Played, named};

const ASKED: &str = "it was asked";
const OWN: &str = "hookwatch";
const PERSON: SparedWriter = SparedWriter::Users(&["a-person"]);

pub fn tests() -> Vec<Named> {
    vec![named(
        "shield_spares_each_line_of_its_table_and_nothing_beside",
        table,
    )]
}

/// One write.
struct Write {
    operation: &'static str,
    object: SparedResource,
    namespace: &'static str,
}

impl Write {
    /// The kinds of an API server of its own: group and version of the path, and what is there already or made for it.
    fn path(&self) -> String {
        let (group, resource, _) = self.object;
        let version = match group {
            "" => "/api/v1".to_owned(),
            "internal.apiserver.k8s.io" => format!("/apis/{group}/v1alpha1"),
            _ => format!("/apis/{group}/v1"),
        };
        if scope(resource) {
            format!("{version}/namespaces/{}/{resource}", self.namespace)
        } else {
            format!("{version}/{resource}")
        }
    }

    fn request(&self, by: SparedWriter) -> Request<Body> {
        let (group, resource, subresource) = self.object;
        let below = match subresource {
            "" => String::new(),
            subresource => format!("/{subresource}"),
        };
        let (path, name) = (self.path(), name(resource));
        let (method, target, body) = match (self.operation, subresource) {
            ("CREATE", "") => (Method::POST, path, made(group, resource)),
            ("CREATE", _) => (
                Method::POST,
                format!("{path}/{name}{below}"),
                below_made(subresource, name),
            ),
            ("DELETE", _) => (
                Method::DELETE,
                format!("{path}/{name}{below}"),
                json!({"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"]}),
            ),
            _ => (
                Method::PATCH,
                format!("{path}/{name}{below}"),
                json!({"metadata": {"annotations": {"a": "b"}}}),
            ),
        };
        let mut request = Request::builder()
            .method(&method)
            .uri(format!("{target}?dryRun=All"))
            .header("content-type", content_type(&method, &body))
            .header("accept", "application/json");
        // Who may do everything meets no role's limit on the way to the hook.
        let (user, groups) = match by {
            SparedWriter::Anyone => ("anybody", vec![]),
            SparedWriter::Group(group) => ("one-of-them", vec![group]),
            SparedWriter::Users(users) => (users[0], vec![]),
        };
        request = request.header("impersonate-user", user);
        for group in groups.into_iter().chain(["system:masters"]) {
            request = request.header("impersonate-group", group);
        }
        request.body(Body::from(body.to_string().into_bytes())).unwrap()
    }

    /// Whether the API server asked the hook.
    async fn is_asked(&self, by: SparedWriter, client: &Client, backend: &LabBackend) -> (bool, String) {
        let before = backend.counters().reviews();
        let answer = client.send(self.request(by)).await.unwrap();
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
        let answer = Answer { status, body };
        let asked = backend.counters().reviews() > before;
        assert_eq!(asked, answer.message().contains(ASKED), "{answer:?}");
        (asked, format!("{} {}", answer.status, answer.message()))
    }
}

/// Each user by itself.
fn each(by: SparedWriter) -> Vec<SparedWriter> {
    match by {
        SparedWriter::Users(users) => {
            let alone = |user| SparedWriter::Users(std::slice::from_ref(user));
            users.iter().map(alone).collect()
        }
        by => vec![by],
    }
}

/// Whether objects of a kind are in namespaces.
fn scope(resource: &str) -> bool {
    matches!(
        resource,
        "pods"
            | "serviceaccounts"
            | "endpointslices"
            | "endpoints"
            | "services"
            | "resourcequotas"
            | "roles"
            | "rolebindings"
            | "persistentvolumeclaims"
            | "poddisruptionbudgets"
            | "localsubjectaccessreviews"
            | "leases"
            | "resourceclaims"
            | "deployments"
            | "replicasets"
    )
}

/// One that is there.
fn name(resource: &str) -> &'static str {
    match resource {
        "services" | "servicecidrs" => "kubernetes",
        "clusterroles" | "clusterrolebindings" => "cluster-admin",
        "flowschemas" | "prioritylevelconfigurations" => "exempt",
        "apiservices" => "v1.",
        "ipaddresses" => "192.0.2.1",
        "customresourcedefinitions" => "spareds.spared.example",
        _ => "spared",
    }
}

fn kind_of(resource: &str) -> &'static str {
    let kinds = [
        ("nodes", "Node"),
        ("pods", "Pod"),
        ("serviceaccounts", "ServiceAccount"),
        ("csinodes", "CSINode"),
        ("certificatesigningrequests", "CertificateSigningRequest"),
        ("resourceslices", "ResourceSlice"),
        ("resourceclaims", "ResourceClaim"),
        ("persistentvolumes", "PersistentVolume"),
        ("persistentvolumeclaims", "PersistentVolumeClaim"),
        ("volumeattachments", "VolumeAttachment"),
        ("poddisruptionbudgets", "PodDisruptionBudget"),
        ("resourcequotas", "ResourceQuota"),
        ("roles", "Role"),
        ("rolebindings", "RoleBinding"),
        ("leases", "Lease"),
        ("deployments", "Deployment"),
        ("replicasets", "ReplicaSet"),
        ("clusterroles", "ClusterRole"),
        ("clusterrolebindings", "ClusterRoleBinding"),
        ("priorityclasses", "PriorityClass"),
        ("flowschemas", "FlowSchema"),
        ("prioritylevelconfigurations", "PriorityLevelConfiguration"),
        ("apiservices", "APIService"),
        ("servicecidrs", "ServiceCIDR"),
        ("ipaddresses", "IPAddress"),
        ("endpointslices", "EndpointSlice"),
        ("endpoints", "Endpoints"),
        ("services", "Service"),
        ("customresourcedefinitions", "CustomResourceDefinition"),
        ("tokenreviews", "TokenReview"),
        ("selfsubjectreviews", "SelfSubjectReview"),
        ("subjectaccessreviews", "SubjectAccessReview"),
        ("localsubjectaccessreviews", "LocalSubjectAccessReview"),
        ("selfsubjectaccessreviews", "SelfSubjectAccessReview"),
        ("selfsubjectrulesreviews", "SelfSubjectRulesReview"),
    ];
    let kind = kinds.iter().find(|(known, _)| *known == resource);
    kind.unwrap_or_else(|| panic!("{resource} has no kind here")).1
}

/// A body for a new one. A mutating hook is asked before anybody looks whether it is valid.
fn made(group: &str, resource: &str) -> Value {
    let group_version = match group {
        "" => "v1".to_owned(),
        group => format!("{group}/v1"),
    };
    json!({"apiVersion": group_version, "kind": kind_of(resource), "metadata": {"name": "new"}})
}

fn below_made(subresource: &str, name: &str) -> Value {
    match subresource {
        "token" => json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"audiences": ["a"], "expirationSeconds": 3_600},
        }),
        "binding" => json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "spared"},
        }),
        other => panic!("{other} is not made here"),
    }
}

/// Everything that writes are made at, as far as an API server does not make it by itself.
fn stage() -> Vec<Value> {
    let object = |version: &str, kind: &str, more: Value| {
        let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "spared"}});
        json_patch::merge(&mut object, &more);
        object
    };
    let in_default = |version: &str, kind: &str, spec: Value| {
        object(
            version,
            kind,
            json!({"metadata": {"namespace": "default"}, "spec": spec}),
        )
    };
    let mut pod = pod("spared");
    json_patch::merge(
        &mut pod,
        &json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "default"}}),
    );
    let request = {
        let mut request = signing_request();
        let more = json!({
            "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "spared"},
        });
        json_patch::merge(&mut request, &more);
        request
    };
    let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    vec![
        object("v1", "Node", json!({})),
        pod,
        object(
            "v1",
            "ServiceAccount",
            json!({"metadata": {"namespace": "default"}}),
        ),
        object("storage.k8s.io/v1", "CSINode", json!({"spec": {"drivers": []}})),
        request,
        object(
            "resource.k8s.io/v1",
            "ResourceSlice",
            json!({"spec": {
                "driver": "spared.example", "nodeName": "spared",
                "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}, "devices": [],
            }}),
        ),
        in_default(
            "resource.k8s.io/v1",
            "ResourceClaim",
            json!({"devices": {"requests": [{"name": "one", "exactly": {"deviceClassName": "spared.example"}}]}}),
        ),
        object(
            "v1",
            "PersistentVolume",
            json!({"spec": {
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"},
            }}),
        ),
        in_default("v1", "PersistentVolumeClaim", claim),
        object(
            "storage.k8s.io/v1",
            "VolumeAttachment",
            json!({"spec": {
                "attacher": "spared.example", "nodeName": "spared", "source": {"persistentVolumeName": "spared"},
            }}),
        ),
        object("v1", "Endpoints", json!({"metadata": {"namespace": "default"}})),
        object(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            json!({
                "metadata": {"namespace": "default"}, "addressType": "IPv4", "endpoints": [],
            }),
        ),
        object(
            "networking.k8s.io/v1",
            "IPAddress",
            json!({
                "metadata": {"name": "192.0.2.1"},
                "spec": {"parentRef": {"resource": "services", "namespace": "default", "name": "kubernetes"}},
            }),
        ),
        object("scheduling.k8s.io/v1", "PriorityClass", json!({"value": 1})),
        in_default("policy/v1", "PodDisruptionBudget", json!({"maxUnavailable": 1})),
        in_default("v1", "ResourceQuota", json!({"hard": {"pods": "10"}})),
        object(
            "rbac.authorization.k8s.io/v1",
            "Role",
            json!({"metadata": {"namespace": "default"}, "rules": []}),
        ),
        object(
            "rbac.authorization.k8s.io/v1",
            "RoleBinding",
            json!({
                "metadata": {"namespace": "default"}, "subjects": [],
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "spared"},
            }),
        ),
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "spareds.spared.example"},
            "spec": {
                "group": "spared.example", "scope": "Namespaced", "names": {"plural": "spareds", "kind": "Spared"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
            },
        }),
    ]
}

/// Registers a hook that denies all that it is asked about, under a shield, and waits until it is in force.
async fn register(cluster: &Cluster, backend: &LabBackend, authority: &Authority, added: &Added) {
    let account = "system:serviceaccount:hookwatch:hookwatch";
    let text = BypassCondition::Shield.expression(OWN, account, added);
    let hook = json!({
        "name": "spared.example.com", "failurePolicy": "Fail", "timeoutSeconds": 5, "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {
            "url": format!("https://{}/admit", backend.address()),
            "caBundle": BASE64_STANDARD.encode(authority.pem()),
        },
        "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}],
        "matchConditions": [
            // What the API server writes by itself meanwhile is counted by nobody.
            {"name": "tried-alone", "expression": "has(request.dryRun) && request.dryRun"},
            {"name": "hookwatch.dev/shield", "expression": text},
        ],
    });
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "spared"}, "webhooks": [hook],
    });
    apply(&cluster.admin, &configuration).await;
}

/// What of a line's writes an API server takes: a subresource is not deleted, and not all are made.
fn writes(line: &SparedWrites) -> Vec<Write> {
    let objects = line.what.objects();
    let served = objects.filter(|(group, ..)| *group != "internal.apiserver.k8s.io");
    let each = served.flat_map(|object| {
        let takes = move |operation: &str| match object.2 {
            "token" | "binding" => operation == "CREATE",
            "" if object.1.ends_with("reviews") => operation == "CREATE",
            "" => true,
            _ => operation == "UPDATE",
        };
        let operations = line.operations.iter().filter(move |operation| takes(operation));
        operations.map(move |operation| Write {
            operation,
            object,
            namespace: "default",
        })
    });
    each.collect()
}

fn table() -> Played {
    play(async {
        let cluster = Cluster::start().await;
        for object in stage() {
            cluster.apply(&object).await;
        }
        let authority = Authority::new("spared").unwrap();
        let denies = Behaviour::Deny(403, ASKED.into());
        let backend = backend(&authority, BackendRole::Mutating, denies).await;
        register(&cluster, &backend, &authority, &Added::default()).await;
        let tenants_pod = Write {
            operation: "CREATE",
            object: ("", "pods", ""),
            namespace: "default",
        };
        until("the hook is in force", async || {
            tenants_pod.is_asked(PERSON, &cluster.admin, &backend).await.0
        })
        .await;
        let (mut tried, mut wrong) = (0, Vec::new());
        for line in &LINES {
            for write in writes(line) {
                let (operation, object) = (write.operation, write.object);
                for by in each(line.writer) {
                    let (asked, said) = write.is_asked(by, &cluster.admin, &backend).await;
                    if asked {
                        wrong.push(format!("{operation} {object:?} by {by:?}: {said}"));
                    }
                    tried += 1;
                }
                if line.writer == SparedWriter::Anyone {
                    continue;
                }
                let (asked, said) = write.is_asked(PERSON, &cluster.admin, &backend).await;
                if !asked {
                    wrong.push(format!("{operation} {object:?} by a person: {said}"));
                }
            }
            // Of each of them: a tenant's Pod.
            for by in each(line.writer) {
                let (asked, said) = tenants_pod.is_asked(by, &cluster.admin, &backend).await;
                if !asked {
                    wrong.push(format!("a tenant's Pod by {by:?}: {said}"));
                }
            }
        }
        println!("{tried} writes by their writers, each by a person as well");
        assert!(
            wrong.is_empty(),
            "{} of {tried}:\n{}",
            wrong.len(),
            wrong.join("\n")
        );
        what_an_owner_adds(&cluster, &backend, &authority).await;
    })
}

async fn what_an_owner_adds(cluster: &Cluster, backend: &LabBackend, authority: &Authority) {
    for namespace in ["policy", "operators"] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        cluster.apply(&namespace).await;
    }
    let write = |object, namespace| Write {
        operation: "CREATE",
        object,
        namespace,
    };
    let (pods, leases) = (("", "pods", ""), ("coordination.k8s.io", "leases", ""));
    let deployments = ("apps", "deployments", "");
    for write in [
        write(pods, "policy"),
        write(deployments, "policy"),
        write(leases, "operators"),
    ] {
        assert!(write.is_asked(PERSON, &cluster.admin, backend).await.0, "before");
    }
    let (added, _) = Added::read(Some("self,leases=operators+elsewhere"), Some("policy"));
    register(cluster, backend, authority, &added).await;
    until("what was added is in force", async || {
        !write(leases, "operators")
            .is_asked(PERSON, &cluster.admin, backend)
            .await
            .0
    })
    .await;
    for (write, asked) in [
        (write(pods, "policy"), false),
        (write(deployments, "policy"), false),
        (write(("apps", "replicasets", ""), "policy"), false),
        (write(leases, "policy"), true),
        (write(("", "services", ""), "policy"), true),
        (write(pods, "operators"), true),
        (write(pods, "default"), true),
        (write(leases, "default"), true),
    ] {
        let said = write.is_asked(PERSON, &cluster.admin, backend).await;
        assert_eq!(
            said.0, asked,
            "{:?} in {}: {}",
            write.object, write.namespace, said.1
        );
    }
}
