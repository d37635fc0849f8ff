//! Every object of the control plane, with one revision counter for all of them and a bounded history for watches.
//!
//! Stands in for etcd and the API server's watch cache. It does no admission or validation, and adds no latency:
//! [`super::knobs`] simulates how long etcd takes.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::watch;

use super::kinds::ServedKind;

/// How many changes are remembered. A watch that falls further behind gets `410 Expired`.
const HISTORY: usize = 8_192;

#[derive(Debug)]
pub(super) struct StoredObject {
    /// The whole object, with `apiVersion` and `kind`.
    pub object: Value,
    /// The same as JSON without `apiVersion` and `kind`, the form in a list. Cached because a flood of LISTs would
    /// otherwise spend real CPU on encoding the same objects again.
    pub item: Bytes,
    /// Its resourceVersion.
    pub revision: u64,
}

/// The type of a watch event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventType {
    Added,
    Modified,
    Deleted,
}

/// One entry of the history.
#[derive(Debug)]
pub(super) struct StoreEvent {
    pub kind: &'static ServedKind,
    pub event_type: EventType,
    /// The object after the change; for a deletion as it was, with the deletion's resourceVersion.
    pub object: Arc<StoredObject>,
    /// The object before the change.
    pub previous: Option<Arc<StoredObject>>,
}

/// Why a write changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteError {
    AlreadyExists,
    NotFound,
    /// The object's revision is not the expected one.
    Conflict,
}

/// The history no longer reaches back that far; the watch ends with 410 Expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Expired {
    /// The oldest revision after which a watch can still start.
    pub compacted: u64,
}

type StoreKey = (&'static str, &'static str, String, String);

#[derive(Debug, Default)]
struct StoreContents {
    revision: u64,
    objects: BTreeMap<StoreKey, Arc<StoredObject>>,
    history: VecDeque<Arc<StoreEvent>>,
    /// Changes up to and including this revision are dropped, as by a compaction in etcd.
    compacted: u64,
    /// The revision of the newest change, by group and resource.
    touched: BTreeMap<(&'static str, &'static str), u64>,
}

#[derive(Debug)]
pub(super) struct ObjectStore {
    inner: Mutex<StoreContents>,
    revision: watch::Sender<u64>,
}

fn key(kind: &'static ServedKind, namespace: &str, name: &str) -> StoreKey {
    (kind.group, kind.resource, namespace.to_owned(), name.to_owned())
}

impl ObjectStore {
    pub(super) fn new() -> Self {
        // A fresh etcd is at revision 1, so the first object gets 2. In a request, resourceVersion 0 means "any".
        let inner = StoreContents {
            revision: 1,
            compacted: 1,
            ..StoreContents::default()
        };
        Self {
            inner: Mutex::new(inner),
            revision: watch::Sender::new(1),
        }
    }

    fn lock(&self) -> MutexGuard<'_, StoreContents> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The newest resourceVersion.
    pub(super) fn revision(&self) -> u64 {
        self.lock().revision
    }

    /// The revision of the newest change to any object of that kind; 0 when there was none.
    pub(super) fn touched(&self, kind: &'static ServedKind) -> u64 {
        self.lock()
            .touched
            .get(&(kind.group, kind.resource))
            .copied()
            .unwrap_or_default()
    }

