//! Lists objects that were admitted without a hook's review. Reads only metadata, page by page, within bounds.
//!
//! Discovery gives the kinds, and each kind that the hook matches is listed. A kind that RBAC does not permit to list, that
//! takes too long or is too large is named in the report; the others are still listed.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroupList, APIResourceList, ListMeta};
use kube::Client;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::Instant;

use crate::domain::cluster::hook::{Hook, HookKind, Labels};
use crate::domain::report::unchecked::{ObjectTally, ObservedObject, Question, Served, Unchecked};
use crate::domain::time::Time;
use crate::io::client::Connection;
use crate::io::client::request::{ApiRequest, JSON, METADATA, base, page};
use crate::io::cluster::inventory::convert::{self, Configuration};

/// Most bytes of a page of objects, and of a discovery document. The metadata of an object has a few thousand bytes.
const MAX_PAGE: usize = 16 * 1024 * 1024;
/// Most group versions for which discovery is read.
const MAX_VERSIONS: usize = 300;

/// The bounds of one listing.
#[derive(Debug, Clone, Copy)]
pub struct ListingBounds {
    /// Objects per page (`limit`).
    pub page: usize,
    /// Most pages per kind.
    pub pages: usize,
    /// Most kinds.
    pub kinds: usize,
    /// Longest time for one request.
    pub request: Duration,
    /// Longest time for everything.
    pub whole: Duration,
}

impl Default for ListingBounds {
    fn default() -> Self {
        Self {
            page: 500,
            pages: 20,
            kinds: 200,
            request: Duration::from_secs(15),
            whole: Duration::from_secs(120),
        }
    }
}

/// Lists objects from an API server.
#[derive(Clone)]
pub struct ObjectLister {
    client: Client,
    bounds: ListingBounds,
}

#[derive(Deserialize)]
struct ListPage {
    metadata: ListMeta,
    items: Option<Vec<Item>>,
}

#[derive(Deserialize)]
struct Item {
    metadata: Meta,
}

/// Not `ObjectMeta`, which is mostly `fieldsV1`: serde skips that here.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    name: String,
    namespace: Option<String>,
    labels: Option<Labels>,
    creation_timestamp: Option<String>,
    managed_fields: Option<Vec<Managed>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Managed {
    time: Option<String>,
    subresource: Option<String>,
}

impl From<Meta> for ObservedObject {
    fn from(meta: Meta) -> Self {
        let managed = meta.managed_fields.unwrap_or_default().into_iter();
        Self {
            name: meta.name,
            namespace: meta.namespace.filter(|namespace| !namespace.is_empty()),
            labels: meta.labels.unwrap_or_default(),
            created: meta.creation_timestamp.as_deref().and_then(Time::parse),
            changed: managed
                .filter_map(|it| {
                    Some((
                        Time::parse(it.time.as_deref()?)?,
                        it.subresource.unwrap_or_default(),
                    ))
                })
                .collect(),
        }
    }
}

/// The hook with this name in a webhook configuration as the API server returns it. `None` if there is none, if the
/// configuration cannot be read, or if `kind` is no admission kind.
pub fn hook_of(kind: HookKind, configuration: &Value, webhook: &str) -> Option<Hook> {
    if !kind.is_admission() {
        return None;
    }
    let hooks = convert::hooks(kind, Configuration::deserialize(configuration).ok()?);
    hooks.into_iter().find(|hook| &*hook.id.webhook == webhook)
}

impl ObjectLister {
    /// A lister with the default bounds.
    pub fn new(connection: &Connection) -> Self {
        Self::bounded(connection.calls().clone(), ListingBounds::default())
    }

    /// A lister with other bounds.
    pub fn bounded(client: Client, bounds: ListingBounds) -> Self {
        Self { client, bounds }
    }

    /// Lists the objects that `question` asks for. Failures are part of the report.
    pub async fn list(&self, question: Question<'_>) -> Unchecked {
        let until = Instant::now() + self.bounds.whole;
        let mut tally = ObjectTally::new(question);
        let mut served = self.listable_kinds(&mut tally, until).await;
        if served.len() > self.bounds.kinds {
            let why = format!(
                "there are {} kinds, and at most {} are listed",
                served.len(),
                self.bounds.kinds
            );
            for left_out in served.drain(self.bounds.kinds..) {
                tally.not_listed(&left_out.name(), &why);
            }
        }
        let selects = !question.hook.namespace_selector.is_empty();
        let namespaces = if selects {
            self.namespaces(&mut tally, until).await
        } else {
            BTreeMap::new()
        };
        for kind in served {
            if let Err(why) = self.list_kind(&kind, &namespaces, &mut tally, until).await {
                tally.not_listed(&kind.name(), &why);
            }
        }
        tally.end()
    }

