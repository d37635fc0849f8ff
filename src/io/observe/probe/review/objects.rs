//! The kinds a review can be made of, each a small valid object as the API server would show it after
//! defaulting.

use serde_json::{Value, json};

/// One kind, of version `v1`.
#[derive(Debug)]
pub(super) struct ReviewedKind {
    /// The API group; empty for core.
    pub(super) group: &'static str,
    /// The plural.
    pub(super) resource: &'static str,
    pub(super) kind: &'static str,
    pub(super) namespaced: bool,
    /// Every field but `apiVersion`, `kind` and `metadata`, for an object in the given namespace.
    pub(super) rest: Rest,
}

/// Namespaced kinds first, and among them the least important: a wildcard rule gets a ConfigMap.
#[rustfmt::skip] // a table
pub(super) const KINDS: [ReviewedKind; 21] = [
    namespaced("", "configmaps", "ConfigMap", |_| json!({"data": {"probe": "true"}})),
    namespaced("", "secrets", "Secret", |_| json!({"type": "Opaque", "data": {"probe": "dHJ1ZQ=="}})),
    namespaced("", "serviceaccounts", "ServiceAccount", |_| json!({})),
    namespaced("", "services", "Service", |_| {
        let port = json!({"name": "https", "protocol": "TCP", "port": 443, "targetPort": 8443});
        json!({"spec": {"type": "ClusterIP", "sessionAffinity": "None", "ports": [port],
            "selector": {"app": "hookwatch-probe"}}})
    }),
    namespaced("coordination.k8s.io", "leases", "Lease",
        |_| json!({"spec": {"holderIdentity": "hookwatch-probe", "leaseDurationSeconds": 15}})),
    namespaced("", "pods", "Pod", |_| json!({"spec": pod_spec("Always")})),
    namespaced("", "persistentvolumeclaims", "PersistentVolumeClaim", |_| {
        json!({"spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem",
            "resources": {"requests": {"storage": "1Gi"}}}})
    }),
    namespaced("apps", "deployments", "Deployment", |_| {
        json!({"spec": {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600,
            "strategy": {"type": "RollingUpdate",
                "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
            "selector": selector(), "template": template("Always")}})
    }),
    namespaced("apps", "replicasets", "ReplicaSet",
        |_| json!({"spec": {"replicas": 1, "selector": selector(), "template": template("Always")}})),
    namespaced("apps", "statefulsets", "StatefulSet", |_| {
        json!({"spec": {"replicas": 1, "serviceName": "hookwatch-probe", "podManagementPolicy": "OrderedReady",
            "updateStrategy": {"type": "RollingUpdate"}, "selector": selector(), "template": template("Always")}})
    }),
    namespaced("apps", "daemonsets", "DaemonSet", |_| {
        json!({"spec": {"updateStrategy": {"type": "RollingUpdate"}, "selector": selector(),
            "template": template("Always")}})
    }),
    namespaced("batch", "jobs", "Job", |_| json!({"spec": job_spec()})),
    namespaced("batch", "cronjobs", "CronJob", |_| {
        json!({"spec": {"schedule": "0 0 1 1 *", "concurrencyPolicy": "Forbid", "suspend": true,
            "jobTemplate": {"metadata": {}, "spec": job_spec()}}})
    }),
    namespaced("networking.k8s.io", "ingresses", "Ingress", |_| {
        let service = json!({"name": "hookwatch-probe", "port": {"number": 443}});
        let path = json!({"path": "/", "pathType": "Prefix", "backend": {"service": service}});
        json!({"spec": {"rules": [{"host": "hookwatch-probe.invalid", "http": {"paths": [path]}}]}})
    }),
    namespaced("networking.k8s.io", "networkpolicies", "NetworkPolicy",
        |_| json!({"spec": {"podSelector": selector(), "policyTypes": ["Ingress"]}})),
    namespaced("policy", "poddisruptionbudgets", "PodDisruptionBudget",
        |_| json!({"spec": {"maxUnavailable": 1, "selector": selector()}})),
    namespaced("rbac.authorization.k8s.io", "roles", "Role", |_| json!({"rules": []})),
    namespaced("rbac.authorization.k8s.io", "rolebindings", "RoleBinding", |namespace| {
        let account = json!({"kind": "ServiceAccount", "name": "hookwatch-probe", "namespace": namespace});
        json!({"subjects": [account], "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "hookwatch-probe"}})
    }),
    cluster("", "namespaces", "Namespace", |_| json!({"spec": {"finalizers": ["kubernetes"]}})),
    cluster("", "nodes", "Node", |_| json!({"spec": {"unschedulable": true}})),
    cluster("rbac.authorization.k8s.io", "clusterroles", "ClusterRole", |_| json!({"rules": []})),
];

type Rest = fn(&str) -> Value;

const fn namespaced(
    group: &'static str,
    resource: &'static str,
    kind: &'static str,
    rest: Rest,
) -> ReviewedKind {
    ReviewedKind {
        group,
        resource,
        kind,
        namespaced: true,
        rest,
    }
}

const fn cluster(
    group: &'static str,
    resource: &'static str,
    kind: &'static str,
    rest: Rest,
) -> ReviewedKind {
    ReviewedKind {
        namespaced: false,
        ..namespaced(group, resource, kind, rest)
    }
}

fn selector() -> Value {
    json!({"matchLabels": {"app": "hookwatch-probe"}})
}

fn template(restart_policy: &str) -> Value {
    json!({"metadata": {"labels": {"app": "hookwatch-probe"}}, "spec": pod_spec(restart_policy)})
}

fn job_spec() -> Value {
    json!({"backoffLimit": 0, "parallelism": 1, "completions": 1, "template": template("Never")})
}

/// A Pod that meets the "restricted" Pod Security Standard, so that few policies object.
fn pod_spec(restart_policy: &str) -> Value {
    json!({
        "restartPolicy": restart_policy,
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
