//! Reading the nodes' Leases: one list of `kube-node-lease`, cut down to three fields per Lease.
//!
//! A list rather than a watch: every node writes its Lease every 10 s, so that a watch carries each Lease as often as a
//! list does, and makes the API server encode an event for each. The list is taken from the API server's cache, which
//! costs etcd nothing.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use serde::Deserialize;

use super::canary::OBJECT;
use crate::domain::observe::node_leases::{
    LATE, LeaseList, LeaseReading, LeaseTrouble, MAX_NODES, NodeLease,
};
use crate::domain::text::{NOT_ACCEPTED, bounded};
use crate::io::Clock;
use crate::io::client::Connection;
use crate::io::client::request::{ApiRequest, JSON, RequestError};
use crate::io::missing::MissingFeatures;

/// How often the nodes' Leases are listed: as often as a kubelet renews its own.
pub const INTERVAL: Duration = Duration::from_secs(10);
/// How often they are listed in a cluster with more than [`MANY`] nodes.
pub const LONG_INTERVAL: Duration = Duration::from_secs(15);
/// Number of nodes above which [`LONG_INTERVAL`] applies. The list of 1,000 Leases has 0.7 MB.
pub const MANY: usize = 1_000;
/// Longest wait for a whole list.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Most bytes of a list. A Lease has about 700, so that this is enough for 40,000.
const MAX_BYTES: usize = 32 * 1024 * 1024;
/// Longest name or time that is kept, in bytes. A node's name has 253 at most.
const MAX_TEXT: usize = 253;
/// Name of the feature in the log when the permission to list the Leases is missing.
const LEASES: &str = "the age of the nodes' Leases";
const PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases?resourceVersion=0";

/// Lists the nodes' Leases, and logs when the permission for it is missing.
#[derive(Clone)]
pub struct LeaseReader {
    client: Client,
    clock: Clock,
    missing: Arc<MissingFeatures>,
}

impl LeaseReader {
    /// A reader that lists over [`Connection::calls`]. Nothing is requested yet.
    pub fn new(connection: &Connection, clock: Clock) -> Self {
        let client = connection.calls().clone();
        Self {
            client,
            clock,
            missing: Arc::default(),
        }
    }

    /// Lists all Leases once, within 10 s. A failure is the reading's `outcome`.
    pub async fn read(&self) -> LeaseReading {
        let outcome = self.list().await.map_err(trouble);
        match &outcome {
            Ok(_) => self.missing.note(LEASES, None),
            Err(LeaseTrouble::Forbidden { why }) => self.missing.note(LEASES, Some(why)),
            // This failure does not show whether the permission is missing.
            Err(LeaseTrouble::Unreadable { .. }) => false,
        };
        let at = (self.clock)();
        LeaseReading { at, outcome }
    }

    async fn list(&self) -> Result<LeaseList, RequestError> {
        let answer: LeaseItems = ApiRequest::get(&self.client, PATH, JSON)
            .json(TIMEOUT, MAX_BYTES)
            .await?;
        let mut list = LeaseList::default();
        for item in answer.items.unwrap_or_default() {
            take(&mut list, item.metadata.name, item.spec.unwrap_or_default());
        }
        Ok(list)
    }
}

#[derive(Deserialize)]
struct LeaseItems {
    /// Go encodes a nil slice as null, so null is an empty list. An answer without the key is no list.
    #[serde(deserialize_with = "Option::deserialize")]
    items: Option<Vec<LeaseItem>>,
}

#[derive(Deserialize)]
struct LeaseItem {
    metadata: LeaseMetadata,
    spec: Option<LeaseSpec>,
}

