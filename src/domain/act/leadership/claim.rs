//! One of the two objects that name a leader: what this replica has read of it, and what it may write into it.

use std::sync::Arc;

use super::{Bid, HolderRecord, Terms, UNREADABLE};
use crate::time::Time;

/// Who holds an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Hold {
    Unread,
    /// This replica, as last read.
    Mine,
    /// No holder: never held, released, or not renewed for its whole term on our clock.
    Free,
    /// Another replica.
    Other(Arc<str>),
}

/// This replica's claim to one object.
#[derive(Debug)]
pub(super) struct Claim {
    me: Arc<str>,
    terms: Terms,
    seen: Option<ObservedClaim>,
}

#[derive(Debug)]
struct ObservedClaim {
    /// `None` when the object does not exist.
    record: Option<HolderRecord>,
    /// Another replica that may believe it leads.
    other: Option<Arc<str>>,
    /// When that replica certainly believes so no longer.
    free_at: Time,
}

impl ObservedClaim {
    fn names_a_holder(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.holder.is_some())
    }

    /// Whether it is the object with this uid.
    fn is_of(&self, uid: &str) -> bool {
        self.record.as_ref().is_some_and(|record| record.uid == uid)
    }
}

impl Claim {
    pub(super) fn new(me: Arc<str>, terms: Terms) -> Self {
        Self {
            me,
            terms,
            seen: None,
        }
    }

    /// Takes the result of a read; `at`: when the answer came, which is later than the state that it shows.
    pub(super) fn read(&mut self, found: Option<HolderRecord>, at: Time) {
        let version = |record: &Option<HolderRecord>| record.as_ref().map(|record| record.version.clone());
        if let Some(seen) = &self.seen
            && version(&seen.record) == version(&found)
        {
            return;
        }
        let before = self.seen.take();
        let term = found.as_ref().map_or(self.terms.term, |record| record.term);
        let term = term.max(self.terms.term).min(Terms::LONGEST);
        let (other, free_at) = match &found {
            Some(HolderRecord {
                holder: Some(holder), ..
            }) => (
                Some(Arc::clone(holder)).filter(|holder| *holder != self.me),
                at + term,
            ),
            // Its holder released it.
            Some(record)
                if before
                    .as_ref()
                    .is_some_and(|seen| seen.names_a_holder() && seen.is_of(&record.uid)) =>
            {
                (None, at)
            }
            // An object that was deleted, and perhaps created again, does not show its former holder, which may have renewed it
            // until then.
            _ => match before.filter(|seen| at < seen.free_at) {
                Some(seen) if seen.names_a_holder() => (seen.other, at + term),
                Some(seen) => (seen.other, seen.free_at),
                None => (None, at),
            },
        };
        self.seen = Some(ObservedClaim {
            record: found,
            other,
            free_at,
        });
    }

    /// Who holds the object.
    pub(super) fn hold(&self, now: Time) -> Hold {
        match &self.seen {
            None => Hold::Unread,
            Some(ObservedClaim {
                other: Some(other),
                free_at,
                ..
            }) if now < *free_at => Hold::Other(Arc::clone(other)),
            Some(ObservedClaim {
                record: Some(record), ..
            }) if record.holder.as_ref() == Some(&self.me) => Hold::Mine,
            Some(_) => Hold::Free,
        }
    }

    pub(super) fn is_unreadable(&self) -> bool {
        let record = self.seen.as_ref().and_then(|seen| seen.record.as_ref());
        record.is_some_and(|record| record.holder.as_deref() == Some(UNREADABLE))
    }

    /// A bid that writes this replica's name over what was read last.
    pub(super) fn bid(&self) -> Bid {
        self.write(Some(Arc::clone(&self.me)))
    }

    /// A bid that removes the name from what was read last.
    pub(super) fn release(&self) -> Bid {
        self.write(None)
    }

    fn write(&self, holder: Option<Arc<str>>) -> Bid {
        let record = self.seen.as_ref().and_then(|seen| seen.record.as_ref());
        let changes_hands = holder.is_some() && record.is_none_or(|record| record.holder != holder);
        let transitions = record.map_or(0, |record| record.transitions);
        Bid {
            precondition: record.map(|record| record.version.clone()),
            holder,
            changes_hands,
            // The first holder does not count as a change.
            transitions: transitions.saturating_add(u64::from(changes_hands && record.is_some())),
            term: self.terms.term,
        }
    }

    /// Takes a bid that was written. False when it proves nothing: it changed nothing, so that no other replica can have seen a
    /// renewal, or a newer version was read already.
    pub(super) fn written(&mut self, bid: &Bid, version: String, at: Time) -> bool {
        if bid.precondition.as_ref() == Some(&version) {
            return false;
        }
        let record = self.seen.as_ref().and_then(|seen| seen.record.as_ref());
        let current = record.map(|record| &record.version);
        if current == Some(&version) {
            return true;
        }
        if current != bid.precondition.as_ref() {
            return false;
        }
        let uid = record.map(|record| record.uid.clone()).unwrap_or_default();
        self.seen = Some(ObservedClaim {
            record: Some(HolderRecord {
                holder: bid.holder.clone(),
                term: bid.term,
                transitions: bid.transitions,
                uid,
                version,
            }),
            other: None,
            free_at: at,
        });
        true
    }
}
