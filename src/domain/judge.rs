//! The judgement of one admission hook, from three witnesses; of the others see [`judge_other`].
//!
//! The witnesses are our own probes of its backends, the API server's counters, and canaries that the API
//! server refused. Each is blind somewhere: probes take another way through the network, counters say nothing
//! until a call has ended, canaries reach only what their own rules match. So a hook is named as a culprit
//! when the API server's side says that calls fail, or when our side says so and nothing speaks against it;
//! what exactly is wrong comes from whoever saw it closest.

mod accusations;
mod bypassed;
mod dead;
mod others;
mod risks;
mod rollout;
mod ruled_out;
mod scope;
mod slowness;
mod stale;
mod witnesses;
mod words;

use std::sync::Arc;
use std::time::Duration;

use super::canaries::{Canaries, Named};
use super::canary::CallFailureReason;
use super::canary::CanaryTarget;
use super::changes::Changes;
use super::hook::{Backend, FailurePolicy, Hook, HookKind, ServiceState, Target};
use super::inventory::Inventory;
use super::kept::Silent;
use super::probing::BackendState;
use super::rollouts::Gap;
use super::time::Time;
use super::verdict::{Bypass, Cause, Effect, Health, Verdict};

use accusations::{Accusation, accusations, latest};
use dead::{dead_by_probes, way_is_open};
use slowness::slow;
use witnesses::{Counters, ENOUGH_CALLS, Probes};
use words::{evidence, summary, view};

pub use others::{OtherCase, judge_other};
pub use witnesses::Counted;

/// Endpoints that are missing for less than this may be a rollout.
const ROLLOUT: Duration = Duration::from_secs(5);
/// For so long after endpoints came or went, calls may run into those that do not serve yet or any more.
const ROLLING: Duration = Duration::from_secs(15);
/// A burst of failed calls in that time is over after this long.
const BURST: Duration = Duration::from_secs(8);

/// Everything known of one hook at one instant.
#[derive(Debug)]
pub struct Case<'a> {
    /// The instant.
    pub now: Time,
    /// Validating or mutating.
    pub kind: HookKind,
    /// The webhook's name.
    pub webhook: &'a str,
    /// Its entry; `None` when the inventory has no such hook.
    pub hook: Option<&'a Hook>,
    /// Its backends with what probes say of each.
    pub backends: &'a [(Backend, BackendState)],
    /// What the API server counted of late, with the span of time.
    pub recent: Option<Counted<'a>>,
    /// The same for the newest interval between two scrapes alone.
    pub newest: Option<Counted<'a>>,
    /// The same for the last minute: where little is written, ten seconds hold next to nothing.
    pub minute: Option<Counted<'a>>,
    /// Seconds per call in calm times.
    pub usual: Option<f64>,
    /// Its part of the extra time per write.
    pub excess_share: Option<f64>,
    /// Its part of the extra time of just those writes that it is called for.
    pub call_share: Option<f64>,
    /// Other configurations of the same kind use the same webhook name: the counters are theirs too.
    pub ambiguous: bool,
    /// All other hooks of the same webhook name, of either kind: a refusal names them all.
    pub homonyms: Vec<&'a Hook>,
    /// The canaries that its rules and selectors match.
    pub met_by: &'a [CanaryTarget],
    /// All canaries.
    pub canaries: &'a Canaries,
    /// A canary that meets this hook has been late for this long.
    pub canary_late: Option<Duration>,
    /// Other hooks that such a canary meets hang as well by our probes.
    pub others_hang: bool,
    /// A canary that meets this hook was written, but slowly: how long it took.
    pub canary_slow: Option<Duration>,
    /// When the newest canary was sent that meets this hook and was written at once.
    pub canary_passed: Option<Time>,
    /// No other hook has a backend that this one does not have.
    pub alone: bool,
    /// Writes have all but stopped being answered.
    pub stalled: bool,
    /// What changed of late.
    pub changes: &'a Changes,
    /// Backends that left, to which our kept connections are silent.
    pub silent: Vec<Silent>,
    /// The inventory that it is from: for its namespaces and nodes.
    pub inventory: Option<&'a Inventory>,
    /// What failed around changes of its endpoints.
    pub gap: Gap,
    /// Since when the inventory has shown it without service or endpoints.
    pub without_backends_since: Option<Time>,
    /// Since when another hook has been named as failing.
    pub other_named: Option<Time>,
    /// When a probe that any backend of any hook answered last began.
    pub reached_at: Option<Time>,
    /// Writes are slow for a reason that is no hook's: a canary that is late may be so for the same one.
    pub explained: bool,
    /// Why it is nothing but a hook, and until when that is known.
    pub ruled_out: Option<&'a (Time, String)>,
    /// The inventory has been old for a while: addresses may have changed.
    pub inventory_is_old: bool,
    /// Every probe of everything fails and nothing shows that this is not our own fault.
    pub self_doubt: bool,
}

