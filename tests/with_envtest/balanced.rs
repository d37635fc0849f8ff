//! Two real API servers on one etcd behind one address, as in most clusters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use hookwatch::app::engine::{Engine, clock};
use hookwatch::domain::observe::views::ScrapeView;
use hookwatch::domain::report::assessment::Assessment;
use hookwatch::domain::vocabulary::{NotAHook, Writes};
use hookwatch::io::client::Connection;
use hookwatch::io::observe::ReadingLimits;
use hookwatch::io::observe::scrape::Scraper;
use hookwatch::lab::backend::Behaviour;
use hookwatch::lab::balancer::Balancer;
use hookwatch::lab::clients::ControlPlaneClients;
use hookwatch::lab::cluster::{Cluster, LabHook};
use hookwatch::lab::control_plane::{BackendReach, LabControlPlane};
use hookwatch::lab::directory::PrivateDirectory;
use hookwatch::lab::envtest::Envtest;
use hookwatch::lab::workload::{LabWorkload, WorkloadOptions};

use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use kube::api::DeleteParams;

use super::privileges::cluster::play;
use super::{Named, named};
use crate::engines::config;

/// A guard against a test that hangs, not a measurement.
const LIMIT: Duration = Duration::from_secs(120);

pub fn tests() -> Vec<Named> {
    vec![
        named(
            "behind_a_balancer_every_api_server_is_met_and_their_counters_never_mix",
            || play(counters_never_mix()),
        ),
        named(
            "an_api_server_that_goes_silent_behind_a_balancer_is_named_and_no_hook_is",
            || play(the_silent_one_is_named()),
        ),
        named(
            "a_second_api_server_that_cannot_start_behind_a_hanging_hook_is_told_with_the_hook",
            || play(the_second_cannot_start()),
        ),
    ]
}

async fn counters_never_mix() {
    let directory = PrivateDirectory::create().unwrap();
    let envtest = Envtest::start(directory.path()).await.unwrap();
    let second = envtest.second().unwrap();
    second.ready(LIMIT).await.unwrap();
    let balancer = Balancer::start(vec![envtest.address(), second.address()])
        .await
        .unwrap();
    let kubeconfig = envtest.kubeconfig_for(balancer.address());
    let kubeconfig = directory.write("balanced", &kubeconfig).unwrap();
    let connection = Connection::open(Some(&kubeconfig), None).await.unwrap();
    let limits = ReadingLimits {
        max_bytes: 256 << 20,
        timeout: Duration::from_secs(10),
    };
    let scraper = Scraper::new(connection, clock(), limits);
    // Nobody can name API servers on loopback in default/kubernetes: how many there are shows by meeting them.
    let _ = scraper.refresh().await;
    let target = scraper.targets(false).remove(0);
    let mut cpu: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for _ in 0..8 {
        let scrape = scraper.scrape(&target).await.unwrap();
        assert_eq!(scrape.snapshot.missing(), [] as [&str; 0]);
        let started = scrape.snapshot.process_start.unwrap();
        let of_this = cpu.entry((started * 1_000.0) as u64).or_default();
        of_this.push(scrape.snapshot.cpu_seconds);
    }
    assert_eq!(cpu.len(), 2, "each process by its own start: {cpu:?}");
    assert!(
        cpu.values().all(|of_one| of_one.len() == 4 && of_one.is_sorted()),
        "{cpu:?}"
    );
    assert_eq!(scraper.targets(false)[0].visits, 2);
    let report = scraper.ready(&target, true).await;
    assert_eq!(
        report.readiness,
        hookwatch::domain::observe::readiness::Readiness::Ready
    );
    assert!(report.version.is_some_and(|version| version.starts_with("v1.")));
}

