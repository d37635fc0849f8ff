//! The inventory: every hook with the addresses behind it, kept up to date by watches.
//!
//! Services and EndpointSlices are watched namespace by namespace, only where a hook refers to one, and with
//! a selector where it is short: a cluster's thousands of others never even cross the wire. Above
//! [`MAX_NAMESPACES`] of these the connections would cost more than they save, so then one watch over the
//! whole cluster is read and picked through object by object.
//!
//! What was read keeps serving while a watch is broken; how old it is stands beside it in the [`View`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::Clock;
use super::client::Connection;
use crate::domain::inventory::{Inventory, InventoryHealth};
use crate::domain::time::Time;

mod backoff;
pub mod convert;
mod feed;
mod health;
mod object;
mod page;
mod store;

pub use health::{WatchHealth, WatchState};
pub use object::WatchedKind;

use feed::{Feed, FeedSpec, News};
use object::Key;
use store::Store;

/// Namespaces that get watches of their own.
pub const MAX_NAMESPACES: usize = 50;
/// Changes that come in a burst are published together.
const COALESCE: Duration = Duration::from_millis(100);
/// News that nothing has changed is published so often at most.
const FRESHNESS: Duration = Duration::from_secs(1);
/// News waiting to be taken in; a feed that is faster waits.
const QUEUE: usize = 256;

/// What is known of the cluster's hooks, and how well.
#[derive(Debug, Clone)]
pub struct View {
    /// The hooks; `None` until everything was tried once and at least one kind of configuration is known.
    pub inventory: Option<Arc<Inventory>>,
    /// All watches in one word.
    pub health: InventoryHealth,
    /// Each watch.
    pub watches: Vec<WatchHealth>,
}

impl View {
    /// Since when the inventory may be out of date: the oldest instant at which every watch was known good.
    /// Watches that are refused do not count, they deliver nothing. `None` before all were good once.
    pub fn known_good(&self) -> Option<Time> {
        self.watches
            .iter()
            .filter(|watch| !matches!(watch.state, WatchState::Refused { .. }))
            .map(|watch| watch.known_good)
            .min()
            .flatten()
    }
}

/// The running watches; they end when this is dropped.
#[derive(Debug)]
pub struct InventoryWatch {
    view: watch::Receiver<View>,
    _task: Task,
}

impl InventoryWatch {
    /// Starts watching. Returns at once; the first complete inventory is published as soon as it is there.
    pub fn start(connection: &Connection, clock: Clock) -> Self {
        let (publisher, view) = watch::channel(View {
            inventory: None,
            health: InventoryHealth::Stale {
                why: "nothing was read yet".to_owned(),
            },
            watches: Vec::new(),
        });
        let client = connection.watches().clone();
        let (news, arriving) = mpsc::channel(QUEUE);
        let keeper = Keeper {
            client,
            clock,
            store: Store::default(),
            feeds: BTreeMap::new(),
            numbers: 0,
            news,
            publisher,
            inventory: None,
            pending: Pending::Nothing,
            published: None,
        };
        Self {
            view,
            _task: Task(tokio::spawn(keeper.run(arriving))),
        }
    }

    /// A receiver of every newer view.
    pub fn subscribe(&self) -> watch::Receiver<View> {
        self.view.clone()
    }
}

/// A task that ends with its owner.
#[derive(Debug)]
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What the next publication is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Pending {
    Nothing,
    /// A watch said that it is alive.
    Freshness,
    /// A watch's state or its objects changed.
    Change,
}

type FeedKey = (WatchedKind, Option<String>);

struct Running {
    number: u64,
    wanted: Arc<BTreeSet<Key>>,
    state: WatchState,
    known_good: Option<Time>,
    /// Whether it has delivered a list or failed.
    settled: bool,
    _task: Task,
}

/// Owns the store and the feeds; everything happens in its one loop.
struct Keeper {
    client: Client,
    clock: Clock,
    store: Store,
    feeds: BTreeMap<FeedKey, Running>,
    numbers: u64,
    news: mpsc::Sender<(u64, News)>,
    publisher: watch::Sender<View>,
    inventory: Option<Arc<Inventory>>,
    pending: Pending,
    published: Option<Instant>,
}

