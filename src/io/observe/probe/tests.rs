//! Probes against real servers on loopback: one per way in which a backend can be, or seem, broken.

mod answers;
mod certificates;
mod extension;
mod handshakes;
mod keeping;
mod server;
mod taken;
mod waiting;
mod withheld;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::domain::cluster::hook::{
    Backend, BackendAddress, BackendPath, Hook, HookId, HookKind, HookRule, HookTarget, ProbeLevel,
    ProbeTarget, Scope, ServiceState, ServiceTarget, UrlTarget,
};
use crate::domain::observe::probe::{ConnectionKind, ProbeReport};
use crate::domain::time::Time;

use super::{ProbeLimits, ProbeNews, ProbeRequest, Prober};

/// The name every Service-backed hook here is called by.
const NAME: &str = "hook.probe.svc";

/// No test waits longer for an answer that it expects.
const AMPLE: Duration = Duration::from_secs(20);

/// How long a test waits for an answer that never comes: long enough for a handshake on a busy machine.
const SCANT: Duration = Duration::from_secs(2);

fn prober_with(limits: ProbeLimits) -> Prober {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let clock = Arc::new(|| Time::from_unix_millis(1_795_219_862_156));
    Prober::new(provider, limits, clock).expect("a prober")
}

fn prober() -> Prober {
    prober_with(ProbeLimits::default())
}

/// A validating hook behind the Service `hook` in the namespace `probe`.
fn hook(ca_bundle: &str) -> Hook {
    let target = HookTarget::Service(ServiceTarget {
        namespace: "probe".to_owned(),
        name: "hook".to_owned(),
        port: 443,
        path: "/validate".to_owned(),
        service: ServiceState::Missing,
    });
    let id = HookId::new(HookKind::Validating, "configuration", "hook.example.com");
    Hook {
        configuration_uid: "uid".to_owned(),
        ca_bundle: ca_bundle.as_bytes().into(),
        rules: vec![rule(&["CREATE"], "", &["configmaps"])],
        review_versions: vec!["v1".to_owned()],
        ..Hook::new(id, target)
    }
}

fn url_hook(ca_bundle: &str, host: &str, port: u16) -> Hook {
    Hook {
        target: HookTarget::Url(UrlTarget {
            host: host.to_owned(),
            port,
            path: "/validate".to_owned(),
        }),
        ..hook(ca_bundle)
    }
}

fn rule(operations: &[&str], group: &str, resources: &[&str]) -> HookRule {
    let owned = |list: &[&str]| list.iter().map(|item| (*item).to_owned()).collect();
    HookRule {
        operations: owned(operations),
        api_groups: vec![group.to_owned()],
        api_versions: vec!["*".to_owned()],
        resources: owned(resources),
        scope: Scope::All,
    }
}

fn endpoint(address: SocketAddr) -> Backend {
    Backend {
        path: BackendPath::Endpoint,
        address: BackendAddress::Socket(address),
    }
}

/// What a request's connection is kept for.
fn target(request: &ProbeRequest) -> ProbeTarget {
    ProbeTarget {
        backend: request.backend.clone(),
        terms: request.hook.connection_terms().expect("terms").into(),
    }
}

fn request(hook: Hook, address: SocketAddr, level: ProbeLevel) -> ProbeRequest {
    ProbeRequest {
        hook: Arc::new(hook),
        backend: endpoint(address),
        level,
        gone: false,
        connection: ConnectionKind::Fresh,
        deadline: AMPLE,
        namespace: "hookwatch".into(),
        traceparent: None,
    }
}

/// Runs a probe to its end. That it ends in time is itself the property under test in many places.
async fn run(prober: &Prober, request: ProbeRequest) -> ProbeReport {
    let ignore = |_: ProbeNews| {};
    tokio::time::timeout(3 * AMPLE, prober.probe(request, ignore))
        .await
        .expect("a probe always ends")
}
