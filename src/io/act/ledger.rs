//! The ledger's object. What it means is in [`crate::domain::act::ledger`].

mod book;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use http::Method;
use kube::Client;
use serde_json::{Value, json};
use thiserror::Error;

use crate::domain::act::leadership::{Bid, BidOutcome, HolderRecord};
use crate::domain::act::ledger::{ANNOTATION, LedgerReading, OBJECT};
use crate::domain::time::Time;
use crate::io::client::Connection;
use crate::io::client::request::RequestError;
use crate::io::coordination::{Answer, READ_DEADLINE, ask, is_of_the_server, uid, unread, version, written};
use crate::io::lock;

const COLLECTION: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

/// Why the ledger could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LedgerUnread {
    /// No API server answers now.
    #[error("{0}")]
    NotNow(String),
    /// It may not be read, or cannot be parsed.
    #[error("{0}")]
    Useless(String),
}

/// Reads and writes the ledger.
#[derive(Clone)]
pub struct LedgerObject {
    /// Each is a client for one API server, or for any of those behind an address.
    clients: Arc<[Client]>,
    /// Which of them is asked: the same one while it answers.
    turn: Arc<AtomicUsize>,
    known: Arc<Mutex<KnownLedger>>,
}

#[derive(Default)]
struct KnownLedger {
    /// What was read last, under its version: the rest of the annotation is written back with every change.
    last: Option<(String, LedgerReading)>,
    /// The newest version seen of the collection. What is not older is in the API server's memory, and costs it a quarter
    /// of what it costs to ask etcd. `None` when nothing was seen yet, or when the last read failed: etcd may have been restored
    /// to an earlier version.
    seen: Option<u64>,
}

impl LedgerObject {
    /// The ledger of a cluster.
    pub fn new(connection: &Connection) -> Self {
        Self {
            clients: Arc::new([connection.calls().clone()]),
            turn: Arc::default(),
            known: Arc::default(),
        }
    }

    /// The same ledger over these API servers: when one does not answer, the next is asked the next time.
    pub fn over(&self, clients: Vec<Client>) -> Self {
        Self {
            clients: clients.into(),
            turn: Arc::default(),
            known: Arc::clone(&self.known),
        }
    }

    /// Reads from the one that is asked now, and from each other one at once where it does not answer or is overloaded.
    async fn get(&self, path: &str) -> Answer {
        let mut answer = self.ask(Method::GET, path, None).await;
        for _ in 1..self.clients.len() {
            match &answer {
                Err(why) if another_may_answer(why) => answer = self.ask(Method::GET, path, None).await,
                _ => break,
            }
        }
        answer
    }

    /// One request to the one that is asked now. After one that did not answer, or is overloaded, the next one is.
    async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Answer {
        let turn = self.turn.load(Ordering::Relaxed);
        let Some(client) = self.clients.get(turn % self.clients.len().max(1)) else {
            return Err(RequestError::NoConnection("no API server is known".to_owned()));
        };
        let answer = ask(client, method, path, body, READ_DEADLINE).await;
        if answer.as_ref().is_err_and(another_may_answer) {
            self.turn.fetch_add(1, Ordering::Relaxed);
        }
        answer
    }

    fn what() -> String {
        format!("ValidatingWebhookConfiguration {OBJECT:?}")
    }

