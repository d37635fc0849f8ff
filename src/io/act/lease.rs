//! The Lease that replicas lead by, in hookwatch's own namespace.
//!
//! It is changed by merge patches that carry the `resourceVersion` they were made for: the API server refuses one with
//! 409 when the object has changed since, fields of others stay, and a deleted Lease is not recreated, as a PUT would
//! do for this kind.

use http::Method;
use kube::Client;
use serde_json::{Value, json};

use crate::domain::act::leadership::{Bid, BidOutcome, HolderRecord};
use crate::domain::time::Time;
use crate::io::client::Connection;
use crate::io::client::answer::percent_encoded;
use crate::io::client::request::RequestError;
use crate::io::coordination::{READ_DEADLINE, WRITE_DEADLINE, ask, uid, unread, version, written};

/// Reads and writes one Lease.
#[derive(Clone)]
pub struct LeaseObject {
    client: Client,
    namespace: String,
    name: String,
}

impl LeaseObject {
    /// The Lease `name` in `namespace`.
    pub fn new(connection: &Connection, namespace: &str, name: &str) -> Self {
        Self {
            client: connection.calls().clone(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// Its name for people.
    fn what(&self) -> String {
        format!("Lease {:?} in namespace {:?}", self.name, self.namespace)
    }

    fn missing(&self) -> String {
        format!(
            "{} does not exist, and hookwatch may not create it: docs/neighbours.md has the command; Argo CD passes over Leases",
            self.what()
        )
    }

    fn collection(&self) -> String {
        format!(
            "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
            percent_encoded(&self.namespace)
        )
    }

    fn path(&self) -> String {
        format!("{}/{}", self.collection(), percent_encoded(&self.name))
    }

    /// Its record; `None` when there is no such Lease.
    ///
    /// # Errors
    /// A sentence that says why it could not be read.
    pub async fn read(&self) -> Result<Option<HolderRecord>, String> {
        match ask(&self.client, Method::GET, &self.path(), None, READ_DEADLINE).await {
            Err(RequestError::Refused { status: 404, .. }) => Ok(None),
            Ok(object) if version(&object).is_some() => Ok(Some(record(&object))),
            other => Err(unread(other, &self.what())),
        }
    }

    /// Writes a bid; `now` is what is written as the time. Returns the trouble as well, when it failed.
    ///
    /// Takes up to 36 s: a hook that hangs names itself only then.
    pub async fn write(&self, bid: &Bid, now: Time) -> (BidOutcome, Option<String>) {
        let mut object = json!({"spec": spec(bid, now)});
        let Some(precondition) = &bid.precondition else {
            object["apiVersion"] = "coordination.k8s.io/v1".into();
            object["kind"] = "Lease".into();
            object["metadata"] = json!({"name": self.name, "namespace": self.namespace});
            let path = self.collection();
            let answer = ask(&self.client, Method::POST, &path, Some(&object), WRITE_DEADLINE).await;
            let may_not = matches!(answer, Err(RequestError::Refused { status: 403, .. }));
            let (outcome, said) = written(answer, &self.what(), true);
            let missing = may_not && outcome == BidOutcome::Refused;
            return (outcome, if missing { Some(self.missing()) } else { said });
        };
        object["metadata"] = json!({"resourceVersion": precondition});
        let path = self.path();
        let answer = ask(&self.client, Method::PATCH, &path, Some(&object), WRITE_DEADLINE).await;
        written(answer, &self.what(), false)
    }
}

/// The record in a Lease. Absent and invalid fields are ignored.
fn record(object: &Value) -> HolderRecord {
    let spec = &object["spec"];
    let holder = spec["holderIdentity"].as_str();
    HolderRecord {
        holder: holder.filter(|holder| !holder.is_empty()).map(Into::into),
        term: std::time::Duration::from_secs(spec["leaseDurationSeconds"].as_u64().unwrap_or_default()),
        transitions: spec["leaseTransitions"].as_u64().unwrap_or_default(),
        uid: uid(object).to_owned(),
        version: version(object).unwrap_or_default().to_owned(),
    }
}

fn spec(bid: &Bid, now: Time) -> Value {
    // MicroTime wants six digits; a Time shows three.
    let now = now.to_string().replace('Z', "000Z");
    let seconds = match bid.holder {
        Some(_) => bid.term.as_secs() + u64::from(bid.term.subsec_nanos() > 0),
        // As client-go releases a Lease; zero is not allowed.
        None => 1,
    };
    let mut spec = json!({
        "holderIdentity": bid.holder.as_deref(),
        "leaseDurationSeconds": seconds,
        "renewTime": now,
        "leaseTransitions": bid.transitions.min(i32::MAX as u64),
    });
    if bid.changes_hands {
        spec["acquireTime"] = now.into();
    }
    spec
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::io::testing::{TestReply, TestServer, clock, soon};

    fn bid(precondition: Option<&str>, holder: Option<&str>) -> Bid {
        Bid {
            precondition: precondition.map(Into::into),
            holder: holder.map(Into::into),
            changes_hands: precondition.is_none(),
            transitions: 2,
            term: Duration::from_millis(14_001),
        }
    }

    #[tokio::test]
    async fn a_lease_is_created_patched_and_released_always_with_its_precondition() {
        let server =
            TestServer::start(|_| TestReply::json(200, r#"{"metadata": {"resourceVersion": "8"}}"#)).await;
        let lease = LeaseObject::new(&server.connection().await, "ns", "hookwatch");
        for (bid, done) in [
            (bid(None, Some("me")), "8"),
            (bid(Some("7"), Some("me")), "8"),
            (bid(Some("8"), None), "8"),
        ] {
            let (outcome, said) = soon(lease.write(&bid, clock()())).await;
            assert_eq!(outcome, BidOutcome::Done { version: done.into() });
            assert_eq!(said, None);
        }
        let asked = server.asked();
        let body = |at: usize| serde_json::from_str::<Value>(&asked[at].body).expect("JSON");
        let path = "/apis/coordination.k8s.io/v1/namespaces/ns/leases";
        assert_eq!(asked[0].method, "POST");
        assert_eq!(
            asked[0].target,
            format!("{path}?fieldManager=hookwatch&timeout=34s")
        );
        assert_eq!(body(0)["spec"]["leaseDurationSeconds"], 15);
        assert_eq!(body(0)["spec"]["acquireTime"], body(0)["spec"]["renewTime"]);
        assert_eq!(asked[1].method, "PATCH");
        assert_eq!(asked[1].headers["content-type"], "application/merge-patch+json");
        assert_eq!(body(1)["metadata"]["resourceVersion"], "7");
        assert_eq!(body(1)["spec"].get("acquireTime"), None, "it goes on");
        assert!(body(2)["spec"]["holderIdentity"].is_null());
        assert_eq!(body(2)["spec"]["leaseDurationSeconds"], 1);
    }

    #[tokio::test]
    async fn a_lease_that_is_missing_and_may_not_be_created_is_said_to_be_missing() {
        for (status, message, precondition, missing) in [
            (403, "User \"u\" cannot create resource \"leases\"", None, true),
            (404, "namespaces \"ns\" not found", None, false),
            (403, "User \"u\" cannot patch", Some("7"), false),
        ] {
            let server = TestServer::start(move |_| TestReply::status(status, message)).await;
            let lease = LeaseObject::new(&server.connection().await, "ns", "hookwatch");
            let (outcome, said) = soon(lease.write(&bid(precondition, Some("me")), clock()())).await;
            assert_eq!(outcome, BidOutcome::Refused, "the ledger decides");
            let is_missing = said.is_some_and(|said| said.contains("does not exist"));
            assert_eq!(is_missing, missing, "{message}");
        }
    }

    #[tokio::test]
    async fn a_lease_is_read_leniently_and_one_that_is_not_there_is_none() {
        let server = TestServer::start(|asked| match asked.target.rsplit('/').next() {
            Some("gone") => TestReply::status(404, "not found"),
            Some("odd") => TestReply::json(
                200,
                r#"{"metadata": {"resourceVersion": "3"}, "spec": {"holderIdentity": "", "leaseTransitions": -1}}"#,
            ),
            Some("closed") => TestReply::status(403, "User \"u\" cannot get resource \"leases\""),
            _ => TestReply::json(
                200,
                r#"{"metadata": {"resourceVersion": "4"}, "spec": {"holderIdentity": "b", "leaseDurationSeconds": 20,
                    "leaseTransitions": 6, "renewTime": "2200-01-01T00:00:00.000000Z"}}"#,
            ),
        })
        .await;
        let connection = server.connection().await;
        let read = async |name| soon(LeaseObject::new(&connection, "ns", name).read()).await;
        assert_eq!(read("gone").await, Ok(None));
        let odd = read("odd").await.expect("read").expect("there");
        assert_eq!((odd.holder, odd.transitions, odd.term), (None, 0, Duration::ZERO));
        let held = read("held").await.expect("read").expect("there");
        assert_eq!(
            (
                held.holder.as_deref(),
                held.transitions,
                held.term,
                &*held.version
            ),
            (Some("b"), 6, Duration::from_secs(20), "4")
        );
        let said = read("closed").await.expect_err("not permitted");
        assert!(
            said.contains("may not be read") && said.contains("cannot get"),
            "{said}"
        );
    }
}
