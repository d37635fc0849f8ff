//! The engine: the core, and the tasks that feed it.
//!
//! Every observer is a task of its own that sends events into one bounded channel; the core takes them one at a
//! time and never waits for anything. What the core wants looked at more closely goes back to the observers
//! through a watch channel, so a hung scrape cannot hold up a probe and nothing can hold up the verdict.

mod announce;
mod audit;
mod breaker;
mod observers;
mod push;
mod replicas;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use self::announce::{Announce, Announcements};
use self::breaker::{Breaking, Judgement};
use self::push::Push;
use self::replicas::Candidacy;
use super::config::Config;
use crate::domain::act::leadership::Place;
use crate::domain::cluster::hook::HookId;
use crate::domain::report::assessment::Assessment;
use crate::domain::thresholds::stood_still;
use crate::domain::time::Time;
use crate::domain::watchdog::{Attention, Change, Effect, Event, Watchdog};
use crate::io::Clock;
use crate::io::client::greeting::Obstacle;
use crate::io::client::{ConnectOptions, Connection};
use crate::io::recorder::{Recorder, RecorderOptions};
use crate::io::report::Reported;
use crate::io::report::events::EventWriter;
use crate::io::report::metrics::{CertificateEnd, Metrics};
use crate::io::report::page::past::Past;
use crate::io::telemetry::{Settings, Telemetry, TraceId, Tracer};

/// How long observations have at least between two judgements, however long judging takes, and how often it is looked
/// whether hookwatch stood still.
const BETWEEN: Duration = Duration::from_millis(200);
/// How often the certificates' ends are read off for the metrics.
const CERTIFICATES: Duration = Duration::from_secs(5);
/// Events that may wait for the core. It needs microseconds for one; past this the observers wait.
const EVENTS: usize = 1_024;

/// A clock that begins with the wall clock and never steps back.
pub fn clock() -> Clock {
    let began = steady();
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Arc::new(move || Time::from_unix(wall + steady().saturating_sub(began)))
}

/// Time since some instant. It goes on while the machine sleeps, where the system has such a clock: a leader that was
/// asleep must not believe that no time has passed.
fn steady() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let clock = ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let clock = ClockId::Monotonic;
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}

/// The running core with its observers. Dropping it stops them.
#[derive(Debug)]
pub struct Engine {
    /// The newest assessment; `None` before the first.
    pub assessment: watch::Receiver<Option<Arc<Assessment>>>,
    /// All metrics.
    pub metrics: Arc<Metrics>,
    /// The end of every certificate known.
    pub certificates: Arc<Mutex<Vec<CertificateEnd>>>,
    /// The last hour, for the page.
    pub past: Arc<Mutex<Past>>,
    /// What stood in the way when the server was asked who it is; `None` when nothing did, or it was not said yet.
    pub obstacle: watch::Receiver<Option<Obstacle>>,
    tasks: JoinSet<()>,
    candidacy: Option<Candidacy>,
    telemetry: Telemetry,
}

impl Engine {
    /// Connects to the cluster and begins to observe it. An API server that does not answer is an observation,
    /// not an error.
    ///
    /// # Errors
    /// When the kubeconfig cannot be used, or the TLS provider, or the folder for recordings.
    pub async fn start(config: &Config) -> anyhow::Result<Self> {
        Self::start_with(config, Settings::off()).await
    }