impl From<CallFailureReason> for Cause {
    fn from(reason: CallFailureReason) -> Self {
        match reason {
            CallFailureReason::DeadlineExceeded | CallFailureReason::TlsHandshakeTimeout => Self::Hanging,
            CallFailureReason::ConnectionRefused => Self::Refused,
            CallFailureReason::DialTimeout
            | CallFailureReason::Unreachable
            | CallFailureReason::NoSuchHost => Self::Unreachable,
            CallFailureReason::Tls => Self::TlsInvalid,
            CallFailureReason::NoEndpoints => Self::NoEndpoints,
            CallFailureReason::NoService => Self::NoService,
            CallFailureReason::ServerError
            | CallFailureReason::BadAnswer
            | CallFailureReason::ConnectionLost
            | CallFailureReason::Other => Self::Erroring,
        }
    }
}

/// What the verdict a moment ago is remembered by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Before {
    /// How the hook was.
    pub health: Health,
    /// What was wrong.
    pub cause: Option<Cause>,
    /// Since when.
    pub since: Option<Time>,
    /// No backend of its answered at some time since then.
    pub whole: bool,
}

/// What was concluded, before it is put into words.
struct Finding {
    health: Health,
    cause: Option<Cause>,
    confidence: f64,
    since: Option<Time>,
}

impl Finding {
    fn new(health: Health, cause: Cause, confidence: f64) -> Self {
        Self {
            health,
            cause: Some(cause),
            confidence,
            since: None,
        }
    }

    fn since(mut self, since: Option<Time>) -> Self {
        self.since = since;
        self
    }
}

/// Judges one hook. `previous` is the verdict on it a moment ago: a cause once found stays while the evidence
/// merely thins out, and the instant it began is carried on.
pub fn judge(case: &Case<'_>, previous: Option<Before>) -> Verdict {
    let probes = Probes::of(case.backends);
    let was_failing = previous.is_some_and(|previous| previous.health == Health::Failing);
    let counters = Counters::of(case, &probes, was_failing);
    let named = accusations(case);
    let mut finding = conclude(case, &counters, &probes, &named, previous);
    if let Some(gap) = rollout::instead(case, &counters, &probes, finding.cause) {
        finding = gap;
    }
    let never_called = case.hook.is_some_and(|hook| hook.rules.is_empty());
    if never_called && finding.health == Health::Failing {
        // Broken it is, but nobody is to be woken for a hook that matches nothing.
        finding.health = Health::Suspect;
    }
    let cause = finding.cause;
    let since = match previous {
        Some(previous) if previous.cause.is_some() && previous.cause == cause => {
            previous.since.or(finding.since)
        }
        _ => finding.since.or_else(|| cause.map(|_| case.now)),
    };
    let effect = effect(case, cause, &counters, finding.health);
    let bypass = case.hook.and_then(Bypass::of);
    let verdict = Verdict {
        kind: case.kind,
        configuration: case.hook.map(|hook| Arc::clone(&hook.id.configuration)),
        webhook: case
            .hook
            .map_or_else(|| case.webhook.into(), |hook| Arc::clone(&hook.id.webhook)),
        health: finding.health,
        cause,
        effect,
        confidence: finding.confidence,
        excess_share: case.excess_share,
        since,
        summary: String::new(),
        evidence: evidence(case, &counters, &probes, &named, &finding, since),
        advice: cause.map(|cause| match bypass {
            Some(bypass) if finding.health == Health::Failing => bypassed::advice(bypass),
            _ => cause.advice(),
        }),
        risks: case
            .hook
            .zip(case.inventory)
            .map_or_else(Vec::new, |(hook, inventory)| risks::risks(hook, &inventory.nodes)),
        backends: case
            .backends
            .iter()
            .map(|(backend, state)| view(backend, state))
            .collect(),
        canaries: case.met_by.to_vec(),
        bypass,
    };
    Verdict {
        summary: summary(&verdict),
        ..verdict
    }
}

