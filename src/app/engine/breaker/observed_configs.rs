//! Webhook configurations, with their owners' annotations, as each API server shows them. Each answers from its own watch cache
//! and may lag behind: a change counts as made once all of them show it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::domain::act::breaker::{Freeze, Observation, ObservedHook, OwnerAnnotations, ResourceVersion};
use crate::domain::act::bypass::{BypassStanding, touched};
use crate::domain::act::ledger::{self, LedgerReading};
use crate::domain::cluster::hook::{HookId, HookKind};
use crate::domain::time::Time;
use crate::io::act::breaker::{ApiServerClient, ConfigWriter};

/// How often each API server is asked while no hook is a culprit or in the breaker's hands.
const CALM: Duration = Duration::from_secs(10);
/// The same while one is.
const AT_WORK: Duration = Duration::from_millis(500);
/// An API server that has not answered for this long, plus one `CALM` pause, is left out when the breaker waits for a change to
/// reach every API server.
const ANSWERS: Duration = Duration::from_secs(15);
/// How long a hook is still followed after the last reason to follow it.
const LINGER: Duration = Duration::from_secs(60);

/// The webhook configurations in one API server's cache, or why they could not be read.
pub(super) struct ObservedLists {
    server: Arc<str>,
    lists: Result<Vec<(HookKind, Vec<Value>)>, String>,
}

impl ObservedLists {
    pub(super) async fn from(writer: &ConfigWriter, server: &ApiServerClient) -> Self {
        let asking = async {
            let mut lists = Vec::new();
            for kind in HookKind::ADMISSION {
                lists.push((kind, writer.list_cached(server, kind).await?));
            }
            Ok(lists)
        };
        Self {
            server: server.name.as_str().into(),
            lists: asking.await,
        }
    }
}

/// The configuration that a hook is in.
type ConfigurationKey = (HookKind, Arc<str>);

/// Read from a configuration's object: its identity, and its owner's annotations.
pub(super) struct Owner {
    uid: String,
    pub(super) word: OwnerAnnotations,
}

#[derive(Default)]
pub(super) struct ObservedConfigs {
    /// Hooks that are named as culprits.
    pub(super) culprits: BTreeSet<HookId>,
    owners: BTreeMap<ConfigurationKey, Owner>,
    /// Hooks whose failures a person or an older release has ignored, according to their objects.
    pub(super) ignored: BTreeSet<HookId>,
    /// Since when hooks are bypassed, according to their objects.
    since: BTreeMap<HookId, Time>,
    /// A person's order to bypass nothing new, as recorded in the ledger.
    pub(super) frozen: Option<Freeze>,
    /// Hooks that are followed, and until when.
    followed: BTreeMap<HookId, Time>,
    /// When each API server answered last.
    answered: BTreeMap<Arc<str>, Time>,
    /// The API servers that were last reported to the breaker.
    told: BTreeSet<Arc<str>>,
    /// Those that did not answer when last asked.
    out_of_reach: BTreeSet<Arc<str>>,
    /// When each was last asked, and whether the answer is still to come.
    asked: BTreeMap<Arc<str>, (Time, bool)>,
}

impl ObservedConfigs {
    /// The identity and owner's annotations of a hook's configuration.
    pub(super) fn owner(&self, hook: &HookId) -> Option<&Owner> {
        self.owners.get(&(hook.kind, Arc::clone(&hook.configuration)))
    }

    /// The uid of a hook's configuration; empty when it is not known.
    pub(super) fn uid(&self, hook: &HookId) -> &str {
        self.owner(hook).map_or("", |owner| &owner.uid)
    }

    /// Since when a hook is bypassed, according to its object: a wall-clock date.
    pub(super) fn since(&self, hook: &HookId) -> Option<Time> {
        self.since.get(hook).copied()
    }

    /// The API servers to ask now. Marks them as asked, and forgets those that are gone.
    pub(super) fn due(&mut self, writer: &ConfigWriter, at_work: bool, now: Time) -> Vec<ApiServerClient> {
        let pause = if at_work { AT_WORK } else { CALM };
        let servers = writer.servers_to_ask(|name| self.out_of_reach.contains(name));
        let is_known = |name: &Arc<str>| servers.iter().any(|server| *server.name == **name);
        self.asked.retain(|name, _| is_known(name));
        self.out_of_reach.retain(is_known);
        let is_due = |server: &ApiServerClient| {
            let asked = self.asked.get(server.name.as_str());
            asked.is_none_or(|(at, waiting)| !waiting && now.since(*at) >= pause)
        };
        let due: Vec<ApiServerClient> = servers.into_iter().filter(is_due).collect();
        for server in &due {
            self.asked.insert(server.name.as_str().into(), (now, true));
        }
        due
    }

