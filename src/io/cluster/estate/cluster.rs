//! Reads what an audit needs from a cluster; writes and watches nothing.
//!
//! Services, EndpointSlices, workloads and PodDisruptionBudgets are listed only in the namespaces of webhooks' Services, or
//! cluster-wide if those are more than 50. Pods are never listed.

use std::collections::BTreeSet;
use std::time::Duration;

use kube::Client;
use serde_json::Value;
use tokio::time::Instant;

use super::objects::text;
use super::{EstateObject, UnreadableObject};
use crate::domain::audit::estate::Unlisted;
use crate::domain::cluster::hook::NamespacedName;
use crate::io::client::Connection;
use crate::io::client::answer::percent_encoded;
use crate::io::client::request::{ApiRequest, JSON, METADATA, RequestError, items, page};
use crate::io::cluster::inventory::convert::service::SERVICE_LABEL;
use crate::io::cluster::inventory::object::{KindNames, WatchedKind};

/// Most bytes of one page.
const MAX_PAGE_BYTES: usize = 32 * 1024 * 1024;
/// Objects per page of a list (`limit`).
const OBJECTS_PER_PAGE: usize = 250;
/// The same for CustomResourceDefinitions, whose schemas take hundreds of kilobytes each.
const DEFINITIONS_PER_PAGE: usize = 25;
/// Most pages of one list.
const MAX_PAGES: usize = 80;
/// Longest time for reading everything.
const TIME_FOR_ALL: Duration = Duration::from_secs(60);
/// Most namespaces that are listed one by one. With more, lists are cluster-wide.
const MAX_NAMESPACES: usize = 50;
/// Most Nodes that are read in full, one by one.
const MAX_NODES: usize = 50;

/// The kinds that make up webhooks' backends.
const BACKENDS: [KindNames; 6] = [
    WatchedKind::Services.names(),
    WatchedKind::EndpointSlices.names(),
    KindNames::new("apps", "deployments", "Deployment"),
    KindNames::new("apps", "statefulsets", "StatefulSet"),
    KindNames::new("apps", "daemonsets", "DaemonSet"),
    KindNames::new("policy", "poddisruptionbudgets", "PodDisruptionBudget"),
];

/// What was read of a cluster.
#[derive(Debug, Default)]
pub struct ClusterContents {
    /// All objects that were listed; of CustomResourceDefinitions only those with a conversion webhook.
    pub objects: Vec<EstateObject>,
    /// What could not be read, for display.
    pub unreadable: Vec<UnreadableObject>,
    /// The kinds that could not be listed completely.
    pub unlisted: Unlisted,
    /// Whether no webhook configuration of either kind could be listed, so that there is nothing to audit.
    pub is_blind: bool,
}

struct ClusterLister {
    client: Client,
    until: Instant,
    contents: ClusterContents,
}

/// Reads what an audit needs, for at most 60 s. Failures are in the result.
pub async fn read(connection: &Connection) -> ClusterContents {
    let mut lister = ClusterLister {
        client: connection.calls().clone(),
        until: Instant::now() + TIME_FOR_ALL,
        contents: ClusterContents::default(),
    };
    let mut listed = false;
    for kind in [WatchedKind::Validating, WatchedKind::Mutating] {
        listed |= lister.list(kind.names(), None, JSON).await;
    }
    lister.contents.is_blind = !listed && lister.contents.objects.is_empty();
    lister.definitions().await;
    lister.list(WatchedKind::Namespaces.names(), None, METADATA).await;
    lister.backends().await;
    lister.nodes().await;
    lister.contents
}

/// The Services of all webhooks, admission and conversion.
fn services(objects: &[EstateObject]) -> BTreeSet<NamespacedName> {
    let webhooks = objects
        .iter()
        .filter_map(|object| object.value["webhooks"].as_array())
        .flatten();
    let converting = objects
        .iter()
        .map(|object| &object.value["spec"]["conversion"]["webhook"]);
    let services = webhooks.chain(converting).filter_map(|webhook| {
        let service = &webhook["clientConfig"]["service"];
        Some((
            service["namespace"].as_str()?.to_owned(),
            service["name"].as_str()?.to_owned(),
        ))
    });
    services.collect()
}

