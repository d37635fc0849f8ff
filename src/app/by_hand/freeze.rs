//! `hookwatch freeze` and `unfreeze`: whether the breaker of every daemon may do anything new.
//!
//! The order is in the ledger, whose writes no webhook can block. Existing bypasses stay during a freeze, and are
//! restored when their hooks recover.

use std::process::ExitCode;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Session;
use super::arguments::{ActArguments, FreezeArguments};
use crate::app::progress::during;
use crate::domain::act::breaker::{Freeze, WriteOutcome};
use crate::domain::act::ledger;
use crate::domain::cluster::hook::{HookId, HookKind};
use crate::io::act::audit::AuditRecord;
use crate::io::act::breaker::RetryPolicy;
use crate::io::act::ledger::{LedgerObject, LedgerUnread};

/// Keeps the breaker from doing anything new.
///
/// # Errors
/// When there is no way to the cluster, or the result cannot be printed.
pub async fn freeze(arguments: FreezeArguments) -> anyhow::Result<ExitCode> {
    let mut session = Session::open_to_act(arguments.act).await?;
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
pub async fn unfreeze(arguments: ActArguments) -> anyhow::Result<ExitCode> {
    let mut session = Session::open_to_act(arguments).await?;
    session.order(None).await;
    session.end()
}

impl Session {
    async fn order(&mut self, order: Option<Freeze>) {
        let (action, reason) = match &order {
            Some(order) => ("freeze", Some(order.reason.to_string())),
            None => ("unfreeze", None),
        };
        let done = during("writing the ledger", write(&self.ledger, order)).await;
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
}

/// Writes the order, or that there is none. Whether anything had to be written.
///
/// # Errors
/// A sentence that says why it is not known to be written.
async fn write(ledger: &LedgerObject, order: Option<Freeze>) -> Result<bool, String> {
    let mut may_be_written = false;
    let mut why = String::new();
    // Others write the ledger at the same time, as replicas that elect a leader do every few seconds.
    let patience = RetryPolicy::default();
    let (began, mut wait) = (Instant::now(), Duration::ZERO);
    while began.elapsed() + wait < patience.whole {
        sleep(wait).await;
        wait = patience.next_wait(wait);
        let (version, mut book) = match ledger.read_book().await {
            Ok(read) => read,
            Err(LedgerUnread::NotNow(trouble)) => {
                why = trouble;
                continue;
            }
            Err(LedgerUnread::Useless(why)) => return Err(why),
        };
        why = "others keep writing the ledger, or no API server takes the write now".to_owned();
        if book.frozen.is_none() && order.is_none() {
            return Ok(may_be_written);
        }
        book.frozen.clone_from(&order);
        match ledger.write_book(version.as_ref(), &book).await {
            WriteOutcome::Written(_) => return Ok(true),
            // Whether it was written is unknown until it is read.
            WriteOutcome::Ambiguous => may_be_written = true,
            // Another client was faster.
            WriteOutcome::Conflict | WriteOutcome::Gone | WriteOutcome::GaveUp | WriteOutcome::Applied(_) => {
            }
            WriteOutcome::Refused(why) => return Err(why.to_string()),
        }
    }
    if may_be_written {
        why += "; it may have been written all the same: hookwatch status tells";
    }
    Err(why)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use serde_json::json;

    use super::*;
    use crate::domain::time::Time;
    use crate::io::testing::{TestReply, TestServer, soon};

    #[tokio::test]
    async fn an_order_is_given_again_while_the_api_server_has_no_time_for_it() {
        let asked = AtomicU32::new(0);
        let server = TestServer::start(move |request| {
            let object = json!({"metadata": {"name": ledger::OBJECT, "resourceVersion": "4", "uid": "u"}});
            match (asked.fetch_add(1, Ordering::Relaxed), request.method.as_str()) {
                (0 | 1, _) => TestReply::status(503, "{}"),
                (_, "GET") => TestReply::json(
                    200,
                    json!({"metadata": {"resourceVersion": "4"}, "items": [object]}),
                ),
                _ => TestReply::json(200, object),
            }
        })
        .await;
        let order = Freeze {
            by: "alice".into(),
            reason: "maintenance".into(),
            at: Time::from_unix_millis(1_000),
        };
        let ledger = LedgerObject::new(&server.connection().await);
        assert_eq!(soon(write(&ledger, Some(order))).await, Ok(true));
        let methods: Vec<String> = server.asked().into_iter().map(|it| it.method).collect();
        assert_eq!(methods, ["GET", "GET", "GET", "PATCH"]);
    }
}