    /// The kinds that the hook's rules match and that can be listed. The preferred version of a kind is its first.
    async fn listable_kinds(&self, tally: &mut ObjectTally<'_>, until: Instant) -> Vec<Served> {
        let groups: Result<APIGroupList, String> = self.get("/apis", JSON, until).await;
        let groups = groups.unwrap_or_else(|why| {
            tally.not_listed("every kind of an API group", &why);
            APIGroupList::default()
        });
        let core = (String::new(), vec!["v1".to_owned()]);
        let named = groups.groups.into_iter().map(|group| {
            let versions = group.versions.into_iter().map(|it| it.version);
            let preferred = group.preferred_version.map(|it| it.version);
            let others = versions.filter(|version| Some(version) != preferred.as_ref());
            let versions: Vec<String> = preferred.clone().into_iter().chain(others).collect();
            (group.name, versions)
        });
        let mut served: BTreeMap<(String, String), Served> = BTreeMap::new();
        let mut left = MAX_VERSIONS;
        for (group, versions) in std::iter::once(core).chain(named) {
            let mut rules = tally.question.hook.rules.iter();
            if !rules.any(|rule| rule.api_groups.iter().any(|it| it == "*" || *it == group)) {
                continue;
            }
            for version in versions {
                let path = base(&group, &version);
                let Some(rest) = left.checked_sub(1) else {
                    let why = format!("at most {MAX_VERSIONS} group versions are read");
                    tally.not_listed(&format!("every kind under {path}"), &why);
                    continue;
                };
                left = rest;
                let resources: Result<APIResourceList, String> = self.get(&path, JSON, until).await;
                match resources {
                    Ok(resources) => {
                        for resource in resources.resources {
                            let has = |wanted: &str| resource.verbs.iter().any(|verb| verb == wanted);
                            // Skips kinds that cannot be written, such as metrics, which are computed when they are read.
                            let written = ["create", "update", "patch"].into_iter().any(has);
                            if !has("list") || !written || resource.name.contains('/') {
                                continue;
                            }
                            let key = (group.clone(), resource.name.clone());
                            let known = served.entry(key).or_insert_with(|| Served {
                                group: group.clone(),
                                versions: Vec::new(),
                                resource: resource.name,
                                namespaced: resource.namespaced,
                            });
                            known.versions.push(version.clone());
                        }
                    }
                    Err(why) => tally.not_listed(&format!("every kind under {path}"), &why),
                }
            }
        }
        served.retain(|_, kind| tally.question.concerns(kind));
        // Events of both groups are the same objects, and no other kind is served in two (`domain/cluster/matching/equivalent`).
        let events = |group: &str| (group.to_owned(), "events".to_owned());
        if served.contains_key(&events("")) {
            served.remove(&events("events.k8s.io"));
        }
        served.into_values().collect()
    }

    /// The labels of all namespaces, for a hook with a `namespaceSelector`.
    async fn namespaces(&self, tally: &mut ObjectTally<'_>, until: Instant) -> BTreeMap<String, Labels> {
        let mut labels = BTreeMap::new();
        let mut take = |seen: ObservedObject| {
            labels.insert(seen.name, seen.labels);
        };
        if let Err(why) = self.pages("/api/v1/namespaces", until, &mut take).await {
            tally.not_listed("namespaces (their labels, which the webhook selects by)", &why);
        }
        labels
    }

    /// Reads the labels of these namespaces. Leaves out those that do not exist or cannot be read in time. The names must be safe
    /// in a URL path.
    pub async fn labels(&self, names: &[&str]) -> BTreeMap<String, Labels> {
        let until = Instant::now() + self.bounds.whole;
        let mut labels = BTreeMap::new();
        for name in names {
            let read: Result<Item, String> =
                self.get(&format!("/api/v1/namespaces/{name}"), JSON, until).await;
            if let Ok(item) = read {
                labels.insert((*name).to_owned(), item.metadata.labels.unwrap_or_default());
            }
        }
        labels
    }

