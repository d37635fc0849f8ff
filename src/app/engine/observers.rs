//! The tasks that observe: probes, canaries and scrapes, each at its own pace.

mod due;
mod fence;
mod leases;
mod turns;

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, sleep_until};

use crate::app::config::{CanaryConfig, Config, ProbeConfig, ScrapeConfig};
use crate::domain::canary::{CanaryOutcome, CanaryTarget};
use crate::domain::fence::{Account, AutoBreak, Proof};
use crate::domain::hook::{Backend, BackendPath, Hook, HookId};
use crate::domain::inventory::{Inventory, InventoryHealth, WatchReport};
use crate::domain::probe::{Connection as ConnectionUse, ProbeLevel};
use crate::domain::thresholds::pooled_connection_idle;
use crate::domain::watchdog::{Attention, Event};
use crate::io::Clock;
use crate::io::canary::Canaries;
use crate::io::client::Connection;
use crate::io::fence::Fence;
use crate::io::inventory::{InventoryWatch, View, WatchHealth, WatchState};
use crate::io::node_leases::LeaseReader;
use crate::io::probe::{Limits, ProbeRequest, Prober, ReviewSubject};
use crate::io::scrape::{ScrapeLimits, ScrapeTarget, Scraper};
use crate::io::telemetry::Tracer;
use due::Due;
use turns::Turns;

/// How often the probes' schedule is looked at: the finest difference between two due times.
const SCHEDULE: Duration = Duration::from_millis(100);
/// Canaries of one target under way at once. While one hangs for a hook's whole timeout, the next ones see
/// whether the hook is back.
const CANARIES_AT_ONCE: usize = 3;
/// A canary that may not be written, or has nothing to be written to, is tried this often.
const NOT_PERMITTED: Duration = Duration::from_secs(60);
/// How often the list of API-server replicas is read anew.
const REFRESH: Duration = Duration::from_secs(30);
/// How long scrapes wait for that.
const REFRESH_PATIENCE: Duration = Duration::from_secs(1);

/// Begins to observe.
///
/// # Errors
/// When the TLS provider is of no use.
pub(super) fn spawn(
    tasks: &mut JoinSet<()>,
    config: &Config,
    connection: &Connection,
    clock: &Clock,
    events: &mpsc::Sender<Event>,
    attention: &watch::Receiver<Attention>,
    tracer: &Tracer,
) -> anyhow::Result<()> {
    let (known, inventory) = watch::channel(Arc::new(Inventory::default()));
    if config.without_fence {
        events
            .try_send(Event::Fence(Proof::Unneeded))
            .context("the core takes nothing in")?;
    } else if config.auto_break == AutoBreak::On {
        let account = Account {
            namespace: config.namespace.clone(),
            user: format!("system:serviceaccount:{}:hookwatch", config.namespace),
        };
        tasks.spawn(fence::prove(Fence::new(connection, account), events.clone()));
    }
    let watches = InventoryWatch::start(connection, Arc::clone(clock));
    tasks.spawn(pass_inventory_on(watches, events.clone(), known));
    if config.scrapes.enabled {
        let ScrapeConfig {
            max_bytes, timeout, ..
        } = config.scrapes;
        let limits = ScrapeLimits { max_bytes, timeout };
        let scraper = Scraper::new(connection.clone(), Arc::clone(clock), limits);
        tasks.spawn(scrape(
            Arc::new(scraper),
            config.scrapes.clone(),
            events.clone(),
            attention.clone(),
            tracer.clone(),
        ));
    }
    let reader = LeaseReader::new(connection, Arc::clone(clock));
    tasks.spawn(leases::read(reader, events.clone()));
    let canaries = Canaries::new(connection, &config.namespace, Arc::clone(clock))
        .with_further(config.canaries.further.clone());
    let targets: Vec<CanaryTarget> = config.canaries.all().collect();
    let begin = Instant::now();
    for (place, target) in targets.iter().enumerate() {
        let turns = Turns {
            begin,
            place,
            of: targets.len(),
        };
        tasks.spawn(write_canaries(
            canaries.clone(),
            (*target, turns),
            config.canaries.clone(),
            events.clone(),
            attention.clone(),
            tracer.clone(),
        ));
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let limits = Limits {
        beside_api_server: connection.is_beside_api_server(),
        ..Limits::default()
    };
    let prober = Prober::new(provider, limits, Arc::clone(clock)).context("cannot probe")?;
    let probes = Probes {
        prober: Arc::new(prober),
        config: config.probes.clone(),
        subject: review_subject(&config.namespace),
        events: events.clone(),
        attention: attention.clone(),
        inventory,
        under_way: Arc::new(Semaphore::new(config.probes.concurrency)),
        jitter: RandomState::new(),
        schedule: HashMap::new(),
        running: JoinSet::new(),
        tracer: tracer.clone(),
    };
    tasks.spawn(probes.run());
    Ok(())
}

/// As whom reviews are made: the account that the daemon has in a cluster.
fn review_subject(namespace: &str) -> ReviewSubject {
    ReviewSubject {
        namespace: namespace.to_owned(),
        username: format!("system:serviceaccount:{namespace}:hookwatch"),
        groups: vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
            "system:authenticated".to_owned(),
        ],
    }
}

