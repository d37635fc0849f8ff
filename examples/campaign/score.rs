//! Scores an incident: compares the verdicts with the ground truth.

pub mod breaker;
pub mod claims;
pub mod flaps;

use std::collections::BTreeSet;

use hookwatch::domain::vocabulary::{Cause, Health, NotAHook};

use crate::casualties::{self, Toll};
use crate::incident::{Fault, Incident, Kind};
use crate::model::cluster::{Backend, Cluster, Release, ReplicaSpec, Serving};
use crate::model::manner::Manner;
use crate::model::{At, SECOND, as_seconds};
use crate::naive::THRESHOLDS;
use crate::play::{Played, Trace};
use claims::{Claim, Span, claims, naming, spans};
use flaps::Flaps;

/// Seconds between two probes of one backend in calm times: the unit of the time to a verdict.
const PROBE_INTERVAL: f64 = 5.0;
/// A verdict may still refer to a fault for this long after it is over.
pub const GRACE: At = 70 * SECOND;
/// A fault may still be named for the first time for this long after it is over.
const LATE: At = 15 * SECOND;
/// Least affected calls for a fault to count as felt.
const FELT: usize = 3;
/// The same for stale connections: a single call that waits for its whole timeout counts.
const FELT_WHOLE: usize = 1;
/// Least requests that waited for a seat for flow-control queueing to count as felt.
const WAITS: usize = 50;
/// A call counts as slow from this many seconds on, or from eight times the webhook's usual time if that is more.
const SLOW: f64 = 0.2;

/// How one fault was diagnosed.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Found {
    pub kind: Kind,
    /// It was the only fault of the incident.
    pub alone: bool,
    /// It affected enough calls or requests that it must be diagnosed.
    pub felt: bool,
    /// A webhook of it was called `Failing` (or `Suspect`, for [`Kind::is_for_suspects`]), or the right fault outside of
    /// webhooks was named.
    pub named: bool,
    /// The cause that was named for the longest time is right.
    pub right_cause: bool,
    /// The cause that was named for the longest time.
    pub said: Option<&'static str>,
    /// From the fault's beginning to the first naming, in probe intervals.
    pub intervals: Option<f64>,
    /// A webhook of it was still called `Failing` more than [`GRACE`] after the fault was over.
    pub held: bool,
    /// The rule that first called a webhook of it `Failing`.
    pub first_rule: Option<&'static str>,
    /// Every rule that called a webhook of it `Failing`.
    pub rules: BTreeSet<&'static str>,
}

/// The score of one incident.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Score {
    pub index: u64,
    pub found: Vec<Found>,
    /// Each wrong `Failing` verdict on a webhook: name, cause, instant and duration.
    pub wrong: Vec<String>,
    /// Each wrong verdict about a fault outside of webhooks: what, instant and duration.
    pub wrong_elsewhere: Vec<String>,
    pub claims: Vec<Claim>,
    /// Verdicts that flapped.
    pub flaps: Flaps,
    /// For each of [`THRESHOLDS`]: whether the naive judge was right.
    pub naive: Vec<bool>,
    /// Whether the core was right by a measure that can be compared with the naive judge's: no wrong culprit, and some felt
    /// culprit named, if there was one.
    pub ours: bool,
    pub calls: u64,
    /// What the breaker did; `None` when it was off.
    pub breaker: Option<breaker::Reckoning>,
    /// The damage to the control plane.
    pub toll: Toll,
}

/// Scores an incident that was played.
pub fn score(index: u64, incident: &Incident, played: &Played) -> Score {
    let alone = incident.faults.len() == 1;
    let found: Vec<Found> = incident
        .faults
        .iter()
        .map(|fault| match fault.kind.elsewhere() {
            Some(wanted) => found_elsewhere(fault, wanted, alone, incident, played),
            None => found_hook(fault, alone, incident, played),
        })
        .collect();
    let (wrong, claims) = claims(incident, played);
    let mut score = Score {
        index,
        wrong_elsewhere: wrong_elsewhere(incident, &played.trace),
        naive: (0..THRESHOLDS.len())
            .map(|at| naive_is_right(incident, played, at))
            .collect(),
        calls: played.ledger.answered,
        found,
        wrong,
        claims,
        flaps: Flaps::of(incident, &played.trace),
        ours: false,
        breaker: breaker::reckon(incident, played),
        toll: casualties::toll(incident, played.broken.as_ref()),
    };
    let culprits: Vec<&Found> = score
        .found
        .iter()
        .filter(|found| is_culprit(found.kind) && found.felt)
        .collect();
    score.ours = score.wrong.is_empty() && (culprits.is_empty() || culprits.iter().any(|found| found.named));
    score
}

