//! WATCH: the changes of one kind as a stream of JSON lines.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::Response;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::ApiState;
use super::knobs::cost;
use super::random;
use super::reply::{self, Body};
use super::request::ResourceRequest;
use super::select::Selection;
use super::serve::RequestRecorder;
use super::status::ApiFailure;
use super::store::{EventType, StoreEvent, StoredObject};

/// How often a watch that wants bookmarks gets one.
const BOOKMARK_EVERY: Duration = Duration::from_secs(30);
/// How many changes are read from the store at once.
const BATCH: usize = 256;
/// A watch without `timeoutSeconds` ends after this time plus a random part of up to as much again, as in a real API server.
const MIN_TIMEOUT: Duration = Duration::from_secs(1_800);

struct Watcher {
    state: Arc<ApiState>,
    request: ResourceRequest,
    selection: Selection,
    /// Everything up to this version has been sent.
    position: u64,
    lines: VecDeque<Bytes>,
    news: watch::Receiver<u64>,
    ends: Instant,
    next_bookmark: Option<Instant>,
    over: bool,
    /// Counts the request when the watch ends.
    _recorder: RequestRecorder,
}

/// Starts a watch. The request counts as long-running until the client hangs up or the watch's time is over.
pub(super) async fn start(
    state: Arc<ApiState>,
    request: ResourceRequest,
    mut recorder: RequestRecorder,
) -> Response<Body> {
    let selection = match selection(&request) {
        Ok(selection) => selection,
        Err(failure) => {
            recorder.finish(failure.code);
            return reply::failure(&failure);
        }
    };
    let query = &request.query;
    let now = Instant::now();
    let spread = Duration::from_secs(u64::try_from(random::below(1_800)).unwrap_or_default());
    let bookmarks = query.flag("allowWatchBookmarks");
    let streaming_list = query.flag("sendInitialEvents");
    let version: Option<u64> = query
        .get("resourceVersion")
        .and_then(|version| version.parse().ok());
    recorder.long_running();
    let mut watcher = Watcher {
        news: state.store.subscribe(),
        position: version.unwrap_or_default(),
        lines: VecDeque::new(),
        ends: now + query.seconds("timeoutSeconds").unwrap_or(MIN_TIMEOUT + spread),
        next_bookmark: bookmarks.then_some(now + BOOKMARK_EVERY),
        over: false,
        selection,
        request,
        state,
        _recorder: recorder,
    };
    let unasked = watcher.request.query.get("sendInitialEvents").is_none() && watcher.position == 0;
    if streaming_list || unasked {
        watcher.list_first(streaming_list && bookmarks).await;
    } else if watcher.position == 0 {
        watcher.position = watcher.state.store.revision();
    }
    let lines = stream::unfold(watcher, |mut watcher| async move {
        let line = watcher.next_line().await?;
        Some((Ok(Frame::data(line)), watcher))
    });
    let mut response = reply::json(200, "");
    *response.body_mut() = StreamBody::new(lines).boxed_unsync();
    response
}

fn selection(request: &ResourceRequest) -> Result<Selection, ApiFailure> {
    Selection::parse(&request.query)
}

impl Watcher {
    /// Sends all existing objects before any change.
    async fn list_first(&mut self, bookmark: bool) {
        let namespace = Some(self.request.namespace.as_str()).filter(|namespace| !namespace.is_empty());
        let (revision, objects) = self.state.store.list(self.request.kind, namespace);
        let count = u32::try_from(objects.len()).unwrap_or(u32::MAX);
        self.state.knobs.spend(cost::LISTED * count).await;
        for stored in &objects {
            if self.selection.matches(&stored.object) {
                self.push("ADDED", stored);
            }
        }
        self.position = revision;
        if bookmark {
            self.bookmark(true);
        }
    }

    async fn next_line(&mut self) -> Option<Bytes> {
        loop {
            if let Some(line) = self.lines.pop_front() {
                return Some(line);
            }
            if self.over {
                return None;
            }
            // Marked as seen before the history is read: a change in between wakes the wait below.
            self.news.borrow_and_update();
            match self.state.store.changes(self.request.kind, self.position, BATCH) {
                Ok((changes, upto)) => {
                    for change in &changes {
                        self.tell(change);
                    }
                    self.position = upto;
                    if !self.lines.is_empty() || changes.len() == BATCH {
                        continue;
                    }
                }
                Err(expired) => {
                    let why = format!(
                        "too old resource version: {} ({})",
                        self.position, expired.compacted
                    );
                    let failure = ApiFailure::expired(why);
                    let line = json!({"type": "ERROR", "object": failure.status});
                    self.lines.push_back(Bytes::from(format!("{line}\n")));
                    self.over = true;
                    continue;
                }
            }
            let wake = self
                .next_bookmark
                .map_or(self.ends, |bookmark| bookmark.min(self.ends));
            tokio::select! {
                changed = self.news.changed() => self.over = changed.is_err(),
                () = sleep_until(wake) => {
                    if wake >= self.ends {
                        self.over = true;
                    } else {
                        self.next_bookmark = Some(Instant::now() + BOOKMARK_EVERY);
                        self.bookmark(false);
                    }
                }
            }
        }
    }

    /// Queues the event of a change as this watch sees it: an object that starts to match its selectors is ADDED, one that stops
    /// matching them is DELETED.
    fn tell(&mut self, change: &StoreEvent) {
        let elsewhere = !self.request.namespace.is_empty()
            && change
                .object
                .object
                .pointer("/metadata/namespace")
                .and_then(|ns| ns.as_str())
                != Some(&self.request.namespace);
        if elsewhere {
            return;
        }
        let before = change
            .previous
            .as_ref()
            .is_some_and(|previous| self.selection.matches(&previous.object));
        let after = change.event_type != EventType::Deleted && self.selection.matches(&change.object.object);
        match (before, after) {
            (false, true) => self.push("ADDED", &change.object),
            (true, true) => self.push("MODIFIED", &change.object),
            (true, false) => self.push("DELETED", &change.object),
            (false, false) => {}
        }
    }

    fn push(&mut self, what: &str, stored: &StoredObject) {
        let object = stored.encode(self.request.kind);
        let mut line = Vec::with_capacity(object.len() + 40);
        line.extend_from_slice(b"{\"type\":\"");
        line.extend_from_slice(what.as_bytes());
        line.extend_from_slice(b"\",\"object\":");
        line.extend_from_slice(&object);
        line.extend_from_slice(b"}\n");
        self.lines.push_back(Bytes::from(line));
    }

    fn bookmark(&mut self, initial_events_end: bool) {
        let mut metadata = json!({"resourceVersion": self.position.to_string(), "creationTimestamp": null});
        if initial_events_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let kind = self.request.kind;
        let object = json!({"kind": kind.kind, "apiVersion": kind.api_version(), "metadata": metadata});
        let line = json!({"type": "BOOKMARK", "object": object});
        self.lines.push_back(Bytes::from(format!("{line}\n")));
    }
}
