//! The sentences about a hook's backends.

use crate::cluster::hook::{Backend, BackendPath, HookTarget, ServiceState, ServiceTarget};
use crate::diagnose::evidence::Evidence;
use crate::diagnose::probes::ProbeEvidence;
use crate::diagnose::verdict::BackendView;
use crate::observe::probing::{BackendState, Dead};
use crate::text::human;
use crate::vocabulary::BackendHealth;

use super::TOLD;

/// What the inventory lacks, or what probes saw.
pub fn seen(evidence: &Evidence<'_>) -> Vec<String> {
    match (evidence.structural, evidence.hook.map(|hook| &hook.target)) {
        (Some(_), Some(HookTarget::Service(target))) => vec![without_backends(target)],
        _ => {
            let untried = |(backend, state): &&(Backend, BackendState)| {
                backend.path != BackendPath::ClusterIp && matches!(state, BackendState::Untried { .. })
            };
            let all_tried = !evidence.backends.iter().any(|it| untried(&it));
            evidence.probes.sentences(all_tried)
        }
    }
}

fn without_backends(target: &ServiceTarget) -> String {
    let service = format!("Service {}/{}", target.namespace, target.name);
    match &target.service {
        ServiceState::Missing => format!("{service} does not exist."),
        ServiceState::NoSuchPort { offered } => {
            let port = target.port;
            format!("{service} does not offer port {port} (it offers {offered:?}).")
        }
        ServiceState::Found { endpoints, .. } => match endpoints.len() {
            0 => format!("{service} has no endpoint."),
            n => format!("{service} has {n} endpoints and none of them is ready."),
        },
        ServiceState::Unknown { why } => format!("{service} is not known: {why}."),
    }
}

impl ProbeEvidence<'_> {
    fn sentences(&self, all_tried: bool) -> Vec<String> {
        let list = |dead: &[(&Backend, &Dead)]| {
            let told = dead.iter().take(TOLD);
            let told = told.map(|(backend, dead)| format!("{backend} {}", dead.detail));
            let more = dead.len().saturating_sub(TOLD);
            let more = (more > 0).then(|| format!("{more} more"));
            told.chain(more).collect::<Vec<_>>().join("; ")
        };
        vec![match self {
            Self::NoData => return Vec::new(),
            Self::Good { answered, of, .. } => match (answered, of) {
                (1, 1) => "Its backend answers a direct probe.".to_owned(),
                (n, of) if n == of => format!("All {n} backends answer direct probes."),
                (n, of) => format!("{n} of {of} backends answer direct probes."),
            },
            Self::Slow { took, .. } => {
                let took = human(*took);
                format!("Direct probes are answered late, the slowest after {took}.")
            }
            Self::Some { dead, of } => {
                let are = if dead.len() == 1 { "is" } else { "are" };
                format!("{} of {of} backends {are} bad: {}.", dead.len(), list(dead))
            }
            Self::All { dead, .. } => match (dead.len(), all_tried) {
                (1, true) => format!("Its only backend is bad: {}.", list(dead)),
                (1, false) => format!("The only backend with a probe result is bad: {}.", list(dead)),
                (n, true) => format!("All {n} backends are bad: {}.", list(dead)),
                (n, false) => format!("All {n} backends with a probe result are bad: {}.", list(dead)),
            },
        }]
    }
}

/// One backend as a person sees it.
pub fn view((backend, state): &(Backend, BackendState)) -> BackendView {
    let untried = || "not probed yet".to_owned();
    let answered = |took| format!("answered in {}", human(took));
    let (state, detail) = match state {
        BackendState::Untried { why } => (BackendHealth::Untried, why.clone().unwrap_or_else(untried)),
        BackendState::Alive { took, .. } => (BackendHealth::Alive, answered(*took)),
        BackendState::Slow { took, .. } => (BackendHealth::Slow, answered(*took)),
        BackendState::Wavering { detail } => (BackendHealth::Wavering, detail.clone()),
        BackendState::Dead(dead) => (BackendHealth::Dead, dead.detail.clone()),
    };
    BackendView {
        backend: backend.clone(),
        state,
        detail,
    }
}