fn conclude(
    case: &Case<'_>,
    counters: &Counters,
    probes: &Probes<'_>,
    named: &[Accusation<'_>],
    previous: Option<Before>,
) -> Finding {
    if let Some(finding) = bypassed::conclude(case, probes, named, previous) {
        return finding;
    }
    let structural = structural(case);
    if structural.is_none()
        && let Some(finding) = stale::stale(case, counters, probes, named, previous)
    {
        return finding;
    }
    let is_over = |named: &Named<'_>| {
        named.superseded
            && matches!(probes, Probes::Good { .. })
            && counters.calls >= ENOUGH_CALLS
            && counters.answered_since(named.started + named.took)
    };
    let current: Vec<&Accusation<'_>> = named
        .iter()
        .filter(|accusation| accusation.named.current && !is_over(&accusation.named))
        .collect();
    // One refused canary is as good as many refused users: the API server says itself whose call failed. When
    // canaries got through meanwhile, only repetition tells an outage from a burst.
    // Where it may mean another hook of the same name, our probes have to say which.
    let all_dead = matches!(probes, Probes::All { .. });
    // And where the hook's time is short, so is the pause that it takes to exceed it once.
    let once_is_nothing = matches!(probes, Probes::Some { .. })
        || matches!(probes, Probes::Good { .. })
            && current.iter().all(|accusation| accusation.named.is_short());
    let refused = current.iter().any(|accusation| accusation.sure || all_dead)
        && (named.len() >= 2 || !once_is_nothing);
    let api_says_so = refused || counters.failing();
    if api_says_so {
        let found = failing(case, counters, probes, named, structural, previous);
        return match structural.is_none() && is_burst(case, probes, previous) {
            true => Finding {
                health: Health::Suspect,
                confidence: 0.5,
                // From when on it was looked at, however old the refusal is that goes with it.
                since: None,
                ..found
            },
            false => found,
        };
    }
    if let Some(cause) = structural {
        let since = case.without_backends_since;
        let settled = since.is_some_and(|since| case.now.since(since) >= ROLLOUT);
        // Not every call needs an endpoint that is ready: some go to one that is ending and serves on.
        let answered = since.is_some_and(|since| counters.answered_since(since));
        let alone = settled && !answered && !case.inventory_is_old;
        return match alone || counters.failed >= 1.0 || !current.is_empty() {
            true => Finding::new(Health::Failing, cause, 0.85).since(since),
            false => Finding::new(Health::Suspect, cause, 0.6).since(since),
        };
    }
    if let Some(finding) = slow(case, counters, probes, previous) {
        return finding;
    }
    match probes {
        Probes::All { worst, dead } if worst.certain => return dead_by_probes(case, counters, worst, dead),
        Probes::All { worst, .. } => {
            // The hook may dislike nothing but our forged review.
            return Finding::new(Health::Suspect, worst.cause, 0.5).since(Some(worst.since));
        }
        Probes::Some { dead, .. } => {
            let since = dead.iter().map(|(_, dead)| dead.since).min();
            return Finding::new(Health::Suspect, Cause::Partial, 0.85).since(since);
        }
        Probes::Silent | Probes::Good { .. } | Probes::Slow { .. } => {}
    }
    if counters.failed >= 1.0 || !current.is_empty() {
        let cause = current.first().map_or_else(
            || counters.cause(timeout(case), case.usual, fails_open(case)),
            |accusation| accusation.named.failure.reason.into(),
        );
        return Finding::new(Health::Suspect, cause, 0.5);
    }
    if let Probes::Slow { since, .. } = probes {
        return Finding::new(Health::Suspect, Cause::Slow, 0.5).since(Some(*since));
    }
    if counters.denies_much(case) {
        return Finding::new(Health::Suspect, Cause::Denying, 0.95);
    }
    match (probes, counters.calls >= 1.0) {
        (Probes::Good { .. }, true) => healthy(0.98),
        (Probes::Good { .. }, false) => healthy(0.9),
        (_, true) if !case.ambiguous => healthy(0.8),
        _ => Finding {
            health: Health::Unknown,
            cause: None,
            confidence: 0.0,
            since: None,
        },
    }
}

/// What fails may be over in a moment: endpoints have just come or gone, and others answer.
fn is_burst(case: &Case<'_>, probes: &Probes<'_>, previous: Option<Before>) -> bool {
    let rolling = case.hook.is_some_and(|hook| {
        let mut changes = case.changes.of(&hook.id, case.now.before(ROLLING));
        changes.any(|change| change.what.endpoint().is_some())
    });
    let lasting = previous.is_some_and(|previous| {
        let since = previous.since.filter(|_| previous.cause.is_some());
        previous.health == Health::Failing || since.is_some_and(|since| case.now.since(since) >= BURST)
    });
    rolling && !lasting && matches!(probes, Probes::Good { .. } | Probes::Some { .. })
}

fn healthy(confidence: f64) -> Finding {
    Finding {
        health: Health::Healthy,
        cause: None,
        confidence,
        since: None,
    }
}

