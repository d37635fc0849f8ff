//! Webhooks of one Service, watched by a real daemon: what their backends are asked, and how soon a fault is known of all.

use std::cell::Cell;
use std::time::{Duration, Instant};

use hookwatch::app::engine::Engine;
use hookwatch::domain::diagnose::verdict::BackendView;
use hookwatch::domain::report::assessment::Assessment;
use hookwatch::domain::vocabulary::BackendHealth;
use hookwatch::lab::api::{ApiServer, ApiServerOptions};
use hookwatch::lab::backend::Behaviour;
use hookwatch::lab::cluster::{Cluster, LabHook, client_for, configurations};
use hookwatch::lab::control_plane::BackendReach;
use hookwatch::lab::directory::PrivateDirectory;
use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::engines::{GUARD, assessed, config};

/// The hook whose Service the others are called at as well. Its backends are in two places.
const HOOK: LabHook = LabHook::Quota;
/// How many others there are.
const OTHERS: usize = 120;
/// Requests a second that their backends get at most.
const MOST: f64 = 6.0;
/// Asked one after the other, all of them would take [`MOST`]'s 20 s; together they take two intervals of probes at most.
const TOGETHER: Duration = Duration::from_secs(12);

/// Registers webhooks that nothing is ever asked about.
async fn add_others(client: &Client, path: impl Fn(usize) -> String) {
    let api = configurations(client, HOOK.kind());
    let object = api.get(HOOK.configuration()).await.unwrap();
    let known = &object.data["webhooks"][0];
    let others = (0..OTHERS).map(|nth| {
        let mut other = known.clone();
        other["name"] = json!(format!("other-{nth}.example.com"));
        other["clientConfig"]["service"]["path"] = json!(path(nth));
        other["rules"] = json!([{
            "apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["widgets"],
        }]);
        json!({"op": "add", "path": "/webhooks/-", "value": other})
    });
    // A review can be made of no widget.
    let greeted = json!({"op": "remove", "path": "/metadata/annotations/hookwatch.dev~1probe"});
    let patch = others.chain([greeted]).collect();
    let patch: json_patch::Patch = serde_json::from_value(patch).unwrap();
    let parameters = PatchParams::default();
    api.patch(HOOK.configuration(), &parameters, &Patch::<()>::Json(patch))
        .await
        .unwrap();
}

/// How many webhooks of the configuration have all their backends in this state.
fn with_backends(assessment: &Assessment, state: BackendHealth) -> usize {
    let hooks = assessment.hooks.iter();
    let ours = hooks.filter(|verdict| verdict.configuration.as_deref() == Some(HOOK.configuration()));
    let all = |backends: &[BackendView]| {
        !backends.is_empty() && backends.iter().all(|backend| backend.state == state)
    };
    ours.filter(|verdict| all(&verdict.backends)).count()
}

async fn watched(path: impl Fn(usize) -> String) -> (ApiServer, Cluster, Engine, PrivateDirectory) {
    // Fails when another test of this process came first, which is as good.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let server = ApiServer::start(ApiServerOptions::default()).await.unwrap();
    let kubeconfig = server.kubeconfig();
    let cluster = Cluster::start(&kubeconfig, BackendReach::Loopback).await.unwrap();
    add_others(&client_for(&kubeconfig).await.unwrap(), path).await;
    let directory = PrivateDirectory::create().unwrap();
    let kubeconfig = directory.write("kubeconfig", &kubeconfig).unwrap();
    let engine = Engine::start(&config(&kubeconfig, "")).await.unwrap();
    assessed(&engine, "all are seen to be well", |assessment| {
        with_backends(assessment, BackendHealth::Alive) == OTHERS + 1
    })
    .await;
    (server, cluster, engine, directory)
}

fn asked(cluster: &Cluster) -> u64 {
    let counters = cluster.backends(HOOK).iter().map(|backend| backend.counters());
    counters
        .map(|counters| counters.others() + counters.reviews())
        .sum()
}

