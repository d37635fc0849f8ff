//! Writes the Kubernetes Events that the core asks for, one after the other, without blocking anything else.

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

/// How many announcements may wait before a new one replaces a waiting one with the same hook and reason.
const WAITING: usize = 64;
/// Pauses before the second and the third attempt to write an Event.
const PAUSES: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(8)];
/// Pause before every further attempt while a webhook or the connection keeps the Event from being written, and between checks
/// of who leads.
const OUTAGE: Duration = Duration::from_secs(10);
/// Age from which an Event is no longer retried: 30 minutes.
const OLD: Duration = Duration::from_secs(1_800);

/// Waiting announcements, oldest first, each with the time at which it was handed in.
#[derive(Debug, Default)]
struct AnnouncementQueue(VecDeque<(Announcement, Time)>);

impl AnnouncementQueue {
    /// Appends an announcement. If the queue is full, it drops a waiting one with the same hook and reason. If there is none,
    /// the new one is kept all the same: each is handed in only once, and if a recovery were lost, its failure would seem to
    /// last. So the queue exceeds `WAITING` by at most one announcement per hook and reason. Returns whether one was dropped.
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
    /// Enqueues an announcement. If another is dropped for it, that is counted.
    pub(super) fn hand_in(&self, said: Announcement, at: Time) {
        let mut waiting = lock(&self.waiting);
        let dropped = waiting.push(said, at);
        drop(waiting);
        // If the channel is full, the writer has a wake-up pending.
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

    /// Writes one announcement, and retries until that succeeds or is pointless. The others wait meanwhile: in an outage no
    /// write succeeds, and after it all of them are written, in order. `last` is the previous outcome.
    async fn write(&self, said: &Announcement, at: Time, last: &mut EventOutcome) -> EventOutcome {
        let mut pauses = PAUSES.into_iter();
        // Computed once: by its date a retry recognises an Event that was written although the answer was lost.
        let date = self.metrics.wall.date(at);
        loop {
            if !self.leadership.is_leader_now() {
                let is_anothers = matches!(self.leadership.standing(), ReplicaStanding::Following { .. });
                if is_anothers || self.is_old(at) {
                    return EventOutcome::NotLeading;
                }
                // While no replica leads, this one may become the leader.
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
