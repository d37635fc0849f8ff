//! What is foretold and then played: webhooks of our own, and those that projects publish (`tests/program/audit/published`).

use hookwatch::domain::audit::{BackendFailure, Function};
use hookwatch::io::cluster::estate::EstateObject;
use hookwatch::io::cluster::estate::manifests::Manifests;
use http::Method;
use serde_json::{Value, json};

use super::play::{PERSON, Try};
use super::webhook;

/// One of them.
pub struct Case {
    pub name: &'static str,
    pub failure: BackendFailure,
    /// Configurations, Services and workloads as they are applied.
    pub objects: Vec<EstateObject>,
    /// The webhook whose backends fail, and with it those that are called at the same place.
    pub asked: &'static str,
    /// Labels of the tenant's namespace, and of every object that is written or deleted there.
    pub labels: Value,
    /// A custom resource that a tenant writes: group, version, plural, kind.
    pub custom: Option<[&'static str; 4]>,
}

impl Case {
    /// The write of the tenant's custom resource.
    pub fn custom_write(&self) -> Option<Try> {
        let [group, version, plural, kind] = self.custom?;
        let object = json!({"apiVersion": format!("{group}/{version}"), "kind": kind,
                            "metadata": {"name": "new", "labels": self.labels}});
        let path = format!("/apis/{group}/{version}/namespaces/tenant/{plural}");
        Some((Function::TenantWrites, PERSON, Method::POST, path, object))
    }

    /// Its definition.
    pub fn definition(&self) -> Option<Value> {
        let [group, version, plural, kind] = self.custom?;
        let schema =
            json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        // Kubernetes guards its own groups, among them those of its special interest groups, by an annotation.
        Some(json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}"), "annotations": {"api-approved.kubernetes.io": "unapproved"}},
            "spec": {"group": group, "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
                     "versions": [{"name": version, "served": true, "storage": true, "schema": schema}]},
        }))
    }
}

fn read(text: &str) -> Vec<EstateObject> {
    let mut read = Manifests::default();
    read.text("case.yaml", text);
    assert_eq!(read.unreadable, []);
    read.objects
}

/// A webhook of our own behind Service `policy` in the namespace of that name.
fn own(name: &'static str, failure: BackendFailure, more: &Value) -> Case {
    let configuration = webhook(name, more, "https://127.0.0.1:1", "");
    with(name, failure, vec![configuration])
}

fn with(name: &'static str, failure: BackendFailure, mut configurations: Vec<Value>) -> Case {
    for configuration in &mut configurations {
        configuration["webhooks"][0]["clientConfig"] =
            json!({"service": {"namespace": "policy", "name": "policy"}});
    }
    let metadata = json!({"namespace": "policy", "name": "policy"});
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata,
                         "spec": {"ports": [{"port": 443}], "selector": {"app": "policy"}}});
    let workload = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
                          "spec": {"template": {"metadata": {"labels": {"app": "policy"}}}}});
    configurations.extend([service, workload]);
    let list = json!({"apiVersion": "v1", "kind": "List", "items": configurations}).to_string();
    Case {
        name,
        failure,
        objects: read(&list),
        asked: "",
        labels: json!({}),
        custom: None,
    }
}

fn published(name: &'static str, failure: BackendFailure, text: &str, asked: &'static str) -> Case {
    Case {
        name,
        failure,
        objects: read(text),
        asked,
        labels: json!({}),
        custom: None,
    }
}

/// All of them.
pub fn all() -> Vec<Case> {
    let mut all = ours();
    all.extend(others());
    all
}

fn rule(operations: &[&str], groups: &[&str], resources: &[&str]) -> Value {
    json!([{"operations": operations, "apiGroups": groups, "apiVersions": ["*"], "resources": resources}])
}

