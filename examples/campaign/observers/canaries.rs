//! Canaries: dry-run writes through the model's admission.

use std::time::Duration;

use hookwatch::domain::observe::canary::{
    CanaryOutcome, CanaryOverdue, CanaryReport, CanaryTarget, may_be_sent,
};
use hookwatch::domain::watchdog::Event;

use super::Coming;
use crate::model::cluster::{Cluster, Serving};
use crate::model::inventory::time;
use crate::model::traffic::Place;
use crate::model::world::{CanaryEnd, World};
use crate::model::{At, SECOND, seconds};
use crate::random::Random;

const OVERDUE: At = 3 * SECOND / 10;
/// The daemon's timeout for a canary.
const DEADLINE: At = 36 * SECOND;

/// A canary under way.
#[derive(Debug, Clone, Copy)]
struct Out {
    number: u64,
    target: CanaryTarget,
    sent: At,
}

/// The schedule of one target.
#[derive(Debug)]
struct Row {
    target: CanaryTarget,
    /// When it was last due, whether or not a canary was sent then; `None` before the first time.
    sent: Option<At>,
}

#[derive(Debug)]
pub(super) struct Canaries {
    rows: Vec<Row>,
    out: Vec<Out>,
    number: u64,
    /// The replica that the client's connection leads to, modulo the number of replicas.
    replica: usize,
    begin: At,
}

/// Where the object that a target's canaries write is.
fn place(target: CanaryTarget) -> Place {
    match target {
        CanaryTarget::OwnNamespace => Place::Hookwatch,
        CanaryTarget::KubeSystem => Place::KubeSystem,
        // The campaign configures no further targets.
        CanaryTarget::NodeLease | CanaryTarget::Further(_) => Place::NodeLeases,
    }
}

impl Canaries {
    pub(super) fn new(begin: At, random: &mut Random) -> Self {
        let row = |target| Row { target, sent: None };
        Self {
            rows: CanaryTarget::ALL.map(row).into(),
            out: Vec::new(),
            number: 0,
            replica: random.below(64),
            begin,
        }
    }

    pub(super) fn replica(&self, cluster: &Cluster) -> usize {
        self.replica % cluster.replicas.len()
    }

    pub(super) fn look(
        &mut self,
        now: At,
        pace: At,
        world: &mut World,
        random: &mut Random,
        coming: &mut Coming,
    ) {
        self.give_up(now, coming);
        for index in 0..self.rows.len() {
            // The targets' turns are spread evenly over the interval.
            let first = self.begin + pace * index as At / self.rows.len() as At;
            let turns = |at: At| (at + pace).saturating_sub(first) / pace;
            if self.rows[index]
                .sent
                .is_some_and(|sent| turns(now) == turns(sent))
            {
                continue;
            }
            self.rows[index].sent = Some(now);
            let target = self.rows[index].target;
            let out = self.out.iter().filter(|out| out.target == target);
            let last = out.clone().map(|out| out.sent).max();
            let since_last = Duration::from_micros(now - last.unwrap_or(now));
            if may_be_sent(out.count(), since_last) {
                self.send(target, now, world, random, coming);
            }
        }
    }

    fn send(
        &mut self,
        target: CanaryTarget,
        now: At,
        world: &mut World,
        random: &mut Random,
        coming: &mut Coming,
    ) {
        let cluster = std::sync::Arc::clone(&world.cluster);
        let class = cluster
            .classes
            .iter()
            .position(|class| class.dry_run && class.place == place(target));
        let Some(class) = class else { return };
        self.number += 1;
        let out = Out {
            number: self.number,
            target,
            sent: now,
        };
        self.out.push(out);
        let waiting = OVERDUE + SECOND / 1_000;
        let overdue = CanaryOverdue {
            target,
            started: time(now),
            waiting: Duration::from_micros(waiting),
        };
        coming.tell(now + waiting, Event::CanaryOverdue(overdue));
        match self.connect(&cluster, now, random) {
            Some(replica) => world.canary(class, out.number, Some(replica), now),
            // A hung process is waited for until the deadline; a process that is gone refuses the connection.
            None if self.serving(&cluster, now) == Some(Serving::Hung) => {}
            None => world.canary(class, out.number, None, now),
        }
    }

    fn serving(&self, cluster: &Cluster, now: At) -> Option<Serving> {
        let replica = cluster.replicas.get(self.replica(cluster))?;
        Some(*replica.serving.at(now))
    }

    /// The replica that answers the client; behind a load balancer, another one if the current one is down. `None` when the
    /// replica does not serve.
    fn connect(&mut self, cluster: &Cluster, now: At, random: &mut Random) -> Option<usize> {
        let current = self.replica(cluster);
        let up: Vec<usize> = cluster.up(now).collect();
        if up.contains(&current) {
            return Some(current);
        }
        if cluster.balanced && *cluster.replicas[current].serving.at(now) == Serving::Down {
            self.replica = random.pick(&up)?;
            return Some(self.replica);
        }
        None
    }

    /// Reports canaries that have been under way for [`DEADLINE`] as timed out.
    fn give_up(&mut self, now: At, coming: &mut Coming) {
        let (late, out) = self.out.iter().partition(|out| now >= out.sent + DEADLINE);
        self.out = out;
        let late: Vec<Out> = late;
        for out in late {
            let report = CanaryReport {
                target: out.target,
                started: time(out.sent),
                took: Duration::from_micros(now - out.sent),
                created: false,
                outcome: CanaryOutcome::TimedOut,
            };
            coming.tell(now, Event::CanaryWritten(report));
        }
    }

    /// Whether a canary that is reported overdue is still under way.
    pub(super) fn is_out(&self, overdue: &CanaryOverdue) -> bool {
        let same = |out: &Out| out.target == overdue.target && time(out.sent) == overdue.started;
        self.out.iter().any(same)
    }

    pub(super) fn returned(
        &mut self,
        returned: &mut Vec<(u64, At, CanaryEnd)>,
        random: &mut Random,
        coming: &mut Coming,
    ) {
        for (number, at, end) in returned.drain(..) {
            let Some(index) = self.out.iter().position(|out| out.number == number) else {
                continue;
            };
            let out = self.out.swap_remove(index);
            // Network time there and back.
            let at = at + seconds(random.log_normal(0.001, 0.5));
            let report = CanaryReport {
                target: out.target,
                started: time(out.sent),
                took: Duration::from_micros(at - out.sent),
                created: false,
                outcome: match end {
                    CanaryEnd::Written => CanaryOutcome::Written,
                    CanaryEnd::Refused(status, message) => CanaryOutcome::from_status(status, &message),
                    CanaryEnd::Unreachable => CanaryOutcome::Unreachable {
                        why: "connection refused".to_owned(),
                    },
                },
            };
            coming.tell(at, Event::CanaryWritten(report));
        }
    }
}
