//! The inventory: every hook with the addresses behind it, kept up to date by watches.
//!
//! CustomResourceDefinitions and APIServices also contain hooks; they are trimmed while they are parsed. The inventory
//! does not wait for them and works without them if they cannot be read.
//!
//! Services and EndpointSlices are watched only in namespaces with a Service that a hook refers to, one watch per namespace
//! and kind, with a selector if it is short. The API server does not send the cluster's thousands of other objects. Above
//! [`MAX_NAMESPACES`] namespaces the connections would cost more than they save, so one watch per kind reads the whole
//! cluster, and unrelated objects are dropped.
//!
//! While a watch is broken the objects it last delivered stay in use; [`InventoryView::watches`] says how old they are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

use crate::domain::cluster::hook::NamespacedName;
use crate::domain::cluster::inventory::{Inventory, InventoryHealth, WatchReport};
use crate::domain::time::Time;
use crate::io::Clock;
use crate::io::client::Connection;

mod backoff;
pub mod convert;
mod feed;
mod lean;
mod lines;
pub(super) mod object;
mod page;
mod store;

use feed::{Feed, FeedSpec, FeedUpdate};
use object::WatchedKind;
use store::WatchStore;

/// The most namespaces whose Services and EndpointSlices are watched one namespace at a time. With more, the watches are
/// cluster-wide.
pub const MAX_NAMESPACES: usize = 50;
/// The shortest time between two publications of changes, so that a burst is published together.
const COALESCE: Duration = Duration::from_millis(100);
/// The shortest time between two publications if only the watches' last known-good times have changed.
const FRESHNESS: Duration = Duration::from_secs(1);
/// Capacity of the queue of feed updates. A feed waits while it is full.
const QUEUE: usize = 256;

/// The hooks of the cluster as last read, with the state of each watch.
#[derive(Debug, Clone)]
pub struct InventoryView {
    /// The hooks; `None` until every watch but those of CustomResourceDefinitions and APIServices has listed or failed once,
    /// and at least one kind of webhook configuration was read or reading it was refused.
    pub inventory: Option<Arc<Inventory>>,
    /// The health of each watch and when it was last known to be good.
    pub watches: Vec<WatchReport>,
}

/// The running watches; dropping this stops them.
#[derive(Debug)]
pub struct InventoryWatch {
    view: watch::Receiver<InventoryView>,
    _task: JoinSet<()>,
}

impl InventoryWatch {
    /// Starts watching and returns at once. The first inventory is published as soon as it is complete.
    /// Must be called inside a tokio runtime.
    pub fn start(connection: &Connection, clock: Clock) -> Self {
        let (publisher, view) = watch::channel(InventoryView {
            inventory: None,
            watches: Vec::new(),
        });
        let (keeper, arriving) = Keeper::new(connection, clock, publisher);
        Self {
            view,
            _task: JoinSet::from_iter([keeper.run(arriving)]),
        }
    }

    /// A receiver that always holds the newest view.
    pub fn subscribe(&self) -> watch::Receiver<InventoryView> {
        self.view.clone()
    }
}

/// Why a publication is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum PendingPublication {
    Nothing,
    /// A watch reported that it is alive; nothing changed.
    Freshness,
    /// A watch's health or objects changed.
    Change,
}

type FeedKey = (WatchedKind, Option<String>);

struct RunningWatch {
    number: u64,
    wanted: Arc<BTreeSet<NamespacedName>>,
    health: InventoryHealth,
    known_good: Option<Time>,
    /// Whether the watch has reported anything so far, be it objects or a failure.
    settled: bool,
    task: AbortHandle,
}

impl Drop for RunningWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Owns the store and the feeds. Only its own loop changes them.
struct Keeper {
    client: Client,
    clock: Clock,
    store: WatchStore,
    feeds: BTreeMap<FeedKey, RunningWatch>,
    tasks: JoinSet<()>,
    numbers: u64,
    news: mpsc::Sender<(u64, FeedUpdate)>,
    publisher: watch::Sender<InventoryView>,
    inventory: Option<Arc<Inventory>>,
    pending: PendingPublication,
    published: Option<Instant>,
}

impl Keeper {
    fn new(
        connection: &Connection,
        clock: Clock,
        publisher: watch::Sender<InventoryView>,
    ) -> (Self, mpsc::Receiver<(u64, FeedUpdate)>) {
        let (news, arriving) = mpsc::channel(QUEUE);
        let keeper = Self {
            client: connection.watches().clone(),
            clock,
            store: WatchStore::default(),
            feeds: BTreeMap::new(),
            tasks: JoinSet::new(),
            numbers: 0,
            news,
            publisher,
            inventory: None,
            pending: PendingPublication::Nothing,
            published: None,
        };
        (keeper, arriving)
    }

