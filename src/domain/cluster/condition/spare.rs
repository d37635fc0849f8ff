//! What a shield spares: the control plane's own writes, by resource and writer.
//!
//! One table is the source of the condition that hookwatch writes ([`Spare::expression`]), of what hookwatch itself counts
//! as spared ([`Spare::spares`]) and of `docs/shield.md`. Writes that no line names are not spared. No line spares all writes
//! by a writer: the controllers of kube-system create the Pods of every tenant. The administrator of a single namespace cannot
//! act as any of the writers that lines name.

use super::{SHIELDED_NAMESPACES, cel_and, cel_list, cel_or, cel_string};
use crate::cluster::hook::Added;
use crate::cluster::matching::{RequestShape, Requester};

/// One line of the table: writes that are spared.
#[derive(Debug)]
pub struct SparedWrites {
    /// A title for documents and reports.
    pub name: &'static str,
    /// Who makes them.
    pub writer: SparedWriter,
    /// `CREATE`, `UPDATE`, `DELETE`; never `CONNECT`.
    pub operations: &'static [&'static str],
    /// What is written.
    pub what: SparedObjects,
    /// What an administrator of one namespace could do unreviewed because of this line.
    pub risk: &'static str,
}

/// Who writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SparedWriter {
    /// Any user whom RBAC permits the write.
    Anyone,
    /// Every member of a group.
    Group(&'static str),
    /// These users.
    Users(&'static [&'static str]),
}

/// What is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SparedObjects {
    /// All objects in [`SHIELDED_NAMESPACES`] and in hookwatch's own namespace, except Namespaces themselves, whose
    /// labels control other policies.
    Within,
    /// Objects of these resources, in any namespace or none.
    Objects(&'static [ResourcesOfGroup]),
}

/// An API group and some of its resources, as `resource` or `resource/subresource`, separated by spaces.
pub type ResourcesOfGroup = (&'static str, &'static str);

