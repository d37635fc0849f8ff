//! Pushes alerts to Alertmanagers: one task evaluates which fire, and one per Alertmanager pushes them.
//!
//! Nothing waits for these tasks. A sender always reads the newest board, so one whose Alertmanager is down, slow or
//! odd delays neither another sender nor the daemon, and queues nothing.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::replicas::Leadership;
use crate::app::config::AlertmanagerConfig;
use crate::app::every;
use crate::domain::report::alerts::{AlertDelivery, Batch, Board, Tracker, Voice, conditions};
use crate::io::Clock;
use crate::io::endpoint::EndpointError;
use crate::io::report::Reported;
use crate::io::report::alertmanager::{AlertEnvelope, Alertmanager, body};
use crate::io::report::metrics::{Dropped, Metrics};

/// How often alerts are looked at, and the shortest time between two pushes: what changes in between goes together.
const LOOK: Duration = Duration::from_secs(1);

/// What alerts are made from, and whether this replica may push them.
pub(super) struct Push {
    pub(super) shown: Reported,
    /// `None` for a daemon that takes no part in an election.
    pub(super) leadership: Option<Leadership>,
    pub(super) clock: Clock,
}

impl Push {
    /// Starts the tasks; none when no Alertmanager is configured.
    pub(super) fn start(self, tasks: &mut JoinSet<()>, config: &AlertmanagerConfig) {
        if config.targets.is_empty() {
            return;
        }
        let (publish, board) = watch::channel(Arc::new(Board::default()));
        for target in &config.targets {
            let name = target.name();
            self.shown.metrics.alertmanager_known(&name);
            let sender = Sender {
                alertmanager: Alertmanager::new(target.clone(), config.pace.timeout),
                delivery: AlertDelivery::new(config.pace),
                envelope: config.envelope.clone(),
                board: board.clone(),
                leadership: self.leadership.clone(),
                clock: Arc::clone(&self.clock),
                metrics: Arc::clone(&self.shown.metrics),
                toss: RandomState::new(),
                attempts: 0,
                trouble: None,
                left_out: 0,
                name,
            };
            tasks.spawn(sender.run());
        }
        tasks.spawn(self.look(publish));
    }

    async fn look(self, publish: watch::Sender<Arc<Board>>) {
        let mut tracker = Tracker::default();
        let mut ticks = every(LOOK);
        loop {
            ticks.tick().await;
            let Some(assessment) = self.shown.assessment.borrow().clone() else {
                continue;
            };
            let certificates = self.shown.certificate_ends();
            let now = (self.clock)();
            let board = tracker.look(conditions(&assessment, &certificates, now), now);
            publish.send_replace(Arc::new(board));
        }
    }
}

struct Sender {
    name: String,
    alertmanager: Alertmanager,
    delivery: AlertDelivery,
    envelope: AlertEnvelope,
    board: watch::Receiver<Arc<Board>>,
    leadership: Option<Leadership>,
    clock: Clock,
    metrics: Arc<Metrics>,
    toss: RandomState,
    attempts: u64,
    /// How the last push failed, when it did: the reason and the status.
    trouble: Option<(&'static str, Option<u16>)>,
    left_out: usize,
}

impl Sender {
    async fn run(mut self) {
        let mut ticks = every(LOOK);
        loop {
            ticks.tick().await;
            let board = Arc::clone(&self.board.borrow_and_update());
            let now = (self.clock)();
            let standing = self.leadership.as_ref().map(Leadership::standing);
            let voice = Voice::of(standing.as_ref(), now);
            self.count_what_is_lost(&board, voice);
            if let Some(batch) = self.delivery.next(&board, voice, now) {
                self.push(&batch).await;
            }
        }
    }

    fn count_what_is_lost(&mut self, board: &Board, voice: Voice) {
        let forgotten = self.delivery.forgotten(board);
        if forgotten > 0 {
            self.metrics
                .alerts_dropped(&self.name, Dropped::Expired, forgotten);
        }
        let left_out = if voice == Voice::Nothing {
            0
        } else {
            board.left_out
        };
        if left_out > self.left_out {
            let more = left_out - self.left_out;
            self.metrics.alerts_dropped(&self.name, Dropped::TooMany, more);
            if self.left_out == 0 {
                tracing::warn!(
                    alertmanager = self.name,
                    left_out,
                    "more alerts fire than are pushed"
                );
            }
        }
        self.left_out = left_out;
    }

    async fn push(&mut self, batch: &Batch) {
        let sent = (self.clock)();
        let body = body(batch, &self.envelope, sent, self.metrics.wall.reading());
        let outcome = self.alertmanager.push(body).await;
        let now = (self.clock)();
        match outcome {
            Ok(()) => {
                self.delivery.accepted(batch, now);
                self.metrics.alerts_sent(&self.name, batch.len(), now);
                let (firing, ended) = (batch.firing.len(), batch.ended.len());
                if self.trouble.take().is_some() {
                    tracing::info!(alertmanager = self.name, "it takes alerts again");
                }
                tracing::debug!(alertmanager = self.name, firing, ended, "alerts were pushed");
            }
            Err(why) => self.failed(batch, &why),
        }
    }

    fn failed(&mut self, batch: &Batch, why: &EndpointError) {
        let now = (self.clock)();
        self.metrics.push_failed(&self.name, why);
        if why.may_pass() {
            self.attempts += 1;
            let toss = self.toss.hash_one(self.attempts) % 1_000;
            self.delivery.failed(toss as f64 / 1_000.0, now);
        } else if self.delivery.refused(batch, now) {
            self.metrics
                .alerts_dropped(&self.name, Dropped::Refused, batch.len());
        }
        // Once per kind of failure, not once per push.
        let trouble = Some((why.reason(), why.status()));
        if self.trouble != trouble {
            tracing::warn!(alertmanager = self.name, %why, "alerts were not pushed");
        }
        self.trouble = trouble;
    }
}
