//! What a change by the breaker records on the object, in the log and in the audit log.

use std::time::Duration;

use super::Driver;
use super::done::Done;
use crate::domain::act::breaker::{ObjectChange, To, WriteOutcome};
use crate::domain::act::bypass::ObjectWriter;
use crate::domain::act::bypass::edit::{Author, Desired, Why};
use crate::io::act::audit::{self, AuditRecord};
use crate::io::act::breaker::PatchReport;

/// How much later than the breaker `restore --expired` may end a bypass. If it came first, the breaker would see a revert by
/// another client. The clocks of two nodes may differ by up to a minute.
const GRACE: Duration = Duration::from_secs(60);

impl Driver {
    pub(super) fn author(&self) -> Author {
        Author {
            namespace: self.namespace.clone(),
            account: self.account.clone(),
            writer: ObjectWriter {
                identity: self.links.identity.to_string(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
            },
            match_conditions: self.match_conditions == Some(true),
            fenced: true,
        }
    }

    pub(super) fn desired(&self, change: &ObjectChange) -> Desired {
        let rung = match change.to {
            To::Bypass(rung) => rung,
            To::Probation => return Desired::Probation,
            To::Original => return Desired::Restore,
        };
        let hook = &change.hook;
        let judgement = self.links.judged.borrow().clone();
        let assessment = judgement.as_ref().map(|(assessment, _)| assessment);
        let mut verdicts = assessment.iter().flat_map(|it| &it.hooks);
        let verdict = verdicts.find(|verdict| verdict.hook().as_ref() == Some(hook));
        Desired::Bypass {
            rung,
            why: Why {
                reason: change.why.to_string(),
                evidence: verdict.map_or_else(Vec::new, |verdict| verdict.evidence.clone()),
                expires: change
                    .until
                    .map(|until| self.links.metrics.wall.date(until + GRACE)),
            },
        }
    }

    pub(super) fn changed(
        &mut self,
        change: &ObjectChange,
        desired: &Desired,
        outcome: &WriteOutcome,
        report: &PatchReport,
    ) {
        let date = self.links.metrics.wall.date(self.now());
        let record = AuditRecord::new(&change.hook, desired, &self.author(), report, date);
        let (action, outcome): (_, &str) = (record.action, outcome.into());
        self.links.metrics.acted(action, outcome);
        let steps = record.steps.join("; ");
        let refused = record.detail.as_deref().unwrap_or_default();
        tracing::info!(
            action,
            outcome,
            webhook = &*change.hook.webhook,
            configuration = &*change.hook.configuration,
            why = &*change.why,
            steps,
            refused,
            "change of a webhook configuration"
        );
        if let Some(log) = self.audit_log.clone() {
            // A hanging disk delays only this line, and a shutdown only by the time that it waits for changes anyway.
            self.auditing += 1;
            self.jobs.spawn_blocking(move || {
                if let Err(error) = audit::append(&log, &record) {
                    tracing::error!(%error, "the audit log cannot be written");
                }
                Done::Audited
            });
        }
    }
}
