//! The cost of a hung hook, and how match conditions restore writes.

use hookwatch::domain::cluster::hook::Added;
use std::time::Duration;

use hookwatch::domain::cluster::condition::BypassCondition;
use hookwatch::domain::observe::canary::{CallFailureReason, CanaryOutcome};
use hookwatch::lab::backend::{BackendRole, Behaviour};
use serde_json::{Value, json};

use super::ask::Ask;
use super::hooks::{backend, catch_all, configmap, configmaps, of_configmaps};
use super::lab::{VALIDATING, configurations};
use super::play::Play;

const OWN: &str = "hookwatch";
const OURSELVES: &str = "system:serviceaccount:hookwatch:hookwatch";

/// A JSON patch that adds a condition to the first hook of a configuration, if that is still the expected one.
pub fn add_condition(webhook: &str, condition: BypassCondition) -> Value {
    let value = json!([{"name": condition.name(), "expression": condition.expression(OWN, OURSELVES, &Added::default())}]);
    json!([
        {"op": "test", "path": "/webhooks/0/name", "value": webhook},
        {"op": "test", "path": "/webhooks/0/matchConditions", "value": null},
        {"op": "add", "path": "/webhooks/0/matchConditions", "value": value},
    ])
}

pub async fn a_false_condition_frees_writes_under_fail_at_once(play: &mut Play) {
    play.lab.namespace("skip").await;
    let hung = backend(&play.authority, BackendRole::Validating, Behaviour::HangAfterTls).await;
    let hook = catch_all("hung.fidelity.example", hung.address(), &play.authority);
    play.register(false, "skip", &[hook]).await;
    let path = configmaps("skip");

    let blocked = play
        .ask("before the bypass", Ask::post(&path, configmap("a")))
        .await;
    assert_eq!(blocked.status, 500);
    assert_eq!(play.class(blocked.took), "the hook's timeout");

    let patch = add_condition("hung.fidelity.example", BypassCondition::Skip);
    let patch = Ask::json_patch(&configurations(VALIDATING, "skip"), patch);
    let patched = play
        .tell(
            "the bypass",
            patch.seeing(&[
                "/webhooks/0/failurePolicy",
                "/webhooks/0/matchConditions",
                "/webhooks/0/timeoutSeconds",
                "/metadata/generation",
            ]),
        )
        .await;
    assert_eq!(patched.status, 200, "{}", patched.text);
    assert_eq!(patched.body["webhooks"][0]["failurePolicy"], "Fail");
    play.lab.settle(VALIDATING).await;
    let asked = hung.counters().reviews();

    for (step, ask) in [
        ("a creation after it", Ask::post(&path, configmap("a"))),
        (
            "an update after it",
            Ask::merge_patch(&format!("{path}/a"), json!({"data": {"k": "w"}})),
        ),
        ("a deletion after it", Ask::delete(&format!("{path}/a"))),
        ("a dry run after it", Ask::post(&path, configmap("b")).dry_run()),
    ] {
        let freed = play.ask(step, ask).await;
        assert!(freed.is_success(), "{}", freed.text);
        assert_eq!(play.class(freed.took), "at once");
    }
    assert_eq!(hung.counters().reviews(), asked);
}

pub async fn a_hook_on_probation_sees_only_our_own_dry_runs(play: &mut Play) {
    play.lab.namespace("probation").await;
    let hung = backend(&play.authority, BackendRole::Validating, Behaviour::HangAfterTls).await;
    let mut hook = catch_all("tried.fidelity.example", hung.address(), &play.authority);
    let condition = BypassCondition::Probation;
    hook["matchConditions"] = json!([{
        "name": condition.name(), "expression": condition.expression(OWN, OURSELVES, &Added::default()),
    }]);
    play.register(false, "probation", &[hook]).await;
    let path = configmaps("probation");
    let create = |name: &str| Ask::post(&path, configmap(name));

    for (step, ask) in [
        ("our real write", create("a").user(OURSELVES, &[])),
        ("somebody's real write", create("b")),
        ("somebody's dry run", create("c").dry_run()),
        ("another service account's dry run", {
            create("d")
                .dry_run()
                .user("system:serviceaccount:hookwatch:other", &[])
        }),
    ] {
        let answer = play.ask(step, ask).await;
        assert_eq!(answer.status, 201, "{step}: {}", answer.text);
        assert_eq!(play.class(answer.took), "at once", "{step}");
    }
    assert_eq!(hung.counters().reviews(), 0);
    let ours = play
        .ask("our dry run", create("e").dry_run().user(OURSELVES, &[]))
        .await;
    assert_eq!(ours.status, 500, "{}", ours.text);
    assert_eq!(play.class(ours.took), "the hook's timeout");
    assert_eq!(hung.counters().reviews(), 1);
    hung.behave(Behaviour::Healthy).await.unwrap();
    let ours = play
        .ask(
            "our dry run when the hook is well",
            create("e").dry_run().user(OURSELVES, &[]),
        )
        .await;
    assert_eq!(ours.status, 201, "{}", ours.text);
}

pub async fn ignore_still_costs_the_timeout_and_counts_as_failing_open(play: &mut Play) {
    play.lab.namespace("ignore").await;
    let hung = backend(&play.authority, BackendRole::Validating, Behaviour::HangAfterTls).await;
    let mut hook = of_configmaps("ignored.fidelity.example", hung.address(), &play.authority);
    hook["failurePolicy"] = json!("Ignore");
    play.register(false, "ignore", &[hook]).await;
    let create = Ask::post(&configmaps("ignore"), configmap("a"));
    let answer = play.ask("a creation past a hook that hangs", create).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    assert_eq!(play.class(answer.took), "the hook's timeout");

    hung.behave(Behaviour::Refused).await.unwrap();
    let create = Ask::post(&configmaps("ignore"), configmap("b"));
    let answer = play.ask("a creation past a hook that refuses", create).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    assert_eq!(play.class(answer.took), "at once");
}

