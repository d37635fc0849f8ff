//! The tasks that observe: probes, canaries and scrapes, each at its own pace.

mod fence;
mod leases;
mod probes;
mod stored;
mod turns;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

use super::{Common, unless_cancelled};
use crate::domain::act::fence::{AutoBreak, Proof};
use crate::domain::cluster::inventory::Inventory;
use crate::domain::observe::canary::{CanaryOutcome, CanaryTarget, may_be_sent};
use crate::domain::watchdog::{Attention, Event};
use crate::io::act::fence::Fence;
use crate::io::cluster::inventory::{InventoryView, InventoryWatch};
use crate::io::observe::canary::CanaryWriter;
use crate::io::observe::node_leases::LeaseReader;
use crate::io::observe::scrape::{REFRESH_EVERY, ScrapeTarget, Scraper};
use probes::ProbeRunner;
use turns::Turns;

/// How often a canary is retried that RBAC forbids, or for which there is no object to write to.
const NOT_PERMITTED: Duration = Duration::from_secs(60);
/// How long scrapes wait for the list of API-server replicas.
const REFRESH_PATIENCE: Duration = Duration::from_secs(1);

/// Begins to observe.
///
/// # Errors
/// When the TLS provider cannot be used, or the core's channel takes no event.
pub(super) fn spawn(tasks: &mut JoinSet<()>, common: &Arc<Common>) -> anyhow::Result<()> {
    let Common {
        config,
        connection,
        clock,
        events,
        ..
    } = &**common;
    let (known, inventory) = watch::channel(Arc::new(Inventory::default()));
    spawn_fence(tasks, common)?;
    let watches = InventoryWatch::start(connection, Arc::clone(clock));
    tasks.spawn(pass_inventory_on(watches, events.clone(), known));
    let (one_process, is_one_process) = watch::channel(false);
    if config.scrapes.enabled {
        let scraper = Scraper::new(connection.clone(), Arc::clone(clock), config.scrapes.limits);
        tasks.spawn(scrape(Arc::clone(common), Arc::new(scraper), one_process));
    }
    if let Some(prometheus) = &config.prometheus {
        tasks.spawn(stored::read(
            prometheus.clone(),
            Arc::clone(clock),
            events.clone(),
        ));
    }
    let reader = LeaseReader::new(connection, Arc::clone(clock));
    tasks.spawn(leases::read(reader, events.clone()));
    let mut canaries = CanaryWriter::new(connection, &config.namespace, Arc::clone(clock));
    canaries.further = config.canaries.further.as_slice().into();
    canaries.one_process = is_one_process;
    spawn_canaries(tasks, common, &canaries);
    tasks.spawn(ProbeRunner::new(common, inventory)?.run());
    Ok(())
}

/// Begins to prove the fence, where anything depends on it.
fn spawn_fence(tasks: &mut JoinSet<()>, common: &Common) -> anyhow::Result<()> {
    let Common { config, events, .. } = common;
    if config.without_fence {
        events
            .try_send(Event::Fence(Proof::Unneeded))
            .context("the core takes nothing in")?;
    } else if config.auto_break == AutoBreak::On {
        let fence = Fence::new(&common.connection, &config.namespace);
        tasks.spawn(fence::keep_proving(fence, events.clone()));
    }
    Ok(())
}

/// Starts one task per canary target. Their turns are spread evenly over the interval.
fn spawn_canaries(tasks: &mut JoinSet<()>, common: &Arc<Common>, canaries: &CanaryWriter) {
    let targets: Vec<CanaryTarget> = common.config.canaries.all().collect();
    let begin = Instant::now();
    for (place, target) in targets.iter().enumerate() {
        let turns = Turns {
            begin,
            place,
            of: targets.len(),
        };
        tasks.spawn(write_canaries(
            Arc::clone(common),
            canaries.clone(),
            (*target, turns),
        ));
    }
}

/// Sends every change of the inventory to the core and to the probes' schedule.
async fn pass_inventory_on(
    watches: InventoryWatch,
    events: mpsc::Sender<Event>,
    known: watch::Sender<Arc<Inventory>>,
) {
    let mut views = watches.subscribe();
    while views.changed().await.is_ok() {
        let InventoryView { inventory, watches } = views.borrow_and_update().clone();
        if let Some(inventory) = inventory
            && !Arc::ptr_eq(&inventory, &known.borrow())
        {
            known.send_replace(Arc::clone(&inventory));
            if events.send(Event::Inventory(inventory)).await.is_err() {
                return;
            }
        }
        if events.send(Event::Watches(watches)).await.is_err() {
            return;
        }
    }
}

