//! Recent changes around each hook.
//!
//! Most outages begin with a change: an applied configuration, a Pod that came or went, an API server that started.
//! The time of a change, compared with the time when calls began to fail, answers the first question of an incident: what
//! changed? Calls that fail only while endpoints change have a cause of their own.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use super::hook::{Endpoint, Hook, HookId, HookKind, HookTarget};
use super::inventory::Inventory;
use crate::time::Time;
use crate::{row, thresholds as t};

/// Most changes kept per hook; the oldest is dropped.
const KEPT: usize = 128;
/// Most removed hooks that are remembered; the one removed longest ago is dropped.
const MAX_REMOVED: usize = 4_096;

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookChange {
    /// When the inventory first showed it.
    pub at: Time,
    /// What changed.
    pub what: HookChangeKind,
}

/// What can change around a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookChangeKind {
    /// The hook is new.
    Appeared,
    /// Fields of its entry changed, by the names they have in the object.
    Reconfigured(Vec<&'static str>),
    /// An endpoint became Ready, or was added as Ready.
    EndpointReady(SocketAddr),
    /// An endpoint began to terminate.
    EndpointStopping(SocketAddr),
    /// An endpoint is still listed, but is no longer Ready.
    EndpointUnready(SocketAddr),
    /// An endpoint is no longer listed.
    EndpointGone(SocketAddr),
}

impl HookChangeKind {
    /// The endpoint that changed; `None` for changes of the hook itself.
    pub const fn endpoint(&self) -> Option<SocketAddr> {
        match self {
            Self::EndpointReady(address)
            | Self::EndpointStopping(address)
            | Self::EndpointUnready(address)
            | Self::EndpointGone(address) => Some(*address),
            Self::Appeared | Self::Reconfigured(_) => None,
        }
    }

    /// As the end of a sentence that begins with an instant.
    pub fn sentence(&self) -> String {
        match self {
            Self::Appeared => "the webhook was added".to_owned(),
            Self::Reconfigured(fields) => format!("{} of the webhook changed", fields.join(", ")),
            Self::EndpointReady(address) => format!("endpoint {address} became Ready"),
            Self::EndpointStopping(address) => format!("endpoint {address} began to stop"),
            Self::EndpointUnready(address) => format!("endpoint {address} was not Ready any more"),
            Self::EndpointGone(address) => format!("endpoint {address} was removed"),
        }
    }
}

/// The recent changes of each hook.
#[derive(Debug, Default)]
pub struct Changes {
    of_hooks: BTreeMap<HookId, VecDeque<HookChange>>,
    /// When endpoints last changed, by kind and webhook name: the API server's counters have no other label for a hook.
    moved: BTreeMap<HookKind, BTreeMap<Arc<str>, Time>>,
    /// Removed hooks, and when the inventory first lacked them.
    removed: BTreeMap<HookId, Time>,
}

impl Changes {
    /// Records the differences between two successive inventories. The first inventory (`before` is `None`) records nothing.
    pub fn take(&mut self, before: Option<&Inventory>, after: &Inventory, now: Time) {
        let Some(before) = before else { return };
        let known: BTreeMap<&HookId, &Arc<Hook>> = before.hooks.iter().map(|hook| (&hook.id, hook)).collect();
        for hook in &after.hooks {
            let found = match known.get(&hook.id) {
                // Untouched hooks are shared between inventories.
                Some(before) if Arc::ptr_eq(before, hook) => continue,
                Some(before) => differences(before, hook),
                None => vec![HookChangeKind::Appeared],
            };
            for what in found {
                let changes = self.of_hooks.entry(hook.id.clone()).or_default();
                row::push(changes, KEPT, HookChange { at: now, what });
            }
        }
        let there: BTreeSet<&HookId> = after.hooks.iter().map(|hook| &hook.id).collect();
        let lasts = |last: &HookChange| now.since(last.at) < t::changes_remembered();
        self.of_hooks
            .retain(|id, changes| changes.back().is_some_and(lasts) && there.contains(id));
        self.moved.clear();
        for (id, changes) in &self.of_hooks {
            let moved = changes.iter().rfind(|change| change.what.endpoint().is_some());
            let Some(HookChange { at, .. }) = moved else {
                continue;
            };
            let of_kind = self.moved.entry(id.kind).or_default();
            let newest = of_kind.entry(Arc::clone(&id.webhook)).or_insert(*at);
            *newest = (*newest).max(*at);
        }
        let gone = known.into_keys().filter(|id| !there.contains(id));
        for id in gone {
            *row::entry(&mut self.removed, MAX_REMOVED, id.clone(), |at| *at) = now;
        }
        // No counter reaches further back than its API server is remembered.
        self.removed
            .retain(|id, at| now.since(*at) < t::forget_server() && !there.contains(id));
    }