pub async fn a_hung_catch_all_blocks_leases_events_and_configmaps(play: &mut Play) {
    play.lab.namespace("blocked").await;
    let hung = backend(&play.authority, BackendRole::Validating, Behaviour::HangAfterTls).await;
    let name = "everything.fidelity.example";
    play.register(
        false,
        "blocked",
        &[catch_all(name, hung.address(), &play.authority)],
    )
    .await;
    let lease =
        json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "x", "leaseDurationSeconds": 15}});
    let event = json!({
        "metadata": {"name": "e"}, "reason": "Tested", "type": "Normal", "message": "m",
        "involvedObject": {"kind": "ConfigMap", "name": "c", "namespace": "blocked"},
    });
    for (step, ask) in [
        ("a ConfigMap", Ask::post(&configmaps("blocked"), configmap("c"))),
        (
            "a Lease",
            Ask::post("/apis/coordination.k8s.io/v1/namespaces/blocked/leases", lease),
        ),
        ("an Event", Ask::post("/api/v1/namespaces/blocked/events", event)),
        (
            "a canary",
            Ask::post(&configmaps("blocked"), configmap("hookwatch-canary")).dry_run(),
        ),
    ] {
        let answer = play.ask(step, ask).await;
        assert_eq!(play.class(answer.took), "the hook's timeout", "{step}");
        let outcome = CanaryOutcome::from_status(answer.status, answer.message());
        let CanaryOutcome::CallFailed(failure) = outcome else {
            panic!("{step}: {outcome:?}");
        };
        assert_eq!(failure.webhook, name);
        assert_eq!(failure.reason, CallFailureReason::DeadlineExceeded);
        assert_eq!(
            failure.url,
            Some(format!("https://{}/admit", hung.address())),
            "{step}"
        );
    }
}

pub async fn the_time_of_hooks_is_the_difference_between_request_and_sli_time(play: &mut Play) {
    play.lab.namespace("sli").await;
    let ms = Duration::from_millis;
    let mut backends = Vec::new();
    for (mutating, delay) in [(true, 200), (true, 100), (false, 300), (false, 150)] {
        let role = if mutating {
            BackendRole::Mutating
        } else {
            BackendRole::Validating
        };
        let slow = backend(&play.authority, role, Behaviour::Slow(ms(delay))).await;
        backends.push((mutating, delay, slow));
    }
    for mutating in [true, false] {
        let hooks: Vec<Value> = backends
            .iter()
            .filter(|(of, ..)| *of == mutating)
            .map(|(_, delay, slow)| {
                let name = format!("after-{delay}.fidelity.example");
                of_configmaps(&name, slow.address(), &play.authority)
            })
            .collect();
        play.register(mutating, "sli", &hooks).await;
    }
    play.wait = (ms(600), "the sum of the mutating and the longest validating");
    let (path, requests) = (configmaps("sli"), 5_u32);
    // The fastest of several counts, because a busy machine slows all of them.
    let (mut hooks, mut own) = (f64::INFINITY, f64::INFINITY);
    for index in 0..requests {
        let before = sums(&play.lab.metrics().await);
        let create = Ask::post(&path, configmap(&format!("c-{index}")));
        let answer = play.ask("one of five creations", create).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        let after = sums(&play.lab.metrics().await);
        assert_eq!(after.count - before.count, 1.0);
        hooks = hooks.min((after.all - before.all) - (after.sli - before.sli));
        own = own.min(after.sli - before.sli);
    }
    // 200 + 100 + 300 ms; the fourth hook's 150 ms run in parallel. Dialling counts as time of the hooks, too.
    assert!((0.6..0.73).contains(&hooks), "{hooks} s");
    assert!(own < 0.3, "{own} s");
    play.note(
        "request time less sli time, per creation",
        json!("the sum of the mutating and the longest validating"),
    );

    // In the request family, a dry run has its own label. The sli family does not have it at all or, before 1.35, counts it as a
    // normal request.
    let before = sums(&play.lab.metrics().await);
    let create = Ask::post(&path, configmap("dry")).dry_run();
    play.ask("a dry run", create).await;
    let after = sums(&play.lab.metrics().await);
    let dry = if play.lab.minor() < 35 { 1.0 } else { 0.0 };
    assert_eq!(
        (before.count, before.sli_count + dry),
        (after.count, after.sli_count)
    );
}

/// Counters of POST configmaps, without dry runs.
struct Sums {
    count: f64,
    all: f64,
    sli_count: f64,
    sli: f64,
}

fn sums(metrics: &str) -> Sums {
    let sum = |name: &str| {
        metrics
            .lines()
            .filter(|line| line.starts_with(&format!("{name}{{")))
            .filter(|line| line.contains("verb=\"POST\"") && line.contains("resource=\"configmaps\""))
            .filter(|line| !line.contains("dry_run=\"All\""))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    };
    Sums {
        count: sum("apiserver_request_duration_seconds_count"),
        all: sum("apiserver_request_duration_seconds_sum"),
        sli_count: sum("apiserver_request_sli_duration_seconds_count"),
        sli: sum("apiserver_request_sli_duration_seconds_sum"),
    }
}
