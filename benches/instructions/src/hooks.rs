//! A hook as the inventory hands it over, made up.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hookwatch::domain::cluster::hook::{
    Added, Endpoint, FailurePolicy, Hook, HookId, HookKind, HookRule, HookTarget, Scope, Selector,
    ServiceState, ServiceTarget, WrittenEntry,
};

/// Named `<name>.example.com`, with a Service `<name>` in this namespace, which has these endpoints.
pub fn hook(name: &str, namespace: &str, ca_bundle: Arc<[u8]>, endpoints: &[SocketAddr]) -> Hook {
    let all = || vec!["*".to_owned()];
    let endpoint = |address: &SocketAddr| Endpoint {
        address: *address,
        ready: true,
        serving: true,
        terminating: false,
        node: None,
        zone: None,
        pod: None,
    };
    Hook {
        id: HookId::new(HookKind::Validating, name, &format!("{name}.example.com")),
        configuration_uid: String::new(),
        created: None,
        target: HookTarget::Service(ServiceTarget {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            port: 443,
            path: "/".to_owned(),
            service: ServiceState::Found {
                by_hand: false,
                cluster_ip: None,
                endpoints: endpoints.iter().map(endpoint).collect(),
            },
        }),
        ca_bundle,
        failure_policy: FailurePolicy::Fail,
        timeout: Duration::from_secs(10),
        rules: vec![HookRule {
            operations: all(),
            api_groups: all(),
            api_versions: all(),
            resources: vec!["*/*".to_owned()],
            scope: Scope::All,
        }],
        match_policy: Default::default(),
        namespace_selector: Selector::default(),
        object_selector: Selector::default(),
        match_conditions: Vec::new(),
        dry_run_safe: true,
        reinvoked: false,
        written: WrittenEntry::default(),
        review_versions: vec!["v1".to_owned()],
        probe_level: None,
        added: Added::default(),
        other: None,
        problems: Vec::new(),
    }
}