    /// The removed hooks, by kind and webhook name, whose last calls may have ended after an instant.
    pub fn removed_calls_end_after(&self, instant: Time) -> BTreeSet<(HookKind, &str)> {
        let lately = |at: &Time| instant < *at + t::removed_still_called();
        let removed = self.removed.iter().filter(|(_, at)| lately(at));
        removed.map(|(id, _)| (id.kind, &*id.webhook)).collect()
    }

    /// The changes of one hook since an instant, the oldest first.
    pub fn of(&self, hook: &HookId, since: Time) -> impl DoubleEndedIterator<Item = &HookChange> {
        let changes = self.of_hooks.get(hook).into_iter().flatten();
        changes.filter(move |change| change.at >= since)
    }

    /// Whether some changes of one hook since an instant may have been dropped: every kept change is that recent.
    pub fn is_cut(&self, hook: &HookId, since: Time) -> bool {
        self.of(hook, since).count() >= KEPT
    }

    /// Whether endpoints of a hook of this kind and webhook name changed since an instant.
    pub fn moved_since(&self, kind: HookKind, webhook: &str, since: Time) -> bool {
        let moved = self.moved.get(&kind).and_then(|of_kind| of_kind.get(webhook));
        moved.is_some_and(|at| *at >= since)
    }
}

/// The differences in the hook's entry and in each endpoint.
fn differences(before: &Hook, after: &Hook) -> Vec<HookChangeKind> {
    let fields = reconfigured(before, after);
    let entry = (!fields.is_empty()).then_some(HookChangeKind::Reconfigured(fields));
    let (before, after) = (before.endpoints(), after.endpoints());
    // Maps, because a Service may have a thousand endpoints, and all of them can change at once.
    let (was, is) = (states(before), states(after));
    let here = after.iter().filter_map(|endpoint| {
        let address = endpoint.address;
        let (was_ready, was_stopping) = was.get(&address).copied().unwrap_or_default();
        match (was_stopping, endpoint.terminating, was_ready, endpoint.ready) {
            (false, true, ..) => Some(HookChangeKind::EndpointStopping(address)),
            (.., false, true) => Some(HookChangeKind::EndpointReady(address)),
            (_, false, true, false) => Some(HookChangeKind::EndpointUnready(address)),
            _ => None,
        }
    });
    let gone = before.iter().filter(|known| !is.contains_key(&known.address));
    let gone = gone.map(|endpoint| HookChangeKind::EndpointGone(endpoint.address));
    entry.into_iter().chain(here).chain(gone).collect()
}

/// Whether each endpoint is Ready, and whether it is terminating.
fn states(endpoints: &[Endpoint]) -> BTreeMap<SocketAddr, (bool, bool)> {
    let states = endpoints.iter();
    let states = states.map(|endpoint| (endpoint.address, (endpoint.ready, endpoint.terminating)));
    states.collect()
}

