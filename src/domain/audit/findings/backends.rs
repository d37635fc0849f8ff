//! Findings about a webhook's Service and its Pods.

use super::{
    Finding, FindingSeverity, NO_DISRUPTION_BUDGET, NO_ENDPOINTS, NO_GRACE, NO_LIVENESS_PROBE,
    NO_READINESS_PROBE, NOT_SPREAD, ONE_REPLICA, PORT_NOT_OFFERED, READINESS_ELSEWHERE, SERVICE_MISSING,
};
use crate::audit::estate::{AuditedHook, Check, Container, Estate, ServiceFacts, Workload};
use crate::audit::forecast::Auditor;
use crate::cluster::hook::{FailurePolicy, HookId, ServiceState};

/// Seconds that a Pod should keep serving after its deletion. Every node and API server needs some seconds to drop a removed
/// endpoint; a Pod that stops earlier still gets requests that fail.
const LEAVING_SECONDS: i64 = 10;

pub(super) fn of_one(auditor: &Auditor<'_>, at: usize, found: &mut Vec<Finding>) {
    let (subject, estate) = (auditor.subject(at), auditor.estate);
    service(subject, estate, found);
}

/// Findings about the Pods of a Service, reported once for all of its webhooks: for the first with `failurePolicy: Fail`, or for
/// the first if there is none.
pub(super) fn of_all(auditor: &Auditor<'_>, found: &mut Vec<Finding>) {
    let estate = auditor.estate;
    for all in auditor.places.values() {
        let fails_open = |at: &&usize| auditor.subject(**at).hook.failure_policy == FailurePolicy::Ignore;
        let Some(first) = all.iter().min_by_key(fails_open) else {
            continue;
        };
        let subject = auditor.subject(*first);
        let mut of_pods = Vec::new();
        for workload in estate.workloads(&subject.hook) {
            of_workload(subject, workload, estate, &mut of_pods);
        }
        let others = all.iter().filter(|at| *at != first);
        let others: Vec<HookId> = others.map(|at| auditor.subject(*at).hook.id.clone()).collect();
        for finding in &mut of_pods {
            finding.message.push_str(&match others.len() {
                0 => String::new(),
                1 => " The same Pods serve another webhook.".to_owned(),
                more => format!(" The same Pods serve {more} other webhooks."),
            });
            finding.others.clone_from(&others);
        }
        found.append(&mut of_pods);
    }
}

/// What happens to requests while calls to a webhook fail, as a clause.
pub(super) fn fails(subject: &AuditedHook) -> &'static str {
    match subject.hook.failure_policy {
        FailurePolicy::Fail => "every request that matches is refused",
        FailurePolicy::Ignore => "every request that matches passes it by",
    }
}

fn service(subject: &AuditedHook, estate: &Estate, found: &mut Vec<Finding>) {
    let Some(target) = subject.hook.target.service() else {
        return;
    };
    let is_offered = |service: &ServiceFacts| {
        let mut ports = service.ports.iter();
        service.is_external || ports.any(|(port, _)| *port == i64::from(target.port))
    };
    let (kind, is_so) = match &target.service {
        ServiceState::Missing => (SERVICE_MISSING, "does not exist".to_owned()),
        // Manifests do not have endpoints, but the Service's ports.
        ServiceState::Unknown { .. } if estate.service(&subject.hook).is_none_or(is_offered) => return,
        ServiceState::NoSuchPort { .. } | ServiceState::Unknown { .. } => {
            (PORT_NOT_OFFERED, format!("does not offer port {}", target.port))
        }
        ServiceState::Found { endpoints, .. } if endpoints.iter().any(|endpoint| endpoint.ready) => return,
        ServiceState::Found { .. } => (NO_ENDPOINTS, "has no ready endpoint".to_owned()),
    };
    let (namespace, name, fails) = (&target.namespace, &target.name, fails(subject));
    let message = format!("Service {namespace}/{name} {is_so}: {fails}.");
    let ignored = subject.hook.failure_policy == FailurePolicy::Ignore;
    found.push(Finding::of(kind, subject, message).at_most_if(ignored, FindingSeverity::Warning));
}

fn of_workload(subject: &AuditedHook, workload: &Workload, estate: &Estate, found: &mut Vec<Finding>) {
    let who = format!("{} {}/{}", workload.kind, workload.namespace, workload.name);
    let mut push = |kind, message: String| found.push(Finding::of(kind, subject, message));
    if workload.replicas.is_some_and(|replicas| replicas < 2) {
        push(
            ONE_REPLICA,
            format!(
                "{who} has one Pod: whenever that is restarted, drained or evicted, {}. Run three.",
                fails(subject)
            ),
        );
    } else if workload.replicas.is_some() {
        if !workload.spread.nodes && !workload.spread.zones {
            push(
                NOT_SPREAD,
                format!(
                    "{who} has neither podAntiAffinity nor topologySpreadConstraints: all of its Pods may be on one node, and gone with it."
                ),
            );
        }
        let selected = estate.budgets.iter().any(|budget| {
            budget.namespace == workload.namespace && budget.selector.matches(&workload.labels)
        });
        if !selected && estate.is_listed("PodDisruptionBudget", &workload.namespace) {
            push(
                NO_DISRUPTION_BUDGET,
                format!(
                    "No PodDisruptionBudget is about {who}: a drain of nodes may evict all of its Pods at once."
                ),
            );
        }
    }
    if let Some((container, port)) = serving(subject, workload, estate) {
        of_container(subject, workload, container, port, found);
    }
}

