//! The messages with which the API server refuses a write.

use super::cluster::{Cluster, HookSpec, Routing};
use super::manner::{End, Stage};
use super::traffic::Class;
use super::{SECOND, as_seconds};

/// The message when a call to a webhook failed and its failurePolicy is `Fail`.
pub fn call_failed(cluster: &Cluster, hook: &HookSpec, end: End, backend: Option<usize>) -> String {
    let service = &cluster.services[hook.service];
    let name = &hook.id.webhook;
    let dialled = match (service.routing, backend) {
        (Routing::Endpoints, Some(backend)) => service.backends[backend].address.to_string(),
        (Routing::Url, _) => "203.0.113.9:443".to_owned(),
        _ => format!("10.96.0.{}:443", hook.service + 1),
    };
    let why = match end {
        // The handshake (10 s) and dial (30 s) limits of Go have their own messages; a shorter webhook timeout hides them.
        End::TimedOut(Stage::Tls) if hook.timeout >= 10 * SECOND => {
            "net/http: TLS handshake timeout".to_owned()
        }
        End::TimedOut(Stage::Connect) if hook.timeout >= 30 * SECOND => {
            format!("dial tcp {dialled}: i/o timeout")
        }
        End::TimedOut(_) => "context deadline exceeded".to_owned(),
        End::Refused => format!("dial tcp {dialled}: connect: connection refused"),
        End::Unroutable => format!("dial tcp {dialled}: connect: no route to host"),
        End::Tls => {
            "tls: failed to verify certificate: x509: certificate has expired or is not yet valid".to_owned()
        }
        End::Cut => "EOF".to_owned(),
        End::NoEndpoints => format!("no endpoints available for service \"{}\"", service.name),
        End::NoService => format!("service \"{}\" not found", service.name),
        End::Status(_) => {
            let why = "an error on the server (\"boom\") has prevented the request from succeeding";
            return format!(
                "Internal error occurred: failed calling webhook \"{name}\": failed to call webhook: {why}"
            );
        }
        End::Nonsense | End::Answered => {
            return format!(
                "Internal error occurred: failed calling webhook \"{name}\": received invalid webhook response: \
                 expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind="
            );
        }
    };
    format!(
        "Internal error occurred: failed calling webhook \"{name}\": failed to call webhook: Post \
         \"https://{}{}?timeout={}s\": {why}",
        authority(cluster, hook),
        hook.path,
        as_seconds(hook.timeout).ceil()
    )
}

fn authority(cluster: &Cluster, hook: &HookSpec) -> String {
    let service = &cluster.services[hook.service];
    match service.routing {
        Routing::Url => format!("{}.example.com", service.name),
        _ => format!("{}.{}.svc:443", service.name, service.namespace),
    }
}

/// The message when RBAC forbids the request, or when the API server has not loaded RBAC yet.
pub fn forbidden(class: &Class) -> String {
    format!(
        "{} is forbidden: User \"system:serviceaccount:hookwatch:hookwatch\" cannot {} resource \"{}\" in API group \"{}\"",
        class.resource,
        class.verb.as_str().to_lowercase(),
        class.resource,
        class.group
    )
}

/// The message when a webhook denies the request.
pub fn denied(hook: &HookSpec) -> String {
    format!(
        "admission webhook \"{}\" denied the request: not in this cluster",
        hook.id.webhook
    )
}
