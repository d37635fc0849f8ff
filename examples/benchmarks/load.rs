//! What being watched costs a real kube-apiserver: the CPU of its process, in quiet and while a webhook hangs, beside what a
//! Prometheus that scrapes it costs; and the CPU of each kind of request that hookwatch sends.

use std::any::Any;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use hookwatch::app::config::{Config, ConfigArguments};
use hookwatch::app::engine::clock;
use hookwatch::domain::act::leadership::{Bid, BidOutcome};
use hookwatch::domain::observe::canary::CanaryTarget;
use hookwatch::domain::time::Time;
use hookwatch::io::act::lease::LeaseObject;
use hookwatch::io::act::ledger::LedgerObject;
use hookwatch::io::client::Connection;
use hookwatch::io::observe::canary::CanaryWriter;
use hookwatch::io::observe::node_leases::LeaseReader;
use hookwatch::io::observe::scrape::Scraper;
use hookwatch::lab::backend::Behaviour;
use hookwatch::lab::cluster::{Cluster, LabHook};
use hookwatch::lab::control_plane::BackendReach;
use hookwatch::lab::directory::PrivateDirectory;
use hookwatch::lab::envtest::{Envtest, binaries};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use tokio::runtime::Runtime;

use crate::document::{Section, Table};
use crate::estate::{Daemon, RELEASE};
use crate::noise::{Samples, seconds};
use crate::process::cpu_of;
use crate::tools;

/// Times that each state is measured, in turn: an idle API server's CPU varies by as much as is added.
const ROUNDS: usize = 4;
/// How long a state is measured: two scrapes of Prometheus.
const SPAN: Duration = Duration::from_secs(30);
/// What is left out at the beginning of each state.
const SETTLING: Duration = Duration::from_secs(10);
/// The same after a start of hookwatch, which looks more closely until it knows what is usual.
const SETTLING_WATCHED: Duration = Duration::from_secs(75);
/// Prometheus' scrape interval, which is hookwatch's too.
const INTERVAL: Duration = Duration::from_secs(15);
/// Node Leases in the cluster.
const NODES: usize = 100;
/// The webhook that hangs: for everything, with `failurePolicy: Fail`.
const HOOK: LabHook = LabHook::Opa;

/// Who else uses the API server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum User {
    Nobody,
    Prometheus,
    Hookwatch,
}

const STATES: [(&str, User); 3] = [
    ("by itself", User::Nobody),
    ("scraped by Prometheus", User::Prometheus),
    ("watched by hookwatch", User::Hookwatch),
];

/// The API server's share of a core and its requests a second in one state; of each round.
#[derive(Default)]
struct Used {
    share: Samples,
    requests: Samples,
}

/// In the order of [`STATES`].
type Load = [Used; STATES.len()];

/// Measures all states and requests.
///
/// # Errors
/// When something does not start.
pub fn measure(quick: bool) -> anyhow::Result<Section> {
    let mut section = Section::new("An API server that is watched");
    if quick {
        section.skip("What being watched costs an API server", "this was a quick run");
        return Ok(section);
    }
    if let Err(missing) = binaries::find() {
        section.skip("What being watched costs an API server", &missing.to_string());
        return Ok(section);
    }
    section.say(&format!(
        "The CPU of a real kube-apiserver with {NODES} node Leases and three webhooks: by itself, with a Prometheus \
         that scrapes its `/metrics` every {} s, and with `hookwatch run` with default settings. In quiet, and while a webhook for \
         everything with `failurePolicy: Fail` hangs. Each state {ROUNDS} times for {} s, in turn.",
        INTERVAL.as_secs(),
        SPAN.as_secs(),
    ));
    let (quiet, incident, requests) = Runtime::new()?.block_on(play())?;
    let mut table = Table::new(&[
        "State",
        "API server, % of a core",
        "More than by itself",
        "Requests a second",
    ]);
    for (when, load) in [("quiet", &quiet), ("a webhook hangs", &incident)] {
        for ((state, user), used) in STATES.iter().zip(load) {
            let more = used.share.minus(&load[0].share).to_string();
            table.row(&[
                format!("{when}, {state}"),
                used.share.to_string(),
                if *user == User::Nobody {
                    "-".to_owned()
                } else {
                    more
                },
                used.requests.to_string(),
            ]);
        }
    }
    section.table(table);
    let mut table = Table::new(&["Request of hookwatch", "CPU of the API server, ms", "Every, s"]);
    let mut sum = 0.0;
    for Request { what, cost, every } in requests {
        sum += cost.median() / every.as_secs_f64() / 10.0;
        table.row(&[what, cost.to_string(), every.as_secs_f64().to_string()]);
    }
    section.say("Each of hookwatch's requests, one after the other, and how often it is sent at the defaults in quiet.");
    section.table(table);
    section.goal(
        "all of these requests, % of a core",
        std::iter::once(sum).collect(),
        "1 or less",
        |share| share <= 1.0,
    );
    section.goal(
        "watched by hookwatch in quiet, more than by itself, % of a core",
        quiet[2].share.minus(&quiet[0].share),
        "1 or less",
        |share| share <= 1.0,
    );
    Ok(section)
}

