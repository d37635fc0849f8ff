//! Two daemons that both act.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hookwatch::app::engine::Engine;
use hookwatch::domain::act::bypass::{Rung, touched};
use hookwatch::domain::act::leadership::ReplicaRole;
use hookwatch::lab::backend::Behaviour;
use hookwatch::lab::cluster::LabHook;

use super::between::{Between, Done, Fate, Target};
use super::outage::{assessed, told, until};
use super::{Lab, all_is_well, block_on, bypassed};

/// Every change that was made, in the order in which the API server made them, as whether it was a bypass.
fn history(ways: &[&Between]) -> Vec<(String, bool)> {
    let version = |done: &Done| -> u64 {
        let version = done.object["metadata"]["resourceVersion"].as_str().unwrap();
        version.parse().unwrap()
    };
    let mut all: Vec<Done> = ways.iter().flat_map(|between| between.changes()).collect();
    all.sort_by_key(version);
    let all = all.into_iter().map(|done| {
        let Target::Configuration(name) = done.write.target else {
            panic!("no configuration");
        };
        (name, !touched(&done.object).is_empty())
    });
    all.collect()
}

/// Each bypass has one end, nothing is done twice, and never are more bypassed than permitted. How many there were.
fn assert_no_harm(history: &[(String, bool)], most: usize) -> usize {
    let mut open: Vec<&str> = Vec::new();
    let mut bypasses = 0;
    for (name, is_bypassed) in history {
        let at = open.iter().position(|other| other == name);
        match (at, is_bypassed) {
            (None, true) => {
                open.push(name);
                bypasses += 1;
            }
            (Some(at), false) => drop(open.remove(at)),
            _ => panic!("done twice: {history:?}"),
        }
        assert!(open.len() <= most, "{history:?}");
    }
    assert!(open.is_empty(), "{history:?}");
    bypasses
}

#[test]
fn two_that_both_believe_to_lead_bypass_no_more_than_permitted_and_restore_once() {
    block_on(async {
        let lab = Lab::start().await;
        let ways = [
            Between::start(&lab.kubeconfig, |_| Fate::Pass).await,
            Between::start(&lab.kubeconfig, |_| Fate::Pass).await,
        ];
        let mut engines = Vec::new();
        for between in &ways {
            let mut config = lab.config(&between.kubeconfig, Rung::Shield);
            config.breaker.most_shielded = 1;
            engines.push(Engine::start(&config).await.unwrap());
        }
        for engine in &engines {
            assessed(engine, "all is well", all_is_well).await;
        }
        let failing = [LabHook::Opa, LabHook::Quota];
        for hook in failing {
            lab.behave(hook, Behaviour::Refused).await;
        }
        for engine in &engines {
            assessed(
                engine,
                "one is bypassed, and the other held back for that",
                |assessment| {
                    let told = failing.map(|hook| told(assessment, hook));
                    let is = |is: &dyn Fn(&hookwatch::domain::act::breaker::HookStanding) -> bool| {
                        told.iter().flatten().filter(|told| is(told)).count()
                    };
                    is(&|told| told.state == "bypassed" && told.effective) == 1
                        && is(&|told| told.held_back.as_deref() == Some("budget")) == 1
                },
            )
            .await;
        }
        for hook in failing {
            lab.behave(hook, Behaviour::Healthy).await;
        }
        lab.outage.restored("both are well").await;
        for engine in engines {
            engine.stop().await;
        }
        let history = history(&[&ways[0], &ways[1]]);
        assert!(assert_no_harm(&history, 1) >= 1, "{history:?}");
    });
}

/// The one that leads is deposed while its bypass is on its way, which arrives before or after its successor has done
/// it instead.
fn deposed(arrives_first: bool) {
    block_on(async move {
        let lab = Lab::start().await;
        let cut_off = Arc::new(AtomicBool::new(false));
        let is_over = Arc::new(AtomicBool::new(false));
        let (is_cut_off, over) = (Arc::clone(&cut_off), Arc::clone(&is_over));
        let led = Arc::clone(&cut_off);
        let ways = [
            Between::start(&lab.kubeconfig, move |write| match write.target {
                _ if over.load(Ordering::SeqCst) => Fate::Pass,
                Target::Configuration(_) => {
                    is_cut_off.store(true, Ordering::SeqCst);
                    Fate::Late
                }
                Target::Ledger if is_cut_off.load(Ordering::SeqCst) => Fate::Lost,
                Target::Ledger => Fate::Pass,
            })
            .await,
            // A replica that does not lead may shield, too, and would come first where the one that leads is slow.
            Between::start(&lab.kubeconfig, move |_| {
                if led.load(Ordering::SeqCst) {
                    Fate::Pass
                } else {
                    Fate::Lost
                }
            })
            .await,
        ];
        let mut engines = Vec::new();
        for between in &ways {
            let mut config = lab.config(&between.kubeconfig, Rung::Shield);
            config.leadership.enabled = true;
            config.leadership.term = std::time::Duration::from_secs(6);
            let engine = Engine::start(&config).await.unwrap();
            assessed(&engine, "all is well", |it| {
                let role = it.replica.as_ref().map(|replica| replica.role);
                let expected = if engines.is_empty() {
                    ReplicaRole::Leader
                } else {
                    ReplicaRole::Follower
                };
                all_is_well(it) && role == Some(expected)
            })
            .await;
            engines.push(engine);
        }
        let opa = LabHook::Opa;
        // It is asked about Leases, so that from now on the ledger says who leads.
        lab.behave(opa, Behaviour::Refused).await;
        until("its bypass is on its way", async || {
            cut_off.load(Ordering::SeqCst)
        })
        .await;
        let leads = |it: &hookwatch::domain::report::assessment::Assessment| {
            it.replica
                .as_ref()
                .is_some_and(|it| it.role == ReplicaRole::Leader)
        };
        assessed(&engines[1], "the other one leads", leads).await;
        if !arrives_first {
            bypassed(&engines[1], opa).await;
        }
        is_over.store(true, Ordering::SeqCst);
        ways[0].let_arrive();
        bypassed(&engines[1], opa).await;
        let late = |done: &&Done| done.fate == Fate::Late;
        let arrived = ways[0].until(|done| done.iter().any(|done| late(&done)));
        tokio::time::timeout(super::outage::GUARD, arrived).await.unwrap();
        lab.behave(opa, Behaviour::Healthy).await;
        lab.outage.restored("it is well").await;
        for engine in engines {
            engine.stop().await;
        }
        let history = history(&[&ways[0], &ways[1]]);
        assert_eq!(assert_no_harm(&history, 1), 1, "{history:?}");
        let done = ways[0].done();
        let made = done.iter().filter(late).filter(|done| done.was_made()).count();
        assert_eq!(made, usize::from(arrives_first), "{done:#?}");
        let book = lab.outage.book().await;
        assert!(!book.entries.is_empty());
        assert!(
            book.entries
                .values()
                .all(|line| line.reverts == 0 && !line.contested),
            "{book:?}"
        );
    });
}

#[test]
fn a_bypass_of_one_that_was_deposed_comes_too_late_and_changes_nothing() {
    deposed(false);
}

#[test]
fn a_bypass_of_one_that_was_deposed_is_taken_over_and_restored_once() {
    deposed(true);
}
