//! Holds what was said against what was true.

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

/// The interval between two probes of one backend in calm times: the unit of the time to a verdict.
const PROBE_INTERVAL: f64 = 5.0;
/// A fault that is over may be spoken of for so long.
pub const GRACE: At = 70 * SECOND;
/// A fault that is over may still be named for the first time for so long.
const LATE: At = 15 * SECOND;
/// A fault that touched fewer calls than this is one that nobody felt.
const FELT: usize = 3;
/// One call that waits for its whole timeout on a dead connection is felt by whoever made it.
const FELT_WHOLE: usize = 1;
/// So many requests have to have waited for a seat.
const WAITS: usize = 50;
/// A call is slow for the ledger from here on, in seconds.
const SLOW: f64 = 0.2;

/// What became of one fault.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Found {
    pub kind: Kind,
    /// It was the only one.
    pub alone: bool,
    /// It touched enough for somebody to be named.
    pub felt: bool,
    /// Named, or seen where that is all there is to do.
    pub named: bool,
    /// By the right cause.
    pub right_cause: bool,
    /// The cause that was said for the longest time.
    pub said: Option<&'static str>,
    /// From the fault's beginning to the first naming, in probe intervals.
    pub intervals: Option<f64>,
    /// The hook was still named long after the fault was over.
    pub held: bool,
    /// The rule that named a hook of it as failing first.
    pub first_rule: Option<&'static str>,
    /// Every rule that did.
    pub rules: BTreeSet<&'static str>,
}

/// The reckoning of one incident.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Score {
    pub index: u64,
    pub found: Vec<Found>,
    /// Hooks that were named as failing without being it, each with when and what for.
    pub wrong: Vec<String>,
    /// Troubles laid to something that was well.
    pub wrong_elsewhere: Vec<String>,
    pub claims: Vec<Claim>,
    /// What went to and fro.
    pub flaps: Flaps,
    /// Per threshold: whether the naive judge was right.
    pub naive: Vec<bool>,
    /// Whether the core was right by the measure that the naive judge is held to.
    pub ours: bool,
    pub calls: u64,
    /// What the breaker did, where there was one.
    pub breaker: Option<breaker::Reckoning>,
    /// What it cost the control plane.
    pub toll: Toll,
}

/// Reckons up.
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
        toll: casualties::toll(incident, played.broken.as_ref().map(|broken| &*broken.acts)),
    };
    let culprits: Vec<&Found> = score
        .found
        .iter()
        .filter(|found| is_culprit(found.kind) && found.felt)
        .collect();
    score.ours = score.wrong.is_empty() && (culprits.is_empty() || culprits.iter().any(|found| found.named));
    score
}

/// A hook is to be named as failing for it.
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
                // Suspicion of something else is no sight of this.
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
    // Whoever was there before hookwatch is counted from hookwatch's beginning.
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

/// Which causes say it rightly. Where what fails is let pass and probes see nothing, the mechanism is not to be known.
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
        // Before its dials give up by themselves, an API server has the same words for both.
        Kind::Unreachable if fault.hooks.iter().any(dropped) => &[Cause::Unreachable, Cause::Hanging],
        kind => kind.causes(),
    }
}

/// Whether so many calls were touched, early enough for a verdict, that somebody has to be named.
fn is_felt(fault: &Fault, incident: &Incident, played: &Played) -> bool {
    let until = fault.until.saturating_sub(20 * SECOND);
    let from = fault.from.max(incident.begin);
    let touched = |hook: &usize| {
        let usual = incident.cluster.services[incident.cluster.hooks[*hook].service].latency;
        let is_slow = |took: At| as_seconds(took) >= SLOW.max(8.0 * usual);
        match fault.kind {
            // Slow is who is slow for a while, not who has been late now and then.
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
        // Where a hook refuses everything at once, nobody has to wait for a seat.
        Kind::QueuedByFlowControl => played.ledger.waits(fault.from, fault.until) >= WAITS,
        // What was so before anybody looked cannot be told to be more than usual.
        Kind::Overloaded => fault.from >= incident.begin,
        // Writes that go another way do not wait for it, and neither do canaries.
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
        // That nothing explains it is no accusation.
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

/// It was so for a moment, though nobody would call it a fault.
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

/// Some API server, and not every one, was not serving for a moment of the time.
fn replica_was_down(cluster: &Cluster, from: At, until: At) -> bool {
    let down = |replica: &ReplicaSpec| {
        let mut serving = replica.serving.within(from, until);
        serving.any(|serving| *serving != Serving::Up)
    };
    cluster.replicas.iter().any(down)
}

/// Whether anything that hookwatch can read tells of it.
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
    // Releases before 1.24 count neither what fails open nor calls by their code.
    let old = cluster
        .replicas
        .iter()
        .any(|replica| *replica.release.at(fault.from) == Release::Old);
    let untold = old && fault.kind != Kind::Hanging && hooks().all(|hook| !hook.fails);
    // Metrics know a webhook's name and not its configuration.
    let ambiguous = hooks().all(|hook| {
        cluster
            .hooks
            .iter()
            .filter(|other| other.series == hook.series)
            .count()
            > 1
    });
    match fault.kind {
        // Who was slow before anybody looked, and not by much, may be so by nature.
        Kind::Slow => (fault.from >= incident.begin || fault.severity >= 0.6) && (probes_see || !ambiguous),
        // Fresh probes are fine, and the one that was kept proves nothing that nobody meets.
        Kind::StaleConnection => !(untold || ambiguous),
        _ => probes_see || !(untold || ambiguous),
    }
}

/// Right where there is a culprit: most of what it named while the fault lasted is one. Where there is none: it
/// named nobody.
fn naive_is_right(incident: &Incident, played: &Played, threshold: usize) -> bool {
    let named = &played.naive.named[threshold];
    let culprits: Vec<&Fault> = incident
        .faults
        .iter()
        .filter(|fault| is_culprit(fault.kind))
        .collect();
    if culprits.is_empty() {
        let accused = |(at, series): &&(At, usize)| {
            // A bad backend among good ones may rightly be laid to its hook.
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
