//! List and watch of one kind: all objects first, then every change, without end.
//!
//! kube's `watcher` is not used, for three reasons. First, it shows neither bookmarks nor a reopened watch, so after a
//! restart of the API server a quiet watch looks like a dead one; but the breaker has a guard rail on the inventory's age.
//! Second, one object that it cannot parse fails the whole list. Third, it holds a page of full objects in memory before
//! the first one can be cut down.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use kube::Client;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use super::backoff::Backoff;
use super::lines::Lines;
use super::object::{self, WatchedKind, WatchedObject};
use super::page;
use crate::domain::cluster::hook::NamespacedName;
use crate::domain::text::{NOT_ACCEPTED, bounded};
use crate::io::client::answer::percent_encoded;
use crate::io::client::request::{self, ApiRequest, JSON, RequestError, within};
use crate::io::error::with_causes;

/// Objects per page of a list (`limit`).
const PAGE: usize = 250;
/// Objects per page for kinds whose objects may be as large as etcd permits (1.5 MiB): a full page stays below [`MAX_PAGE`].
const PAGE_OF_LARGE: usize = 25;
/// Most bytes of one page. It can contain a whole list: the API server ignores `limit` when it lists from its cache.
const MAX_PAGE: usize = 64 * 1024 * 1024;
/// Most bytes of one watch event. etcd stores no object above 1.5 MiB.
const MAX_EVENT: usize = 8 * 1024 * 1024;
/// Most objects kept of one kind.
const MAX_OBJECTS: usize = 50_000;
/// Longest wait for one page.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest wait for all pages of a list.
const WHOLE_LIST_TIMEOUT: Duration = Duration::from_secs(300);
/// Longest wait for a watch to open.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// A watch that has been silent for this long is reopened. If the next one is silent as well, the watch counts as broken. The
/// API server sends a bookmark every minute.
const SILENCE: Duration = Duration::from_secs(75);
/// `timeoutSeconds` of a watch: the API server ends it after this time.
const WATCH_SECONDS: u64 = 300;
/// A watch that lasted this long resets the backoff.
const LIVED: Duration = Duration::from_secs(5);
/// Most Services named in a label selector. With more, all EndpointSlices of the namespace are read and unrelated ones
/// dropped.
const MAX_SELECTED: usize = 20;

#[derive(Debug, Clone)]
pub(super) struct FeedSpec {
    pub(super) kind: WatchedKind,
    /// The namespace; `None` for all, and for cluster-scoped kinds.
    pub(super) namespace: Option<String>,
    /// For Services and EndpointSlices: the Services that hooks refer to; other objects are dropped. For Nodes: the one node.
    /// Empty for other kinds.
    pub(super) wanted: Arc<BTreeSet<NamespacedName>>,
}

#[derive(Debug)]
pub(super) enum FeedUpdate {
    /// All objects; those known before that are not among them are deleted.
    Listed(Vec<(NamespacedName, WatchedObject)>),
    /// One object is new or has changed.
    Changed(NamespacedName, WatchedObject),
    /// One object was deleted, or no longer concerns any hook.
    Gone(NamespacedName),
    /// The API server sent a bookmark or opened the watch. No object has changed.
    Alive,
    /// The watch is broken and is retried; with the reason.
    Broken(String),
    /// The API server answered 403 or 404: RBAC forbids reading the kind, or it is not served.
    Refused(String),
}

/// The list and watch of one kind. Sends its updates with `number`.
pub(super) struct Feed {
    pub(super) client: Client,
    pub(super) spec: FeedSpec,
    /// Whether its objects were listed before, by its predecessor. If so, no list may come from the API server's cache.
    pub(super) again: bool,
    pub(super) number: u64,
    pub(super) news: mpsc::Sender<(u64, FeedUpdate)>,
}

/// Why a step failed.
enum FeedTrouble {
    /// No answer, a connection that broke, or an answer that cannot be used.
    Lost(String),
    /// The API server answered with an error status.
    Status(u16, String),
    /// The receiver is gone.
    ReceiverGone,
}

impl From<RequestError> for FeedTrouble {
    fn from(why: RequestError) -> Self {
        match why {
            RequestError::Refused { status, message, .. } => Self::Status(status, message),
            lost => Self::Lost(lost.to_string()),
        }
    }
}

impl FeedTrouble {
    /// Two watches in a row delivered nothing.
    fn silent() -> Self {
        let seconds = SILENCE.as_secs();
        Self::Lost(format!(
            "the API server sent nothing on a watch for {seconds} s, twice in a row"
        ))
    }
}