    /// Marks all answers as outdated: each API server is asked again at once, or as soon as it has answered the request in
    /// flight.
    pub(super) fn outdated(&mut self) {
        for (at, _) in self.asked.values_mut() {
            *at = Time::default();
        }
    }

    /// Records what one API server has in its cache. `concerned`: the hooks that the breaker deals with.
    pub(super) fn take(
        &mut self,
        observed: ObservedLists,
        concerned: BTreeSet<HookId>,
        now: Time,
    ) -> Vec<Observation> {
        let server = observed.server;
        if let Some((_, waiting)) = self.asked.get_mut(&server) {
            *waiting = false;
        }
        let lists = match observed.lists {
            Ok(lists) => {
                self.out_of_reach.remove(&server);
                self.answered.insert(Arc::clone(&server), now);
                lists
            }
            Err(why) => {
                if self.out_of_reach.insert(Arc::clone(&server)) {
                    tracing::warn!(%server, why, "an API server cannot be asked what it goes by");
                }
                return Vec::from_iter(self.servers(now));
            }
        };
        let mut observations = Vec::from_iter(self.servers(now));
        for hook in concerned {
            self.followed.insert(hook, now + LINGER);
        }
        for (kind, objects) in lists {
            observations.extend(self.list(&server, kind, &objects, now));
        }
        self.followed.retain(|_, until| now < *until);
        observations
    }

    /// The API servers that answer, if that set has changed.
    fn servers(&mut self, now: Time) -> Option<Observation> {
        self.answered.retain(|_, at| now.since(*at) < ANSWERS + CALM);
        let names: BTreeSet<Arc<str>> = self.answered.keys().cloned().collect();
        let news = names != self.told;
        self.told.clone_from(&names);
        news.then_some(Observation::Servers(names))
    }

    fn list(&mut self, server: &Arc<str>, kind: HookKind, objects: &[Value], now: Time) -> Vec<Observation> {
        let mut by_name: BTreeMap<&str, &Value> = BTreeMap::new();
        let mut observations = Vec::new();
        if kind == HookKind::Validating {
            self.frozen = None;
        }
        self.owners.retain(|(other, _), _| *other != kind);
        self.ignored.retain(|hook| hook.kind != kind);
        self.since.retain(|hook, _| hook.kind != kind);
        for object in objects {
            let Some(name) = object["metadata"]["name"].as_str() else {
                continue;
            };
            // The ledger is a ValidatingWebhookConfiguration too; it holds no webhooks.
            if kind == HookKind::Validating && name == ledger::OBJECT {
                let text = object["metadata"]["annotations"][ledger::ANNOTATION].as_str();
                let book = LedgerReading::of(text).book();
                self.frozen = book.ok().and_then(|book| book.frozen);
                let version = object["metadata"]["resourceVersion"].as_str();
                observations.extend(version.map(|it| Observation::LedgerShows(ResourceVersion::new(it))));
                continue;
            }
            by_name.insert(name, object);
            let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
            let owner = Owner {
                uid: uid.to_owned(),
                word: OwnerAnnotations::of(object),
            };
            self.owners.insert((kind, name.into()), owner);
            for (webhook, standing) in touched(object) {
                let hook = HookId::new(kind, name, &webhook);
                if let BypassStanding::Bypassed { entry, .. } = &standing
                    && let Some(since) = entry.since()
                {
                    self.since.insert(hook.clone(), since);
                }
                if standing.is_ignored() {
                    self.ignored.insert(hook.clone());
                }
                self.followed.insert(hook, now + LINGER);
            }
        }
        let followed: Vec<HookId> = self
            .followed
            .keys()
            .filter(|hook| hook.kind == kind)
            .cloned()
            .collect();
        for hook in followed {
            let object = by_name.get(&*hook.configuration).copied();
            let view = ObservedHook::of(object, &hook.webhook);
            let server = Arc::clone(server);
            observations.push(Observation::Shows { hook, server, view });
        }
        observations
    }
}