/// Findings about the probes of the container that serves, and about its shutdown.
fn of_container(
    subject: &AuditedHook,
    workload: &Workload,
    container: &Container,
    port: Option<String>,
    found: &mut Vec<Finding>,
) {
    let who = format!("{} {}/{}", workload.kind, workload.namespace, workload.name);
    let mut push = |kind, message: String| found.push(Finding::of(kind, subject, message));
    let looks_at = |check: &Check| match (check, &port) {
        (Check::Port(checked), Some(port)) => is_same(container, checked, port),
        _ => true,
    };
    match &container.readiness {
        // A Pod is not Ready before its startupProbe has succeeded.
        _ if container.startup.as_ref().is_some_and(looks_at) => {}
        None => push(
            NO_READINESS_PROBE,
            format!(
                "The Pods of {who} are Ready as soon as they run: requests that come before they serve fail, after each start."
            ),
        ),
        Some(check @ Check::Port(checked)) if !looks_at(check) => push(
            READINESS_ELSEWHERE,
            format!(
                "The readiness probe of {who} looks at port {checked}, and requests go to port {}: a Pod may be Ready before it \
                 serves, and stay so when it no longer does, unless the program itself checks its serving port.",
                port.as_deref().unwrap_or_default()
            ),
        ),
        Some(_) => {}
    }
    if !container.has_liveness {
        push(
            NO_LIVENESS_PROBE,
            format!(
                "The Pods of {who} have no livenessProbe: one that hangs hangs until a person restarts it."
            ),
        );
    }
    if !container.has_pre_stop || workload.grace_seconds < LEAVING_SECONDS {
        let why = if container.has_pre_stop {
            format!("terminationGracePeriodSeconds {}", workload.grace_seconds)
        } else {
            "no preStop".to_owned()
        };
        push(
            NO_GRACE,
            format!(
                "The Pods of {who} have {why}: one that ends stops to listen while its endpoint is still in use for some seconds, and \
                 calls fail in every rollout, unless the program itself waits. Set preStop to `sleep: {{seconds: {LEAVING_SECONDS}}}` \
                 (the kubelet's own, Kubernetes 1.30 or later) and terminationGracePeriodSeconds to at least {LEAVING_SECONDS} more than \
                 requests take."
            ),
        );
    }
}

/// The container that serves the webhook, by default the first, and the Service's target port if the Service has the port.
fn serving<'a>(
    subject: &AuditedHook,
    workload: &'a Workload,
    estate: &Estate,
) -> Option<(&'a Container, Option<String>)> {
    let target = subject.hook.target.service()?;
    let service = estate.service(&subject.hook)?;
    let mut ports = service.ports.iter();
    let port = ports
        .find(|(port, _)| *port == i64::from(target.port))
        .map(|(_, port)| port.clone());
    let serves = |container: &&Container| {
        port.as_ref()
            .is_some_and(|port| number(container, port).is_some())
    };
    let container = workload
        .containers
        .iter()
        .find(serves)
        .or(workload.containers.first())?;
    Some((container, port))
}

/// The number of a container's port, given by name or number; `None` if the container does not list it.
fn number(container: &Container, port: &str) -> Option<i64> {
    let mut ports = container.ports.iter();
    let known = ports.find(|(name, number)| name == port || number.to_string() == port);
    known.map(|(_, number)| *number)
}

fn is_same(container: &Container, one: &str, other: &str) -> bool {
    let resolved =
        |port: &str| number(container, port).map_or_else(|| port.to_owned(), |number| number.to_string());
    resolved(one) == resolved(other)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cluster::hook::{HookTarget, Labels, ServiceTarget};
    use crate::cluster::matching::tests::hook;

    #[test]
    fn no_port_is_missed_of_an_external_name_as_the_api_server_looks_at_none() {
        let mut hook = hook(&["*"]);
        let target = ServiceTarget {
            namespace: "n".into(),
            name: "s".into(),
            port: 443,
            path: "/".into(),
            service: ServiceState::Unknown {
                why: "an ExternalName is not followed".into(),
            },
        };
        let key = target.key();
        hook.target = HookTarget::Service(target);
        let subject = AuditedHook {
            hook: Arc::new(hook),
            source: None,
        };
        for (is_external, wanted) in [(true, 0), (false, 1)] {
            let facts = ServiceFacts {
                selector: Labels::new(),
                ports: Vec::new(),
                is_external,
                source: None,
            };
            let estate = Estate {
                services: [(key.clone(), facts)].into(),
                ..Estate::default()
            };
            let mut found = Vec::new();
            service(&subject, &estate, &mut found);
            assert_eq!(found.len(), wanted, "{found:?}");
        }
    }
}