    /// A receiver that wakes whenever the revision changes.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    pub(super) fn get(
        &self,
        kind: &'static ServedKind,
        namespace: &str,
        name: &str,
    ) -> Option<Arc<StoredObject>> {
        self.lock().objects.get(&key(kind, namespace, name)).cloned()
    }

    /// The store's revision, and at that revision all objects of a kind, in one namespace or in all.
    pub(super) fn list(
        &self,
        kind: &'static ServedKind,
        namespace: Option<&str>,
    ) -> (u64, Vec<Arc<StoredObject>>) {
        let inner = self.lock();
        let from = key(kind, namespace.unwrap_or_default(), "");
        let objects = inner
            .objects
            .range((Bound::Included(from), Bound::Unbounded))
            .take_while(|((group, resource, object_namespace, _), _)| {
                *group == kind.group
                    && *resource == kind.resource
                    && namespace.is_none_or(|namespace| namespace == object_namespace)
            })
            .map(|(_, stored)| Arc::clone(stored))
            .collect();
        (inner.revision, objects)
    }

    pub(super) fn create(
        &self,
        kind: &'static ServedKind,
        namespace: &str,
        name: &str,
        object: Value,
    ) -> Result<Arc<StoredObject>, WriteError> {
        let mut inner = self.lock();
        let key = key(kind, namespace, name);
        if inner.objects.contains_key(&key) {
            return Err(WriteError::AlreadyExists);
        }
        let stored = inner.stamp(object);
        inner.objects.insert(key, Arc::clone(&stored));
        self.remember(&mut inner, kind, EventType::Added, &stored, None);
        Ok(stored)
    }

    /// Replaces an object that still has the version `expected`.
    pub(super) fn replace(
        &self,
        kind: &'static ServedKind,
        namespace: &str,
        name: &str,
        expected: u64,
        object: Value,
    ) -> Result<Arc<StoredObject>, WriteError> {
        let mut inner = self.lock();
        let key = key(kind, namespace, name);
        let previous = inner.at_revision(&key, expected)?;
        let stored = inner.stamp(object);
        inner.objects.insert(key, Arc::clone(&stored));
        self.remember(&mut inner, kind, EventType::Modified, &stored, Some(previous));
        Ok(stored)
    }

    /// Removes an object that still has the version `expected`; returns it with the revision of the deletion.
    pub(super) fn remove(
        &self,
        kind: &'static ServedKind,
        namespace: &str,
        name: &str,
        expected: u64,
    ) -> Result<Arc<StoredObject>, WriteError> {
        let mut inner = self.lock();
        let key = key(kind, namespace, name);
        let previous = inner.at_revision(&key, expected)?;
        inner.objects.remove(&key);
        let stored = inner.stamp(previous.object.clone());
        self.remember(&mut inner, kind, EventType::Deleted, &stored, Some(previous));
        Ok(stored)
    }

    /// The changes of one kind after a revision, at most `limit`, and the revision to continue from.
    pub(super) fn changes(
        &self,
        kind: &'static ServedKind,
        after: u64,
        limit: usize,
    ) -> Result<(Vec<Arc<StoreEvent>>, u64), Expired> {
        let inner = self.lock();
        if after < inner.compacted {
            return Err(Expired {
                compacted: inner.compacted,
            });
        }
        let begin = inner
            .history
            .partition_point(|change| change.object.revision <= after);
        let mut found = Vec::new();
        for change in inner.history.range(begin..) {
            if change.kind == kind {
                found.push(Arc::clone(change));
                if found.len() == limit {
                    return Ok((found, change.object.revision));
                }
            }
        }
        Ok((found, inner.revision.max(after)))
    }

    /// Drops the history, so that every open watch, and every later one from an older revision, ends with 410 Expired.
    pub(super) fn forget_history(&self) {
        let mut inner = self.lock();
        // A new revision without a change, so that even a watch that was up to date is now behind.
        inner.revision += 1;
        inner.compacted = inner.revision;
        inner.history.clear();
        self.revision.send_replace(inner.revision);
    }

    fn remember(
        &self,
        inner: &mut StoreContents,
        kind: &'static ServedKind,
        event_type: EventType,
        object: &Arc<StoredObject>,
        previous: Option<Arc<StoredObject>>,
    ) {
        if inner.history.len() == HISTORY
            && let Some(dropped) = inner.history.pop_front()
        {
            inner.compacted = dropped.object.revision;
        }
        inner.touched.insert((kind.group, kind.resource), object.revision);
        inner.history.push_back(Arc::new(StoreEvent {
            kind,
            event_type,
            object: Arc::clone(object),
            previous,
        }));
        self.revision.send_replace(inner.revision);
    }
}

impl StoreContents {
    /// Advances the revision and writes it into the object's `metadata.resourceVersion`.
    fn stamp(&mut self, mut object: Value) -> Arc<StoredObject> {
        self.revision += 1;
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("resourceVersion".into(), self.revision.to_string().into());
        }
        Arc::new(StoredObject::new(object, self.revision))
    }

    /// The object, if it still has this revision.
    fn at_revision(&self, key: &StoreKey, revision: u64) -> Result<Arc<StoredObject>, WriteError> {
        let current = self.objects.get(key).ok_or(WriteError::NotFound)?;
        if current.revision == revision {
            Ok(Arc::clone(current))
        } else {
            Err(WriteError::Conflict)
        }
    }
}

