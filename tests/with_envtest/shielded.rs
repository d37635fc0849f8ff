//! What is still checked below a shield, what is found of what was not, and what ends a bypass that nobody explains: on a
//! real API server, as the accounts that deploy/ makes, behind the fence.

use std::time::Duration;

use hookwatch::app::engine::{Engine, clock};
use hookwatch::domain::act::bypass::edit::Desired;
use hookwatch::domain::act::bypass::{Rung, touched};
use hookwatch::domain::cluster::hook::{HookId, HookKind};
use hookwatch::domain::report::assessment::Assessment;
use hookwatch::domain::vocabulary::Health;
use hookwatch::lab::backend::{BackendRole, Behaviour};
use hookwatch::lab::certs::Authority;
use http::Method;
use kube::Client;
use serde_json::{Value, json};

use super::bypassing::{applied, assert_restored, desired, read, straight};
use super::cases::hooks::{backend, configmap, configmaps, of_configmaps};
use super::privileges::cluster::{Cluster, apply, ask, assessed, config, manifests, play, until};
use super::shielding::{
    a_hook_that_frames_another_accuses_itself_alone, a_shielded_security_hook_is_still_asked_about_tenants,
};
use super::{Named, Outcome as Played, named};

pub fn tests() -> Vec<Named> {
    vec![
        named(
            "bypass_shielded_security_hook_is_still_asked_about_tenants",
            shielded,
        ),
        named("bypass_expiry_ends_what_nothing_explains", expiry),
        named("bypass_what_went_in_unchecked_is_listed", unchecked),
    ]
}

/// Waits until the fence refuses an account what it has to.
async fn fenced(account: &Client, configuration: &str) {
    until("the fence is in force and the account may act", async || {
        let path = HookKind::Validating.path();
        let target = format!("{path}/{configuration}?dryRun=All");
        let label = json!({"metadata": {"labels": {"x": "y"}}});
        let answer = ask(account, Method::PATCH, &target, &label).await;
        answer.message().contains("hookwatch-fence")
    })
    .await;
}

/// A configuration that no request of these tests meets.
async fn policy(cluster: &Cluster, kind: HookKind) {
    let hook = |name: &str| {
        json!({
            "name": name, "failurePolicy": "Fail", "timeoutSeconds": 7, "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/"},
            "rules": [{
                "apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["CREATE"],
                "resources": ["widgets"],
            }],
        })
    };
    cluster
        .apply(&json!({
            "apiVersion": kind.api_version(), "kind": kind.configuration_kind(),
            "metadata": {"name": "policy", "annotations": {"hookwatch.dev/breaker": "skip"}},
            "webhooks": [hook("a.example.com"), hook("b.example.com")],
        }))
        .await;
}

fn shielded() -> Played {
    play(async {
        let cluster = Cluster::with("overlays/breaker").await;
        policy(&cluster, HookKind::Validating).await;
        // What a Node authorizer lets nodes do; the controllers of kube-system have their own roles.
        cluster
            .apply(&json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                "metadata": {"name": "nodes"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}],
            }))
            .await;
        let account = cluster.client("hookwatch").await;
        fenced(&account, "policy").await;
        a_shielded_security_hook_is_still_asked_about_tenants(&cluster.admin, &account, true).await;
        a_hook_that_frames_another_accuses_itself_alone(&cluster.admin).await;
    })
}

