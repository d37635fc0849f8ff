//! Executes what the breaker of `domain/act` decides, and reports the outcomes to it.
//!
//! Every request runs in a task of its own. Every action with a ticket leads to one observation with that ticket, also where one
//! request serves several. Nothing here waits for a Lease, an Event or a ConfigMap: what replicas must agree on is in the ledger,
//! which no webhook can block.

mod breaker_log;
mod change;
mod done;
mod observed_configs;
mod pauses;
mod unchecked;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::breaker_log::BreakerLog;
use self::done::Done;
use self::observed_configs::{ObservedConfigs, ObservedLists};
use self::pauses::WriteBackoff;
use super::announce::Announcements;
use super::replicas::Leadership;
use super::unless_cancelled;
use crate::app::config::Config;
use crate::domain::act::breaker::{
    Action, Book, Breaker, BreakerSettings, Ceiling, Freeze, HookState, Judged, Notice, ObjectChange,
    Observation, ObservedHook, Policy, ResourceVersion, Ticket, WriteOutcome,
};
use crate::domain::act::bypass::edit::Desired;
use crate::domain::act::fence::AutoBreak;
use crate::domain::cluster::hook::HookId;
use crate::domain::report::assessment::Assessment;
use crate::domain::text::own_account;
use crate::domain::time::Time;
use crate::domain::watchdog::Event;
use crate::io::Clock;
use crate::io::act::audit;
use crate::io::act::breaker::{
    ApiServerClient, ConfigWriter, RetryPolicy, all_know_match_conditions, own_user, servers,
};
use crate::io::act::ledger::LedgerObject;
use crate::io::client::Connection;
use crate::io::report::metrics::Metrics;

/// Interval of the breaker's ticks while there is something to decide or in flight.
const TICK_BUSY: Duration = Duration::from_millis(200);
/// Interval of the breaker's ticks otherwise.
const TICK_IDLE: Duration = Duration::from_secs(1);
/// How often the list of API servers and their release is refreshed.
const REFRESH: Duration = Duration::from_secs(60);
/// The same while the list of API servers cannot be read.
const REFRESH_AGAIN: Duration = Duration::from_secs(10);
/// How long one change may take, all attempts together. With the last attempt's own time it stays well below what the
/// breaker waits for an outcome.
const TIME_FOR_A_CHANGE: Duration = Duration::from_secs(20);

/// The published assessment and the breaker's input, both of one tick.
pub(super) type Judgement = Option<(Arc<Assessment>, Arc<Judged>)>;

pub(super) struct BreakerTask {
    pub(super) connection: Connection,
    pub(super) clock: Clock,
    pub(super) metrics: Arc<Metrics>,
    pub(super) events: mpsc::Sender<Event>,
    pub(super) judged: watch::Receiver<Judgement>,
    pub(super) leadership: Option<Leadership>,
    pub(super) announcements: Option<Announcements>,
    pub(super) identity: Arc<str>,
    /// Changes when the daemon stops.
    pub(super) stopping: watch::Receiver<()>,
}

/// The breaker, and everything that it acts through.
struct Driver {
    breaker: Breaker,
    policy: Policy,
    mode: AutoBreak,
    audit_log: Option<PathBuf>,
    namespace: String,
    account: String,
    links: BreakerTask,
    writer: Arc<ConfigWriter>,
    patience: RetryPolicy,
    ledger: LedgerObject,
    /// Whether all API servers know `matchConditions`; `None` until they were asked.
    match_conditions: Option<bool>,
    leads: bool,
    refresh_at: Time,
    observed_configs: ObservedConfigs,
    breaker_log: BreakerLog,
    /// The freeze order that was last published to the core.
    frozen: Option<Freeze>,
    /// Rules that permit a skip where the fence does not, each with its configurations: those already warned about.
    unusable: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    pauses: WriteBackoff,
    gaps: unchecked::GapWatch,
    jobs: JoinSet<Done>,
    /// How many of the jobs change an object.
    changing: usize,
    /// How many of them write the line about a change into the audit log.
    auditing: usize,
}

