//! One replica in the election: its next read or write, and whether it leads.
//!
//! The candidate does no I/O. Its driver begins a round every [`Terms::round`], asks for the next step, executes it,
//! reports the outcome, and asks again until the round is over. At most one step is in flight, except a late write of
//! the Lease: a hook may hold it for half a minute, and meanwhile the rounds go on with the ledger.
//!
//! The rules, for which a simulation in the tests checks that there are never two leaders:
//!
//! 1. While another replica holds the ledger, follow it and leave the Lease alone.
//! 2. While another replica holds the Lease, follow it and release the ledger.
//! 3. Else write the Lease. It counts once the ledger, read afterwards, is not held by another replica.
//! 4. If that is refused, as by a hook, or is late, write the ledger. It counts once the Lease, read afterwards, is not
//!    held by another replica.
//!
//! If one replica writes the Lease and another the ledger, the one that reads the other object last sees the other's
//! name, so both cannot believe that they lead.

use std::sync::Arc;

use super::claim::{Claim, Hold};
use super::{Bid, BidOutcome, HolderRecord, LeadershipObject, ReplicaStanding, Terms, Undecided};
use crate::time::Time;

/// The next read or write of a candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimStep {
    /// Read the object; a cache that may lag behind will do.
    Read(LeadershipObject),
    /// Read the object as it is stored: the replica begins to lead by the result.
    Confirm(LeadershipObject),
    /// Write this bid into the object.
    Write(LeadershipObject, Bid),
}

/// Leadership by one object, as long as it is not renewed.
#[derive(Debug, Clone, Copy)]
struct HeldLeadership {
    by: LeadershipObject,
    until: Time,
}

/// A leadership that counts once the other object was read.
#[derive(Debug, Clone, Copy)]
struct Unconfirmed {
    leadership: HeldLeadership,
    /// How many writes were answered when it was won. A read that was requested before may show the state before this write,
    /// so it does not confirm it.
    writes: u64,
}

/// What this replica knows of one object, and has done about it in this round.
#[derive(Debug, Clone, Copy, Default)]
struct ClaimRound {
    /// Whether its state was read after everything that it is compared with.
    fresh: bool,
    /// How many writes of this replica were answered when its last read was requested.
    writes_before_read: u64,
    /// Whether a bid for it was sent in this round.
    bid: bool,
    /// Whether a release of it was sent in this round.
    released: bool,
}

/// One replica in the election, as a state machine.
#[derive(Debug)]
pub struct Candidate {
    terms: Terms,
    lease: Claim,
    ledger: Claim,
    rounds: [ClaimRound; 2],
    /// Whether the current round is over.
    over: bool,
    resigning: bool,
    leadership: Option<HeldLeadership>,
    unconfirmed: Option<Unconfirmed>,
    /// How many writes of this replica were answered.
    writes: u64,
    /// The bid for the Lease that is in flight.
    lease_bid: Option<Bid>,
    /// Writes of the Lease are refused, or are late: the ledger decides.
    blocked: bool,
}

impl Candidate {
    /// A replica that has read nothing yet. No other replica may ever have this identity.
    pub fn new(identity: Arc<str>, terms: Terms) -> Self {
        Self {
            terms,
            lease: Claim::new(Arc::clone(&identity), terms),
            ledger: Claim::new(identity, terms),
            rounds: [ClaimRound::default(); 2],
            over: true,
            resigning: false,
            leadership: None,
            unconfirmed: None,
            writes: 0,
            lease_bid: None,
            blocked: false,
        }
    }

    /// Whether it may act at this instant.
    pub fn leads(&self, now: Time) -> bool {
        self.leadership.is_some_and(|held| now < held.until)
    }