#[derive(Deserialize)]
struct LeaseMetadata {
    name: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct LeaseSpec {
    renew_time: Option<String>,
    lease_duration_seconds: Option<u32>,
}

fn trouble(why: RequestError) -> LeaseTrouble {
    let next = match why {
        RequestError::Refused { status: 401, .. } => NOT_ACCEPTED,
        RequestError::Refused { status: 403, .. } => "grant list on leases in namespace \"kube-node-lease\"",
        _ => {
            return LeaseTrouble::Unreadable {
                why: bounded(&why.to_string()),
            };
        }
    };
    LeaseTrouble::Forbidden {
        why: bounded(&format!("{why}; {next}")),
    }
}

/// Keeps the needed fields of one Lease, or counts it as left out when it exceeds a bound. Skips the canary's Lease.
fn take(list: &mut LeaseList, name: String, spec: LeaseSpec) {
    if name == OBJECT {
        return;
    }
    let renewed = spec.renew_time.unwrap_or_default();
    let is_long = name.len() > MAX_TEXT || renewed.len() > MAX_TEXT;
    if is_long || list.leases.len() >= MAX_NODES {
        list.left_out += 1;
        return;
    }
    list.leases.push(NodeLease {
        name,
        renewed,
        duration: spec
            .lease_duration_seconds
            .map_or(LATE, |seconds| Duration::from_secs(seconds.into())),
    });
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::io::testing::{TestReply, TestServer, clock, soon};

    fn lease(name: &str, renewed: &str) -> Value {
        json!({
            "metadata": {"name": name, "managedFields": [{"fieldsV1": {"f:spec": {"f:holderIdentity": {}}}}]},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": renewed},
        })
    }

    fn list(items: &[Value]) -> String {
        json!({"kind": "LeaseList", "apiVersion": "coordination.k8s.io/v1",
               "metadata": {"resourceVersion": "7"}, "items": items})
        .to_string()
    }

    async fn read(reply: impl Fn() -> TestReply + Send + Sync + 'static) -> Result<LeaseList, LeaseTrouble> {
        let server = TestServer::start(move |asked| {
            assert_eq!(asked.target, PATH);
            reply()
        })
        .await;
        let reader = LeaseReader::new(&server.connection().await, clock());
        soon(reader.read()).await.outcome
    }

    #[tokio::test]
    async fn the_leases_of_nodes_are_read_and_our_canary_is_not_one() {
        let body = list(&[
            lease("node-1", "2026-11-21T00:00:01.000000Z"),
            lease(OBJECT, "2026-11-21T00:00:02.000000Z"),
            json!({"metadata": {"name": "never-renewed"}}),
        ]);
        let read = read(move || TestReply::json(200, &body)).await.expect("a list");
        let names: Vec<_> = read.leases.iter().map(|lease| lease.name.as_str()).collect();
        assert_eq!(names, ["node-1", "never-renewed"]);
        assert_eq!(read.leases[0].renewed, "2026-11-21T00:00:01.000000Z");
        let none = self::read(|| TestReply::json(200, "{\"items\":null}")).await;
        assert_eq!(none, Ok(LeaseList::default()));
    }

    #[tokio::test]
    async fn more_nodes_than_the_bound_are_counted_and_left_out() {
        let one = lease("n", "t").to_string();
        let body = format!(
            "{{\"metadata\":{{}},\"items\":[{}]}}",
            vec![one; MAX_NODES + 3].join(",")
        );
        let read = read(move || TestReply::json(200, &body)).await.expect("a list");
        assert_eq!((read.leases.len(), read.left_out), (MAX_NODES, 3));
    }

    #[tokio::test]
    async fn a_missing_permission_says_what_to_grant() {
        let trouble = read(|| TestReply::status(403, "leases is forbidden"))
            .await
            .expect_err("403");
        let LeaseTrouble::Forbidden { why } = trouble else {
            panic!("{trouble:?}");
        };
        assert!(why.contains("grant list on leases in namespace"), "{why}");
    }

    #[tokio::test]
    async fn what_is_no_list_or_not_a_whole_one_is_unreadable() {
        let cut = list(&[lease("n", "t")]);
        let cut = cut[..cut.len() - 5].to_owned();
        for (reply, says) in [
            (
                TestReply::Whole(200, "text/html", "<html>log in</html>".to_owned()),
                "not what was asked for",
            ),
            (TestReply::json(200, "{\"items\":{}}"), "not what was asked for"),
            (TestReply::json(200, "{\"error\":null}"), "not what was asked for"),
            (TestReply::json(200, cut), "not what was asked for"),
            (TestReply::status(500, "boom"), "HTTP 500: boom"),
            (
                TestReply::Endless("application/json", vec![b' '; 65_536]),
                "larger than",
            ),
        ] {
            let once = std::sync::Mutex::new(Some(reply));
            let trouble = read(move || {
                let reply = once.lock().expect("no poison").take();
                reply.expect("asked once")
            })
            .await
            .expect_err(says);
            let LeaseTrouble::Unreadable { why } = trouble else {
                panic!("{trouble:?}");
            };
            assert!(why.contains(says), "{why}");
        }
    }
}