impl Keeper {
    async fn run(mut self, mut arriving: mpsc::Receiver<(u64, News)>) {
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
            }
        }
    }

    /// When to publish next.
    fn due(&self) -> Option<Instant> {
        let apart = match self.pending {
            Pending::Nothing => return None,
            Pending::Change if self.inventory.is_none() && self.is_complete() => Duration::ZERO,
            Pending::Change => COALESCE,
            Pending::Freshness => FRESHNESS,
        };
        Some(self.published.map_or_else(Instant::now, |last| last + apart))
    }

    fn take(&mut self, number: u64, news: News) {
        let Some((key, running)) = self.feeds.iter_mut().find(|(_, it)| it.number == number) else {
            // The last words of a feed that was stopped.
            return;
        };
        let (kind, namespace) = (key.0, key.1.as_deref());
        let state = match &news {
            News::Broken(why) => WatchState::Broken { why: why.clone() },
            News::Refused(why) => WatchState::Refused { why: why.clone() },
            // The first word of a watch that is resumed may be that it is alive; its list is still there.
            _ => WatchState::Open,
        };
        let mut pending = Pending::Freshness;
        if state == WatchState::Open {
            running.known_good = Some((self.clock)());
        }
        if running.state != state || !running.settled {
            pending = Pending::Change;
        }
        running.state = state;
        running.settled = true;

        let is_news = match news {
            News::Listed(objects) => self.store.listed(kind, namespace, &running.wanted, objects),
            News::Changed(key, object) => self.store.changed(kind, key, object),
            News::Gone(key) => self.store.gone(kind, &key),
            News::Alive | News::Broken(_) | News::Refused(_) => false,
        };
        if is_news {
            pending = Pending::Change;
            if matches!(kind, WatchedKind::Validating | WatchedKind::Mutating) {
                self.arrange_feeds();
            }
        }
        self.pending = self.pending.max(pending);
    }

    /// Starts the feeds that are needed now and stops the others.
    fn arrange_feeds(&mut self) {
        let wanted = self.store.wanted();
        self.store.keep_only(&wanted);
        let mut needed: BTreeMap<FeedKey, BTreeSet<Key>> = [
            WatchedKind::Validating,
            WatchedKind::Mutating,
            WatchedKind::Namespaces,
        ]
        .into_iter()
        .map(|kind| ((kind, None), BTreeSet::new()))
        .collect();
        let namespaces: BTreeSet<_> = wanted.iter().map(|(namespace, _)| namespace).collect();
        let one_by_one = namespaces.len() <= MAX_NAMESPACES;
        for key in &wanted {
            for kind in [WatchedKind::Services, WatchedKind::EndpointSlices] {
                let namespace = one_by_one.then(|| key.0.clone());
                needed.entry((kind, namespace)).or_default().insert(key.clone());
            }
        }
        self.feeds.retain(|key, _| needed.contains_key(key));
        for (key, wanted) in needed {
            let running = self.feeds.get(&key);
            if running.is_some_and(|running| *running.wanted == wanted) {
                continue;
            }
            // A feed that gets more to read was not worse before; only `Store::covered` knows what is new.
            let (state, known_good, settled) = running.map_or((WatchState::Starting, None, false), |it| {
                (it.state.clone(), it.known_good, it.settled)
            });
            let wanted = Arc::new(wanted);
            self.numbers += 1;
            let feed = Feed {
                client: self.client.clone(),
                spec: FeedSpec {
                    kind: key.0,
                    namespace: key.1.clone(),
                    wanted: Arc::clone(&wanted),
                },
                number: self.numbers,
                news: self.news.clone(),
            };
            let running = Running {
                number: self.numbers,
                wanted,
                state,
                known_good,
                settled,
                _task: Task(tokio::spawn(feed.run())),
            };
            self.feeds.insert(key, running);
        }
    }

    /// Whether an inventory can be made: every feed was tried, and at least one kind of configuration was
    /// read or will never be.
    fn is_complete(&self) -> bool {
        let configurations_known = self.feeds.iter().any(|((kind, _), running)| {
            matches!(kind, WatchedKind::Validating | WatchedKind::Mutating)
                && matches!(running.state, WatchState::Open | WatchState::Refused { .. })
        });
        configurations_known && self.feeds.values().all(|running| running.settled)
    }

    fn publish(&mut self) {
        if self.pending == Pending::Change && (self.inventory.is_some() || self.is_complete()) {
            let mut inventory =
                self.store
                    .inventory((self.clock)(), self.inventory.as_deref(), |kind, namespace| {
                        self.why_unread(kind, namespace)
                    });
            // An instant alone is no change.
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
        let watches: Vec<_> = self
            .feeds
            .iter()
            .map(|((kind, namespace), running)| WatchHealth {
                kind: *kind,
                namespace: namespace.clone(),
                state: running.state.clone(),
                known_good: running.known_good,
            })
            .collect();
        // Nobody listening is noticed by the loop.
        let _ = self.publisher.send(View {
            inventory: self.inventory.clone(),
            health: health::overall(&watches),
            watches,
        });
        self.pending = Pending::Nothing;
        self.published = Some(Instant::now());
    }

    fn why_unread(&self, kind: WatchedKind, namespace: &str) -> String {
        let own = self.feeds.get(&(kind, Some(namespace.to_owned())));
        match own.or_else(|| self.feeds.get(&(kind, None))).map(|it| &it.state) {
            Some(WatchState::Broken { why } | WatchState::Refused { why }) => format!("{kind}: {why}"),
            _ => convert::service::NOT_READ.to_owned(),
        }
    }
}
