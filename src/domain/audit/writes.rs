//! The writes that a control plane lives by, one of each sort, as they are made in every cluster.
//!
//! Who writes what is that of kube-controller-manager, kube-scheduler, kubelet and kube-apiserver 1.36. What of it a shield
//! spares is not said here but in [`crate::domain::cluster::condition::spare`]; a test holds the two against each other.

use std::time::Duration;

use serde_json::{Value, json};

use super::Function;
use crate::domain::cluster::matching::{LEASES, RequestShape, Requester};
use crate::domain::thresholds as t;

/// One sort of write.
#[derive(Debug, Clone, Copy)]
pub struct WriteSort {
    /// What dies without it.
    pub what: Function,
    /// It, in words.
    pub name: &'static str,
    /// `CREATE`, `UPDATE` or `DELETE`.
    pub operation: &'static str,
    /// Group, version, resource, subresource.
    pub object: [&'static str; 4],
    /// The kind of what is written.
    pub kind: &'static str,
    /// Where.
    pub place: ObjectScope,
    /// The object's name.
    pub object_name: &'static str,
    /// Who.
    pub by: Requester<'static>,
    /// Its labels, where every cluster has the same.
    pub labels: Option<&'static [(&'static str, &'static str)]>,
    /// After how long its client, or the API server, gives it up.
    pub deadline: fn() -> Duration,
}

/// Where an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectScope {
    /// In this namespace.
    In(&'static str),
    /// In the namespace of the webhook's Service.
    Own,
    /// In a namespace of a tenant.
    Tenant,
    /// In none.
    Cluster,
    /// It is a tenant's Namespace itself.
    Namespace,
}

const fn controller(user: &'static str) -> Requester<'static> {
    Requester {
        user,
        groups: &[
            "system:serviceaccounts",
            "system:serviceaccounts:kube-system",
            "system:authenticated",
        ],
    }
}

const fn component(user: &'static str) -> Requester<'static> {
    Requester {
        user,
        groups: &["system:authenticated"],
    }
}

const SCHEDULER: Requester<'static> = component("system:kube-scheduler");
const MANAGER: Requester<'static> = component("system:kube-controller-manager");
const NODE: Requester<'static> = Requester {
    user: "system:node:node-1",
    groups: &["system:nodes", "system:authenticated"],
};
const API_SERVER: Requester<'static> = Requester {
    user: "system:apiserver",
    groups: &["system:masters", "system:authenticated"],
};
const ADMIN: Requester<'static> = Requester {
    user: "kubernetes-admin",
    groups: &["kubeadm:cluster-admins", "system:authenticated"],
};
const TENANT: Requester<'static> = Requester {
    user: "tenant",
    groups: &["system:authenticated"],
};
const REPLICAS: Requester<'static> = controller("system:serviceaccount:kube-system:replicaset-controller");
const DAEMONS: Requester<'static> = controller("system:serviceaccount:kube-system:daemon-set-controller");
const SLICES: Requester<'static> = controller("system:serviceaccount:kube-system:endpointslice-controller");
const NAMESPACES: Requester<'static> = controller("system:serviceaccount:kube-system:namespace-controller");

const PODS: [&str; 4] = ["", "v1", "pods", ""];
const BINDING: [&str; 4] = ["", "v1", "pods", "binding"];
const RBAC: &str = "rbac.authorization.k8s.io";

