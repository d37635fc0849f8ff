//! Stores what the watches have delivered and builds the [`Inventory`] from it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::convert::Problems;
use super::convert::service::{Slice, resolve};
use super::object::{WatchedKind, WatchedObject};
use crate::domain::cluster::hook::{Hook, HookKind, HookTarget, NamespacedName, ServiceState};
use crate::domain::cluster::inventory::{Inventory, Problem};
use crate::domain::time::Time;

/// The most problems listed in an inventory; of the rest only the number is given.
const MAX_PROBLEMS: usize = 200;

#[derive(Debug, Default)]
pub(super) struct WatchStore {
    objects: BTreeMap<WatchedKind, BTreeMap<NamespacedName, WatchedObject>>,
    /// By kind (Services, EndpointSlices): the Services that a finished list covered. Only of these does a missing object
    /// mean that it does not exist.
    covered: BTreeMap<WatchedKind, BTreeSet<NamespacedName>>,
}

impl WatchStore {
    /// Replaces all objects of a kind in `namespace` (`None`: in all) by those listed. Returns whether anything changed.
    pub(super) fn listed(
        &mut self,
        kind: WatchedKind,
        namespace: Option<&str>,
        wanted: &BTreeSet<NamespacedName>,
        objects: Vec<(NamespacedName, WatchedObject)>,
    ) -> bool {
        let known = self.objects.entry(kind).or_default();
        let (mut replaced, mut kept) = (BTreeMap::new(), BTreeMap::new());
        for (key, object) in std::mem::take(known) {
            match namespace {
                Some(namespace) if namespace != key.0 => kept.insert(key, object),
                _ => replaced.insert(key, object),
            };
        }
        let listed: BTreeMap<NamespacedName, WatchedObject> = objects.into_iter().collect();
        let changed = listed != replaced;
        kept.extend(listed);
        *known = kept;

        let covered = self.covered.entry(kind).or_default();
        let before = covered.len();
        covered.extend(wanted.iter().cloned());
        changed || covered.len() != before
    }

    /// Adds or replaces one object. Returns whether it differs from the known one.
    pub(super) fn changed(&mut self, kind: WatchedKind, key: NamespacedName, object: WatchedObject) -> bool {
        let known = self.objects.entry(kind).or_default();
        if known.get(&key) == Some(&object) {
            return false;
        }
        known.insert(key, object);
        true
    }

    /// Removes one object. Returns whether it was known.
    pub(super) fn gone(&mut self, kind: WatchedKind, key: &NamespacedName) -> bool {
        self.objects
            .get_mut(&kind)
            .is_some_and(|known| known.remove(key).is_some())
    }

    /// Every Service that a hook refers to, except the API server's own.
    pub(super) fn wanted(&self) -> BTreeSet<NamespacedName> {
        Self::watched(self.hooks())
            .into_iter()
            .filter_map(|hook| match &hook.target {
                HookTarget::Service(target) if !target.is_api_server() => Some(target.key()),
                _ => None,
            })
            .collect()
    }

    /// Removes Services and EndpointSlices that no hook refers to any more.
    pub(super) fn keep_only(&mut self, wanted: &BTreeSet<NamespacedName>) {
        for covered in self.covered.values_mut() {
            covered.retain(|key| wanted.contains(key));
        }
        if let Some(services) = self.objects.get_mut(&WatchedKind::Services) {
            services.retain(|key, _| wanted.contains(key));
        }
        if let Some(slices) = self.objects.get_mut(&WatchedKind::EndpointSlices) {
            slices.retain(|(namespace, _), object| match object {
                WatchedObject::Slice(slice) => wanted.contains(&(namespace.clone(), slice.service.clone())),
                _ => wanted.iter().any(|(wanted, _)| wanted == namespace),
            });
        }
    }

    /// Removes nodes that no hook depends on any more.
    pub(super) fn keep_nodes(&mut self, wanted: &BTreeSet<String>) {
        if let Some(nodes) = self.objects.get_mut(&WatchedKind::Nodes) {
            nodes.retain(|(_, name), _| wanted.contains(name));
        }
    }

    /// The hooks that are watched, out of all hooks sorted by identity. Beyond [`Inventory::MAX_HOOKS`], conversion webhooks and
    /// APIServices are dropped first, then the newest hooks: new hooks, however many, never displace an older hook.
    fn watched(mut hooks: Vec<&Hook>) -> Vec<&Hook> {
        hooks.dedup_by(|a, b| a.id == b.id);
        if hooks.len() > Inventory::MAX_HOOKS {
            hooks.sort_by_key(|hook| (!hook.id.kind.is_admission(), hook.created));
            hooks.truncate(Inventory::MAX_HOOKS);
            hooks.sort_by(|a, b| a.id.cmp(&b.id));
        }
        hooks
    }