/// Hands every change of the inventory to the core, and to the probes' schedule.
async fn pass_inventory_on(
    watches: InventoryWatch,
    events: mpsc::Sender<Event>,
    known: watch::Sender<Arc<Inventory>>,
) {
    let mut views = watches.subscribe();
    while views.changed().await.is_ok() {
        let View {
            inventory,
            health: _,
            watches,
        } = views.borrow_and_update().clone();
        if let Some(inventory) = inventory
            && !Arc::ptr_eq(&inventory, &known.borrow())
        {
            known.send_replace(Arc::clone(&inventory));
            if events.send(Event::Inventory(inventory)).await.is_err() {
                return;
            }
        }
        let reports = watches.iter().map(report).collect();
        if events.send(Event::Watches(reports)).await.is_err() {
            return;
        }
    }
}

fn report(watch: &WatchHealth) -> WatchReport {
    let health = match &watch.state {
        WatchState::Open => InventoryHealth::Current,
        WatchState::Starting => InventoryHealth::Starting,
        // What hooks beside admission are at is nobody's guard rail; the addresses behind them have watches of their
        // own.
        WatchState::Broken { why } if watch.kind.is_beside_admission() => {
            InventoryHealth::Limited { why: why.clone() }
        }
        WatchState::Broken { why } => InventoryHealth::Stale { why: why.clone() },
        WatchState::Refused { why } => InventoryHealth::Limited { why: why.clone() },
    };
    WatchReport {
        watch: watch.to_string(),
        health,
        known_good: watch.known_good,
    }
}

/// Waits until it is `due`, which is later in `calm` times than while there is something to look at closely.
async fn pace(
    attention: &mut watch::Receiver<Attention>,
    due: impl Fn(Duration) -> Instant,
    (calm, alert): (Duration, Duration),
) {
    loop {
        let everywhere = attention.borrow_and_update().everywhere;
        let due = due(if everywhere { alert } else { calm });
        tokio::select! {
            () = sleep_until(due) => return,
            changed = attention.changed() => {
                if changed.is_err() {
                    return sleep_until(due).await;
                }
            }
        }
    }
}

async fn scrape(
    scraper: Arc<Scraper>,
    config: ScrapeConfig,
    events: mpsc::Sender<Event>,
    mut attention: watch::Receiver<Attention>,
    tracer: Tracer,
) {
    let mut under_way: JoinSet<(String, usize)> = JoinSet::new();
    let mut visiting = std::collections::BTreeSet::new();
    let mut refreshing: JoinSet<()> = JoinSet::new();
    let mut refreshed: Option<Instant> = None;
    loop {
        let began = Instant::now();
        let refresh = refreshed.is_none_or(|at| at.elapsed() >= REFRESH);
        while refreshing.try_join_next().is_some() {}
        if refresh && refreshing.is_empty() {
            refreshed = Some(began);
            let (scraper, events) = (Arc::clone(&scraper), events.clone());
            refreshing.spawn(async move {
                let read = scraper.refresh().await.map_err(|error| error.to_string());
                // A core that is gone has no use for it.
                let _ = events.send(Event::ApiServers(read)).await;
            });
            // Mostly the list is there at once; an API server that hangs is to be scraped all the same.
            let _ = tokio::time::timeout(REFRESH_PATIENCE, refreshing.join_next()).await;
        }
        while let Some(ended) = under_way.try_join_next() {
            if let Ok(visit) = ended {
                visiting.remove(&visit);
            }
        }
        for target in scraper.targets() {
            for number in 0..scraper.visits(&target, refresh) {
                // A visit that hangs is not repeated meanwhile.
                let visit = (target.name.clone(), number);
                if visiting.insert(visit.clone()) {
                    let (scraper, target, events) = (Arc::clone(&scraper), target.clone(), events.clone());
                    let tracer = tracer.clone();
                    under_way.spawn(async move {
                        look_at(&scraper, &target, refresh, &events, &tracer).await;
                        visit
                    });
                }
            }
        }
        let due = |interval| began + interval;
        pace(&mut attention, due, (config.interval, config.alert_interval)).await;
    }
}

