//! The simulation: requests arrive, wait for a seat, go through admission and are stored, each step as its own event.

mod admission;
mod ledger;
mod processes;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use super::bypass::Form;
use super::cluster::{Cluster, ReplicaSpec, Serving, WRITE_LIMIT};
use super::counters::Counters;
use super::pool::Pool;
use super::seats::{Admitted, Seats};
use super::timeline::Timeline;
use super::traffic::Verb;
use super::{At, SECOND, seconds};
use crate::random::Random;

use admission::{Call, Refusal};
pub use ledger::{Ledger, Touch};

/// Interval at which reads are counted.
const READS: At = SECOND / 2;
/// Interval at which queued requests that have waited too long are rejected.
const LINES: At = SECOND / 4;

/// Who sent a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// An open-loop client: nothing depends on the answer.
    Open,
    Worker(usize),
    Canary(u64),
}

/// A planned event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Arrive { class: usize, planned: At },
    Work { worker: usize, turn: usize },
    CallEnds { request: usize, call: usize },
    Stored { request: usize },
    Reads,
    Lines,
    Turn,
}

/// A request that is being served.
#[derive(Debug)]
struct Request {
    class: usize,
    replica: usize,
    process: u32,
    origin: Origin,
    turn: usize,
    began: At,
    /// When the API server ends the request.
    limit: At,
    /// When the client disconnects.
    leaves: At,
    /// How long it waited for a seat.
    waited: At,
    seated: bool,
    mutating: At,
    validating: At,
    /// Index of the first webhook not yet considered as the next mutating call.
    next_hook: usize,
    /// Validating calls that have not ended.
    pending: usize,
    refusal: Option<Refusal>,
    /// The HTTP status of the answer; 0 until it is decided.
    code: u16,
}

/// One API-server process.
#[derive(Debug)]
struct Replica {
    process: u32,
    began: At,
    counters: Counters,
    /// One per Service.
    pools: Vec<Pool>,
    bundles: Vec<u32>,
    seats: Seats,
    /// Requests that a restart cut off. The tests need it so that arrivals balance with answers.
    lost: u64,
}

/// How a canary ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CanaryEnd {
    Written,
    /// The API server answered with this status and message.
    Refused(u16, String),
    /// The connection was closed or refused.
    Unreachable,
}

/// The state of the whole simulation.
#[derive(Debug)]
pub struct World {
    pub cluster: Arc<Cluster>,
    random: Random,
    queue: BinaryHeap<Reverse<(At, u64, Step)>>,
    order: u64,
    replicas: Vec<Replica>,
    requests: Vec<Option<Request>>,
    free: Vec<usize>,
    calls: Vec<Option<Call>>,
    free_calls: Vec<usize>,
    /// Whether each webhook matches each class, flattened as by [`Cluster::matching`].
    matches: Vec<bool>,
    /// One per webhook: which bypass its configuration has.
    forms: Vec<Form>,
    /// Canaries that have ended, for the observers to drain: number, instant and result.
    pub returned: Vec<(u64, At, CanaryEnd)>,
    /// What really happened, as the ground truth for scoring.
    pub ledger: Ledger,
}

impl World {
    pub fn new(cluster: Arc<Cluster>, random: Random) -> Self {
        let series = cluster
            .hooks
            .iter()
            .map(|hook| hook.series + 1)
            .max()
            .unwrap_or(0);
        let replica = |_: &ReplicaSpec| Replica {
            process: 0,
            began: 0,
            counters: Counters::new(cluster.classes.len(), series),
            pools: vec![Pool::default(); cluster.services.len()],
            bundles: vec![0; cluster.services.len()],
            seats: Seats::default(),
            lost: 0,
        };
        let mut world = Self {
            replicas: cluster.replicas.iter().map(replica).collect(),
            random,
            queue: BinaryHeap::new(),
            order: 0,
            requests: Vec::new(),
            free: Vec::new(),
            calls: Vec::new(),
            free_calls: Vec::new(),
            matches: cluster.matching(),
            forms: vec![Form::default(); cluster.hooks.len()],
            returned: Vec::new(),
            ledger: Ledger::new(cluster.hooks.len()),
            cluster,
        };
        for class in 0..world.cluster.classes.len() {
            world.plan_arrival(class, 0);
        }
        for worker in 0..world.cluster.workers.len() {
            let at = seconds(world.random.between(0.0, 1.0));
            world.plan(at, Step::Work { worker, turn: 0 });
        }
        world.plan(READS, Step::Reads);
        world.plan(LINES, Step::Lines);
        let turns: Vec<At> = world
            .cluster
            .replicas
            .iter()
            .flat_map(|replica| replica.process.changes())
            .collect();
        for at in turns {
            world.plan(at, Step::Turn);
        }
        world
    }