/// The binary, at a cluster, as somebody.
async fn run(kubeconfig: std::path::PathBuf, words: Vec<String>) -> (Option<i32>, String, String) {
    let run = tokio::task::spawn_blocking(move || {
        std::process::Command::new(env!("CARGO_BIN_EXE_hookwatch"))
            .args(words)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .output()
            .unwrap()
    });
    let output = run.await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// What the CronJob of deploy/overlays/expiry runs.
fn cron_job() -> Vec<String> {
    let all = manifests("overlays/expiry");
    let job = all.iter().find(|object| object["kind"] == "CronJob").unwrap();
    let pod = &job["spec"]["jobTemplate"]["spec"]["template"]["spec"];
    assert_eq!(pod["serviceAccountName"], "hookwatch-expiry");
    let arguments = pod["containers"][0]["args"].as_array().unwrap();
    let words = arguments.iter().map(|word| word.as_str().unwrap().to_owned());
    words.collect()
}

fn expiry() -> Played {
    play(async {
        let cluster = Cluster::with("overlays/expiry").await;
        for kind in [HookKind::Validating, HookKind::Mutating] {
            policy(&cluster, kind).await;
        }
        let daemon = cluster.client("hookwatch").await;
        let account = cluster.client("hookwatch-expiry").await;
        fenced(&account, "policy").await;
        fenced(&daemon, "policy").await;
        let writer = straight(&daemon);
        let id = |kind, webhook| HookId::new(kind, "policy", webhook);
        let (a, b) = ("a.example.com", "b.example.com");
        let hooks = [
            (id(HookKind::Validating, a), Rung::Shield),
            (id(HookKind::Validating, b), Rung::Skip),
            (id(HookKind::Mutating, a), Rung::Skip),
        ];
        let originals = [read(&writer, &hooks[0].0).await, read(&writer, &hooks[2].0).await];
        for (hook, rung) in &hooks {
            applied(&writer, hook, &desired(*rung)).await;
        }
        applied(&writer, &hooks[2].0, &Desired::Probation).await;
        // The time of none is over; but nothing on the objects says so any more.
        for kind in [HookKind::Validating, HookKind::Mutating] {
            let annotation = json!([{"op": "remove", "path": "/metadata/annotations/hookwatch.dev~1bypass"}]);
            let target = format!("{}/policy?fieldManager=somebody", kind.path());
            cluster.admin(Method::PATCH, &target, &annotation).await;
        }
        let token = cluster.token("hookwatch-expiry", None).await;
        let (kubeconfig, _) = cluster.kubeconfig("expiry", &token);
        let (code, said, told) = run(kubeconfig, cron_job()).await;
        assert_eq!(code, Some(0), "{said}{told}");
        assert!(!told.contains("Event") && !told.contains("addresses"), "{told}");
        for (hook, original) in [&hooks[0].0, &hooks[2].0].into_iter().zip(&originals) {
            let now = read(&writer, hook).await;
            assert!(touched(&now).is_empty(), "{now}");
            assert_restored(&now, original, &hook.to_string());
        }
    })
}

/// The second in which something is written is told from those around it.
async fn a_moment() {
    tokio::time::sleep(Duration::from_millis(2_100)).await;
}

async fn make(cluster: &Cluster, namespace: &str, name: &str) {
    let target = configmaps(namespace);
    cluster.admin(Method::POST, &target, &configmap(name)).await;
}

fn unchecked_of(assessment: &Assessment) -> Option<&str> {
    let mut hooks = assessment.breaker.hooks.iter();
    hooks.find_map(|standing| standing.unchecked.as_deref())
}

fn unchecked() -> Played {
    play(async {
        let cluster = Cluster::with("overlays/breaker").await;
        for (name, team) in [("ours", "a"), ("theirs", "b")] {
            let labels = json!({"team": team});
            let metadata = json!({"name": name, "labels": labels});
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
            cluster.apply(&namespace).await;
        }
        let authority = Authority::new("gap").unwrap();
        let backend = backend(&authority, BackendRole::Validating, Behaviour::Healthy).await;
        let mut hook = of_configmaps("gap.example.com", backend.address(), &authority);
        hook["rules"][0]["resources"] = json!(["configmaps", "secrets"]);
        hook["rules"][0]["operations"] = json!(["CREATE", "UPDATE"]);
        hook["namespaceSelector"] = json!({"matchLabels": {"team": "a"}});
        let id = HookId::new(HookKind::Mutating, "gap", "gap.example.com");
        let configuration = json!({
            "apiVersion": id.kind.api_version(), "kind": id.kind.configuration_kind(),
            "metadata": {"name": "gap", "annotations": {"hookwatch.dev/breaker": "skip"}}, "webhooks": [hook],
        });
        apply(&cluster.admin, &configuration).await;
        policy(&cluster, HookKind::Validating).await;
        make(&cluster, "ours", "old").await;
        make(&cluster, "ours", "older").await;
        a_moment().await;

        let account = cluster.client("hookwatch").await;
        fenced(&account, "policy").await;
        let writer = straight(&account);
        let token = cluster.token("hookwatch", None).await;
        let (kubeconfig, _) = cluster.kubeconfig("daemon", &token);
        let daemon = config(&kubeconfig, "");
        let engine = Engine::start(&daemon).await.unwrap();
        assessed(&engine, "the hook is well", |it| {
            let mut hooks = it.hooks.iter();
            hooks.any(|hook| hook.health == Health::Healthy && *hook.webhook == *id.webhook)
        })
        .await;

        let since = clock()();
        applied(&writer, &id, &desired(Rung::Skip)).await;
        assessed(&engine, "the bypass is seen", |it| {
            it.breaker.hooks.iter().any(|standing| standing.rung.is_some())
        })
        .await;
        make(&cluster, "ours", "new").await;
        make(&cluster, "theirs", "elsewhere").await;
        let change = json!({"data": {"k": "other"}});
        let old = format!("{}/old", configmaps("ours"));
        cluster.admin(Method::PATCH, &old, &change).await;
        a_moment().await;
        applied(&writer, &id, &Desired::Restore).await;
        let until = clock()();
        a_moment().await;
        make(&cluster, "ours", "late").await;

        let words = |kubeconfig| {
            let words = ["unchecked", "gap/gap.example.com", "--since", "--until"];
            let [command, hook, from, to] = words.map(str::to_owned);
            run(
                kubeconfig,
                vec![command, hook, from, since.to_string(), to, until.to_string()],
            )
        };
        let (code, said, told) = words(cluster.admin_kubeconfig()).await;
        assert_eq!(code, Some(0), "{said}{told}");
        assert!(
            said.contains("  configmaps in ours: 1 made, 1 changed (new, old)\n"),
            "{said}"
        );
        assert!(
            !said.contains("elsewhere") && !said.contains("late") && !said.contains("older"),
            "{said}"
        );
        assert!(said.contains("mutating"), "{said}");
        println!("{said}");

        // The daemon finds the end of the gap by itself, and may list nothing of it.
        assessed(&engine, "the gap is told of", |it| unchecked_of(it).is_some()).await;
        let said = engine.shown.assessment.borrow().clone().unwrap();
        let said = unchecked_of(&said).unwrap().to_owned();
        println!("without the role: {said}");
        assert!(
            said.contains("Not, or not wholly, listed: configmaps, secrets"),
            "{said}"
        );
        assert!(said.contains("forbidden"), "{said}");

        cluster.deploy("overlays/unchecked").await;
        until_it_may(&account).await;
        let (code, said, told) = words(kubeconfig.clone()).await;
        assert_eq!(code, Some(1), "not the Secrets: {said}{told}");
        assert!(
            said.contains("configmaps in ours: 1 made, 1 changed (new, old)"),
            "{said}"
        );
        assert!(said.contains("listed: secrets: HTTP 403"), "{said}");

        applied(&writer, &id, &desired(Rung::Skip)).await;
        assessed(&engine, "the second bypass is seen", |it| {
            it.breaker.hooks.iter().any(|standing| standing.rung.is_some())
        })
        .await;
        make(&cluster, "ours", "second").await;
        applied(&writer, &id, &Desired::Restore).await;
        assessed(&engine, "what went in is told", |it| {
            unchecked_of(it).is_some_and(|said| said.contains(" configmaps."))
        })
        .await;
        let said = engine.shown.assessment.borrow().clone().unwrap();
        println!("with the role: {}", unchecked_of(&said).unwrap());
        let events = "/apis/events.k8s.io/v1/namespaces/default/events";
        until_event(&cluster, events).await;
        engine.stop().await;
    })
}

async fn until_it_may(account: &Client) {
    until("the role is in force", async || {
        let answer = ask(account, Method::GET, "/api/v1/configmaps?limit=1", &Value::Null).await;
        answer.is_success()
    })
    .await;
}

async fn until_event(cluster: &Cluster, events: &str) {
    until("there is an Event of it", async || {
        let list = cluster.admin(Method::GET, events, &Value::Null).await;
        let mut events = list["items"].as_array().unwrap().iter();
        events.any(|event| {
            let note = event["note"].as_str().unwrap_or_default();
            event["reason"] == "Unchecked" && note.contains("does not give these objects")
        })
    })
    .await;
}
