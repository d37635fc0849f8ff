//! Reads and writes the ledger's object. Its meaning is in [`crate::domain::act::ledger`].

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
    Unusable(String),
}

/// Reads and writes the ledger.
#[derive(Clone)]
pub struct LedgerObject {
    /// Each is a client for one API server, or for any of those behind an address.
    clients: Arc<[Client]>,
    /// Counts up when a client did not answer, and so selects the current one.
    turn: Arc<AtomicUsize>,
    known: Arc<Mutex<KnownLedger>>,
}

#[derive(Default)]
struct KnownLedger {
    /// The last version and content: a write keeps all parts of the annotation that it does not change.
    last: Option<(String, LedgerReading)>,
    /// The newest version of the collection that was seen. A read that may not be older is answered from the API server's
    /// cache, at a quarter of the cost of a read from etcd. `None` before the first answer, and after a failed read: etcd may
    /// have been restored to an earlier version.
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

    /// The same ledger by these clients. After one that did not answer, the next one is asked.
    pub fn over(&self, clients: Vec<Client>) -> Self {
        Self {
            clients: clients.into(),
            turn: Arc::default(),
            known: Arc::clone(&self.known),
        }
    }

    /// Reads with the current client, and at once with each other one where the API server does not answer or is overloaded.
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

    /// One request with the current client. Switches to the next one if the API server does not answer or is overloaded.
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

    /// Its name for people.
    fn what() -> String {
        format!("ValidatingWebhookConfiguration {OBJECT:?}")
    }

    /// Its content, uid and version; `None` when there is no such object.
    ///
    /// It is never older than what was read or written before. Recent writes of others may be missing, which does no harm, as
    /// every write has a precondition.
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
            other => return Err(LedgerUnread::Unusable(unread(other, &Self::what()))),
        };
        self.note_version(&list);
        let Some(objects) = list["items"].as_array() else {
            let why = format!("{} cannot be read: the answer is no list", Self::what());
            return Err(LedgerUnread::Unusable(why));
        };
        let Some(object) = objects.iter().find(|object| object["metadata"]["name"] == OBJECT) else {
            return Ok(None);
        };
        match version(object) {
            Some(version) => {
                let reading = self.remember(object, version);
                Ok(Some((uid(object).to_owned(), version.to_owned(), reading)))
            }
            None => Err(LedgerUnread::Unusable(unread(Ok(Value::Null), &Self::what()))),
        }
    }

    /// Who holds it; `None` when there is no such object. Also returns what is wrong with it, if a part cannot be parsed.
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

    /// As [`Self::read`], but from etcd, with everything that was written before.
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
            self.note_version(object);
        }
        answer
    }

    /// The content that a write with this precondition replaces; `None` when that version was not read, so that its other parts
    /// are unknown.
    fn reading_of(&self, precondition: Option<&str>) -> Option<LedgerReading> {
        let Some(version) = precondition else {
            return Some(LedgerReading::of(None));
        };
        let known = lock(&self.known);
        let (last, reading) = known.last.as_ref()?;
        (last == version).then(|| reading.clone())
    }

    /// Remembers the version of an answer.
    fn note_version(&self, object: &Value) {
        let number = version(object).and_then(|version| version.parse().ok());
        let mut known = lock(&self.known);
        known.seen = known.seen.max(number);
    }

    /// Remembers the content of the object.
    fn remember(&self, object: &Value, version: &str) -> LedgerReading {
        let annotation = &object["metadata"]["annotations"][ANNOTATION];
        let reading = LedgerReading::of(annotation.as_str());
        lock(&self.known).last = Some((version.to_owned(), reading.clone()));
        reading
    }
}

/// Whether another API server may give a better answer: this one is in trouble, or does not know hookwatch's credentials.
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