impl ClusterLister {
    /// Lists CustomResourceDefinitions and keeps those with a conversion webhook, without their schemas.
    async fn definitions(&mut self) {
        let before = self.contents.objects.len();
        self.list(WatchedKind::Definitions.names(), None, JSON).await;
        let definitions = self.contents.objects.split_off(before);
        let converted = definitions
            .into_iter()
            .filter(|object| object.value["spec"]["conversion"]["strategy"] == "Webhook");
        self.contents.objects.extend(converted);
    }

    /// Lists all objects of one kind. Returns false if some may be missing; pages read before a failure are kept.
    async fn list(&mut self, names: KindNames, namespace: Option<&str>, accept: &str) -> bool {
        let path = names.path(namespace);
        let Err(why) = self.pages(names, &path, accept).await else {
            return true;
        };
        let place = namespace.map(str::to_owned);
        self.contents.unlisted.insert((names.kind, place));
        self.unread(&path, "listed", &why);
        false
    }

    async fn pages(&mut self, names: KindNames, path: &str, accept: &str) -> Result<(), RequestError> {
        let kind = names.kind;
        let version = match names.group {
            "" => "v1".to_owned(),
            group => format!("{group}/v1"),
        };
        let are_definitions = kind == "CustomResourceDefinition";
        let at_once = if are_definitions {
            DEFINITIONS_PER_PAGE
        } else {
            OBJECTS_PER_PAGE
        };
        let mut next = String::new();
        for _ in 0..MAX_PAGES {
            let mut page = self.get(&page(path, at_once, &next), accept).await?;
            for mut value in items(&mut page) {
                // Items of a list have no kind, and those of a metadata list have kind PartialObjectMetadata.
                value["kind"] = kind.into();
                value["apiVersion"] = version.as_str().into();
                if let Some(metadata) = value["metadata"].as_object_mut() {
                    metadata.remove("managedFields");
                }
                // `spec.versions` contains the schemas: long and not used here.
                if are_definitions && let Some(spec) = value["spec"].as_object_mut() {
                    spec.remove("versions");
                }
                self.contents.objects.push(EstateObject::of_cluster(value));
            }
            next = page["metadata"]["continue"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            if next.is_empty() {
                return Ok(());
            }
        }
        let most = at_once * MAX_PAGES;
        Err(RequestError::Unfit(format!(
            "there are more than {most}, and the rest was left out"
        )))
    }

    /// Lists the backends of webhooks in the namespaces of their Services.
    async fn backends(&mut self) {
        let services = services(&self.contents.objects);
        let namespaces: BTreeSet<&str> = services.iter().map(|(namespace, _)| namespace.as_str()).collect();
        let places: Vec<Option<&str>> = if namespaces.len() > MAX_NAMESPACES {
            vec![None]
        } else {
            namespaces.into_iter().map(Some).collect()
        };
        for place in places {
            for kind in BACKENDS {
                self.list(kind, place, JSON).await;
            }
        }
    }

    /// Lists the metadata of all Nodes, for their zones, and reads in full those that run endpoints of webhooks.
    async fn nodes(&mut self) {
        if !self.list(WatchedKind::Nodes.names(), None, METADATA).await {
            return;
        }
        let names = self.nodes_of_endpoints();
        if names.len() > MAX_NODES {
            let why = format!(
                "webhooks have endpoints on {}, and {MAX_NODES} were looked at",
                names.len()
            );
            self.unread("/api/v1/nodes", "read one by one", &RequestError::Unfit(why));
        }
        for name in names.into_iter().take(MAX_NODES) {
            let path = format!("/api/v1/nodes/{}", percent_encoded(&name));
            match self.get(&path, JSON).await {
                // Replaces the object from the metadata list: of two Nodes with one name the later one counts.
                Ok(value) => self.contents.objects.push(EstateObject::of_cluster(value)),
                // EndpointSlices name a deleted Node until its Pods are removed, too.
                Err(RequestError::Refused { status: 404, .. }) => {}
                Err(why) => self.unread(&path, "read", &why),
            }
        }
    }

    fn nodes_of_endpoints(&self) -> BTreeSet<String> {
        let services = services(&self.contents.objects);
        let of_webhook = |object: &&EstateObject| {
            let metadata = &object.value["metadata"];
            let (namespace, service) = (&metadata["namespace"], &metadata["labels"][SERVICE_LABEL]);
            let service = (text(namespace).to_owned(), text(service).to_owned());
            object.value["kind"] == "EndpointSlice" && services.contains(&service)
        };
        let slices = self.contents.objects.iter().filter(of_webhook);
        let endpoints = slices
            .filter_map(|slice| slice.value["endpoints"].as_array())
            .flatten();
        let names = endpoints.filter_map(|endpoint| Some(endpoint["nodeName"].as_str()?.to_owned()));
        names.collect()
    }

    /// Reports that an object could not be read. `done`: "listed" or "read", for the sentence. After the time for everything
    /// is over only the first failure is reported, because all further reads fail the same way.
    fn unread(&mut self, object: &str, done: &str, why: &RequestError) {
        let why = match why {
            RequestError::TimedOut(_) => {
                format!("the {} s for reading everything are over", TIME_FOR_ALL.as_secs())
            }
            why => why.to_string(),
        };
        let why = format!("it cannot be {done}: {why}");
        let is_over = Instant::now() >= self.until;
        if is_over && self.contents.unreadable.iter().any(|known| known.why == why) {
            return;
        }
        self.contents.unreadable.push(UnreadableObject {
            source: None,
            object: object.to_owned(),
            why,
        });
    }

    async fn get(&self, target: &str, accept: &str) -> Result<Value, RequestError> {
        let left = self.until.saturating_duration_since(Instant::now());
        ApiRequest::get(&self.client, target, accept)
            .json(left, MAX_PAGE_BYTES)
            .await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::domain::audit::findings::NO_DISRUPTION_BUDGET;
    use crate::domain::audit::{Auditor, Estate, findings};
    use crate::domain::cluster::hook::{HookTarget, ServiceState};
    use crate::io::cluster::estate::assemble;
    use crate::io::testing::{TestReply, TestServer};

    /// A webhook with a Service that is there, one without, and a definition that the latter converts for; `answer` may answer
    /// a path in another way.
    async fn audited(answer: fn(&str) -> Option<TestReply>) -> (Estate, Vec<UnreadableObject>) {
        let server = TestServer::start(move |request| {
            let path = request.target.split('?').next().unwrap_or_default();
            answer(path).unwrap_or_else(|| TestReply::json(200, json!({"items": listed(path)})))
        });
        let read = read(&server.await.connection().await).await;
        assert!(!read.is_blind);
        let (estate, _) = assemble(read.objects, Some(read.unlisted), None);
        (estate, read.unreadable)
    }

    fn listed(path: &str) -> Vec<Value> {
        let service = |name: &str| json!({"service": {"namespace": "ns", "name": name}});
        let webhook = |name: &str| {
            json!({
                "name": format!("{name}.example.com"), "clientConfig": service(name), "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            })
        };
        let slice = |node: &str, service: &str| {
            json!({
                "metadata": {"name": node, "namespace": "ns", "labels": {SERVICE_LABEL: service}},
                "addressType": "IPv4", "ports": [{"port": 8443}],
                "endpoints": [{"addresses": ["10.0.0.1"], "nodeName": node, "conditions": {"ready": true}}],
            })
        };
        match path.rsplit('/').next().unwrap_or_default() {
            "validatingwebhookconfigurations" => vec![json!({
                "metadata": {"name": "some"}, "webhooks": [webhook("there"), webhook("gone")],
            })],
            "customresourcedefinitions" => vec![json!({
                "metadata": {"name": "some.example.com"},
                "spec": {"conversion": {"strategy": "Webhook", "webhook": {"clientConfig": service("gone")}}},
            })],
            "services" => vec![json!({
                "metadata": {"name": "there", "namespace": "ns"},
                "spec": {"ports": [{"port": 443, "targetPort": 8443}], "selector": {"app": "there"}},
            })],
            "deployments" => vec![json!({
                "metadata": {"name": "there", "namespace": "ns"},
                "spec": {"replicas": 2, "template": {"metadata": {"labels": {"app": "there"}}}},
            })],
            "endpointslices" => vec![slice("a", "there"), slice("b", "there"), slice("c", "other")],
            "nodes" => ["a", "b", "c"]
                .map(|name| json!({"metadata": {"name": name}}))
                .into(),
            _ => Vec::new(),
        }
    }

    fn states(estate: &Estate) -> Vec<&'static str> {
        let hooks = estate.subjects.iter().map(|subject| &subject.hook.target);
        let states = hooks.map(|target| match target {
            HookTarget::Service(target) => match target.service {
                ServiceState::Missing => "missing",
                ServiceState::Found { .. } => "found",
                ServiceState::Unknown { .. } => "unknown",
                ServiceState::NoSuchPort { .. } => "no such port",
            },
            _ => "no service",
        });
        states.collect()
    }

    fn forbidden() -> TestReply {
        TestReply::status(403, "this account may not")
    }

    #[tokio::test]
    async fn a_service_is_missing_only_where_those_of_its_namespace_and_their_endpoints_could_be_listed() {
        let (estate, unread) = audited(|_| None).await;
        assert_eq!((states(&estate), unread), (vec!["found", "missing"], vec![]));
        assert!(estate.is_listed("Service", "ns"));
        for (answer, known) in [
            (
                (|path| path.ends_with("/services").then(forbidden)) as fn(&str) -> Option<TestReply>,
                ["unknown", "unknown"],
            ),
            (
                |path| path.ends_with("/endpointslices").then(forbidden),
                ["unknown", "missing"],
            ),
        ] {
            let (estate, unread) = audited(answer).await;
            assert_eq!((states(&estate), unread.len()), (known.to_vec(), 1));
        }
        let (estate, _) = audited(|path| path.ends_with("/services").then(forbidden)).await;
        assert!(!estate.is_listed("Service", "ns") && estate.is_listed("Service", "elsewhere"));
    }

    #[tokio::test]
    async fn a_node_that_is_gone_or_cannot_be_read_keeps_no_other_from_being_looked_at() {
        fn node(path: &str) -> Option<TestReply> {
            let going = json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "b"}, "spec": {"unschedulable": true}});
            match path {
                "/api/v1/nodes/b" => Some(TestReply::json(200, going)),
                _ => None,
            }
        }
        for (answer, unread) in [
            (
                (|path| match path {
                    "/api/v1/nodes/a" => Some(TestReply::status(404, "not found")),
                    path => node(path),
                }) as fn(&str) -> Option<TestReply>,
                vec![],
            ),
            (
                |path| match path {
                    "/api/v1/nodes/a" => Some(forbidden()),
                    path => node(path),
                },
                vec!["/api/v1/nodes/a"],
            ),
        ] {
            let (estate, told) = audited(answer).await;
            let told: Vec<&str> = told.iter().map(|one| one.object.as_str()).collect();
            assert_eq!(told, unread);
            assert!(estate.nodes["b"].trouble().is_some());
        }
    }

