//! What is served below an object's own URL, and which type of object admission gets to see there.

use super::ServedKind;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Subresource {
    /// What a request to the subresource does.
    pub way: SubresourceKind,
    /// Group, version and kind of the objects that are sent.
    pub object: (&'static str, &'static str, &'static str),
}

/// What happens at a subresource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum SubresourceKind {
    /// PUT and PATCH write a part of the object; GET reads the whole object.
    Part,
    /// Reads and writes the number of replicas, as a Scale object.
    Scale,
    /// POST requests a token of a service account.
    Token,
    /// POST evicts a Pod.
    Eviction,
    /// POST binds a Pod to a node.
    Binding,
    /// A connection is requested. It always fails, because no Pod runs here.
    Connect,
}

pub(super) fn find(kind: &'static ServedKind, name: &str) -> Option<Subresource> {
    let own = (kind.group, kind.version, kind.kind);
    let (way, object) = match (kind.group, kind.resource, name) {
        (_, _, "status") if kind.status => (SubresourceKind::Part, own),
        ("", "namespaces", "finalize") => (SubresourceKind::Part, own),
        ("apps", "deployments", "scale") => (SubresourceKind::Scale, ("autoscaling", "v1", "Scale")),
        ("", "serviceaccounts", "token") => (
            SubresourceKind::Token,
            ("authentication.k8s.io", "v1", "TokenRequest"),
        ),
        ("", "pods", "eviction") => (SubresourceKind::Eviction, ("policy", "v1", "Eviction")),
        ("", "pods", "binding") => (SubresourceKind::Binding, ("", "v1", "Binding")),
        ("", "pods", "exec") => (SubresourceKind::Connect, ("", "v1", "PodExecOptions")),
        _ => return None,
    };
    Some(Subresource { way, object })
}
