//! The judgement of one hook, from three witnesses.
//!
//! The witnesses are our own probes of its backends, the API server's counters, and canaries that the API
//! server refused. Each is blind somewhere: probes take another way through the network, counters say nothing
//! until a call has ended, canaries reach only what their own rules match. So a hook is named as a culprit
//! when the API server's side says that calls fail, or when our side says so and nothing speaks against it;
//! what exactly is wrong comes from whoever saw it closest.

use std::sync::Arc;
use std::time::Duration;

use super::canaries::{Canaries, Named};
use super::canary::CallFailureReason;
use super::history::Window;
use super::hook::{Backend, FailurePolicy, Hook, HookKind, ServiceState, Target};
use super::probing::{BackendState, Dead};
use super::snapshot::HookSeries;
use super::time::Time;
use super::verdict::{BackendView, Cause, Effect, Health, Verdict, human, human_seconds};

/// A hook that is dead by our probes alone is named after this long.
const ALONE: Duration = Duration::from_secs(5);
/// Endpoints that are missing for less than this may be a rollout.
const ROLLOUT: Duration = Duration::from_secs(5);
/// Fewer failed calls than this may be a rollout's burst.
const FEW: f64 = 3.0;
/// With fewer calls in the newest interval a longer span is looked at.
const ENOUGH_CALLS: f64 = 5.0;
/// A smaller part of failed calls is no outage.
const NOTABLE_PART: f64 = 0.05;
/// A call slower than this is slow whatever is usual.
const SLOW_ALWAYS: f64 = 0.5;
/// A call faster than this is never slow.
const SLOW_AT_LEAST: f64 = 0.1;
/// And between the two it is slow when it takes this many times the usual.
const SLOW_FACTOR: f64 = 5.0;
/// A slow hook is a culprit when this part of the extra time per write is its own.
const CULPRIT_SHARE: f64 = 0.25;
/// Denials are worth a word when there are this many of them.
const MANY_DENIALS: f64 = 5.0;
/// A failed call at least this long was ended by a timeout: `timeoutSeconds` is at least 1.
const TIMEOUT_LIKE: f64 = 0.9;

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
    pub backends: Vec<(Backend, BackendState)>,
    /// What the API server counted of late, with the span of time.
    pub recent: Option<Counted<'a>>,
    /// The same for the newest interval between two scrapes alone.
    pub newest: Option<Counted<'a>>,
    /// Seconds per call in calm times.
    pub usual: Option<f64>,
    /// Its part of the extra time per write.
    pub excess_share: Option<f64>,
    /// Other configurations of the same kind use the same webhook name: the counters are theirs too.
    pub ambiguous: bool,
    /// All canaries.
    pub canaries: &'a Canaries,
    /// A canary that meets this hook has been late for this long.
    pub canary_late: Option<Duration>,
    /// A canary that meets this hook was written, but slowly: how long it took.
    pub canary_slow: Option<Duration>,
    /// Writes have all but stopped being answered.
    pub stalled: bool,
    /// Since when the inventory has shown it without service or endpoints.
    pub without_backends_since: Option<Time>,
    /// Every probe of everything fails and nothing shows that this is not our own fault.
    pub self_doubt: bool,
}

/// The API server's counters of one webhook name over a span of time.
#[derive(Debug, Clone, Copy)]
pub struct Counted<'a> {
    /// The gains.
    pub series: &'a HookSeries,
    /// The beginning of the span.
    pub from: Time,
    /// Its end.
    pub to: Time,
}

impl<'a> Counted<'a> {
    /// What a window says of one webhook name, if anything.
    pub fn of(key: &(HookKind, String), window: &'a Window) -> Option<Self> {
        let series = window.gained.hooks.get(key)?;
        Some(Self {
            series,
            from: window.from,
            to: window.to,
        })
    }
}

/// What the probes of all backends add up to.
#[derive(Debug)]
enum Probes<'a> {
    Silent,
    Good {
        answered: usize,
    },
    Slow {
        took: Duration,
        since: Time,
    },
    Some {
        dead: Vec<(&'a Backend, &'a Dead)>,
        of: usize,
    },
    All {
        worst: &'a Dead,
        dead: Vec<(&'a Backend, &'a Dead)>,
    },
}