/// API group, resource and subresource.
pub type SparedResource = (&'static str, &'static str, &'static str);

const ALL: &[&str] = &["CREATE", "UPDATE", "DELETE"];
const UPDATE: &[&str] = &["UPDATE"];

/// The user of all controllers of a kube-controller-manager that runs without `--use-service-account-credentials`.
const MANAGER: &str = "system:kube-controller-manager";

/// Resources whose writes, in their own namespace, the webhook's Pods need to start again.
const RECOVERY: &[ResourcesOfGroup] = &[
    ("", "pods pods/binding serviceaccounts/token"),
    (
        "apps",
        "replicasets replicasets/status deployments deployments/status",
    ),
];
/// Resources that leaders renew, spared in the namespaces that an owner added.
const LEASES: &[ResourcesOfGroup] = &[("coordination.k8s.io", "leases")];
/// Claims of devices for Pods. `resourceclaims/binding` is missing because it exists for authorization only: no request has it.
const DEVICE_CLAIMS: ResourcesOfGroup = ("resource.k8s.io", "resourceclaims resourceclaims/status");

/// The table, the widest lines first.
///
/// The controllers' users are those of kube-controller-manager 1.36 (`cmd/kube-controller-manager/app`, each controller's
/// client) and of cloud controllers (`k8s.io/cloud-provider/app/controllermanager.go`). Their ServiceAccounts are in
/// kube-system, which tenants do not administer.
pub const LINES: [SparedWrites; 14] = [
    SparedWrites {
        name: "Everything in the control plane's namespaces and in hookwatch's own",
        writer: SparedWriter::Anyone,
        operations: ALL,
        what: SparedObjects::Within,
        risk: "Nothing: tenants do not administer these namespaces.",
    },
    SparedWrites {
        name: "Token and access reviews",
        writer: SparedWriter::Anyone,
        operations: ALL,
        what: SparedObjects::Objects(&[
            ("authentication.k8s.io", "tokenreviews selfsubjectreviews"),
            (
                "authorization.k8s.io",
                "subjectaccessreviews localsubjectaccessreviews selfsubjectaccessreviews selfsubjectrulesreviews",
            ),
        ]),
        risk: "Nothing: reviews are not stored.",
    },
    SparedWrites {
        name: "Node heartbeats, node certificates, tokens for Pods, and Pod status",
        writer: SparedWriter::Group("system:nodes"),
        operations: ALL,
        what: SparedObjects::Objects(&[
            ("", "nodes nodes/status pods/status serviceaccounts/token"),
            ("storage.k8s.io", "csinodes"),
            ("certificates.k8s.io", "certificatesigningrequests"),
            ("resource.k8s.io", "resourceslices"),
        ]),
        risk: "A token for an admitted Pod. The node authorizer and NodeRestriction keep a node to its own objects.",
    },
    SparedWrites {
        name: "Removal of Pods that their node has stopped",
        writer: SparedWriter::Group("system:nodes"),
        operations: &["DELETE"],
        what: SparedObjects::Objects(&[("", "pods")]),
        risk: "Removal of a Pod whose deletion the webhook already reviewed.",
    },
    SparedWrites {
        name: "Certificate requests of joining nodes",
        writer: SparedWriter::Group("system:bootstrappers"),
        operations: &["CREATE"],
        what: SparedObjects::Objects(&[("certificates.k8s.io", "certificatesigningrequests")]),
        risk: "Nothing: tenants have no bootstrap token, and a request alone grants nothing.",
    },
    SparedWrites {
        name: "Approval and signing of node certificates",
        writer: SparedWriter::Users(&[
            "system:serviceaccount:kube-system:certificate-controller",
            MANAGER,
        ]),
        operations: UPDATE,
        what: SparedObjects::Objects(&[(
            "certificates.k8s.io",
            "certificatesigningrequests/approval certificatesigningrequests/status",
        )]),
        risk: "Nothing: the controller approves only what authorization lets a node request.",
    },
    SparedWrites {
        name: "The API server's own objects, most of them written at start-up",
        writer: SparedWriter::Users(&["system:apiserver"]),
        operations: ALL,
        what: SparedObjects::Objects(&[
            (
                "rbac.authorization.k8s.io",
                "clusterroles clusterrolebindings roles rolebindings",
            ),
            ("scheduling.k8s.io", "priorityclasses"),
            (
                "flowcontrol.apiserver.k8s.io",
                "flowschemas flowschemas/status prioritylevelconfigurations prioritylevelconfigurations/status",
            ),
            ("apiregistration.k8s.io", "apiservices apiservices/status"),
            ("apiextensions.k8s.io", "customresourcedefinitions/status"),
            (
                "internal.apiserver.k8s.io",
                "storageversions storageversions/status",
            ),
            (
                "networking.k8s.io",
                "servicecidrs servicecidrs/status ipaddresses",
            ),
            ("discovery.k8s.io", "endpointslices"),
            ("", "endpoints services resourcequotas/status"),
        ]),
        risk: "An IPAddress for an admitted Service, and the usage of a quota.",
    },
    SparedWrites {
        name: "Scheduling: bindings of Pods, and the volumes and devices chosen for them",
        writer: SparedWriter::Users(&["system:kube-scheduler"]),
        operations: &["CREATE", "UPDATE"],
        what: SparedObjects::Objects(&[
            (
                "",
                "pods/binding pods/status persistentvolumes persistentvolumeclaims",
            ),
            DEVICE_CLAIMS,
        ]),
        risk: "Their admitted Pod starts, with a matching volume for its claim and the devices that it requests.",
    },
    SparedWrites {
        name: "Claims of devices: made for a Pod from its template, reserved and released",
        writer: SparedWriter::Users(&[
            "system:serviceaccount:kube-system:resource-claim-controller",
            MANAGER,
        ]),
        operations: ALL,
        what: SparedObjects::Objects(&[("", "pods/status"), DEVICE_CLAIMS]),
        risk: "A claim for an admitted Pod as its ResourceClaimTemplate has it, which a webhook may have reviewed only as a claim.",
    },
    SparedWrites {
        name: "Taints and conditions of nodes; NotReady for the Pods of a dead node",
        writer: SparedWriter::Users(&[
            "system:serviceaccount:kube-system:node-controller",
            MANAGER,
            "system:serviceaccount:kube-system:cloud-controller-manager",
            "system:cloud-controller-manager",
        ]),
        operations: UPDATE,
        what: SparedObjects::Objects(&[("", "nodes nodes/status pods/status")]),
        risk: "Nothing: these writes follow from the state of nodes.",
    },
    SparedWrites {
        name: "Endpoints of Services",
        writer: SparedWriter::Users(&[
            "system:serviceaccount:kube-system:endpointslice-controller",
            "system:serviceaccount:kube-system:endpointslicemirroring-controller",
            "system:serviceaccount:kube-system:endpoint-controller",
            MANAGER,
        ]),
        operations: ALL,
        what: SparedObjects::Objects(&[("discovery.k8s.io", "endpointslices"), ("", "endpoints")]),
        risk: "Endpoints derived from admitted Services, Pods and Endpoints. A tenant's own EndpointSlice is not spared.",
    },
    SparedWrites {
        name: "Attaching and detaching of volumes",
        writer: SparedWriter::Users(&[
            "system:serviceaccount:kube-system:attachdetach-controller",
            MANAGER,
        ]),
        operations: ALL,
        what: SparedObjects::Objects(&[("storage.k8s.io", "volumeattachments"), ("", "nodes/status")]),
        risk: "The volume of an admitted Pod is attached to its node.",
    },
    SparedWrites {
        name: "Binding of volumes to claims",
        writer: SparedWriter::Users(&[
            "system:serviceaccount:kube-system:persistent-volume-binder",
            "system:serviceaccount:kube-system:pv-protection-controller",
            "system:serviceaccount:kube-system:pvc-protection-controller",
            MANAGER,
        ]),
        operations: &["UPDATE", "DELETE"],
        what: SparedObjects::Objects(&[(
            "",
            "persistentvolumes persistentvolumes/status persistentvolumeclaims persistentvolumeclaims/status",
        )]),
        risk: "Their admitted claim is bound to a matching volume; the volume of a claim they deleted is removed.",
    },
    SparedWrites {
        name: "Status of PodDisruptionBudgets",
        writer: SparedWriter::Users(&["system:serviceaccount:kube-system:disruption-controller", MANAGER]),
        operations: UPDATE,
        what: SparedObjects::Objects(&[("policy", "poddisruptionbudgets/status")]),
        risk: "The count of their own Pods.",
    },
];

/// What the shield of one hook spares.
#[derive(Debug, Clone, Copy)]
pub struct Spare<'a> {
    /// The namespace in which hookwatch runs.
    pub hookwatch_namespace: &'a str,
    /// What the webhook's owner added to the table.
    pub added: &'a Added,
}