    /// Its content, uid and version; `None` when there is no such object.
    ///
    /// It is never older than what was read or written before. What others have written a moment ago may be missing, as in an
    /// answer that is on its way: every write has a precondition.
    async fn fetch(&self) -> Result<Option<(String, String, LedgerReading)>, LedgerUnread> {
        // A list filtered by name: it takes no permission but the one that the inventory takes.
        let mut path = format!("{COLLECTION}?fieldSelector=metadata.name%3D{OBJECT}");
        if let Some(seen) = lock(&self.known).seen.take() {
            path += &format!("&resourceVersion={seen}&resourceVersionMatch=NotOlderThan");
        }
        let list = match self.get(&path).await {
            Ok(list) => list,
            Err(why) if is_of_the_server(&why) => {
                return Err(LedgerUnread::NotNow(unread(Err(why), &Self::what())));
            }
            other => return Err(LedgerUnread::Useless(unread(other, &Self::what()))),
        };
        self.saw(&list);
        let Some(objects) = list["items"].as_array() else {
            let why = format!("{} cannot be read: the answer is no list", Self::what());
            return Err(LedgerUnread::Useless(why));
        };
        let Some(object) = objects.iter().find(|object| object["metadata"]["name"] == OBJECT) else {
            return Ok(None);
        };
        match version(object) {
            Some(version) => {
                let reading = self.remember(object, version);
                Ok(Some((uid(object).to_owned(), version.to_owned(), reading)))
            }
            None => Err(LedgerUnread::Useless(unread(Ok(Value::Null), &Self::what()))),
        }
    }

    /// Who holds it; `None` when there is no such object. Returns a complaint as well when it is not readable as a
    /// whole.
    ///
    /// # Errors
    /// A sentence that says why it could not be read.
    pub async fn read(&self) -> Result<(Option<HolderRecord>, Option<String>), String> {
        let fetched = self.fetch().await.map_err(|why| why.to_string())?;
        let Some((uid, version, reading)) = fetched else {
            return Ok((None, None));
        };
        let said = reading
            .complaint()
            .map(|why| format!("annotation {ANNOTATION} of {} {why}", Self::what()));
        Ok((Some(reading.record(&uid, &version)), said))
    }

    /// The same as it is stored, with all that was written before.
    ///
    /// # Errors
    /// As for [`Self::read`].
    pub async fn read_stored(&self) -> Result<(Option<HolderRecord>, Option<String>), String> {
        lock(&self.known).seen = None;
        self.read().await
    }

    /// Writes a bid, and creates the object for it where there is none. Returns the trouble as well, when it failed.
    pub async fn write(&self, bid: &Bid, now: Time) -> (BidOutcome, Option<String>) {
        let Some(reading) = self.reading_of(bid.precondition.as_deref()) else {
            return (BidOutcome::Conflict, None);
        };
        let Some(text) = reading.with_bid(bid, &now.to_string()) else {
            let said = format!("annotation {ANNOTATION} of {} would grow too large", Self::what());
            return (BidOutcome::Refused, Some(said));
        };
        let answer = self.put(bid.precondition.as_deref(), &text).await;
        written(answer, &Self::what(), bid.precondition.is_none())
    }

    /// Writes the annotation over a version that was read, or an object with it where there was none.
    async fn put(&self, precondition: Option<&str>, text: &str) -> Answer {
        let annotations = json!({ANNOTATION: text});
        let answer = match precondition {
            None => {
                let object = json!({
                    "apiVersion": "admissionregistration.k8s.io/v1",
                    "kind": "ValidatingWebhookConfiguration",
                    "metadata": {"name": OBJECT, "annotations": annotations},
                    "webhooks": [],
                });
                self.ask(Method::POST, COLLECTION, Some(&object)).await
            }
            Some(version) => {
                let object = json!({"metadata": {"resourceVersion": version, "annotations": annotations}});
                let path = format!("{COLLECTION}/{OBJECT}");
                self.ask(Method::PATCH, &path, Some(&object)).await
            }
        };
        if let Ok(object) = &answer
            && let Some(version) = version(object)
        {
            self.remember(object, version);
            self.saw(object);
        }
        answer
    }

    /// The content that a write with this precondition replaces; `None` when it was not read: without its other parts it
    /// cannot be written.
    fn reading_of(&self, precondition: Option<&str>) -> Option<LedgerReading> {
        let Some(version) = precondition else {
            return Some(LedgerReading::of(None));
        };
        let known = lock(&self.known);
        let (last, reading) = known.last.as_ref()?;
        (last == version).then(|| reading.clone())
    }

    fn saw(&self, object: &Value) {
        let number = version(object).and_then(|version| version.parse().ok());
        let mut known = lock(&self.known);
        known.seen = known.seen.max(number);
    }

