//! Hooks for the cases, with backends in this process.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hookwatch::lab::backend::{BackendRole, Behaviour, LabBackend};
use hookwatch::lab::certs::Authority;
use serde_json::{Value, json};

const HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A backend with a good certificate.
pub async fn backend(authority: &Authority, role: BackendRole, behaviour: Behaviour) -> LabBackend {
    let certificate = authority.issue(&HOST.to_string()).unwrap();
    let backend = LabBackend::start_group(&[HOST], role, &certificate)
        .await
        .unwrap()
        .remove(0);
    backend.behave(behaviour).await.unwrap();
    backend
}

/// A catch-all hook with `failurePolicy: Fail` and a timeout of 2 s.
pub fn catch_all(name: &str, address: SocketAddr, authority: &Authority) -> Value {
    json!({
        "name": name,
        "clientConfig": {
            "url": format!("https://{address}/admit"),
            "caBundle": BASE64_STANDARD.encode(authority.pem()),
        },
        "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 2,
        "failurePolicy": "Fail",
    })
}

/// The same for ConfigMaps only.
pub fn of_configmaps(name: &str, address: SocketAddr, authority: &Authority) -> Value {
    let mut hook = catch_all(name, address, authority);
    hook["rules"][0]["apiGroups"] = json!([""]);
    hook["rules"][0]["resources"] = json!(["configmaps"]);
    hook
}

pub fn configmap(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"k": "v"}})
}

/// The path of a namespace's ConfigMaps.
pub fn configmaps(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps")
}