/// Scrapes an API server and asks whether it is ready.
async fn look_at(
    scraper: &Scraper,
    target: &ScrapeTarget,
    refresh: bool,
    events: &mpsc::Sender<Event>,
    tracer: &Tracer,
) {
    let scrape = async {
        let span = tracer.scrape(&target.name);
        let read = scraper.scrape(target).await;
        span.scraped(read.as_ref());
        let event = match read {
            Ok(scrape) => Event::Scraped(Box::new(scrape)),
            Err(failure) => Event::ScrapeFailed(failure),
        };
        // A core that is gone has no use for it.
        let _ = events.send(event).await;
    };
    let ready = async {
        let report = scraper.ready(target, refresh).await;
        let _ = events.send(Event::Readiness(report)).await;
    };
    if target.is_direct() {
        tokio::join!(scrape, ready);
    } else {
        // A balancer hands its replicas out in turn: scrapes that begin together then reach different ones.
        scrape.await;
        ready.await;
    }
}

async fn write_canaries(
    canaries: Canaries,
    (target, turns): (CanaryTarget, Turns),
    config: CanaryConfig,
    events: mpsc::Sender<Event>,
    mut attention: watch::Receiver<Attention>,
    tracer: Tracer,
) {
    let mut under_way: JoinSet<bool> = JoinSet::new();
    let mut last_permitted: Option<Instant> = None;
    loop {
        let began = Instant::now();
        let mut permitted = true;
        if under_way.len() < CANARIES_AT_ONCE {
            let (canaries, events) = (canaries.clone(), events.clone());
            let span = tracer.canary(target);
            under_way.spawn(async move {
                let late = events.clone();
                let report = canaries
                    .write(target, move |overdue| {
                        // A full channel means that the core is busy; the canary will come back itself.
                        let _ = late.try_send(Event::CanaryOverdue(overdue));
                    })
                    .await;
                span.canary_written(&report);
                let permitted = !matches!(
                    report.outcome,
                    CanaryOutcome::Forbidden { .. } | CanaryOutcome::Missing { .. }
                );
                let _ = events.send(Event::CanaryWritten(report)).await;
                permitted
            });
        }
        let due = |interval| turns.next(began, interval);
        pace(&mut attention, due, (config.interval, config.alert_interval)).await;
        while let Some(ended) = under_way.try_join_next() {
            match ended {
                Ok(false) => permitted = false,
                _ => last_permitted = Some(Instant::now()),
            }
        }
        // An API server that has just started forbids what its RBAC does not know yet.
        let lately = last_permitted.is_some_and(|at| at.elapsed() < NOT_PERMITTED);
        if !permitted && !lately {
            sleep_until(began + NOT_PERMITTED).await;
        }
    }
}

/// The schedule of all probes. Where something has begun to wait is looked at in that instant.
struct Probes {
    prober: Arc<Prober>,
    config: ProbeConfig,
    subject: ReviewSubject,
    events: mpsc::Sender<Event>,
    attention: watch::Receiver<Attention>,
    inventory: watch::Receiver<Arc<Inventory>>,
    /// One permit per probe under way.
    under_way: Arc<Semaphore>,
    jitter: RandomState,
    schedule: HashMap<(HookId, Backend), Due>,
    /// Owned here so that probes end with the task that starts them.
    running: JoinSet<()>,
    tracer: Tracer,
}

