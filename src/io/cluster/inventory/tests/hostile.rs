//! API servers and objects that would keep an inventory from being kept up.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// The number that a query gives for a key.
fn number(target: &str, key: &str) -> Option<usize> {
    let (_, query) = target.split_once('?')?;
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs
        .filter(|(name, _)| *name == key)
        .find_map(|(_, value)| value.parse().ok())
}

#[tokio::test]
async fn objects_that_are_too_large_for_one_page_are_listed_in_smaller_ones() {
    let cluster = small();
    let large = "x".repeat(300 << 10);
    let namespaces: Vec<Value> = (0..250)
        .map(|n| json!({"metadata": {"name": format!("n{n}"), "annotations": {"a": &large}}}))
        .collect();
    let paged = Arc::clone(&cluster);
    let server = TestServer::start(move |asked| {
        if !asked.target.starts_with(NAMESPACES) || asked.target.contains("watch=true") {
            return paged.answer(asked);
        }
        // As an API server does that lists from its cache.
        let all = asked.target.contains("resourceVersion=0");
        let limit = number(&asked.target, "limit")
            .filter(|_| !all)
            .unwrap_or(usize::MAX);
        let from = number(&asked.target, "continue").unwrap_or(0);
        let to = from.saturating_add(limit).min(namespaces.len());
        let next = (to < namespaces.len()).then(|| to.to_string());
        TestReply::json(
            200,
            json!({"metadata": {"resourceVersion": "7", "continue": next}, "items": &namespaces[from..to]}),
        )
    })
    .await;
    let watching = InventoryWatch::start(&server.connection().await, clock());
    let view = until(&mut watching.subscribe(), all_open).await;
    assert_eq!(view.inventory.expect("an inventory").namespaces.len(), 250);
}

#[tokio::test]
async fn a_list_that_always_goes_on_is_broken() {
    let cluster = small();
    let (endless, lists) = (Arc::clone(&cluster), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&lists);
    let server = TestServer::start(move |asked| {
        if !asked.target.starts_with(NAMESPACES) {
            return endless.answer(asked);
        }
        counted.fetch_add(1, Ordering::Relaxed);
        TestReply::json(200, json!({"metadata": {"continue": "again"}, "items": []}))
    })
    .await;
    let watching = InventoryWatch::start(&server.connection().await, clock());
    let broken = |view: &InventoryView| view.watches.iter().any(is_broken);
    until(&mut watching.subscribe(), broken).await;
    assert!(lists.load(Ordering::Relaxed) <= 4);
}

#[tokio::test]
async fn a_watch_that_is_refused_for_a_moment_goes_on_without_a_new_list() {
    let cluster = small();
    let (refusing, lists, watches) = (Arc::clone(&cluster), AtomicUsize::new(0), AtomicUsize::new(0));
    let counts = Arc::new((lists, watches));
    let counted = Arc::clone(&counts);
    let server = TestServer::start(move |asked| {
        if !asked.target.starts_with(VALIDATING) {
            return refusing.answer(asked);
        }
        if !asked.target.contains("watch=true") {
            counted.0.fetch_add(1, Ordering::Relaxed);
        } else if counted.1.fetch_add(1, Ordering::Relaxed) < 2 {
            return TestReply::status(429, "too many requests");
        }
        refusing.answer(asked)
    })
    .await;
    let _watching = InventoryWatch::start(&server.connection().await, clock());
    until_watched(&cluster, VALIDATING).await;
    assert_eq!(counts.0.load(Ordering::Relaxed), 1);
    assert_eq!(counts.1.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn a_watch_on_which_nothing_ever_comes_is_broken_the_second_time() {
    let cluster = small();
    let server = serve("127.0.0.1:0", &cluster).await;
    let watching = InventoryWatch::start(&server.connection().await, clock());
    let mut views = watching.subscribe();
    until(&mut views, all_open).await;
    let silent = |view: &InventoryView| {
        let says = |watch: &WatchReport| match &watch.health {
            InventoryHealth::Stale { why } => why.contains("twice in a row"),
            _ => false,
        };
        view.watches.iter().any(says)
    };
    let opened = |times| {
        let watches = cluster.watches.lock().expect("no poison");
        watches.iter().filter(|(at, _)| at == VALIDATING).count() >= times
    };
    // One that the jump meets before its answer has come is not silent, but not open: it takes one more.
    for times in 1..10 {
        soon(async {
            while !opened(times) && !silent(&views.borrow()) {
                tokio::task::yield_now().await;
            }
        })
        .await;
        if silent(&views.borrow()) {
            return;
        }
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(80)).await;
        tokio::time::resume();
    }
    panic!("{:?}", views.borrow().watches);
}