const fn write(
    (what, name): (Function, &'static str),
    operation: &'static str,
    (object, kind): ([&'static str; 4], &'static str),
    place: ObjectScope,
    by: Requester<'static>,
) -> WriteSort {
    WriteSort {
        what,
        name,
        operation,
        object,
        kind,
        place,
        object_name: "x",
        by,
        labels: None,
        deadline: t::longest_write,
    }
}

const fn renewal(
    what: (Function, &'static str),
    namespace: &'static str,
    object_name: &'static str,
    by: Requester<'static>,
    deadline: fn() -> Duration,
) -> WriteSort {
    WriteSort {
        object_name,
        labels: Some(&[]),
        deadline,
        ..write(what, "UPDATE", (LEASES, "Lease"), ObjectScope::In(namespace), by)
    }
}

const BOOTSTRAP: &[(&str, &str)] = &[("kubernetes.io/bootstrapping", "rbac-defaults")];

const fn bootstrap(
    operation: &'static str,
    (object, kind): ([&'static str; 4], &'static str),
    place: ObjectScope,
) -> WriteSort {
    WriteSort {
        labels: Some(BOOTSTRAP),
        ..write(
            (
                Function::ApiServerStart,
                "what an API server writes while it starts",
            ),
            operation,
            (object, kind),
            place,
            API_SERVER,
        )
    }
}

/// Those of every control plane.
pub const WRITES: [WriteSort; 30] = [
    renewal(
        (
            Function::LeaderElection,
            "the renewal of kube-controller-manager's Lease",
        ),
        "kube-system",
        "kube-controller-manager",
        MANAGER,
        t::leader_attempt,
    ),
    renewal(
        (Function::LeaderElection, "the renewal of kube-scheduler's Lease"),
        "kube-system",
        "kube-scheduler",
        SCHEDULER,
        t::leader_attempt,
    ),
    renewal(
        (Function::NodeHeartbeat, "the renewal of a node's Lease"),
        "kube-node-lease",
        "node-1",
        NODE,
        t::kubelet_attempt,
    ),
    bootstrap(
        "CREATE",
        ([RBAC, "v1", "clusterroles", ""], "ClusterRole"),
        ObjectScope::Cluster,
    ),
    bootstrap(
        "UPDATE",
        ([RBAC, "v1", "clusterroles", ""], "ClusterRole"),
        ObjectScope::Cluster,
    ),
    bootstrap(
        "CREATE",
        ([RBAC, "v1", "clusterrolebindings", ""], "ClusterRoleBinding"),
        ObjectScope::Cluster,
    ),
    bootstrap(
        "CREATE",
        ([RBAC, "v1", "roles", ""], "Role"),
        ObjectScope::In("kube-system"),
    ),
    bootstrap(
        "CREATE",
        ([RBAC, "v1", "rolebindings", ""], "RoleBinding"),
        ObjectScope::In("kube-system"),
    ),
    WriteSort {
        labels: Some(&[]),
        ..bootstrap(
            "CREATE",
            (
                ["scheduling.k8s.io", "v1", "priorityclasses", ""],
                "PriorityClass",
            ),
            ObjectScope::Cluster,
        )
    },
    write(
        (Function::PodScheduling, "the binding of a Pod to a node"),
        "CREATE",
        (BINDING, "Binding"),
        ObjectScope::Tenant,
        SCHEDULER,
    ),
    write(
        (Function::OwnPods, "the creation of one of its own Pods"),
        "CREATE",
        (PODS, "Pod"),
        ObjectScope::Own,
        REPLICAS,
    ),
    write(
        (Function::OwnPods, "the binding of one of its own Pods"),
        "CREATE",
        (BINDING, "Binding"),
        ObjectScope::Own,
        SCHEDULER,
    ),
    write(
        (Function::OwnPods, "a token for one of its own Pods"),
        "CREATE",
        (["", "v1", "serviceaccounts", "token"], "TokenRequest"),
        ObjectScope::Own,
        NODE,
    ),
    write(
        (Function::OwnPods, "the status of one of its own Pods"),
        "UPDATE",
        (["", "v1", "pods", "status"], "Pod"),
        ObjectScope::Own,
        NODE,
    ),
    write(
        (Function::OwnPods, "the endpoints of its own Service"),
        "UPDATE",
        (["discovery.k8s.io", "v1", "endpointslices", ""], "EndpointSlice"),
        ObjectScope::Own,
        SLICES,
    ),
    WriteSort {
        labels: Some(&[("k8s-app", "kube-dns"), ("pod-template-hash", "x")]),
        ..write(
            (Function::KubeSystemPods, "the creation of a Pod of CoreDNS"),
            "CREATE",
            (PODS, "Pod"),
            ObjectScope::In("kube-system"),
            REPLICAS,
        )
    },
    WriteSort {
        labels: Some(&[("k8s-app", "kube-proxy"), ("controller-revision-hash", "x")]),
        ..write(
            (Function::KubeSystemPods, "the creation of a Pod of kube-proxy"),
            "CREATE",
            (PODS, "Pod"),
            ObjectScope::In("kube-system"),
            DAEMONS,
        )
    },
    write(
        (Function::KubeSystemPods, "the binding of a Pod in kube-system"),
        "CREATE",
        (BINDING, "Binding"),
        ObjectScope::In("kube-system"),
        SCHEDULER,
    ),
    write(
        (Function::NamespaceCreate, "the creation of a namespace"),
        "CREATE",
        (["", "v1", "namespaces", ""], "Namespace"),
        ObjectScope::Namespace,
        ADMIN,
    ),
    write(
        (Function::NamespaceDelete, "the deletion of a namespace"),
        "DELETE",
        (["", "v1", "namespaces", ""], "Namespace"),
        ObjectScope::Namespace,
        ADMIN,
    ),
    write(
        (
            Function::NamespaceDelete,
            "the last step of a namespace's deletion",
        ),
        "UPDATE",
        (["", "v1", "namespaces", "finalize"], "Namespace"),
        ObjectScope::Namespace,
        NAMESPACES,
    ),
    write(
        (
            Function::NamespaceDelete,
            "the deletion of what is in a namespace",
        ),
        "DELETE",
        (PODS, "Pod"),
        ObjectScope::Tenant,
        NAMESPACES,
    ),
    write(
        (
            Function::NamespaceDelete,
            "the deletion of what is in a namespace",
        ),
        "DELETE",
        (["", "v1", "configmaps", ""], "ConfigMap"),
        ObjectScope::Tenant,
        NAMESPACES,
    ),
    write(
        (Function::ServiceEndpoints, "a change of a Service's endpoints"),
        "UPDATE",
        (["discovery.k8s.io", "v1", "endpointslices", ""], "EndpointSlice"),
        ObjectScope::Tenant,
        SLICES,
    ),
    write(
        (Function::ServiceEndpoints, "the first endpoints of a Service"),
        "CREATE",
        (["discovery.k8s.io", "v1", "endpointslices", ""], "EndpointSlice"),
        ObjectScope::Tenant,
        SLICES,
    ),
    write(
        (Function::TokenRequest, "a token for a Pod"),
        "CREATE",
        (["", "v1", "serviceaccounts", "token"], "TokenRequest"),
        ObjectScope::Tenant,
        NODE,
    ),
    write(
        (Function::TenantWrites, "a tenant's new Pod"),
        "CREATE",
        (PODS, "Pod"),
        ObjectScope::Tenant,
        REPLICAS,
    ),
    write(
        (Function::TenantWrites, "a tenant's new Deployment"),
        "CREATE",
        (["apps", "v1", "deployments", ""], "Deployment"),
        ObjectScope::Tenant,
        TENANT,
    ),
    write(
        (Function::TenantWrites, "a tenant's change of a ConfigMap"),
        "UPDATE",
        (["", "v1", "configmaps", ""], "ConfigMap"),
        ObjectScope::Tenant,
        TENANT,
    ),
    write(
        (Function::TenantWrites, "a tenant's deletion of a ConfigMap"),
        "DELETE",
        (["", "v1", "configmaps", ""], "ConfigMap"),
        ObjectScope::Tenant,
        TENANT,
    ),
];

impl WriteSort {
    /// What rules and selectors look at of it, but for labels.
    pub(super) fn shape<'a>(&'a self, namespace: Option<&'a str>) -> RequestShape<'a> {
        RequestShape {
            namespace,
            ..RequestShape::new(self.operation, self.object)
        }
    }

    /// A write of a tenant's of what a rule names.
    pub fn of_tenant(operation: &'static str, object: [&'static str; 4], namespaced: bool) -> Self {
        let place = if namespaced {
            ObjectScope::Tenant
        } else {
            ObjectScope::Cluster
        };
        write(
            (Function::TenantWrites, "a tenant's write of what a rule names"),
            operation,
            (object, ""),
            place,
            TENANT,
        )
    }

    /// The object as match conditions see it, where every cluster has the same: a Lease.
    pub fn object(&self) -> Option<Value> {
        let (ObjectScope::In(namespace), true) = (self.place, self.object == LEASES) else {
            return None;
        };
        let name = self.object_name;
        Some(json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": self.kind,
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 15},
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::cluster::condition::spare::Spare;
    use crate::domain::cluster::hook::Added;

    #[test]
    fn a_shield_that_may_spare_the_webhooks_own_pods_spares_every_write_that_a_cluster_is_lost_without() {
        let added = Added {
            own: Some("policy".to_owned()),
            leases: Vec::new(),
        };
        let spare = Spare {
            own: "hookwatch",
            added: &added,
        };
        for write in &WRITES {
            let shape = write.shape(match write.place {
                ObjectScope::In(namespace) => Some(namespace),
                ObjectScope::Own => Some("policy"),
                ObjectScope::Tenant => Some("tenant"),
                ObjectScope::Cluster => None,
                ObjectScope::Namespace => Some("tenant"),
            });
            let spared = spare.spares(&shape, Some(write.by));
            assert_eq!(spared, write.what.is_vital(), "{}", write.name);
        }
    }
}
