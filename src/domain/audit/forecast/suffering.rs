//! The outcome of one write while webhooks fail, and when the loss of the write costs a function of the control plane.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{BackendFailure, Casualty, Suffering};
use crate::audit::Function;
use crate::audit::reach::{HookReader, Reach, Tenants, named};
use crate::audit::writes::WriteSort;
use crate::cluster::chain::{Chain, MetHook};
use crate::text::dotted;
use crate::thresholds::longest_write;

/// How long after the fault a leader exits, at the earliest and the latest: 10 s after the start of the first renewal that fails,
/// which starts up to 2 s after the fault (`client-go/tools/leaderelection`). Requests in flight widen it by 0.5 s on each side.
const LEADERS: [Duration; 2] = [Duration::from_millis(9_500), Duration::from_millis(12_500)];
/// Most time that releasing its Lease delays the loss of kube-scheduler. It releases the Lease before it exits
/// (`ReleaseOnCancel`), and waits for that as long as for a renewal. But the Lease expires 15 s after its last renewal, which is
/// 3 s after the exit of a leader that does not release it.
const RUNS_OUT: Duration = Duration::from_secs(3);
/// How long after the fault a node's Lease expires, at the earliest and the latest: it lasts 40 s and was renewed up to 10.4 s
/// before the fault (`kubelet`, `nodeLeaseDurationSeconds`).
const NODES: [Duration; 2] = [Duration::from_secs(29), Duration::from_secs(41)];
/// How long after the fault a function of a leader that exits is missed, at the earliest and the latest: when it is next needed.
const WITH_LEADERS: [Duration; 2] = [Duration::from_millis(9_500), Duration::from_secs(24)];
/// How long after its start an API server gives up, at the earliest and the latest. The post-start hook `rbac/bootstrap-roles`
/// begins no attempt after 30 s, and waits for one in flight (`pkg/registry/rbac/rest/storage_rbac.go`). The number of roles to
/// write is unknown; with one to three that wait 10 s each, the last attempt ends within 45 s.
const STARTS: [Duration; 2] = [Duration::from_secs(30), Duration::from_secs(45)];
/// How much sooner a write fails that was in flight when the fault began.
const BEFORE: Duration = Duration::from_millis(500);
/// How long after the fault the next write of a kind is made, at the latest.
const NEXT_WRITE: Duration = Duration::from_secs(10);

/// Most writes named by rules that one forecast checks.
const MAX_NAMED: usize = 200;

const MANAGER: &str = "kube-controller-manager";
const SCHEDULER: &str = "kube-scheduler";
/// Functions that are lost with any of these leaders. One leader creates a Pod, for example, and the other binds it.
const FOLLOWERS: &[(Function, &[&str])] = &[
    (Function::PodScheduling, &[SCHEDULER]),
    (Function::OwnPods, &[SCHEDULER, MANAGER]),
    (Function::KubeSystemPods, &[SCHEDULER, MANAGER]),
    (Function::NamespaceDelete, &[MANAGER]),
    (Function::ServiceEndpoints, &[MANAGER]),
];

/// How much later a leader is lost because it releases its Lease. `waits` is how long an attempt at a renewal takes.
fn releases(write: &WriteSort, waits: Duration) -> Duration {
    if write.object_name == SCHEDULER {
        waits.min(RUNS_OUT)
    } else {
        Duration::ZERO
    }
}

pub(super) fn suffer(
    write: &WriteSort,
    asked_again: bool,
    met: &[(&HookReader, Reach)],
    failure: BackendFailure,
    found: &mut ForecastLosses,
) {
    if met.is_empty() {
        return;
    }
    let chain = chain(met, failure, asked_again);
    let deadline = (write.deadline)();
    let refused = chain.refused_after();
    let total = chain.total();
    let lost = refused.or((total >= deadline).then_some(deadline));
    let waits = lost.unwrap_or(total).min(deadline);
    let [group, _, resource, subresource] = write.object;
    if lost.is_some() || !total.is_zero() {
        found.writes.push(Suffering {
            name: write.name,
            object: written(write.operation, [group, resource, subresource]),
            waits,
            is_lost: lost.is_some(),
        });
    }
    if lost.is_none() {
        return;
    }
    let certain = met.iter().all(|(_, reach)| *reach == Reach::Yes);
    let how = match refused {
        Some(after) if after.is_zero() => format!("{} is refused at once", write.name),
        Some(after) if after < deadline => {
            format!("{} is refused after {:.0} s", write.name, after.as_secs_f64())
        }
        _ => format!(
            "{} takes longer than the {:.0} s that its client waits",
            write.name,
            deadline.as_secs_f64()
        ),
    };
    let after = match write.what {
        Function::LeaderElection => LEADERS.map(|after| after + releases(write, waits)),
        Function::NodeHeartbeat => NODES,
        Function::ApiServerStart => STARTS,
        _ => [waits.saturating_sub(BEFORE), waits + NEXT_WRITE],
    };
    if write.what == Function::LeaderElection {
        let exit = Exit {
            who: write.object_name,
            is_certain: certain,
            after: WITH_LEADERS.map(|after| after + releases(write, waits)),
        };
        found.exits.push(exit);
    }
    found.lose(write.what, after, certain, how);
}