    fn plan(&mut self, at: At, step: Step) {
        self.order += 1;
        self.queue.push(Reverse((at, self.order, step)));
    }

    /// Which bypass each webhook's configuration has.
    pub fn forms(&self) -> &[Form] {
        &self.forms
    }

    /// Changes a webhook's configuration on every API server at once. Calls under way are not affected.
    pub fn reform(&mut self, hook: usize, form: Form) {
        self.forms[hook] = form;
    }

    /// The instant of the next event; `At::MAX` when there is none.
    pub fn next(&self) -> At {
        self.queue.peek().map_or(At::MAX, |Reverse((at, ..))| *at)
    }

    /// Processes the next event.
    pub fn step(&mut self) {
        let Some(Reverse((now, _, step))) = self.queue.pop() else {
            return;
        };
        match step {
            Step::Arrive { class, planned } => {
                // If the rate changes before the planned arrival, this event only draws the next arrival at the new rate.
                if planned == now {
                    self.arrive(class, Origin::Open, 0, now);
                }
                self.plan_arrival(class, now);
            }
            Step::Work { worker, turn } => self.work(worker, turn, now),
            Step::CallEnds { request, call } => self.call_ends(request, call, now),
            Step::Stored { request } => self.done(request, now),
            Step::Reads => {
                self.count_reads(now);
                self.plan(now + READS, Step::Reads);
            }
            Step::Lines => {
                for replica in 0..self.replicas.len() {
                    self.serve_line(replica, now);
                }
                self.plan(now + LINES, Step::Lines);
            }
            Step::Turn => self.restart(now),
        }
    }

    /// Plans the next arrival of a class or, if its rate changes before, an event that draws the arrival again.
    fn plan_arrival(&mut self, class: usize, now: At) {
        let cluster = Arc::clone(&self.cluster);
        let clients = &cluster.classes[class];
        let tide = if clients.tidal { *cluster.tide.at(now) } else { 1.0 };
        let rate = clients.rate.at(now) * tide;
        let change = clients.rate.next_change(now);
        let change = change.into_iter().chain(cluster.tide.next_change(now)).min();
        let change = change.unwrap_or(At::MAX);
        let at = if rate > 0.0 {
            now + seconds(self.random.exponential(1.0 / rate)).max(1)
        } else {
            At::MAX
        };
        // Poisson arrivals are memoryless, so drawing again at the change keeps the distribution.
        let planned = at;
        let at = at.min(change);
        if at < At::MAX {
            self.plan(at, Step::Arrive { class, planned });
        }
    }

    fn work(&mut self, worker: usize, turn: usize, now: At) {
        let cluster = Arc::clone(&self.cluster);
        let round = &cluster.workers[worker].round;
        let mut turn = turn;
        while self.random.chance(round[turn % round.len()].1) {
            turn += 1;
        }
        self.arrive(round[turn % round.len()].0, Origin::Worker(worker), turn + 1, now);
    }

    /// Sends a canary to a replica, or to none when none accepts connections. [`Self::returned`] gets the result under `number`.
    pub fn canary(&mut self, class: usize, number: u64, replica: Option<usize>, now: At) {
        match replica {
            Some(replica) => self.arrive_at(replica, class, Origin::Canary(number), 0, now),
            None => self
                .returned
                .push((number, now + SECOND / 500, CanaryEnd::Unreachable)),
        }
    }

