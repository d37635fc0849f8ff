//! Everything the watches have delivered, and how an [`Inventory`] is made of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::convert::Problems;
use super::convert::service::{Slice, resolve};
use super::object::{Key, Object, WatchedKind};
use crate::domain::hook::{Hook, HookKind, ServiceState, Target};
use crate::domain::inventory::{Inventory, Problem};
use crate::domain::time::Time;

/// Problems beyond this number are counted only.
const MAX_PROBLEMS: usize = 200;

/// What the watches have delivered.
#[derive(Debug, Default)]
pub(super) struct Store {
    objects: BTreeMap<WatchedKind, BTreeMap<Key, Object>>,
    /// Services whose own object, or whose EndpointSlices, a finished list covers. Only for these does
    /// absence mean anything.
    covered: BTreeMap<WatchedKind, BTreeSet<Key>>,
}

impl Store {
    /// Takes a whole list in; says whether anything changed.
    pub(super) fn listed(
        &mut self,
        kind: WatchedKind,
        namespace: Option<&str>,
        wanted: &BTreeSet<Key>,
        objects: Vec<(Key, Object)>,
    ) -> bool {
        let known = self.objects.entry(kind).or_default();
        let (mut replaced, mut kept) = (BTreeMap::new(), BTreeMap::new());
        for (key, object) in std::mem::take(known) {
            match namespace {
                Some(namespace) if namespace != key.0 => kept.insert(key, object),
                _ => replaced.insert(key, object),
            };
        }
        let listed: BTreeMap<Key, Object> = objects.into_iter().collect();
        let changed = listed != replaced;
        kept.extend(listed);
        *known = kept;

        let covered = self.covered.entry(kind).or_default();
        let before = covered.len();
        covered.extend(wanted.iter().cloned());
        changed || covered.len() != before
    }

    /// Takes one object in; says whether that is news.
    pub(super) fn changed(&mut self, kind: WatchedKind, key: Key, object: Object) -> bool {
        let known = self.objects.entry(kind).or_default();
        if known.get(&key) == Some(&object) {
            return false;
        }
        known.insert(key, object);
        true
    }

    /// Forgets one object; says whether it was known.
    pub(super) fn gone(&mut self, kind: WatchedKind, key: &Key) -> bool {
        self.objects
            .get_mut(&kind)
            .is_some_and(|known| known.remove(key).is_some())
    }

    /// Every Service that a hook refers to, except the API server's own.
    pub(super) fn wanted(&self) -> BTreeSet<Key> {
        self.hooks()
            .filter_map(|hook| match &hook.target {
                Target::Service(target) if !is_api_server(&target.namespace, &target.name) => {
                    Some((target.namespace.clone(), target.name.clone()))
                }
                _ => None,
            })
            .take(Inventory::MAX_HOOKS)
            .collect()
    }

    /// Forgets Services and EndpointSlices that no hook refers to any more.
    pub(super) fn keep_only(&mut self, wanted: &BTreeSet<Key>) {
        for covered in self.covered.values_mut() {
            covered.retain(|key| wanted.contains(key));
        }
        if let Some(services) = self.objects.get_mut(&WatchedKind::Services) {
            services.retain(|key, _| wanted.contains(key));
        }
        if let Some(slices) = self.objects.get_mut(&WatchedKind::EndpointSlices) {
            slices.retain(|(namespace, _), object| match object {
                Object::Slice(slice) => wanted.contains(&(namespace.clone(), slice.service.clone())),
                _ => wanted.iter().any(|(wanted, _)| wanted == namespace),
            });
        }
    }

    fn hooks(&self) -> impl Iterator<Item = &Hook> {
        [WatchedKind::Mutating, WatchedKind::Validating]
            .into_iter()
            .filter_map(|kind| self.objects.get(&kind))
            .flat_map(BTreeMap::values)
            .flat_map(|object| match object {
                Object::Hooks(hooks) => hooks.as_slice(),
                _ => &[],
            })
    }

    /// Puts the inventory together. `why_unread` explains why a Service, or its EndpointSlices, in a namespace
    /// have not been read. Hooks that are as `before` are shared with it.
    pub(super) fn inventory(
        &self,
        at: Time,
        before: Option<&Inventory>,
        why_unread: impl Fn(WatchedKind, &str) -> String,
    ) -> Inventory {
        let mut problems = self.unreadable();
        let mut seeds: Vec<&Hook> = self.hooks().collect();
        seeds.sort_by(|a, b| a.id.cmp(&b.id));
        problems.extend(names_used_twice(&seeds));
        seeds.dedup_by(|a, b| a.id == b.id);
        if seeds.len() > Inventory::MAX_HOOKS {
            problems.push(Problem {
                object: "all webhook configurations".to_owned(),
                what: format!(
                    "they hold {} webhooks; hookwatch watches {} of them, in the order of their names",
                    seeds.len(),
                    Inventory::MAX_HOOKS
                ),
            });
            seeds.truncate(Inventory::MAX_HOOKS);
        }
        let slices = self.slices();
        let hooks = seeds
            .into_iter()
            .map(|seed| {
                let hook = self.resolved(seed, &slices, &why_unread);
                let known = before.and_then(|before| {
                    let at = before.hooks.binary_search_by(|known| known.id.cmp(&hook.id));
                    at.ok().map(|at| &before.hooks[at])
                });
                match known {
                    Some(known) if **known == hook => Arc::clone(known),
                    _ => Arc::new(hook),
                }
            })
            .collect();
        Inventory {
            at,
            hooks,
            namespaces: self
                .of(WatchedKind::Namespaces)
                .filter_map(|((_, name), object)| match object {
                    Object::Namespace(labels) => Some((name.clone(), labels.clone())),
                    _ => None,
                })
                .collect(),
            problems: bounded(problems),
        }
    }

