//! Runs the probes that the schedule asks for, and reports to the core what they saw.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Common, unless_cancelled};
use crate::domain::cluster::hook::ProbeLevel;
use crate::domain::cluster::inventory::Inventory;
use crate::domain::observe::probe::ProbeReport;
use crate::domain::observe::schedule::{ProbeRoom, Schedule, ScheduledProbe};
use crate::domain::watchdog::{Attention, Event};
use crate::io::observe::probe::{ProbeLimits, ProbeNews, ProbeRequest, Prober, ask_of};

/// Shortest pause between two looks at the schedule unless something changes, and so the resolution of due times.
const LOOK: Duration = Duration::from_millis(100);
/// Longest pause between two looks at the schedule.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Capacity of the channel from running probes. While it is full, early updates are dropped and final reports wait.
const NEWS: usize = 1_024;

/// A probe's progress, by its number.
#[derive(Debug)]
enum ProbeUpdate {
    Early(ProbeNews),
    Finished(Box<ProbeReport>),
}

/// Runs all probes. It looks at the schedule at once when the core wants a hook probed because a call to it has begun to wait.
pub(super) struct ProbeRunner {
    common: Arc<Common>,
    prober: Arc<Prober>,
    namespace: Arc<str>,
    attention: watch::Receiver<Attention>,
    inventory: watch::Receiver<Arc<Inventory>>,
    /// One permit per probe in flight.
    under_way: Arc<Semaphore>,
    schedule: Schedule,
    /// The sender for probes in flight.
    news: mpsc::Sender<(u64, ProbeUpdate)>,
    said: mpsc::Receiver<(u64, ProbeUpdate)>,
    /// Owned here so that probes end with the task that starts them.
    running: JoinSet<()>,
}

impl ProbeRunner {
    /// Starts no probe yet.
    ///
    /// # Errors
    /// When the TLS provider cannot be used.
    pub(super) fn new(
        common: &Arc<Common>,
        inventory: watch::Receiver<Arc<Inventory>>,
    ) -> anyhow::Result<Self> {
        let config = &common.config;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let limits = ProbeLimits {
            beside_api_server: common.connection.is_beside_api_server(),
            ..ProbeLimits::default()
        };
        let prober = Prober::new(provider, limits, Arc::clone(&common.clock)).context("cannot probe")?;
        // Random, so that two replicas do not probe in step.
        let seed = RandomState::new().hash_one("probes");
        let (news, said) = mpsc::channel(NEWS);
        Ok(Self {
            common: Arc::clone(common),
            prober: Arc::new(prober),
            namespace: config.namespace.as_str().into(),
            attention: common.attention.clone(),
            inventory,
            under_way: Arc::new(Semaphore::new(config.probes.concurrency)),
            schedule: Schedule::new(config.probes.rates, seed),
            news,
            said,
            running: JoinSet::new(),
        })
    }

    /// Probes until the task is ended: it does not notice a core that is gone.
    pub(super) async fn run(mut self) {
        let mut looked = Instant::now();
        let mut pause = LOOK;
        loop {
            tokio::select! {
                Some((number, news)) = self.said.recv() => {
                    self.tell(number, news).await;
                    // Other probes may wait for the permit that this one has released.
                    pause = LOOK;
                    continue;
                }
                () = tokio::time::sleep_until(looked + pause) => {}
                Ok(()) = self.inventory.changed() => self.take_inventory(),
                Ok(()) = self.attention.changed() => {
                    let attention = self.attention.borrow_and_update().clone();
                    let now = (self.common.clock)();
                    self.schedule.attend(attention.hooks, attention.waiting_since, now);
                }
            }
            while let Some(ended) = self.running.try_join_next() {
                // A panic ends this task too: the schedule would wait without end for the report of that probe.
                unless_cancelled(ended);
            }
            looked = Instant::now();
            self.start_what_is_due();
            let now = (self.common.clock)();
            let due = self.schedule.due();
            pause = due.map_or(LONGEST_PAUSE, |due| due.since(now).clamp(LOOK, LONGEST_PAUSE));
            if let Some(pace) = self.schedule.pace(now) {
                // The send fails only when the core is gone.
                let _ = self.common.events.send(Event::ProbePace(pace)).await;
            }
        }
    }

