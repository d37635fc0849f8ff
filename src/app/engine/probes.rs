//! When which backend is probed.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

use crate::app::config::ProbeConfig;
use crate::domain::hook::{Backend, BackendPath, Hook, HookId};
use crate::domain::inventory::Inventory;
use crate::domain::probe::{Connection, ProbeLevel};
use crate::domain::watchdog::{Attention, Event};
use crate::io::probe::{ProbeRequest, Prober, ReviewSubject};

/// How often the schedule is looked at: the finest difference between two due times.
const LOOK: Duration = Duration::from_millis(100);
/// Fresh probes of one backend under way at once. While one hangs for a hook's whole timeout, the next one sees
/// whether the hook is back.
const FRESH_AT_ONCE: usize = 2;

/// The schedule of all probes.
pub(super) struct Probes {
    prober: Arc<Prober>,
    config: ProbeConfig,
    subject: ReviewSubject,
    events: mpsc::Sender<Event>,
    attention: watch::Receiver<Attention>,
    inventory: watch::Receiver<Arc<Inventory>>,
    /// One permit per probe under way.
    permits: Arc<Semaphore>,
    jitter: RandomState,
    schedule: HashMap<Key, Slot>,
    /// Owned here so that probes end with the task that starts them.
    running: JoinSet<()>,
}

type Key = (HookId, Backend, Connection);

/// One backend on one kind of connection.
struct Slot {
    known_since: Instant,
    last: Option<Instant>,
    /// Held by every probe that is under way.
    under_way: Arc<()>,
    round: u64,
}

impl Slot {
    fn new(known_since: Instant) -> Self {
        Self {
            known_since,
            last: None,
            under_way: Arc::default(),
            round: 0,
        }
    }

    /// How long nothing has been begun here.
    fn idle(&self, now: Instant) -> Duration {
        now.duration_since(self.last.unwrap_or(self.known_since))
    }
}

impl Probes {
    pub(super) fn new(
        prober: Prober,
        config: ProbeConfig,
        subject: ReviewSubject,
        events: mpsc::Sender<Event>,
        attention: watch::Receiver<Attention>,
        inventory: watch::Receiver<Arc<Inventory>>,
    ) -> Self {
        Self {
            prober: Arc::new(prober),
            permits: Arc::new(Semaphore::new(config.concurrency)),
            config,
            subject,
            events,
            attention,
            inventory,
            jitter: RandomState::new(),
            schedule: HashMap::new(),
            running: JoinSet::new(),
        }
    }

    pub(super) async fn run(mut self) {
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            look.tick().await;
            while self.running.try_join_next().is_some() {}
            if self.inventory.has_changed().unwrap_or(false) {
                self.follow_inventory();
            }
            self.begin_what_is_due();
        }
    }

    fn follow_inventory(&mut self) {
        let inventory = Arc::clone(&self.inventory.borrow_and_update());
        let now = Instant::now();
        let mut before = std::mem::take(&mut self.schedule);
        for hook in &inventory.hooks {
            for backend in hook.backends() {
                if backend.path == BackendPath::ClusterIp && !self.config.cluster_ip {
                    continue;
                }
                for connection in [Connection::Fresh, Connection::Kept] {
                    let key = (hook.id.clone(), backend.clone(), connection);
                    let slot = before.remove(&key).unwrap_or_else(|| Slot::new(now));
                    self.schedule.insert(key, slot);
                }
            }
        }
        for (id, backend, _) in before.keys() {
            self.prober.forget(id, backend);
        }
    }

    /// Begins every probe that is due, those that have waited longest first: when hooks that hang hold all
    /// permits, nobody waits for ever.
    fn begin_what_is_due(&mut self) {
        let inventory = Arc::clone(&self.inventory.borrow());
        let hooks: HashMap<&HookId, &Arc<Hook>> =
            inventory.hooks.iter().map(|hook| (&hook.id, hook)).collect();
        let now = Instant::now();
        let mut due: Vec<(Duration, Key, Arc<Hook>, ProbeLevel)> = Vec::new();
        {
            let attention = self.attention.borrow();
            for (key, slot) in &self.schedule {
                let Some(hook) = hooks.get(&key.0) else { continue };
                let level = self.config.level_of(&key.0, hook.probe_level);
                if level != ProbeLevel::Off && self.is_due(key, slot, attention.hooks.contains(&key.0), now) {
                    due.push((slot.idle(now), key.clone(), Arc::clone(hook), level));
                }
            }
        }
        due.sort_by_key(|(idle, ..)| Reverse(*idle));
        for (_, key, hook, level) in due {
            // Without a permit it stays due.
            let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
                return;
            };
            let Some(slot) = self.schedule.get_mut(&key) else {
                continue;
            };
            slot.last = Some(now);
            slot.round += 1;
            let under_way = Arc::clone(&slot.under_way);
            let (_, backend, connection) = key;
            let deadline = hook.timeout;
            let review = Some(self.subject.clone());
            let request = ProbeRequest {
                hook,
                backend,
                level,
                connection,
                deadline,
                review,
            };
            let (prober, events) = (Arc::clone(&self.prober), self.events.clone());
            self.running.spawn(async move {
                let late = events.clone();
                let report = prober
                    .probe(request, move |overdue| {
                        // A full channel means that the core is busy; the probe will come back itself.
                        let _ = late.try_send(Event::ProbeOverdue(Box::new(overdue)));
                    })
                    .await;
                // A core that is gone has no use for it.
                let _ = events.send(Event::Probed(Box::new(report))).await;
                drop((permit, under_way));
            });
        }
    }

    fn is_due(&self, key: &Key, slot: &Slot, closely: bool, now: Instant) -> bool {
        let at_once = match key.2 {
            Connection::Fresh => FRESH_AT_ONCE,
            Connection::Kept => 1,
        };
        if Arc::strong_count(&slot.under_way) > at_once {
            return false;
        }
        // Up to a tenth early, by a toss that differs from round to round, so that probes of many hooks never
        // march in step. The very first comes within half a second.
        let toss = self.jitter.hash_one((key, slot.round)) % 1_000;
        let interval = if closely {
            self.config.alert_interval
        } else {
            self.config.interval
        };
        match slot.last {
            Some(_) => slot.idle(now) >= interval - interval.mul_f64(toss as f64 / 10_000.0),
            None => slot.idle(now) >= Duration::from_millis(toss / 2),
        }
    }
}
