//! The damage to the control plane: leaders that cannot renew their Leases step down, and nodes that cannot renew theirs
//! become NotReady.
//!
//! Computed after the incident, from the same cluster and the breaker's changes: two leaders and three kubelets renew
//! their Leases through the same webhooks. Their writes are not part of the simulation, so hookwatch does not see them,
//! and the same incident can be computed with and without the breaker.

mod writes;

use hookwatch::domain::act::breaker::{Rung, To};

use crate::breaking::{Act, Broken};
use crate::incident::Incident;
use crate::model::bypass::Form;
use crate::model::timeline::Timeline;
use crate::model::traffic::{Class, Place};
use crate::model::{At, SECOND};

use writes::Writes;

/// Leaders (kube-controller-manager and kube-scheduler), with the times of `client-go/tools/leaderelection`: `RETRY`
/// between attempts, `ATTEMPT` seconds for each, `RENEW_DEADLINE` for all of them.
const LEADERS: usize = 2;
const RETRY: At = 2 * SECOND;
const ATTEMPT: u64 = 5;
const RENEW_DEADLINE: At = 10 * SECOND;
/// Time until a leader that stepped down has restarted.
const RESTART: At = 10 * SECOND;
/// Kubelets, with the times of `component-helpers/apimachinery/lease`: `HEARTBEAT` between renewals, `PATIENCE` seconds
/// for an attempt, `TRIES` attempts for a renewal, `LEASE` until the node's Lease expires.
const NODES: usize = 3;
const HEARTBEAT: At = 10 * SECOND;
const PATIENCE: u64 = 10;
const TRIES: usize = 5;
const LEASE: At = 40 * SECOND;
/// kube-controller-manager marks a node NotReady after this long (`--node-monitor-grace-period`).
const NOT_READY: At = 50 * SECOND;

/// The damage of one incident.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Casualties {
    /// How often a leader lost its Lease and stepped down.
    pub leaders_lost: usize,
    /// How often a node's Lease expired.
    pub leases_expired: usize,
    /// How often a node was marked NotReady.
    pub nodes_not_ready: usize,
}

/// The damage with and without the breaker.
#[derive(Debug, Clone, Copy, Default, serde::Serialize)]
pub struct Toll {
    pub without_breaker: Casualties,
    /// `None` when the breaker was off.
    pub with_breaker: Option<Casualties>,
    /// Why a leader was lost with the breaker on: one of [`NO_SHIELD_HELPS`], [`NOT_IN_TIME`], [`TOO_LATE`], [`NOT_NAMED`], or the
    /// guard rail that held a bypass back. `None` when none was lost.
    pub lost_because: Option<&'static str>,
}

/// A leader is lost though all that is at fault is shielded from the fault's first instant, for instance to an API server that
/// dies.
const NO_SHIELD_HELPS: &str = "no shield helps";
/// As before, with shields [`SHIELDED`] after the fault.
const NOT_IN_TIME: &str = "no shield after 4 s helps";
/// Everything at fault was bypassed, but too late.
const TOO_LATE: &str = "too late";
/// A webhook at fault was not bypassed, and the breaker had no reason to say why.
const NOT_NAMED: &str = "not named";
/// The median time until a shield is in force on a real API server.
const SHIELDED: At = 4 * SECOND;

/// Computes the damage of an incident. `broken` is what the breaker did; `None` when it was off.
pub fn toll(incident: &Incident, broken: Option<&Broken>) -> Toll {
    let with_breaker = broken.map(|broken| casualties(incident, &broken.acts));
    Toll {
        without_breaker: casualties(incident, &[]),
        with_breaker,
        lost_because: broken
            .filter(|_| with_breaker.is_some_and(|with| with.leaders_lost > 0))
            .map(|broken| reason(incident, broken)),
    }
}

/// Why a leader was lost although the breaker was on.
fn reason(incident: &Incident, broken: &Broken) -> &'static str {
    // A fault from instant 0 is the webhook's normal behaviour.
    let faults = || incident.faults.iter().filter(|fault| fault.from > 0);
    let lost_with_shields = |delay: At| {
        let shields = faults().flat_map(|fault| {
            fault.hooks.iter().map(move |hook| Act {
                at: fault.from + delay,
                hook: *hook,
                to: To::Bypass(Rung::Shield),
                cause: None,
            })
        });
        casualties(incident, &shields.collect::<Vec<_>>()).leaders_lost > 0
    };
    if lost_with_shields(0) {
        return NO_SHIELD_HELPS;
    }
    if lost_with_shields(SHIELDED) {
        return NOT_IN_TIME;
    }
    let mut all_bypassed = true;
    for fault in faults() {
        let span = (fault.from, fault.until);
        for hook in &fault.hooks {
            let mut acts = broken.acts.iter();
            if acts.any(|act| act.hook == *hook && (span.0..=span.1).contains(&act.at)) {
                continue;
            }
            all_bypassed = false;
            if let Some(reason) = broken.held_back(*hook, span) {
                return reason.as_str();
            }
        }
    }
    if !all_bypassed {
        return NOT_NAMED;
    }
    TOO_LATE
}

