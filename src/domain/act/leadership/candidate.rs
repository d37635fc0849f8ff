//! One replica in the election: its next read or write, and whether it leads.
//!
//! The candidate does no I/O. Its driver begins a round every [`Terms::round`], asks for the next step, executes it,
//! reports the outcome, and asks again until the round is over. At most one step is in flight, except a late write of
//! the Lease: a hook may hold it for half a minute, and meanwhile the rounds go on with the ledger.
//!
//! The rules, which the simulation in the tests holds to "never two":
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

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimStep {
    /// Read the object, from a memory if need be that may lag behind.
    Read(LeadershipObject),
    /// Read it as it is stored: this replica begins to lead by what it shows.
    Confirm(LeadershipObject),
    /// Write this into it.
    Write(LeadershipObject, Bid),
}

#[derive(Debug, Clone, Copy)]
struct Belief {
    by: LeadershipObject,
    until: Time,
}

/// A belief that waits for the other object to be read.
#[derive(Debug, Clone, Copy)]
struct Unconfirmed {
    belief: Belief,
    /// Only a read requested after this many writes can confirm it: an earlier one may have been answered before the
    /// write.
    writes: u64,
}

/// What was done about one object in this round.
#[derive(Debug, Clone, Copy, Default)]
struct ClaimRound {
    /// Its state was read after everything that it is compared with.
    fresh: bool,
    /// How many writes were known of when it was last asked for.
    asked: u64,
    bid: bool,
    released: bool,
}

/// The state machine of one replica.
#[derive(Debug)]
pub struct Candidate {
    terms: Terms,
    lease: Claim,
    ledger: Claim,
    rounds: [ClaimRound; 2],
    over: bool,
    resigning: bool,
    belief: Option<Belief>,
    unconfirmed: Option<Unconfirmed>,
    /// How many writes of ours were answered.
    answered: u64,
    /// A write of the Lease in flight.
    under_way: Option<Bid>,
    /// Writes of the Lease are refused, or are late: the ledger decides.
    blocked: bool,
}

impl Candidate {
    /// A replica that has read nothing. No other may ever have this identity.
    pub fn new(identity: Arc<str>, terms: Terms) -> Self {
        Self {
            terms,
            lease: Claim::new(Arc::clone(&identity), terms),
            ledger: Claim::new(identity, terms),
            rounds: [ClaimRound::default(); 2],
            over: true,
            resigning: false,
            belief: None,
            unconfirmed: None,
            answered: 0,
            under_way: None,
            blocked: false,
        }
    }

    /// Whether it may act at this instant.
    pub fn leads(&self, now: Time) -> bool {
        self.belief.is_some_and(|belief| now < belief.until)
    }

    /// Its standing.
    pub fn standing(&self, now: Time) -> ReplicaStanding {
        if let Some(Belief { by, until }) = self.belief
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
        // A leader's next write shows by its precondition whether what it knows still holds.
        let known = self.leads(now) && !self.resigning;
        for round in &mut self.rounds {
            *round = ClaimRound {
                fresh: round.fresh && known,
                asked: round.asked,
                ..ClaimRound::default()
            };
        }
        self.over = false;
    }

    /// Stops leading, at once, and has every later round release what is held and take nothing.
    pub fn resign(&mut self) {
        self.resigning = true;
        self.step_down();
        self.under_way = None;
    }

    /// The next step of this round; `None` when it is over.
    pub fn next(&mut self, now: Time) -> Option<ClaimStep> {
        if self.over {
            return None;
        }
        for &place in LeadershipObject::ALL {
            if !self.round(place).fresh {
                self.round(place).asked = self.answered;
                // While it leads no other replica can have begun to: they saw its name, and wait for it to run out.
                let waits = self
                    .unconfirmed
                    .filter(|waiting| waiting.belief.by == place.other());
                return Some(match waits {
                    Some(_) if !self.leads(now) => ClaimStep::Confirm(place),
                    _ => ClaimStep::Read(place),
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

    /// Neither object is held by another replica.
    fn bid(&mut self, ledger_is_mine: bool, now: Time) -> Option<ClaimStep> {
        let ledger_is_due = !self.round(LeadershipObject::Ledger).bid;
        if self.blocked && ledger_is_due {
            return Some(self.bid_for_ledger());
        }
        if self.under_way.is_none() && !self.round(LeadershipObject::Lease).bid {
            self.round(LeadershipObject::Lease).bid = true;
            let bid = self.lease.bid();
            self.under_way = Some(bid.clone());
            return Some(ClaimStep::Write(LeadershipObject::Lease, bid));
        }
        // Without a ledger nothing can be bypassed, so one of which not even the holder can be read is replaced after a term.
        if self.ledger.is_unreadable() && ledger_is_due {
            return Some(self.bid_for_ledger());
        }
        let leads_by_lease = self
            .belief
            .is_some_and(|belief| belief.by == LeadershipObject::Lease && now < belief.until);
        let no_use = ledger_is_mine && leads_by_lease && !self.blocked;
        (no_use && !self.round(LeadershipObject::Ledger).released)
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

    /// What was read: the record, or that there is no such object. `at` is when the answer was there.
    pub fn read(&mut self, place: LeadershipObject, found: Option<HolderRecord>, at: Time) {
        self.claim(place).read(found, at);
        let asked = self.round(place).asked;
        let waiting = self
            .unconfirmed
            .filter(|waiting| waiting.belief.by == place.other());
        let Some(waiting) = waiting else {
            self.round(place).fresh = true;
            return;
        };
        if asked < waiting.writes {
            return;
        }
        self.round(place).fresh = true;
        self.unconfirmed = None;
        // A Lease that a hook delayed may be valid for less time than the ledger written in between.
        let lasts_longer = self
            .belief
            .is_none_or(|belief| belief.until < waiting.belief.until);
        if lasts_longer && !matches!(self.claim(place).hold(at), Hold::Other(_)) {
            self.belief = Some(waiting.belief);
        }
    }

    /// Nothing could be read. The round is over; what is believed holds as long as it would have.
    pub fn not_read(&mut self, place: LeadershipObject) {
        self.round(place).fresh = false;
        self.over = true;
    }

    /// A write of the Lease was not answered within [`Terms::round`]. It stays in flight.
    pub fn late(&mut self) {
        self.blocked = true;
    }

    /// The outcome of a step [`ClaimStep::Write`] that was sent at `sent` and answered at `at`.
    pub fn written(&mut self, place: LeadershipObject, bid: &Bid, outcome: BidOutcome, sent: Time, at: Time) {
        let lease = place == LeadershipObject::Lease && self.under_way.as_ref() == Some(bid);
        if lease {
            self.under_way = None;
        }
        match outcome {
            BidOutcome::Done { version } => {
                let until = sent + self.terms.deadline();
                let counts = self.claim(place).written(bid, version, at);
                if lease {
                    // A claim that comes too late counts as blocked.
                    self.blocked = at.since(sent) > self.terms.round();
                }
                self.round(place).fresh = counts;
                self.answered += 1;
                if counts && bid.holder.is_some() && !self.resigning && at < until {
                    self.unconfirmed = Some(Unconfirmed {
                        belief: Belief { by: place, until },
                        writes: self.answered,
                    });
                    self.round(place.other()).fresh = false;
                }
            }
            BidOutcome::Conflict => self.round(place).fresh = false,
            // Who may not write the ledger does not wait for it: the Lease may be free again.
            BidOutcome::Refused => self.blocked |= lease,
            BidOutcome::Unclear => {
                self.round(place).fresh = false;
                self.over = true;
            }
        }
    }

    fn step_down(&mut self) {
        self.belief = None;
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