enum WatchEnd {
    /// Ended normally: continue from this version.
    At(String),
    /// No event arrived: continue from this version. The second time in a row counts as a failure.
    Silent(String),
    /// Its version is too old: list again.
    Gone,
    /// Failed: after a pause continue from this version, or list again if it is `None`.
    Trouble(Option<String>, FeedTrouble),
}

/// Describes an error status, with advice for a 401.
fn broken(status: u16, message: &str) -> String {
    let next = if status == 401 { NOT_ACCEPTED } else { "" };
    let between = if next.is_empty() { "" } else { "; " };
    bounded(&format!("HTTP {status}: {message}{between}{next}"))
}

impl Feed {
    /// Runs until the receiver is dropped.
    pub(super) async fn run(self) {
        let mut backoff = Backoff::default();
        let (mut listed, mut silent) = (self.again, false);
        let mut version: Option<String> = None;
        loop {
            let trouble = match version.take() {
                None => match self.list(listed).await {
                    Ok(at) => {
                        (listed, silent) = (true, false);
                        version = Some(at);
                        continue;
                    }
                    Err(trouble) => Some(trouble),
                },
                Some(from) => {
                    let opened = Instant::now();
                    let ended = self.watch(from, silent).await;
                    let was_silent = std::mem::replace(&mut silent, matches!(ended, WatchEnd::Silent(_)));
                    let lived = opened.elapsed() >= LIVED;
                    if lived {
                        backoff.reset();
                    }
                    match ended {
                        WatchEnd::Silent(_) if was_silent => Some(FeedTrouble::silent()),
                        WatchEnd::At(from) | WatchEnd::Silent(from) => {
                            version = Some(from);
                            if lived {
                                continue;
                            }
                            None
                        }
                        WatchEnd::Gone => None,
                        WatchEnd::Trouble(from, trouble) => {
                            version = from;
                            Some(trouble)
                        }
                    }
                }
            };
            let mut pause = backoff.next();
            let news = match trouble {
                None => None,
                Some(FeedTrouble::ReceiverGone) => return,
                Some(FeedTrouble::Lost(why)) => Some(FeedUpdate::Broken(why)),
                Some(FeedTrouble::Status(status @ (403 | 404), message)) => {
                    pause = Backoff::LONG;
                    Some(FeedUpdate::Refused(self.refusal(status, &message)))
                }
                Some(FeedTrouble::Status(status, message)) => {
                    Some(FeedUpdate::Broken(broken(status, &message)))
                }
            };
            if let Some(news) = news
                && self.tell(news).await.is_err()
            {
                return;
            }
            sleep(pause).await;
        }
    }

    async fn list(&self, again: bool) -> Result<String, FeedTrouble> {
        let endless = |_| {
            let seconds = WHOLE_LIST_TIMEOUT.as_secs();
            FeedTrouble::Lost(format!("the list does not end within {seconds} s"))
        };
        let pages = timeout(WHOLE_LIST_TIMEOUT, self.pages(again)).await;
        pages.map_err(endless)?
    }