    /// The same, and sends traces and metrics as `telemetry` wants it.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn start_with(config: &Config, telemetry: Settings) -> anyhow::Result<Self> {
        let clock = clock();
        let options = ConnectOptions {
            kubeconfig: config.kubeconfig.clone(),
            context: config.context.clone(),
        };
        let connection = Connection::open(&options).await?;
        let recorder = config
            .record
            .as_ref()
            .map(|record| {
                let options = RecorderOptions {
                    directory: record.directory.clone(),
                    max_bytes: record.max_bytes,
                    namespace: config.namespace.clone(),
                    canaries: config.canaries.further.clone(),
                };
                Recorder::start(options, clock())
            })
            .transpose()?;
        let metrics = Arc::new(Metrics::new().context("the metrics are inconsistent")?);
        let (events, incoming) = mpsc::channel(EVENTS);
        let (attend, attention) = watch::channel(Attention::default());
        let (publish, assessment) = watch::channel(None);
        let certificates = Arc::new(Mutex::new(Vec::new()));
        let past = Arc::new(Mutex::new(Past::default()));
        let shown = Reported {
            assessment: assessment.clone(),
            metrics: Arc::clone(&metrics),
            certificates: Arc::clone(&certificates),
            past: Arc::clone(&past),
        };
        let telemetry = Telemetry::start(telemetry, &shown, &clock);
        let tracer = telemetry.tracer().clone();
        let mut tasks = JoinSet::new();
        observers::spawn(
            &mut tasks,
            config,
            &connection,
            &clock,
            &events,
            &attention,
            &tracer,
        )?;
        let mut announcements = None;
        let mut leads = None;
        let identity = replicas::identity();
        let candidacy = config.leadership.enabled.then(|| {
            let (leadership, candidacy) =
                replicas::spawn(&mut tasks, config, &connection, &clock, &events, &identity);
            leads = Some(leadership.clone());
            if config.events {
                let announce = Announce {
                    writer: EventWriter::new(&connection, &identity),
                    leadership,
                    metrics: Arc::clone(&metrics),
                };
                let (handed_in, writing) = announce.start();
                announcements = Some(handed_in);
                tasks.spawn(writing);
            }
            candidacy
        });
        let (judge, judged) = watch::channel(None);
        let breaking = Breaking {
            connection: connection.clone(),
            clock: Arc::clone(&clock),
            metrics: Arc::clone(&metrics),
            events: events.clone(),
            judged,
            leadership: leads.clone(),
            announcements: announcements.clone(),
            identity,
        };
        tasks.spawn(breaking.start(config));
        let push = Push {
            assessment: assessment.clone(),
            certificates: Arc::clone(&certificates),
            leadership: leads,
            clock: Arc::clone(&clock),
            metrics: Arc::clone(&metrics),
        };
        push.start(&mut tasks, &config.alertmanager);
        let obstacle = greet(connection);
        let core = Core {
            watchdog: Watchdog::new(&config.namespace)
                .wanting(config.auto_break)
                .with_canaries(config.canaries.further.clone()),
            clock,
            metrics: Arc::clone(&metrics),
            certificates: Arc::clone(&certificates),
            past: Arc::clone(&past),
            recorder,
            attend,
            publish,
            judge,
            announcements,
            events,
            tracer,
        };
        tasks.spawn(core.run(incoming));
        Ok(Self {
            assessment,
            metrics,
            certificates,
            past,
            obstacle,
            tasks,
            candidacy,
            telemetry,
        })
    }

    /// Resolves when a task ends, which none does by itself, and says how; then something is broken beyond repair.
    pub async fn ended(&mut self) -> String {
        match self.tasks.join_next().await {
            Some(Err(error)) => format!("one of the daemon's tasks failed: {error}"),
            Some(Ok(())) | None => "one of the daemon's tasks ended unexpectedly".to_owned(),
        }
    }

    /// Lets another replica lead, stops every task and waits for it.
    pub async fn stop(mut self) {
        if let Some(candidacy) = self.candidacy.take() {
            candidacy.end().await;
        }
        self.tasks.shutdown().await;
        self.telemetry.stop().await;
    }
}

/// Asks the server who it is, beside everything else: it is watched whatever it says.
fn greet(connection: Connection) -> watch::Receiver<Option<Obstacle>> {
    let (tell, told) = watch::channel(None);
    tokio::spawn(async move {
        match connection.greet().await {
            Ok(version) => {
                tracing::info!(server = %connection.server(), version, "the API server answers");
            }
            Err(obstacle) => {
                tracing::warn!("{obstacle}");
                tell.send_replace(Some(obstacle));
            }
        }
    });
    told
}

/// The core's task.
struct Core {
    watchdog: Watchdog,
    clock: Clock,
    metrics: Arc<Metrics>,
    certificates: Arc<Mutex<Vec<CertificateEnd>>>,
    past: Arc<Mutex<Past>>,
    recorder: Option<Recorder>,
    attend: watch::Sender<Attention>,
    publish: watch::Sender<Option<Arc<Assessment>>>,
    judge: watch::Sender<Judgement>,
    announcements: Option<Announcements>,
    events: mpsc::Sender<Event>,
    tracer: Tracer,
}

