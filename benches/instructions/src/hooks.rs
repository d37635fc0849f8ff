//! A made-up webhook, in the form in which the inventory delivers it.

use std::net::SocketAddr;
use std::sync::Arc;

use hookwatch_domain::cluster::hook::{
    Endpoint, Hook, HookId, HookKind, HookRule, HookTarget, Scope, ServiceState, ServiceTarget,
};

/// A validating webhook `<name>.example.com` that matches every request, behind Service `<name>` in `namespace` with these ready
/// endpoints.
pub fn hook(name: &str, namespace: &str, ca_bundle: Arc<[u8]>, endpoints: &[SocketAddr]) -> Hook {
    let all = || vec!["*".to_owned()];
    let endpoint = |address: &SocketAddr| Endpoint::ready(*address);
    let target = HookTarget::Service(ServiceTarget {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        port: 443,
        path: "/".to_owned(),
        service: ServiceState::Found {
            by_hand: false,
            cluster_ip: None,
            endpoints: endpoints.iter().map(endpoint).collect(),
        },
    });
    let id = HookId::new(HookKind::Validating, name, &format!("{name}.example.com"));
    Hook {
        ca_bundle,
        rules: vec![HookRule {
            operations: all(),
            api_groups: all(),
            api_versions: all(),
            resources: vec!["*/*".to_owned()],
            scope: Scope::All,
        }],
        review_versions: vec!["v1".to_owned()],
        ..Hook::new(id, target)
    }
}