/// Whether a webhook must be called `Failing` for a fault of this kind.
pub fn is_culprit(kind: Kind) -> bool {
    kind.elsewhere().is_none() && !kind.is_for_suspects() && kind != Kind::Noise
}

fn found_hook(fault: &Fault, alone: bool, incident: &Incident, played: &Played) -> Found {
    let window = (fault.from, fault.until + LATE);
    let mut spoken: Vec<(Cause, At)> = Vec::new();
    let mut first: Option<At> = None;
    let mut held = false;
    for hook in &fault.hooks {
        let turns = &played.trace.hooks[*hook];
        let failing = || spans(turns, incident.end, Health::Failing);
        let mut named: Vec<Span<'_>> = Vec::new();
        if fault.kind.is_for_suspects() {
            named.extend(spans(turns, incident.end, Health::Suspect));
        }
        named.extend(failing());
        for Span {
            from, until, cause, ..
        } in named
        {
            let (begun, over) = (from.max(window.0), until.min(window.1));
            if begun < over {
                // A suspicion with another cause does not count as seeing this fault.
                if !fault.kind.is_for_suspects() || fault.kind.causes().contains(&cause) {
                    first = Some(first.map_or(begun, |first| first.min(begun)));
                }
                match spoken.iter_mut().find(|(known, _)| *known == cause) {
                    Some((_, time)) => *time += over - begun,
                    None => spoken.push((cause, over - begun)),
                }
            }
        }
        held |= failing().any(|Span { from, until, .. }| {
            from < fault.until && until > fault.until + GRACE && until > from
        });
    }
    let said = spoken
        .iter()
        .max_by_key(|(_, time)| *time)
        .map(|(cause, _)| *cause);
    let (first_rule, rules) = naming(fault, window, incident, played);
    // For a fault older than hookwatch, the time to a verdict starts when hookwatch starts.
    let began = fault.from.max(incident.begin);
    Found {
        kind: fault.kind,
        alone,
        felt: is_felt(fault, incident, played),
        named: first.is_some(),
        right_cause: said.is_some_and(|said| causes(fault, incident).contains(&said)),
        said: said.map(Cause::as_str),
        intervals: first.map(|first| as_seconds(first - began) / PROBE_INTERVAL),
        held,
        first_rule,
        rules,
    }
}

/// The causes that count as right for this fault, given its cluster. When all webhooks of an `Erroring` fault fail open,
/// hookwatch may not be able to find the mechanism, so the causes of `FailingOpen` are right as well.
fn causes(fault: &Fault, incident: &Incident) -> &'static [Cause] {
    let open = fault
        .hooks
        .iter()
        .all(|hook| !incident.cluster.hooks[*hook].fails);
    let dropped = |hook: &usize| {
        let service = &incident.cluster.services[incident.cluster.hooks[*hook].service];
        let mut manners = service
            .backends
            .iter()
            .map(|backend| backend.to_api.at(fault.from));
        manners.any(|manner| *manner == Manner::Vanished)
    };
    match fault.kind {
        Kind::Erroring if open => Kind::FailingOpen.causes(),
        // A webhook timeout shorter than the dial timeout hides the difference in the API server's message.
        Kind::Unreachable if fault.hooks.iter().any(dropped) => &[Cause::Unreachable, Cause::Hanging],
        kind => kind.causes(),
    }
}

