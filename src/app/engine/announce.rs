//! Says what the core wants said: one Event after the other, with little patience, and never in anybody's way.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::replicas::Leadership;
use crate::domain::report::announcement::Announcement;
use crate::domain::time::Time;
use crate::io::report::events::{EventOutcome, EventWriter};
use crate::io::report::metrics::Metrics;

/// Announcements that may wait for their turn.
const WAITING: usize = 64;
/// Before the second attempt, and before the third and last.
const PAUSES: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(8)];

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
            let (outcome, why) = self.write(&said, at).await;
            self.metrics.event_written(outcome);
            // Once per way to fail, not once per Event.
            if outcome != last
                && let Some(why) = why
            {
                tracing::warn!(
                    event = said.reason,
                    webhook = &*said.hook.webhook,
                    outcome = outcome.as_str(),
                    why,
                    "an Event was not written"
                );
            }
            last = outcome;
        }
    }

    async fn write(&self, said: &Announcement, at: Time) -> (EventOutcome, Option<String>) {
        let mut pauses = PAUSES.iter();
        loop {
            if !self.leadership.is_leader_now() {
                return (EventOutcome::NotLeading, None);
            }
            let (outcome, why) = self.writer.write(said, at).await;
            match pauses.next() {
                Some(pause) if outcome.may_pass() => tokio::time::sleep(*pause).await,
                _ => return (outcome, why),
            }
        }
    }
}
