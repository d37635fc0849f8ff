//! What a tenant could have brought about, and what is therefore not acted by beyond a shield.
//!
//! Whoever makes a security hook fail on purpose must not be rid of it. Some ways to do so leave a trace: a hook that has
//! too much to do answers some of its calls, a webhook's name stands in a second configuration, addresses of its Service
//! are written by somebody else than the controller.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::Watchdog;
use crate::domain::breaker::Doubt;
use crate::domain::changes::What;
use crate::domain::history::{Window, Windows};
use crate::domain::hook::{Hook, HookId, HookKind, ServiceState, Target};
use crate::domain::inventory::Inventory;
use crate::domain::time::Time;
use crate::domain::verdict::{Health, Verdict};

/// What a shared name has moved is spoken of for a minute by counters and by canaries, one after the other.
const SHARED: Duration = Duration::from_secs(180);
/// The controller puts its slices right within a second or so. Who is at odds with it does the same again soon.
const UNSETTLED: Duration = Duration::from_secs(60);
/// For so long after calls were answered while the hook failed it may be that it has too much to do.
const ANSWERED: Duration = Duration::from_secs(30);
/// Fewer answered calls than this may have been under way when the trouble began.
const SOME: f64 = 2.0;

/// Names of webhooks that several configurations use, or did a short while ago: what goes by such a name may mean either.
#[derive(Debug, Default)]
pub(super) struct SharedNames {
    now: BTreeSet<Arc<str>>,
    until: BTreeMap<Arc<str>, Time>,
}

impl SharedNames {
    /// Takes in which hooks there are.
    pub(super) fn take(&mut self, inventory: &Inventory, now: Time) {
        let mut users: BTreeMap<&Arc<str>, BTreeSet<(HookKind, &str)>> = BTreeMap::new();
        for hook in inventory.hooks.iter().filter(|hook| hook.id.kind.is_admission()) {
            let id = &hook.id;
            let of_name = users.entry(&id.webhook).or_default();
            of_name.insert((id.kind, &id.configuration));
        }
        let shared = users.into_iter().filter(|(_, users)| users.len() > 1);
        let shared = shared.map(|(name, _)| Arc::clone(name)).collect();
        for name in std::mem::replace(&mut self.now, shared) {
            self.until.insert(name, now + SHARED);
        }
        self.until.retain(|_, until| now < *until);
    }

    /// Whether what goes by this name may mean, or have meant, several hooks.
    pub(super) fn has(&self, webhook: &str, now: Time) -> bool {
        self.now.contains(webhook) || self.until.get(webhook).is_some_and(|until| now < *until)
    }
}

/// Hooks that answered some of their calls while they failed, and when that was last seen.
#[derive(Debug, Default)]
pub(super) struct SomeAnswered(BTreeMap<HookId, Time>);

impl SomeAnswered {
    /// Takes in what was counted of a hook that is judged so.
    pub(super) fn take(&mut self, hook: &Hook, verdict: &Verdict, windows: &Windows, now: Time) {
        if verdict.health == Health::Failing && answers_some(hook, verdict, windows) {
            self.0.insert(hook.id.clone(), now);
        }
        self.0.retain(|_, at| now.since(*at) < ANSWERED);
    }
}

impl Watchdog {
    /// Why the evidence against a hook may be a tenant's work.
    pub(super) fn doubt(&self, hook: &Hook, now: Time) -> Option<Doubt> {
        if by_hand(hook) {
            Some(Doubt::EndpointsByHand)
        } else if self.is_unsettled(hook, now) {
            Some(Doubt::EndpointsUnsettled)
        } else if self.some_answered.0.contains_key(&hook.id) {
            Some(Doubt::SomeAnswered)
        } else {
            None
        }
    }

    /// One endpoint left more than once of late.
    fn is_unsettled(&self, hook: &Hook, now: Time) -> bool {
        let mut left: BTreeMap<SocketAddr, usize> = BTreeMap::new();
        for change in self.changes.of(&hook.id, now.before(UNSETTLED)) {
            if let What::EndpointGone(address) | What::EndpointUnready(address) = change.what {
                *left.entry(address).or_default() += 1;
            }
        }
        left.values().any(|times| *times > 1)
    }
}

fn by_hand(hook: &Hook) -> bool {
    let Target::Service(target) = &hook.target else {
        return false;
    };
    matches!(&target.service, ServiceState::Found { by_hand: true, .. })
}

/// In a span that began after the trouble did the API server counted calls that were answered.
fn answers_some(hook: &Hook, verdict: &Verdict, windows: &Windows) -> bool {
    let Some(since) = verdict.since else { return false };
    let key = (hook.id.kind, hook.id.webhook.to_string());
    let answered = |window: &Window| {
        let series = window.gained.hooks.get(&key);
        series.is_some_and(|series| series.calls.count - series.failed() >= SOME)
    };
    [&windows.newest, &windows.recent, &windows.minute]
        .into_iter()
        .flatten()
        .any(|window| window.from > since && answered(window))
}
