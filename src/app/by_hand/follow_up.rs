//! What follows a person's change: its line in the audit log, which API servers have it in force, and its Event.

use super::{ChangeMade, Session, show};
use crate::app::progress::during;
use crate::app::tell;
use crate::domain::act::bypass::edit::Desired;
use crate::domain::cluster::hook::HookId;
use crate::domain::report::announcement::of_action;
use crate::io::act::audit::{self, AuditRecord};
use crate::io::act::breaker::PatchOutcome;
use crate::io::report::events::EventOutcome;

impl Session {
    /// Reports to which API servers the changes have propagated, and writes their Events. Runs after all changes, as it may
    /// take a minute for each.
    pub(super) async fn follow_up(&self, desired: &Desired, made: &[ChangeMade]) {
        for change in made {
            self.report_propagation(&change.hook, desired).await;
        }
        for change in made
            .iter()
            .filter(|it| it.report.outcome == PatchOutcome::Applied)
        {
            self.announce(change, desired).await;
        }
    }

    /// Keeps a record for the result, and appends it to the audit log if there is one. A failure of the log is only reported: with
    /// another exit code, a script would believe that the change was not made.
    pub(super) fn record(&mut self, record: AuditRecord) {
        if let Some(log) = &self.audit_log
            && let Err(error) = audit::append(log, &record)
        {
            let made = match record.outcome {
                "applied" => "the change is made; only ",
                _ => "",
            };
            let path = log.display();
            tell(format_args!(
                "hookwatch: {made}the line about it could not be written to the audit log {path}: {error}"
            ));
        }
        self.records.push(record);
    }

    /// Reports to which API servers it has propagated.
    async fn report_propagation(&self, hook: &HookId, desired: &Desired) {
        let asking = self.writer.propagation(hook, desired, &self.author);
        for shown in during(
            "asking each API server whether it has the change in force",
            asking,
        )
        .await
        {
            match shown.propagated {
                Ok(()) => self.say(&format!(
                    "{}: API server {} has it in force.",
                    hook.object(),
                    shown.server
                )),
                Err(why) => self.say(&format!(
                    "{}: API server {}: not known whether it has it in force: {why}",
                    hook.object(),
                    shown.server
                )),
            }
        }
    }

    /// Writes the Event about a change.
    async fn announce(&self, change: &ChangeMade, desired: &Desired) {
        let (reason, warning) = show::event(desired);
        let note = show::note(&change.hook, desired, &change.report, &self.author);
        let said = of_action(&change.hook, &change.uid, reason, warning, &note);
        let writing = self.events.write(&said, change.at);
        if let (outcome, Some(why)) = during("writing the Event", writing).await
            && outcome != EventOutcome::Written
        {
            tell(format_args!(
                "hookwatch: the change is made; only the Event about it could not be written: {why}"
            ));
        }
    }
}
