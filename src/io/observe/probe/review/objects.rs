//! The kinds a review can be made of, each a small valid object as the API server would show it after
//! defaulting.

use serde_json::{Value, json};

/// One kind.
#[derive(Debug)]
pub(super) struct ReviewedKind {
    /// The API group; empty for core.
    pub(super) group: &'static str,
    /// The version.
    pub(super) version: &'static str,
    /// The plural.
    pub(super) resource: &'static str,
    /// The kind.
    pub(super) kind: &'static str,
    /// Whether objects lie in a namespace.
    pub(super) namespaced: bool,
    /// Every field but `apiVersion`, `kind` and `metadata`, for an object in the given namespace.
    pub(super) rest: fn(&str) -> Vec<(&'static str, Value)>,
}

/// Namespaced kinds first, and among them the one that matters least to anybody: a wildcard rule gets a
/// ConfigMap.
pub(super) const KINDS: [ReviewedKind; 21] = [
    namespaced("", "v1", "configmaps", "ConfigMap", |_| {
        vec![("data", json!({"probe": "true"}))]
    }),
    namespaced("", "v1", "secrets", "Secret", |_| {
        vec![("type", json!("Opaque")), ("data", json!({"probe": "dHJ1ZQ=="}))]
    }),
    namespaced("", "v1", "serviceaccounts", "ServiceAccount", |_| Vec::new()),
    namespaced("", "v1", "services", "Service", |_| {
        let port = json!({"name": "https", "protocol": "TCP", "port": 443, "targetPort": 8443});
        let spec = json!({"type": "ClusterIP", "sessionAffinity": "None", "ports": [port],
            "selector": {"app": "hookwatch-probe"}});
        vec![("spec", spec)]
    }),
    namespaced("coordination.k8s.io", "v1", "leases", "Lease", |_| {
        let spec = json!({"holderIdentity": "hookwatch-probe", "leaseDurationSeconds": 15});
        vec![("spec", spec)]
    }),
    namespaced("", "v1", "pods", "Pod", |_| {
        let mut spec = pod_spec();
        spec["restartPolicy"] = json!("Always");
        vec![("spec", spec)]
    }),
    namespaced(
        "",
        "v1",
        "persistentvolumeclaims",
        "PersistentVolumeClaim",
        |_| {
            let spec = json!({"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem",
            "resources": {"requests": {"storage": "1Gi"}}});
            vec![("spec", spec)]
        },
    ),
    namespaced("apps", "v1", "deployments", "Deployment", |_| {
        let spec = json!({"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600,
            "strategy": {"type": "RollingUpdate",
                "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
            "selector": selector(), "template": template()});
        vec![("spec", spec)]
    }),
    namespaced("apps", "v1", "replicasets", "ReplicaSet", |_| {
        let spec = json!({"replicas": 1, "selector": selector(), "template": template()});
        vec![("spec", spec)]
    }),
    namespaced("apps", "v1", "statefulsets", "StatefulSet", |_| {
        let spec = json!({"replicas": 1, "serviceName": "hookwatch-probe", "podManagementPolicy": "OrderedReady",
            "updateStrategy": {"type": "RollingUpdate"}, "selector": selector(), "template": template()});
        vec![("spec", spec)]
    }),
    namespaced("apps", "v1", "daemonsets", "DaemonSet", |_| {
        let spec = json!({"updateStrategy": {"type": "RollingUpdate"}, "selector": selector(),
            "template": template()});
        vec![("spec", spec)]
    }),
    namespaced("batch", "v1", "jobs", "Job", |_| vec![("spec", job_spec())]),
    namespaced("batch", "v1", "cronjobs", "CronJob", |_| {
        let spec = json!({"schedule": "0 0 1 1 *", "concurrencyPolicy": "Forbid", "suspend": true,
            "jobTemplate": {"metadata": {}, "spec": job_spec()}});
        vec![("spec", spec)]
    }),
    namespaced("networking.k8s.io", "v1", "ingresses", "Ingress", |_| {
        let service = json!({"name": "hookwatch-probe", "port": {"number": 443}});
        let path = json!({"path": "/", "pathType": "Prefix", "backend": {"service": service}});
        let rule = json!({"host": "hookwatch-probe.invalid", "http": {"paths": [path]}});
        vec![("spec", json!({"rules": [rule]}))]
    }),
    namespaced(
        "networking.k8s.io",
        "v1",
        "networkpolicies",
        "NetworkPolicy",
        |_| {
            vec![(
                "spec",
                json!({"podSelector": selector(), "policyTypes": ["Ingress"]}),
            )]
        },
    ),
    namespaced(
        "policy",
        "v1",
        "poddisruptionbudgets",
        "PodDisruptionBudget",
        |_| vec![("spec", json!({"maxUnavailable": 1, "selector": selector()}))],
    ),
    namespaced("rbac.authorization.k8s.io", "v1", "roles", "Role", |_| {
        vec![("rules", json!([]))]
    }),
    namespaced(
        "rbac.authorization.k8s.io",
        "v1",
        "rolebindings",
        "RoleBinding",
        |namespace| {
            let account =
                json!({"kind": "ServiceAccount", "name": "hookwatch-probe", "namespace": namespace});
            let role =
                json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "hookwatch-probe"});
            vec![("subjects", json!([account])), ("roleRef", role)]
        },
    ),
    cluster("", "v1", "namespaces", "Namespace", |_| {
        vec![("spec", json!({"finalizers": ["kubernetes"]}))]
    }),
    cluster("", "v1", "nodes", "Node", |_| {
        vec![("spec", json!({"unschedulable": true}))]
    }),
    cluster(
        "rbac.authorization.k8s.io",
        "v1",
        "clusterroles",
        "ClusterRole",
        |_| vec![("rules", json!([]))],
    ),
];

