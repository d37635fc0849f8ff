//! CustomResourceDefinitions and APIServices, and that nothing else depends on them.

use super::*;
use crate::domain::cluster::hook::{Extension, HookId, HookKind};

fn definition(name: &str, service: Option<&str>) -> Value {
    let (plural, group) = name.split_once('.').expect("a name");
    let conversion = service.map(|service| {
        json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
            "clientConfig": {"service": {"namespace": "n", "name": service, "path": "/convert"}}}})
    });
    // By far the largest part of a real one.
    let schema = json!({"openAPIV3Schema": {"description": "x".repeat(400_000)}});
    json!({"metadata": {"name": name, "resourceVersion": "8"}, "spec": {"group": group,
        "names": {"plural": plural, "kind": "K"}, "conversion": conversion,
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema},
            {"name": "v2", "served": true, "storage": false, "schema": schema}]}})
}

fn registration(available: &str) -> Value {
    json!({"metadata": {"name": "v1.g.example", "resourceVersion": "8"},
        "spec": {"group": "g.example", "version": "v1", "service": {"namespace": "n", "name": "s"}},
        "status": {"conditions": [{"type": "Available", "status": available, "reason": "MissingEndpoints",
            "message": "none"}]}})
}

fn hook_of(view: &InventoryView, kind: HookKind, name: &str) -> Option<Arc<Hook>> {
    let id = HookId::new(kind, name, name);
    let hooks = &view.inventory.as_ref()?.hooks;
    hooks.iter().find(|hook| hook.id == id).cloned()
}

fn found(hook: &Hook) -> bool {
    matches!(&hook.target, HookTarget::Service(target) if matches!(target.service, ServiceState::Found { .. }))
}

#[tokio::test]
async fn hooks_beside_admission_come_with_their_services_and_conditions() {
    let cluster = small();
    cluster.set(
        DEFINITIONS,
        &[
            definition("plain.example.com", None),
            definition("w.example.com", Some("s")),
        ],
    );
    let local = json!({"metadata": {"name": "v1.apps"}, "spec": {"group": "apps", "version": "v1"}});
    cluster.set(REGISTRATIONS, &[local, registration("True")]);
    let server = serve("127.0.0.1:0", &cluster).await;
    let watching = InventoryWatch::start(&server.connection().await, clock());
    let mut views = watching.subscribe();
    let view = until(&mut views, |view| {
        hook_of(view, HookKind::Conversion, "w.example.com").is_some_and(|hook| found(&hook))
            && hook_of(view, HookKind::Aggregated, "v1.g.example").is_some_and(|hook| found(&hook))
    })
    .await;
    assert_eq!(view.inventory.expect("just awaited").hooks.len(), 3);

    until_watched(&cluster, REGISTRATIONS).await;
    cluster.send(REGISTRATIONS, "MODIFIED", &registration("False"));
    until(&mut views, |view| {
        let hook = hook_of(view, HookKind::Aggregated, "v1.g.example");
        matches!(hook.and_then(|hook| hook.extension.clone()), Some(Extension::Aggregated(it))
            if it.available.as_ref().is_some_and(|available| available.status == Some(false)))
    })
    .await;

    until_watched(&cluster, DEFINITIONS).await;
    cluster.send(DEFINITIONS, "MODIFIED", &definition("w.example.com", None));
    until(&mut views, |view| {
        hook_of(view, HookKind::Conversion, "w.example.com").is_none()
    })
    .await;
}

#[tokio::test]
async fn without_permission_for_either_kind_it_is_named_and_admission_goes_on() {
    let cluster = small();
    cluster.refuse(DEFINITIONS, 403);
    cluster.refuse(REGISTRATIONS, 403);
    let server = serve("127.0.0.1:0", &cluster).await;
    let watching = InventoryWatch::start(&server.connection().await, clock());
    let view = until(&mut watching.subscribe(), |view| {
        ready(view) == Some(true) && refused(view).len() == 2
    })
    .await;
    for (kind, needed) in [
        (
            WatchedKind::Definitions,
            "grant list and watch on customresourcedefinitions in the API group \"apiextensions.k8s.io\"",
        ),
        (
            WatchedKind::Registrations,
            "grant list and watch on apiservices in the API group \"apiregistration.k8s.io\"",
        ),
    ] {
        let watch = view.watches.iter().find(|watch| is_of(watch, kind));
        let health = &watch.expect("it is watched").health;
        assert!(
            matches!(health, InventoryHealth::Limited { why } if why.contains(needed)),
            "{health:?}"
        );
    }
    assert!(known_good(&view).is_some());
}

#[tokio::test]
async fn the_first_inventory_does_not_wait_for_definitions_that_take_their_time() {
    let cluster = small();
    let endless = Arc::clone(&cluster);
    let (held, body) = mpsc::unbounded_channel();
    let body = Mutex::new(Some(body));
    let server = TestServer::listen("127.0.0.1:0", None, move |asked| {
        if asked.target.starts_with(DEFINITIONS)
            && let Some(body) = body.lock().expect("no poison").take()
        {
            return TestReply::Stream(body);
        }
        endless.answer(asked)
    })
    .await;
    let watching = InventoryWatch::start(&server.connection().await, clock());
    let view = until(&mut watching.subscribe(), |view| ready(view) == Some(true)).await;
    let watch = view
        .watches
        .iter()
        .find(|watch| is_of(watch, WatchedKind::Definitions));
    assert_eq!(watch.expect("it is watched").health, InventoryHealth::Starting);
    assert!(known_good(&view).is_some());
    drop(held);
}

#[tokio::test]
async fn a_definition_is_listed_in_small_pages_and_never_from_the_cache_in_one_piece() {
    let cluster = small();
    let server = serve("127.0.0.1:0", &cluster).await;
    let watching = InventoryWatch::start(&server.connection().await, clock());
    until(&mut watching.subscribe(), all_open).await;
    let asked = server.asked();
    let list = asked
        .iter()
        .find(|asked| asked.target.starts_with(DEFINITIONS) && !asked.target.contains("watch=true"));
    let target = &list.expect("a list").target;
    assert!(
        target.contains("limit=25") && !target.contains("resourceVersion="),
        "{target}"
    );
}
