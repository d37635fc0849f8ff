//! Results of the breaker's background tasks, and what the driver does with each.

use std::sync::Arc;

use super::observed_configs::ObservedLists;
use super::{Driver, REFRESH_AGAIN};
use crate::domain::act::breaker::{ObjectChange, Observation, Ticket, WriteOutcome};
use crate::domain::act::bypass::edit::Desired;
use crate::domain::cluster::hook::HookId;
use crate::domain::report::unchecked::Unchecked;
use crate::io::act::breaker::{ApiServerClient, ConfigWriter, PatchReport};

pub(super) enum Done {
    /// The list of API servers, and whether all of them know match conditions.
    Servers {
        servers: Vec<ApiServerClient>,
        /// Whether their list could be read.
        listed: bool,
        know: bool,
    },
    /// hookwatch's user name according to the API servers; `None` where they do not say.
    User(Option<String>),
    /// The configurations that one API server has in its cache.
    Configs(ObservedLists),
    /// Answers to reads that the breaker asked for.
    Observed(Vec<Observation>),
    /// Outcome of a write of the ledger.
    LedgerWritten(Ticket, WriteOutcome),
    /// Outcomes of the changes to one object.
    Changed(Vec<(ObjectChange, Desired, WriteOutcome, PatchReport)>),
    /// An attempt to append a line to the audit log has ended.
    Audited,
    /// Objects admitted without review; `None` if that could not be found out.
    Listed(Option<Box<Unchecked>>),
}

impl Driver {
    /// Processes a task's result. Returns the observations for the breaker.
    pub(super) fn apply(&mut self, done: Done) -> Vec<Observation> {
        match done {
            Done::Servers {
                servers,
                listed,
                know,
            } => {
                if !listed {
                    self.refresh_at = self.now() + REFRESH_AGAIN;
                }
                // Otherwise the known API servers are kept: they are needed most while the one that would list them is in
                // trouble.
                if listed || self.writer.clients().len() < 2 {
                    self.match_conditions = Some(know);
                    let writer = ConfigWriter::new(servers, self.links.dates(), self.patience);
                    self.writer = Arc::new(writer);
                    self.ledger = self.ledger.over(self.writer.clients());
                }
                Vec::new()
            }
            Done::User(user) => {
                if let Some(user) = user {
                    self.account = user;
                }
                Vec::new()
            }
            Done::Configs(observed) => {
                let mut concerned = self.breaker.involved();
                concerned.extend(self.observed_configs.culprits.iter().cloned());
                self.observed_configs.take(observed, concerned, self.now())
            }
            Done::Observed(observations) => observations,
            Done::Changed(changed) => {
                self.changing -= 1;
                let told = changed
                    .into_iter()
                    .flat_map(|(change, desired, outcome, report)| {
                        self.changed(&change, &desired, &outcome, &report);
                        self.written(Some(&change.hook), change.ticket, outcome)
                    });
                let told = told.collect();
                // Until it is known to have propagated to every API server, nothing more is done about the hook.
                self.observed_configs.outdated();
                self.start_due_reads();
                told
            }
            Done::Audited => {
                self.auditing -= 1;
                Vec::new()
            }
            Done::LedgerWritten(ticket, outcome) => self.written(None, ticket, outcome),
            Done::Listed(listed) => {
                if let Some(unchecked) = listed {
                    let (uid, now) = (self.observed_configs.uid(&unchecked.hook), self.now());
                    let announcements = self.links.announcements.as_ref();
                    self.breaker_log.unchecked(&unchecked, uid, now, announcements);
                }
                Vec::new()
            }
        }
    }

    /// Passes the outcome of a write on to the breaker, at once or after a backoff.
    fn written(
        &mut self,
        target: Option<&HookId>,
        ticket: Ticket,
        outcome: WriteOutcome,
    ) -> Vec<Observation> {
        let pause = self.pauses.after(target, &outcome, self.now());
        let observation = Observation::Outcome { ticket, outcome };
        let Some(pause) = pause else {
            return vec![observation];
        };
        self.jobs.spawn(async move {
            tokio::time::sleep(pause).await;
            Done::Observed(vec![observation])
        });
        Vec::new()
    }
}