async fn play() -> anyhow::Result<(Load, Load, Vec<Request>)> {
    let directory = PrivateDirectory::create()?;
    let server = Envtest::start(directory.path()).await?;
    let cluster = Cluster::start(&server.kubeconfig(), BackendReach::Url).await?;
    add_node_leases(cluster.client().clone()).await?;
    let (mut quiet, mut incident) = <(Load, Load)>::default();
    for round in 0..ROUNDS {
        eprintln!("  round {} of {ROUNDS}", round + 1);
        for (nth, (_, user)) in STATES.iter().enumerate() {
            let _user = begin(*user, &server).await?;
            used(&server, cluster.client(), &mut quiet[nth]).await?;
            // Its incident begins while it is there.
            cluster
                .behave(HOOK, usize::MAX, &Behaviour::AcceptAndHang)
                .await?;
            tokio::time::sleep(SETTLING).await;
            used(&server, cluster.client(), &mut incident[nth]).await?;
            cluster.behave(HOOK, usize::MAX, &Behaviour::Healthy).await?;
        }
    }
    let requests = requests(&server, &directory).await?;
    Ok((quiet, incident, requests))
}

async fn add_node_leases(client: kube::Client) -> anyhow::Result<()> {
    let leases: Api<Lease> = Api::namespaced(client, "kube-node-lease");
    for node in 0..NODES {
        let name = format!("node-{node}");
        let spec = json!({"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": "2026-11-21T00:00:00.000000Z"});
        let lease = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec}))?;
        leases.create(&PostParams::default(), &lease).await?;
    }
    Ok(())
}

/// Starts the user, and waits until it has settled. It ends when the result is dropped.
async fn begin(user: User, server: &Envtest) -> anyhow::Result<Option<Box<dyn Any>>> {
    let kubeconfig = server.kubeconfig();
    let (started, settling): (Option<Box<dyn Any>>, _) = match user {
        User::Nobody => (None, SETTLING),
        User::Prometheus => {
            let binary = tools::find("prometheus").context("no prometheus")?;
            let directory = PrivateDirectory::create()?;
            let config = format!(
                "global: {{scrape_interval: {}s}}\nscrape_configs:\n{}",
                INTERVAL.as_secs(),
                tools::api_server_job(&directory, &kubeconfig)?
            );
            let started = tools::start_prometheus(&binary, &directory, &config)?;
            (Some(Box::new((started, directory))), SETTLING)
        }
        User::Hookwatch => {
            let started = Daemon::start(Path::new(RELEASE), &kubeconfig)?;
            (Some(Box::new(started)), SETTLING_WATCHED)
        }
    };
    tokio::time::sleep(settling).await;
    Ok(started)
}

/// Measures for [`SPAN`]. Its own request for the API server's counters is outside of the span.
async fn used(server: &Envtest, client: &kube::Client, used: &mut Used) -> anyhow::Result<()> {
    let counted = Instant::now();
    let asked = requests_served(client).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (begun, before) = (Instant::now(), cpu_of(server.api_server_id())?);
    tokio::time::sleep(SPAN).await;
    let share = (cpu_of(server.api_server_id())? - before) / seconds(begun.elapsed()) * 100.0;
    let asked = requests_served(client).await? - asked;
    used.share.push(share);
    used.requests.push(asked / seconds(counted.elapsed()));
    Ok(())
}

/// The requests that the API server has answered since its start.
async fn requests_served(client: &kube::Client) -> anyhow::Result<f64> {
    let request = http::Request::get("/metrics").body(Vec::new())?;
    let text = client.request_text(request).await?;
    let lines = text
        .lines()
        .filter(|line| line.starts_with("apiserver_request_total{"));
    let counts = lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
    Ok(counts.sum())
}

/// A kind of request that hookwatch sends.
struct Request {
    what: String,
    /// Milliseconds of the API server's CPU.
    cost: Samples,
    /// How often it is sent, at the defaults and in quiet.
    every: Duration,
}