impl<'a> Spare<'a> {
    /// The spared operations and resources, each with the one namespace in which it is spared; `None` for every namespace.
    /// The line with [`SparedObjects::Within`] is left out, as it names no resources.
    pub fn objects(self) -> impl Iterator<Item = (&'static str, SparedResource, Option<&'a str>)> {
        let lines = LINES.iter().flat_map(|line| {
            let each = move |operation: &'static str| {
                line.what.objects().map(move |object| (operation, object, None))
            };
            line.operations.iter().copied().flat_map(each)
        });
        let own = self.added.own.iter().map(|namespace| (RECOVERY, namespace));
        let added = own.chain(self.added.leases.iter().map(|namespace| (LEASES, namespace)));
        let added = added.flat_map(|(groups, namespace)| {
            let each = move |object| {
                ALL.iter()
                    .map(move |operation| (*operation, object, Some(namespace.as_str())))
            };
            objects(groups).flat_map(each)
        });
        lines.chain(added)
    }

    /// The shield's condition in CEL: false for requests that are spared.
    ///
    /// `CONNECT` (such as an exec into a Pod of kube-system) is not spared: the control plane does not need it to stay alive.
    pub fn expression(self) -> String {
        let lines = LINES.iter().map(|line| line.expression(self.hookwatch_namespace));
        let terms: Vec<String> = lines.chain(cel_added(self.added)).collect();
        format!(r#"request.operation == "CONNECT" || !{}"#, cel_or(&terms))
    }

    /// Whether a request by this writer is spared. With `by: None`, whether there is a writer whose request would be.
    pub fn spares(self, request: &RequestShape<'_>, by: Option<Requester<'_>>) -> bool {
        let within = request.namespace.is_some_and(|namespace| {
            namespace == self.hookwatch_namespace || SHIELDED_NAMESPACES.contains(&namespace)
        }) && (request.group, request.resource) != ("", "namespaces");
        let of = |line: &SparedWrites| {
            line.operations.contains(&request.operation)
                && by.is_none_or(|by| line.writer.includes(by))
                && match line.what {
                    SparedObjects::Within => within,
                    SparedObjects::Objects(groups) => is_one_of(groups, request),
                }
        };
        request.operation != "CONNECT" && (LINES.iter().any(of) || spares_added(self.added, request))
    }
}

