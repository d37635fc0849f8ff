//! What watching costs a real API server, in the CPU time of its process. Takes twelve minutes, so only on request.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hookwatch::app::engine::{Engine, clock};
use hookwatch::domain::act::leadership::{Bid, BidOutcome};
use hookwatch::domain::observe::canary::CanaryTarget;
use hookwatch::domain::time::Time;
use hookwatch::io::act::lease::LeaseObject;
use hookwatch::io::act::ledger::LedgerObject;
use hookwatch::io::client::Connection;
use hookwatch::io::observe::canary::CanaryWriter;
use hookwatch::io::observe::node_leases::LeaseReader;
use hookwatch::io::observe::scrape::Scraper;
use hookwatch::lab::cluster::Cluster;
use hookwatch::lab::control_plane::BackendReach;
use hookwatch::lab::directory::PrivateDirectory;
use hookwatch::lab::envtest::Envtest;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use super::privileges::cluster::play;
use super::{Named, Outcome, named};
use crate::engines::config;

/// Set by whoever wants the measurement.
const ASKED_FOR: &str = "HOOKWATCH_MEASURE";
/// How long each state is measured.
const SPAN: Duration = Duration::from_secs(40);
/// How often each state is measured, in turn: what an idle API server does by itself varies more than what is added.
const PAIRS: usize = 5;
/// What is left out at the beginning of each: hookwatch looks more closely until it knows what is usual.
const SETTLING: [Duration; 2] = [Duration::from_secs(15), Duration::from_secs(75)];
/// Node Leases in the cluster.
const NODES: usize = 100;
/// The kernel's unit of CPU time in /proc, the same on every Linux that Rust runs on.
const TICKS_PER_SECOND: f64 = 100.0;

pub fn tests() -> Vec<Named> {
    vec![named("scraping_costs_less_than_one_percent_of_a_core", || {
        if std::env::var_os(ASKED_FOR).is_none() {
            return Outcome::Skipped(format!("twelve minutes; only where {ASKED_FOR} is set"));
        }
        play(measure())
    })]
}

/// CPU seconds that a process has used.
fn cpu_seconds(id: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
    let after_name = stat.rsplit_once(") ").unwrap().1;
    let fields: Vec<&str> = after_name.split(' ').collect();
    let ticks = |at: usize| fields[at].parse::<f64>().unwrap();
    (ticks(11) + ticks(12)) / TICKS_PER_SECOND
}

/// Percent of one core over the span, after settling.
async fn share_of_a_core(id: u32, settling: Duration) -> f64 {
    tokio::time::sleep(settling).await;
    let (began, before) = (Instant::now(), cpu_seconds(id));
    tokio::time::sleep(SPAN).await;
    100.0 * (cpu_seconds(id) - before) / began.elapsed().as_secs_f64()
}

/// Milliseconds of the API server's CPU that one request costs.
async fn cost_of<F: Future<Output = ()>>(id: u32, what: &str, times: u32, request: impl Fn() -> F) -> f64 {
    request().await;
    let before = cpu_seconds(id);
    for _ in 0..times {
        request().await;
    }
    let each = 1_000.0 * (cpu_seconds(id) - before) / f64::from(times);
    println!("    {what}: {each:.1} ms");
    each
}

/// What the API server has been asked since it started, by verb and resource.
async fn requests(client: &kube::Client) -> BTreeMap<String, u64> {
    let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
    let text = client.request_text(request).await.unwrap();
    let mut requests = BTreeMap::new();
    for line in text
        .lines()
        .filter(|line| line.starts_with("apiserver_request_total{"))
    {
        let (labels, count) = line.rsplit_once(' ').unwrap();
        let label = |name: &str| {
            let (_, rest) = labels.split_once(&format!("{name}=\"")).unwrap_or_default();
            rest.split('"').next().unwrap_or_default()
        };
        let what = [
            label("verb"),
            label("dry_run"),
            label("resource"),
            label("subresource"),
        ]
        .join(" ");
        *requests.entry(what).or_default() += count.parse::<f64>().unwrap() as u64;
    }
    requests
}

/// Prints what was asked between two counts.
fn told(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) {
    for (what, count) in after {
        let more = count - before.get(what).unwrap_or(&0);
        if more > 0 {
            println!("        {more} x {what}");
        }
    }
}

