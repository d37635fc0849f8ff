//! The tasks that observe, each at its own pace: inventory, canaries and scrapes here, probes by a schedule of
//! their own.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::probes::Probes;
use crate::app::config::{CanaryConfig, Config, ScrapeConfig};
use crate::domain::canary::{CanaryOutcome, CanaryTarget};
use crate::domain::inventory::{Inventory, InventoryHealth, WatchReport};
use crate::domain::watchdog::{Attention, Event};
use crate::io::Clock;
use crate::io::canary::Canaries;
use crate::io::client::Connection;
use crate::io::inventory::{InventoryWatch, View, WatchHealth, WatchState};
use crate::io::probe::{Limits, Prober, ReviewSubject};
use crate::io::scrape::{ScrapeLimits, ScrapeTarget, Scraper};

/// Canaries of one target under way at once. While one hangs for a hook's whole timeout, the next ones see
/// whether the hook is back.
const CANARIES_AT_ONCE: usize = 3;
/// A canary that may not be written, or has nothing to be written to, is tried this often.
const NOT_PERMITTED: Duration = Duration::from_secs(60);
/// How often the list of API-server replicas is read anew.
const REFRESH: Duration = Duration::from_secs(30);

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
) -> anyhow::Result<()> {
    let (known, inventory) = watch::channel(Arc::new(Inventory::default()));
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
        ));
    }
    let canaries = Canaries::new(connection, &config.namespace, Arc::clone(clock));
    for target in &config.canaries.targets {
        tasks.spawn(write_canaries(
            canaries.clone(),
            *target,
            config.canaries.clone(),
            events.clone(),
            attention.clone(),
        ));
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let prober = Prober::new(provider, Limits::default(), Arc::clone(clock)).context("cannot probe")?;
    let probes = Probes::new(
        prober,
        config.probes.clone(),
        review_subject(&config.namespace),
        events.clone(),
        attention.clone(),
        inventory,
    );
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
        WatchState::Broken { why } => InventoryHealth::Stale { why: why.clone() },
        WatchState::Refused { why } => InventoryHealth::Limited { why: why.clone() },
    };
    WatchReport {
        watch: watch.to_string(),
        health,
        known_good: watch.known_good,
    }
}

/// Waits until `calm` has passed since `since`, or `alert` while there is something to look at closely.
async fn pace(attention: &mut watch::Receiver<Attention>, since: Instant, calm: Duration, alert: Duration) {
    loop {
        let interval = if attention.borrow_and_update().everywhere {
            alert
        } else {
            calm
        };
        tokio::select! {
            () = sleep_until(since + interval) => return,
            changed = attention.changed() => {
                if changed.is_err() {
                    return sleep_until(since + interval).await;
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
) {
    let mut under_way: JoinSet<String> = JoinSet::new();
    let mut names = std::collections::BTreeSet::new();
    let mut refreshed: Option<Instant> = None;
    loop {
        let began = Instant::now();
        if refreshed.is_none_or(|at| at.elapsed() >= REFRESH) {
            refreshed = Some(began);
            if let Err(error) = scraper.refresh().await {
                tracing::debug!(%error, "the list of API-server replicas stays as it was");
            }
        }
        while let Some(ended) = under_way.try_join_next() {
            if let Ok(name) = ended {
                names.remove(&name);
            }
        }
        for target in scraper.targets() {
            // A target that hangs is not asked a second time meanwhile.
            if names.insert(target.name.clone()) {
                under_way.spawn(scrape_one(Arc::clone(&scraper), target, events.clone()));
            }
        }
        pace(&mut attention, began, config.interval, config.alert_interval).await;
    }
}

async fn scrape_one(scraper: Arc<Scraper>, target: ScrapeTarget, events: mpsc::Sender<Event>) -> String {
    let event = match scraper.scrape(&target).await {
        Ok(scrape) => Event::Scraped(Box::new(scrape)),
        Err(failure) => Event::ScrapeFailed(failure),
    };
    // A core that is gone has no use for it.
    let _ = events.send(event).await;
    target.name
}

async fn write_canaries(
    canaries: Canaries,
    target: CanaryTarget,
    config: CanaryConfig,
    events: mpsc::Sender<Event>,
    mut attention: watch::Receiver<Attention>,
) {
    let mut under_way: JoinSet<bool> = JoinSet::new();
    loop {
        let began = Instant::now();
        let mut permitted = true;
        if under_way.len() < CANARIES_AT_ONCE {
            let (canaries, events) = (canaries.clone(), events.clone());
            under_way.spawn(async move {
                let late = events.clone();
                let report = canaries
                    .write(target, move |overdue| {
                        // A full channel means that the core is busy; the canary will come back itself.
                        let _ = late.try_send(Event::CanaryOverdue(overdue));
                    })
                    .await;
                let permitted = !matches!(
                    report.outcome,
                    CanaryOutcome::Forbidden { .. } | CanaryOutcome::Missing { .. }
                );
                let _ = events.send(Event::CanaryWritten(report)).await;
                permitted
            });
        }
        pace(&mut attention, began, config.interval, config.alert_interval).await;
        while let Some(ended) = under_way.try_join_next() {
            permitted &= ended.unwrap_or(true);
        }
        if !permitted {
            sleep_until(began + NOT_PERMITTED).await;
        }
    }
}
