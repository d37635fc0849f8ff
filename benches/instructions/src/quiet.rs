//! A healthy cluster, as the events that the watchdog receives and the inventory of the probe schedule.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use hookwatch_domain::cluster::hook::{Backend, Hook, HookKind, ProbeLevel};
use hookwatch_domain::cluster::inventory::Inventory;
use hookwatch_domain::observe::canary::{CanaryOutcome, CanaryReport, CanaryTarget};
use hookwatch_domain::observe::probe::{
    CertificateFacts, ConnectionKind, PhaseDurations, ProbeAnswer, ProbeOutcome, ProbeReport,
};
use hookwatch_domain::observe::schedule::{Ask, ProbeRoom, Rates, Schedule};
use hookwatch_domain::observe::snapshot::{Complaints, Scrape, Snapshot, WriteKey, WriteOperation};
use hookwatch_domain::report::assessment::Assessment;
use hookwatch_domain::time::Time;
use hookwatch_domain::watchdog::{Event, Watchdog, WatchdogEffect};

use crate::hooks::hook;

/// A second in milliseconds.
const SECOND: u64 = 1_000;

fn at(ms: u64) -> Time {
    Time::from_unix_millis(1_795_219_862_000 + ms)
}

/// Webhook number `nth`, behind a Service with this many endpoints.
fn policy(nth: usize, endpoints: u8) -> Arc<Hook> {
    let [.., high, low] = nth.to_be_bytes();
    let endpoints: Vec<_> = (0..endpoints)
        .map(|last| ([10, high, low, last], 8443).into())
        .collect();
    let (name, ca) = (format!("policy-{nth:04}"), b"ca".as_slice().into());
    Arc::new(hook(&name, "policies", ca, &endpoints))
}

/// `count` webhooks with one endpoint each.
fn hooks(count: usize) -> Vec<Arc<Hook>> {
    (0..count).map(|nth| policy(nth, 1)).collect()
}

fn report(hook: &Hook, backend: Backend, started: Time) -> ProbeReport {
    ProbeReport {
        hook: hook.id.clone(),
        backend,
        level: ProbeLevel::Http,
        connection: ConnectionKind::Fresh,
        started,
        took: Duration::from_millis(3),
        phases: PhaseDurations::default(),
        outcome: ProbeOutcome::Answered(ProbeAnswer::Http { status: 405 }),
        certificates: CertificateFacts::default(),
        shared: false,
    }
}

/// The watchdog of a healthy cluster that it has observed for twelve seconds.
pub struct Quiet {
    hooks: Vec<Arc<Hook>>,
    watchdog: Watchdog,
    now: u64,
}

impl Quiet {
    pub fn new(count: usize) -> Self {
        let hooks = hooks(count);
        let mut quiet = Self {
            hooks: hooks.clone(),
            watchdog: Watchdog::new("hookwatch"),
            now: 0,
        };
        quiet.take_inventory();
        let mut counters = Snapshot {
            process_start: Some(1.0),
            is_api_server: true,
            ..Snapshot::default()
        };
        for step in 0..=6 {
            quiet.now = step * 2 * SECOND;
            let now = at(quiet.now);
            quiet.count(&mut counters, &hooks, now);
            for hook in &hooks {
                for backend in hook.backends() {
                    let report = report(hook, backend, now);
                    quiet.watchdog.handle(Event::Probed(Box::new(report)), now);
                }
            }
            quiet.tick();
        }
        quiet
    }

    fn count(&mut self, counters: &mut Snapshot, hooks: &[Arc<Hook>], now: Time) {
        let key = WriteKey {
            operation: WriteOperation::Create,
            group: String::new(),
            resource: "configmaps".to_owned(),
            subresource: String::new(),
        };
        let series = counters.writes.entry(key).or_default();
        for (cumulative, seconds) in [(&mut series.duration, 1.0), (&mut series.sli, 0.8)] {
            cumulative.count += 200.0;
            cumulative.sum += seconds;
        }
        counters.write_results.ok += 200.0;
        for hook in hooks {
            let key = (HookKind::Validating, hook.id.webhook.to_string());
            let series = counters.hooks.entry(key).or_default();
            for cumulative in [&mut series.calls, &mut series.writes] {
                cumulative.count += 200.0;
                cumulative.sum += 0.2;
            }
        }
        let scrape = Scrape {
            target: "10.0.0.1:6443".to_owned(),
            at: now,
            took: Duration::ZERO,
            bytes: 0,
            snapshot: counters.clone(),
            complaints: Complaints::default(),
        };
        self.watchdog.handle(Event::Scraped(Box::new(scrape)), now);
        let canary = CanaryReport {
            target: CanaryTarget::KubeSystem,
            started: now,
            took: Duration::from_millis(5),
            created: false,
            outcome: CanaryOutcome::Written,
        };
        self.watchdog.handle(Event::CanaryWritten(canary), now);
    }

    fn take_inventory(&mut self) {
        let inventory = Inventory {
            at: at(self.now),
            hooks: self.hooks.clone(),
            ..Inventory::default()
        };
        let event = Event::Inventory(Arc::new(inventory));
        self.watchdog.handle(event, at(self.now));
    }

    /// Adds an endpoint to the first webhook or, every second time, removes it again; the watchdog gets the new inventory.
    pub fn change(&mut self) {
        self.now += 200;
        if let Some(first) = self.hooks.first_mut() {
            let many = first.endpoints().len() > 1;
            *first = policy(0, if many { 1 } else { 2 });
        }
        self.take_inventory();
    }

    /// Ticks 200 ms later and returns the published assessment; `None` when nothing is published.
    pub fn tick(&mut self) -> Option<Arc<Assessment>> {
        self.now += 200;
        let effects = self.watchdog.handle(Event::Tick, at(self.now));
        let published = effects.into_iter().find_map(|effect| match effect {
            WatchdogEffect::Publish(assessment, _) => Some(assessment),
            _ => None,
        });
        black_box(published)
    }
}

/// The assessment of `count` healthy webhooks.
pub fn assessment(count: usize) -> anyhow::Result<Arc<Assessment>> {
    Quiet::new(count).tick().context("a tick publishes")
}

/// Runs a probe schedule for `tenths` tenths of a second. Each of its `count` webhooks has one backend that answers at once.
pub fn schedule(count: usize, tenths: usize) -> anyhow::Result<()> {
    let rates = Rates {
        interval: Duration::from_secs(5),
        alert_interval: Duration::from_secs(1),
        per_second: 1_000,
        per_backend: 2,
        per_backend_alert: 5,
    };
    let ask = Ask {
        level: ProbeLevel::Http,
        request: "GET /".into(),
    };
    let asked: Vec<_> = hooks(count)
        .into_iter()
        .map(|hook| (hook, Some(ask.clone())))
        .collect();
    let mut schedule = Schedule::new(rates, 1);
    schedule.take_inventory(&asked, false, at(0));
    let room = ProbeRoom {
        free: 256,
        scarce: 128,
    };
    let mut begun = 0;
    for tenth in 0..tenths as u64 {
        let now = at(tenth * 100);
        for attempt in schedule.start(room, |_| true, now) {
            begun += 1;
            let hook = attempt.hooks.first().context("a hook")?;
            let report = report(hook, attempt.target.backend.clone(), now);
            black_box(schedule.finished(attempt.number, &report, now));
        }
        black_box(schedule.pace(now));
    }
    anyhow::ensure!(begun > 0, "nothing was probed");
    Ok(())
}
