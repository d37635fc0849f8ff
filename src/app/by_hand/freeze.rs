//! `hookwatch freeze` and `unfreeze`: whether the breaker of every daemon may do anything new.
//!
//! The order stands in the ledger, which no webhook can block. What is bypassed stays so while it stands, and comes back
//! when it is well.

use std::process::ExitCode;
use std::time::Duration;

use tokio::time::sleep;

use super::Session;
use super::arguments::{ClusterArguments, FreezeArguments};
use crate::app::progress::during;
use crate::domain::act::breaker::{Freeze, WriteOutcome};
use crate::domain::act::ledger;
use crate::domain::cluster::hook::{HookId, HookKind};
use crate::io::act::audit::AuditRecord;
use crate::io::act::ledger::LedgerUnread;

/// Attempts against others who write the ledger at the same time, as replicas that elect a leader do every few seconds, and on
/// API servers in trouble.
const ATTEMPTS: u32 = 10;
/// Before the second attempt; each further wait is twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Keeps the breaker from doing anything new.
///
/// # Errors
/// When there is no way to the cluster, or the result cannot be printed.
pub async fn freeze(arguments: FreezeArguments) -> anyhow::Result<ExitCode> {
    let mut session = Session::open(arguments.cluster).await?;
    let order = Freeze {
        by: session.author.writer.identity.as_str().into(),
        reason: arguments.reason.as_str().into(),
        at: (session.clock)(),
    };
    session.order(Some(order)).await;
    session.end()
}

/// Takes such an order back.
///
/// # Errors
/// As for [`freeze`].
pub async fn unfreeze(arguments: ClusterArguments) -> anyhow::Result<ExitCode> {
    let mut session = Session::open(arguments).await?;
    session.order(None).await;
    session.end()
}

impl Session {
    async fn order(&mut self, order: Option<Freeze>) {
        let (action, reason) = match &order {
            Some(order) => ("freeze", Some(order.reason.to_string())),
            None => ("unfreeze", None),
        };
        let done = during("writing the ledger", self.write_order(order)).await;
        let hook = HookId::new(HookKind::Validating, ledger::OBJECT, "");
        let (outcome, detail) = match &done {
            Ok(true) => ("applied", None),
            Ok(false) => ("already_so", None),
            Err(why) => ("refused", Some(why.clone())),
        };
        let record = AuditRecord::of_order(
            &hook,
            action,
            reason,
            (outcome, detail),
            &self.author,
            (self.clock)(),
        );
        self.keep(record);
        match done {
            Ok(true) if action == "freeze" => {
                self.say("Frozen: nothing new is bypassed. What is bypassed comes back when it is well.");
            }
            Ok(true) => self.say("Not frozen any more."),
            Ok(false) => self.say("It was not frozen."),
            Err(why) => self.failed(&why),
        }
    }

    /// Whether anything had to be written.
    async fn write_order(&self, order: Option<Freeze>) -> Result<bool, String> {
        let mut may_be_written = false;
        let mut why = String::new();
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                sleep((FIRST_WAIT * 2_u32.pow(attempt - 1)).min(LONGEST_WAIT)).await;
            }
            let (version, mut book) = match self.ledger.read_book().await {
                Ok(read) => read,
                Err(LedgerUnread::NotNow(trouble)) => {
                    why = trouble;
                    continue;
                }
                Err(LedgerUnread::Useless(why)) => return Err(why),
            };
            why = "others keep writing the ledger, or API servers refuse to for now".to_owned();
            if book.frozen.is_none() && order.is_none() {
                return Ok(may_be_written);
            }
            book.frozen.clone_from(&order);
            match self.ledger.write_book(version.as_ref(), &book).await {
                WriteOutcome::Written(_) => return Ok(true),
                // It is not clear whether it was written: reading tells.
                WriteOutcome::Ambiguous => may_be_written = true,
                // Another client was faster.
                WriteOutcome::Conflict
                | WriteOutcome::Gone
                | WriteOutcome::GaveUp
                | WriteOutcome::Applied(_) => {}
                WriteOutcome::Refused(why) => return Err(why.to_string()),
            }
        }
        Err(why)
    }
}