    async fn list_kind(
        &self,
        kind: &Served,
        namespaces: &BTreeMap<String, Labels>,
        tally: &mut ObjectTally<'_>,
        until: Instant,
    ) -> Result<(), String> {
        let version = kind.versions.first().ok_or("it has no version")?;
        let path = format!("{}/{}", base(&kind.group, version), kind.resource);
        self.pages(&path, until, &mut |seen| {
            let labels = seen.namespace.as_deref().and_then(|name| namespaces.get(name));
            tally.take(kind, &seen, labels);
        })
        .await
    }

    /// Hands every object of a list to `take`. Fails if a bound is reached first.
    async fn pages(
        &self,
        path: &str,
        until: Instant,
        take: &mut (dyn FnMut(ObservedObject) + Send),
    ) -> Result<(), String> {
        let mut next = String::new();
        for _ in 0..self.bounds.pages {
            let target = page(path, self.bounds.page, &next);
            let page: ListPage = self.get(&target, METADATA, until).await?;
            for item in page.items.unwrap_or_default() {
                take(item.metadata.into());
            }
            next = page.metadata.continue_.unwrap_or_default();
            if next.is_empty() {
                return Ok(());
            }
        }
        Err(format!(
            "it has more than {} objects, and only those were read",
            self.bounds.pages.saturating_mul(self.bounds.page)
        ))
    }