/// What the counters say over one span of time.
#[derive(Debug, Default)]
struct Counters {
    calls: f64,
    failed: f64,
    failed_mean: Option<f64>,
    /// Failed calls to which the hook gave an HTTP error of its own.
    own_errors: f64,
    denied: f64,
    mean: Option<f64>,
    fail_open: f64,
    span: Option<(Time, Time)>,
}

impl Counters {
    /// The newest interval tells best how things are now, if enough was called in it; a burst of failures that
    /// comes back with every timeout shows only over a longer span.
    fn of(case: &Case<'_>) -> Self {
        let newest = Self::over(case, case.newest);
        let recent = Self::over(case, case.recent);
        let enough = newest.calls >= ENOUGH_CALLS && (newest.failing() || !recent.failing());
        if enough { newest } else { recent }
    }

    fn over(case: &Case<'_>, counted: Option<Counted<'_>>) -> Self {
        let Some(Counted { series, from, to }) = counted else {
            return Self::default();
        };
        let failed = series.failed();
        let denied = series.rejections.denied;
        // Under Fail the refused calls have their own series; under Ignore what failed hides among the rest
        // and shows by what it adds to them.
        let failed_mean = if failed < 1.0 {
            None
        } else if series.rejections.calling + series.rejections.internal >= 1.0 && denied < 1.0 {
            series.rejected.mean()
        } else {
            let others = (series.calls.count - failed).max(0.0);
            Some(((series.calls.sum - others * case.usual.unwrap_or(0.0)) / failed).max(0.0))
        };
        let own_errors = series
            .codes
            .iter()
            .filter(|(code, _)| (500..=600).contains(*code) && **code != 503);
        Self {
            calls: series.calls.count,
            failed,
            failed_mean,
            own_errors: own_errors.map(|(_, count)| count).sum(),
            denied,
            mean: series.calls.mean(),
            fail_open: series.fail_open,
            span: Some((from, to)),
        }
    }

    /// Calls fail, more than a rollout's burst.
    fn failing(&self) -> bool {
        self.failed >= FEW && self.failed >= NOTABLE_PART * self.calls
    }

    fn slow(&self, usual: Option<f64>) -> Option<f64> {
        self.mean.filter(|mean| {
            self.calls >= 2.0
                && (*mean >= SLOW_ALWAYS
                    || *mean >= SLOW_AT_LEAST && usual.is_some_and(|usual| *mean >= SLOW_FACTOR * usual))
        })
    }

    fn from(&self) -> Option<Time> {
        self.span.map(|(from, _)| from)
    }

    /// What the counters alone let guess.
    fn cause(&self, timeout: Option<Duration>, usual: Option<f64>, fails_open: bool) -> Cause {
        let timeout_like = timeout.map_or(TIMEOUT_LIKE, |t| (0.8 * t.as_secs_f64()).max(TIMEOUT_LIKE));
        if self.failed_mean.is_some_and(|mean| mean >= timeout_like) {
            Cause::Hanging
        } else if self.own_errors >= 0.5 * self.failed {
            Cause::Erroring
        } else if fails_open {
            Cause::FailingOpen
        } else if self
            .failed_mean
            .zip(usual)
            .is_some_and(|(mean, usual)| mean >= 0.5 * usual)
        {
            // A refusal comes back much faster than an answer; this took as long as an answer does.
            Cause::Erroring
        } else {
            Cause::Refused
        }
    }
}