impl SparedWrites {
    fn expression(&self, hookwatch_namespace: &str) -> String {
        let mut terms = Vec::new();
        match self.writer {
            SparedWriter::Anyone => {}
            SparedWriter::Group(group) => terms.extend([
                "has(request.userInfo.groups)".to_owned(),
                format!("{} in request.userInfo.groups", cel_string(group)),
            ]),
            SparedWriter::Users(users) => terms.extend([
                "has(request.userInfo.username)".to_owned(),
                format!("request.userInfo.username in {}", cel_list(users)),
            ]),
        }
        if self.operations != ALL {
            terms.push(format!("request.operation in {}", cel_list(self.operations)));
        }
        match self.what {
            SparedObjects::Within => {
                let [system, leases] = SHIELDED_NAMESPACES;
                terms.push(cel_within(&[system, leases, hookwatch_namespace]));
                terms.push(
                    r#"[request.resource.group, request.resource.resource] != ["", "namespaces"]"#.to_owned(),
                );
            }
            SparedObjects::Objects(groups) => terms.push(cel_is_one_of(groups)),
        }
        cel_and(&terms)
    }
}

impl SparedObjects {
    /// The resources, in the order of the line; none for [`Self::Within`].
    pub fn objects(self) -> impl Iterator<Item = SparedResource> {
        objects(match self {
            Self::Within => &[],
            Self::Objects(groups) => groups,
        })
    }
}

fn objects(groups: &'static [ResourcesOfGroup]) -> impl Iterator<Item = SparedResource> {
    groups.iter().flat_map(|(group, kinds)| {
        kinds.split(' ').map(|kind| {
            let (resource, subresource) = kind.split_once('/').unwrap_or((kind, ""));
            (*group, resource, subresource)
        })
    })
}

fn is_one_of(groups: &'static [ResourcesOfGroup], request: &RequestShape<'_>) -> bool {
    objects(groups).any(|object| object == (request.group, request.resource, request.subresource))
}

impl SparedWriter {
    /// Whether a requester is one of these writers.
    pub fn includes(self, by: Requester<'_>) -> bool {
        match self {
            Self::Anyone => true,
            Self::Group(group) => by.groups.contains(&group),
            Self::Users(users) => users.contains(&by.user),
        }
    }
}

/// A CEL term, true for requests in one of these namespaces. A request for a cluster-scoped object has no `request.namespace`.
fn cel_within(namespaces: &[&str]) -> String {
    let listed = format!("request.namespace in {}", cel_list(namespaces));
    cel_and(&["has(request.namespace)".to_owned(), listed])
}

/// A CEL term, true for requests for one of these resources. A resource does not include its subresources.
fn cel_is_one_of(groups: &'static [ResourcesOfGroup]) -> String {
    let objects =
        objects(groups).map(|(group, resource, subresource)| cel_list(&[group, resource, subresource]));
    let objects: Vec<String> = objects.collect();
    let subresource = r#"has(request.subResource) ? request.subResource : """#;
    format!(
        "[request.resource.group, request.resource.resource, {subresource}] in [{}]",
        objects.join(", ")
    )
}

/// The CEL terms for what an owner added. They come after those of the table, as the fence's expression expects.
fn cel_added(added: &Added) -> impl Iterator<Item = String> {
    let own = added.own.iter();
    let own = own.map(|namespace| cel_and(&[cel_within(&[namespace]), cel_is_one_of(RECOVERY)]));
    let namespaces: Vec<&str> = added.leases.iter().map(String::as_str).collect();
    let leases = (!namespaces.is_empty()).then(|| cel_and(&[cel_within(&namespaces), cel_is_one_of(LEASES)]));
    own.chain(leases)
}

/// Whether a request is spared, for any writer, because the webhook's owner added it.
fn spares_added(added: &Added, request: &RequestShape<'_>) -> bool {
    request.namespace.is_some_and(|namespace| {
        let own = added.own.as_deref() == Some(namespace) && is_one_of(RECOVERY, request);
        own || added.leases.iter().any(|listed| listed == namespace) && is_one_of(LEASES, request)
    })
}