/// Whether the fault affected enough calls, at least 20 s before its end, that it must be diagnosed.
fn is_felt(fault: &Fault, incident: &Incident, played: &Played) -> bool {
    let until = fault.until.saturating_sub(20 * SECOND);
    let from = fault.from.max(incident.begin);
    let touched = |hook: &usize| {
        let usual = incident.cluster.services[incident.cluster.hooks[*hook].service].latency;
        let is_slow = |took: At| as_seconds(took) >= SLOW.max(8.0 * usual);
        match fault.kind {
            // In the second half of the fault, a third of the calls must be slow: single late calls are no fault.
            Kind::Slow => {
                let calls = || played.ledger.calls(*hook, (from + until) / 2, until);
                let slow = calls().filter(|call| is_slow(call.took)).count();
                slow >= FELT && slow * 3 >= calls().count()
            }
            _ => {
                played
                    .ledger
                    .calls(*hook, from, until)
                    .filter(|call| call.failed)
                    .count()
                    >= match fault.kind {
                        Kind::StaleConnection => FELT_WHOLE,
                        _ => FELT,
                    }
            }
        }
    };
    fault.kind.is_for_suspects() || is_visible(fault, incident) && fault.hooks.iter().any(touched)
}

fn found_elsewhere(
    fault: &Fault,
    wanted: NotAHook,
    alone: bool,
    incident: &Incident,
    played: &Played,
) -> Found {
    let trace = &played.trace;
    let felt = match fault.kind {
        // When a webhook refuses every write at once, no request has to wait for a seat.
        Kind::QueuedByFlowControl => played.ledger.waits(fault.from, fault.until) >= WAITS,
        // A load from before hookwatch started cannot be recognised as higher than usual.
        Kind::Overloaded => fault.from >= incident.begin,
        // Only felt when canaries go to the replica: writes and canaries to other replicas do not wait for it.
        Kind::ReplicaDown => {
            let way = &incident.cluster.replicas[played.canaries_at];
            *way.serving.at(fault.from) != Serving::Up
        }
        _ => true,
    };
    let window = (fault.from, fault.until + LATE);
    let mut spoken: Vec<(NotAHook, At)> = Vec::new();
    let mut first = None;
    for (index, turn) in trace.plane.iter().enumerate() {
        let until = trace.plane.get(index + 1).map_or(At::MAX, |next| next.at);
        let (begun, over) = (turn.at.max(window.0), until.min(window.1));
        if let Some(said) = turn.not_a_hook
            && begun < over
        {
            first = first.or((said == wanted).then_some(begun));
            match spoken.iter_mut().find(|(known, _)| *known == said) {
                Some((_, time)) => *time += over - begun,
                None => spoken.push((said, over - begun)),
            }
        }
    }
    let said = spoken.iter().max_by_key(|(_, time)| *time).map(|(said, _)| *said);
    Found {
        kind: fault.kind,
        alone,
        felt,
        named: first.is_some(),
        right_cause: said == Some(wanted),
        said: said.map(NotAHook::as_str),
        intervals: first.map(|first| as_seconds(first.saturating_sub(fault.from)) / PROBE_INTERVAL),
        held: false,
        first_rule: None,
        rules: BTreeSet::new(),
    }
}

fn wrong_elsewhere(incident: &Incident, trace: &Trace) -> Vec<String> {
    let mut wrong = Vec::new();
    for (index, turn) in trace.plane.iter().enumerate() {
        let until = trace.plane.get(index + 1).map_or(incident.end, |next| next.at);
        let Some(said) = turn.not_a_hook else { continue };
        let true_then = incident.faults.iter().any(|fault| {
            fault.kind.elsewhere() == Some(said) && turn.at < fault.until + GRACE && until > fault.from
        });
        // Unexplained accuses nothing, so it is never wrong.
        if !true_then && !happened(incident, said, turn.at) && said != NotAHook::Unexplained {
            wrong.push(format!(
                "{} at {:.1} s for {:.1} s",
                said.as_str(),
                as_seconds(turn.at),
                as_seconds(until - turn.at)
            ));
        }
    }
    wrong
}

