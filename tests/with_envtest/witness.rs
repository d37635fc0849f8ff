//! That writes flow is never said without a witness: on a real API server, as the account that deploy/ makes.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hookwatch::app::engine::Engine;
use hookwatch::domain::vocabulary::Writes;
use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::privileges::cluster::{Cluster, assessed, manifests, play, until};
use super::{Named, named};
use crate::engines::config;

/// From the account's first request that is served until writes are said to flow: a canary's interval and a second.
const RIGHT_WITHIN: Duration = Duration::from_secs(6);
/// How long what is not known has to stay unknown.
const HELD: Duration = Duration::from_secs(10);

pub fn tests() -> Vec<Named> {
    vec![
        named(
            "witness_writes_flow_once_a_restarted_api_server_serves_the_account",
            || play(restarted()),
        ),
        named(
            "witness_writes_are_unknown_while_every_canary_is_forbidden",
            || play(forbidden(false)),
        ),
        named(
            "witness_writes_are_unknown_while_a_restarted_api_server_forbids_every_canary",
            || play(forbidden(true)),
        ),
    ]
}

/// One assessment: the state of writes, and of each canary.
#[derive(Debug)]
struct StateOfWrites {
    at: Instant,
    writes: Writes,
    canaries: Vec<&'static str>,
}

impl StateOfWrites {
    fn is_forbidden(&self) -> bool {
        self.canaries.iter().all(|state| *state == "forbidden")
    }
}

/// The daemon as it is shipped, and everything that it has said.
struct ShippedDaemon {
    engine: Engine,
    told: Arc<Mutex<Vec<StateOfWrites>>>,
    listener: JoinHandle<()>,
    account: Client,
    cluster: Cluster,
}

impl ShippedDaemon {
    async fn set() -> Self {
        let cluster = Cluster::with("overlays/observe").await;
        let token = cluster.token("hookwatch", None).await;
        let (kubeconfig, _) = cluster.kubeconfig("hookwatch", &token);
        let engine = Engine::start(&config(&kubeconfig, "")).await.unwrap();
        assessed(&engine, "writes flow, and every canary says so", |it| {
            let written = |state: &str| state == "written";
            let mut canaries = it.control_plane.canaries.iter();
            it.control_plane.writes == Writes::Flowing && canaries.all(|canary| written(canary.state))
        })
        .await;
        let told: Arc<Mutex<Vec<StateOfWrites>>> = Arc::default();
        let (mut assessments, into) = (engine.shown.assessment.clone(), Arc::clone(&told));
        let listener = tokio::spawn(async move {
            while assessments.changed().await.is_ok() {
                let Some(seen) = assessments.borrow_and_update().clone() else {
                    continue;
                };
                let plane = &seen.control_plane;
                into.lock().unwrap().push(StateOfWrites {
                    at: Instant::now(),
                    writes: plane.writes,
                    canaries: plane.canaries.iter().map(|canary| canary.state).collect(),
                });
            }
        });
        Self {
            account: cluster.client("hookwatch").await,
            engine,
            told,
            listener,
            cluster,
        }
    }

    /// Waits until writes are said to flow, and holds every assessment since then against when the account was served.
    async fn assert_right(&self, fell: Instant, served: &AccountServed) {
        let late = served.all + RIGHT_WITHIN;
        until("writes are said to flow again", async || {
            let told = self.told.lock().unwrap();
            told.iter()
                .any(|it| it.at > served.all && it.writes == Writes::Flowing)
        })
        .await;
        let told = self.told.lock().unwrap();
        let mut since = told.iter().filter(|it| it.at > fell).peekable();
        assert!(since.peek().is_some());
        let flowing = since.find(|it| it.writes == Writes::Flowing).unwrap();
        assert!(
            flowing.at > served.first && flowing.at < late,
            "served after {:?} to {:?}, said to flow after {:?}: {:#?}",
            served.first - fell,
            served.all - fell,
            flowing.at - fell,
            course(&told, fell)
        );
        println!(
            "    served after {:.1} s, said to flow {:.1} s later; {} assessments with every canary forbidden",
            (served.all - fell).as_secs_f64(),
            flowing.at.saturating_duration_since(served.all).as_secs_f64(),
            told.iter().filter(|it| it.is_forbidden()).count()
        );
    }

    async fn leave(self) {
        self.listener.abort();
        self.engine.stop().await;
    }
}

