//! Users that write in every cluster, with their groups, as the components of Kubernetes 1.36 authenticate.

use super::Requester;

/// kube-scheduler.
pub const SCHEDULER: Requester<'static> = user("system:kube-scheduler");
/// kube-controller-manager itself, and all its controllers if they have no ServiceAccounts of their own.
pub const MANAGER: Requester<'static> = user("system:kube-controller-manager");
/// The API server itself.
pub const API_SERVER: Requester<'static> =
    by("system:apiserver", &["system:masters", "system:authenticated"]);
/// The administrator of a cluster that kubeadm created.
pub const ADMIN: Requester<'static> = by(
    "kubernetes-admin",
    &["kubeadm:cluster-admins", "system:authenticated"],
);

/// A user whose only group is `system:authenticated`.
pub const fn user(user: &'static str) -> Requester<'static> {
    by(user, &["system:authenticated"])
}

/// The kubelet with this user name (`system:node:NAME`).
pub const fn node(user: &'static str) -> Requester<'static> {
    by(user, &["system:nodes", "system:authenticated"])
}

/// The ServiceAccount in kube-system with this user name (`system:serviceaccount:kube-system:NAME`).
pub const fn controller(user: &'static str) -> Requester<'static> {
    by(
        user,
        &[
            "system:serviceaccounts",
            "system:serviceaccounts:kube-system",
            "system:authenticated",
        ],
    )
}

/// Any user, with these groups and no others.
pub const fn by(user: &'static str, groups: &'static [&'static str]) -> Requester<'static> {
    Requester { user, groups }
}