impl From<CallFailureReason> for Cause {
    fn from(reason: CallFailureReason) -> Self {
        match reason {
            CallFailureReason::DeadlineExceeded | CallFailureReason::TlsHandshakeTimeout => Self::Hanging,
            CallFailureReason::ConnectionRefused => Self::Refused,
            CallFailureReason::Unreachable | CallFailureReason::NoSuchHost => Self::Unreachable,
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
pub fn judge(case: &Case<'_>, previous: Option<&Verdict>) -> Verdict {
    let counters = Counters::of(case);
    let probes = Probes::of(&case.backends);
    let named: Vec<Named<'_>> = case.canaries.naming(case.webhook, case.now).collect();
    let finding = conclude(case, &counters, &probes, &named, previous);
    let cause = finding.cause;
    let since = match previous {
        Some(previous) if previous.cause.is_some() && previous.cause == cause => {
            previous.since.or(finding.since)
        }
        _ => finding.since.or_else(|| cause.map(|_| case.now)),
    };
    let effect = effect(case, cause, &counters, finding.health);
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
        evidence: evidence(case, &counters, &probes, &named, cause),
        advice: cause.map(Cause::advice),
        backends: case
            .backends
            .iter()
            .map(|(backend, state)| view(backend, state))
            .collect(),
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
    named: &[Named<'_>],
    previous: Option<&Verdict>,
) -> Finding {
    let structural = structural(case);
    let current: Vec<&Named<'_>> = named.iter().filter(|named| named.current).collect();
    // One refused canary is as good as many refused users: the API server says itself whose call failed. When
    // canaries got through meanwhile, only repetition tells an outage from a burst.
    let refused = !current.is_empty() && (named.len() >= 2 || !matches!(probes, Probes::Some { .. }));
    let api_says_so = refused || counters.failing();
    if api_says_so {
        return failing(case, counters, probes, named, structural, previous);
    }
    if let Some(cause) = structural {
        let since = case.without_backends_since;
        let settled = since.is_some_and(|since| case.now.since(since) >= ROLLOUT);
        return match settled || counters.failed >= 1.0 || !current.is_empty() {
            true => Finding::new(Health::Failing, cause, 0.85).since(since),
            false => Finding::new(Health::Suspect, cause, 0.6).since(since),
        };
    }
    if let Some(finding) = slow(case, counters, probes) {
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
            |named| named.failure.reason.into(),
        );
        return Finding::new(Health::Suspect, cause, 0.5);
    }
    if let Probes::Slow { since, .. } = probes {
        return Finding::new(Health::Suspect, Cause::Slow, 0.5).since(Some(*since));
    }
    if counters.denied >= MANY_DENIALS && counters.denied >= 0.5 * counters.calls {
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
    named: &[Named<'_>],
    structural: Option<Cause>,
    previous: Option<&Verdict>,
) -> Finding {
    let latest = named.iter().max_by_key(|named| named.started);
    let from_canary = latest.map(|named| Cause::from(named.failure.reason));
    let began = latest.map(|named| named.started).or(counters.from());
    let both_api_witnesses = latest.is_some() && counters.failed > named.len() as f64;
    if let Some(cause) = structural {
        return Finding::new(Health::Failing, cause, 0.97).since(case.without_backends_since.or(began));
    }
    match probes {
        Probes::All { worst, .. } => {
            // An HTTP error or an odd answer is confirmed by the API server having had the same.
            return Finding::new(Health::Failing, worst.cause, 0.97).since(Some(worst.since));
        }
        Probes::Some { dead, .. } => {
            // While backends come back one by one the old cause is still the better name for it.
            let cause = previous
                .filter(|previous| previous.health == Health::Failing)
                .and_then(|previous| previous.cause)
                .unwrap_or(Cause::Partial);
            let since = dead.iter().map(|(_, dead)| dead.since).min();
            return Finding::new(Health::Failing, cause, 0.85).since(since);
        }
        Probes::Silent | Probes::Good { .. } | Probes::Slow { .. } => {}
    }
    let cause = from_canary.unwrap_or_else(|| counters.cause(timeout(case), case.usual, fails_open(case)));
    let confidence = match (both_api_witnesses, latest.is_some(), case.ambiguous) {
        (true, ..) => 0.92,
        (false, true, _) => 0.85,
        (false, false, false) if cause == Cause::Hanging => 0.85,
        (false, false, false) => 0.75,
        (false, false, true) => 0.5,
    };
    // Counters under a name that two hooks share accuse neither.
    let health = if case.ambiguous && latest.is_none() {
        Health::Suspect
    } else {
        Health::Failing
    };
    Finding::new(health, cause, confidence).since(began)
}

/// All backends are dead by our probes, and the API server has not said so yet.
fn dead_by_probes(case: &Case<'_>, counters: &Counters, worst: &Dead, dead: &[(&Backend, &Dead)]) -> Finding {
    let since = dead
        .iter()
        .map(|(_, dead)| dead.since)
        .max()
        .unwrap_or(worst.since);
    let finding = |health, confidence| Finding::new(health, worst.cause, confidence).since(Some(worst.since));
    if case.self_doubt {
        return finding(Health::Suspect, 0.3);
    }
    // A refused connection or a bad certificate is answered at once; a canary that is late speaks of a hang.
    let late = case.canary_late.is_some() || case.stalled;
    if late && worst.cause == Cause::Hanging && (worst.was_alive || case.canary_late.is_some()) {
        return finding(Health::Failing, 0.9);
    }
    let answered_since =
        counters.from().is_some_and(|from| from >= since) && counters.calls >= 1.0 && counters.failed < 1.0;
    if answered_since {
        return finding(Health::Suspect, 0.4);
    }
    let settled = case.now.since(since) >= ALONE && dead.iter().all(|(_, dead)| dead.attempts >= 2);
    // A timeout without an earlier success may be a firewall between hookwatch and the pods.
    let path_is_known = worst.was_alive || !matches!(worst.cause, Cause::Hanging | Cause::Unreachable);
    match settled && path_is_known {
        true => finding(Health::Failing, 0.75),
        false => finding(Health::Suspect, 0.5),
    }
}

fn slow(case: &Case<'_>, counters: &Counters, probes: &Probes<'_>) -> Option<Finding> {
    let by_counters = counters.slow(case.usual);
    let by_probes = match probes {
        Probes::Slow { since, .. } => Some(*since),
        _ => None,
    };
    let is_the_excess = case.excess_share.is_some_and(|share| share >= CULPRIT_SHARE);
    match (by_counters, by_probes) {
        (Some(_), Some(since)) if is_the_excess || case.canary_slow.is_some() => {
            Some(Finding::new(Health::Failing, Cause::Slow, 0.95).since(Some(since)))
        }
        (Some(mean), None) if is_the_excess && !case.ambiguous => {
            let confidence = if mean >= SLOW_ALWAYS { 0.85 } else { 0.75 };
            Some(Finding::new(Health::Failing, Cause::Slow, confidence).since(counters.from()))
        }
        (Some(_), _) => Some(Finding::new(Health::Suspect, Cause::Slow, 0.6)),
        // Between two scrapes a slow canary that meets the hook is the API server's word.
        (None, Some(since)) if case.canary_slow.is_some() && !case.self_doubt => {
            Some(Finding::new(Health::Failing, Cause::Slow, 0.8).since(Some(since)))
        }
        (None, _) => None,
    }
}

/// What is wrong by the inventory alone.
fn structural(case: &Case<'_>) -> Option<Cause> {
    match &case.hook?.target {
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
        Some(Cause::Slow) => Effect::Delaying,
        // Bad backends that nobody has met yet do nothing.
        Some(Cause::Partial) if health != Health::Failing && counters.failed < 1.0 => Effect::None,
        Some(_) if fails_open(case) => Effect::FailingOpen,
        Some(_) => Effect::Blocking,
    }
}

impl<'a> Probes<'a> {
    /// Adds the backends up. The ClusterIP counts only when it has ever answered or nothing else is there:
    /// where hookwatch runs there may be no way to it at all.
    fn of(backends: &'a [(Backend, BackendState)]) -> Self {
        use super::hook::BackendPath::ClusterIp;
        let direct = backends.iter().any(|(backend, _)| backend.path != ClusterIp);
        let counted: Vec<&(Backend, BackendState)> = backends
            .iter()
            .filter(|(backend, state)| match state {
                BackendState::Untried { .. } => false,
                BackendState::Dead(dead) => backend.path != ClusterIp || !direct && dead.was_alive,
                _ => backend.path != ClusterIp || !direct,
            })
            .collect();
        let dead: Vec<(&Backend, &Dead)> = counted
            .iter()
            .filter_map(|(backend, state)| match state {
                BackendState::Dead(dead) => Some((backend, dead)),
                _ => None,
            })
            .collect();
        let first_dead = dead.iter().map(|(_, dead)| dead.since).min();
        // An answer from before the first backend died says nothing about now.
        let good_since = counted
            .iter()
            .filter(|(_, state)| match state {
                BackendState::Alive { at, .. } => first_dead.is_none_or(|since| *at >= since),
                BackendState::Slow { .. } => true,
                _ => false,
            })
            .count();
        let worst = dead.iter().max_by_key(|(_, candidate)| {
            let alike = dead
                .iter()
                .filter(|(_, other)| other.cause == candidate.cause)
                .count();
            (alike, candidate.attempts)
        });
        match worst {
            Some((_, worst)) if dead.len() == counted.len() => return Self::All { worst, dead },
            Some(_) if good_since > 0 => {
                return Self::Some {
                    of: counted.len(),
                    dead,
                };
            }
            Some(_) => return Self::Silent,
            None => {}
        }
        let slow: Vec<(Duration, Time)> = counted
            .iter()
            .filter_map(|(_, state)| match state {
                BackendState::Slow { took, since, .. } => Some((*took, *since)),
                _ => None,
            })
            .collect();
        let alive = counted
            .iter()
            .filter(|(_, state)| matches!(state, BackendState::Alive { .. }))
            .count();
        match slow.iter().max() {
            Some((took, since)) => Self::Slow {
                took: *took,
                since: *since,
            },
            None if alive > 0 => Self::Good { answered: alive },
            None => Self::Silent,
        }
    }
}

/// The observations, the one that weighs most first.
fn evidence(
    case: &Case<'_>,
    counters: &Counters,
    probes: &Probes<'_>,
    named: &[Named<'_>],
    cause: Option<Cause>,
) -> Vec<String> {
    let mut said = Vec::new();
    let latest = named.iter().max_by_key(|named| named.started);
    // What was refused before writes got through again is no evidence any more.
    if let Some(latest) = latest.filter(|latest| latest.current || cause.is_some()) {
        said.push(format!(
            "The API server refused a dry-run write of {} after {} and named this hook: {}.",
            latest.target,
            human(latest.took),
            latest.failure.text
        ));
    } else if let (Some(late), Some(Cause::Hanging)) = (case.canary_late, cause) {
        said.push(format!(
            "A dry-run write that meets this hook has been waiting for {}.",
            human(late)
        ));
    }
    match (structural(case), case.hook.map(|hook| &hook.target)) {
        (Some(_), Some(Target::Service(target))) => said.push(without_backends(target)),
        _ => said.extend(probes.sentences()),
    }
    said.extend(counters.sentences(case));
    if let Some(share) = case
        .excess_share
        .filter(|_| cause.is_some_and(|cause| cause != Cause::Denying))
    {
        said.push(format!(
            "{:.0} % of the extra time per write is spent in this hook.",
            share * 100.0
        ));
    }
    if let (Some(took), Some(Cause::Slow)) = (case.canary_slow, cause) {
        said.push(format!(
            "A dry-run write that meets this hook took {}.",
            human(took)
        ));
    }
    if case.self_doubt && cause.is_some() {
        said.push("Probes of every hook fail at once: hookwatch's own network may be at fault.".to_owned());
    }
    if case.ambiguous {
        said.push(
            "Several configurations use this webhook name; the API server's counters do not tell them apart."
                .to_owned(),
        );
    }
    if case.hook.is_none() {
        said.push("No webhook configuration that hookwatch can read has a hook of this name.".to_owned());
    }
    said
}

fn without_backends(target: &super::hook::ServiceTarget) -> String {
    let service = format!("Service {}/{}", target.namespace, target.name);
    match &target.service {
        ServiceState::Missing => format!("{service} does not exist."),
        ServiceState::NoSuchPort { offered } => {
            format!(
                "{service} does not offer port {} (it offers {offered:?}).",
                target.port
            )
        }
        ServiceState::Found { endpoints, .. } => match endpoints.len() {
            0 => format!("{service} has no endpoint."),
            n => format!("{service} has {n} endpoints and none of them is ready."),
        },
        ServiceState::Unknown { why } => format!("{service} is not known: {why}."),
    }
}

impl Probes<'_> {
    fn sentences(&self) -> Vec<String> {
        /// Backends told one by one; the rest is a number.
        const TOLD: usize = 3;
        let list = |dead: &[(&Backend, &Dead)]| {
            let mut said: Vec<String> = dead
                .iter()
                .take(TOLD)
                .map(|(backend, dead)| format!("{backend} {}", dead.detail))
                .collect();
            if dead.len() > TOLD {
                said.push(format!("{} more", dead.len() - TOLD));
            }
            said.join("; ")
        };
        match self {
            Self::Silent => Vec::new(),
            Self::Good { answered } => vec![match answered {
                1 => "Its backend answers a direct probe.".to_owned(),
                n => format!("All {n} backends answer direct probes."),
            }],
            Self::Slow { took, .. } => {
                vec![format!(
                    "Direct probes are answered late, the last one after {}.",
                    human(*took)
                )]
            }
            Self::Some { dead, of } => {
                vec![format!(
                    "{} of {of} backends are bad: {}.",
                    dead.len(),
                    list(dead)
                )]
            }
            Self::All { dead, .. } => vec![match dead.len() {
                1 => format!("Its only backend is bad: {}.", list(dead)),
                n => format!("All {n} backends are bad: {}.", list(dead)),
            }],
        }
    }
}

impl Counters {
    fn sentences(&self, case: &Case<'_>) -> Vec<String> {
        let Some((from, to)) = self.span else {
            return Vec::new();
        };
        let span = human(to.since(from));
        let mut said = Vec::new();
        if self.failed >= 1.0 {
            let let_pass = if self.fail_open >= 1.0 {
                " and let pass"
            } else {
                ""
            };
            let after = self.failed_mean.map_or_else(String::new, |mean| {
                format!(", after {} each", human_seconds(mean))
            });
            said.push(format!(
                "The API server counted {:.0} failed calls{let_pass} of {:.0} in {span}{after}.",
                self.failed,
                self.calls.max(self.failed)
            ));
        } else if let Some(mean) = self.mean {
            let usual = case.usual.map_or_else(String::new, |usual| {
                format!(" (usually {})", human_seconds(usual))
            });
            said.push(format!(
                "The API server counted {:.0} calls in {span}, {} each{usual}.",
                self.calls,
                human_seconds(mean)
            ));
        }
        if self.denied >= 1.0 {
            said.push(format!(
                "It denied {:.0} of {:.0} requests in {span}.",
                self.denied, self.calls
            ));
        }
        said
    }
}

fn summary(verdict: &Verdict) -> String {
    let who = match &verdict.configuration {
        Some(configuration) => format!("{} ({configuration})", verdict.webhook),
        None => verdict.webhook.to_string(),
    };
    let Some(cause) = verdict.cause else {
        return match verdict.health {
            Health::Healthy => format!("{who} is healthy."),
            _ => format!("{who}: not enough is known to tell."),
        };
    };
    let what = match cause {
        Cause::Slow => "answers late",
        Cause::Hanging => "does not answer",
        Cause::Refused => "refuses connections",
        Cause::NoEndpoints => "has no ready endpoint",
        Cause::NoService => "has no Service to be called at",
        Cause::Erroring => "answers with errors",
        Cause::TlsInvalid => "serves a certificate that its caBundle does not accept",
        Cause::Partial => "has bad backends among good ones",
        Cause::Unreachable => "cannot be reached",
        Cause::FailingOpen => "is being skipped",
        Cause::Denying => "denies most of what it is shown; it works",
    };
    let effect = match verdict.effect {
        Effect::None => "",
        Effect::Blocking => "; writes that match it are refused",
        Effect::Delaying => "; writes that match it are slow",
        Effect::FailingOpen => "; writes that match it pass unchecked, after waiting for it",
    };
    let seems = if verdict.health == Health::Failing {
        ""
    } else {
        "perhaps: "
    };
    let seems = if matches!(cause, Cause::Denying | Cause::Partial) {
        ""
    } else {
        seems
    };
    format!("{seems}{who} {what}{effect}.")
}

fn view(backend: &Backend, state: &BackendState) -> BackendView {
    let (state, detail) = match state {
        BackendState::Untried { why } => (
            "untried",
            why.clone().unwrap_or_else(|| "not probed yet".to_owned()),
        ),
        BackendState::Alive { took, .. } => ("alive", format!("answered in {}", human(*took))),
        BackendState::Slow { took, .. } => ("slow", format!("answered in {}", human(*took))),
        BackendState::Wavering { detail } => ("wavering", detail.clone()),
        BackendState::Dead(dead) => ("dead", dead.detail.clone()),
    };
    BackendView {
        backend: backend.clone(),
        state,
        detail,
    }
}
