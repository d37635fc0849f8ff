//! The cost of bad input from a cluster, over real TLS: how much CPU and memory it takes, and whether the daemon still finds
//! a fault of another webhook in time.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::Context;
use hookwatch::lab::backend::{BackendRole, Behaviour, LabBackend};
use hookwatch::lab::certs::Authority;
use kube::Client;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::document::{Section, Table};
use crate::estate;
use crate::noise::{Samples, digits, seconds};
use crate::watched::Watched;

/// Faults that the daemon must find beside each bad input.
const FAULTS: u32 = 5;
/// The daemon's probe interval. The faults begin at instants spread evenly over it.
const PROBES_EVERY: Duration = Duration::from_secs(5);
const BUNDLES: usize = 2_000;
const CONVERSIONS: usize = 2_000;
const ENDPOINTS: u32 = 1_000;
const CHANGES_A_SECOND: u64 = 100;

/// Measures each bad input.
///
/// # Errors
/// When the daemon's binary is missing or does not start, or a fault is not found.
pub fn measure(quick: bool) -> anyhow::Result<Section> {
    let mut section = Section::new("Bad input");
    if quick {
        section.skip("What bad input costs", "this was a quick run");
        return Ok(section);
    }
    section.say(&format!(
        "`hookwatch run` with default settings beside the embedded control plane, which has what the first column says. All backends serve \
         TLS. A webhook elsewhere hangs {FAULTS} times: seconds from the fault to the verdict, in five phases of \
         the daemon's rhythm. CPU and memory over all of that."
    ));
    let mut table = Table::new(&[
        "What is there",
        "Fault elsewhere found after, s",
        "Worst",
        "hookwatch, % of a core",
        "Memory, MB",
    ]);
    let rows = Runtime::new()?.block_on(async {
        anyhow::Ok([
            ("nothing else", beside(async |_| Ok(())).await?),
            (
                "2,000 webhooks, each with a `caBundle` of its own, at one backend",
                beside(bundles).await?,
            ),
            (
                "2,000 CustomResourceDefinitions that convert at one backend",
                beside(conversions).await?,
            ),
            (
                "a webhook whose backend closes every connection after one answer",
                beside(closing).await?,
            ),
            ("a Service with 1,000 endpoints", beside(endpoints).await?),
            ("endpoints that change 100 times a second", beside(changes).await?),
        ])
    })?;
    for (what, cost) in rows {
        table.row(&[
            what.to_owned(),
            cost.found.to_string(),
            digits(cost.found.quantile(1.0)),
            digits(cost.share * 100.0),
            digits(cost.memory / 1e6),
        ]);
    }
    section.table(table);
    Ok(section)
}

struct Cost {
    found: Samples,
    share: f64,
    memory: f64,
}

/// Index of the Service with the bad input. The webhook that breaks is on the next one.
const SERVICE: usize = 0;

async fn beside<T: 'static>(others: impl AsyncFnOnce(&Client) -> anyhow::Result<T>) -> anyhow::Result<Cost> {
    let with_namespace = async |client: &Client| {
        estate::create_namespace(client).await?;
        others(client).await
    };
    let watched = Watched::start(3, SERVICE + 1, with_namespace).await?;
    let (begun, before) = (Instant::now(), watched.daemon.process.cpu()?);
    let mut found = Samples::default();
    for run in 0..FAULTS {
        let took = watched.breaks().await?;
        eprintln!("  found after {took:.1} s");
        found.push(took);
        watched.recovers().await?;
        tokio::time::sleep(PROBES_EVERY * run / FAULTS).await;
    }
    Ok(Cost {
        found,
        share: (watched.daemon.process.cpu()? - before) / seconds(begun.elapsed()),
        memory: watched.daemon.process.memory()?,
    })
}

async fn backends(
    role: BackendRole,
    hosts: &[IpAddr],
) -> anyhow::Result<(Vec<LabBackend>, Vec<SocketAddr>, Authority)> {
    let authority = Authority::new("bad input")?;
    let certificate = authority.issue(&estate::server_name(SERVICE))?;
    let backends = LabBackend::start_group(hosts, role, &certificate).await?;
    let addresses = backends.iter().map(LabBackend::address).collect();
    Ok((backends, addresses, authority))
}