    fn arrive(&mut self, class: usize, origin: Origin, turn: usize, now: At) {
        let up: Vec<usize> = self.cluster.up(now).collect();
        match self.random.pick(&up) {
            Some(replica) => self.arrive_at(replica, class, origin, turn, now),
            None => {
                if let Origin::Worker(worker) = origin {
                    self.plan(now + SECOND, Step::Work { worker, turn });
                }
            }
        }
    }

    fn arrive_at(&mut self, replica: usize, class: usize, origin: Origin, turn: usize, now: At) {
        let cluster = Arc::clone(&self.cluster);
        let clients = &cluster.classes[class];
        let (mut limit, mut leaves) = (now + WRITE_LIMIT, At::MAX);
        if let Some(patience) = clients.patience {
            // The client and the API server have the same timeout; which of them times out first is random.
            if self.random.chance(0.5) {
                limit = limit.min(now + patience)
            } else {
                leaves = now + patience
            }
        }
        let request = Request {
            class,
            replica,
            process: self.replicas[replica].process,
            origin,
            turn,
            began: now,
            limit,
            leaves,
            waited: 0,
            seated: false,
            mutating: 0,
            validating: 0,
            next_hook: 0,
            pending: 0,
            refusal: None,
            code: 0,
        };
        self.ledger.arrived += 1;
        let index = match self.free.pop() {
            Some(index) => {
                self.requests[index] = Some(request);
                index
            }
            None => {
                self.requests.push(Some(request));
                self.requests.len() - 1
            }
        };
        let writing = self.replicas[replica].counters.writing.now();
        self.replicas[replica].counters.writing.set(now, writing + 1);
        if !clients.workload {
            return self.begin(index, now);
        }
        let seats = *cluster.seats.at(now);
        let admitted = self.replicas[replica]
            .seats
            .ask(index, now, clients.patience, seats);
        match admitted {
            Admitted::Now => self.seat(index, now),
            Admitted::Queued => self.show_line(replica, now),
            Admitted::TurnedAway => self.turn_away(index, now),
        }
    }

    fn show_line(&mut self, replica: usize, now: At) {
        let replica = &mut self.replicas[replica];
        replica.counters.queued.set(now, replica.seats.waiting() as u64);
    }

    /// Gives a queued or new request its seat.
    fn seat(&mut self, index: usize, now: At) {
        let Some(request) = self.requests[index].as_mut() else {
            return;
        };
        (request.seated, request.waited) = (true, now - request.began);
        let (replica, waited) = (request.replica, request.waited);
        self.replicas[replica].counters.wait.observe(waited);
        self.ledger.seated(now, waited);
        self.begin(index, now);
    }

    fn turn_away(&mut self, index: usize, now: At) {
        if let Some(request) = self.requests[index].as_mut() {
            request.code = 429;
            request.waited = now - request.began;
            self.replicas[request.replica].counters.turned_away += 1;
        }
        self.done(index, now);
    }

    fn serve_line(&mut self, replica: usize, now: At) {
        let seats = *self.cluster.seats.at(now);
        while let Some((index, seated)) = self.replicas[replica].seats.next(now, seats) {
            if seated {
                self.seat(index, now)
            } else {
                self.turn_away(index, now)
            }
        }
        self.show_line(replica, now);
    }