    async fn get<T: DeserializeOwned>(
        &self,
        target: &str,
        accept: &str,
        until: Instant,
    ) -> Result<T, String> {
        let now = Instant::now();
        if now >= until {
            return Err("the time for all of it was over".to_owned());
        }
        let limit = self.bounds.request.min(until - now);
        let answer = ApiRequest::get(&self.client, target, accept).json(limit, MAX_PAGE);
        answer.await.map_err(|why| why.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use serde_json::json;

    use super::*;
    use crate::domain::report::unchecked::{GapReason, ReviewGap};
    use crate::domain::time::Time;
    use crate::io::testing::{TestReply, TestServer, soon};

    fn at(seconds: u64) -> Time {
        Time::parse("2026-11-21T00:00:00Z").unwrap() + Duration::from_secs(seconds)
    }

    /// Asked about Pods, Events of both groups and, in two versions, Deployments; not about anything of `batch`.
    fn hook() -> Hook {
        let configuration = json!({
            "metadata": {"name": "c"},
            "webhooks": [{
                "name": "w", "clientConfig": {"url": "https://127.0.0.1/"}, "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "namespaceSelector": {"matchLabels": {"team": "a"}},
                "rules": [{
                    "operations": ["CREATE", "UPDATE"], "apiGroups": ["", "apps", "events.k8s.io"], "apiVersions": ["*"],
                    "resources": ["pods", "deployments", "secrets", "events", "componentstatuses"],
                }],
            }],
        });
        hook_of(HookKind::Validating, &configuration, "w").unwrap()
    }

    fn resource(name: &str) -> Value {
        json!({"name": name, "namespaced": true, "verbs": ["create", "get", "list"]})
    }

    fn item(name: &str, namespace: &str, changed: &str) -> Value {
        json!({"metadata": {
            "name": name, "namespace": namespace, "creationTimestamp": "2026-11-20T00:00:00Z",
            "managedFields": [{"manager": "m", "time": changed, "fieldsV1": {}}, {"manager": "n"}],
        }})
    }

    fn page(items: &[Value], next: &str) -> TestReply {
        let page = json!({"metadata": {"continue": next}, "items": items});
        TestReply::json(200, page)
    }

    fn answer(target: &str) -> TestReply {
        let (meanwhile, before) = ("2026-11-21T00:00:30Z", "2026-11-20T12:00:00Z");
        let versions =
            |names: &[&str]| -> Vec<Value> { names.iter().map(|name| json!({"version": name})).collect() };
        match target {
            "/apis" => TestReply::json(
                200,
                json!({"groups": [
                    {"name": "apps", "versions": versions(&["v1beta1", "v1"]), "preferredVersion": {"version": "v1"}},
                    {"name": "batch", "versions": versions(&["v1"])},
                    {"name": "events.k8s.io", "versions": versions(&["v1"])},
                ]}),
            ),
            "/api/v1" => {
                let binding = json!({"name": "bindings", "namespaced": true, "verbs": ["create"]});
                let status = resource("pods/status");
                let computed =
                    json!({"name": "componentstatuses", "namespaced": false, "verbs": ["get", "list"]});
                let resources = [
                    resource("pods"),
                    status,
                    resource("secrets"),
                    resource("nodes"),
                    resource("events"),
                    binding,
                    computed,
                ];
                TestReply::json(200, json!({"resources": resources}))
            }
            "/apis/apps/v1" | "/apis/apps/v1beta1" => {
                TestReply::json(200, json!({"resources": [resource("deployments")]}))
            }
            "/apis/events.k8s.io/v1" => TestReply::json(200, json!({"resources": [resource("events")]})),
            "/api/v1/events?limit=2" => page(&[item("e", "ours", meanwhile)], ""),
            "/api/v1/namespaces?limit=2" => page(
                &[
                    json!({"metadata": {"name": "ours", "labels": {"team": "a"}}}),
                    json!({"metadata": {"name": "theirs", "labels": {"team": "b"}}}),
                ],
                "",
            ),
            "/api/v1/pods?limit=2" => page(
                &[item("p", "ours", meanwhile), item("q", "theirs", meanwhile)],
                "a b&c",
            ),
            "/api/v1/pods?limit=2&continue=a%20b%26c" => {
                page(&[item("r", "ours", before), item("s", "ours", meanwhile)], "")
            }
            "/apis/apps/v1/deployments?limit=2" | "/apis/apps/v1/deployments?limit=2&continue=more" => {
                page(&[item("d", "ours", meanwhile)], "more")
            }
            "/api/v1/secrets?limit=2" => {
                TestReply::json(403, json!({"kind": "Status", "message": "secrets is forbidden"}))
            }
            other => panic!("nobody needs {other}"),
        }
    }

    #[tokio::test]
    async fn what_the_hook_is_asked_about_is_listed_page_by_page_and_what_cannot_be_is_named() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        let server = TestServer::start(move |request| {
            seen.lock().unwrap().push(request.target.clone());
            answer(&request.target)
        })
        .await;
        let bounds = ListingBounds {
            page: 2,
            pages: 2,
            ..ListingBounds::default()
        };
        let lister = ObjectLister::bounded(server.connection().await.calls().clone(), bounds);
        let hook = hook();
        let question = Question {
            hook: &hook,
            gap: ReviewGap {
                from: at(0),
                to: at(60),
                way: GapReason::Skipped,
            },
            own: "hookwatch",
        };
        let report = soon(lister.list(question)).await;
        let found: Vec<(&str, usize, Vec<&str>)> = report
            .found
            .iter()
            .map(|it| {
                let names = it.names.iter().map(String::as_str).collect();
                (it.resource.as_str(), it.updated, names)
            })
            .collect();
        assert_eq!(
            found,
            [
                ("deployments.apps", 2, vec!["d", "d"]),
                ("events", 1, vec!["e"]),
                ("pods", 2, vec!["p", "s"])
            ]
        );
        let not: Vec<(&str, &str)> = report
            .not_listed
            .iter()
            .map(|it| (it.resource.as_str(), it.why.as_str()))
            .collect();
        assert_eq!(
            not,
            [
                ("secrets", "HTTP 403: secrets is forbidden"),
                (
                    "deployments.apps",
                    "it has more than 4 objects, and only those were read"
                ),
            ]
        );
        assert!(
            asked
                .lock()
                .unwrap()
                .iter()
                .all(|target| !target.contains("v1beta1/"))
        );
    }

    #[tokio::test]
    async fn an_api_server_that_does_not_answer_costs_no_more_than_the_time_for_it() {
        let server = TestServer::start(|_| TestReply::Hang).await;
        let bounds = ListingBounds {
            request: Duration::from_millis(50),
            whole: Duration::from_millis(80),
            ..ListingBounds::default()
        };
        let lister = ObjectLister::bounded(server.connection().await.calls().clone(), bounds);
        let hook = hook();
        let (from, to) = (at(0), at(60));
        let way = GapReason::Skipped;
        let question = Question {
            hook: &hook,
            gap: ReviewGap { from, to, way },
            own: "hookwatch",
        };
        let report = soon(lister.list(question)).await;
        assert!(report.found.is_empty());
        let not: Vec<&str> = report.not_listed.iter().map(|it| it.resource.as_str()).collect();
        assert!(
            not.contains(&"every kind of an API group"),
            "{:?}",
            report.not_listed
        );
    }
}