async fn bundles(client: &Client) -> anyhow::Result<Vec<LabBackend>> {
    let (backends, addresses, authority) =
        backends(BackendRole::Validating, &[IpAddr::from([127, 0, 31, 1])]).await?;
    estate::register_service(client, SERVICE, &addresses).await?;
    let mut webhooks = Vec::new();
    for nth in 0..BUNDLES {
        let (name, own) = (
            format!("w{nth}.example.com"),
            Authority::new(&format!("of {nth}"))?,
        );
        let bundle = format!("{}{}", authority.pem(), own.pem());
        webhooks.push(estate::webhook(&name, SERVICE, 0, &bundle));
    }
    for (nth, some) in webhooks.chunks(50).enumerate() {
        estate::register(client, &format!("bundles-{nth}"), some).await?;
    }
    Ok(backends)
}

async fn conversions(client: &Client) -> anyhow::Result<Vec<LabBackend>> {
    let (backends, addresses, authority) =
        backends(BackendRole::Conversion, &[IpAddr::from([127, 0, 37, 1])]).await?;
    estate::register_service(client, SERVICE, &addresses).await?;
    for nth in 0..CONVERSIONS {
        let definition = definition(nth, &authority.pem());
        let (kind, plural) = ("CustomResourceDefinition", "customresourcedefinitions");
        estate::post(client, "apiextensions.k8s.io", kind, plural, definition).await?;
    }
    Ok(backends)
}

/// One of many CustomResourceDefinitions with a conversion webhook on the same backend.
fn definition(nth: usize, bundle: &str) -> Value {
    let version = |name: &str, stored: bool| {
        let schema = json!({"openAPIV3Schema": {"type": "object"}});
        json!({"name": name, "served": true, "storage": stored, "schema": schema})
    };
    json!({
        "metadata": {"name": format!("kind{nth}s.example.com")},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"kind": format!("Kind{nth}"), "plural": format!("kind{nth}s"), "singular": format!("kind{nth}")},
            "versions": [version("v1", true), version("v2", false)],
            "conversion": {"strategy": "Webhook", "webhook": {
                "clientConfig": estate::webhook("", SERVICE, 0, bundle)["clientConfig"],
                "conversionReviewVersions": ["v1"],
            }},
        },
    })
}

async fn closing(client: &Client) -> anyhow::Result<Vec<LabBackend>> {
    let backends = one_webhook(client, &[IpAddr::from([127, 0, 38, 1])]).await?;
    for backend in &backends {
        backend.behave(Behaviour::CloseAfterAnswer).await?;
    }
    Ok(backends)
}

async fn endpoints(client: &Client) -> anyhow::Result<Vec<LabBackend>> {
    let hosts: Vec<IpAddr> = (0..ENDPOINTS)
        .map(|nth| IpAddr::from([127, 0, 32 + (nth / 250) as u8, 1 + (nth % 250) as u8]))
        .collect();
    one_webhook(client, &hosts).await
}

/// Registers a webhook with a backend at each of these addresses.
async fn one_webhook(client: &Client, hosts: &[IpAddr]) -> anyhow::Result<Vec<LabBackend>> {
    let (backends, addresses, authority) = backends(BackendRole::Validating, hosts).await?;
    estate::register_service(client, SERVICE, &addresses).await?;
    let webhook = estate::webhook("w.example.com", SERVICE, 0, &authority.pem());
    estate::register(client, "one-webhook", &[webhook]).await?;
    Ok(backends)
}

async fn changes(client: &Client) -> anyhow::Result<(Vec<LabBackend>, JoinSet<anyhow::Result<()>>)> {
    let hosts = [1, 2].map(|host| IpAddr::from([127, 0, 36, host]));
    let (backends, addresses, authority) = backends(BackendRole::Validating, &hosts).await?;
    let [first, second] = addresses[..] else {
        anyhow::bail!("two backends");
    };
    estate::register_service(client, SERVICE, &[first]).await?;
    let webhook = estate::webhook("w.example.com", SERVICE, 0, &authority.pem());
    estate::register(client, "changes", &[webhook]).await?;
    let client = client.clone();
    let task = async move {
        let mut every = tokio::time::interval(Duration::from_millis(1_000 / CHANGES_A_SECOND));
        for address in [second, first].into_iter().cycle() {
            every.tick().await;
            estate::move_endpoint(&client, SERVICE, address)
                .await
                .context("moving an endpoint")?;
        }
        anyhow::Ok(())
    };
    Ok((backends, JoinSet::from_iter([task])))
}
