//! GET and LIST.

use std::time::Duration;

use bytes::Bytes;
use http::Response;

use super::ApiState;
use super::knobs::cost;
use super::reply::{self, Body};
use super::request::ResourceRequest;
use super::select::Selection;
use super::status::ApiFailure;
use super::table;
use super::write::scale_of;

/// GET of one object.
pub(super) async fn get(
    state: &ApiState,
    request: &ResourceRequest,
    accept: &str,
) -> Result<Response<Body>, ApiFailure> {
    state.knobs.spend(cost::REQUEST).await;
    // A client that takes any version is served from the cache.
    if request.query.get("resourceVersion") != Some("0") {
        state.etcd(request.kind, "get").await;
    }
    let stored = state
        .store
        .get(request.kind, &request.namespace, &request.name)
        .ok_or_else(|| ApiFailure::not_found(request.kind, &request.name))?;
    if request.subresource == "scale" {
        return Ok(reply::value(200, &scale_of(&stored.object)));
    }
    if table::wanted(accept) {
        let table = table::table(request.kind, stored.revision, &[stored]);
        return Ok(reply::value(200, &table));
    }
    Ok(reply::object(200, request.kind, &stored))
}

/// LIST of a namespace or of the whole cluster. `limit` is ignored: every answer is complete.
pub(super) async fn list(
    state: &ApiState,
    request: &ResourceRequest,
    accept: &str,
) -> Result<Response<Body>, ApiFailure> {
    let selection = Selection::parse(&request.query)?;
    if request.query.get("continue").is_some() {
        return Err(ApiFailure::bad_request(
            "invalid continue token: no token was ever given out",
        ));
    }
    let kind = request.kind;
    state.knobs.spend(cost::REQUEST).await;
    let version = request.query.get("resourceVersion");
    if request.query.get("resourceVersionMatch") == Some("NotOlderThan") {
        let wanted = version.and_then(|version| version.parse().ok());
        no_older_than(state, wanted.unwrap_or_default()).await?;
    } else if version != Some("0") {
        state.etcd(kind, "list").await;
    }
    let namespace = Some(request.namespace.as_str()).filter(|namespace| !namespace.is_empty());
    let (revision, mut objects) = state.store.list(kind, namespace);
    if !selection.is_everything() {
        objects.retain(|stored| selection.matches(&stored.object));
    }
    let count = u32::try_from(objects.len()).unwrap_or(u32::MAX);
    state.knobs.spend(cost::LISTED * count).await;
    if table::wanted(accept) {
        return Ok(reply::value(200, &table::table(kind, revision, &objects)));
    }
    let head = format!(
        "{{\"kind\":\"{}List\",\"apiVersion\":\"{}\",\"metadata\":{{\"resourceVersion\":\"{revision}\"}},\"items\":[",
        kind.kind,
        kind.api_version(),
    );
    let size: usize = objects.iter().map(|stored| stored.item.len() + 1).sum();
    let mut body = Vec::with_capacity(head.len() + size + 2);
    body.extend_from_slice(head.as_bytes());
    for (index, stored) in objects.iter().enumerate() {
        if index > 0 {
            body.push(b',');
        }
        body.extend_from_slice(&stored.item);
    }
    body.extend_from_slice(b"]}");
    Ok(reply::json(200, Bytes::from(body)))
}

/// Waits until the store has reached a revision, for at most as long as a real API server waits for its cache.
///
/// # Errors
/// When it is not reached in time, as after etcd was restored from a backup.
async fn no_older_than(state: &ApiState, version: u64) -> Result<(), ApiFailure> {
    /// `blockTimeout` of the API server's cacher.
    const PATIENCE: Duration = Duration::from_secs(3);
    let mut revisions = state.store.subscribe();
    let reached = revisions.wait_for(|revision| *revision >= version);
    if let Ok(Ok(_)) = tokio::time::timeout(PATIENCE, reached).await {
        return Ok(());
    }
    Err(ApiFailure::too_large_version(version, state.store.revision()))
}
