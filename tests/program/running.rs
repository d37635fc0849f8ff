//! The running daemon with the breaker on, while requests are lost, daemons are killed and others act beside it.

#[allow(dead_code, reason = "what is written is looked into on a real API server")]
#[path = "../support/between.rs"]
mod between;
mod degraded;
mod killed;
#[path = "../support/outage.rs"]
mod outage;
mod sabotaged;
mod two;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt;
use hookwatch::app::config::Config;
use hookwatch::app::engine::Engine;
use hookwatch::domain::act::bypass::Rung;
use hookwatch::lab::api::{ApiServer, ApiServerOptions};
use hookwatch::lab::backend::Behaviour;
use hookwatch::lab::cluster::{Cluster, LabHook};
use hookwatch::lab::control_plane::BackendReach;
use hookwatch::lab::directory::PrivateDirectory;

use self::between::Between;
use self::outage::{Outage, all_is_well, assessed};
use crate::engines::brief;

/// How many labs there are at once: more would starve each other on a small machine.
const AT_ONCE: usize = 3;

/// A control plane with hooks, all of them well.
struct Lab {
    outage: Outage,
    cluster: Cluster,
    kubeconfig: String,
    directory: PrivateDirectory,
    files: AtomicUsize,
    _server: ApiServer,
}

impl Lab {
    async fn start() -> Self {
        let server = ApiServer::start(ApiServerOptions::default()).await.unwrap();
        let kubeconfig = server.kubeconfig();
        let cluster = Cluster::start(&kubeconfig, BackendReach::Loopback).await.unwrap();
        Self {
            outage: Outage::begin(cluster.client()).await,
            cluster,
            kubeconfig,
            directory: PrivateDirectory::create().unwrap(),
            files: AtomicUsize::new(0),
            _server: server,
        }
    }

    /// What a daemon is told that comes to the API server by this kubeconfig. It is alone, and has no minutes to wait.
    fn config(&self, kubeconfig: &str, rung: Rung) -> Config {
        let number = self.files.fetch_add(1, Ordering::Relaxed);
        let file = self.directory.write(&format!("kubeconfig-{number}"), kubeconfig);
        let mut config = outage::config(&file.unwrap(), rung);
        config.without_fence = true;
        config.leadership.enabled = false;
        config.breaker_times = brief();
        config
    }

    /// A daemon that has seen every hook well, on its way through something.
    async fn daemon(&self, between: &Between, rung: Rung) -> Engine {
        let engine = Engine::start(&self.config(&between.kubeconfig, rung))
            .await
            .unwrap();
        assessed(&engine, "all is well", all_is_well).await;
        engine
    }

    async fn behave(&self, hook: LabHook, behaviour: Behaviour) {
        self.cluster.behave(hook, usize::MAX, &behaviour).await.unwrap();
    }
}

/// Waits until a daemon says that a hook's bypass is in force everywhere.
async fn bypassed(engine: &Engine, hook: LabHook) {
    assessed(engine, "it is bypassed", |assessment| {
        outage::told(assessment, hook).is_some_and(|told| told.state == "bypassed" && told.effective)
    })
    .await;
}

/// Waits until nothing is bypassed any more; else says what the daemon knew, and what it wrote.
async fn restored(lab: &Lab, engine: &Engine, between: &Between, what: &str) {
    let assessments = engine.shown.assessment.clone();
    let restored = lab.outage.restored(what);
    let mut restored = std::pin::pin!(restored);
    let mut said = tokio::time::interval(outage::GUARD - Duration::from_secs(20));
    said.reset();
    tokio::select! {
        () = &mut restored => return,
        _ = said.tick() => {}
    }
    if let Some(last) = &*assessments.borrow() {
        println!("{what}: {:#?} {:#?}", last.breaker, last.hooks);
    }
    for done in between.done() {
        println!(
            "{what}: {:?} {:?} {:?}",
            done.write.target, done.fate, done.status
        );
    }
    restored.await;
}

fn block_on(test: impl Future<Output = ()>) {
    // Fails when another test of this file came first, which is as good.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    tokio::runtime::Runtime::new().unwrap().block_on(test);
}

/// Some at a time; each of them by its name.
async fn all<F: Future<Output = ()>>(tests: impl IntoIterator<Item = (String, F)>) {
    let running = futures::stream::iter(tests).map(|(name, test)| async move {
        test.await;
        println!("{name}: held");
    });
    running.buffer_unordered(AT_ONCE).collect::<()>().await;
}