    async fn run(mut self, mut arriving: mpsc::Receiver<(u64, FeedUpdate)>) {
        self.arrange_feeds();
        loop {
            let due = self.due();
            tokio::select! {
                news = arriving.recv() => {
                    // The sender in `self` keeps the channel open.
                    let Some((number, news)) = news else { return };
                    self.take(number, news);
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => self.publish(),
                () = self.publisher.closed() => return,
                // A feed that panicked must not go unnoticed: its objects would look current for as long as hookwatch runs.
                Some(Err(ended)) = self.tasks.join_next() => {
                    if ended.is_panic() {
                        std::panic::resume_unwind(ended.into_panic());
                    }
                }
            }
        }
    }

    fn due(&self) -> Option<Instant> {
        let apart = match self.pending {
            PendingPublication::Nothing => return None,
            PendingPublication::Change if self.inventory.is_none() && self.is_complete() => Duration::ZERO,
            PendingPublication::Change => COALESCE,
            PendingPublication::Freshness => FRESHNESS,
        };
        Some(self.published.map_or_else(Instant::now, |last| last + apart))
    }

    fn take(&mut self, number: u64, news: FeedUpdate) {
        let Some((key, running)) = self.feeds.iter_mut().find(|(_, it)| it.number == number) else {
            // A late update of a feed that was stopped.
            return;
        };
        let (kind, namespace) = (key.0, key.1.as_deref());
        let health = match &news {
            // A broken watch of CustomResourceDefinitions or APIServices does not make the inventory stale: no guard rail
            // depends on those, and the Services behind them have watches of their own.
            FeedUpdate::Broken(why) if !kind.is_beside_admission() => {
                InventoryHealth::Stale { why: why.clone() }
            }
            FeedUpdate::Broken(why) | FeedUpdate::Refused(why) => {
                InventoryHealth::Limited { why: why.clone() }
            }
            // `Alive` counts too: a watch that is resumed does not list again, and its objects are still in the store.
            _ => InventoryHealth::Current,
        };
        let mut pending = PendingPublication::Freshness;
        if health == InventoryHealth::Current {
            running.known_good = Some((self.clock)());
        }
        if running.health != health || !running.settled {
            pending = PendingPublication::Change;
        }
        running.health = health;
        running.settled = true;

        let is_news = match news {
            FeedUpdate::Listed(objects) => self.store.listed(kind, namespace, &running.wanted, objects),
            FeedUpdate::Changed(key, object) => self.store.changed(kind, key, object),
            FeedUpdate::Gone(key) => self.store.gone(kind, &key),
            FeedUpdate::Alive | FeedUpdate::Broken(_) | FeedUpdate::Refused(_) => false,
        };
        if is_news {
            pending = PendingPublication::Change;
            if kind.is_admission() || kind.is_beside_admission() {
                self.arrange_feeds();
            }
        }
        self.pending = self.pending.max(pending);
    }

    /// Whether the nodes to watch, those with all endpoints of a hook, differ from the nodes that are watched.
    fn nodes_moved(&self) -> bool {
        let watched = self.feeds.keys().filter(|(kind, _)| *kind == WatchedKind::Nodes);
        let watched: BTreeSet<&String> = watched.filter_map(|(_, node)| node.as_ref()).collect();
        let inventory = self.inventory.as_ref();
        inventory.is_some_and(|inventory| !inventory.decisive_nodes().iter().eq(watched))
    }

    /// Starts the feeds that are needed now and stops the others.
    fn arrange_feeds(&mut self) {
        let wanted = self.store.wanted();
        self.store.keep_only(&wanted);
        let nodes = self
            .inventory
            .as_ref()
            .map(|inventory| inventory.decisive_nodes());
        let nodes = nodes.unwrap_or_default();
        self.store.keep_nodes(&nodes);
        let needed = needed_feeds(&wanted, nodes);
        for (key, wanted) in &needed {
            let running = self.feeds.get(key);
            if running.is_none_or(|running| *running.wanted != *wanted) {
                self.start_feed(key.clone(), wanted.clone());
            }
        }
        self.feeds.retain(|key, _| needed.contains_key(key));
    }

    /// The feed that a new feed for `key` replaces: the one with the same key. Without one, and when watches change between
    /// cluster-wide and per namespace, the feed of this kind with the oldest known-good time.
    fn predecessor(&self, key: &FeedKey) -> Option<&RunningWatch> {
        let overlapping = self.feeds.iter().filter(|((kind, namespace), running)| {
            *kind == key.0 && (namespace.is_none() || key.1.is_none()) && running.known_good.is_some()
        });
        let oldest = || {
            overlapping
                .map(|(_, running)| running)
                .min_by_key(|it| it.known_good)
        };
        self.feeds.get(key).or_else(oldest)
    }

    /// Starts a feed. It replaces its predecessor, whose objects stay in the store until the new feed has listed them.
    fn start_feed(&mut self, key: FeedKey, wanted: BTreeSet<NamespacedName>) {
        let before = self.predecessor(&key);
        // The new feed keeps its predecessor's health: what was read before is as good as it was. `WatchStore::covered` tracks
        // which of the wanted Services have not been read yet.
        let (health, known_good, settled) = before.map_or((InventoryHealth::Starting, None, false), |it| {
            (it.health.clone(), it.known_good, it.settled)
        });
        // A list from the API server's cache could be older than what was read before.
        let again = known_good.is_some();
        let wanted = Arc::new(wanted);
        self.numbers += 1;
        let feed = Feed {
            client: self.client.clone(),
            spec: FeedSpec {
                kind: key.0,
                namespace: key.1.clone().filter(|_| key.0 != WatchedKind::Nodes),
                wanted: Arc::clone(&wanted),
            },
            again,
            number: self.numbers,
            news: self.news.clone(),
        };
        let running = RunningWatch {
            number: self.numbers,
            wanted,
            health,
            known_good,
            settled,
            task: self.tasks.spawn(feed.run()),
        };
        self.feeds.insert(key, running);
    }

    /// Whether an inventory can be made: at least one kind of webhook configuration was read or refused, and every feed has
    /// reported something, except those of CustomResourceDefinitions and APIServices.
    fn is_complete(&self) -> bool {
        let configurations_known = self.feeds.iter().any(|((kind, _), running)| {
            let known = matches!(
                running.health,
                InventoryHealth::Current | InventoryHealth::Limited { .. }
            );
            kind.is_admission() && known
        });
        let tried =
            |((kind, _), running): (&FeedKey, &RunningWatch)| running.settled || kind.is_beside_admission();
        configurations_known && self.feeds.iter().all(tried)
    }

    fn publish(&mut self) {
        if self.pending == PendingPublication::Change && (self.inventory.is_some() || self.is_complete()) {
            let mut inventory =
                self.store
                    .inventory((self.clock)(), self.inventory.as_deref(), |kind, namespace| {
                        self.why_unread(kind, namespace)
                    });
            // A new timestamp alone is not a change.
            if let Some(before) = &self.inventory {
                let now = std::mem::replace(&mut inventory.at, before.at);
                if **before != inventory {
                    inventory.at = now;
                    self.inventory = Some(Arc::new(inventory));
                }
            } else {
                self.inventory = Some(Arc::new(inventory));
            }
        }
        let moved = self.nodes_moved();
        if moved {
            self.arrange_feeds();
        }
        let watches: Vec<_> = self
            .feeds
            .iter()
            .map(|(key, running)| WatchReport {
                watch: name(key),
                health: running.health.clone(),
                known_good: running.known_good,
            })
            .collect();
        // The loop notices a dropped receiver.
        let _ = self.publisher.send(InventoryView {
            inventory: self.inventory.clone(),
            watches,
        });
        // The next publication removes nodes that are no longer watched from the inventory.
        self.pending = if moved {
            PendingPublication::Change
        } else {
            PendingPublication::Nothing
        };
        self.published = Some(Instant::now());
    }

    fn why_unread(&self, kind: WatchedKind, namespace: &str) -> String {
        let own = self.feeds.get(&(kind, Some(namespace.to_owned())));
        match own.or_else(|| self.feeds.get(&(kind, None))).map(|it| &it.health) {
            Some(InventoryHealth::Stale { why } | InventoryHealth::Limited { why }) => {
                format!("{kind}: {why}")
            }
            _ => convert::service::NOT_READ.to_owned(),
        }
    }
}

/// What a feed watches, for display.
fn name((kind, namespace): &FeedKey) -> String {
    match namespace {
        Some(node) if *kind == WatchedKind::Nodes => format!("Node {node:?}"),
        Some(namespace) => format!("{kind} in namespace {namespace:?}"),
        None => kind.to_string(),
    }
}

/// The feeds needed to follow all configurations and these Services and nodes, each with the objects it keeps.
fn needed_feeds(
    services: &BTreeSet<NamespacedName>,
    nodes: BTreeSet<String>,
) -> BTreeMap<FeedKey, BTreeSet<NamespacedName>> {
    let mut needed: BTreeMap<FeedKey, BTreeSet<NamespacedName>> = [
        WatchedKind::Validating,
        WatchedKind::Mutating,
        WatchedKind::Namespaces,
        WatchedKind::Definitions,
        WatchedKind::Registrations,
    ]
    .into_iter()
    .map(|kind| ((kind, None), BTreeSet::new()))
    .collect();
    let namespaces: BTreeSet<_> = services.iter().map(|(namespace, _)| namespace).collect();
    let one_by_one = namespaces.len() <= MAX_NAMESPACES;
    for key in services {
        for kind in [WatchedKind::Services, WatchedKind::EndpointSlices] {
            let namespace = one_by_one.then(|| key.0.clone());
            needed.entry((kind, namespace)).or_default().insert(key.clone());
        }
    }
    for node in nodes {
        let wanted = BTreeSet::from([(node.clone(), node.clone())]);
        needed.insert((WatchedKind::Nodes, Some(node)), wanted);
    }
    needed
}

#[cfg(test)]
mod tests {
    mod extension;
    mod hostile;