impl BreakerTask {
    pub(super) fn start(self, config: &Config) -> BoxFuture<'static, ()> {
        let mut settings = BreakerSettings::new(&self.identity, config.auto_break, config.breaker.clone());
        settings.times = config.breaker_times.clone();
        let patience = RetryPolicy {
            whole: TIME_FOR_A_CHANGE,
            ..config.breaker_retries
        };
        let configured = ApiServerClient::configured(&self.connection);
        if let Some(log) = config.audit_log.clone() {
            // On a thread of its own: a hanging disk must not delay the start. Without the log the breaker acts all the same.
            tokio::task::spawn_blocking(move || {
                if let Err(error) = audit::open(&log) {
                    tracing::error!(%error, "the audit log cannot be written; changes will be made without a line in it");
                }
            });
        }
        let driver = Driver {
            breaker: Breaker::new(settings),
            policy: config.breaker.clone(),
            mode: config.auto_break,
            audit_log: config.audit_log.clone(),
            namespace: config.namespace.clone(),
            account: own_account(&config.namespace),
            writer: Arc::new(ConfigWriter::new(vec![configured], self.dates(), patience)),
            patience,
            ledger: LedgerObject::new(&self.connection),
            match_conditions: None,
            leads: false,
            refresh_at: Time::default(),
            observed_configs: ObservedConfigs::default(),
            breaker_log: BreakerLog::default(),
            frozen: None,
            unusable: BTreeMap::new(),
            pauses: WriteBackoff::default(),
            gaps: unchecked::GapWatch::new(&self.connection, &config.namespace),
            jobs: JoinSet::new(),
            changing: 0,
            auditing: 0,
            links: self,
        };
        Box::pin(driver.run())
    }

    /// The wall clock as it is set now: dates in a configuration are compared with other machines' clocks.
    fn dates(&self) -> Clock {
        let (clock, metrics) = (Arc::clone(&self.clock), Arc::clone(&self.metrics));
        Arc::new(move || metrics.wall.date(clock()))
    }
}

impl Driver {
    async fn run(mut self) {
        self.start_due_reads();
        let mut ticked = Instant::now();
        loop {
            let pause = if self.is_at_rest() { TICK_IDLE } else { TICK_BUSY };
            let observations = tokio::select! {
                () = tokio::time::sleep_until(ticked + pause) => {
                    ticked = Instant::now();
                    self.start_due_reads();
                    vec![Observation::Tick]
                }
                changed = self.links.judged.changed() => match changed {
                    Ok(()) => self.newest_judgement().into_iter().collect(),
                    // The core has ended, so the daemon is stopping: only its signal is waited for.
                    Err(_) => {
                        let _ = self.links.stopping.changed().await;
                        return self.drain().await;
                    }
                },
                Some(done) = self.jobs.join_next() => {
                    unless_cancelled(done).map_or_else(Vec::new, |done| self.apply(done))
                }
                _ = self.links.stopping.changed() => return self.drain().await,
            };
            let observations: Vec<Observation> = self
                .change_of_leadership()
                .into_iter()
                .chain(observations)
                .collect();
            if !observations.is_empty() {
                self.take(observations);
            }
            self.publish();
        }
    }

    /// Waits for the changes in flight and their lines in the audit log, for as long as the daemon lets it. Their outcomes are only
    /// recorded: nothing new is decided.
    async fn drain(mut self) {
        while self.changing + self.auditing > 0
            && let Some(done) = self.jobs.join_next().await
        {
            match done {
                Ok(Done::Changed(changed)) => {
                    self.changing -= 1;
                    for (change, desired, outcome, report) in &changed {
                        self.changed(change, desired, outcome, report);
                    }
                }
                Ok(Done::Audited) => self.auditing -= 1,
                _ => {}
            }
        }
    }

    fn now(&self) -> Time {
        (self.links.clock)()
    }

    /// Whether nothing is in flight, and time alone brings nothing to decide.
    fn is_at_rest(&self) -> bool {
        self.jobs.len() == self.auditing
            && self.observed_configs.culprits.is_empty()
            && self.breaker.states().next().is_none()
    }

