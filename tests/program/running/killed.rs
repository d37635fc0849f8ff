//! A daemon that is killed after any of the writes of a bypass and of its end, and the one that comes after it.
//!
//! What is killed here is the engine's tasks at once, without a word of farewell: nothing of it outlives that but what
//! the API server has. `tests/with_envtest/running.rs` kills processes.

use hookwatch::app::engine::Engine;
use hookwatch::domain::act::bypass::Rung;
use hookwatch::lab::backend::Behaviour;
use hookwatch::lab::cluster::LabHook;

use super::between::{Between, Fate};
use super::{Lab, all, block_on, bypassed, restored};

const OPA: LabHook = LabHook::Opa;

/// The writes of a bypass and its end when nobody is killed, and how many of them came before the hook was mended.
async fn writes(rung: Rung) -> (usize, usize) {
    let lab = Lab::start().await;
    let between = Between::start(&lab.kubeconfig, |_| Fate::Pass).await;
    let engine = lab.daemon(&between, rung).await;
    lab.behave(OPA, Behaviour::Refused).await;
    bypassed(&engine, OPA).await;
    let failing = between.done().len();
    lab.behave(OPA, Behaviour::Healthy).await;
    restored(&lab, &engine, &between, "nobody is killed").await;
    engine.stop().await;
    (between.done().len(), failing)
}

/// The daemon is killed when its `last` write was done, before it hears of it.
async fn killed_after(last: usize, still_failing: bool, rung: Rung) {
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
    if !still_failing {
        bypassed(&engine, OPA).await;
        lab.behave(OPA, Behaviour::Healthy).await;
    }
    let reached = between.until(|done| done.iter().any(|done| done.fate == Fate::Last));
    if tokio::time::timeout(super::outage::GUARD, reached).await.is_err() {
        panic!("{what}: it never came to that: {:?}", between.done());
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
}

fn killed_anywhere(rung: Rung) {
    block_on(async move {
        let (writes, failing) = writes(rung).await;
        // The ledger, the object; the ledger, the object, the ledger.
        assert!(writes >= 5 && failing >= 2, "{rung}: {writes} {failing}");
        println!("{rung}: {writes} writes, {failing} of them while the hook fails");
        let runs = (1..=writes).map(|last| {
            let run = killed_after(last, last <= failing, rung);
            (format!("{rung}, killed after write {last} of {writes}"), run)
        });
        all(runs).await;
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