    use std::sync::Mutex;

    use serde_json::{Value, json};

    use super::*;
    use crate::domain::cluster::hook::{Hook, HookTarget, ServiceState};
    use crate::io::testing::{ReceivedRequest, TestReply, TestServer, clock, soon};

    const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    const NAMESPACES: &str = "/api/v1/namespaces";
    const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    const REGISTRATIONS: &str = "/apis/apiregistration.k8s.io/v1/apiservices";

    /// Lists and watches, with the objects in a test's hand.
    #[derive(Default)]
    struct Cluster {
        objects: Mutex<BTreeMap<String, Vec<Value>>>,
        refused: Mutex<BTreeMap<String, u16>>,
        watches: Mutex<Vec<(String, mpsc::UnboundedSender<String>)>>,
    }

    impl Cluster {
        fn answer(&self, asked: &ReceivedRequest) -> TestReply {
            let (path, query) = asked.target.split_once('?').expect("a query");
            if let Some(code) = self.refused.lock().expect("no poison").get(path) {
                return TestReply::status(*code, "no");
            }
            if query.contains("watch=true") {
                let (sender, receiver) = mpsc::unbounded_channel();
                let mut watches = self.watches.lock().expect("no poison");
                watches.push((path.to_owned(), sender));
                return TestReply::Stream(receiver);
            }
            let items = self.objects.lock().expect("no poison").get(path).cloned();
            TestReply::json(
                200,
                json!({"metadata": {"resourceVersion": "7"}, "items": items.unwrap_or_default()}),
            )
        }

