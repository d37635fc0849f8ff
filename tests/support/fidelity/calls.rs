//! Denials, erring conditions, sequential and parallel hooks, and requests with a shorter timeout than their hooks.

use std::time::Duration;

use hookwatch::domain::observe::canary::CanaryOutcome;
use hookwatch::lab::backend::{BackendRole, Behaviour};
use serde_json::{Value, json};

use super::ask::Ask;
use super::hooks::{backend, catch_all, configmap, configmaps, of_configmaps};
use super::play::Play;

pub async fn a_denial_names_its_hook_whatever_else_it_says(play: &mut Play) {
    play.lab.namespace("denied").await;
    let denying = backend(&play.authority, BackendRole::Validating, Behaviour::Healthy).await;
    let name = "denying.fidelity.example";
    let mut hook = of_configmaps(name, denying.address(), &play.authority);
    hook["failurePolicy"] = json!("Ignore");
    play.register(false, "denied", &[hook]).await;
    let lie =
        "Internal error occurred: failed calling webhook \"innocent.example\": context deadline exceeded";
    for (step, code, message) in [
        ("with a reason", 403, "not here"),
        ("as if all were well", 200, "odd"),
        ("as if it were overloaded", 429, "later"),
        ("as if it had failed", 500, "boom"),
        ("without a word", 400, ""),
        ("with a lie", 500, lie),
    ] {
        let behaviour = Behaviour::Deny(code, message.into());
        denying.behave(behaviour).await.unwrap();
        let create = Ask::post(&configmaps("denied"), configmap("c")).dry_run();
        let answer = play.ask(step, create).await;
        let outcome = CanaryOutcome::from_status(answer.status, answer.message());
        assert_eq!(
            outcome,
            CanaryOutcome::Denied { webhook: name.into() },
            "{step}: {}",
            answer.text
        );
    }
}

pub async fn a_condition_that_errs_refuses_under_fail_and_is_passed_over_under_ignore(play: &mut Play) {
    play.lab.namespace("erring").await;
    let well = backend(&play.authority, BackendRole::Validating, Behaviour::Healthy).await;
    let mut template = catch_all("", well.address(), &play.authority);
    // Do not refuse what the API server itself writes.
    template["rules"][0]["resources"] = json!(["nodes", "configmaps"]);
    template["rules"][0]["apiGroups"] = json!([""]);
    template["timeoutSeconds"] = json!(10);
    let hook = |name: &str, policy: &str, expressions: &[&str]| {
        let mut hook = template.clone();
        hook["name"] = json!(name);
        hook["failurePolicy"] = json!(policy);
        let conditions = expressions.iter().enumerate();
        hook["matchConditions"] = conditions
            .map(|(index, expression)| json!({"name": format!("c{index}"), "expression": expression}))
            .collect();
        hook
    };
    let bare = "!(request.namespace in [\"kube-system\"])";
    let other = "request.subResource == \"status\"";
    let hooks = [
        hook("erring.fidelity.example", "Fail", &[bare]),
        hook("ignored.fidelity.example", "Ignore", &[bare]),
        hook("decided.fidelity.example", "Fail", &[bare, "false"]),
    ];
    play.register(false, "erring", &hooks).await;
    let node = Ask::post("/api/v1/nodes", json!({"metadata": {"name": "erring"}})).dry_run();
    let answer = play.ask("without a namespace", node.clone()).await;
    assert_eq!(answer.status, 403, "{}", answer.text);
    let create = Ask::post(&configmaps("erring"), configmap("c")).dry_run();
    let answer = play.ask("with a namespace", create).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    assert_eq!(well.counters().reviews(), 2, "of the first two hooks");

    play.lab.clear().await;
    play.hooks.clear();
    let hooks = [hook("twice.fidelity.example", "Fail", &[bare, other])];
    play.register(false, "erring", &hooks).await;
    let answer = play.ask("two conditions that err", node).await;
    assert_eq!(answer.status, 403, "{}", answer.text);
}

pub async fn hung_hooks_cost_their_sum_when_mutating_and_the_longest_when_validating(play: &mut Play) {
    play.lab.namespace("rows").await;
    let hung = backend(&play.authority, BackendRole::Validating, Behaviour::HangAfterTls).await;
    let hooks: Vec<Value> = ["a", "b"]
        .iter()
        .map(|name| {
            let name = format!("{name}.rows.fidelity.example");
            let mut hook = of_configmaps(&name, hung.address(), &play.authority);
            hook["failurePolicy"] = json!("Ignore");
            hook
        })
        .collect();
    play.register(false, "rows", &hooks).await;
    let create = |name: &str| Ask::post(&configmaps("rows"), configmap(name));
    play.wait = (Duration::from_secs(2), "one timeout");
    let answer = play.ask("two validating hooks", create("a")).await;
    assert_eq!(play.class(answer.took), "one timeout");
    play.lab.clear().await;
    play.register(true, "rows", &hooks).await;
    play.wait = (Duration::from_secs(4), "both timeouts");
    let answer = play.ask("two mutating hooks", create("b")).await;
    assert_eq!(play.class(answer.took), "both timeouts");
}

pub async fn a_request_with_less_time_than_its_hook_ends_as_a_timeout_of_its_own(play: &mut Play) {
    play.lab.namespace("hurried").await;
    let hung = backend(&play.authority, BackendRole::Validating, Behaviour::HangAfterTls).await;
    play.wait = (Duration::from_secs(2), "the request's own time");
    for (mutating, policy) in [
        (false, "Fail"),
        (false, "Ignore"),
        (true, "Fail"),
        (true, "Ignore"),
    ] {
        let name = format!("hurried.{}.{mutating}.fidelity.example", policy.to_lowercase());
        let mut hook = of_configmaps(&name, hung.address(), &play.authority);
        hook["failurePolicy"] = json!(policy);
        hook["timeoutSeconds"] = json!(10);
        play.register(mutating, "hurried", &[hook]).await;
        // The call is counted when it is cancelled, which may be after the answer.
        play.hooks.clear();
        let create = Ask::post(&format!("{}?timeout=2s", configmaps("hurried")), configmap(&name));
        let kind = if mutating { "a mutating" } else { "a validating" };
        let answer = play
            .ask_until_answered(&format!("{kind} hook under {policy}"), create)
            .await;
        assert_eq!(
            play.class(answer.took),
            "the request's own time",
            "{}",
            answer.text
        );
        play.lab.clear().await;
    }
}

pub async fn a_request_is_cut_at_34_s_whatever_is_left_of_its_hooks_time(play: &mut Play) {
    play.lab.namespace("cut").await;
    let hung = backend(&play.authority, BackendRole::Validating, Behaviour::HangAfterTls).await;
    let limit = play.lab.request_limit;
    // The first hook's timeout ends before the request's, the second one's would end after it.
    let timeout = limit.as_secs() * 3 / 5;
    let hooks: Vec<Value> = ["a", "b"]
        .iter()
        .map(|name| {
            let name = format!("{name}.cut.fidelity.example");
            let mut hook = of_configmaps(&name, hung.address(), &play.authority);
            hook["failurePolicy"] = json!("Ignore");
            hook["timeoutSeconds"] = json!(timeout.max(2));
            hook
        })
        .collect();
    play.register(true, "cut", &hooks).await;
    play.wait = (limit, "the request's limit");
    let create = Ask::post(&configmaps("cut"), configmap("c"));
    let answer = play
        .ask("more of mutating hooks than there is time", create)
        .await;
    assert_eq!(answer.status, 504, "{}", answer.text);
    assert_eq!(
        play.class(answer.took),
        "the request's limit",
        "{:?}",
        answer.took
    );
}
