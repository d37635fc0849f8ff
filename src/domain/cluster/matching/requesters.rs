//! Who writes in every cluster, as kube-controller-manager, kube-scheduler, kubelet and kube-apiserver 1.36 are known.

use super::Requester;

/// kube-scheduler.
pub const SCHEDULER: Requester<'static> = user("system:kube-scheduler");
/// kube-controller-manager, where its controllers have no accounts of their own.
pub const MANAGER: Requester<'static> = user("system:kube-controller-manager");
/// The API server itself.
pub const API_SERVER: Requester<'static> =
    by("system:apiserver", &["system:masters", "system:authenticated"]);
/// The first user of a cluster that kubeadm made.
pub const ADMIN: Requester<'static> = by(
    "kubernetes-admin",
    &["kubeadm:cluster-admins", "system:authenticated"],
);

/// A user in no group of their own.
pub const fn user(user: &'static str) -> Requester<'static> {
    by(user, &["system:authenticated"])
}

/// The kubelet of a node.
pub const fn node(user: &'static str) -> Requester<'static> {
    by(user, &["system:nodes", "system:authenticated"])
}

/// A ServiceAccount in kube-system.
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

/// Any user, with all their groups.
pub const fn by(user: &'static str, groups: &'static [&'static str]) -> Requester<'static> {
    Requester { user, groups }
}
