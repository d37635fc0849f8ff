//! The engine: the core, and the tasks that feed it.
//!
//! Every observer is a task of its own that sends events into one bounded channel; the core takes them one at a time
//! and never waits for anything. Requests for closer observation go back to the observers through a watch channel, so a
//! hung scrape cannot delay a probe and nothing can delay the verdict.

mod announce;
mod audit;
mod breaker;
mod core_task;
mod observers;
mod push;
mod replicas;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet};

use self::announce::{Announce, Announcements};
use self::breaker::{BreakerTask, Judgement};
use self::core_task::Core;
use self::push::Push;
use self::replicas::Candidacy;
use super::BadUsage;
use super::config::Config;
use crate::domain::act::fence::BreakerView;
use crate::domain::act::leadership::{LeadershipObject, ReplicaView};
use crate::domain::cluster::inventory::InventoryHealth;
use crate::domain::diagnose::verdict::{ControlPlane, Verdict};
use crate::domain::time::Time;
use crate::domain::vocabulary::{Health, Writes};
use crate::domain::watchdog::{Attention, Event, LoggedChange, Watchdog};
use crate::io::Clock;
use crate::io::client::Connection;
use crate::io::client::greeting::Obstacle;
use crate::io::recorder::{Recorder, RecorderOptions};
use crate::io::report::Reported;
use crate::io::report::events::EventWriter;
use crate::io::report::metrics::Metrics;
use crate::io::telemetry::{Telemetry, TelemetrySettings, TraceId, Tracer};

/// Capacity of the channel from the observers to the core. The core takes microseconds per event; while the channel is full,
/// observers wait.
const EVENTS: usize = 1_024;

/// A clock that starts at the current wall-clock time and never steps back.
pub fn clock() -> Clock {
    let began = steady();
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Arc::new(move || Time::from_unix(wall + steady().saturating_sub(began)))
}

/// Time since an arbitrary instant. It advances during a system suspend, where there is such a clock: a leader must not
/// believe that no time has passed.
fn steady() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let clock = ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let clock = ClockId::Monotonic;
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}

/// How long a shutdown waits for changes in flight: enough for one answer of an API server and one more attempt.
const LAST_CHANGES: Duration = Duration::from_secs(6);

/// The configuration, connection and channels that all tasks share.
struct Common {
    config: Config,
    connection: Connection,
    clock: Clock,
    events: mpsc::Sender<Event>,
    attention: watch::Receiver<Attention>,
    tracer: Tracer,
}

/// The running core with its observers. Dropping it stops them.
#[derive(Debug)]
pub struct Engine {
    /// What the daemon reports: the assessment, metrics, certificates and history.
    pub shown: Reported,
    /// Why the API server's first answer was no success; `None` if it was one, or is still to come.
    pub obstacle: watch::Receiver<Option<Obstacle>>,
    tasks: JoinSet<()>,
    candidacy: Option<Candidacy>,
    /// The breaker holds the receiver until its changes have ended.
    stopping: watch::Sender<()>,
    telemetry: Telemetry,
}

impl Engine {
    /// Connects to the cluster and begins to observe it. An API server that does not answer is an observation,
    /// not an error.
    ///
    /// # Errors
    /// When the kubeconfig cannot be used, or the TLS provider, or the folder for recordings.
    pub async fn start(config: &Config) -> anyhow::Result<Self> {
        Self::start_with(config, TelemetrySettings::off()).await
    }