    fn remember(&self, object: &Value, version: &str) -> LedgerReading {
        let annotation = &object["metadata"]["annotations"][ANNOTATION];
        let reading = LedgerReading::of(annotation.as_str());
        lock(&self.known).last = Some((version.to_owned(), reading.clone()));
        reading
    }
}

/// Whether another API server may answer better: not only one in trouble, but one that does not know us as well.
fn another_may_answer(why: &RequestError) -> bool {
    is_of_the_server(why) || matches!(why, RequestError::Refused { status: 401, .. })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::domain::act::breaker::{Book, ResourceVersion, WriteOutcome};
    use crate::io::testing::{TestReply, TestServer, clock, soon};

    fn bid(precondition: Option<&str>) -> Bid {
        Bid {
            precondition: precondition.map(Into::into),
            holder: Some("me".into()),
            changes_hands: true,
            transitions: 0,
            term: Duration::from_secs(15),
        }
    }

    fn object(version: &str, annotation: &str) -> String {
        let annotations = json!({ANNOTATION: annotation});
        json!({"metadata": {"name": OBJECT, "resourceVersion": version, "annotations": annotations}})
            .to_string()
    }

    fn list(object: &str) -> String {
        format!("{{\"items\": [{object}]}}")
    }

    #[tokio::test]
    async fn a_read_that_one_api_server_does_not_answer_is_answered_by_the_next_at_once() {
        let refuses = TestServer::start(|_| TestReply::json(429, "{}")).await;
        let answers = TestServer::start(|_| TestReply::json(200, list(&object("4", "{}")))).await;
        let (first, second) = (refuses.connection().await, answers.connection().await);
        let ledger = LedgerObject::new(&first).over(vec![first.calls().clone(), second.calls().clone()]);
        let (version, book) = soon(ledger.read_book()).await.expect("the second one answers");
        assert_eq!(
            (version, book),
            (Some(ResourceVersion::new("4")), Book::default())
        );
        // A write that was refused for now is repeated from a new read.
        let busy = LedgerObject::new(&first);
        assert_eq!(
            soon(busy.write_book(None, &Book::default())).await,
            WriteOutcome::Conflict
        );
    }

    #[tokio::test]
    async fn a_ledger_that_cannot_be_read_now_is_told_from_one_that_may_not_be_read() {
        for (status, later) in [(429, true), (503, true), (401, false), (403, false)] {
            let server = TestServer::start(move |_| TestReply::status(status, "{}")).await;
            let ledger = LedgerObject::new(&server.connection().await);
            let unread = soon(ledger.read_book()).await.expect_err("it is not read");
            assert_eq!(
                matches!(unread, LedgerUnread::NotNow(_)),
                later,
                "{status}: {unread}"
            );
        }
    }

    #[tokio::test]
    async fn what_else_stands_in_the_ledger_is_written_back() {
        let server = TestServer::start(|asked| {
            let object = object("4", r#"{"frozen": true}"#);
            match asked.method.as_str() {
                "GET" => TestReply::json(200, list(&object)),
                _ => TestReply::json(200, object),
            }
        })
        .await;
        let ledger = LedgerObject::new(&server.connection().await);
        let (record, said) = soon(ledger.read()).await.expect("read");
        assert_eq!((record.expect("there").holder, said), (None, None));
        let (outcome, _) = soon(ledger.write(&bid(Some("4")), clock()())).await;
        assert_eq!(outcome, BidOutcome::Done { version: "4".into() });
        let asked = &server.asked()[1];
        assert_eq!(asked.method, "PATCH");
        let patch: Value = serde_json::from_str(&asked.body).expect("JSON");
        assert_eq!(patch["metadata"]["resourceVersion"], "4");
        let text = patch["metadata"]["annotations"][ANNOTATION].as_str();
        let written: Value = serde_json::from_str(text.expect("text")).expect("JSON");
        assert_eq!(
            (&written["frozen"], &written["actor"]["identity"]),
            (&json!(true), &json!("me"))
        );
    }

    #[tokio::test]
    async fn a_ledger_that_is_not_there_is_created_without_hooks() {
        let server = TestServer::start(|asked| match asked.method.as_str() {
            "GET" => TestReply::json(200, r#"{"items": []}"#),
            _ => TestReply::json(201, object("1", "{}")),
        })
        .await;
        let ledger = LedgerObject::new(&server.connection().await);
        assert_eq!(soon(ledger.read()).await, Ok((None, None)));
        let (outcome, _) = soon(ledger.write(&bid(None), clock()())).await;
        assert_eq!(outcome, BidOutcome::Done { version: "1".into() });
        let created: Value = serde_json::from_str(&server.asked()[1].body).expect("JSON");
        assert_eq!(
            (&created["metadata"]["name"], &created["webhooks"]),
            (&json!(OBJECT), &json!([]))
        );
    }

    #[tokio::test]
    async fn it_is_read_no_older_than_what_was_seen_and_from_what_is_stored_after_a_failure() {
        let server = TestServer::start(
            |asked| match (asked.method.as_str(), asked.target.contains("=9&")) {
                ("GET", true) => TestReply::status(504, "Too large resource version: 9, current: 7"),
                ("GET", false) => {
                    TestReply::json(200, r#"{"metadata": {"resourceVersion": "7"}, "items": []}"#)
                }
                _ => TestReply::json(201, object("9", "{}")),
            },
        )
        .await;
        let ledger = LedgerObject::new(&server.connection().await);
        for _ in 0..2 {
            assert_eq!(soon(ledger.read()).await, Ok((None, None)));
        }
        soon(ledger.write(&bid(None), clock()())).await;
        soon(ledger.read()).await.expect_err("etcd was restored");
        assert_eq!(soon(ledger.read()).await, Ok((None, None)));
        soon(ledger.write_book(None, &Book::default())).await;
        soon(ledger.read())
            .await
            .expect_err("what the breaker wrote counts as well");
        assert_eq!(soon(ledger.read()).await, Ok((None, None)));
        assert_eq!(soon(ledger.read_stored()).await, Ok((None, None)));
        let asked = server.asked();
        let reads = asked.iter().filter(|asked| asked.method == "GET");
        let versions: Vec<Option<&str>> = reads
            .map(|asked| {
                asked
                    .target
                    .split_once("&resourceVersion=")
                    .map(|(_, version)| version)
            })
            .collect();
        let (seven, nine) = (
            "7&resourceVersionMatch=NotOlderThan",
            "9&resourceVersionMatch=NotOlderThan",
        );
        assert_eq!(
            versions,
            [None, Some(seven), Some(nine), None, Some(nine), None, None]
        );
    }

    #[tokio::test]
    async fn a_version_that_was_not_read_is_not_written_over() {
        let server = TestServer::start(|_| TestReply::json(200, object("4", "{}"))).await;
        let ledger = LedgerObject::new(&server.connection().await);
        let (outcome, _) = soon(ledger.write(&bid(Some("3")), clock()())).await;
        assert_eq!(outcome, BidOutcome::Conflict);
        assert!(server.asked().is_empty());
    }

    #[tokio::test]
    async fn an_unreadable_ledger_is_reported_and_has_an_unknown_holder() {
        let server = TestServer::start(|_| TestReply::json(200, list(&object("4", "nonsense")))).await;
        let ledger = LedgerObject::new(&server.connection().await);
        let (record, said) = soon(ledger.read()).await.expect("read");
        assert_eq!(record.expect("there").holder.as_deref(), Some("unreadable"));
        assert!(said.expect("a sentence").contains("unreadable"));
    }

    #[tokio::test]
    async fn what_is_no_list_is_not_taken_for_a_ledger_that_is_not_there() {
        for (status, body) in [(200, "{}"), (404, "not found"), (403, "User \"u\" cannot list")] {
            let server = TestServer::start(move |_| match status {
                200 => TestReply::json(200, body),
                _ => TestReply::status(status, body),
            })
            .await;
            let ledger = LedgerObject::new(&server.connection().await);
            let said = soon(ledger.read()).await.expect_err("it may be held");
            assert!(said.contains("read"), "{said}");
        }
    }
}
