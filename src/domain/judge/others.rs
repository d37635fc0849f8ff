//! The judgement of a hook beside admission: a conversion webhook, or the server behind an APIService.
//!
//! There are two sides. Ours: direct probes, and what the inventory shows. The API server's: conversions that it
//! counted as failed, or its own aggregator saying that the service is not available. One side alone makes suspect,
//! both together make failing. Nothing here speaks about admission or about writes in general.

mod words;

use std::sync::Arc;
use std::time::Duration;

use super::witnesses::Probes;
use super::{Before, Finding, healthy, structural_of, words::view};
use crate::domain::canary::CallFailureReason;
use crate::domain::history::{Window, Windows};
use crate::domain::hook::{Aggregated, Available, Backend, Hook, HookKind, OtherKind};
use crate::domain::probing::{BackendState, Dead};
use crate::domain::snapshot::ConversionSeries;
use crate::domain::time::Time;
use crate::domain::verdict::{Cause, Effect, Health, Verdict};

/// A conversion slower than this is slow.
const SLOW: f64 = 0.5;
/// A failed conversion that took this long was ended by a timeout: a TLS handshake may take 10 s, all of it 30 s.
const TIMED_OUT: f64 = 9.0;
/// The aggregator looks again after half a minute; by then it has seen what we see.
const AGGREGATOR_LOOKS: Duration = Duration::from_secs(60);

/// Everything known of one such hook at one instant.
#[derive(Debug)]
pub struct OtherCase<'a> {
    /// The instant.
    pub now: Time,
    /// Conversion or aggregated.
    pub kind: HookKind,
    /// The name of its object.
    pub name: &'a str,
    /// The hook; `None` when the inventory has none of that name.
    pub hook: Option<&'a Hook>,
    /// Its backends with what probes say of each.
    pub backends: &'a [(Backend, BackendState)],
    /// What the API servers counted.
    pub windows: &'a Windows,
    /// Since when the inventory has shown it without service or endpoints.
    pub without_backends_since: Option<Time>,
    /// Every probe of everything fails and nothing shows that this is not our own fault.
    pub self_doubt: bool,
}

/// What the API server's side says.
#[derive(Debug, Default)]
struct Theirs {
    /// It fails, for this cause where that can be told.
    fails: Option<Option<Cause>>,
    /// It has worked: since this instant, no failure after it.
    works_since: Option<Time>,
    /// Since when it fails.
    since: Option<Time>,
    /// Calls are slow.
    slow: bool,
    counted: Option<Conversions>,
    /// How many API servers' gauges say that it is not available.
    unavailable: f64,
    /// How often it became so within a minute.
    became_unavailable: f64,
}

/// Conversions over the span that tells most.
#[derive(Debug, Clone, Copy)]
struct Conversions {
    series: ConversionSeries,
    from: Time,
    to: Time,
}