/// Whether the condition was true at `at` or up to [`GRACE`] before, although it was too small to be a fault.
fn happened(incident: &Incident, said: NotAHook, at: At) -> bool {
    let (cluster, before) = (&incident.cluster, at.saturating_sub(GRACE));
    match said {
        NotAHook::ReplicaDown => replica_was_down(cluster, before, at),
        NotAHook::ApiServerDown => cluster.up(at).next().is_none() || cluster.up(before).next().is_none(),
        NotAHook::EtcdSlow => cluster.etcd_frozen.within(before, at).any(|frozen| *frozen),
        NotAHook::Overloaded => cluster
            .replicas
            .iter()
            .any(|replica| replica.load.within(before, at).any(|load| *load > 2.0)),
        NotAHook::QueuedByFlowControl | NotAHook::Unexplained => false,
    }
}

/// Whether any API server was not serving at some time in the span.
fn replica_was_down(cluster: &Cluster, from: At, until: At) -> bool {
    let down = |replica: &ReplicaSpec| {
        let mut serving = replica.serving.within(from, until);
        serving.any(|serving| *serving != Serving::Up)
    };
    cluster.replicas.iter().any(down)
}

/// Whether anything that hookwatch can observe shows the fault.
fn is_visible(fault: &Fault, incident: &Incident) -> bool {
    let cluster = &incident.cluster;
    let hooks = || fault.hooks.iter().map(|hook| &cluster.hooks[*hook]);
    let probes_see = hooks().any(|hook| {
        let service = &cluster.services[hook.service];
        let soon = fault.from + 2 * SECOND;
        let seen = |backend: &Backend| {
            let manner = backend.to_us.at(soon);
            !matches!(manner, Manner::Well | Manner::Nonsense | Manner::Failing(_))
        };
        service.backends.iter().any(seen)
            || !service.backends.iter().any(|backend| *backend.listed.at(soon))
            || !service.trusted.at(soon)
    });
    // Release::Old exposes neither fail_open_count nor webhook_request_total.
    let old = cluster
        .replicas
        .iter()
        .any(|replica| *replica.release.at(fault.from) == Release::Old);
    let untold = old && fault.kind != Kind::Hanging && hooks().all(|hook| !hook.fails);
    // Metrics have the webhook's name but not its configuration.
    let ambiguous = hooks().all(|hook| {
        cluster
            .hooks
            .iter()
            .filter(|other| other.series == hook.series)
            .count()
            > 1
    });
    match fault.kind {
        // A webhook that was slightly slow before hookwatch started may always be so.
        Kind::Slow => (fault.from >= incident.begin || fault.severity >= 0.6) && (probes_see || !ambiguous),
        // Probes on new connections succeed, and a failing kept probe alone does not show that calls fail: only counters do.
        Kind::StaleConnection => !(untold || ambiguous),
        _ => probes_see || !(untold || ambiguous),
    }
}

/// Whether the naive judge was right. With a culprit: more than half of what it named during faults is a culprit. Without
/// one: it named nothing.
fn naive_is_right(incident: &Incident, played: &Played, threshold: usize) -> bool {
    let named = &played.naive.named[threshold];
    let culprits: Vec<&Fault> = incident
        .faults
        .iter()
        .filter(|fault| is_culprit(fault.kind))
        .collect();
    if culprits.is_empty() {
        let accused = |(at, series): &&(At, usize)| {
            // To name the webhook of a Partial fault is not wrong.
            !incident.faults.iter().any(|fault| {
                fault.kind == Kind::Partial
                    && fault.from <= *at
                    && fault
                        .hooks
                        .iter()
                        .any(|hook| incident.cluster.hooks[*hook].series == *series)
            })
        };
        return named.iter().filter(accused).count() == 0;
    }
    let (mut hits, mut all) = (0, 0);
    for (at, series) in named {
        let lasting = |fault: &&&Fault| fault.from <= *at && *at <= fault.until + LATE;
        let mut there = culprits.iter().filter(lasting).peekable();
        if there.peek().is_none() {
            continue;
        }
        all += 1;
        let is_it = |fault: &&Fault| {
            let mut hooks = fault.hooks.iter();
            hooks.any(|hook| incident.cluster.hooks[*hook].series == *series)
        };
        hits += usize::from(there.any(is_it));
    }
    hits * 2 > all
}