        fn set(&self, path: &str, objects: &[Value]) {
            let mut all = self.objects.lock().expect("no poison");
            all.insert(path.to_owned(), objects.to_vec());
        }

        fn refuse(&self, path: &str, code: u16) {
            self.refused
                .lock()
                .expect("no poison")
                .insert(path.to_owned(), code);
        }

        fn send(&self, path: &str, kind: &str, object: &Value) {
            let line = json!({"type": kind, "object": object}).to_string() + "\n";
            let watches = self.watches.lock().expect("no poison");
            for (_, watch) in watches.iter().filter(|(at, _)| at == path) {
                // An older watch of the same path may be gone.
                let _ = watch.send(line.clone());
            }
        }

        fn cut_watches(&self) {
            self.watches.lock().expect("no poison").clear();
        }
    }

    async fn serve(at: &str, cluster: &Arc<Cluster>) -> TestServer {
        let cluster = Arc::clone(cluster);
        TestServer::listen(at, None, move |asked| cluster.answer(asked)).await
    }

    fn configuration(name: &str, services: &[(&str, &str)]) -> Value {
        let webhooks: Vec<_> = services
            .iter()
            .map(|(namespace, service)| {
                json!({"name": format!("{service}.{namespace}.example"), "sideEffects": "None",
                    "clientConfig": {"service": {"namespace": namespace, "name": service}},
                    "admissionReviewVersions": ["v1"], "rules": [{"operations": ["CREATE"]}]})
            })
            .collect();
        json!({"metadata": {"name": name, "resourceVersion": "8"}, "webhooks": webhooks})
    }

    fn service(namespace: &str, name: &str) -> Value {
        json!({"metadata": {"namespace": namespace, "name": name, "resourceVersion": "8"},
            "spec": {"clusterIP": "10.96.0.7", "ports": [{"port": 443}]}})
    }

    fn services(namespace: &str) -> String {
        format!("/api/v1/namespaces/{namespace}/services")
    }

    fn endpoint_slices(namespace: &str) -> String {
        format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices")
    }