    fn take_inventory(&mut self) {
        let inventory = Arc::clone(&self.inventory.borrow_and_update());
        let asked = inventory.hooks.iter().map(|hook| {
            let level = self.common.config.probes.level_of(&hook.id, hook.probe_level);
            let asks = (level != ProbeLevel::Off).then(|| ask_of(hook, level, &self.namespace));
            (Arc::clone(hook), asks)
        });
        let asked: Vec<_> = asked.collect();
        let now = (self.common.clock)();
        self.schedule
            .take_inventory(&asked, self.common.config.probes.cluster_ip, now);
    }

    fn start_what_is_due(&mut self) {
        let room = ProbeRoom {
            free: self.under_way.available_permits(),
            scarce: self.common.config.probes.concurrency / 2,
        };
        let prober = &self.prober;
        let now = (self.common.clock)();
        let due = self.schedule.start(room, |target| prober.keeps(target), now);
        for target in self.schedule.dropped() {
            self.prober.forget(&target);
        }
        for attempt in due {
            self.begin(attempt);
        }
    }

    fn begin(&mut self, attempt: ScheduledProbe) {
        // There is room for each: only this task takes permits.
        let permit = Arc::clone(&self.under_way).try_acquire_owned().ok();
        let Some(hook) = attempt.hooks.first().map(Arc::clone) else {
            return;
        };
        let number = attempt.number;
        let ids = attempt.hooks.iter().map(|hook| &hook.id);
        let span = self.common.tracer.probe(ids, &attempt.target.backend);
        let request = ProbeRequest {
            traceparent: span.traceparent(),
            deadline: attempt.deadline,
            hook,
            backend: attempt.target.backend.clone(),
            level: attempt.ask.level,
            connection: attempt.connection,
            gone: attempt.gone,
            namespace: Arc::clone(&self.namespace),
        };
        let (prober, news) = (Arc::clone(&self.prober), self.news.clone());
        self.running.spawn(async move {
            let early = news.clone();
            let report = prober
                .probe(request, move |said| {
                    let _ = early.try_send((number, ProbeUpdate::Early(said)));
                })
                .await;
            span.probed(&report);
            let _ = news.send((number, ProbeUpdate::Finished(Box::new(report)))).await;
            drop(permit);
        });
    }

    /// Sends a probe's update to the core, once for each hook that shares the probe.
    async fn tell(&mut self, number: u64, news: ProbeUpdate) {
        let now = (self.common.clock)();
        let reports = match news {
            ProbeUpdate::Early(ProbeNews::Overdue(overdue)) => {
                for overdue in self.schedule.overdue(number, &overdue, now) {
                    let _ = self
                        .common
                        .events
                        .send(Event::ProbeOverdue(Box::new(overdue)))
                        .await;
                }
                return;
            }
            ProbeUpdate::Early(ProbeNews::Shaken(report)) => self.schedule.shaken(number, &report, now),
            ProbeUpdate::Finished(report) => self.schedule.finished(number, &report, now),
        };
        for report in reports {
            let _ = self.common.events.send(Event::Probed(Box::new(report))).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::config::{Config, ConfigArguments};
    use crate::domain::time::Time;
    use crate::io::telemetry::Tracer;
    use crate::io::testing::{TestReply, TestServer};

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_panics_ends_the_task_that_makes_all_probes() {
        let (events, _core) = mpsc::channel(NEWS);
        let (_attend, attention) = watch::channel(Attention::default());
        let (_known, inventory) = watch::channel(Arc::default());
        let server = TestServer::start(|_| TestReply::Hang).await;
        let common = Arc::new(Common {
            config: Config::parse("", &ConfigArguments::default()).expect("a configuration"),
            connection: server.connection().await,
            clock: Arc::new(Time::default),
            events,
            attention,
            tracer: Tracer::default(),
        });
        let mut probes = ProbeRunner::new(&common, inventory).expect("a runner");
        probes.running.spawn(async { panic!("a probe broke") });
        let ended = tokio::time::timeout(Duration::from_secs(60), tokio::spawn(probes.run())).await;
        assert!(ended.is_ok_and(|ended| ended.is_err_and(|error| error.is_panic())));
    }
}