    /// Feeds observations to the breaker and executes its actions: those on one object in one request.
    fn take(&mut self, mut observations: Vec<Observation>) {
        let (now, wall) = (self.now(), self.links.metrics.wall.reading());
        // Objects hold dates of the wall clock; the breaker counts by its own.
        for view in observations.iter_mut().filter_map(Observation::view_mut) {
            view.by_hand_until = view.by_hand_until.map(|until| wall.instant(until));
        }
        let (mut reads, mut changes) = (BTreeMap::<_, Vec<_>>::new(), BTreeMap::<_, Vec<_>>::new());
        for action in self.breaker.take(observations, now) {
            match action {
                Action::Read { ticket, hook } => {
                    let object = (hook.kind, Arc::clone(&hook.configuration));
                    reads.entry(object).or_default().push((ticket, hook.webhook));
                }
                Action::Change(change) => {
                    let hook = &change.hook;
                    let object = (hook.kind, Arc::clone(&hook.configuration));
                    changes.entry(object).or_default().push(change);
                }
                Action::ReadLedger => self.read_ledger(),
                Action::WriteLedger {
                    ticket,
                    version,
                    book,
                } => self.write_ledger(ticket, version, book),
                Action::Tell(notice) => self.tell(&notice, now),
            }
        }
        for ((kind, configuration), hooks) in reads {
            let writer = Arc::clone(&self.writer);
            self.jobs.spawn(async move {
                let read = writer.read(kind, &configuration).await.ok();
                let view = |webhook: &str| {
                    read.as_ref()
                        .map(|object| ObservedHook::of(object.as_ref(), webhook))
                };
                let answers = hooks.into_iter().map(|(ticket, webhook)| Observation::Read {
                    ticket,
                    view: view(&webhook),
                });
                Done::Observed(answers.collect())
            });
        }
        for changes in changes.into_values() {
            self.change(changes);
        }
    }

    fn change(&mut self, changes: Vec<ObjectChange>) {
        let desired_states = changes.into_iter().map(|change| (self.desired(&change), change));
        let desired_states: Vec<(Desired, ObjectChange)> = desired_states.collect();
        let author = self.author();
        let writer = Arc::clone(&self.writer);
        self.changing += 1;
        self.jobs.spawn(async move {
            let wanted = desired_states
                .iter()
                .map(|(desired, change)| (change.hook.clone(), desired.clone(), change.expects.clone()));
            let told = writer
                .carry_out_together(&wanted.collect::<Vec<_>>(), &author)
                .await;
            // One outcome for each change, in order.
            let changed = desired_states.into_iter().zip(told);
            let changed =
                changed.map(|((desired, change), (outcome, report))| (change, desired, outcome, report));
            Done::Changed(changed.collect())
        });
    }

    /// Whether this replica began or ceased to lead.
    fn change_of_leadership(&mut self) -> Option<Observation> {
        let leadership = self.links.leadership.as_ref();
        let leads = leadership.is_none_or(Leadership::is_leader_now);
        let news = leads != self.leads;
        self.leads = leads;
        news.then_some(Observation::Leads(leads))
    }

    /// The newest judgement, completed by what the objects themselves say; remembers who its culprits are.
    fn newest_judgement(&mut self) -> Option<Observation> {
        let judgement = self.links.judged.borrow_and_update().clone();
        let (_, judged) = judgement?;
        let mut judged = Judged::clone(&judged);
        judged.match_conditions = self.match_conditions == Some(true);
        // While it is unknown whether API servers support match conditions, the wrong rung could be chosen.
        judged.unread = self.match_conditions.is_none();
        for (hook, facts) in &mut judged.hooks {
            match self.observed_configs.owner(hook) {
                Some(owner) => facts.owner = owner.word.clone(),
                // The owner's annotations have not been read yet.
                None => facts.owner.ceiling = Ceiling::Unread,
            }
        }
        self.observed_configs.culprits = judged
            .hooks
            .iter()
            .filter(|(_, facts)| facts.harms_writes())
            .map(|(hook, _)| hook.clone())
            .collect();
        self.tell_what_is_unusable(&judged);
        Some(Observation::Judged(judged))
    }

    /// Warns about each rule that permits a skip where the fence does not: once, and again when the configurations change that it
    /// concerns.
    fn tell_what_is_unusable(&mut self, judged: &Judged) {
        // An annotation that is not read yet may make the rule usable.
        if !judged.fence_holds || judged.inventory_is_old || judged.unread {
            return;
        }
        let unusable = self.policy.unusable(&judged.hooks);
        for (rule, configurations) in &unusable {
            if self.unusable.get(rule) != Some(configurations) {
                let some: Vec<&str> = configurations.iter().take(10).map(|name| &**name).collect();
                tracing::warn!(
                    %rule,
                    configurations = configurations.len(),
                    some = some.join(", "),
                    "a rule permits skip where the fence does not, and the webhooks are shielded at most: annotate the \
                     configurations hookwatch.dev/breaker: skip, or name them in the fence's maySkip"
                );
            }
        }
        self.unusable = unusable;
    }

