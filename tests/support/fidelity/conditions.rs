//! Whether an API server has match conditions.

use hookwatch::lab::backend::{BackendRole, Behaviour};
use serde_json::json;

use super::WITH_CONDITIONS;
use super::ask::Ask;
use super::hooks::{backend, configmap, configmaps, of_configmaps};
use super::lab::{VALIDATING, configurations};
use super::play::Play;

/// Before 1.28 the API server accepts the field and drops it without a warning.
pub async fn match_conditions_are_in_force_or_dropped_without_a_word(play: &mut Play) {
    play.lab.namespace("conditions").await;
    let hung = backend(&play.authority, BackendRole::Validating, Behaviour::HangAfterTls).await;
    let mut hook = of_configmaps("conditional.fidelity.example", hung.address(), &play.authority);
    hook["matchConditions"] = json!([{"name": "never", "expression": "false"}]);
    let object = json!({"metadata": {"name": "conditional"}, "webhooks": [hook]});
    let strictly = format!("{}?fieldValidation=Strict", configurations(VALIDATING, ""));
    let create = Ask::post(&strictly, object).seeing(&["/webhooks/0/matchConditions"]);
    let made = play.tell("created with strict field validation", create).await;
    assert_eq!(made.status, 201, "{}", made.text);
    assert!(made.warnings.is_empty(), "{:?}", made.warnings);
    play.lab.settle(VALIDATING).await;
    play.hooks.push("conditional.fidelity.example".to_owned());

    let create = Ask::post(&configmaps("conditions"), configmap("a")).dry_run();
    let written = play.ask("a write that the condition excludes", create).await;
    let knows = play.lab.minor() >= WITH_CONDITIONS;
    assert_eq!(written.is_success(), knows, "{}", written.text);
    assert_eq!(hung.counters().reviews(), u64::from(!knows));
}
