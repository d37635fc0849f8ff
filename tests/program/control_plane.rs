//! What of the control plane itself is seen, on the lab's API server.

use std::sync::Arc;

use hookwatch::app::engine::Engine;
use hookwatch::domain::vocabulary::Writes;
use hookwatch::io::report::metrics::Metrics;
use hookwatch::lab::api::{ApiServer, ApiServerOptions};
use hookwatch::lab::backend::Behaviour;
use hookwatch::lab::clients::ControlPlaneClients;
use hookwatch::lab::cluster::{Cluster, LabHook};
use hookwatch::lab::control_plane::{BackendReach, LabControlPlane};
use hookwatch::lab::directory::PrivateDirectory;
use hookwatch::lab::workload::{LabWorkload, WorkloadOptions};

use crate::engines::{assessed, config};

const BOOTSTRAP: &str = "poststarthook/rbac/bootstrap-roles";

/// Seed 000: a master cannot start because what it writes at start meets the hook.
#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_cannot_start_beside_a_hanging_hook_is_told_with_the_hook() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let api = ApiServer::start(ApiServerOptions::default()).await.unwrap();
    let knobs = Arc::clone(api.knobs());
    let control_plane = LabControlPlane::Embedded(api);
    let kubeconfig = control_plane.kubeconfig();
    let cluster = Cluster::start(&kubeconfig, BackendReach::Loopback).await.unwrap();
    let users = LabWorkload::start(&kubeconfig, &WorkloadOptions::default())
        .await
        .unwrap();
    let _clients = ControlPlaneClients::start(&control_plane, None, &cluster.nodes(), &users)
        .await
        .unwrap();
    let directory = PrivateDirectory::create().unwrap();
    let kubeconfig = directory.write("kubeconfig", &kubeconfig).unwrap();
    let engine = Engine::start(&config(&kubeconfig, "")).await.unwrap();
    let calm = assessed(&engine, "all is seen", |seen| {
        let servers = &seen.sources.scrapes;
        servers
            .iter()
            .any(|server| server.readiness.state == "ready" && server.version.is_some())
            && seen.sources.node_leases.state == "current"
            && seen.control_plane.writes == Writes::Flowing
    })
    .await;
    assert_eq!(calm.sources.scrapes[0].version.as_deref(), Some("v1.36.2"));
    assert_eq!(calm.sources.scrapes[0].missing, [] as [&str; 0]);
    assert_eq!(calm.control_plane.symptoms, [] as [&str; 0]);

    knobs.fail_check(Some(BOOTSTRAP));
    let hook = LabHook::Opa;
    cluster
        .behave(hook, hook.backends(), &Behaviour::AcceptAndHang)
        .await
        .unwrap();
    let told = assessed(&engine, "both are told in one sentence", |seen| {
        let summary = &seen.control_plane.summary;
        summary.contains("cannot start") && summary.contains(BOOTSTRAP)
    })
    .await;
    let sentence = format!("hook {} is failing.", hook.webhook());
    assert!(
        told.control_plane.summary.contains(&sentence),
        "{}",
        told.control_plane.summary
    );
    let text = Metrics::text(&engine.shown.metrics.families(Some(&told), &[])).unwrap();
    let text = String::from_utf8(text).unwrap();
    let target = &told.sources.scrapes[0].target;
    for series in [
        format!("hookwatch_api_server_ready{{target=\"{target}\"}} 0"),
        format!("hookwatch_api_server_failing_check{{check=\"{BOOTSTRAP}\",target=\"{target}\"}} 1"),
    ] {
        assert!(text.contains(&series), "{series} is not in\n{text}");
    }
    engine.stop().await;
}