    /// Starts the reads that are due: the API servers, hookwatch's user name, the webhook configurations.
    fn start_due_reads(&mut self) {
        let now = self.now();
        if now >= self.refresh_at {
            self.refresh_at = now + REFRESH;
            let (connection, writer) = (self.links.connection.clone(), Arc::clone(&self.writer));
            self.jobs.spawn(async move {
                let (servers, unread) = servers(&connection, writer.servers()).await;
                Done::Servers {
                    listed: unread.is_none(),
                    know: all_know_match_conditions(&servers).await,
                    servers,
                }
            });
            // In a task of its own: a webhook may hold this request up, and only a probation needs the answer.
            let connection = self.links.connection.clone();
            self.jobs
                .spawn(async move { Done::User(own_user(&connection).await) });
        }
        let at_work =
            !self.observed_configs.culprits.is_empty() || self.leads && !self.breaker.involved().is_empty();
        for server in self.observed_configs.due(&self.writer, at_work, now) {
            let writer = Arc::clone(&self.writer);
            self.jobs
                .spawn(async move { Done::Configs(ObservedLists::from(&writer, &server).await) });
        }
    }

    fn read_ledger(&mut self) {
        let ledger = self.ledger.clone();
        self.jobs.spawn(async move {
            let read = match ledger.read_book().await {
                Ok((version, book)) => Observation::Ledger { version, book },
                Err(why) => {
                    tracing::warn!(%why, "the breaker cannot read its ledger");
                    Observation::NoLedger
                }
            };
            Done::Observed(vec![read])
        });
    }

    fn write_ledger(&mut self, ticket: Ticket, version: Option<ResourceVersion>, book: Book) {
        let ledger = self.ledger.clone();
        self.jobs.spawn(async move {
            let outcome = ledger.write_book(version.as_ref(), &book).await;
            if let WriteOutcome::Refused(why) = &outcome {
                tracing::warn!(%why, "the breaker cannot write its ledger");
            }
            Done::LedgerWritten(ticket, outcome)
        });
    }

    fn tell(&mut self, notice: &Notice, now: Time) {
        let uid = self.observed_configs.uid(&notice.hook);
        let (metrics, announcements) = (&self.links.metrics, self.links.announcements.as_ref());
        self.breaker_log.tell(notice, uid, now, metrics, announcements);
    }

    /// Publishes to the core what changed: every hook's standing, and the freeze order.
    fn publish(&mut self) {
        let now = self.now();
        let stages = self.breaker.states();
        let mut stages: BTreeMap<HookId, _> = stages.map(|(hook, stage)| (hook.clone(), stage)).collect();
        for hook in &self.observed_configs.ignored {
            let stage = stages.entry(hook.clone()).or_insert(HookState::Enforcing);
            if *stage == HookState::Enforcing {
                *stage = HookState::Ignored;
            }
        }
        self.watch_gaps(&stages, now);
        let (book, culprits) = (self.breaker.book(), &self.observed_configs.culprits);
        let remembered = |hook: &HookId| book.is_some_and(|book| book.entries.contains_key(hook));
        let wall = self.links.metrics.wall.reading();
        let news = self.breaker_log.standings(
            &stages,
            |hook| culprits.contains(hook) || remembered(hook),
            |hook| Some(wall.instant(self.observed_configs.since(hook)?)),
            self.mode,
            now,
        );
        let frozen = self.observed_configs.frozen.clone();
        if frozen != self.frozen && self.links.events.try_send(Event::Frozen(frozen.clone())).is_ok() {
            self.frozen = frozen;
        }
        if let Some(standings) = news
            && self.links.events.try_send(Event::Standings(standings)).is_err()
        {
            // The core is busy; the next tick tries again.
            self.breaker_log.published = None;
        }
    }

    /// Tracks when webhooks are bypassed or fail open. Once that has ended, lists the objects admitted without review
    /// meanwhile.
    fn watch_gaps(&mut self, stages: &BTreeMap<HookId, HookState>, now: Time) {
        let open = |stage: &HookState| matches!(stage, HookState::Bypassed { .. } | HookState::Probation);
        if stages.values().any(open) {
            self.links.metrics.seen_bypassed(now);
        }
        let assessment = self.links.judged.borrow().as_ref().map(|(it, _)| Arc::clone(it));
        let wall = self.links.metrics.wall.reading();
        let since = |hook: &HookId| Some(wall.instant(self.observed_configs.since(hook)?));
        let ended = self.gaps.update(stages, assessment.as_deref(), since, now);
        // Every replica keeps track of gaps; only the leader reports them.
        for (hook, gap) in self.gaps.ended.due(ended, self.leads, now) {
            let (lister, writer) = (self.gaps.lister.clone(), Arc::clone(&self.writer));
            let gap = gap.dated(wall);
            self.jobs
                .spawn(async move { Done::Listed(lister.list(hook, gap, writer).await.map(Box::new)) });
        }
    }
}