    fn slice(ready: bool) -> Value {
        json!({"metadata": {"namespace": "n", "name": "s-1", "resourceVersion": "9",
                "labels": {"kubernetes.io/service-name": "s"}},
            "addressType": "IPv4", "ports": [{"name": "", "port": 9443}],
            "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": ready}}]})
    }

    /// One hook with its Service and one endpoint.
    fn small() -> Arc<Cluster> {
        let cluster = Cluster::default();
        cluster.set(VALIDATING, &[configuration("c", &[("n", "s")])]);
        cluster.set(
            NAMESPACES,
            &[json!({"metadata": {"name": "n", "labels": {"a": "b"}}})],
        );
        cluster.set(&services("n"), &[service("n", "s")]);
        cluster.set(&endpoint_slices("n"), &[slice(true)]);
        Arc::new(cluster)
    }

    async fn until(
        views: &mut watch::Receiver<InventoryView>,
        what: impl Fn(&InventoryView) -> bool,
    ) -> InventoryView {
        soon(views.wait_for(|view| what(view)))
            .await
            .expect("the watch runs")
            .clone()
    }

    fn only_hook(view: &InventoryView) -> Option<&Hook> {
        match view.inventory.as_ref()?.hooks.as_slice() {
            [hook] => Some(hook),
            _ => None,
        }
    }

    fn ready(view: &InventoryView) -> Option<bool> {
        match &only_hook(view)?.target {
            HookTarget::Service(target) => match &target.service {
                ServiceState::Found { endpoints, .. } => Some(endpoints.first()?.ready),
                _ => None,
            },
            _ => None,
        }
    }

    fn is_broken(watch: &WatchReport) -> bool {
        use InventoryHealth::{Limited, Stale};
        matches!(watch.health, Stale { .. } | Limited { .. })
    }

    fn is_of(watch: &WatchReport, kind: WatchedKind) -> bool {
        watch.watch.starts_with(&kind.to_string())
    }

    fn all_open(view: &InventoryView) -> bool {
        let mut watches = view.watches.iter();
        watches.len() > 0 && watches.all(|watch| watch.health == InventoryHealth::Current)
    }

    /// What would help each watch that is refused.
    fn refused(view: &InventoryView) -> Vec<&str> {
        let watches = view.watches.iter();
        let refused = watches.filter_map(|watch| match &watch.health {
            InventoryHealth::Limited { why } => Some(why.as_str()),
            _ => None,
        });
        refused.collect()
    }

    /// The oldest instant at which all that may be read about admission was known good.
    fn known_good(view: &InventoryView) -> Option<Time> {
        let watches = view.watches.iter();
        let read = watches.filter(|watch| {
            let beside = [WatchedKind::Definitions, WatchedKind::Registrations];
            !matches!(watch.health, InventoryHealth::Limited { .. })
                && !beside.into_iter().any(|kind| is_of(watch, kind))
        });
        read.map(|watch| watch.known_good).min().flatten()
    }

    #[tokio::test]
    async fn the_first_inventory_is_whole_and_changes_follow() {
        let cluster = small();
        let server = serve("127.0.0.1:0", &cluster).await;
        let watching = InventoryWatch::start(&server.connection().await, clock());
        let mut views = watching.subscribe();
        let first = until(&mut views, |view| view.inventory.is_some()).await;
        assert_eq!(ready(&first), Some(true), "nothing half-read is published");
        assert_eq!(
            first.inventory.as_ref().expect("just awaited").namespaces["n"]["a"],
            "b"
        );
        let current = until(&mut views, all_open).await;
        assert!(known_good(&current).is_some());

        until_watched(&cluster, &endpoint_slices("n")).await;
        cluster.send(&endpoint_slices("n"), "MODIFIED", &slice(false));
        until(&mut views, |view| ready(view) == Some(false)).await;
        cluster.send(&endpoint_slices("n"), "DELETED", &slice(false));
        until(&mut views, |view| ready(view).is_none()).await;

        until_watched(&cluster, MUTATING).await;
        cluster.set(&services("other"), &[service("other", "t")]);
        cluster.send(MUTATING, "ADDED", &configuration("m", &[("other", "t")]));
        let two = until(&mut views, |view| {
            view.watches
                .iter()
                .any(|it| it.watch == "Services in namespace \"other\"")
        });
        two.await;
        cluster.send(MUTATING, "DELETED", &configuration("m", &[]));
        until(&mut views, |view| {
            only_hook(view).is_some() && view.watches.len() == 7
        })
        .await;
    }

    /// Waits until the watch of `path` is open, so that no event is lost.
    async fn until_watched(cluster: &Cluster, path: &str) {
        let is_open = || {
            let watches = cluster.watches.lock().expect("no poison");
            watches
                .iter()
                .any(|(at, sender)| at == path && !sender.is_closed())
        };
        soon(async {
            while !is_open() {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    const NODES: &str = "/api/v1/nodes";

    fn slice_on(nodes: &[&str]) -> Value {
        let mut slice = slice(true);
        let endpoint =
            |(last, node): (usize, &&str)| json!({"addresses": [format!("10.0.0.{last}")], "nodeName": node});
        slice["endpoints"] = nodes.iter().enumerate().map(endpoint).collect();
        slice
    }

    fn node(ready: &str) -> Value {
        let since = "2026-01-01T00:00:00Z";
        let ready = json!({"type": "Ready", "status": ready, "lastTransitionTime": since, "lastHeartbeatTime": since});
        json!({"metadata": {"name": "a", "resourceVersion": "8"}, "status": {"conditions": [ready]}})
    }

    fn node_is_ready(view: &InventoryView) -> Option<bool> {
        view.inventory.as_ref()?.nodes.get("a")?.ready
    }

    #[tokio::test]
    async fn a_feed_that_reads_more_than_before_reads_nothing_older() {
        let cluster = small();
        let server = serve("127.0.0.1:0", &cluster).await;
        let watching = InventoryWatch::start(&server.connection().await, clock());
        let mut views = watching.subscribe();
        until(&mut views, all_open).await;
        until_watched(&cluster, MUTATING).await;
        cluster.send(MUTATING, "ADDED", &configuration("m", &[("n", "t")]));
        let lists = || {
            let asked = server.asked().into_iter().map(|asked| asked.target);
            let lists = asked
                .filter(|target| target.starts_with(&endpoint_slices("n")) && !target.contains("watch=true"));
            Vec::from_iter(lists)
        };
        soon(async {
            while lists().len() < 2 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let from_cache = lists()
            .into_iter()
            .map(|target| target.contains("resourceVersion=0"));
        assert_eq!(Vec::from_iter(from_cache), [true, false]);
    }

    #[tokio::test]
    async fn a_feed_that_panics_ends_the_task_that_keeps_all_feeds() {
        let server = serve("127.0.0.1:0", &small()).await;
        let (publisher, _view) = watch::channel(InventoryView {
            inventory: None,
            watches: Vec::new(),
        });
        let (mut keeper, arriving) = Keeper::new(&server.connection().await, clock(), publisher);
        keeper.tasks.spawn(async { panic!("a feed broke") });
        let ended = soon(tokio::spawn(keeper.run(arriving))).await;
        assert!(ended.is_err_and(|error| error.is_panic()));
    }

    #[tokio::test]
    async fn nodes_are_watched_only_while_a_few_of_them_have_all_endpoints_of_a_hook() {
        let cluster = small();
        cluster.set(NODES, &[node("True")]);
        let server = serve("127.0.0.1:0", &cluster).await;
        let watching = InventoryWatch::start(&server.connection().await, clock());
        let mut views = watching.subscribe();
        until(&mut views, |view| view.inventory.is_some()).await;
        until_watched(&cluster, &endpoint_slices("n")).await;
        assert!(!server.asked().iter().any(|asked| asked.target.starts_with(NODES)));
        cluster.send(&endpoint_slices("n"), "MODIFIED", &slice_on(&["a", "a"]));
        until(&mut views, |view| node_is_ready(view) == Some(true)).await;
        let asked = server.asked();
        let of_nodes = asked.iter().filter(|asked| asked.target.starts_with(NODES));
        assert!(of_nodes.clone().count() > 0);
        for asked in of_nodes {
            assert!(
                asked.target.contains("fieldSelector=metadata.name%3Da"),
                "{}",
                asked.target
            );
        }
        until_watched(&cluster, NODES).await;
        cluster.send(NODES, "MODIFIED", &node("Unknown"));
        until(&mut views, |view| node_is_ready(view) == Some(false)).await;
        let nodes = |view: &InventoryView| {
            let nodes = view.watches.iter();
            let nodes = nodes.filter(|report| report.watch.starts_with("Node "));
            nodes.count()
        };
        cluster.send(&endpoint_slices("n"), "MODIFIED", &slice_on(&["a", "b"]));
        until(&mut views, |view| nodes(view) == 2).await;
        let many = ["a", "b", "c", "d", "e", "f"];
        cluster.send(&endpoint_slices("n"), "MODIFIED", &slice_on(&many));
        until(&mut views, |view| {
            node_is_ready(view).is_none() && nodes(view) == 0
        })
        .await;
    }

    #[tokio::test]
    async fn without_the_permission_to_read_nodes_everything_else_is_there() {
        let cluster = small();
        cluster.refuse(NODES, 403);
        cluster.set(&endpoint_slices("n"), &[slice_on(&["a", "a"])]);
        let server = serve("127.0.0.1:0", &cluster).await;
        let watching = InventoryWatch::start(&server.connection().await, clock());
        let mut views = watching.subscribe();
        let limited = |view: &InventoryView| refused(view).iter().any(|why| why.contains("nodes"));
        let view = until(&mut views, limited).await;
        assert_eq!(ready(&view), Some(true));
    }

    #[tokio::test]
    async fn namespaces_that_no_hook_refers_to_are_never_read() {
        let cluster = small();
        let server = serve("127.0.0.1:0", &cluster).await;
        let watching = InventoryWatch::start(&server.connection().await, clock());
        until(&mut watching.subscribe(), |view| view.inventory.is_some()).await;
        for asked in server.asked() {
            let (path, query) = asked.target.split_once('?').expect("a query");
            let expected = [VALIDATING, MUTATING, NAMESPACES, DEFINITIONS, REGISTRATIONS].map(str::to_owned);
            assert!(
                expected.contains(&path.to_owned())
                    || path == services("n") && query.contains("fieldSelector=metadata.name%3Ds")
                    || path == endpoint_slices("n") && query.contains("labelSelector="),
                "{}",
                asked.target
            );
            if path == NAMESPACES {
                assert!(asked.headers["accept"].contains("as=PartialObjectMetadata"));
            }
        }
    }

    #[tokio::test]
    async fn many_namespaces_are_read_in_one_watch_and_picked_through() {
        let cluster = small();
        let namespaces: Vec<_> = (0..=MAX_NAMESPACES).map(|n| format!("n{n}")).collect();
        let services: Vec<_> = namespaces
            .iter()
            .map(|namespace| (namespace.as_str(), "s"))
            .collect();
        cluster.set(VALIDATING, &[configuration("c", &services)]);
        cluster.set(
            "/api/v1/services",
            &[service("n0", "s"), service("n0", "unrelated")],
        );
        let server = serve("127.0.0.1:0", &cluster).await;
        let watching = InventoryWatch::start(&server.connection().await, clock());
        let view = until(&mut watching.subscribe(), |view| view.inventory.is_some()).await;
        assert_eq!(view.watches.len(), 7);
        let hooks = &view.inventory.as_ref().expect("just awaited").hooks;
        let found = |hook: &&Arc<Hook>| {
            matches!(&hook.target, HookTarget::Service(target)
            if matches!(target.service, ServiceState::Found { .. }))
        };
        assert_eq!(hooks.len(), MAX_NAMESPACES + 1);
        assert_eq!(hooks.iter().filter(found).count(), 1);
    }

    #[tokio::test]
    async fn one_watch_in_place_of_many_is_as_old_as_they_were_until_it_has_read() {
        let cluster = small();
        let namespaces: Vec<_> = (1..MAX_NAMESPACES).map(|n| format!("n{n}")).collect();
        let services = namespaces.iter().map(|namespace| (namespace.as_str(), "s"));
        let services: Vec<_> = services.chain([("n", "s")]).collect();
        cluster.set(VALIDATING, &[configuration("c", &services)]);
        let server = serve("127.0.0.1:0", &cluster).await;
        let watching = InventoryWatch::start(&server.connection().await, clock());
        let mut views = watching.subscribe();
        let many = until(&mut views, all_open).await;
        assert_eq!(many.watches.len(), 5 + 2 * MAX_NAMESPACES);
        until_watched(&cluster, MUTATING).await;
        cluster.refuse("/api/v1/services", 500);
        cluster.send(MUTATING, "ADDED", &configuration("m", &[("one-more", "s")]));
        let of_services = |view: &InventoryView| {
            let mut watches = view.watches.iter();
            watches.find(|it| it.watch == "Services").cloned()
        };
        let view = until(&mut views, |view| {
            of_services(view).is_some_and(|it| is_broken(&it))
        })
        .await;
        assert_eq!(view.watches.len(), 7);
        assert!(
            of_services(&view).is_some_and(|it| it.known_good.is_some()),
            "{view:?}"
        );
        let hooks = &view.inventory.as_ref().expect("it was there").hooks;
        let found = hooks.iter().filter(|hook| {
            matches!(&hook.target, HookTarget::Service(target) if matches!(target.service, ServiceState::Found { .. }))
        });
        assert_eq!(found.count(), 1, "what was read is kept");
    }

    #[tokio::test]
    async fn a_kind_that_may_not_be_read_is_named_with_the_permission_and_the_others_go_on() {
        let cluster = small();
        cluster.refuse(NAMESPACES, 403);
        cluster.refuse(&endpoint_slices("n"), 403);
        let server = serve("127.0.0.1:0", &cluster).await;
        let watching = InventoryWatch::start(&server.connection().await, clock());
        let mut views = watching.subscribe();
        let limited = |view: &InventoryView| refused(view).len() == 2 && known_good(view).is_some();
        let limited = until(&mut views, limited).await;
        let slices = "grant list and watch on endpointslices in the API group \"discovery.k8s.io\"";
        assert!(
            refused(&limited).iter().any(|why| why.contains(slices)),
            "{limited:?}"
        );
        let hook = only_hook(&limited).expect("the hook is known");
        let HookTarget::Service(target) = &hook.target else {
            panic!("{hook:?}");
        };
        assert!(
            matches!(&target.service, ServiceState::Unknown { why } if why.contains("grant list")),
            "no endpoints may be concluded from it: {target:?}"
        );
    }

    #[tokio::test]
    async fn without_either_kind_of_configuration_there_is_still_an_inventory_that_says_so() {
        let cluster = small();
        cluster.refuse(MUTATING, 403);
        cluster.refuse(VALIDATING, 403);
        let server = serve("127.0.0.1:0", &cluster).await;
        let watching = InventoryWatch::start(&server.connection().await, clock());
        let view = until(&mut watching.subscribe(), |view| view.inventory.is_some()).await;
        assert_eq!(refused(&view).len(), 2, "{view:?}");
    }

    #[tokio::test]
    async fn an_api_server_that_fails_never_looks_like_a_cluster_without_hooks() {
        let cluster = small();
        for path in [VALIDATING, MUTATING, NAMESPACES, DEFINITIONS, REGISTRATIONS] {
            cluster.refuse(path, 500);
        }
        let server = serve("127.0.0.1:0", &cluster).await;
        let watching = InventoryWatch::start(&server.connection().await, clock());
        let mut views = watching.subscribe();
        let broken = until(&mut views, |view| {
            view.watches.len() == 5 && view.watches.iter().all(is_broken)
        });
        assert!(broken.await.inventory.is_none());
        cluster.refused.lock().expect("no poison").clear();
        let well = until(&mut views, all_open).await;
        assert!(only_hook(&well).is_some());
    }

    #[tokio::test]
    async fn a_watch_whose_credentials_are_refused_says_what_to_do() {
        let cluster = small();
        cluster.refuse(NAMESPACES, 401);
        let server = serve("127.0.0.1:0", &cluster).await;
        let watching = InventoryWatch::start(&server.connection().await, clock());
        let says = |watch: &WatchReport| match &watch.health {
            InventoryHealth::Stale { why } => why.contains("renew them"),
            _ => false,
        };
        until(&mut watching.subscribe(), |view| view.watches.iter().any(says)).await;
    }

    #[tokio::test]
    async fn a_version_that_is_too_old_leads_to_a_new_list() {
        let cluster = small();
        let server = serve("127.0.0.1:0", &cluster).await;
        let watching = InventoryWatch::start(&server.connection().await, clock());
        let mut views = watching.subscribe();
        until(&mut views, |view| ready(view) == Some(true)).await;
        until_watched(&cluster, &endpoint_slices("n")).await;
        cluster.set(&endpoint_slices("n"), &[slice(false)]);
        let gone = json!({"kind": "Status", "code": 410, "message": "too old resource version"});
        cluster.send(&endpoint_slices("n"), "ERROR", &gone);
        let view = until(&mut views, |view| ready(view) == Some(false)).await;
        assert!(all_open(&view), "nothing was wrong");
    }

    #[tokio::test]
    async fn an_event_that_cannot_be_read_leads_to_a_new_list() {
        let cluster = small();
        let server = serve("127.0.0.1:0", &cluster).await;
        let watching = InventoryWatch::start(&server.connection().await, clock());
        let mut views = watching.subscribe();
        until(&mut views, |view| ready(view) == Some(true)).await;
        until_watched(&cluster, &endpoint_slices("n")).await;
        cluster.set(&endpoint_slices("n"), &[slice(false)]);
        for (path, watch) in &*cluster.watches.lock().expect("no poison") {
            if *path == endpoint_slices("n") {
                watch.send("<html>\n".to_owned()).expect("an open watch");
            }
        }
        until(&mut views, |view| ready(view) == Some(false)).await;
    }

    #[tokio::test]
    async fn a_restart_of_the_api_server_leaves_the_last_inventory_serving_with_its_age() {
        let cluster = small();
        let server = serve("127.0.0.1:0", &cluster).await;
        let address = server.address.to_string();
        let watching = InventoryWatch::start(&server.connection().await, clock());
        let mut views = watching.subscribe();
        let before = until(&mut views, all_open).await;

        server.stop().await;
        cluster.cut_watches();
        let stale = until(&mut views, |view| view.watches.iter().all(is_broken)).await;
        assert_eq!(stale.inventory, before.inventory);
        assert_eq!(stale.watches.len(), 7);
        let age_from = known_good(&stale).expect("it was good once");

        cluster.set(&endpoint_slices("n"), &[slice(false)]);
        cluster.refuse(&endpoint_slices("n"), 410);
        let _server = serve(&address, &cluster).await;
        // Only a feed that was told so lists again; one that still pauses would go on from where it was.
        until(&mut views, |view| {
            view.watches.iter().all(|watch| match &watch.health {
                InventoryHealth::Stale { why } => {
                    is_of(watch, WatchedKind::EndpointSlices) && why.contains("410")
                }
                health => *health == InventoryHealth::Current && !is_of(watch, WatchedKind::EndpointSlices),
            })
        })
        .await;
        cluster.refused.lock().expect("no poison").clear();
        let after = until(&mut views, all_open).await;
        assert!(known_good(&after) > Some(age_from));
        until(&mut views, |view| ready(view) == Some(false)).await;
    }
}
