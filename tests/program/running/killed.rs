//! A daemon that is killed after any of the writes of a bypass and of its end, and the one that comes after it.
//!
//! What is killed here is the engine's tasks at once, without a word of farewell: nothing of it outlives that but what
//! the API server has. `tests/with_envtest/running.rs` kills processes.

use std::future::ready;

use futures::StreamExt;
use hookwatch::app::engine::Engine;
use hookwatch::domain::act::bypass::Rung;
use hookwatch::lab::backend::Behaviour;
use hookwatch::lab::cluster::LabHook;

use super::between::{Between, Fate};
use super::{AT_ONCE, Lab, block_on, bypassed, restored};

const OPA: LabHook = LabHook::Opa;

/// The daemon is killed when its `last` write was done, before it hears of it. Whether the hook was still failing then; `None`
/// where it never comes to that many writes.
async fn killed_after(last: usize, rung: Rung) -> Option<bool> {
    let what = format!("{rung}, killed after write {last}");
    let lab = Lab::start().await;
    let between = Between::start(&lab.kubeconfig, move |write| {
        if write.number < last {
            Fate::Pass
        } else {
            Fate::Last
        }
    })
    .await;
    let engine = lab.daemon(&between, rung).await;
    lab.behave(OPA, Behaviour::Refused).await;
    let reached = || between.until(|done| done.iter().any(|done| done.fate == Fate::Last));
    let still_failing = tokio::select! {
        () = reached() => true,
        () = bypassed(&engine, OPA) => false,
    };
    if !still_failing {
        lab.behave(OPA, Behaviour::Healthy).await;
        tokio::select! {
            () = reached() => {}
            () = restored(&lab, &engine, &between, &what) => return None,
        }
    }
    drop(engine);
    drop(between);
    lab.outage.assert_restorable(&what).await;

    let between = Between::start(&lab.kubeconfig, |_| Fate::Pass).await;
    let next = lab.config(&between.kubeconfig, rung);
    let next = Engine::start(&next).await.unwrap();
    if still_failing {
        bypassed(&next, OPA).await;
        lab.behave(OPA, Behaviour::Healthy).await;
    }
    restored(&lab, &next, &between, &what).await;
    next.stop().await;
    println!("{what}: held");
    Some(still_failing)
}

fn killed_anywhere(rung: Rung) {
    block_on(async move {
        let runs = futures::stream::iter(1..).map(|last| killed_after(last, rung));
        let runs = runs.buffered(AT_ONCE).take_while(|run| ready(run.is_some()));
        let still_failing: Vec<bool> = runs.filter_map(ready).collect().await;
        // The ledger, the object; the ledger, the object, the ledger.
        let failing = still_failing.iter().filter(|failing| **failing).count();
        assert!(
            still_failing.len() >= 5 && failing >= 2,
            "{rung}: {still_failing:?}"
        );
    });
}

#[test]
fn killed_after_any_write_of_a_shield_the_next_one_brings_the_original_back() {
    killed_anywhere(Rung::Shield);
}

#[test]
fn killed_after_any_write_of_a_skip_the_next_one_brings_the_original_back() {
    killed_anywhere(Rung::Skip);
}