    fn hooks(&self) -> Vec<&Hook> {
        let kinds = [
            WatchedKind::Mutating,
            WatchedKind::Validating,
            WatchedKind::Definitions,
            WatchedKind::Registrations,
        ]
        .into_iter()
        .filter_map(|kind| self.objects.get(&kind));
        let hooks = kinds.flat_map(BTreeMap::values).flat_map(|object| match object {
            WatchedObject::Hooks(hooks) => hooks.as_slice(),
            _ => &[],
        });
        let mut hooks: Vec<&Hook> = hooks.collect();
        hooks.sort_by(|a, b| a.id.cmp(&b.id));
        hooks
    }

    /// Builds the inventory. `why_unread` explains why the Services or EndpointSlices of a namespace have not been read.
    /// Hooks that have not changed since `before` share its allocation.
    pub(super) fn inventory(
        &self,
        at: Time,
        before: Option<&Inventory>,
        why_unread: impl Fn(WatchedKind, &str) -> String,
    ) -> Inventory {
        let mut problems = self.unreadable();
        let all = self.hooks();
        let count = all.len();
        problems.extend(names_used_twice(&all));
        if count > Inventory::MAX_HOOKS {
            problems.push(Problem {
                object: "all webhook configurations".to_owned(),
                what: format!(
                    "with CustomResourceDefinitions and APIServices they hold {} webhooks; hookwatch watches {} of \
                     them, those of admission first, and the oldest first",
                    count,
                    Inventory::MAX_HOOKS
                ),
            });
        }
        let slices = self.slices();
        let hooks = Self::watched(all)
            .into_iter()
            .map(|seed| {
                let hook = self.resolved(seed, &slices, &why_unread);
                match before.and_then(|before| before.hook(&hook.id)) {
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
                    WatchedObject::Namespace(labels) => Some((name.clone(), labels.clone())),
                    _ => None,
                })
                .collect(),
            nodes: self
                .of(WatchedKind::Nodes)
                .filter_map(|((_, name), object)| match object {
                    WatchedObject::Node(state) => Some((name.clone(), state.clone())),
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
        let HookTarget::Service(target) = &mut hook.target else {
            return hook;
        };
        if target.is_api_server() {
            target.service = ServiceState::Unknown {
                why: "it is the API server itself".to_owned(),
            };
            return hook;
        }
        let key = target.key();
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
                    "Service {}/{} does not exist; create it or correct {}",
                    key.0,
                    key.1,
                    match hook.id.kind {
                        HookKind::Aggregated => "spec.service",
                        _ => "clientConfig.service",
                    }
                ));
                ServiceState::Missing
            }
            (None, Some(WatchedObject::Service(service))) => {
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
        hook.problems.extend(problems.sentences);
        hook
    }

    fn slices(&self) -> BTreeMap<(&str, &str), Vec<&Slice>> {
        let mut by_service: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for ((namespace, _), object) in self.of(WatchedKind::EndpointSlices) {
            if let WatchedObject::Slice(slice) = object {
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
                WatchedObject::Unreadable(problem) => Some(problem.clone()),
                _ => None,
            })
            .collect()
    }

    fn of(&self, kind: WatchedKind) -> impl Iterator<Item = (&NamespacedName, &WatchedObject)> {
        self.objects.get(&kind).into_iter().flatten()
    }

    fn get(&self, kind: WatchedKind, key: &NamespacedName) -> Option<&WatchedObject> {
        self.objects.get(&kind)?.get(key)
    }
}

/// A problem for each webhook name that several configurations of a kind use: the API server's metrics and errors identify a
/// webhook only by its name. `hooks` are sorted by identity.
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::object::parse;
    use super::*;

    fn configuration(name: &str, webhooks: &[(&str, &str, &str)]) -> Value {
        let webhooks: Vec<_> = webhooks
            .iter()
            .map(|(name, namespace, service)| {
                json!({"name": name, "clientConfig": {"service": {"namespace": namespace, "name": service}},
                    "sideEffects": "None", "admissionReviewVersions": ["v1"], "rules": [{"operations": ["*"]}]})
            })
            .collect();
        json!({"metadata": {"name": name}, "webhooks": webhooks})
    }

    fn service(namespace: &str, name: &str) -> Value {
        json!({"metadata": {"namespace": namespace, "name": name},
            "spec": {"clusterIP": "10.96.0.7", "ports": [{"port": 443}]}})
    }

    fn slice(namespace: &str, name: &str, service: &str, ip: &str) -> Value {
        json!({"metadata": {"namespace": namespace, "name": name, "labels": {"kubernetes.io/service-name": service}},
            "addressType": "IPv4", "ports": [{"name": "", "port": 9443}], "endpoints": [{"addresses": [ip]}]})
    }