    /// As [`start`](Self::start), and exports traces and metrics as `telemetry` says.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn start_with(config: &Config, telemetry: TelemetrySettings) -> anyhow::Result<Self> {
        let clock = clock();
        let connection = Connection::open(config.kubeconfig.as_deref(), config.context.as_deref()).await;
        let connection = connection.map_err(BadUsage::new)?;
        let recorder = recorder(config, clock())?;
        let (events, incoming) = mpsc::channel(EVENTS);
        let (attend, attention) = watch::channel(Attention::default());
        let (publish, assessment) = watch::channel(None);
        let (judge, judged) = watch::channel(None);
        let shown = Reported {
            assessment,
            metrics: Arc::new(Metrics::new().context("the metrics are inconsistent")?),
            certificates: Arc::default(),
            past: Arc::default(),
        };
        let telemetry = Telemetry::start(telemetry, &shown, &clock);
        let common = Arc::new(Common {
            config: config.clone(),
            connection,
            clock,
            events,
            attention,
            tracer: telemetry.tracer().clone(),
        });
        let mut tasks = JoinSet::new();
        observers::spawn(&mut tasks, &common)?;
        let (candidacy, announcements, stopping) = act(&mut tasks, &common, &shown, judged);
        let obstacle = greet(common.connection.clone());
        let core = Core {
            watchdog: Watchdog::new(&config.namespace)
                .wanting(config.auto_break)
                .with_canaries(config.canaries.further.clone()),
            clock: Arc::clone(&common.clock),
            shown: shown.clone(),
            recorder,
            attend,
            publish,
            judge,
            announcements,
            events: common.events.clone(),
            tracer: common.tracer.clone(),
        };
        tasks.spawn(core.run(incoming));
        Ok(Self {
            shown,
            obstacle,
            tasks,
            candidacy,
            stopping,
            telemetry,
        })
    }

    /// Resolves when a task ends, and says how. No task ends unless it is broken beyond repair.
    pub async fn ended(&mut self) -> String {
        match self.tasks.join_next().await {
            Some(Err(error)) => format!("one of the daemon's tasks failed: {error}"),
            Some(Ok(())) | None => "one of the daemon's tasks ended unexpectedly".to_owned(),
        }
    }

    /// Gives up leadership, waits for changes in flight, then stops every task and waits for it.
    pub async fn stop(mut self) {
        self.stopping.send_replace(());
        if let Some(candidacy) = self.candidacy.take() {
            candidacy.end().await;
        }
        let _ = tokio::time::timeout(LAST_CHANGES, self.stopping.closed()).await;
        self.tasks.shutdown().await;
        self.telemetry.stop().await;
    }
}

fn recorder(config: &Config, now: Time) -> anyhow::Result<Option<Recorder>> {
    let Some(record) = &config.record else {
        return Ok(None);
    };
    let options = RecorderOptions {
        directory: record.directory.clone(),
        max_bytes: record.max_bytes,
        namespace: config.namespace.clone(),
        canaries: config.canaries.further.clone(),
    };
    Ok(Some(Recorder::start(options, now)?))
}

/// Starts the tasks that act on assessments: the leader election, the breaker, and the announcements. Returns the
/// leadership, the sink of announcements, and the breaker's stop signal.
fn act(
    tasks: &mut JoinSet<()>,
    common: &Common,
    shown: &Reported,
    judged: watch::Receiver<Judgement>,
) -> (Option<Candidacy>, Option<Announcements>, watch::Sender<()>) {
    let (stop, stopping) = watch::channel(());
    let identity = replicas::identity();
    let Common { config, clock, .. } = common;
    let candidate = config
        .leadership
        .enabled
        .then(|| replicas::spawn(tasks, common, &identity));
    let (leadership, candidacy) = candidate.unzip();
    let leads = leadership.clone().filter(|_| config.events);
    let announcements = leads.map(|leadership| {
        let announce = Announce {
            writer: EventWriter::new(&common.connection, &identity),
            leadership,
            metrics: Arc::clone(&shown.metrics),
            clock: Arc::clone(clock),
        };
        let (announcements, writing) = announce.start();
        tasks.spawn(writing);
        announcements
    });
    let breaking = BreakerTask {
        connection: common.connection.clone(),
        clock: Arc::clone(clock),
        metrics: Arc::clone(&shown.metrics),
        events: common.events.clone(),
        judged,
        leadership: leadership.clone(),
        announcements: announcements.clone(),
        identity,
        stopping,
    };
    tasks.spawn(breaking.start(config));
    let push = Push {
        shown: shown.clone(),
        leadership,
        clock: Arc::clone(clock),
    };
    push.start(tasks, &config.alertmanager);
    (candidacy, announcements, stop)
}

/// The result of a subtask; `None` if it was cancelled. If it panicked, the panic continues in the caller, which ends the
/// daemon.
fn unless_cancelled<T>(ended: Result<T, JoinError>) -> Option<T> {
    match ended {
        Ok(done) => Some(done),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => None,
    }
}

/// Asks the API server for its version, in the background: the cluster is watched whatever the answer.
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