impl OtherCase<'_> {
    fn available(&self) -> Option<&Available> {
        match self.hook?.other.as_ref()? {
            OtherKind::Aggregated(Aggregated { available, .. }) => available.as_ref(),
            OtherKind::Conversion(_) => None,
        }
    }

    /// The newest interval in which anything was converted; a failure is looked for over the whole minute, for the
    /// API server itself tries again only every half minute.
    fn conversions(&self) -> Option<Conversions> {
        let over = |window: &Option<Window>| {
            let window = window.as_ref()?;
            let series = window.gained.others.conversions.get(self.name)?;
            Some(Conversions {
                series: *series,
                from: window.from,
                to: window.to,
            })
        };
        let Windows {
            newest,
            recent,
            minute,
        } = self.windows;
        [newest, recent, minute].into_iter().find_map(over)
    }

    fn theirs(&self) -> Theirs {
        if self.kind == HookKind::Conversion {
            return self.converter();
        }
        let gained = self.windows.minute.as_ref().map(|minute| &minute.gained.others);
        let told = |map: fn(&crate::domain::snapshot::Others) -> &std::collections::BTreeMap<String, f64>| {
            gained.and_then(|gained| map(gained).get(self.name)).copied()
        };
        let unavailable = told(|others| &others.unavailable).unwrap_or_default();
        let available = self.available();
        let status = available.and_then(|available| available.status);
        // The condition comes at once, the gauge with the next scrape: where both are there the condition is newer.
        let fails = status == Some(false) || status.is_none() && unavailable >= 1.0;
        Theirs {
            fails: fails.then(|| available.and_then(Available::cause)),
            works_since: available
                .filter(|available| available.status == Some(true))
                .map(|available| available.since.unwrap_or_default()),
            since: available.and_then(|available| available.since),
            slow: false,
            counted: None,
            unavailable,
            became_unavailable: told(|others| &others.became_unavailable).unwrap_or_default(),
        }
    }

    fn converter(&self) -> Theirs {
        let Some(counted) = self.conversions() else {
            return Theirs::default();
        };
        let ConversionSeries { succeeded, failed } = counted.series;
        let failed_mean = failed.mean();
        let cause = failed_mean
            .filter(|mean| *mean >= TIMED_OUT)
            .map(|_| Cause::Hanging);
        let fails = failed.count >= 1.0;
        Theirs {
            fails: fails.then_some(cause),
            works_since: (!fails && succeeded.count >= 1.0).then_some(counted.from),
            since: Some(counted.from),
            slow: succeeded.mean().is_some_and(|mean| mean >= SLOW),
            counted: Some(counted),
            ..Theirs::default()
        }
    }
}

impl Available {
    /// The mechanism behind it, from the aggregator's own reasons and sentences (1.36,
    /// `kube-aggregator/pkg/controllers/status/remote/remote_available_controller.go`).
    fn cause(&self) -> Option<Cause> {
        match self.reason.as_str() {
            "ServiceNotFound" | "ServicePortError" => Some(Cause::NoService),
            "EndpointsNotFound" | "MissingEndpoints" => Some(Cause::NoEndpoints),
            "FailedDiscoveryCheck" if self.message.contains("bad status from ") => Some(Cause::Erroring),
            "FailedDiscoveryCheck" if self.message.starts_with("timed out waiting for ") => {
                Some(Cause::Hanging)
            }
            "FailedDiscoveryCheck" => match CallFailureReason::of_transport(&self.message) {
                CallFailureReason::Other => None,
                reason => Some(reason.into()),
            },
            _ => None,
        }
    }
}

/// Judges one hook beside admission. `previous` is the verdict on it a moment ago.
pub fn judge_other(case: &OtherCase<'_>, previous: Option<Before>) -> Verdict {
    let probes = Probes::of(case.backends);
    let theirs = case.theirs();
    let was_failing = previous.is_some_and(|previous| previous.health == Health::Failing);
    let finding = conclude(case, &probes, &theirs, was_failing);
    let cause = finding.cause;
    let since = match previous {
        Some(previous) if previous.cause.is_some() && previous.cause == cause => {
            previous.since.or(finding.since)
        }
        _ => finding.since.or_else(|| cause.map(|_| case.now)),
    };
    let effect = match cause {
        None => Effect::None,
        Some(Cause::Slow) => Effect::Delaying,
        Some(_) if theirs.fails.is_some() || finding.health == Health::Failing => Effect::Blocking,
        // What we alone see nobody may have met.
        Some(_) => Effect::None,
    };
    let hook = case.hook;
    Verdict {
        kind: case.kind,
        configuration: hook.map(|hook| Arc::clone(&hook.id.configuration)),
        webhook: hook.map_or_else(|| case.name.into(), |hook| Arc::clone(&hook.id.webhook)),
        health: finding.health,
        cause,
        effect,
        confidence: finding.confidence,
        canaries: Vec::new(),
        bypass: None,
        excess_share: None,
        since,
        summary: words::summary(case, finding.health, cause, effect),
        evidence: words::evidence(case, &probes, &theirs, cause, effect),
        advice: cause.map(|cause| words::advice(case.kind, cause)),
        backends: case
            .backends
            .iter()
            .map(|(backend, state)| view(backend, state))
            .collect(),
        risks: Vec::new(),
    }
}