/// The API server's side says that calls fail: find out from whom it can be learnt why.
fn failing(
    case: &Case<'_>,
    counters: &Counters,
    probes: &Probes<'_>,
    named: &[Accusation<'_>],
    structural: Option<Cause>,
    previous: Option<Before>,
) -> Finding {
    let sure = named.iter().any(|accusation| accusation.sure);
    let latest = latest(named);
    let from_canary = latest.map(|named| match named.failure.reason {
        // Nobody is at an address that has left; where the others are, the API server will find in time.
        CallFailureReason::DialTimeout if stale::left(case).is_some() => Cause::Hanging,
        reason => reason.into(),
    });
    let began = latest.map(|named| named.started).or(counters.from());
    let both_api_witnesses = sure && counters.failed > named.len() as f64;
    if let Some(cause) = structural {
        return Finding::new(Health::Failing, cause, 0.97).since(case.without_backends_since.or(began));
    }
    match probes {
        // Our own way to it may be gone, when it fails for the API server in another manner or for another hook.
        Probes::All { worst, .. }
            if worst.cause == Cause::Hanging
                && !way_is_open(case, worst.since)
                && !sure
                && (case.ambiguous || counters.failed_at_once()) => {}
        Probes::All { worst, .. } => {
            // An HTTP error or an odd answer is confirmed by the API server having had the same.
            return Finding::new(Health::Failing, worst.cause, 0.97).since(Some(worst.since));
        }
        Probes::Some { dead, .. } => {
            // While backends come back one by one the old cause is still the better name for it.
            let cause = previous
                .filter(|previous| previous.health == Health::Failing && previous.whole)
                .and_then(|previous| previous.cause)
                .unwrap_or(Cause::Partial);
            let since = dead.iter().map(|(_, dead)| dead.since).min();
            let health = match case.ambiguous && !sure {
                true => Health::Suspect,
                false => Health::Failing,
            };
            return Finding::new(health, cause, 0.85).since(since);
        }
        Probes::Silent | Probes::Good { .. } | Probes::Slow { .. } => {}
    }
    let cause = from_canary.unwrap_or_else(|| counters.cause(timeout(case), case.usual, fails_open(case)));
    // Where calls are counted without their time, what is wrong is a guess.
    let guessed = from_canary.is_none() && counters.calls < 1.0;
    let confidence = match (both_api_witnesses, sure, case.ambiguous) {
        _ if guessed => 0.4,
        // Nobody listens at a Service's address when nobody is behind it, and the inventory is a moment late.
        (true, ..) if cause == Cause::Refused => 0.85,
        (true, ..) => 0.92,
        (false, true, _) => 0.85,
        (false, false, false) if cause == Cause::Hanging => 0.85,
        // That it fails is sure; why is a guess.
        (false, false, false) => 0.4,
        (false, false, true) => 0.4,
    };
    // Counters under a name that two hooks share accuse neither.
    let health = if case.ambiguous && !sure {
        Health::Suspect
    } else {
        Health::Failing
    };
    Finding::new(health, cause, confidence).since(began)
}

/// What is wrong by the inventory alone.
fn structural(case: &Case<'_>) -> Option<Cause> {
    case.hook.and_then(structural_of)
}

fn structural_of(hook: &Hook) -> Option<Cause> {
    match &hook.target {
        Target::Service(target) => match &target.service {
            ServiceState::Missing | ServiceState::NoSuchPort { .. } => Some(Cause::NoService),
            ServiceState::Found { endpoints, .. } if !endpoints.iter().any(|endpoint| endpoint.ready) => {
                Some(Cause::NoEndpoints)
            }
            ServiceState::Found { .. } | ServiceState::Unknown { .. } => None,
        },
        Target::Url(_) | Target::Invalid(_) => None,
    }
}

fn timeout(case: &Case<'_>) -> Option<Duration> {
    case.hook.map(|hook| hook.timeout)
}

fn fails_open(case: &Case<'_>) -> bool {
    match case.hook {
        Some(hook) => hook.failure_policy == FailurePolicy::Ignore,
        None => case.recent.is_some_and(|counted| counted.series.fail_open >= 1.0),
    }
}

fn effect(case: &Case<'_>, cause: Option<Cause>, counters: &Counters, health: Health) -> Effect {
    match cause {
        None | Some(Cause::Denying) => Effect::None,
        // What is not shown any write does nothing to any.
        Some(_) if bypassed::uncalled(case).is_some() => Effect::None,
        Some(_) if case.hook.is_some_and(|hook| hook.rules.is_empty()) => Effect::None,
        Some(Cause::Slow) => Effect::Delaying,
        // Bad backends that nobody has met yet do nothing.
        Some(Cause::Partial | Cause::StaleConnection | Cause::RolloutGap)
            if health != Health::Failing && counters.failed < 1.0 =>
        {
            Effect::None
        }
        Some(_) if fails_open(case) => Effect::FailingOpen,
        Some(_) => Effect::Blocking,
    }
}
