//! The election: makes the reads and writes that the candidate asks for, and publishes who leads.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{sleep_until, timeout};

use super::{Common, unless_cancelled};
use crate::domain::act::leadership::candidate::ClaimStep;
use crate::domain::act::leadership::{
    Bid, BidOutcome, Candidate, LeadershipObject, ReplicaReport, ReplicaStanding, Terms, Undecided,
};
use crate::domain::time::Time;
use crate::domain::watchdog::Event;
use crate::io::Clock;
use crate::io::act::lease::LeaseObject;
use crate::io::act::ledger::LedgerObject;

/// How long a stopping daemon may take to release its leadership.
const FAREWELL: Duration = Duration::from_secs(3);

/// Whether this replica leads, for tasks that are about to act.
#[derive(Clone)]
pub(super) struct Leadership {
    standing: watch::Receiver<ReplicaStanding>,
    clock: Clock,
}

impl Leadership {
    /// This replica's standing at the last check.
    pub(super) fn standing(&self) -> ReplicaStanding {
        self.standing.borrow().clone()
    }

    /// Whether this replica leads at this instant. Ask at the moment of a write, not before.
    pub(super) fn is_leader_now(&self) -> bool {
        matches!(*self.standing.borrow(), ReplicaStanding::Leading { until, .. } if (self.clock)() < until)
    }
}

/// Ends the candidacy of a daemon that stops. The sender that goes through it is used once leadership is released.
#[derive(Debug)]
pub(super) struct Candidacy(oneshot::Sender<oneshot::Sender<()>>);

impl Candidacy {
    /// Lets go of the Lease and the ledger, so that another replica need not wait for them to run out.
    pub(super) async fn end(self) {
        let (say_left, left) = oneshot::channel();
        let _ = self.0.send(say_left);
        // Whatever keeps it from letting go must not keep the daemon from stopping.
        let _ = timeout(FAREWELL, left).await;
    }
}

/// This replica's identity: the name of its machine or Pod, and a random suffix.
pub(super) fn identity() -> Arc<str> {
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    let host: String = host.chars().filter(|c| !c.is_control()).take(200).collect();
    let suffix = RandomState::new().hash_one(std::process::id());
    format!("{host}_{suffix:016x}").into()
}

/// Begins to take part in the election.
pub(super) fn spawn(
    tasks: &mut JoinSet<()>,
    common: &Common,
    identity: &Arc<str>,
) -> (Leadership, Candidacy) {
    let Common {
        config,
        connection,
        clock,
        events,
        ..
    } = common;
    let terms = Terms {
        term: config.leadership.term,
    };
    let (publish, standing) = watch::channel(ReplicaStanding::Undecided(Undecided::NotRead));
    let election = Election {
        candidate: Candidate::new(Arc::clone(identity), terms),
        terms,
        identity: Arc::clone(identity),
        lease: LeaseObject::new(connection, &config.namespace, &config.leadership.lease),
        ledger: LedgerObject::new(connection),
        clock: Arc::clone(clock),
        events: events.clone(),
        publish,
        reported: None,
        troubles: Default::default(),
        writing: JoinSet::new(),
        jitter: RandomState::new(),
        round: 0,
    };
    let (leave, leaving) = oneshot::channel();
    tasks.spawn(election.run(leaving));
    let leadership = Leadership {
        standing,
        clock: Arc::clone(clock),
    };
    (leadership, Candidacy(leave))
}

/// Current trouble with requests, at the index of their `LeadershipObject`.
#[derive(Default)]
struct Troubles {
    reading: [Option<String>; 2],
    writing: [Option<String>; 2],
}

/// A finished write of the Lease: the bid, when it was sent, the outcome, and what went wrong.
type LeaseWritten = (Bid, Time, BidOutcome, Option<String>);

struct Election {
    candidate: Candidate,
    terms: Terms,
    identity: Arc<str>,
    lease: LeaseObject,
    ledger: LedgerObject,
    clock: Clock,
    events: mpsc::Sender<Event>,
    publish: watch::Sender<ReplicaStanding>,
    reported: Option<ReplicaReport>,
    troubles: Troubles,
    /// The write of the Lease in flight: at most one. A hook may hold it for half a minute.
    writing: JoinSet<LeaseWritten>,
    jitter: RandomState,
    round: u64,
}

impl Election {
    async fn run(mut self, leaving: oneshot::Receiver<oneshot::Sender<()>>) {
        let told_to = async {
            match leaving.await {
                Ok(say_left) => say_left,
                // The handle was dropped without a message: the daemon is being killed and does not resign.
                Err(_) => std::future::pending().await,
            }
        };
        let say_left = tokio::select! {
            say_left = told_to => say_left,
            never = async { loop { self.rounds().await } } => never,
        };
        self.resign().await;
        let _ = say_left.send(());
        // The engine takes a task that returns for a broken one.
        std::future::pending().await
    }

    fn now(&self) -> Time {
        (self.clock)()
    }

    /// One round and the pause after it.
    async fn rounds(&mut self) {
        let began = tokio::time::Instant::now();
        self.candidate.begin_round(self.now());
        self.steps().await;
        self.round += 1;
        let until = began + self.terms.pause(self.jitter.hash_one(self.round));
        loop {
            tokio::select! {
                () = sleep_until(until) => return,
                Some(written) = self.writing.join_next() => {
                    self.lease_written(written);
                    self.report().await;
                }
            }
        }
    }