fn conclude(case: &OtherCase<'_>, probes: &Probes<'_>, theirs: &Theirs, was_failing: bool) -> Finding {
    if let Some(cause) = case.hook.and_then(structural_of) {
        let since = case.without_backends_since;
        return match theirs.fails.is_some() || was_failing && theirs.works_since.is_none() {
            true => Finding::new(Health::Failing, cause, 0.97).since(since),
            false => Finding::new(Health::Suspect, cause, 0.6).since(since),
        };
    }
    match (probes, theirs.fails) {
        (Probes::All { worst, .. }, Some(said)) => {
            // A timeout without an earlier success may be a firewall between hookwatch and the pods; the API server
            // knows then what it met itself.
            let own_path = is_path(worst) && !worst.was_alive;
            let (cause, confidence) = match said.filter(|_| own_path) {
                Some(cause) => (cause, 0.85),
                None => (worst.cause, 0.95),
            };
            Finding::new(Health::Failing, cause, confidence).since(Some(worst.since))
        }
        (Probes::Some { dead, .. }, Some(_)) => {
            let since = dead.iter().map(|(_, dead)| dead.since).min();
            Finding::new(Health::Failing, Cause::Partial, 0.85).since(since)
        }
        (Probes::All { worst, .. }, None) => alone(case, worst, theirs, was_failing),
        (_, Some(said)) => {
            // A backend that takes connections from here and fails for the API server answers it badly, if
            // nothing else is known.
            let cause = said.unwrap_or(Cause::Erroring);
            let confidence = if case.available().is_some() { 0.7 } else { 0.6 };
            Finding::new(Health::Suspect, cause, confidence).since(theirs.since)
        }
        (Probes::Some { dead, .. }, None) => {
            let since = dead.iter().map(|(_, dead)| dead.since).min();
            Finding::new(Health::Suspect, Cause::Partial, 0.85).since(since)
        }
        (Probes::Slow { since, .. }, None) => {
            let (health, confidence) = match theirs.slow {
                true => (Health::Failing, 0.9),
                false => (Health::Suspect, 0.5),
            };
            Finding::new(health, Cause::Slow, confidence).since(Some(*since))
        }
        (Probes::Good { .. } | Probes::Silent, None) if theirs.slow => {
            Finding::new(Health::Suspect, Cause::Slow, 0.6).since(theirs.since)
        }
        (Probes::Good { .. }, None) => healthy(if theirs.works_since.is_some() { 0.98 } else { 0.9 }),
        (Probes::Silent, None) if theirs.works_since.is_some() => healthy(0.8),
        (Probes::Silent, None) => Finding {
            health: Health::Unknown,
            cause: None,
            confidence: 0.0,
            since: None,
        },
    }
}

/// All backends are dead by our probes, and the API server's side does not say so.
fn alone(case: &OtherCase<'_>, worst: &Dead, theirs: &Theirs, was_failing: bool) -> Finding {
    let finding = |health, confidence| Finding::new(health, worst.cause, confidence).since(Some(worst.since));
    // A conversion since then got through, or the aggregator has looked since and is content.
    let contradicted = match case.kind {
        HookKind::Conversion => theirs.works_since.is_some_and(|at| at >= worst.since),
        _ => theirs.works_since.is_some() && case.now.since(worst.since) >= AGGREGATOR_LOOKS,
    };
    if contradicted && is_path(worst) && !worst.was_alive {
        // There may be no way from here to the pods at all.
        return healthy(0.7);
    }
    match (was_failing, contradicted, case.self_doubt) {
        // Nobody asked for a conversion of late; that makes it no better.
        (true, false, false) if theirs.works_since.is_none() => finding(Health::Failing, 0.8),
        (_, _, true) => finding(Health::Suspect, 0.3),
        (_, true, _) => finding(Health::Suspect, 0.4),
        _ => finding(Health::Suspect, 0.5),
    }
}

/// Whether what was seen may be owed to the way from here to the backend.
fn is_path(dead: &Dead) -> bool {
    matches!(dead.cause, Cause::Hanging | Cause::Unreachable)
}

#[cfg(test)]
mod tests;