async fn the_silent_one_is_named() {
    let directory = PrivateDirectory::create().unwrap();
    let envtest = Envtest::start(directory.path()).await.unwrap();
    let second = envtest.second().unwrap();
    second.ready(LIMIT).await.unwrap();
    let cluster = Cluster::start(&envtest.kubeconfig(), BackendReach::Url)
        .await
        .unwrap();
    // The users know the first API server's own address, so that what goes silent is seen by hookwatch alone.
    let options = WorkloadOptions {
        clients: 1,
        ..WorkloadOptions::default()
    };
    let users = LabWorkload::start(&envtest.kubeconfig(), &options).await.unwrap();
    let balancer = Balancer::start(vec![envtest.address(), second.address()])
        .await
        .unwrap();
    let kubeconfig = envtest.kubeconfig_for(balancer.address());
    let control_plane = LabControlPlane::Envtest(envtest);
    let _clients = ControlPlaneClients::start(&control_plane, None, &cluster.nodes(), &users)
        .await
        .unwrap();
    let kubeconfig = directory.write("balanced", &kubeconfig).unwrap();
    let engine = Engine::start(&config(&kubeconfig, "")).await.unwrap();
    let watch = Watch { engine };

    let target = balancer.address().to_string();
    let calm = watch
        .until("both are met and ready", |seen| {
            let view = view(seen, &target);
            view.replicas == 2
                && view.silent.is_empty()
                && view.readiness.state == "ready"
                && view.version.is_some()
                && seen.sources.node_leases.nodes > 0
                && seen.control_plane.writes == Writes::Flowing
                && seen.control_plane.usual_write_seconds.is_some()
        })
        .await;
    assert_eq!(view(&calm, &target).missing, [] as [&str; 0]);
    assert_eq!(calm.control_plane.symptoms, [] as [&str; 0]);

    second.pause();
    let found = watch
        .until("the silent one is named", |seen| {
            let found = seen.control_plane.not_a_hook.as_ref();
            found.is_some_and(|found| found.cause == NotAHook::ReplicaDown)
        })
        .await;
    let silent = &view(&found, &target).silent;
    assert_eq!(silent.len(), 1, "{silent:?}");
    let summary = &found.control_plane.summary;
    let started = silent[0].started.unwrap().to_string();
    assert!(
        summary.contains(&target) && summary.contains(&started) && summary.contains("since"),
        "{summary}"
    );
    println!("    {summary}");

    second.resume();
    let well = watch
        .until("it answers again", |seen| {
            view(seen, &target).silent.is_empty()
                && seen.control_plane.not_a_hook.is_none()
                && seen.control_plane.writes == Writes::Flowing
        })
        .await;
    assert_eq!(view(&well, &target).replicas, 2, "it is the same process");
}

/// Seed 000 on a current release: what the second one writes at start meets a hook that hangs.
async fn the_second_cannot_start() {
    let directory = PrivateDirectory::create().unwrap();
    let envtest = Envtest::start(directory.path()).await.unwrap();
    let cluster = Cluster::start(&envtest.kubeconfig(), BackendReach::Url)
        .await
        .unwrap();
    // A release that brings a new bootstrap role has one to create, as this one has now.
    let roles: Api<ClusterRole> = Api::all(cluster.client().clone());
    let gone = roles.delete("system:monitoring", &DeleteParams::default()).await;
    assert!(gone.is_ok(), "{gone:?}");
    let hook = LabHook::Opa;
    cluster
        .behave(hook, hook.backends(), &Behaviour::AcceptAndHang)
        .await
        .unwrap();
    let second = envtest.second().unwrap();
    let balancer = Balancer::start(vec![envtest.address(), second.address()])
        .await
        .unwrap();
    let kubeconfig = envtest.kubeconfig_for(balancer.address());
    let kubeconfig = directory.write("balanced", &kubeconfig).unwrap();
    let engine = Engine::start(&config(&kubeconfig, "")).await.unwrap();
    let watch = Watch { engine };
    let told = watch
        .until_blaming(Some(hook.webhook()), "both are told in one sentence", |seen| {
            let summary = &seen.control_plane.summary;
            // Few steps of its start are named, and the more are done, the fewer are left to name.
            summary.contains("cannot start") && summary.contains("poststarthook/rbac/bootstrap-roles")
        })
        .await;
    let summary = &told.control_plane.summary;
    println!("    {summary}");
    let culprit = format!("hook {} is failing.", hook.webhook());
    assert!(summary.contains(&culprit), "{summary}");
}

fn view<'a>(seen: &'a Assessment, target: &str) -> &'a ScrapeView {
    let mut views = seen.sources.scrapes.iter();
    views.find(|view| view.target == target).unwrap()
}

/// Looks at every assessment; none may name a hook that is not at fault.
struct Watch {
    engine: Engine,
}

impl Watch {
    async fn until(&self, what: &str, wanted: impl Fn(&Assessment) -> bool) -> Arc<Assessment> {
        self.until_blaming(None, what, wanted).await
    }

    async fn until_blaming(
        &self,
        culprit: Option<&str>,
        what: &str,
        wanted: impl Fn(&Assessment) -> bool,
    ) -> Arc<Assessment> {
        let mut assessments = self.engine.shown.assessment.clone();
        let mut last = None;
        let waiting = async {
            loop {
                assessments.changed().await.unwrap();
                let Some(seen) = assessments.borrow_and_update().clone() else {
                    continue;
                };
                let innocent = seen
                    .culprits()
                    .filter(|verdict| culprit != Some(&*verdict.webhook));
                let blamed: BTreeSet<_> = innocent.map(|verdict| &verdict.summary).collect();
                assert!(blamed.is_empty(), "while waiting until {what}: {blamed:?}");
                last = Some(Arc::clone(&seen));
                if !seen.sources.scrapes.is_empty() && wanted(&seen) {
                    return seen;
                }
            }
        };
        let found = tokio::time::timeout(LIMIT, waiting).await;
        found.unwrap_or_else(|_| panic!("waited in vain until {what}: {last:#?}"))
    }
}