/// Logs one line per change, with the id of the change's trace if there is one.
fn log(change: &LoggedChange, trace: Option<TraceId>) {
    match change {
        LoggedChange::Hook { from, verdict } => log_verdict(from.is_none(), verdict, trace),
        LoggedChange::ControlPlane(plane) => log_control_plane(plane, trace),
        LoggedChange::Inventory { watch, health } => log_watch(watch, health),
        LoggedChange::Finding(found) => {
            tracing::warn!(object = found.object, "critical and new: {}", found.message)
        }
        LoggedChange::Breaker(breaker) => log_breaker(breaker),
        LoggedChange::ProbePace(late) if late.is_empty() => tracing::info!("probes are on time again"),
        LoggedChange::ProbePace(late) => tracing::warn!("probes are late: {}", late.join("; ")),
        LoggedChange::ApiServers(Err(why)) => tracing::warn!(
            why,
            "not every API server is asked by its own address; the configured one stands for the others"
        ),
        LoggedChange::ApiServers(Ok(())) => {
            tracing::info!("every API server is asked by its own address again");
        }
        LoggedChange::Replica { view, .. } => log_replica(view),
        LoggedChange::Scrape {
            target,
            failure: Some(why),
        } => tracing::warn!(target, why, "a scrape failed"),
        LoggedChange::Scrape {
            target,
            failure: None,
        } => tracing::info!(target, "scrapes succeed again"),
    }
}

fn log_verdict(first: bool, verdict: &Verdict, trace: Option<TraceId>) {
    let (webhook, configuration) = (&*verdict.webhook, verdict.configuration.as_deref());
    let (health, cause) = (verdict.health.as_str(), verdict.cause.map(|cause| cause.as_str()));
    let evidence = verdict.evidence.join(" ");
    let (confidence, summary) = (verdict.confidence, &verdict.summary);
    let trace_id = trace.map(tracing::field::display);
    macro_rules! trouble {
        ($level:ident) => {
            tracing::$level!(
                webhook,
                configuration,
                health,
                cause,
                confidence,
                evidence,
                trace_id,
                "{summary}"
            )
        };
    }
    match verdict.health {
        Health::Failing => trouble!(error),
        Health::Suspect => trouble!(warn),
        // The first verdict on a hook is not logged as a change when it is healthy or unknown.
        _ if first => tracing::debug!(webhook, configuration, health, "{summary}"),
        _ => tracing::info!(webhook, configuration, health, evidence, trace_id, "{summary}"),
    }
}

fn log_control_plane(plane: &ControlPlane, trace: Option<TraceId>) {
    let (writes, summary) = (plane.writes.as_str(), &plane.summary);
    let trace_id = trace.map(tracing::field::display);
    match plane.writes {
        Writes::Blocked => tracing::error!(writes, trace_id, "{summary}"),
        Writes::Delayed => tracing::warn!(writes, trace_id, "{summary}"),
        Writes::Flowing | Writes::Unknown => tracing::info!(writes, trace_id, "{summary}"),
    }
}

fn log_watch(watch: &str, health: &InventoryHealth) {
    match health {
        InventoryHealth::Starting => tracing::debug!(watch, "the watch begins"),
        InventoryHealth::Current => tracing::info!(watch, "the watch is current"),
        InventoryHealth::Stale { why } => {
            tracing::warn!(watch, why, "the watch failed; the last inventory stays in use");
        }
        InventoryHealth::Limited { why } => {
            tracing::warn!(watch, why, "hookwatch continues without this kind");
        }
    }
}

fn log_breaker(breaker: &BreakerView) {
    let (wanted, effective) = (breaker.wanted.as_str(), breaker.effective.as_str());
    let frozen = breaker.frozen.as_deref();
    if breaker.wanted == breaker.effective && frozen.is_none() {
        tracing::info!(wanted, effective, "{}", breaker.why);
    } else {
        tracing::warn!(wanted, effective, frozen, "{}", breaker.why);
    }
}

fn log_replica(view: &ReplicaView) {
    let (role, identity) = (view.role.as_str(), &*view.identity);
    let (holder, by) = (view.holder.as_deref(), view.by.map(LeadershipObject::as_str));
    match &view.trouble {
        Some(trouble) => tracing::warn!(role, identity, holder, by, "{trouble}"),
        None => tracing::info!(role, identity, holder, by, "leadership"),
    }
}