    /// Reads all objects and returns the version to watch from.
    ///
    /// The first list may come from the API server's cache (`resourceVersion=0`), which answers even while etcd is down. Later
    /// lists follow a watch that fell behind and must not be older than what it delivered, so they are consistent reads. The
    /// cache does not paginate, so lists that may be huge never come from it.
    async fn pages(&self, again: bool) -> Result<String, FeedTrouble> {
        let kind = self.spec.kind;
        let may_be_huge = self.spec.namespace.is_none()
            && matches!(
                kind,
                WatchedKind::Services | WatchedKind::EndpointSlices | WatchedKind::Definitions
            );
        let mut page_size = match kind {
            WatchedKind::Definitions => PAGE_OF_LARGE,
            _ => PAGE,
        };
        let mut from_cache = !again && !may_be_huge;
        let mut objects = Vec::new();
        let mut next = String::new();
        loop {
            let mut target = request::page(&self.spec.path(), page_size, &next);
            if from_cache && next.is_empty() {
                target.push_str("&resourceVersion=0");
            }
            let page = match self.get(target, "List").bytes(LIST_TIMEOUT, MAX_PAGE).await {
                // Retry with smaller pages: a user who may create large objects must not be able to blind hookwatch.
                Err(RequestError::TooLarge(_)) if from_cache || page_size > 1 => {
                    (from_cache, page_size) = (false, page_size.div_ceil(4));
                    continue;
                }
                page => page?,
            };
            let FeedSpec { kind, wanted, .. } = &self.spec;
            let mut overflow = false;
            let meta = page::visit(&page, self.spec.kind.lean(), &mut |value| {
                if objects.len() >= MAX_OBJECTS {
                    overflow = true;
                } else if let (key, _, Some(object)) = object::parse(*kind, value, wanted) {
                    objects.push((key, object));
                }
            })
            .map_err(|error| FeedTrouble::Lost(format!("the list is unreadable: {}", with_causes(&error))))?;
            if overflow {
                return Err(FeedTrouble::Lost(format!(
                    "there are more than {MAX_OBJECTS} {kind}"
                )));
            }
            let before = std::mem::replace(&mut next, meta.continue_.unwrap_or_default());
            if !before.is_empty() && before == next {
                return Err(FeedTrouble::Lost(
                    "the list goes on with the same page again".to_owned(),
                ));
            }
            if next.is_empty() {
                self.tell(FeedUpdate::Listed(objects)).await?;
                return Ok(meta.resource_version.unwrap_or_default());
            }
        }
    }

    /// Follows a watch until it ends. `unsure`: the previous watch was silent, so this one counts as alive only once it
    /// delivers something.
    async fn watch(&self, mut version: String, unsure: bool) -> WatchEnd {
        let target = format!(
            "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={}",
            self.spec.path(),
            percent_encoded(&version)
        );
        let mut body = match within(OPEN_TIMEOUT, self.get(target, "").open()).await {
            Ok(answer) => answer.into_body(),
            Err(RequestError::Refused { status: 410, .. }) => return WatchEnd::Gone,
            Err(why) => return WatchEnd::Trouble(Some(version).filter(|_| may_go_on(&why)), why.into()),
        };
        if !unsure && self.tell(FeedUpdate::Alive).await.is_err() {
            return WatchEnd::Trouble(None, FeedTrouble::ReceiverGone);
        }
        let (mut lines, mut spoke) = (Lines::default(), false);
        loop {
            let frame = match timeout(SILENCE, body.frame()).await {
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(error))) => {
                    let why = format!("the watch broke off: {}", with_causes(&error));
                    return WatchEnd::Trouble(Some(version), FeedTrouble::Lost(why));
                }
                Ok(None) => return WatchEnd::At(version),
                // Dead or only quiet? Reopening it will show.
                Err(_) if spoke => return WatchEnd::At(version),
                Err(_) => return WatchEnd::Silent(version),
            };
            let Ok(chunk) = frame.into_data() else { continue };
            lines.feed(&chunk);
            while let Some(line) = lines.next() {
                match self.event(line, &mut version).await {
                    Ok(()) => spoke = true,
                    Err(FeedTrouble::Status(410, _)) => return WatchEnd::Gone,
                    Err(trouble) => return WatchEnd::Trouble(None, trouble),
                }
            }
            if lines.pending() > MAX_EVENT {
                let why = format!("an event is larger than {MAX_EVENT} bytes");
                return WatchEnd::Trouble(None, FeedTrouble::Lost(why));
            }
        }
    }

    /// Handles one line of a watch and moves `version` to that of its object.
    async fn event(&self, line: &[u8], version: &mut String) -> Result<(), FeedTrouble> {
        let kind = self.spec.kind;
        let mut event: Value = kind
            .lean()
            .read(line)
            .map_err(|error| FeedTrouble::Lost(format!("an event is unreadable: {}", with_causes(&error))))?;
        let value = event["object"].take();
        let what = event["type"].as_str().unwrap_or_default();
        if what == "ERROR" {
            let status = value["code"].as_u64().and_then(|code| u16::try_from(code).ok());
            let message = value["message"].as_str().unwrap_or_default();
            return Err(FeedTrouble::Status(status.unwrap_or(500), bounded(message)));
        }
        let (key, at, object) = object::parse(kind, value, &self.spec.wanted);
        if !at.is_empty() {
            *version = at;
        }
        self.tell(match (what, object) {
            ("ADDED" | "MODIFIED", Some(object)) => FeedUpdate::Changed(key, object),
            ("ADDED" | "MODIFIED" | "DELETED", _) => FeedUpdate::Gone(key),
            // A bookmark.
            _ => FeedUpdate::Alive,
        })
        .await
    }

    fn get(&self, mut target: String, list: &str) -> ApiRequest<'_> {
        if let Some(selector) = self.spec.selector() {
            target.push('&');
            target.push_str(&selector);
        }
        let accept = match self.spec.kind {
            // Only the labels of a namespace are used.
            WatchedKind::Namespaces => {
                format!("application/json;as=PartialObjectMetadata{list};g=meta.k8s.io;v=v1,application/json")
            }
            _ => JSON.to_owned(),
        };
        ApiRequest::get(&self.client, &target, &accept)
    }

    async fn tell(&self, news: FeedUpdate) -> Result<(), FeedTrouble> {
        self.news
            .send((self.number, news))
            .await
            .map_err(|_| FeedTrouble::ReceiverGone)
    }

    fn refusal(&self, status: u16, message: &str) -> String {
        let kind = self.spec.kind;
        bounded(&if status == 404 {
            format!("this API server does not serve {kind}: {message}")
        } else {
            format!(
                "grant list and watch on {} in the API group {:?}{}: {message}",
                kind.names().resource,
                kind.names().group,
                self.spec
                    .namespace
                    .as_ref()
                    .map_or_else(String::new, |it| format!(", at least in namespace {it:?}")),
            )
        })
    }
}

