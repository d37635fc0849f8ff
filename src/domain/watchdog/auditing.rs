//! When the core requests an audit, and what it keeps of the last one. It affects neither health nor the breaker.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::messages::{LoggedChange, WatchdogEffect};
use crate::audit::standing::{AuditEvidence, Audited, Findings, Request};
use crate::audit::{Finding, FindingSeverity};
use crate::cluster::hook::HookId;
use crate::observe::observations::Observations;
use crate::time::Time;

/// What was seen of webhooks is compared with what was audited so often.
const LOOK: Duration = Duration::from_secs(10);
/// Without any change an audit is made so often: certificates come closer to their end.
const EVERY: Duration = Duration::from_secs(3_600);
/// One that was asked for and does not come back is asked for again after this.
const LOST: Duration = Duration::from_secs(600);
/// Least time between two audits, and at least a multiple of the duration of the last one.
const APART: Duration = Duration::from_secs(1);
const REST: u32 = 4;
/// What is found within this of the first audit was there before hookwatch was, for all it knows.
const BEGINNING: Duration = Duration::from_secs(120);
/// Usual times of calls count from here, and in steps of this, in seconds: an audit is not to be made for milliseconds.
const USUAL: f64 = 0.25;

/// Which finding on what.
type Which = (&'static str, String);

#[derive(Debug, Default)]
pub(super) struct Auditing {
    known: Arc<Findings>,
    asked: Option<Request>,
    under_way: bool,
    looked: Time,
    not_before: Time,
    first: Option<Time>,
    /// Since when each has been found that is published; `None` for those that were there at first.
    appeared: BTreeMap<Which, Option<Time>>,
}

impl Auditing {
    pub(super) fn known(&self) -> Arc<Findings> {
        Arc::clone(&self.known)
    }

    /// Asks for an audit where one is due.
    pub(super) fn wish(&mut self, seen: &Observations, now: Time) -> Option<WatchdogEffect> {
        let inventory = seen.inventory.as_ref()?;
        let age = self.asked.as_ref().map(|asked| now.since(asked.at));
        if now < self.not_before || self.under_way && age.is_some_and(|age| age < LOST) {
            return None;
        }
        let same = |asked: &&Request| Arc::ptr_eq(&asked.inventory, inventory);
        let asked = self.asked.as_ref().filter(same);
        if asked.is_some() && now.since(self.looked) < LOOK {
            return None;
        }
        self.looked = now;
        let witnessed = witnessed(seen, now);
        let is_old = age.is_none_or(|age| age >= EVERY);
        if !is_old && asked.is_some_and(|asked| asked.witnessed == witnessed) {
            return None;
        }
        let request = Request {
            inventory: Arc::clone(inventory),
            witnessed,
            at: now,
        };
        self.asked = Some(request.clone());
        self.under_way = true;
        Some(WatchdogEffect::Audit(Box::new(request)))
    }

    /// Records the findings, and reports new critical ones.
    pub(super) fn take(&mut self, audited: Audited, now: Time) -> Vec<WatchdogEffect> {
        self.under_way = false;
        self.not_before = now + APART.max(audited.took.saturating_mul(REST));
        let first = *self.first.get_or_insert(now);
        let since = (now.since(first) >= BEGINNING).then_some(now);
        let mut findings = Findings::of(audited);
        let before = std::mem::take(&mut self.appeared);
        let mut told = Vec::new();
        for finding in &mut findings.findings {
            let which: Which = (finding.kind.id, finding.object.clone());
            let known = before.get(&which);
            let appeared = known.copied().unwrap_or(since);
            self.appeared.insert(which.clone(), appeared);
            finding.since = finding.since.or(appeared);
            if known.is_none() && since.is_some() && finding.severity == FindingSeverity::Critical {
                told.push(WatchdogEffect::Tell(LoggedChange::Finding(Box::new(
                    Finding::clone(finding),
                ))));
            }
        }
        self.known = Arc::new(findings);
        told
    }
}

/// The observations of webhooks that an audit uses.
fn witnessed(seen: &Observations, now: Time) -> AuditEvidence {
    let mut served_until: BTreeMap<HookId, Time> = BTreeMap::new();
    for (id, _, facts) in seen.certificates() {
        if let Some(ends) = facts.served_not_after {
            let first = served_until.entry(id.clone()).or_insert(ends);
            *first = ends.min(*first);
        }
    }
    let told_apart = seen.hooks().filter(|hook| {
        let meets = seen.meetings.of(&hook.id);
        meets.is_some_and(|meets| meets.tells_apart)
    });
    let usual = seen.hooks().filter_map(|hook| {
        let usual = seen.history.baseline.hooks.get(&hook.id.counted_as())?;
        let median = usual.median()?;
        let steps = (median / USUAL).floor();
        (steps >= 1.0).then(|| (hook.id.clone(), steps * USUAL))
    });
    AuditEvidence {
        told_apart: told_apart.map(|hook| hook.id.clone()).collect(),
        served_until,
        late_nodes: seen.servers.node_leases.late(now),
        usual_seconds: usual.collect(),
    }
}