    /// Its standing.
    pub fn standing(&self, now: Time) -> ReplicaStanding {
        if let Some(HeldLeadership { by, until }) = self.leadership
            && now < until
        {
            return ReplicaStanding::Leading { by, until };
        }
        match (self.lease.hold(now), self.ledger.hold(now)) {
            (_, Hold::Other(holder)) => ReplicaStanding::Following {
                holder,
                by: LeadershipObject::Ledger,
            },
            (Hold::Other(holder), _) => ReplicaStanding::Following {
                holder,
                by: LeadershipObject::Lease,
            },
            (Hold::Unread, _) | (_, Hold::Unread) => ReplicaStanding::Undecided(Undecided::NotRead),
            _ if self.blocked => ReplicaStanding::Undecided(Undecided::LeaseBlocked),
            _ => ReplicaStanding::Undecided(Undecided::Contending),
        }
    }

    /// Begins a round.
    pub fn begin_round(&mut self, now: Time) {
        // A leader need not read first: the precondition of its next write fails if what it knows is outdated.
        let known = self.leads(now) && !self.resigning;
        for round in &mut self.rounds {
            *round = ClaimRound {
                fresh: round.fresh && known,
                writes_before_read: round.writes_before_read,
                ..ClaimRound::default()
            };
        }
        self.over = false;
    }

    /// Stops leading at once. Later rounds only release what this replica holds.
    pub fn resign(&mut self) {
        self.resigning = true;
        self.step_down();
        self.lease_bid = None;
    }

    /// The next step of this round; `None` when it is over.
    pub fn next(&mut self, now: Time) -> Option<ClaimStep> {
        if self.over {
            return None;
        }
        for &place in LeadershipObject::ALL {
            if !self.round(place).fresh {
                self.round(place).writes_before_read = self.writes;
                // While this replica leads no other can begin to: they see its name, and wait for it to expire.
                let begins_to_lead = self.unconfirmed_without(place).is_some() && !self.leads(now);
                return Some(if begins_to_lead {
                    ClaimStep::Confirm(place)
                } else {
                    ClaimStep::Read(place)
                });
            }
        }
        let (lease, ledger) = (self.lease.hold(now), self.ledger.hold(now));
        if self.resigning {
            return match (lease, ledger) {
                (_, Hold::Mine) if !self.round(LeadershipObject::Ledger).released => {
                    Some(self.release(LeadershipObject::Ledger))
                }
                (Hold::Mine, _) if !self.round(LeadershipObject::Lease).released => {
                    Some(self.release(LeadershipObject::Lease))
                }
                _ => None,
            };
        }
        match (lease, ledger) {
            (_, Hold::Other(_)) => {
                self.step_down();
                None
            }
            (Hold::Other(_), ledger) => {
                self.step_down();
                let held = ledger == Hold::Mine && !self.round(LeadershipObject::Ledger).released;
                held.then(|| self.release(LeadershipObject::Ledger))
            }
            (_, ledger) => self.bid(ledger == Hold::Mine, now),
        }
    }

    /// The next write where no other replica holds an object.
    fn bid(&mut self, ledger_is_mine: bool, now: Time) -> Option<ClaimStep> {
        let ledger_is_due = !self.round(LeadershipObject::Ledger).bid;
        if self.blocked && ledger_is_due {
            return Some(self.bid_for_ledger());
        }
        if self.lease_bid.is_none() && !self.round(LeadershipObject::Lease).bid {
            self.round(LeadershipObject::Lease).bid = true;
            let bid = self.lease.bid();
            self.lease_bid = Some(bid.clone());
            return Some(ClaimStep::Write(LeadershipObject::Lease, bid));
        }
        // Nothing can be bypassed without a ledger, so an unreadable one is replaced after a term.
        if self.ledger.is_unreadable() && ledger_is_due {
            return Some(self.bid_for_ledger());
        }
        let leads_by_lease = self
            .leadership
            .is_some_and(|held| held.by == LeadershipObject::Lease && now < held.until);
        let is_needless = ledger_is_mine && leads_by_lease && !self.blocked;
        (is_needless && !self.round(LeadershipObject::Ledger).released)
            .then(|| self.release(LeadershipObject::Ledger))
    }