/// Measures each kind of request: the mean of this many, some times over.
async fn cost_of(
    server: &Envtest,
    (what, every): (&str, Duration),
    times: u32,
    mut request: impl AsyncFnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Request> {
    let mut cost = Samples::default();
    request().await?;
    for _ in 0..ROUNDS {
        let before = cpu_of(server.api_server_id())?;
        for _ in 0..times {
            request().await?;
        }
        cost.push((cpu_of(server.api_server_id())? - before) / f64::from(times) * 1e3);
    }
    eprintln!("  {what}: {cost} ms");
    let what = what.to_owned();
    Ok(Request { what, cost, every })
}

async fn requests(server: &Envtest, directory: &PrivateDirectory) -> anyhow::Result<Vec<Request>> {
    let kubeconfig = directory.write("kubeconfig", &server.kubeconfig())?;
    let arguments = ConfigArguments {
        kubeconfig: Some(kubeconfig.clone()),
        ..ConfigArguments::default()
    };
    let config = Config::parse("", &arguments).map_err(|mistakes| anyhow::anyhow!("{mistakes:?}"))?;
    let connection = Connection::open(Some(&kubeconfig), None).await?;
    let mut all = reads(server, &connection, &config).await?;
    all.extend(canaries(server, &connection, &config).await?);
    all.push(leading(server, &connection, &config).await?);
    Ok(all)
}

async fn reads(server: &Envtest, connection: &Connection, config: &Config) -> anyhow::Result<Vec<Request>> {
    let clock = clock();
    let scraper = Scraper::new(connection.clone(), Arc::clone(&clock), config.scrapes.limits);
    let target = scraper
        .targets(false)
        .into_iter()
        .next()
        .context("an API server")?;
    let reader = LeaseReader::new(connection, clock);
    let scrape = cost_of(
        server,
        ("scrape of its metrics", config.scrapes.interval),
        20,
        async || {
            scraper
                .scrape(&target)
                .await
                .map_err(|failure| anyhow::anyhow!("{failure:?}"))?;
            Ok(())
        },
    );
    let scrape = scrape.await?;
    let ready = cost_of(server, ("`/readyz`", config.scrapes.interval), 100, async || {
        drop(scraper.ready(&target, false).await);
        Ok(())
    });
    let ready = ready.await?;
    let list = cost_of(
        server,
        ("list of node Leases", Duration::from_secs(10)),
        100,
        async || {
            reader
                .read()
                .await
                .outcome
                .map_err(|failure| anyhow::anyhow!("{failure:?}"))?;
            Ok(())
        },
    );
    Ok(vec![scrape, ready, list.await?])
}

/// The default canaries, as they are written to one API server that is alone.
async fn canaries(
    server: &Envtest,
    connection: &Connection,
    config: &Config,
) -> anyhow::Result<Vec<Request>> {
    let mut writer = CanaryWriter::new(connection, &config.namespace, clock());
    writer.one_process = tokio::sync::watch::channel(true).1;
    let mut all = Vec::new();
    for target in [
        CanaryTarget::OwnNamespace,
        CanaryTarget::KubeSystem,
        CanaryTarget::NodeLease,
    ] {
        let what = format!("canary, {}", target.as_str());
        let written = cost_of(server, (&what, config.canaries.interval), 100, async || {
            let outcome = writer.write(target, |_| {}).await.outcome;
            anyhow::ensure!(outcome.is_heard(), "{outcome:?}");
            Ok(())
        });
        all.push(written.await?);
    }
    Ok(all)
}

/// A renewal of the Lease that hookwatch leads by, with the look at the ledger before it.
async fn leading(server: &Envtest, connection: &Connection, config: &Config) -> anyhow::Result<Request> {
    let lease = LeaseObject::new(connection, &config.namespace, "cost");
    let ledger = LedgerObject::new(connection);
    let (mut precondition, mut at) = (None, 0);
    let what = "renewal of hookwatch's own Lease, and a look at its ledger";
    // A leader renews every 3 s, or up to a fifth earlier.
    let every = Duration::from_millis(2_700);
    let renewed = cost_of(server, (what, every), 100, async || {
        let bid = Bid {
            precondition: precondition.take(),
            holder: Some("cost".into()),
            changes_hands: false,
            transitions: 0,
            term: Duration::from_secs(15),
        };
        let (written, trouble) = lease.write(&bid, Time::from_unix_millis(at)).await;
        let BidOutcome::Done { version } = written else {
            anyhow::bail!("{written:?}, {trouble:?}");
        };
        (precondition, at) = (Some(version), at + 1_000);
        ledger.read().await.map_err(|failure| anyhow::anyhow!(failure))?;
        Ok(())
    });
    renewed.await
}
