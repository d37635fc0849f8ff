//! Evidence that a tenant could have produced, and that therefore justifies no more than a shield.
//!
//! A tenant that makes a security hook fail on purpose must not get past it. Some ways to do so leave a trace: an
//! overloaded hook still answers some of its calls, a second configuration uses a webhook's name, or something other than the
//! EndpointSlice controller writes the addresses of its Service.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use crate::act::breaker::Doubt;
use crate::cluster::changes::{Changes, HookChangeKind};
use crate::cluster::hook::{Hook, HookId, HookKind};
use crate::cluster::inventory::Inventory;
use crate::diagnose::evidence::Evidence;
use crate::diagnose::verdict::Verdict;
use crate::observe::history::Window;
use crate::thresholds as t;
use crate::time::Time;
use crate::vocabulary::Health;

/// The traces that tampering may have left.
#[derive(Debug, Default)]
pub(super) struct Tampering {
    /// Names of webhooks that several configurations use.
    shared: BTreeSet<Arc<str>>,
    /// Names that several configurations used until recently, with the instant until which they still count.
    shared_until: BTreeMap<Arc<str>, Time>,
    /// Hooks that answered some of their calls while they failed, and when that was last seen.
    some_answered: BTreeMap<HookId, Time>,
}

impl Tampering {
    pub(super) fn take_inventory(&mut self, inventory: &Inventory, now: Time) {
        let mut users: BTreeMap<&Arc<str>, BTreeSet<(HookKind, &str)>> = BTreeMap::new();
        for hook in inventory.hooks.iter().filter(|hook| hook.id.kind.is_admission()) {
            let of_name = users.entry(&hook.id.webhook).or_default();
            of_name.insert((hook.id.kind, &hook.id.configuration));
        }
        let shared = users.into_iter().filter(|(_, users)| users.len() > 1);
        let shared = shared.map(|(name, _)| Arc::clone(name)).collect();
        for name in std::mem::replace(&mut self.shared, shared) {
            self.shared_until.insert(name, now + t::shared_name());
        }
        self.shared_until.retain(|_, until| now < *until);
    }

    /// Notes which of these failing hooks answered some of their calls.
    pub(super) fn take_verdicts(&mut self, all: &[(Evidence<'_>, Verdict)], now: Time) {
        for (evidence, verdict) in all {
            if let Some(hook) = evidence.hook
                && answers_some(evidence, verdict)
            {
                self.some_answered.insert(hook.id.clone(), now);
            }
        }
        self.some_answered
            .retain(|_, at| now.since(*at) < t::some_answered());
    }

    /// Whether this name is, or was, used by several hooks.
    pub(super) fn is_shared(&self, webhook: &str, now: Time) -> bool {
        self.shared.contains(webhook) || self.shared_until.get(webhook).is_some_and(|until| now < *until)
    }

    /// Why a tenant may have caused the evidence against a hook; `None` where there is no trace of that.
    pub(super) fn doubt(&self, hook: &Hook, changes: &Changes, now: Time) -> Option<Doubt> {
        if hook.target.is_listed_by_hand() {
            return Some(Doubt::EndpointsUnmanaged);
        }
        let unsettled = is_unsettled(hook, changes, now).then_some(Doubt::EndpointsUnsettled);
        let answered = self.some_answered.contains_key(&hook.id);
        unsettled.or(answered.then_some(Doubt::SomeAnswered))
    }
}

/// One endpoint left more than once recently, or may have, as there were more changes than are kept. That it is removed after
/// it became not Ready does not count as a second time; it must have been Ready in between.
fn is_unsettled(hook: &Hook, changes: &Changes, now: Time) -> bool {
    use HookChangeKind::{EndpointGone, EndpointReady, EndpointUnready};
    let mut left: BTreeMap<SocketAddr, bool> = BTreeMap::new();
    let since = now.before(t::unsettled());
    let leaves_again = changes.of(&hook.id, since).any(|change| match change.what {
        EndpointGone(address) | EndpointUnready(address) => {
            left.insert(address, false).is_some_and(|back| back)
        }
        EndpointReady(address) => {
            left.entry(address).and_modify(|back| *back = true);
            false
        }
        _ => false,
    });
    leaves_again || changes.is_cut(&hook.id, since)
}

/// The hook is failing, and in a span that began after its trouble the API servers counted at least two answered calls.
fn answers_some(evidence: &Evidence<'_>, verdict: &Verdict) -> bool {
    let Some(since) = verdict.since.filter(|_| verdict.health == Health::Failing) else {
        return false;
    };
    let key = (evidence.kind, evidence.webhook.to_owned());
    let answered = |window: &Window| {
        let series = window.gained.hooks.get(&key);
        series.is_some_and(|series| series.answered() >= 2.0)
    };
    let mut spans = evidence.scene.plane.windows.spans();
    spans.any(|window| window.from > since && answered(window))
}