fn ours() -> Vec<Case> {
    use BackendFailure::{Hang, Refuse, Slow};
    let writes = &["CREATE", "UPDATE", "DELETE"];
    let named = |operator: &str, names: &[&str]| json!({"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": operator, "values": names}]});
    let condition = |text: &str| json!([{"name": "c", "expression": text}]);
    let leases = rule(writes, &["coordination.k8s.io"], &["leases"]);
    let mutating = |name: &str| {
        let more = json!({"failurePolicy": "Ignore", "timeoutSeconds": 3});
        let mut made = webhook(name, &more, "https://127.0.0.1:1", "");
        made["kind"] = "MutatingWebhookConfiguration".into();
        made
    };
    vec![
        own("catch-all-hangs", Hang, &json!({})),
        own("catch-all-refuses", Refuse, &json!({})),
        own(
            "leases-left-out",
            Hang,
            &json!({"matchConditions": condition("request.resource.resource != 'leases'")}),
        ),
        own(
            "kube-system-left-out",
            Hang,
            &json!({"timeoutSeconds": 5, "namespaceSelector": named("NotIn", &["kube-system", "kube-node-lease"])}),
        ),
        own(
            "pods-alone",
            Refuse,
            &json!({"rules": rule(writes, &[""], &["pods"])}),
        ),
        own(
            "ignored-for-6-s",
            Hang,
            &json!({"failurePolicy": "Ignore", "timeoutSeconds": 6}),
        ),
        own(
            "ignored-for-3-s",
            Hang,
            &json!({"failurePolicy": "Ignore", "timeoutSeconds": 3}),
        ),
        own(
            "node-leases-alone",
            Hang,
            &json!({"rules": leases, "namespaceSelector": named("In", &["kube-node-lease"])}),
        ),
        own(
            "nodes-spared",
            Refuse,
            &json!({"matchConditions": condition("!('system:nodes' in request.userInfo.groups)")}),
        ),
        own(
            "deployments-alone",
            Hang,
            &json!({"rules": rule(writes, &["apps"], &["deployments"]), "timeoutSeconds": 2}),
        ),
        with(
            "two-ignored-for-3-s-each",
            Hang,
            vec![mutating("one"), mutating("two")],
        ),
        own("answers-after-6-s", Slow, &json!({"timeoutSeconds": 6})),
        own(
            "cluster-scope-alone",
            Refuse,
            &json!({"rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"],
            "resources": ["*/*"], "scope": "Cluster"}]}),
        ),
        own(
            "bindings-and-tokens",
            Hang,
            &json!({"rules": rule(&["CREATE"], &[""], &["pods/binding", "serviceaccounts/token"]), "timeoutSeconds": 3}),
        ),
        own(
            "dns-pods-alone",
            Refuse,
            &json!({"rules": rule(&["CREATE"], &[""], &["pods"]),
            "namespaceSelector": named("In", &["kube-system"]), "objectSelector": {"matchLabels": {"k8s-app": "kube-dns"}}}),
        ),
        own(
            "one-leader-alone",
            Hang,
            &json!({"rules": leases,
            "matchConditions": condition("has(request.namespace) && request.namespace == 'kube-system' && request.name == 'kube-scheduler'")}),
        ),
        own(
            "deletions-alone",
            Refuse,
            &json!({"rules": rule(&["DELETE"], &["*"], &["*"])}),
        ),
        own(
            "endpoint-slices-alone",
            Hang,
            &json!({"rules": rule(writes, &["discovery.k8s.io"], &["endpointslices"]), "timeoutSeconds": 2}),
        ),
    ]
}

macro_rules! file {
    ($name:literal) => {
        include_str!(concat!("../../program/audit/published/", $name, ".yaml"))
    };
}

fn others() -> Vec<Case> {
    use BackendFailure::{Hang, Refuse};
    let custom = |case: Case, custom| Case {
        custom: Some(custom),
        ..case
    };
    let labelled = |case: Case, labels| Case { labels, ..case };
    let keda = published("keda", Hang, file!("keda"), "vscaledobject.kb.io");
    let certificates = published(
        "cert-manager",
        Hang,
        file!("cert-manager"),
        "webhook.cert-manager.io",
    );
    let knative = published(
        "knative-serving",
        Hang,
        file!("knative-serving"),
        "webhook.serving.knative.dev",
    );
    let istio = published(
        "istio",
        Hang,
        file!("istio"),
        "namespace.sidecar-injector.istio.io",
    );
    let crossplane = published(
        "crossplane",
        Hang,
        file!("crossplane"),
        "nousages.protection.crossplane.io",
    );
    let linkerd = "linkerd-proxy-injector.linkerd.io";
    let kyverno = "validate.kyverno.svc-fail";
    vec![
        published(
            "gatekeeper",
            Hang,
            file!("gatekeeper"),
            "validation.gatekeeper.sh",
        ),
        published(
            "opa-kube-mgmt",
            Hang,
            file!("opa-kube-mgmt"),
            "webhook.openpolicyagent.org",
        ),
        labelled(istio, json!({"istio-injection": "enabled"})),
        published("linkerd-helm", Hang, file!("linkerd-helm"), linkerd),
        published("linkerd-cli", Refuse, file!("linkerd-cli"), linkerd),
        custom(
            certificates,
            [
                "cert-manager.io",
                "v1",
                "certificaterequests",
                "CertificateRequest",
            ],
        ),
        published(
            "vault-injector",
            Hang,
            file!("vault-injector"),
            "vault.hashicorp.com",
        ),
        custom(keda, ["keda.sh", "v1alpha1", "scaledobjects", "ScaledObject"]),
        labelled(crossplane, json!({"crossplane.io/in-use": "true"})),
        custom(knative, ["serving.knative.dev", "v1", "services", "Service"]),
        published("kyverno-pods", Refuse, file!("kyverno-pods"), kyverno),
        published("kyverno-everything", Hang, file!("kyverno-everything"), kyverno),
    ]
}