    /// The API server's own work after admission: storing the object, or answering with the refusal.
    fn store(&mut self, index: usize, now: At) {
        let cluster = Arc::clone(&self.cluster);
        let Some(request) = self.requests[index].as_mut() else {
            return;
        };
        let class = &cluster.classes[request.class];
        let load = *cluster.replicas[request.replica].load.at(now);
        let accepted = request.refusal.is_none();
        request.code = match &request.refusal {
            None if class.verb == Verb::Post => 201,
            None => 200,
            Some(refusal) => refusal.status,
        };
        let half = if accepted { 1.0 } else { 0.5 };
        let mut own = self.random.log_normal(cluster.own, 0.4) * load * class.weight * half;
        own += *cluster.authorizer.at(now) * self.random.between(0.7, 1.3);
        if class.quota && accepted {
            own += *cluster.quota.at(now) * self.random.between(0.7, 1.3);
        }
        // An update first reads the object. Dry runs and refused writes are not written.
        let reads = class.verb != Verb::Post;
        let writes = accepted && !class.dry_run && class.verb != Verb::List;
        let mut at = now + seconds(own);
        let mut etcd = Vec::new();
        for _ in 0..usize::from(reads) + usize::from(writes) {
            let took = self.random.log_normal(cluster.etcd, 0.5) * cluster.etcd_pace.at(at) * load.sqrt();
            let ended = thawed(&cluster.etcd_frozen, at) + seconds(took);
            etcd.push(ended - at);
            at = ended;
        }
        if let Some(request) = self.requests[index].as_mut()
            && at > request.limit
        {
            (at, request.code) = (request.limit.max(now), 504);
        }
        self.count_etcd(index, &etcd);
        self.plan(at, Step::Stored { request: index });
    }

    /// Counts the etcd requests when they are planned and not when they end: no scrape is fine enough to show the difference.
    fn count_etcd(&mut self, index: usize, took: &[At]) {
        if let Some(request) = &self.requests[index] {
            let replica = &mut self.replicas[request.replica];
            if replica.process == request.process {
                for took in took {
                    replica.counters.etcd.observe(*took);
                }
            }
        }
    }

    /// Ends a request: counts it, frees its seat and informs its sender.
    fn done(&mut self, index: usize, now: At) {
        let Some(request) = self.requests[index].take() else {
            return;
        };
        self.free.push(index);
        let cluster = Arc::clone(&self.cluster);
        let replica = &mut self.replicas[request.replica];
        let same_process = replica.process == request.process;
        if same_process {
            let without = request.waited + request.mutating + request.validating;
            replica
                .counters
                .answered(request.class, request.code, now - request.began, without);
            let writing = replica.counters.writing.now();
            replica.counters.writing.set(now, writing.saturating_sub(1));
            if request.seated {
                replica.seats.leave();
            }
            self.ledger.answered += 1;
        } else {
            replica.lost += 1;
        }
        match request.origin {
            Origin::Open => {}
            Origin::Worker(worker) => {
                let think = self.random.exponential(cluster.workers[worker].think);
                let turn = request.turn;
                self.plan(now + seconds(think), Step::Work { worker, turn });
            }
            Origin::Canary(number) => {
                let end = match (same_process, request.code) {
                    (false, _) => CanaryEnd::Unreachable,
                    (true, 200..300) => CanaryEnd::Written,
                    (true, code) => CanaryEnd::Refused(code, self.explain(&request)),
                };
                self.returned.push((number, now, end));
            }
        }
        self.serve_line(request.replica, now);
    }

    /// A replica's counters, its process number and the instant at which that process started; `None` unless it serves.
    pub fn counters(&self, replica: usize, now: At) -> Option<(&Counters, u32, At)> {
        let serves = *self.cluster.replicas[replica].serving.at(now) == Serving::Up;
        let replica = &self.replicas[replica];
        serves.then_some((&replica.counters, replica.process, replica.began))
    }

    /// Requests that are being served.
    #[cfg(test)]
    pub fn in_flight(&self) -> u64 {
        self.requests.iter().flatten().count() as u64
    }

    /// Requests that a restart cut off.
    #[cfg(test)]
    pub fn lost(&self) -> u64 {
        self.replicas.iter().map(|replica| replica.lost).sum()
    }
}

/// When etcd next completes requests: `at` itself, unless etcd is stalled then.
fn thawed(frozen: &Timeline<bool>, at: At) -> At {
    match frozen.at(at) {
        true => frozen.next_change(at).unwrap_or(at + WRITE_LIMIT),
        false => at,
    }
}

#[cfg(test)]
mod tests;