fn casualties(incident: &Incident, acts: &[Act]) -> Casualties {
    // The same random numbers with and without the breaker.
    let mut random = incident.world.clone().fork();
    let begins: Vec<At> = [(LEADERS, RETRY), (NODES, HEARTBEAT)]
        .into_iter()
        .flat_map(|(count, every)| vec![every; count])
        .map(|every| (every as f64 * random.unit()) as At)
        .collect();
    let (leaders, nodes) = begins.split_at(LEADERS);
    let mut leaders: Vec<Leader> = leaders.iter().map(|at| Leader::new(*at)).collect();
    let mut nodes: Vec<Node> = nodes.iter().map(|at| Node::new(*at)).collect();
    let mut writes = Writes::new(&incident.cluster, forms(incident, acts), random);
    let renewal = Class::leases(Place::KubeSystem, 0.0, ATTEMPT);
    let heartbeat = Class::leases(Place::NodeLeases, 0.0, PATIENCE);
    loop {
        let leader = leaders.iter_mut().min_by_key(|leader| leader.next);
        let node = nodes.iter_mut().min_by_key(|node| node.next);
        let (Some(leader), Some(node)) = (leader, node) else {
            break;
        };
        let now = leader.next.min(node.next);
        if now > incident.end {
            break;
        }
        if leader.next == now {
            leader.attempted(now, writes.write(&renewal, now));
        } else {
            node.attempted(now, writes.write(&heartbeat, now));
        }
    }
    reckon(&leaders, &mut nodes, incident.end)
}

fn reckon(leaders: &[Leader], nodes: &mut [Node], end: At) -> Casualties {
    let mut casualties = Casualties::default();
    for leader in leaders {
        casualties.leaders_lost += leader.lost.iter().filter(|at| **at <= end).count();
    }
    for node in nodes {
        node.silences.push((node.renewed, end));
        for (from, until) in &node.silences {
            casualties.leases_expired += usize::from(until.saturating_sub(*from) > LEASE);
            // The first leader is the one that marks nodes NotReady; its grace period starts when it starts to lead.
            let given_up = |(leads, gone): &(At, At)| (*from).max(*leads) + NOT_READY < *(gone.min(until));
            let given_up = leaders[0].reigns(end).iter().any(given_up);
            casualties.nodes_not_ready += usize::from(given_up);
        }
    }
    casualties
}

/// The form of each webhook over time.
fn forms(incident: &Incident, acts: &[Act]) -> Vec<Timeline<Form>> {
    let mut forms = vec![Timeline::always(Form::Original); incident.cluster.hooks.len()];
    for act in acts {
        forms[act.hook].set(act.at, act.to.into());
    }
    forms
}

/// A leader, which has to renew its Lease.
#[derive(Debug)]
struct Leader {
    next: At,
    /// When the current renewal, with all its attempts, began.
    began: At,
    /// When it started to lead, if it leads.
    leads: Option<At>,
    lost: Vec<At>,
    reigned: Vec<(At, At)>,
}

impl Leader {
    fn new(at: At) -> Self {
        Self {
            next: at,
            began: at,
            leads: Some(at),
            lost: Vec::new(),
            reigned: Vec::new(),
        }
    }

    fn attempted(&mut self, now: At, (ended, written): (At, bool)) {
        let deadline = match self.leads {
            Some(_) => self.began + RENEW_DEADLINE,
            None => At::MAX,
        };
        let again = ended.max(now + RETRY);
        if written && ended <= deadline {
            self.leads = self.leads.or(Some(ended));
            (self.next, self.began) = (ended + RETRY, ended + RETRY);
        } else if again >= deadline {
            self.reigned
                .extend(self.leads.take().map(|since| (since, deadline)));
            self.lost.push(deadline);
            self.next = deadline + RESTART;
        } else {
            self.next = again;
        }
    }

    /// The spans during which it led, up to `end`.
    fn reigns(&self, end: At) -> Vec<(At, At)> {
        let now = self.leads.map(|since| (since, end));
        self.reigned.iter().copied().chain(now).collect()
    }
}

/// A kubelet.
#[derive(Debug)]
struct Node {
    next: At,
    tries: usize,
    renewed: At,
    /// The spans from one renewal to the next.
    silences: Vec<(At, At)>,
}

impl Node {
    fn new(at: At) -> Self {
        Self {
            next: at,
            tries: 0,
            renewed: at,
            silences: Vec::new(),
        }
    }

    fn attempted(&mut self, _now: At, (ended, written): (At, bool)) {
        self.tries += 1;
        if written {
            self.silences.push((self.renewed, ended));
            self.renewed = ended;
        }
        if written || self.tries >= TRIES {
            self.tries = 0;
            self.next = ended + HEARTBEAT;
        } else {
            self.next = ended;
        }
    }
}

#[cfg(test)]
mod tests;
