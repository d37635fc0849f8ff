//! What a saboteur does who wants no bypass made.

use hookwatch::domain::act::bypass::Rung;
use hookwatch::lab::backend::Behaviour;
use hookwatch::lab::cluster::LabHook;

use super::between::{Between, Fate};
use super::outage::{Traps, assessed};
use super::{Engine, Lab, all_is_well, block_on, bypassed, restored};

#[test]
fn webhooks_that_only_canaries_meet_are_left_alone_and_hold_no_other_shield_back() {
    block_on(async {
        let lab = Lab::start().await;
        let between = Between::start(&lab.kubeconfig, |_| Fate::Pass).await;
        let mut config = lab.config(&between.kubeconfig, Rung::Shield);
        config.breaker.most_shielded = 1;
        let engine = Engine::start(&config).await.unwrap();
        assessed(&engine, "all is well", all_is_well).await;
        let traps = Traps::set(lab.cluster.client()).await;
        assessed(
            &engine,
            "the traps fail, and are left alone",
            Traps::are_left_alone,
        )
        .await;
        lab.behave(LabHook::Opa, Behaviour::Refused).await;
        bypassed(&engine, LabHook::Opa).await;
        assessed(&engine, "the traps are left alone still", Traps::are_left_alone).await;
        traps.take_away().await;
        lab.behave(LabHook::Opa, Behaviour::Healthy).await;
        restored(&lab, &engine, &between, "it is well").await;
        engine.stop().await;
    });
}