    /// A list of everything in the cluster, as the feed of that kind would hand it over.
    fn list(store: &mut WatchStore, kind: WatchedKind, namespace: Option<&str>, objects: &[Value]) -> bool {
        let wanted = store.wanted();
        let objects = objects
            .iter()
            .filter_map(|value| {
                let (key, _, object) = parse(kind, value.clone(), &wanted);
                Some((key, object?))
            })
            .collect();
        store.listed(kind, namespace, &wanted, objects)
    }

    fn inventory(store: &WatchStore) -> Inventory {
        store.inventory(Time::default(), None, |kind, namespace| {
            format!("{kind} of {namespace}: why")
        })
    }

    fn state(inventory: &Inventory, at: usize) -> &ServiceState {
        match &inventory.hooks[at].target {
            HookTarget::Service(target) => &target.service,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_what_a_hook_refers_to_is_kept() {
        let mut store = WatchStore::default();
        list(
            &mut store,
            WatchedKind::Validating,
            None,
            &[configuration("c", &[("w", "n", "s")])],
        );
        list(
            &mut store,
            WatchedKind::Services,
            None,
            &[service("n", "s"), service("n", "other"), service("other", "s")],
        );
        list(
            &mut store,
            WatchedKind::EndpointSlices,
            None,
            &[
                slice("n", "s-1", "s", "10.0.0.1"),
                slice("n", "x", "other", "10.0.0.2"),
            ],
        );
        assert_eq!(store.objects[&WatchedKind::Services].len(), 1);
        assert_eq!(store.objects[&WatchedKind::EndpointSlices].len(), 1);
        let inventory = inventory(&store);
        let ServiceState::Found { endpoints, .. } = state(&inventory, 0) else {
            panic!("{inventory:?}");
        };
        assert_eq!(endpoints.len(), 1);
        assert_eq!(inventory.problems, []);

        list(&mut store, WatchedKind::Validating, None, &[]);
        store.keep_only(&store.wanted());
        assert!(store.objects[&WatchedKind::Services].is_empty());
        assert!(store.objects[&WatchedKind::EndpointSlices].is_empty());
        assert!(store.covered.values().all(BTreeSet::is_empty));
    }

    #[test]
    fn absence_means_something_only_where_a_list_was_finished() {
        let mut store = WatchStore::default();
        let webhooks = [("a", "n", "s"), ("b", "default", "kubernetes")];
        list(
            &mut store,
            WatchedKind::Mutating,
            None,
            &[configuration("c", &webhooks)],
        );
        let unread = |store: &WatchStore| match state(&inventory(store), 0) {
            ServiceState::Unknown { why } => why.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(unread(&store), "Services of n: why");
        list(&mut store, WatchedKind::Services, Some("n"), &[]);
        assert_eq!(unread(&store), "EndpointSlices of n: why");
        list(&mut store, WatchedKind::EndpointSlices, Some("n"), &[]);
        let inventory = inventory(&store);
        assert_eq!(*state(&inventory, 0), ServiceState::Missing);
        assert!(inventory.hooks[0].problems[0].contains("Service n/s does not exist"));
        assert!(
            matches!(state(&inventory, 1), ServiceState::Unknown { why } if why.contains("API server itself"))
        );
    }

    #[test]
    fn a_list_of_one_namespace_leaves_the_others_alone() {
        let mut store = WatchStore::default();
        let webhooks = [("a", "n1", "s"), ("b", "n2", "s")];
        list(
            &mut store,
            WatchedKind::Mutating,
            None,
            &[configuration("c", &webhooks)],
        );
        assert!(list(
            &mut store,
            WatchedKind::Services,
            Some("n1"),
            &[service("n1", "s")]
        ));
        assert!(list(
            &mut store,
            WatchedKind::Services,
            Some("n2"),
            &[service("n2", "s")]
        ));
        assert!(
            !list(
                &mut store,
                WatchedKind::Services,
                Some("n2"),
                &[service("n2", "s")]
            ),
            "no news"
        );
        assert!(list(&mut store, WatchedKind::Services, Some("n1"), &[]));
        let names: Vec<_> = store.objects[&WatchedKind::Services].keys().collect();
        assert_eq!(names, [&("n2".to_owned(), "s".to_owned())]);
    }

    #[test]
    fn an_unreadable_object_is_reported_and_stops_nothing() {
        let mut store = WatchStore::default();
        let bad = json!({"metadata": {"name": "bad"}, "webhooks": [{"name": 7}]});
        list(
            &mut store,
            WatchedKind::Validating,
            None,
            &[bad, configuration("good", &[("w", "n", "s")])],
        );
        let inventory = inventory(&store);
        assert_eq!(inventory.hooks.len(), 1);
        assert_eq!(inventory.problems[0].object, "ValidatingWebhookConfiguration bad");
    }

    #[test]
    fn a_name_used_twice_is_reported_because_metrics_cannot_tell_them_apart() {
        let mut store = WatchStore::default();
        let both = [
            configuration("a", &[("w", "n", "s")]),
            configuration("b", &[("w", "n", "s"), ("x", "n", "s")]),
        ];
        list(&mut store, WatchedKind::Validating, None, &both);
        list(
            &mut store,
            WatchedKind::Mutating,
            None,
            &[configuration("m", &[("w", "n", "s")])],
        );
        let inventory = inventory(&store);
        assert_eq!(inventory.hooks.len(), 4);
        let [problem] = &inventory.problems[..] else {
            panic!("{:?}", inventory.problems);
        };
        assert_eq!(problem.object, "ValidatingWebhookConfiguration a");
        assert!(
            problem.what.contains("used 2 times (in \"a\", \"b\")"),
            "{problem:?}"
        );
    }

    #[test]
    fn hooks_beyond_the_bound_are_reported_and_those_within_are_sorted() {
        let mut store = WatchStore::default();
        let names: Vec<_> = (0..Inventory::MAX_HOOKS + 5)
            .map(|n| format!("w{n:05}"))
            .collect();
        let webhooks: Vec<_> = names.iter().rev().map(|name| (name.as_str(), "n", "s")).collect();
        list(
            &mut store,
            WatchedKind::Validating,
            None,
            &[configuration("c", &webhooks)],
        );
        let inventory = inventory(&store);
        assert_eq!(inventory.hooks.len(), Inventory::MAX_HOOKS);
        assert!(inventory.hooks.is_sorted_by(|a, b| a.id < b.id));
        assert!(inventory.problems[0].what.contains("5005 webhooks"));
    }

    #[test]
    fn ten_thousand_new_configurations_crowd_out_none_that_was_there_before() {
        let mut store = WatchStore::default();
        let made = |name: &str, service: &str, at: &str| {
            let mut object = configuration(name, &[(&format!("{name}.example.com"), "n", service)]);
            object["metadata"]["creationTimestamp"] = at.into();
            object
        };
        let flood = (0..10_000).map(|number| made(&format!("a{number:05}"), "flood", "2026-11-01T00:00:00Z"));
        let mutating: Vec<Value> = flood.collect();
        list(&mut store, WatchedKind::Mutating, None, &mutating);
        let old = [made("policy", "policy", "2025-01-01T00:00:00Z")];
        list(&mut store, WatchedKind::Validating, None, &old);
        let inventory = inventory(&store);
        assert_eq!(inventory.hooks.len(), Inventory::MAX_HOOKS);
        assert!(
            inventory
                .hooks
                .iter()
                .any(|hook| &*hook.id.configuration == "policy")
        );
        let policy = ("n".to_owned(), "policy".to_owned());
        assert!(store.wanted().contains(&policy), "its Service is looked at, too");
    }

    #[test]
    fn hooks_that_did_not_change_are_shared_with_the_inventory_before() {
        let mut store = WatchStore::default();
        let webhooks = [("a", "n", "s"), ("b", "n", "t")];
        list(
            &mut store,
            WatchedKind::Validating,
            None,
            &[configuration("c", &webhooks)],
        );
        list(
            &mut store,
            WatchedKind::Services,
            None,
            &[service("n", "s"), service("n", "t")],
        );
        list(&mut store, WatchedKind::EndpointSlices, None, &[]);
        let before = inventory(&store);
        let (key, _, object) = parse(
            WatchedKind::EndpointSlices,
            slice("n", "t-1", "t", "10.0.0.1"),
            &store.wanted(),
        );
        assert!(store.changed(WatchedKind::EndpointSlices, key, object.expect("wanted")));
        let after = store.inventory(Time::default(), Some(&before), |_, _| String::new());
        assert!(Arc::ptr_eq(&before.hooks[0], &after.hooks[0]));
        assert!(!Arc::ptr_eq(&before.hooks[1], &after.hooks[1]));
    }

    #[test]
    fn namespaces_keep_their_labels_only() {
        let mut store = WatchStore::default();
        let namespaces = [
            json!({"metadata": {"name": "a", "labels": {"team": "x"}, "annotations": {"big": "..."}}}),
            json!({"metadata": {"name": "b"}}),
        ];
        list(&mut store, WatchedKind::Namespaces, None, &namespaces);
        let inventory = inventory(&store);
        assert_eq!(inventory.namespaces["a"]["team"], "x");
        assert!(inventory.namespaces["b"].is_empty());
    }
}