    fn resolved(
        &self,
        seed: &Hook,
        slices: &BTreeMap<(&str, &str), Vec<&Slice>>,
        why_unread: &impl Fn(WatchedKind, &str) -> String,
    ) -> Hook {
        let mut hook = seed.clone();
        let Target::Service(target) = &mut hook.target else {
            return hook;
        };
        if is_api_server(&target.namespace, &target.name) {
            target.service = ServiceState::Unknown {
                why: "it is the API server itself".to_owned(),
            };
            return hook;
        }
        let key: Key = (target.namespace.clone(), target.name.clone());
        let unread = [WatchedKind::Services, WatchedKind::EndpointSlices]
            .into_iter()
            .find(|kind| !self.covered.get(kind).is_some_and(|keys| keys.contains(&key)));
        let mut problems = Problems::of(&hook.id);
        target.service = match (unread, self.get(WatchedKind::Services, &key)) {
            (Some(kind), _) => ServiceState::Unknown {
                why: why_unread(kind, &key.0),
            },
            (None, None) => {
                problems.add(format!(
                    "Service {}/{} does not exist; create it or correct clientConfig.service",
                    key.0, key.1
                ));
                ServiceState::Missing
            }
            (None, Some(Object::Service(service))) => {
                let slices = slices.get(&(key.0.as_str(), key.1.as_str()));
                resolve(
                    target,
                    service,
                    slices.into_iter().flatten().copied(),
                    &mut problems,
                )
            }
            (None, Some(_)) => ServiceState::Unknown {
                why: "its object cannot be read".to_owned(),
            },
        };
        hook.problems.extend(problems.into_sentences());
        hook
    }

    fn slices(&self) -> BTreeMap<(&str, &str), Vec<&Slice>> {
        let mut by_service: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for ((namespace, _), object) in self.of(WatchedKind::EndpointSlices) {
            if let Object::Slice(slice) = object {
                by_service
                    .entry((namespace.as_str(), slice.service.as_str()))
                    .or_default()
                    .push(slice);
            }
        }
        by_service
    }

    fn unreadable(&self) -> Vec<Problem> {
        self.objects
            .values()
            .flat_map(BTreeMap::values)
            .filter_map(|object| match object {
                Object::Unreadable(problem) => Some(problem.clone()),
                _ => None,
            })
            .collect()
    }

    fn of(&self, kind: WatchedKind) -> impl Iterator<Item = (&Key, &Object)> {
        self.objects.get(&kind).into_iter().flatten()
    }

    fn get(&self, kind: WatchedKind, key: &Key) -> Option<&Object> {
        self.objects.get(&kind)?.get(key)
    }
}

/// `default/kubernetes` is routed to the API server's own loopback with its own credentials
/// (kubernetes 1.36, `cmd/kube-apiserver/app/server.go`); probing it would say nothing about the hook.
fn is_api_server(namespace: &str, name: &str) -> bool {
    namespace == "default" && name == "kubernetes"
}

/// The API server's metrics and errors know a webhook by its name only. `hooks` are sorted by identity.
fn names_used_twice(hooks: &[&Hook]) -> Vec<Problem> {
    let mut by_name: BTreeMap<(HookKind, &str), Vec<&str>> = BTreeMap::new();
    for hook in hooks {
        by_name
            .entry((hook.id.kind, &hook.id.webhook))
            .or_default()
            .push(&hook.id.configuration);
    }
    by_name
        .into_iter()
        .filter(|(_, configurations)| configurations.len() > 1)
        .map(|((kind, webhook), configurations)| {
            let kind = kind.configuration_kind();
            let quoted: Vec<_> = configurations
                .iter()
                .take(5)
                .map(|it| format!("{it:?}"))
                .collect();
            Problem {
                object: format!("{kind} {}", configurations[0]),
                what: format!(
                    "{kind} {:?}, webhook {webhook:?}: the name is used {} times (in {}); the API server's \
                     metrics and errors cannot tell them apart, so rename all but one",
                    configurations[0],
                    configurations.len(),
                    quoted.join(", ")
                ),
            }
        })
        .collect()
}

fn bounded(mut problems: Vec<Problem>) -> Vec<Problem> {
    problems.sort();
    if problems.len() > MAX_PROBLEMS {
        let left_out = problems.len() - MAX_PROBLEMS;
        problems.truncate(MAX_PROBLEMS);
        problems.push(Problem {
            object: "further objects".to_owned(),
            what: format!("{left_out} more problems are not listed"),
        });
    }
    problems
}