type Rest = fn(&str) -> Vec<(&'static str, Value)>;

const fn namespaced(
    group: &'static str,
    version: &'static str,
    resource: &'static str,
    kind: &'static str,
    rest: Rest,
) -> ReviewedKind {
    ReviewedKind {
        group,
        version,
        resource,
        kind,
        namespaced: true,
        rest,
    }
}

const fn cluster(
    group: &'static str,
    version: &'static str,
    resource: &'static str,
    kind: &'static str,
    rest: Rest,
) -> ReviewedKind {
    ReviewedKind {
        namespaced: false,
        ..namespaced(group, version, resource, kind, rest)
    }
}

fn selector() -> Value {
    json!({"matchLabels": {"app": "hookwatch-probe"}})
}

fn template() -> Value {
    let mut spec = pod_spec();
    spec["restartPolicy"] = json!("Always");
    json!({"metadata": {"labels": {"app": "hookwatch-probe"}}, "spec": spec})
}

fn job_spec() -> Value {
    let mut spec = pod_spec();
    spec["restartPolicy"] = json!("Never");
    json!({"backoffLimit": 0, "parallelism": 1, "completions": 1,
        "template": {"metadata": {"labels": {"app": "hookwatch-probe"}}, "spec": spec}})
}

/// A Pod as careful as the "restricted" Pod Security Standard wants it, so that policies find little to say.
fn pod_spec() -> Value {
    json!({
        "serviceAccountName": "default",
        "automountServiceAccountToken": false,
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "terminationGracePeriodSeconds": 30,
        "securityContext": {"runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{
            "name": "probe",
            "image": "pause:3.10",
            "imagePullPolicy": "IfNotPresent",
            "resources": {"requests": {"cpu": "1m", "memory": "8Mi"}, "limits": {"cpu": "10m", "memory": "16Mi"}},
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
            "securityContext": {"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                "capabilities": {"drop": ["ALL"]}},
        }],
    })
}