impl Core {
    async fn run(mut self, mut incoming: mpsc::Receiver<Event>) {
        let mut certificates_read = Instant::now();
        let mut not_before = (self.clock)();
        loop {
            let now = (self.clock)();
            let due = self.watchdog.due().max(not_before);
            // It wakes up more often than it judges, so as to notice that it stood still.
            let wake = due.min(now + BETWEEN);
            let observed = tokio::select! {
                event = incoming.recv(), if wake > now => match event {
                    Some(event) => Some(event),
                    None => return,
                },
                () = tokio::time::sleep(wake.since(now)) => None,
            };
            if (self.clock)().since(wake) >= stood_still() {
                self.take(Event::Resumed);
            }
            if let Some(event) = observed {
                self.take(event);
            } else if (self.clock)() >= due {
                self.take(Event::Tick);
                self.tracer.judged(self.publish.borrow().as_deref());
                not_before = (self.clock)() + BETWEEN;
            }
            if certificates_read.elapsed() >= CERTIFICATES {
                certificates_read = Instant::now();
                self.read_certificates();
            }
        }
    }

    fn take(&mut self, event: Event) {
        self.count(&event);
        let now = (self.clock)();
        self.remember(|past| past.observed(&event, now));
        if let Some(recorder) = self
            .recorder
            .as_mut()
            .filter(|_| !matches!(event, Event::Audited(_)))
        {
            recorder.record(now, &event);
        }
        for effect in self.watchdog.handle(event, now) {
            self.carry_out(effect);
        }
    }

    fn count(&self, event: &Event) {
        match event {
            Event::Probed(report) => self.metrics.probed(report),
            Event::CanaryWritten(report) => self.metrics.canary_written(report),
            Event::Scraped(scrape) => self.metrics.scraped(scrape),
            Event::ScrapeFailed(failure) => self.metrics.scrape_failed(failure),
            Event::Inventory(inventory) => {
                let hooks: BTreeSet<HookId> = inventory.hooks.iter().map(|hook| hook.id.clone()).collect();
                self.metrics.keep_only(&hooks);
                self.tracer.keep_only(&hooks);
            }
            Event::Stored(reading) => self.metrics.stored_read(Ok(reading)),
            Event::StoredFailed(failure) => self.metrics.stored_read(Err(failure)),
            Event::Watches(_)
            | Event::Readiness(_)
            | Event::NodeLeases(_)
            | Event::ProbeOverdue(_)
            | Event::ProbePace(_)
            | Event::CanaryOverdue(_)
            | Event::Fence(_)
            | Event::Standings(_)
            | Event::ApiServers(_)
            | Event::Replica(_)
            | Event::Audited(_)
            | Event::Resumed
            | Event::Tick => {}
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Publish(assessment, judged) => {
                self.judge.send_replace(Some((Arc::clone(&assessment), judged)));
                self.remember(|past| past.assessed(&assessment));
                self.publish.send_replace(Some(assessment));
            }
            Effect::Attend(attention) => {
                self.attend.send_replace(attention);
            }
            Effect::Audit(request) => audit::begin(*request, &self.events),
            Effect::Announce(said) => {
                if let Some(announcements) = &self.announcements {
                    announcements.hand_in(*said, (self.clock)());
                }
            }
            Effect::Tell(change) => {
                match &change {
                    Change::Hook { verdict, .. } => self.metrics.verdict_changed(verdict),
                    Change::Replica { from, view } if *from != Some(view.role) => {
                        self.metrics.role_changed(view.role);
                    }
                    _ => {}
                }
                self.remember(|past| past.told(&change, (self.clock)()));
                log(&change, self.tracer.changed(&change));
            }
        }
    }

