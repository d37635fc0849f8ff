//! The audit of a real cluster, and its forecast held against what then happens: real kube-controller-manager and
//! kube-scheduler, kubelets and an API server's start with the timers of the real ones, and the writes of the others.

mod cases;
mod cost;
mod play;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::Command;
use std::time::Duration;

use futures::future::join_all;
use hookwatch::domain::audit::{Casualty, Function};
use hookwatch::lab::envtest::binaries;
use serde_json::{Value, json};
use tokio::time::sleep;

use self::cases::{Case, all};
use self::play::Play;
use super::privileges::cluster::{Cluster, play};
use super::{Named, Outcome as Played, named};

pub fn tests() -> Vec<Named> {
    vec![
        named("the_audit_of_a_cluster_reads_and_writes_nothing", of_a_cluster),
        named(
            "every_casualty_is_foretold_and_every_one_foretold_happens",
            foretold,
        ),
        named(
            "the_audit_of_a_large_cluster_costs_less_than_a_second",
            cost::of_a_large_cluster,
        ),
    ]
}

/// Runs `hookwatch audit` on a cluster.
fn of_a_cluster() -> Played {
    play(async {
        let cluster = Cluster::start().await;
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "opa", "namespace": "default"},
                                 "spec": {"ports": [{"port": 443}]}});
        cluster.apply(&service).await;
        let of_service = |name: &str, service: &str| {
            let mut hook = webhook(
                name,
                &json!({"failurePolicy": "Ignore", "timeoutSeconds": 1}),
                "",
                "",
            );
            hook["webhooks"][0]["clientConfig"] =
                json!({"service": {"namespace": "default", "name": service}});
            hook
        };
        cluster.apply(&of_service("without-endpoints", "opa")).await;
        cluster.apply(&of_service("without-service", "gone")).await;
        // Last: nothing can be written once it is known.
        let hook = webhook("hang", &json!({}), "https://127.0.0.1:1", "");
        cluster.apply(&hook).await;
        let kubeconfig = cluster.admin_kubeconfig();
        let run = move || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_hookwatch"));
            command
                .args(["audit", "--output", "json", "--kubeconfig"])
                .arg(&kubeconfig)
                .output()
                .unwrap()
        };
        assert_eq!(requests(&cluster), (0, 0));
        let output = tokio::task::spawn_blocking(run).await.unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        let (reads, writes) = requests(&cluster);
        assert!(
            reads > 5 && writes == 0,
            "it reads, {reads} times, and wrote {writes} times"
        );
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let findings: BTreeSet<(String, String)> = document["findings"]
            .as_array()
            .unwrap()
            .iter()
            .map(|finding| {
                let object = finding["object"]
                    .as_str()
                    .unwrap()
                    .split('/')
                    .nth(1)
                    .unwrap_or_default()
                    .to_owned();
                (finding["id"].as_str().unwrap().to_owned(), object)
            })
            .collect();
        for (id, object) in [
            ("control-plane-in-reach", "hang"),
            ("no-endpoints", "without-endpoints"),
            ("service-missing", "without-service"),
        ] {
            assert!(
                findings.contains(&(id.to_owned(), object.to_owned())),
                "{id} of {object}: {findings:?}"
            );
        }
        assert!(
            !findings.iter().any(|(id, _)| id == "unreadable-input"),
            "{findings:?}"
        );
    })
}

/// How often hookwatch has read and written, by the audit log.
fn requests(cluster: &Cluster) -> (usize, usize) {
    let log = std::fs::read_to_string(cluster.audit_log()).unwrap();
    let events = log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let verbs = events.filter_map(|event| {
        let ours = event["userAgent"].as_str()?.contains("hookwatch");
        ours.then(|| event["verb"].as_str().unwrap_or_default().to_owned())
    });
    let (reads, writes): (Vec<String>, Vec<String>) =
        verbs.partition(|verb| ["get", "list", "watch"].contains(&verb.as_str()));
    (reads.len(), writes.len())
}