/// Waits until `due(interval)`. The interval is the calm one, or the alert one while the core wants every observer to look
/// closely.
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

async fn scrape(common: Arc<Common>, scraper: Arc<Scraper>, one_process: watch::Sender<bool>) {
    let mut attention = common.attention.clone();
    let mut under_way: JoinSet<(String, usize)> = JoinSet::new();
    let mut visiting = std::collections::BTreeSet::new();
    let mut refreshing: JoinSet<()> = JoinSet::new();
    let mut refreshed: Option<Instant> = None;
    loop {
        let began = Instant::now();
        let refresh = refreshed.is_none_or(|at| at.elapsed() >= REFRESH_EVERY);
        while let Some(ended) = refreshing.try_join_next() {
            let _ = unless_cancelled(ended);
        }
        if refresh && refreshing.is_empty() {
            refreshed = Some(began);
            let (scraper, events) = (Arc::clone(&scraper), common.events.clone());
            refreshing.spawn(async move {
                // The send fails only when the core is gone.
                let _ = events.send(Event::ApiServers(scraper.refresh().await)).await;
            });
            // The list usually arrives at once. While an API server hangs, the others must still be scraped.
            if let Ok(Some(ended)) = tokio::time::timeout(REFRESH_PATIENCE, refreshing.join_next()).await {
                let _ = unless_cancelled(ended);
            }
        }
        while let Some(ended) = under_way.try_join_next() {
            if let Some(visit) = unless_cancelled(ended) {
                visiting.remove(&visit);
            }
        }
        one_process.send_replace(scraper.is_one_process());
        for target in scraper.targets(refresh) {
            for number in 0..target.visits {
                // A visit that hangs is not repeated until it ends.
                let visit = (target.name.clone(), number);
                if visiting.insert(visit.clone()) {
                    let (common, scraper, target) =
                        (Arc::clone(&common), Arc::clone(&scraper), target.clone());
                    under_way.spawn(async move {
                        look_at(&common, &scraper, &target, refresh).await;
                        visit
                    });
                }
            }
        }
        let due = |interval| began + interval;
        let config = &common.config.scrapes;
        pace(&mut attention, due, (config.interval, config.alert_interval)).await;
    }
}

/// Scrapes an API server and asks whether it is ready.
async fn look_at(common: &Common, scraper: &Scraper, target: &ScrapeTarget, refresh: bool) {
    let events = &common.events;
    let scrape = async {
        let span = common.tracer.scrape(&target.name);
        let read = scraper.scrape(target).await;
        span.scraped(read.as_ref());
        let event = match read {
            Ok(scrape) => Event::Scraped(Box::new(scrape)),
            Err(failure) => Event::ScrapeFailed(failure),
        };
        // The send fails only when the core is gone.
        let _ = events.send(event).await;
    };
    let ready = async {
        let report = scraper.ready(target, refresh).await;
        let _ = events.send(Event::Readiness(report)).await;
    };
    if target.visits == 1 {
        tokio::join!(scrape, ready);
    } else {
        // A load balancer picks replicas in turn: scrapes that begin together then reach different ones.
        scrape.await;
        ready.await;
    }
}

async fn write_canaries(common: Arc<Common>, canaries: CanaryWriter, (target, turns): (CanaryTarget, Turns)) {
    let (config, mut attention) = (&common.config.canaries, common.attention.clone());
    let mut under_way: JoinSet<bool> = JoinSet::new();
    let mut sent: Vec<(Instant, AbortHandle)> = Vec::new();
    let mut last_permitted: Option<Instant> = None;
    loop {
        let began = Instant::now();
        let mut permitted = true;
        sent.retain(|(_, canary)| !canary.is_finished());
        let since_last = sent.last().map_or(Duration::ZERO, |(at, _)| at.elapsed());
        if may_be_sent(sent.len(), since_last) {
            let (canaries, events) = (canaries.clone(), common.events.clone());
            let span = common.tracer.canary(target);
            let canary = under_way.spawn(async move {
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
            sent.push((began, canary));
        }
        let due = |interval| turns.next(began, interval);
        pace(&mut attention, due, (config.interval, config.alert_interval)).await;
        while let Some(ended) = under_way.try_join_next() {
            match unless_cancelled(ended) {
                Some(false) => permitted = false,
                _ => last_permitted = Some(Instant::now()),
            }
        }
        // An API server that has just started may forbid what its RBAC cache does not hold yet.
        let lately = last_permitted.is_some_and(|at| at.elapsed() < NOT_PERMITTED);
        if !permitted && !lately {
            sleep_until(began + NOT_PERMITTED).await;
        }
    }
}