/// Whether a watch that did not open may be retried from the same version. That is cheaper for an API server in trouble than a
/// list. A list is needed after "Too large resource version", a 504 (kube-apiserver 1.36, `apiserver/pkg/storage`), and if
/// watching is forbidden: then a list after every pause is better than nothing.
fn may_go_on(why: &RequestError) -> bool {
    match why {
        RequestError::Refused {
            status: 504, message, ..
        } => !message.contains("resource version"),
        RequestError::Refused { status, .. } => matches!(*status, 401 | 408 | 429 | 500..=599),
        _ => true,
    }
}

impl FeedSpec {
    fn path(&self) -> String {
        self.kind.names().path(self.namespace.as_deref())
    }

    /// A selector for exactly the wanted objects, if it is short enough. `None`: all objects are read and filtered here.
    fn selector(&self) -> Option<String> {
        if self.kind != WatchedKind::Nodes {
            self.namespace.as_ref()?;
        }
        let mut names = self.wanted.iter().map(|(_, name)| name.as_str());
        match (self.kind, self.wanted.len()) {
            (WatchedKind::Services | WatchedKind::Nodes, 1) => {
                let name = percent_encoded(names.next()?);
                Some(format!("fieldSelector=metadata.name%3D{name}"))
            }
            (WatchedKind::EndpointSlices, 1..=MAX_SELECTED) => {
                let names = names.collect::<Vec<_>>().join(",");
                let label = object::SERVICE_LABEL;
                let selector = percent_encoded(&format!("{label} in ({names})"));
                Some(format!("labelSelector={selector}"))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_api_server_picks_what_a_selector_can_say() {
        let wanted = |names: &[&str]| {
            let keys = names.iter().map(|name| ("ns".to_owned(), (*name).to_owned()));
            Arc::new(keys.collect::<BTreeSet<NamespacedName>>())
        };
        let spec = |kind, namespace: Option<&str>, names: &[&str]| FeedSpec {
            kind,
            namespace: namespace.map(str::to_owned),
            wanted: wanted(names),
        };
        let slices = spec(WatchedKind::EndpointSlices, Some("ns"), &["a", "b"]);
        assert_eq!(
            slices.path(),
            "/apis/discovery.k8s.io/v1/namespaces/ns/endpointslices"
        );
        assert_eq!(
            slices.selector().as_deref(),
            Some("labelSelector=kubernetes.io%2Fservice-name%20in%20%28a%2Cb%29")
        );
        let one = spec(WatchedKind::Services, Some("ns"), &["a"]);
        assert_eq!(one.selector().as_deref(), Some("fieldSelector=metadata.name%3Da"));
        assert_eq!(
            spec(WatchedKind::Services, Some("ns"), &["a", "b"]).selector(),
            None
        );
        assert_eq!(spec(WatchedKind::EndpointSlices, None, &["a"]).selector(), None);
        let node = spec(WatchedKind::Nodes, None, &["a"]);
        assert_eq!(node.path(), "/api/v1/nodes");
        assert_eq!(
            node.selector().as_deref(),
            Some("fieldSelector=metadata.name%3Da")
        );
    }
}
