//! When the core requests an audit, and what it keeps of the last one. It affects neither health nor the breaker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::messages::{LoggedChange, WatchdogEffect};
use crate::audit::periodic::{AuditEvidence, AuditRequest, AuditResult, PublishedFindings};
use crate::audit::{Finding, FindingSeverity};
use crate::observe::observations::Observations;
use crate::time::Time;

/// How often the evidence is compared with that of the last audit.
const COMPARE_EVERY: Duration = Duration::from_secs(10);
/// An audit is repeated after this even without a change: certificates come closer to their expiry.
const REPEAT_AFTER: Duration = Duration::from_secs(3_600);
/// An audit without a result is requested again after this.
const LOST_AFTER: Duration = Duration::from_secs(600);
/// Shortest pause after an audit: this, or [`PAUSE_FACTOR`] times the duration of that audit if that is longer.
const MIN_PAUSE: Duration = Duration::from_secs(1);
const PAUSE_FACTOR: u32 = 4;
/// Findings that appear within this time of the first audit count as older than hookwatch: they get no time and no log
/// line.
const STARTUP: Duration = Duration::from_secs(120);
/// Seconds. Usual call times are rounded down to multiples of this and left out below it, so that a change of a few
/// milliseconds does not cause an audit.
const USUAL_STEP: f64 = 0.25;

/// Kind and object of a finding.
type FindingKey = (&'static str, String);

#[derive(Debug, Default)]
pub(super) struct Auditing {
    published: Arc<PublishedFindings>,
    last_request: Option<AuditRequest>,
    in_flight: bool,
    last_compared: Time,
    not_before: Time,
    first_result: Option<Time>,
    /// When each published finding was first seen; `None` for those seen during [`STARTUP`].
    appeared: BTreeMap<FindingKey, Option<Time>>,
}

impl Auditing {
    pub(super) fn published(&self) -> Arc<PublishedFindings> {
        Arc::clone(&self.published)
    }

    /// Requests an audit if one is due.
    pub(super) fn request_if_due(&mut self, seen: &Observations, now: Time) -> Option<WatchdogEffect> {
        let inventory = seen.inventory.as_ref()?;
        let age = self.last_request.as_ref().map(|last| now.since(last.at));
        if now < self.not_before || self.in_flight && age.is_some_and(|age| age < LOST_AFTER) {
            return None;
        }
        let same = |last: &&AuditRequest| Arc::ptr_eq(&last.inventory, inventory);
        let last = self.last_request.as_ref().filter(same);
        if last.is_some() && now.since(self.last_compared) < COMPARE_EVERY {
            return None;
        }
        self.last_compared = now;
        let evidence = evidence(seen, now);
        // An audit still in flight at this point is older than `LOST_AFTER`: it counts as lost.
        let is_due = self.in_flight || age.is_none_or(|age| age >= REPEAT_AFTER);
        if !is_due && last.is_some_and(|last| last.evidence == evidence) {
            return None;
        }
        let request = AuditRequest {
            inventory: Arc::clone(inventory),
            evidence,
            at: now,
        };
        self.last_request = Some(request.clone());
        self.in_flight = true;
        Some(WatchdogEffect::Audit(Box::new(request)))
    }

    /// Publishes the findings; returns a log line for each new critical one.
    pub(super) fn take(&mut self, result: AuditResult, now: Time) -> Vec<WatchdogEffect> {
        self.in_flight = false;
        self.not_before = now + MIN_PAUSE.max(result.took.saturating_mul(PAUSE_FACTOR));
        let first = *self.first_result.get_or_insert(now);
        let since = (now.since(first) >= STARTUP).then_some(now);
        let mut findings = PublishedFindings::of(result);
        let before = std::mem::take(&mut self.appeared);
        let mut log = Vec::new();
        for finding in &mut findings.findings {
            let key: FindingKey = (finding.kind.id, finding.object.clone());
            let known = before.get(&key);
            let appeared = known.copied().unwrap_or(since);
            self.appeared.insert(key, appeared);
            finding.since = finding.since.or(appeared);
            if known.is_none() && since.is_some() && finding.severity == FindingSeverity::Critical {
                log.push(WatchdogEffect::Tell(LoggedChange::Finding(Box::new(
                    Finding::clone(finding),
                ))));
            }
        }
        self.published = Arc::new(findings);
        log
    }
}

/// The observations of webhooks that an audit uses.
fn evidence(seen: &Observations, now: Time) -> AuditEvidence {
    let (mut served_until, mut trusted) = (BTreeMap::new(), BTreeSet::new());
    for (id, _, facts) in seen.certificates() {
        if let Some(ends) = facts.served_not_after {
            let served = (ends, facts.served_not_before);
            let first = served_until.entry(id.clone()).or_insert(served);
            *first = served.min(*first);
        }
        if facts.served_is_trusted {
            trusted.insert(id.clone());
        }
    }
    let distinguishes = seen.hooks().filter(|hook| {
        let matched = seen.traffic.of(&hook.id);
        matched.is_some_and(|matched| matched.singles_out_canaries)
    });
    let usual = seen.hooks().filter_map(|hook| {
        let usual = seen.history.baseline.hooks.get(&hook.id.counted_as())?;
        let median = usual.median()?;
        let steps = (median / USUAL_STEP).floor();
        (steps >= 1.0).then(|| (hook.id.clone(), steps * USUAL_STEP))
    });
    AuditEvidence {
        distinguishes_canaries: distinguishes.map(|hook| hook.id.clone()).collect(),
        served_until,
        trusted,
        late_nodes: seen.servers.node_leases.late(now),
        usual_seconds: usual.collect(),
    }
}