/// A configuration with one validating webhook, catch-all under `Fail` with 10 s, and `more` laid over it.
fn webhook(name: &str, more: &Value, url: &str, ca: &str) -> Value {
    let mut entry = json!({
        "name": format!("{name}.example.com"), "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": format!("{url}/admit"), "caBundle": ca}, "failurePolicy": "Fail", "timeoutSeconds": 10,
        "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}],
    });
    for (field, value) in more.as_object().unwrap() {
        entry[field] = value.clone();
    }
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name}, "webhooks": [entry],
    })
}

/// How many control planes stand at once. All of them are started before the first fault, and none starts while one is played.
const AT_ONCE: usize = 3;

fn foretold() -> Played {
    if binaries::find().unwrap().controllers.is_none() {
        return Played::Skipped(
            "no kube-controller-manager and kube-scheduler beside kube-apiserver".to_owned(),
        );
    }
    play(async {
        let (mut table, mut wrong) = (String::new(), Vec::new());
        let only = std::env::var("HOOKWATCH_FORETOLD").unwrap_or_default();
        let cases: Vec<Case> = all()
            .into_iter()
            .filter(|case| case.name.contains(&only))
            .collect();
        for some in cases.chunks(AT_ONCE) {
            let mut plays = Vec::new();
            for case in some {
                plays.push(Play::prepare(case).await);
            }
            // Known to the API servers, and at some phase of every timer.
            sleep(Duration::from_secs(7)).await;
            let seen = join_all(plays.into_iter().map(Play::watch)).await;
            for (case, (foretold, seen)) in some.iter().zip(seen) {
                compare(case, &foretold, &seen, &mut table, &mut wrong);
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(
            !only.is_empty() || cases.len() >= 20 && table.lines().count() > 60,
            "{table}"
        );
    })
}

/// Longest that an interval may be, in seconds: the phases of the timers that it follows from.
const fn widest(function: Function) -> u64 {
    match function {
        Function::LeaderElection => 3,
        Function::NodeHeartbeat => 20,
        _ => 15,
    }
}

/// Holds what was foretold of a case against what was seen.
fn compare(
    case: &Case,
    foretold: &[Casualty],
    seen: &BTreeMap<Function, Duration>,
    table: &mut String,
    wrong: &mut Vec<String>,
) {
    let mut print = |row: String, holds: bool| {
        println!("{row}{}", if holds { "" } else { "  WRONG" });
        let _ = writeln!(table, "{row}");
        if !holds {
            wrong.push(row);
        }
    };
    let name = format!("{:<24} {:<7}", case.name, case.failure.as_str());
    for &function in Function::ALL {
        let casualty = foretold.iter().find(|casualty| casualty.what == function);
        let at = seen.get(&function);
        if casualty.is_none() && at.is_none() {
            continue;
        }
        let holds = casualty.zip(at).is_some_and(|(casualty, at)| {
            let [earliest, latest] = casualty.after;
            (earliest..=latest).contains(at)
                && casualty.is_certain
                && latest - earliest <= Duration::from_secs(widest(function))
        });
        let interval = casualty.map_or("-".to_owned(), |casualty| {
            let [earliest, latest] = casualty.after.map(|after| after.as_secs_f64());
            format!("{earliest:.1} to {latest:.1}")
        });
        let at = at.map_or("-".to_owned(), |at| format!("{:.1}", at.as_secs_f64()));
        print(
            format!("{name} {:<18} {interval:<14} {at:>5}", function.as_str()),
            holds,
        );
    }
    if foretold.is_empty() && seen.is_empty() {
        print(format!("{name} nothing"), true);
    }
    // In the order foretold: what ends before another begins was lost before it.
    for (one, other) in foretold
        .iter()
        .flat_map(|one| foretold.iter().map(move |other| (one, other)))
    {
        let times = seen.get(&one.what).zip(seen.get(&other.what));
        if one.after[1] < other.after[0] && times.is_some_and(|(one, other)| one >= other) {
            print(format!("{name} {:?} before {:?}", one.what, other.what), false);
        }
    }
}