    #[tokio::test]
    async fn a_budget_is_missed_only_where_those_of_the_namespace_could_be_listed() {
        for (answer, missed) in [
            ((|_| None) as fn(&str) -> Option<TestReply>, true),
            (
                |path| path.ends_with("/poddisruptionbudgets").then(forbidden),
                false,
            ),
        ] {
            let (estate, _) = audited(answer).await;
            let found = findings::audit(&Auditor::new(&estate));
            let is_missed = found
                .iter()
                .any(|finding| finding.kind.id == NO_DISRUPTION_BUDGET.id);
            assert_eq!(is_missed, missed);
        }
    }

    #[tokio::test]
    async fn nodes_past_the_bound_are_told_of() {
        let (estate, unread) = audited(|path| {
            let nodes =
                (0..=MAX_NODES).map(|node| json!({"addresses": ["10.0.0.1"], "nodeName": node.to_string()}));
            let slice = json!({
                "metadata": {"name": "many", "namespace": "ns", "labels": {SERVICE_LABEL: "there"}},
                "addressType": "IPv4", "ports": [{"port": 8443}], "endpoints": nodes.collect::<Vec<_>>(),
            });
            let is_list = path.ends_with("/endpointslices");
            is_list.then(|| TestReply::json(200, json!({"items": [slice]})))
        })
        .await;
        let [one] = &unread[..] else { panic!("{unread:?}") };
        assert!(one.why.contains("endpoints on 51"), "{}", one.why);
        assert_eq!(states(&estate), ["found", "missing"]);
    }

    #[tokio::test(start_paused = true)]
    async fn that_the_time_is_over_is_told_once() {
        let server = TestServer::start(|_| TestReply::Hang).await;
        let read = read(&server.connection().await).await;
        assert_eq!(read.unreadable.len(), 1, "{:?}", read.unreadable);
        assert!(read.is_blind && read.unlisted.len() > 3);
    }
}