    async fn steps(&mut self) {
        loop {
            while let Some(written) = self.writing.try_join_next() {
                self.lease_written(written);
            }
            let step = self.candidate.next(self.now());
            // Before the step is awaited: a leader steps down when the candidate is asked for its next step.
            self.report().await;
            match step {
                None => return,
                Some(ClaimStep::Read(place)) => self.read(place, false).await,
                Some(ClaimStep::Confirm(place)) => self.read(place, true).await,
                Some(ClaimStep::Write(LeadershipObject::Lease, bid)) if bid.holder.is_some() => {
                    self.bid_for_lease(bid).await;
                }
                Some(ClaimStep::Write(place, bid)) => self.write(place, bid).await,
            }
        }
    }

    /// Reads an object. `confirms`: reads the ledger as stored, not as last seen in a cache.
    async fn read(&mut self, place: LeadershipObject, confirms: bool) {
        let patience = self.terms.round();
        let reading = async {
            match place {
                LeadershipObject::Lease => self.lease.read().await.map(|found| (found, None)),
                LeadershipObject::Ledger if confirms => self.ledger.read_stored().await,
                LeadershipObject::Ledger => self.ledger.read().await,
            }
        };
        let found = timeout(patience, reading).await.unwrap_or_else(|_| {
            Err(format!(
                "the {place} was not read within {} s",
                patience.as_secs_f32()
            ))
        });
        let now = self.now();
        match found {
            Ok((found, trouble)) => {
                self.candidate.read(place, found, now);
                self.troubles.reading[place as usize] = trouble;
            }
            Err(why) => {
                self.candidate.not_read(place);
                self.troubles.reading[place as usize] = Some(why);
            }
        }
    }

    /// Starts a write of the Lease and waits for it for at most the time of a round. `rounds` and `steps` collect a slower one.
    async fn bid_for_lease(&mut self, bid: Bid) {
        let (lease, sent) = (self.lease.clone(), self.now());
        self.writing.spawn(async move {
            let (written, said) = lease.write(&bid, sent).await;
            (bid, sent, written, said)
        });
        match timeout(self.terms.round(), self.writing.join_next()).await {
            Ok(Some(written)) => self.lease_written(written),
            Ok(None) => {}
            Err(_) => {
                self.candidate.late();
                // An earlier refusal that names the webhook says more, so it stays.
                self.troubles.writing[0].get_or_insert_with(|| {
                    let waited = self.terms.round().as_secs_f32();
                    format!("writing the Lease takes longer than {waited} s; a webhook may be holding it")
                });
            }
        }
    }

    fn lease_written(&mut self, written: Result<LeaseWritten, JoinError>) {
        let Some((bid, sent, written, said)) = unless_cancelled(written) else {
            return;
        };
        let in_time = self.now().since(sent) <= self.terms.round();
        match &written {
            BidOutcome::Done { .. } if !in_time => {}
            BidOutcome::Conflict if said.is_none() => {}
            _ => self.troubles.writing[0] = said,
        }
        let now = self.now();
        self.candidate
            .written(LeadershipObject::Lease, &bid, written, sent, now);
    }

    /// Writes the ledger, which no webhook can delay, or releases the Lease, which is not worth a longer wait.
    async fn write(&mut self, place: LeadershipObject, bid: Bid) {
        let sent = self.now();
        let writing = async {
            match place {
                LeadershipObject::Lease => self.lease.write(&bid, sent).await,
                LeadershipObject::Ledger => self.ledger.write(&bid, sent).await,
            }
        };
        let patience = self.terms.round();
        let (written, said) = timeout(patience, writing).await.unwrap_or_else(|_| {
            let said = format!("the {place} was not written within {} s", patience.as_secs_f32());
            (BidOutcome::Unclear, Some(said))
        });
        self.troubles.writing[place as usize] = said;
        let now = self.now();
        self.candidate.written(place, &bid, written, sent, now);
    }

    /// Publishes this replica's standing when it changed.
    async fn report(&mut self) {
        let standing = self.candidate.standing(self.now());
        if let ReplicaStanding::Following { by, .. } = &standing {
            // Trouble with writing is now the holder's to report.
            self.troubles.writing[LeadershipObject::Ledger as usize] = None;
            if *by == LeadershipObject::Lease {
                self.troubles.writing[LeadershipObject::Lease as usize] = None;
            }
        }
        // A replica that leads by the Lease again no longer needs the ledger.
        let by_lease = |standing: &ReplicaStanding| matches!(standing, ReplicaStanding::Leading { by, .. } if *by == LeadershipObject::Lease);
        if by_lease(&standing)
            && !self
                .reported
                .as_ref()
                .is_some_and(|said| by_lease(&said.standing))
        {
            self.troubles.writing[LeadershipObject::Ledger as usize] = None;
        }
        let troubles: Vec<&str> = [&self.troubles.reading, &self.troubles.writing]
            .into_iter()
            .flatten()
            .flatten()
            .map(String::as_str)
            .collect();
        let report = ReplicaReport {
            identity: Arc::clone(&self.identity),
            trouble: (!troubles.is_empty()).then(|| troubles.join("; ")),
            standing: standing.clone(),
        };
        if self.reported.as_ref() == Some(&report) {
            return;
        }
        self.publish.send_replace(standing);
        self.reported = Some(report.clone());
        // The send fails only when the core is gone.
        let _ = self.events.send(Event::Replica(report)).await;
    }

    /// Releases the Lease and the ledger. Twice, because a write in flight may have arrived after the first read.
    async fn resign(&mut self) {
        self.writing.abort_all();
        self.writing = JoinSet::new();
        self.candidate.resign();
        for _ in 0..2 {
            self.candidate.begin_round(self.now());
            self.steps().await;
        }
    }
}