impl StoredObject {
    /// An object with its encoding.
    pub(super) fn new(object: Value, revision: u64) -> Self {
        let item = match object.as_object() {
            Some(fields) => {
                let mut bare = fields.clone();
                bare.remove("apiVersion");
                bare.remove("kind");
                Bytes::from(Value::Object(bare).to_string())
            }
            None => Bytes::from_static(b"{}"),
        };
        Self {
            object,
            item,
            revision,
        }
    }

    /// The whole object as JSON: `item` with `kind` and `apiVersion` spliced in after its opening brace.
    pub(super) fn encode(&self, kind: &ServedKind) -> Bytes {
        let head = format!(
            "{{\"kind\":\"{}\",\"apiVersion\":\"{}\",",
            kind.kind,
            kind.api_version()
        );
        let mut whole = Vec::with_capacity(head.len() + self.item.len());
        whole.extend_from_slice(head.as_bytes());
        whole.extend_from_slice(self.item.get(1..).unwrap_or(b"}"));
        Bytes::from(whole)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::lab::api::kinds::{NAMESPACE, SERVICE};

    fn object(name: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}})
    }

    #[test]
    fn every_write_gets_the_next_version_of_the_whole_store() {
        let store = ObjectStore::new();
        let a = store.create(SERVICE, "x", "a", object("a")).expect("created");
        let b = store.create(NAMESPACE, "", "b", object("b")).expect("created");
        assert_eq!((a.revision, b.revision), (2, 3));
        assert_eq!(b.object["metadata"]["resourceVersion"], "3");
        assert_eq!(store.touched(SERVICE), 2);
    }

    #[test]
    fn a_write_with_an_old_version_does_nothing() {
        let store = ObjectStore::new();
        let first = store.create(SERVICE, "x", "a", object("a")).expect("created");
        let second = store
            .replace(SERVICE, "x", "a", first.revision, object("a"))
            .expect("replaced");
        let stale = store.replace(SERVICE, "x", "a", first.revision, object("a"));
        assert_eq!(stale.err(), Some(WriteError::Conflict));
        assert_eq!(
            store.remove(SERVICE, "x", "a", first.revision).err(),
            Some(WriteError::Conflict)
        );
        assert_eq!(
            store.get(SERVICE, "x", "a").map(|stored| stored.revision),
            Some(second.revision)
        );
    }

    #[test]
    fn a_list_holds_one_kind_of_one_namespace_or_of_all() {
        let store = ObjectStore::new();
        for (namespace, name) in [("a", "one"), ("b", "two"), ("ab", "three")] {
            store
                .create(SERVICE, namespace, name, object(name))
                .expect("created");
        }
        store.create(NAMESPACE, "", "a", object("a")).expect("created");
        assert_eq!(store.list(SERVICE, None).1.len(), 3);
        assert_eq!(store.list(SERVICE, Some("a")).1.len(), 1);
        assert_eq!(store.list(NAMESPACE, None).1.len(), 1);
    }

    #[test]
    fn changes_are_told_in_order_from_where_the_watch_left_off() {
        let store = ObjectStore::new();
        let a = store.create(SERVICE, "x", "a", object("a")).expect("created");
        store.create(NAMESPACE, "", "n", object("n")).expect("created");
        store.remove(SERVICE, "x", "a", a.revision).expect("removed");
        let (changes, upto) = store.changes(SERVICE, 1, 1).expect("remembered");
        assert_eq!(
            changes.iter().map(|c| c.event_type).collect::<Vec<_>>(),
            [EventType::Added]
        );
        let (changes, upto) = store.changes(SERVICE, upto, 10).expect("remembered");
        assert_eq!(
            changes.iter().map(|c| c.event_type).collect::<Vec<_>>(),
            [EventType::Deleted]
        );
        assert_eq!(upto, store.revision());
    }

    #[test]
    fn history_is_bounded_and_says_where_it_begins() {
        let store = ObjectStore::new();
        let mut revision = store
            .create(SERVICE, "x", "a", object("a"))
            .expect("created")
            .revision;
        for _ in 0..HISTORY {
            revision = store
                .replace(SERVICE, "x", "a", revision, object("a"))
                .expect("replaced")
                .revision;
        }
        assert_eq!(store.changes(SERVICE, 1, 1).err(), Some(Expired { compacted: 2 }));
        assert!(store.changes(SERVICE, 2, 1).is_ok());
        store.forget_history();
        assert!(store.changes(SERVICE, revision, 1).is_err());
    }
}