    fn bid_for_ledger(&mut self) -> ClaimStep {
        self.round(LeadershipObject::Ledger).bid = true;
        ClaimStep::Write(LeadershipObject::Ledger, self.ledger.bid())
    }

    fn release(&mut self, place: LeadershipObject) -> ClaimStep {
        self.round(place).released = true;
        ClaimStep::Write(place, self.claim(place).release())
    }

    /// Takes the result of a read: the record, or `None` where there is no such object. `at`: when the answer came.
    pub fn read(&mut self, place: LeadershipObject, found: Option<HolderRecord>, at: Time) {
        self.claim(place).read(found, at);
        let Some(unconfirmed) = self.unconfirmed_without(place) else {
            self.round(place).fresh = true;
            return;
        };
        if self.round(place).writes_before_read < unconfirmed.writes {
            return;
        }
        self.round(place).fresh = true;
        self.unconfirmed = None;
        // After a hook delayed the write of the Lease, the ledger that was written meanwhile may hold for longer.
        let new = unconfirmed.leadership;
        let lasts_longer = self.leadership.is_none_or(|held| held.until < new.until);
        if lasts_longer && !matches!(self.claim(place).hold(at), Hold::Other(_)) {
            self.leadership = Some(new);
        }
    }

    /// A read failed. The round is over; a leadership lasts as long as it would have.
    pub fn not_read(&mut self, place: LeadershipObject) {
        self.round(place).fresh = false;
        self.over = true;
    }

    /// A write of the Lease was not answered within [`Terms::round`]. It stays in flight, and the ledger decides.
    pub fn late(&mut self) {
        self.blocked = true;
    }

    /// The outcome of a step [`ClaimStep::Write`] that was sent at `sent` and answered at `at`.
    pub fn written(&mut self, place: LeadershipObject, bid: &Bid, outcome: BidOutcome, sent: Time, at: Time) {
        let is_lease_bid = place == LeadershipObject::Lease && self.lease_bid.as_ref() == Some(bid);
        if is_lease_bid {
            self.lease_bid = None;
        }
        match outcome {
            BidOutcome::Done { version } => {
                let until = sent + self.terms.deadline();
                let counts = self.claim(place).written(bid, version, at);
                if is_lease_bid {
                    // A late answer counts as a blocked Lease.
                    self.blocked = at.since(sent) > self.terms.round();
                }
                self.round(place).fresh = counts;
                self.writes += 1;
                if counts && bid.holder.is_some() && !self.resigning && at < until {
                    self.unconfirmed = Some(Unconfirmed {
                        leadership: HeldLeadership { by: place, until },
                        writes: self.writes,
                    });
                    self.round(place.other()).fresh = false;
                }
            }
            BidOutcome::Conflict => self.round(place).fresh = false,
            // A refused write of the ledger changes nothing: the Lease may be writable again.
            BidOutcome::Refused => self.blocked |= is_lease_bid,
            BidOutcome::Unclear => {
                self.round(place).fresh = false;
                self.over = true;
            }
        }
    }

    /// The leadership by the other object that a read of this one may confirm.
    fn unconfirmed_without(&self, place: LeadershipObject) -> Option<Unconfirmed> {
        self.unconfirmed
            .filter(|unconfirmed| unconfirmed.leadership.by == place.other())
    }

    fn step_down(&mut self) {
        self.leadership = None;
        self.unconfirmed = None;
    }

    fn round(&mut self, place: LeadershipObject) -> &mut ClaimRound {
        &mut self.rounds[place as usize]
    }

    fn claim(&mut self, place: LeadershipObject) -> &mut Claim {
        match place {
            LeadershipObject::Lease => &mut self.lease,
            LeadershipObject::Ledger => &mut self.ledger,
        }
    }
}