/// What was said since an instant, each state once, with the seconds until it.
fn course(told: &[StateOfWrites], since: Instant) -> Vec<String> {
    let mut course: Vec<&StateOfWrites> = told.iter().filter(|it| it.at > since).collect();
    course.dedup_by(|next, it| it.writes == next.writes && it.canaries == next.canaries);
    let words = |it: &StateOfWrites| {
        let seconds = (it.at - since).as_secs_f64();
        format!("{seconds:.1}: {:?}, canaries {:?}", it.writes, it.canaries)
    };
    course.into_iter().map(words).collect()
}

/// When the account was served again.
struct AccountServed {
    /// When the first request was sent that was answered: a write that canaries make, or a scrape.
    first: Instant,
    /// When both had been.
    all: Instant,
}

impl AccountServed {
    async fn again(account: &Client) -> Self {
        let patch = json!({"metadata": {"labels": {"hookwatch.dev/asked": "yes"}}});
        let canary = "/api/v1/namespaces/kube-system/configmaps/hookwatch-canary?dryRun=All";
        let mut first = None;
        loop {
            let begin = Instant::now();
            let written = is_served(account, Method::PATCH, canary, &patch).await;
            let scraped = is_served(account, Method::GET, "/metrics", &Value::Null).await;
            if written || scraped {
                first.get_or_insert(begin);
            }
            if let (Some(first), true, true) = (first, written, scraped) {
                let all = Instant::now();
                return Self { first, all };
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

async fn is_served(account: &Client, method: Method, target: &str, body: &Value) -> bool {
    let request = Request::builder()
        .method(method)
        .uri(target)
        .header("content-type", "application/merge-patch+json")
        .body(Body::from(body.to_string().into_bytes()))
        .unwrap();
    let answer = account.send(request).await;
    answer.is_ok_and(|answer| answer.status().is_success())
}

/// An API server that was killed and started again forbids everything until it has read its roles.
async fn restarted() {
    let mut stage = ShippedDaemon::set().await;
    stage.cluster.kill();
    assessed(&stage.engine, "writes are not said to flow", |it| {
        it.control_plane.writes != Writes::Flowing
    })
    .await;
    let fell = Instant::now();
    let account = stage.account.clone();
    let ((), served) = tokio::join!(stage.cluster.restart(), AccountServed::again(&account));
    stage.assert_right(fell, &served).await;
    stage.leave().await;
}

/// Takes the account its roles away, and gives them back. With `restart` the API server is killed and started again
/// meanwhile, as one that takes long to read its roles.
async fn forbidden(restart: bool) {
    let mut stage = ShippedDaemon::set().await;
    let bindings: Vec<Value> = manifests("overlays/observe")
        .into_iter()
        .filter(|object| {
            ["RoleBinding", "ClusterRoleBinding"]
                .map(Value::from)
                .contains(&object["kind"])
        })
        .collect();
    let begin = Instant::now();
    for binding in &bindings {
        unbind(&stage.cluster, binding).await;
    }
    if restart {
        stage.cluster.kill();
    }
    assessed(&stage.engine, "writes are not said to flow", |it| {
        it.control_plane.writes != Writes::Flowing
    })
    .await;
    let fell = Instant::now();
    println!("    not flowing after {:.1} s", (fell - begin).as_secs_f64());
    if restart {
        stage.cluster.restart().await;
    }
    assessed(
        &stage.engine,
        "it is not known, every canary is forbidden",
        |it| {
            let mut canaries = it.control_plane.canaries.iter();
            it.control_plane.writes == Writes::Unknown && canaries.all(|canary| canary.state == "forbidden")
        },
    )
    .await;
    let unknown = Instant::now();
    tokio::time::sleep(HELD).await;
    {
        let told = stage.told.lock().unwrap();
        let since: Vec<&StateOfWrites> = told.iter().filter(|it| it.at > unknown).collect();
        let held = |it: &&StateOfWrites| it.writes == Writes::Unknown && it.is_forbidden();
        assert!(!since.is_empty() && since.iter().all(held), "{since:?}");
    }
    for binding in &bindings {
        stage.cluster.apply(binding).await;
    }
    let served = AccountServed::again(&stage.account).await;
    stage.assert_right(fell, &served).await;
    stage.leave().await;
}

async fn unbind(cluster: &Cluster, binding: &Value) {
    let name = binding["metadata"]["name"].as_str().unwrap();
    let target = match binding["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("namespaces/{namespace}/rolebindings/{name}"),
        None => format!("clusterrolebindings/{name}"),
    };
    let target = format!("/apis/rbac.authorization.k8s.io/v1/{target}");
    cluster.admin(Method::DELETE, &target, &Value::Null).await;
}
