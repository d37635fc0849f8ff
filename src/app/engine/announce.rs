//! Writes the Events that the core asks for, one after the other, without blocking anything else.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::mpsc;

use super::replicas::Leadership;
use crate::domain::act::leadership::ReplicaStanding;
use crate::domain::report::announcement::Announcement;
use crate::domain::time::Time;
use crate::io::report::events::{EventOutcome, EventWriter};
use crate::io::report::metrics::Metrics;
use crate::io::{Clock, lock};

/// Announcements that may wait for their turn before a later one replaces an earlier one that says the same of the same hook.
const WAITING: usize = 64;
/// Before the second attempt, and before the third.
const PAUSES: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(8)];
/// And before every further one, as long as a hook or the way keeps it from being written.
const OUTAGE: Duration = Duration::from_secs(10);
/// What happened longer ago is not written any more.
const OLD: Duration = Duration::from_secs(1_800);

/// What waits, in the order in which it was handed in.
#[derive(Debug, Default)]
struct AnnouncementQueue(VecDeque<(Announcement, Time)>);

impl AnnouncementQueue {
    /// Takes one in. When too many wait already, one of the same hook for the same reason gives way: each is handed in once, and
    /// without a recovery a failure that was written would seem to last. So at most one of each reason and hook is added to
    /// `WAITING`. Returns whether one gave way.
    fn push(&mut self, said: Announcement, at: Time) -> bool {
        let is_full = self.0.len() >= WAITING;
        let says_the_same =
            |(other, _): &(Announcement, Time)| (&other.hook, other.reason) == (&said.hook, said.reason);
        let position = self.0.iter().position(says_the_same);
        let replaced = position
            .filter(|_| is_full)
            .and_then(|position| self.0.remove(position));
        self.0.push_back((said, at));
        replaced.is_some()
    }
}

#[derive(Clone)]
pub(super) struct Announcements {
    waiting: Arc<Mutex<AnnouncementQueue>>,
    wake: mpsc::Sender<()>,
    metrics: Arc<Metrics>,
}

impl Announcements {
    /// Enqueues one. One that it displaces is dropped, and counted.
    pub(super) fn hand_in(&self, said: Announcement, at: Time) {
        let mut waiting = lock(&self.waiting);
        let dropped = waiting.push(said, at);
        drop(waiting);
        // When it is full, the writer is about to wake up.
        let _ = self.wake.try_send(());
        if dropped {
            self.metrics.event_written(EventOutcome::Dropped);
        }
    }
}

fn next(waiting: &Mutex<AnnouncementQueue>) -> Option<(Announcement, Time)> {
    lock(waiting).0.pop_front()
}

pub(super) struct Announce {
    pub(super) writer: EventWriter,
    pub(super) leadership: Leadership,
    pub(super) metrics: Arc<Metrics>,
    pub(super) clock: Clock,
}

impl Announce {
    /// Where to hand announcements in, and the task that writes them.
    pub(super) fn start(self) -> (Announcements, impl Future<Output = ()>) {
        let (wake, woken) = mpsc::channel(1);
        let waiting = Arc::default();
        let announcements = Announcements {
            waiting: Arc::clone(&waiting),
            wake,
            metrics: Arc::clone(&self.metrics),
        };
        (announcements, self.run(waiting, woken))
    }

    async fn run(self, waiting: Arc<Mutex<AnnouncementQueue>>, mut woken: mpsc::Receiver<()>) {
        let mut last = EventOutcome::Written;
        while woken.recv().await.is_some() {
            while let Some((said, at)) = next(&waiting) {
                let outcome = self.write(&said, at, &mut last).await;
                self.metrics.event_written(outcome);
            }
        }
    }

    /// Retries the write of one until another attempt is no use. The others wait: in an outage no write succeeds, and after
    /// it all of them are written, in order. `last`: the outcome of the attempts before.
    async fn write(&self, said: &Announcement, at: Time, last: &mut EventOutcome) -> EventOutcome {
        let mut pauses = PAUSES.into_iter();
        // Once, because an attempt whose answer was lost is recognised by its date.
        let date = self.metrics.wall.date(at);
        loop {
            if !self.leadership.is_leader_now() {
                let is_anothers = matches!(self.leadership.standing(), ReplicaStanding::Following { .. });
                if is_anothers || self.is_old(at) {
                    return EventOutcome::NotLeading;
                }
                // While no replica leads it may be this one again that does.
                tokio::time::sleep(OUTAGE).await;
                continue;
            }
            let (outcome, why) = self.writer.write(said, date).await;
            let soon = outcome.may_pass().then(|| pauses.next()).flatten();
            if let Some(pause) = soon {
                tokio::time::sleep(pause).await;
                continue;
            }
            // Once per kind of failure, not once per Event.
            if outcome != *last
                && let Some(why) = why
            {
                tracing::warn!(
                    event = said.reason,
                    webhook = &*said.hook.webhook,
                    outcome = outcome.as_str(),
                    why,
                    "an Event could not be written"
                );
            }
            *last = outcome;
            if !outcome.is_of_an_outage() || self.is_old(at) {
                return outcome;
            }
            tokio::time::sleep(OUTAGE).await;
        }
    }

    fn is_old(&self, at: Time) -> bool {
        (self.clock)().since(at) >= OLD
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::cluster::hook::{HookId, HookKind};
    use crate::domain::report::announcement::{RECOVERED, of_action};

    fn said(webhook: &str, reason: &'static str) -> Announcement {
        let hook = HookId::new(HookKind::Validating, "c", webhook);
        of_action(&hook, "u", reason, reason != RECOVERED, "It is said.")
    }

    #[test]
    fn no_recovery_is_lost_however_many_announcements_wait() {
        let mut waiting = AnnouncementQueue::default();
        for number in 0..WAITING {
            assert!(!waiting.push(said(&number.to_string(), "Hanging"), Time::default()));
        }
        assert!(!waiting.push(said("0", RECOVERED), Time::default()));
        assert!(!waiting.push(said("other", RECOVERED), Time::default()));
        assert!(!waiting.push(said("0", "Refused"), Time::default()));
        for _ in 0..100 {
            assert!(waiting.push(said("0", "Refused"), Time::default()));
            assert!(waiting.push(said("0", RECOVERED), Time::default()));
        }
        assert_eq!(waiting.0.len(), WAITING + 3);
        let mut recovered = waiting.0.iter().filter(|(said, _)| said.reason == RECOVERED);
        assert_eq!(recovered.by_ref().count(), 2);
        let last = waiting.0.back().map(|(said, _)| said.reason);
        assert_eq!(last, Some(RECOVERED), "the newest stays the last");
    }
}