async fn measure() {
    let directory = PrivateDirectory::create().unwrap();
    let envtest = Envtest::start(directory.path()).await.unwrap();
    let id = envtest.api_server_id();
    let cluster = Cluster::start(&envtest.kubeconfig(), BackendReach::Url)
        .await
        .unwrap();
    let leases: Api<Lease> = Api::namespaced(cluster.client().clone(), "kube-node-lease");
    for node in 0..NODES {
        let name = format!("node-{node}");
        let spec = json!({"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": "2026-11-21T00:00:00.000000Z"});
        let lease = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap();
        leases.create(&PostParams::default(), &lease).await.unwrap();
    }
    let kubeconfig = directory.write("kubeconfig", &envtest.kubeconfig()).unwrap();
    let config = config(&kubeconfig, "");
    let mut added = Vec::new();
    for _ in 0..PAIRS {
        let before = requests(cluster.client()).await;
        let alone = share_of_a_core(id, SETTLING[0]).await;
        told(&before, &requests(cluster.client()).await);
        let engine = Engine::start(&config).await.unwrap();
        println!("watched");
        let before = requests(cluster.client()).await;
        let watched = share_of_a_core(id, SETTLING[1]).await;
        told(&before, &requests(cluster.client()).await);
        let calm = engine.shown.assessment.borrow().clone().unwrap();
        engine.stop().await;
        println!(
            "    by itself {alone:.2} % of a core, watched {watched:.2} % ({}; {})",
            calm.control_plane.summary, calm.sources.node_leases.detail
        );
        added.push(watched - alone);
    }
    added.sort_by(f64::total_cmp);
    println!("    being watched adds {added:.2?} % of a core");

    let connection = Connection::open(Some(&kubeconfig), None).await.unwrap();
    let clock = clock();
    let scraper = Scraper::new(connection.clone(), Arc::clone(&clock), config.scrapes.limits);
    let target = scraper.targets(false).remove(0);
    let reader = LeaseReader::new(&connection, Arc::clone(&clock));
    let scrape = cost_of(id, "one scrape", 50, || async {
        scraper.scrape(&target).await.unwrap();
    })
    .await;
    let ready = cost_of(id, "one look at readyz", 200, || async {
        drop(scraper.ready(&target, false).await);
    })
    .await;
    let list = cost_of(id, "one list of node leases", 200, || async {
        drop(reader.read().await.outcome.unwrap());
    })
    .await;
    // As the daemon writes them to one API server that is alone.
    let mut canaries = CanaryWriter::new(&connection, &config.namespace, clock);
    canaries.one_process = tokio::sync::watch::channel(true).1;
    let mut canary = 0.0_f64;
    for target in [
        CanaryTarget::OwnNamespace,
        CanaryTarget::KubeSystem,
        CanaryTarget::NodeLease,
    ] {
        let written = || async {
            let report = canaries.write(target, |_| {}).await;
            assert!(report.outcome.is_heard(), "{:?}", report.outcome);
        };
        canary += cost_of(id, &format!("one canary, {}", target.as_str()), 200, written).await;
    }
    let lease = LeaseObject::new(&connection, &config.namespace, "cost");
    let ledger = LedgerObject::new(&connection);
    let term = Duration::from_secs(15);
    let bid = |precondition: Option<String>| Bid {
        precondition,
        holder: Some("cost".into()),
        changes_hands: false,
        transitions: 0,
        term,
    };
    let write = async |precondition: Option<String>, at: u64| {
        let (written, trouble) = lease.write(&bid(precondition), Time::from_unix_millis(at)).await;
        match written {
            BidOutcome::Done { version } => version,
            other => panic!("{other:?}, {trouble:?}"),
        }
    };
    let version = tokio::sync::Mutex::new((write(None, 0).await, 0));
    let lead = cost_of(
        id,
        "one renewal of the Lease that hookwatch leads by, and one look at the ledger",
        200,
        || async {
            let mut version = version.lock().await;
            let (last, at) = version.clone();
            *version = (write(Some(last), at).await, at + 1_000);
            drop(ledger.read().await.unwrap());
        },
    )
    .await;
    // At the defaults: a scrape and a look at readyz every 15 s, a list every 10 s, each canary every 2 s, and a leader
    // renews every 3 s, or up to a fifth earlier.
    let share = (scrape + ready) / 150.0 + list / 100.0 + canary / 20.0 + lead / 27.0;
    println!("    all of them at the defaults: {share:.2} % of a core");
    assert!(share < 1.0, "{share:.2} %");
}
