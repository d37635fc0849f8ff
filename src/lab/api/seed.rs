//! The objects that every cluster has when it starts.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::defaults;
use super::kinds::{ENDPOINT_SLICE, NAMESPACE, SERVICE, ServedKind};
use super::store::ObjectStore;
use super::write::prepare_new;

/// Puts the system namespaces and the `kubernetes` Service into an empty store.
pub(super) fn seed(store: &ObjectStore, address: SocketAddr) {
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        add(store, NAMESPACE, "", json!({"metadata": {"name": name}}));
    }
    let service = json!({
        "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {"ports": [{"name": "https", "port": 443, "targetPort": address.port()}]},
    });
    add(store, SERVICE, "default", service);
    let slice = json!({
        "metadata": {"name": "kubernetes", "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": if address.is_ipv4() { "IPv4" } else { "IPv6" },
        "endpoints": [{"addresses": [address.ip().to_string()], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": address.port(), "protocol": "TCP"}],
    });
    add(store, ENDPOINT_SLICE, "default", slice);
}

fn add(store: &ObjectStore, kind: &'static ServedKind, namespace: &str, mut object: Value) {
    if let Ok(name) = prepare_new(kind, namespace, &mut object) {
        defaults::default(kind, &mut object);
        // The store is empty, so nothing can conflict.
        let _ = store.create(kind, namespace, &name, object);
    }
}