impl Probes {
    async fn run(mut self) {
        let mut tick = tokio::time::interval(SCHEDULE);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                Ok(()) = self.attention.changed() => {}
            }
            while self.running.try_join_next().is_some() {}
            if self.inventory.has_changed().unwrap_or(false) {
                self.forget_the_gone();
            }
            self.start_what_is_due();
        }
    }

    /// A backend that has left stays in the schedule for as long as the API server may hold on to its connections.
    fn forget_the_gone(&mut self) {
        let inventory = Arc::clone(&self.inventory.borrow_and_update());
        let hooks: HashSet<&HookId> = inventory.hooks.iter().map(|hook| &hook.id).collect();
        let mut there = HashSet::new();
        for hook in &inventory.hooks {
            for backend in hook.backends() {
                if backend.path != BackendPath::ClusterIp || self.config.cluster_ip {
                    there.insert((hook.id.clone(), backend));
                }
            }
        }
        let now = Instant::now();
        for (key, due) in &mut self.schedule {
            due.is_there(there.contains(key), now);
        }
        // Without its hook a backend has no name to be asked for.
        self.drop_unless(|key, due| {
            !due.has_left() || hooks.contains(&key.0) && key.1.path == BackendPath::Endpoint
        });
        for key in there {
            let toss = self.jitter.hash_one(&key);
            self.schedule.entry(key).or_insert_with(|| Due::new(now, toss));
        }
    }

    fn drop_unless(&mut self, stays: impl Fn(&(HookId, Backend), &Due) -> bool) {
        let prober = &self.prober;
        self.schedule.retain(|key, due| {
            let stays = stays(key, due);
            if !stays {
                prober.forget(&key.0, &key.1);
            }
            stays
        });
    }

    /// Starts probes, the one that has been due for longest first: when hooks that hang hold most of the permits,
    /// none of the others is passed over for good.
    fn start_what_is_due(&mut self) {
        let inventory = Arc::clone(&self.inventory.borrow());
        let attention = self.attention.borrow().clone();
        let now = Instant::now();
        let prober = Arc::clone(&self.prober);
        self.drop_unless(|(id, backend), due| {
            !due.has_left()
                || !due.is_over(now, pooled_connection_idle())
                    && (due.under_way() || prober.keeps(id, backend))
        });
        let mut due_now: Vec<(Duration, &HookId, &Backend, ConnectionUse)> = Vec::new();
        for ((id, backend), due) in &self.schedule {
            let interval = if attention.hooks.contains(id) || due.has_left() {
                self.config.alert_interval
            } else {
                self.config.interval
            };
            for connection in [ConnectionUse::Fresh, ConnectionUse::Kept] {
                if due.has_left() && connection == ConnectionUse::Fresh {
                    continue;
                }
                if let Some(late) = due.late(connection, now, interval) {
                    due_now.push((late, id, backend, connection));
                }
            }
        }
        if due_now.is_empty() {
            return;
        }
        due_now.sort_by_key(|(late, ..)| std::cmp::Reverse(*late));
        let hooks: HashMap<&HookId, &Arc<Hook>> =
            inventory.hooks.iter().map(|hook| (&hook.id, hook)).collect();
        let due_now: Vec<_> = due_now
            .into_iter()
            .filter_map(|(_, id, backend, connection)| {
                let hook = Arc::clone(hooks.get(id)?);
                let level = self.config.level_of(id, hook.probe_level);
                (level != ProbeLevel::Off).then(|| (hook, backend.clone(), connection, level))
            })
            .collect();
        let scarce = self.config.concurrency / 2;
        for (hook, backend, connection, level) in due_now {
            let key = (hook.id.clone(), backend.clone());
            let Some(due) = self.schedule.get_mut(&key) else {
                continue;
            };
            // A second look at a backend that does not answer must not cost others their first.
            if due.under_way() && self.under_way.available_permits() <= scarce {
                continue;
            }
            // Without a permit it stays due.
            let Ok(permit) = Arc::clone(&self.under_way).try_acquire_owned() else {
                return;
            };
            let toss = self.jitter.hash_one((&key, connection, due.round)) % 1_000;
            let token = due.start(connection, now, toss);
            let span = self.tracer.probe(&hook.id, &backend);
            let request = ProbeRequest {
                traceparent: span.traceparent(),
                deadline: hook.timeout,
                hook,
                backend,
                level,
                connection,
                gone: due.has_left(),
                review: Some(self.subject.clone()),
            };
            let (prober, events) = (Arc::clone(&self.prober), self.events.clone());
            self.running.spawn(async move {
                let late = events.clone();
                let report = prober
                    .probe(request, move |overdue| {
                        let _ = late.try_send(Event::ProbeOverdue(Box::new(overdue)));
                    })
                    .await;
                span.probed(&report);
                let _ = events.send(Event::Probed(Box::new(report))).await;
                drop((permit, token));
            });
        }
    }
}