/// The fields that differ and that decide whether and how the hook is called.
fn reconfigured(was: &Hook, is: &Hook) -> Vec<&'static str> {
    fn address(hook: &Hook) -> (&str, &str, u16, &str) {
        match &hook.target {
            HookTarget::Service(to) => (&to.namespace, &to.name, to.port, &to.path),
            HookTarget::Url(url) => ("", &url.host, url.port, &url.path),
            HookTarget::Invalid(why) => ("", why, 0, ""),
        }
    }
    let namespaces = was.namespace_selector != is.namespace_selector;
    let fields = [
        ("clientConfig", address(was) != address(is)),
        ("caBundle", was.ca_bundle != is.ca_bundle),
        ("failurePolicy", was.failure_policy != is.failure_policy),
        ("timeoutSeconds", was.timeout != is.timeout),
        ("rules", was.rules != is.rules),
        ("matchPolicy", was.match_policy != is.match_policy),
        ("namespaceSelector", namespaces),
        ("objectSelector", was.object_selector != is.object_selector),
        ("matchConditions", was.match_conditions != is.match_conditions),
        ("sideEffects", was.dry_run_safe != is.dry_run_safe),
        ("reinvocationPolicy", was.reinvoked != is.reinvoked),
    ];
    let changed = fields.into_iter().filter(|(_, differs)| *differs);
    changed.map(|(field, _)| field).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::cluster::hook::{MatchPolicy, ServiceState, ServiceTarget};
    use crate::cluster::matching::tests::hook;

    const NOW: Time = Time::from_unix_millis(1_000);

    /// An endpoint: its last byte, whether it is Ready, whether it stops.
    type Seen = (u8, bool, bool);

    fn behind(seen: &[Seen]) -> Hook {
        let endpoint = |(last, ready, terminating): &Seen| Endpoint {
            address: ([10, 0, 0, *last], 8443).into(),
            ready: *ready,
            terminating: *terminating,
            node: None,
            zone: None,
            pod: None,
        };
        let mut hook = hook(&["*"]);
        hook.target = HookTarget::Service(ServiceTarget {
            namespace: "opa".into(),
            name: "opa".into(),
            port: 443,
            path: "/".into(),
            service: ServiceState::Found {
                by_hand: false,
                cluster_ip: None,
                endpoints: seen.iter().map(endpoint).collect(),
            },
        });
        hook
    }

    fn inventory(hooks: Vec<Hook>) -> Inventory {
        Inventory {
            hooks: hooks.into_iter().map(Arc::new).collect(),
            ..Inventory::default()
        }
    }

    fn between(before: Hook, after: Hook) -> Vec<String> {
        let id = after.id.clone();
        let mut changes = Changes::default();
        changes.take(Some(&inventory(vec![before])), &inventory(vec![after]), NOW);
        let sentences = changes
            .of(&id, Time::default())
            .map(|change| change.what.sentence());
        sentences.collect()
    }

    #[test]
    fn a_rollout_is_seen_endpoint_by_endpoint() {
        let seen = [
            (
                vec![(1, true, false)],
                vec![(1, true, false), (2, true, false)],
                "endpoint 10.0.0.2:8443 became Ready",
            ),
            (
                vec![(1, false, false)],
                vec![(1, true, false)],
                "endpoint 10.0.0.1:8443 became Ready",
            ),
            (
                vec![(1, true, false)],
                vec![(1, false, true)],
                "endpoint 10.0.0.1:8443 began to stop",
            ),
            (
                vec![(1, true, false)],
                vec![(1, false, false)],
                "endpoint 10.0.0.1:8443 was not Ready any more",
            ),
            (
                vec![(1, false, true)],
                vec![],
                "endpoint 10.0.0.1:8443 was removed",
            ),
        ];
        for (before, after, sentence) in seen {
            assert_eq!(between(behind(&before), behind(&after)), [sentence]);
        }
    }

    #[test]
    fn what_stays_as_it_was_is_no_change() {
        let same = [(1, true, false), (2, false, false), (3, false, true)];
        assert_eq!(between(behind(&same), behind(&same)), [""; 0]);
    }

    #[test]
    fn a_field_that_changed_is_named_as_in_the_object() {
        let (before, mut after) = (behind(&[]), behind(&[]));
        after.timeout = Duration::from_secs(3);
        after.ca_bundle = b"other".as_slice().into();
        assert_eq!(
            between(before, after),
            ["caBundle, timeoutSeconds of the webhook changed"]
        );
        let (before, mut after) = (behind(&[]), behind(&[]));
        after.match_policy = MatchPolicy::Exact;
        after.dry_run_safe = !before.dry_run_safe;
        after.reinvoked = !before.reinvoked;
        assert_eq!(
            between(before, after),
            ["matchPolicy, sideEffects, reinvocationPolicy of the webhook changed"]
        );
    }

    #[test]
    fn what_is_there_at_the_first_look_is_no_news_and_what_comes_later_is() {
        let first = behind(&[(1, true, false)]);
        let mut second = behind(&[]);
        second.id.webhook = "second".into();
        let mut changes = Changes::default();
        changes.take(None, &inventory(vec![first.clone()]), NOW);
        assert_eq!(changes.of(&first.id, Time::default()).count(), 0);
        let both = inventory(vec![first.clone(), second.clone()]);
        changes.take(Some(&inventory(vec![first.clone()])), &both, NOW);
        assert_eq!(changes.of(&first.id, Time::default()).count(), 0);
        let added: Vec<&HookChange> = changes.of(&second.id, Time::default()).collect();
        assert_eq!(added[0].what, HookChangeKind::Appeared);
    }

    #[test]
    fn the_memory_is_bounded_in_number_and_in_time() {
        let mut changes = Changes::default();
        let (off, on) = (behind(&[(1, false, false)]), behind(&[(1, true, false)]));
        let id = on.id.clone();
        let (off, on) = (inventory(vec![off]), inventory(vec![on]));
        for _ in 0..KEPT {
            changes.take(Some(&off), &on, NOW);
            changes.take(Some(&on), &off, NOW);
        }
        assert_eq!(changes.of(&id, Time::default()).count(), KEPT);
        changes.take(Some(&off), &off, NOW + t::changes_remembered());
        assert_eq!(changes.of(&id, Time::default()).count(), 0);
    }
}
