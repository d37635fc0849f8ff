//! The writes that every control plane depends on, one of each sort.
//!
//! The table has the writes of kube-controller-manager, kube-scheduler, kubelet and kube-apiserver 1.36, each with its user.
//! [`crate::cluster::condition::spare`] has those that a shield spares; a test compares the two.

use std::time::Duration;

use serde_json::{Value, json};

use self::ObjectScope::{Cluster, In, Namespace, Own, Tenant};
use super::Function::{
    self, ApiServerStart, KubeSystemPods, LeaderElection, NamespaceCreate, NamespaceDelete, NodeHeartbeat,
    OwnPods, PodScheduling, ServiceEndpoints, TenantWrites, TokenRequest,
};
use crate::cluster::matching::requesters::{ADMIN, API_SERVER, MANAGER, SCHEDULER, controller, node, user};
use crate::cluster::matching::{LEASES, RequestShape, Requester};
use crate::thresholds as t;

/// One sort of write by the control plane or a tenant.
#[derive(Debug, Clone, Copy)]
pub struct WriteSort {
    /// The function of the control plane that is lost without it.
    pub what: Function,
    /// The write, as a clause for sentences.
    pub name: &'static str,
    /// `CREATE`, `UPDATE` or `DELETE`.
    pub operation: &'static str,
    /// Group, version, resource, subresource.
    pub object: [&'static str; 4],
    /// The kind of what is written.
    pub kind: &'static str,
    /// The namespace that the object is in.
    pub place: ObjectScope,
    /// The object's name; empty where the request has none.
    pub object_name: &'static str,
    /// The user who makes it.
    pub by: Requester<'static>,
    /// The object's labels, if they are the same in every cluster; `None` if they are unknown.
    pub labels: Option<&'static [(&'static str, &'static str)]>,
    /// How long until its client, or the API server, gives up.
    pub deadline: fn() -> Duration,
}

/// The namespace of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectScope {
    /// In the namespace of this name.
    In(&'static str),
    /// In the namespace of the webhook's Service.
    Own,
    /// In a namespace of a tenant.
    Tenant,
    /// Cluster-scoped: in no namespace.
    Cluster,
    /// The object is a tenant's Namespace itself.
    Namespace,
}

const NODE: Requester<'static> = node("system:node:node-1");
/// The user of a tenant, a member of no special group.
pub(super) const TENANT: Requester<'static> = user("tenant");
const REPLICAS: Requester<'static> = controller("system:serviceaccount:kube-system:replicaset-controller");
const DAEMONS: Requester<'static> = controller("system:serviceaccount:kube-system:daemon-set-controller");
const SLICES: Requester<'static> = controller("system:serviceaccount:kube-system:endpointslice-controller");
const NAMESPACES: Requester<'static> = controller("system:serviceaccount:kube-system:namespace-controller");

/// A resource, as group, version, resource and subresource, and the kind of its objects.
type Written = ([&'static str; 4], &'static str);

const LEASE: Written = (LEASES, "Lease");
const POD: Written = (["", "v1", "pods", ""], "Pod");
const POD_STATUS: Written = (["", "v1", "pods", "status"], "Pod");
// Bindings have no labels except zone and region, which the API server copies from the node (`PodTopologyLabels`).
const BINDING: Written = (["", "v1", "pods", "binding"], "Binding");
const TOKEN: Written = (["", "v1", "serviceaccounts", "token"], "TokenRequest");
const NAMESPACE: Written = (["", "v1", "namespaces", ""], "Namespace");
const FINALIZE: Written = (["", "v1", "namespaces", "finalize"], "Namespace");
const CONFIG_MAP: Written = (["", "v1", "configmaps", ""], "ConfigMap");
const DEPLOYMENT: Written = (["apps", "v1", "deployments", ""], "Deployment");
const SLICE: Written = (["discovery.k8s.io", "v1", "endpointslices", ""], "EndpointSlice");
const PRIORITY: Written = (
    ["scheduling.k8s.io", "v1", "priorityclasses", ""],
    "PriorityClass",
);
const CLUSTER_ROLE: Written = ([RBAC, "v1", "clusterroles", ""], "ClusterRole");
const CLUSTER_BINDING: Written = ([RBAC, "v1", "clusterrolebindings", ""], "ClusterRoleBinding");
const ROLE: Written = ([RBAC, "v1", "roles", ""], "Role");
const ROLE_BINDING: Written = ([RBAC, "v1", "rolebindings", ""], "RoleBinding");
const RBAC: &str = "rbac.authorization.k8s.io";

const UID: &str = "00000000-0000-0000-0000-000000000000";

const SYSTEM: ObjectScope = In("kube-system");

const fn write(
    what: Function,
    name: &'static str,
    operation: &'static str,
    (object, kind): Written,
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

const fn bootstrap(operation: &'static str, object: Written, place: ObjectScope) -> WriteSort {
    let name = "what an API server writes while it starts";
    write(ApiServerStart, name, operation, object, place, API_SERVER)
        .labelled(&[("kubernetes.io/bootstrapping", "rbac-defaults")])
}

/// The table of writes. Callers name a write by its index.
#[rustfmt::skip] // a table
pub const WRITES: [WriteSort; 30] = [
    write(LeaderElection, "the renewal of kube-controller-manager's Lease", "UPDATE", LEASE, SYSTEM, MANAGER)
        .renews("kube-controller-manager", t::leader_attempt),
    write(LeaderElection, "the renewal of kube-scheduler's Lease", "UPDATE", LEASE, SYSTEM, SCHEDULER)
        .renews("kube-scheduler", t::leader_attempt),
    write(NodeHeartbeat, "the renewal of a node's Lease", "UPDATE", LEASE, In("kube-node-lease"), NODE)
        .renews("node-1", t::kubelet_attempt),
    bootstrap("CREATE", CLUSTER_ROLE, Cluster),
    bootstrap("UPDATE", CLUSTER_ROLE, Cluster),
    bootstrap("CREATE", CLUSTER_BINDING, Cluster),
    bootstrap("CREATE", ROLE, SYSTEM),
    bootstrap("CREATE", ROLE_BINDING, SYSTEM),
    bootstrap("CREATE", PRIORITY, Cluster).labelled(&[]),
    write(PodScheduling, "the binding of a Pod to a node", "CREATE", BINDING, Tenant, SCHEDULER)
        .labelled(&[]),
    write(OwnPods, "the creation of one of its own Pods", "CREATE", POD, Own, REPLICAS).unnamed(),
    write(OwnPods, "the binding of one of its own Pods", "CREATE", BINDING, Own, SCHEDULER)
        .labelled(&[]),
    write(OwnPods, "a token for one of its own Pods", "CREATE", TOKEN, Own, NODE).labelled(&[]),
    write(OwnPods, "the status of one of its own Pods", "UPDATE", POD_STATUS, Own, NODE),
    write(OwnPods, "the endpoints of its own Service", "UPDATE", SLICE, Own, SLICES),
    write(KubeSystemPods, "the creation of a Pod of CoreDNS", "CREATE", POD, SYSTEM, REPLICAS)
        .unnamed()
        .labelled(&[("k8s-app", "kube-dns"), ("pod-template-hash", "x")]),
    write(KubeSystemPods, "the creation of a Pod of kube-proxy", "CREATE", POD, SYSTEM, DAEMONS)
        .unnamed()
        .labelled(&[("k8s-app", "kube-proxy"), ("controller-revision-hash", "x")]),
    write(KubeSystemPods, "the binding of a Pod in kube-system", "CREATE", BINDING, SYSTEM, SCHEDULER)
        .labelled(&[]),
    write(NamespaceCreate, "the creation of a namespace", "CREATE", NAMESPACE, Namespace, ADMIN),
    write(NamespaceDelete, "the deletion of a namespace", "DELETE", NAMESPACE, Namespace, ADMIN),
    write(NamespaceDelete, "the last step of a namespace's deletion", "UPDATE",
        FINALIZE, Namespace, NAMESPACES),
    write(NamespaceDelete, "the deletion of what is in a namespace", "DELETE", POD, Tenant, NAMESPACES)
        .unnamed(),
    write(NamespaceDelete, "the deletion of what is in a namespace", "DELETE", CONFIG_MAP, Tenant, NAMESPACES)
        .unnamed(),
    write(ServiceEndpoints, "a change of a Service's endpoints", "UPDATE", SLICE, Tenant, SLICES),
    write(ServiceEndpoints, "the first endpoints of a Service", "CREATE", SLICE, Tenant, SLICES).unnamed(),
    write(TokenRequest, "a token for a Pod", "CREATE", TOKEN, Tenant, NODE).labelled(&[]),
    write(TenantWrites, "a tenant's new Pod", "CREATE", POD, Tenant, REPLICAS).unnamed(),
    write(TenantWrites, "a tenant's new Deployment", "CREATE", DEPLOYMENT, Tenant, TENANT),
    write(TenantWrites, "a tenant's change of a ConfigMap", "UPDATE", CONFIG_MAP, Tenant, TENANT),
    write(TenantWrites, "a tenant's deletion of a ConfigMap", "DELETE", CONFIG_MAP, Tenant, TENANT),
];

impl WriteSort {
    const fn labelled(self, labels: &'static [(&'static str, &'static str)]) -> Self {
        Self {
            labels: Some(labels),
            ..self
        }
    }

    /// The same write with a request without a name: the object has `generateName`, or a whole collection is deleted
    /// (kubernetes 1.36, `apiserver/pkg/endpoints/handlers/{create,delete}.go`).
    const fn unnamed(self) -> Self {
        Self {
            object_name: "",
            ..self
        }
    }

    /// The same write as the renewal of the Lease of this name, whose client gives up an attempt after `deadline`.
    const fn renews(self, object_name: &'static str, deadline: fn() -> Duration) -> Self {
        Self {
            object_name,
            deadline,
            ..self.labelled(&[])
        }
    }

    /// The request as rules and selectors see it, without labels.
    pub(super) fn shape<'a>(&'a self, namespace: Option<&'a str>) -> RequestShape<'a> {
        RequestShape {
            namespace,
            ..RequestShape::new(self.operation, self.object)
        }
    }

    /// The new and the old Lease as match conditions see them; `None` for other objects. They have every field that a Lease has
    /// in each cluster, so that a condition errs on them only if it errs in a cluster. Only times differ: a renewal keeps the
    /// `resourceVersion` that it replaces (kubernetes 1.36, `client-go/tools/leaderelection`,
    /// `component-helpers/apimachinery/lease`).
    pub(super) fn objects(&self) -> Option<[Value; 2]> {
        let (ObjectScope::In(namespace), true) = (self.place, self.object == LEASES) else {
            return None;
        };
        let name = self.object_name;
        let lease = |renewed: &str| {
            let mut lease = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": self.kind,
                "metadata": {
                    "name": name, "namespace": namespace, "uid": UID, "resourceVersion": "7",
                    "creationTimestamp": "2026-01-01T00:00:00Z",
                    "managedFields": [{"manager": name, "operation": "Update", "time": format!("{renewed}Z")}],
                },
                "spec": {"holderIdentity": name, "renewTime": format!("{renewed}.000000Z")},
            });
            if self.what == NodeHeartbeat {
                lease["metadata"]["ownerReferences"] =
                    json!([{"apiVersion": "v1", "kind": "Node", "name": name, "uid": UID}]);
                lease["spec"]["leaseDurationSeconds"] = 40.into();
            } else {
                lease["spec"]["leaseDurationSeconds"] = 15.into();
                lease["spec"]["acquireTime"] = "2026-01-01T00:00:00.000000Z".into();
                lease["spec"]["leaseTransitions"] = 0.into();
            }
            lease
        };
        Some(["2026-01-01T00:00:02", "2026-01-01T00:00:00"].map(lease))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::condition::spare::Spare;
    use crate::cluster::hook::Added;

    #[test]
    fn a_shield_that_may_spare_the_webhooks_own_pods_spares_every_write_that_a_cluster_is_lost_without() {
        let added = Added {
            own: Some("policy".to_owned()),
            leases: Vec::new(),
        };
        let spare = Spare {
            hookwatch_namespace: "hookwatch",
            added: &added,
        };
        for write in &WRITES {
            let shape = write.shape(match write.place {
                ObjectScope::In(namespace) => Some(namespace),
                ObjectScope::Own => Some("policy"),
                ObjectScope::Tenant => Some(crate::audit::reach::TENANT),
                ObjectScope::Cluster => None,
                ObjectScope::Namespace => Some(crate::audit::reach::TENANT),
            });
            let spared = spare.spares(&shape, Some(write.by));
            assert_eq!(spared, write.what.is_vital(), "{}", write.name);
        }
    }
}