/// Requests a second over the time of eleven seconds' assessments.
async fn a_second(cluster: &Cluster, engine: &Engine) -> f64 {
    let (before, began) = (asked(cluster), Instant::now());
    let from = engine
        .shown
        .assessment
        .borrow()
        .as_ref()
        .map(|assessment| assessment.at)
        .unwrap();
    assessed(engine, "two intervals are over", |assessment| {
        assessment.at >= from + Duration::from_secs(11)
    })
    .await;
    (asked(cluster) - before) as f64 / began.elapsed().as_secs_f64()
}

/// No more than [`MOST`] requests a second are made once hookwatch looks no closer than usual, as it does after its start and
/// whenever something took long.
async fn settles(cluster: &Cluster, engine: &Engine) {
    let began = Instant::now();
    loop {
        let rate = a_second(cluster, engine).await;
        if rate <= MOST {
            return;
        }
        assert!(began.elapsed() < GUARD, "{rate} requests a second");
    }
}

/// Both backends fail and come back, and all webhooks are seen to do so; to fail, together.
async fn dies_and_comes_back(cluster: &Cluster, engine: &Engine, how: Behaviour) {
    cluster.behave(HOOK, 2, &how).await.unwrap();
    let begins = Cell::new(None);
    let ends = assessed(engine, "all are seen to be dead", |assessment| {
        let dead = with_backends(assessment, BackendHealth::Dead);
        if dead > 0 && begins.get().is_none() {
            begins.set(Some(assessment.at));
        }
        dead == OTHERS + 1
    })
    .await;
    let took = ends.at.since(begins.get().unwrap());
    assert!(took <= TOGETHER, "{took:?}");
    cluster.behave(HOOK, 2, &Behaviour::Healthy).await.unwrap();
    // How soon is a property of the schedule, whose own tests hold it in time that no machine delays.
    assessed(engine, "all are seen to be well", |assessment| {
        with_backends(assessment, BackendHealth::Alive) == OTHERS + 1
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_with_one_path_are_asked_as_one_and_found_dead_together() {
    let (_server, cluster, engine, _directory) = watched(|_| "/admit".to_owned()).await;
    // Of each of two backends a greeting on a new connection and one on that which is kept, and what canaries ask.
    settles(&cluster, &engine).await;
    dies_and_comes_back(&cluster, &engine, Behaviour::Refused).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_with_different_paths_share_a_handshake_and_what_is_asked_is_bounded() {
    let (_server, cluster, engine, _directory) = watched(|nth| format!("/{nth}")).await;
    settles(&cluster, &engine).await;
    dies_and_comes_back(&cluster, &engine, Behaviour::Stopped).await;
    assessed(&engine, "it is said that probes are late", |assessment| {
        !assessment.sources.probes.late.is_empty()
    })
    .await;
}

/// How many TLS handshakes probes needed that found their pooled connection closed, as the metrics say.
fn renewed(engine: &Engine) -> u64 {
    let families = engine.shown.families();
    let of_phases = families
        .iter()
        .filter(|family| family.name() == "hookwatch_probe_phase_duration_seconds");
    let series = of_phases.flat_map(|family| family.get_metric());
    let renewed = series.filter(|series| {
        let values = series.get_label().iter().map(|label| label.value());
        values.eq(["kept", "tls"])
    });
    renewed
        .map(|series| series.get_histogram().get_sample_count())
        .sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn backends_that_close_every_connection_are_well_cost_no_more_requests_and_their_handshakes_are_counted()
 {
    let (_server, cluster, engine, _directory) = watched(|_| "/admit".to_owned()).await;
    let before = renewed(&engine);
    let closing = Behaviour::CloseAfterAnswer;
    cluster.behave(HOOK, 2, &closing).await.unwrap();
    settles(&cluster, &engine).await;
    // Over eleven seconds each of the two backends was probed twice at least.
    let handshakes = renewed(&engine) - before;
    assert!(handshakes >= 3, "{handshakes}");
    assessed(&engine, "all are still well", |assessment| {
        with_backends(assessment, BackendHealth::Alive) == OTHERS + 1
    })
    .await;
}