    fn remember(&self, what: impl FnOnce(&mut Past)) {
        // Whoever reads it holds it for microseconds.
        what(&mut self.past.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The earliest end per hook, served and of the caBundle.
    fn read_certificates(&self) {
        let mut ends: std::collections::BTreeMap<(HookId, &'static str), Time> = Default::default();
        for (id, _, facts) in self.watchdog.certificates() {
            for (which, end) in [("served", facts.served_not_after), ("ca", facts.ca_not_after)] {
                let Some(end) = end else { continue };
                ends.entry((id.clone(), which))
                    .and_modify(|first| *first = end.min(*first))
                    .or_insert(end);
            }
        }
        if let Ok(mut certificates) = self.certificates.lock() {
            *certificates = ends
                .into_iter()
                .map(|((id, which), end)| (id, which, end))
                .collect();
        }
    }
}

/// One line per change; nothing is logged while nothing changes. Where there is a trace of it, the line says which.
fn log(change: &Change, trace: Option<TraceId>) {
    use crate::domain::cluster::inventory::InventoryHealth;
    use crate::domain::vocabulary::{Health, Writes};
    match change {
        Change::Hook { from, verdict } => {
            let (webhook, configuration) = (&*verdict.webhook, verdict.configuration.as_deref());
            let (health, cause) = (verdict.health.as_str(), verdict.cause.map(|cause| cause.as_str()));
            let evidence = verdict.evidence.join(" ");
            let (confidence, summary) = (verdict.confidence, &verdict.summary);
            let trace_id = trace.map(tracing::field::display);
            match (verdict.health, from) {
                (Health::Failing, _) => tracing::error!(
                    webhook,
                    configuration,
                    health,
                    cause,
                    confidence,
                    evidence,
                    trace_id,
                    "{summary}"
                ),
                (Health::Suspect, _) => tracing::warn!(
                    webhook,
                    configuration,
                    health,
                    cause,
                    confidence,
                    evidence,
                    trace_id,
                    "{summary}"
                ),
                // The first look at a hook that is well, or not known yet, is no news.
                (_, None) => tracing::debug!(webhook, configuration, health, "{summary}"),
                (_, Some(_)) => {
                    tracing::info!(webhook, configuration, health, evidence, trace_id, "{summary}")
                }
            }
        }
        Change::ControlPlane(plane) => {
            let (writes, summary) = (plane.writes.as_str(), &plane.summary);
            let trace_id = trace.map(tracing::field::display);
            match plane.writes {
                Writes::Blocked => tracing::error!(writes, trace_id, "{summary}"),
                Writes::Delayed => tracing::warn!(writes, trace_id, "{summary}"),
                Writes::Flowing | Writes::Unknown => tracing::info!(writes, trace_id, "{summary}"),
            }
        }
        Change::Inventory { watch, health } => match health {
            InventoryHealth::Starting => tracing::debug!(watch, "the watch begins"),
            InventoryHealth::Current => tracing::info!(watch, "the watch is current"),
            InventoryHealth::Stale { why } => {
                tracing::warn!(watch, why, "the watch failed; the last inventory stays in use");
            }
            InventoryHealth::Limited { why } => {
                tracing::warn!(watch, why, "hookwatch continues without this kind");
            }
        },
        Change::Finding(found) => {
            tracing::warn!(object = found.object, "critical and new: {}", found.message)
        }
        Change::Breaker(breaker) => {
            let (wanted, effective) = (breaker.wanted.as_str(), breaker.effective.as_str());
            if breaker.wanted == breaker.effective {
                tracing::info!(wanted, effective, "{}", breaker.why);
            } else {
                tracing::warn!(wanted, effective, "{}", breaker.why);
            }
        }
        Change::ProbePace(late) if late.is_empty() => tracing::info!("probes are on time again"),
        Change::ProbePace(late) => tracing::warn!("probes are late: {}", late.join("; ")),
        Change::ApiServers(Err(why)) => tracing::warn!(
            why,
            "the list of API servers is unknown; the configured address stands for all of them"
        ),
        Change::ApiServers(Ok(())) => tracing::info!("the list of API servers is known again"),
        Change::Replica { view, .. } => {
            let (role, identity) = (view.role.as_str(), &*view.identity);
            let (holder, by) = (view.holder.as_deref(), view.by.map(Place::as_str));
            match &view.trouble {
                Some(trouble) => tracing::warn!(role, identity, holder, by, "{trouble}"),
                None => tracing::info!(role, identity, holder, by, "leadership"),
            }
        }
        Change::Scrape {
            target,
            failure: Some(why),
        } => tracing::warn!(target, why, "a scrape failed"),
        Change::Scrape {
            target,
            failure: None,
        } => tracing::info!(target, "scrapes succeed again"),
    }
}