/// The outcome of tenants' writes of the resources that the webhooks' rules name.
pub(super) fn tenants_suffer(
    failing: &[&HookReader],
    tenants: &Tenants,
    failure: BackendFailure,
    found: &mut ForecastLosses,
) {
    // A set, because many webhooks name the same resources.
    let all: BTreeSet<_> = failing.iter().flat_map(|reader| named(&reader.hook)).collect();
    for (object, operation) in all.into_iter().take(MAX_NAMED) {
        let met = failing
            .iter()
            .map(|reader| (*reader, reader.reach_named(&object, operation, tenants)));
        let met: Vec<_> = met.filter(|(_, reach)| *reach >= Reach::May).collect();
        let chain = chain(&met, failure, false);
        let deadline = longest_write();
        let refused = chain.refused_after();
        let Some(waits) = refused.or((chain.total() >= deadline).then_some(deadline)) else {
            continue;
        };
        let waits = waits.min(deadline);
        let [group, _, resource, subresource] = &object;
        let object = written(operation, [group, resource, subresource]);
        found.lose(
            Function::TenantWrites,
            [waits.saturating_sub(BEFORE), waits + NEXT_WRITE],
            met.iter().all(|(_, reach)| *reach == Reach::Yes),
            format!("{object} is refused"),
        );
        found.writes.push(Suffering {
            name: "a write of what its rules name",
            object,
            waits,
            is_lost: true,
        });
    }
}

/// The chain of webhooks that a write meets, all failing in the same way.
fn chain<'a>(met: &[(&'a HookReader, Reach)], failure: BackendFailure, asked_again: bool) -> Chain<'a> {
    let met = met.iter().map(|(reader, _)| MetHook {
        hook: &reader.hook,
        cost: failure.cost(&reader.hook),
        fails: failure != BackendFailure::Slow,
    });
    Chain::of(met, asked_again)
}

fn written(operation: &str, [group, resource, subresource]: [&str; 3]) -> String {
    let below = if subresource.is_empty() { "" } else { "/" };
    format!("{operation} {}{below}{subresource}", dotted(resource, group))
}

struct Exit {
    who: &'static str,
    is_certain: bool,
    /// How long after the fault its functions are missed, at the earliest and the latest.
    after: [Duration; 2],
}

#[derive(Default)]
pub(super) struct ForecastLosses {
    casualties: BTreeMap<Function, Casualty>,
    exits: Vec<Exit>,
    /// Every write that is refused or delayed.
    pub(super) writes: Vec<Suffering>,
}

impl ForecastLosses {
    /// Records a loss. Of several losses of one function a certain one is kept before an uncertain one, then the soonest.
    fn lose(&mut self, what: Function, after: [Duration; 2], is_certain: bool, why: String) {
        let casualty = Casualty {
            what,
            after,
            is_certain,
            why,
        };
        let rank = |casualty: &Casualty| (!casualty.is_certain, casualty.after);
        let known = self.casualties.get(&what);
        if known.is_none_or(|known| rank(&casualty) < rank(known)) {
            self.casualties.insert(what, casualty);
        }
    }

    /// Records the functions that are lost with the leaders that exit. `has_pods` is false for a webhook that is called by URL,
    /// whose Pods are unknown.
    pub(super) fn follow(&mut self, has_pods: bool) {
        for (what, by) in FOLLOWERS {
            if *what == Function::OwnPods && !has_pods {
                continue;
            }
            let lost = self.exits.iter().filter(|exit| by.contains(&exit.who));
            let Some(exit) = lost.min_by_key(|exit| (!exit.is_certain, exit.after)) else {
                continue;
            };
            let (after, is_certain) = (exit.after, exit.is_certain);
            let why = format!("{} has exited", exit.who);
            let known = self.casualties.get(what);
            if known.is_none_or(|known| !known.is_certain && is_certain) {
                self.casualties.remove(what);
                self.lose(*what, after, is_certain, why);
            }
        }
    }

    pub(super) fn sorted(&self) -> Vec<Casualty> {
        let mut sorted: Vec<Casualty> = self.casualties.values().cloned().collect();
        sorted.sort_by_key(|casualty| (casualty.after, casualty.what));
        sorted
    }
}
