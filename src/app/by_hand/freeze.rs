//! `hookwatch freeze` and `unfreeze`: whether daemons may begin bypasses.
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
use crate::io::act::breaker::{PatchOutcome, RetryPolicy};
use crate::io::act::ledger::{LedgerObject, LedgerUnread};

/// Forbids all daemons to begin a bypass.
///
/// # Errors
/// When the cluster cannot be reached, or the result cannot be printed.
pub async fn freeze(arguments: FreezeArguments) -> anyhow::Result<ExitCode> {
    let mut session = Session::open_to_act(arguments.act).await?;
    let order = Freeze {
        by: session.author.writer.identity.as_str().into(),
        reason: arguments.reason.as_str().into(),
        at: (session.clock)(),
    };
    session.carry_out_order(Some(order)).await;
    session.end()
}

/// Permits daemons to begin bypasses again.
///
/// # Errors
/// As for [`freeze`].
pub async fn unfreeze(arguments: ActArguments) -> anyhow::Result<ExitCode> {
    let mut session = Session::open_to_act(arguments).await?;
    session.carry_out_order(None).await;
    session.end()
}

impl Session {
    /// Writes an order to freeze, or the end of one (`None`), and reports and records the outcome.
    async fn carry_out_order(&mut self, order: Option<Freeze>) {
        let (action, reason) = match &order {
            Some(order) => ("freeze", Some(order.reason.to_string())),
            None => ("unfreeze", None),
        };
        let result = during("writing the ledger", write(&self.ledger, order)).await;
        let hook = HookId::new(HookKind::Validating, ledger::OBJECT, "");
        let (outcome, detail) = match &result {
            Ok(outcome) => (outcome.as_str(), outcome.detail()),
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
        self.record(record);
        match result {
            Ok(PatchOutcome::Applied) if action == "freeze" => {
                self.say("Frozen: nothing new is bypassed. What is bypassed comes back when it is well.");
            }
            Ok(PatchOutcome::Applied) => self.say("Not frozen any more."),
            Ok(PatchOutcome::AlreadySo) => self.say("It was not frozen."),
            Ok(outcome) => self.failed(&outcome.words()),
            Err(why) => self.failed(&why),
        }
    }
}

/// Writes the order into the ledger, or removes the one that is there (`None`). Returns [`PatchOutcome::GaveUp`] after a
/// minute.
///
/// # Errors
/// A sentence that says why it was refused; nothing was written then.
async fn write(ledger: &LedgerObject, order: Option<Freeze>) -> Result<PatchOutcome, String> {
    let mut may_be_written = false;
    let mut why = String::new();
    // Other clients write the ledger as well: replicas that elect a leader do so every few seconds.
    let retry = RetryPolicy::default();
    let (began, mut wait) = (Instant::now(), Duration::ZERO);
    while began.elapsed() + wait < retry.whole {
        sleep(wait).await;
        wait = retry.next_wait(wait);
        let (version, mut book) = match ledger.read_book().await {
            Ok(read) => read,
            Err(LedgerUnread::NotNow(trouble)) => {
                why = trouble;
                continue;
            }
            Err(LedgerUnread::Unusable(why)) => return Err(why),
        };
        why = "others keep writing the ledger, or no API server takes the write now".to_owned();
        if book.frozen == order {
            return Ok(if may_be_written {
                PatchOutcome::Applied
            } else {
                PatchOutcome::AlreadySo
            });
        }
        book.frozen.clone_from(&order);
        match ledger.write_book(version.as_ref(), &book).await {
            WriteOutcome::Written(_) => return Ok(PatchOutcome::Applied),
            // The next read shows whether it was written.
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
    Ok(PatchOutcome::GaveUp(why))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU32, Ordering};

    use serde_json::json;

    use super::*;
    use crate::domain::time::Time;
    use crate::io::lock;
    use crate::io::testing::{TestReply, TestServer, soon};

    fn maintenance() -> Freeze {
        Freeze {
            by: "alice".into(),
            reason: "maintenance".into(),
            at: Time::from_unix_millis(1_000),
        }
    }

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
        let ledger = LedgerObject::new(&server.connection().await);
        assert_eq!(
            soon(write(&ledger, Some(maintenance()))).await,
            Ok(PatchOutcome::Applied)
        );
        let methods: Vec<String> = server.asked().into_iter().map(|it| it.method).collect();
        assert_eq!(methods, ["GET", "GET", "GET", "PATCH"]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_order_that_no_api_server_takes_in_time_is_given_up_and_not_refused() {
        let server = TestServer::start(|_| TestReply::status(503, "{}")).await;
        let ledger = LedgerObject::new(&server.connection().await);
        let outcome = write(&ledger, None).await;
        assert!(matches!(outcome, Ok(PatchOutcome::GaveUp(_))), "{outcome:?}");
    }

    #[tokio::test]
    async fn an_order_whose_write_was_not_answered_is_not_written_again_where_it_is_found() {
        let written = Mutex::new(None);
        let server = TestServer::start(move |request| {
            let mut written = lock(&written);
            if request.method != "GET" {
                let patch: serde_json::Value = serde_json::from_str(&request.body).expect("JSON");
                *written = Some(patch["metadata"]["annotations"].clone());
                return TestReply::status(500, "{}");
            }
            let object = json!({"metadata": {"name": ledger::OBJECT, "resourceVersion": "4", "uid": "u",
                "annotations": *written}});
            TestReply::json(
                200,
                json!({"metadata": {"resourceVersion": "4"}, "items": [object]}),
            )
        })
        .await;
        let ledger = LedgerObject::new(&server.connection().await);
        assert_eq!(
            soon(write(&ledger, Some(maintenance()))).await,
            Ok(PatchOutcome::Applied)
        );
        let methods: Vec<String> = server.asked().into_iter().map(|it| it.method).collect();
        assert_eq!(methods, ["GET", "PATCH", "GET"]);
    }
}
