//! Says what the core wants said: one Event after the other, and never in anybody's way.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::replicas::Leadership;
use crate::domain::act::leadership::ReplicaStanding;
use crate::domain::report::announcement::Announcement;
use crate::domain::time::Time;
use crate::io::Clock;
use crate::io::report::events::{EventOutcome, EventWriter};
use crate::io::report::metrics::Metrics;

/// Announcements that may wait for their turn.
const WAITING: usize = 64;
/// Before the second attempt, and before the third.
const PAUSES: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(8)];
/// And before every further one, as long as a hook or the way keeps it from being written.
const OUTAGE: Duration = Duration::from_secs(10);
/// What happened longer ago is not written any more.
const OLD: Duration = Duration::from_secs(1_800);

/// Where announcements are handed in.
#[derive(Clone)]
pub(super) struct Announcements(mpsc::Sender<(Announcement, Time)>, Arc<Metrics>);

impl Announcements {
    /// Hands one in. When too many wait already it is dropped, and counted.
    pub(super) fn hand_in(&self, said: Announcement, at: Time) {
        if self.0.try_send((said, at)).is_err() {
            self.1.event_written(EventOutcome::Dropped);
        }
    }
}

/// Writes what is handed in.
pub(super) struct Announce {
    pub(super) writer: EventWriter,
    pub(super) leadership: Leadership,
    pub(super) metrics: Arc<Metrics>,
    pub(super) clock: Clock,
}

impl Announce {
    /// Where to hand announcements in, and the task that writes them.
    pub(super) fn start(self) -> (Announcements, impl Future<Output = ()>) {
        let (sender, incoming) = mpsc::channel(WAITING);
        let announcements = Announcements(sender, Arc::clone(&self.metrics));
        (announcements, self.run(incoming))
    }

    async fn run(self, mut incoming: mpsc::Receiver<(Announcement, Time)>) {
        let mut last = EventOutcome::Written;
        while let Some((said, at)) = incoming.recv().await {
            let outcome = self.write(&said, at, &mut last).await;
            self.metrics.event_written(outcome);
        }
    }

    /// Attempts to write one until there is no use in another attempt. The rest waits: in an outage there is no writing, and
    /// after it all is to be there, in order. `last`: how the attempts before ended.
    async fn write(&self, said: &Announcement, at: Time, last: &mut EventOutcome) -> EventOutcome {
        let mut pauses = PAUSES.into_iter();
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
            let (outcome, why) = self.writer.write(said, at).await;
            let soon = outcome.may_pass().then(|| pauses.next()).flatten();
            if let Some(pause) = soon {
                tokio::time::sleep(pause).await;
                continue;
            }
            // Once per way to fail, not once per Event.
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
