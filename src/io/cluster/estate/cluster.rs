//! Objects from a cluster: lists alone, nothing is written and nothing watched.
//!
//! Of Services, EndpointSlices and what makes Pods only those in the namespaces of webhooks are listed, and Pods not at all.

use std::collections::BTreeSet;
use std::time::Duration;

use kube::Client;
use serde_json::Value;
use tokio::time::Instant;

use super::{EstateObject, UnreadableObject};
use crate::io::client::Connection;
use crate::io::client::answer::query_value;
use crate::io::client::request::{ApiRequest, JSON, METADATA, RequestError, items, page};
use crate::io::cluster::inventory::WatchedKind;
use crate::io::cluster::inventory::object::KindNames;

/// Most bytes of one page.
const MAX_PAGE: usize = 32 * 1024 * 1024;
/// Objects per page.
const PAGE: usize = 250;
/// CustomResourceDefinitions per page: their schemas are long.
const DEFINITIONS: usize = 25;
/// Most pages of one list.
const MAX_PAGES: usize = 80;
/// Everything is read within this.
const WHOLE: Duration = Duration::from_secs(60);
/// In more namespaces than this lists are of the whole cluster.
const MAX_NAMESPACES: usize = 50;
/// More nodes are not looked at one by one.
const MAX_NODES: usize = 50;

/// What stands behind webhooks.
const BACKENDS: [KindNames; 6] = [
    WatchedKind::Services.names(),
    WatchedKind::EndpointSlices.names(),
    KindNames::new("apps", "deployments", "Deployment"),
    KindNames::new("apps", "statefulsets", "StatefulSet"),
    KindNames::new("apps", "daemonsets", "DaemonSet"),
    KindNames::new("policy", "poddisruptionbudgets", "PodDisruptionBudget"),
];

/// What a cluster was read to hold.
#[derive(Debug, Default)]
pub struct ClusterContents {
    /// The objects.
    pub objects: Vec<EstateObject>,
    /// What could not be listed.
    pub unreadable: Vec<UnreadableObject>,
    /// Neither kind of webhook configuration could be listed: there is nothing to audit.
    pub is_blind: bool,
}

struct ClusterLister {
    client: Client,
    until: Instant,
    read: ClusterContents,
}

/// Reads what an audit needs.
pub async fn read(connection: &Connection) -> ClusterContents {
    let mut lister = ClusterLister {
        client: connection.calls().clone(),
        until: Instant::now() + WHOLE,
        read: ClusterContents::default(),
    };
    let mut listed = false;
    for kind in [WatchedKind::Validating, WatchedKind::Mutating] {
        listed |= lister.take(kind.names(), None, JSON).await;
    }
    lister.definitions().await;
    lister.read.is_blind = !listed;
    lister.take(WatchedKind::Namespaces.names(), None, METADATA).await;
    lister.backends().await;
    lister.nodes().await;
    lister.read
}

/// The namespaces of the Services of webhooks.
fn namespaces(objects: &[EstateObject]) -> BTreeSet<String> {
    let webhooks = objects
        .iter()
        .filter_map(|object| object.value["webhooks"].as_array())
        .flatten();
    let converting = objects
        .iter()
        .map(|object| &object.value["spec"]["conversion"]["webhook"]);
    let namespaces = webhooks
        .chain(converting)
        .filter_map(|webhook| webhook["clientConfig"]["service"]["namespace"].as_str());
    namespaces.map(str::to_owned).collect()
}

impl ClusterLister {
    /// The definitions that a webhook converts for, without their schemas.
    async fn definitions(&mut self) {
        let before = self.read.objects.len();
        self.take(WatchedKind::Definitions.names(), None, JSON).await;
        let definitions = self.read.objects.split_off(before);
        let converted = definitions
            .into_iter()
            .filter(|object| object.value["spec"]["conversion"]["strategy"] == "Webhook");
        self.read.objects.extend(converted);
    }

    /// Lists one kind; false where that cannot be done.
    async fn take(&mut self, names: KindNames, namespace: Option<&str>, accept: &str) -> bool {
        let (path, kind) = (&names.path(namespace), names.kind);
        let version = match names.group {
            "" => "v1".to_owned(),
            group => format!("{group}/v1"),
        };
        let are_definitions = kind == "CustomResourceDefinition";
        let at_once = if are_definitions { DEFINITIONS } else { PAGE };
        let mut next = String::new();
        for _ in 0..MAX_PAGES {
            let target = page(path, at_once, &next);
            let mut page = match self.get(&target, accept).await {
                Ok(page) => page,
                Err(why) => {
                    self.refuse(path, &why);
                    return false;
                }
            };
            for mut value in items(&mut page) {
                // Items of a list do not say what they are, and those of metadata say something else.
                value["kind"] = kind.into();
                value["apiVersion"] = version.as_str().into();
                if let Some(metadata) = value["metadata"].as_object_mut() {
                    metadata.remove("managedFields");
                }
                // The schemas of a definition, long and of no use here.
                if are_definitions && let Some(spec) = value["spec"].as_object_mut() {
                    spec.remove("versions");
                }
                self.read.objects.push(EstateObject::of_cluster(value));
            }
            next = page["metadata"]["continue"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            if next.is_empty() {
                return true;
            }
        }
        self.refuse(path, &format!("there are more than {}", at_once * MAX_PAGES));
        true
    }

    /// What stands behind webhooks, in the namespaces of their Services.
    async fn backends(&mut self) {
        let namespaces = namespaces(&self.read.objects);
        let places: Vec<Option<&str>> = if namespaces.len() > MAX_NAMESPACES {
            vec![None]
        } else {
            namespaces
                .iter()
                .map(|namespace| Some(namespace.as_str()))
                .collect()
        };
        for place in places {
            for kind in BACKENDS {
                self.take(kind, place, JSON).await;
            }
        }
    }

    /// The zones of all nodes, and more of those that endpoints of webhooks are on.
    async fn nodes(&mut self) {
        if !self.take(WatchedKind::Nodes.names(), None, METADATA).await {
            return;
        }
        let slices = self
            .read
            .objects
            .iter()
            .filter(|object| object.value["kind"] == "EndpointSlice");
        let endpoints = slices
            .filter_map(|slice| slice.value["endpoints"].as_array())
            .flatten();
        let names: BTreeSet<String> = endpoints
            .filter_map(|endpoint| Some(endpoint["nodeName"].as_str()?.to_owned()))
            .collect();
        for name in names.into_iter().take(MAX_NODES) {
            match self
                .get(&format!("/api/v1/nodes/{}", query_value(&name)), JSON)
                .await
            {
                // A later object of one name counts.
                Ok(value) => self.read.objects.push(EstateObject::of_cluster(value)),
                Err(why) => return self.refuse("/api/v1/nodes", &why),
            }
        }
    }

    fn refuse(&mut self, path: &str, why: &str) {
        self.read.unreadable.push(UnreadableObject {
            source: None,
            object: path.to_owned(),
            why: format!("it cannot be listed: {why}"),
        });
    }

    async fn get(&self, target: &str, accept: &str) -> Result<Value, String> {
        let left = self.until.saturating_duration_since(Instant::now());
        let answer = ApiRequest::get(&self.client, target, accept).json(left, MAX_PAGE);
        answer.await.map_err(|why| match why {
            RequestError::TimedOut(_) => {
                format!("no answer within {} s of all that is read", WHOLE.as_secs())
            }
            why => why.to_string(),
        })
    }
}
