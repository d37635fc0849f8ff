//! Whether a webhook is called: what hookwatch says, held against which calls a real API server made.
//!
//! Webhooks and requests are drawn by a fixed seed. All webhooks stand in one API server and ignore failures, so that each
//! request meets all that match it; a server in this process notes which of them were called.

mod requests;
mod webhooks;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hookwatch::domain::cluster::hook::{Hook, HookKind, Labels};
use hookwatch::domain::cluster::matching::conditions::{ConditionCompiler, MatchConditions};
use hookwatch::io::cluster::inventory::convert;
use hookwatch::lab::certs::Authority;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use serde_json::{Value, json};
use tokio_rustls::TlsAcceptor;

use self::requests::{KINDS, LABELS, NAMESPACES, askings, labels, metadata_labels, object, path, stands};
use self::webhooks::{Draw, PUBLISHED, webhook};
use super::privileges::cluster::{Cluster, play, until};
use super::{Named, Outcome as Played, named};

const SEED: u64 = 20_261_124;
/// Webhooks per configuration, and configurations.
const HOOKS: usize = 12;
const CONFIGURATIONS: usize = 6;
/// Called for every dry run, last of all: when it is, the others are known as well.
const MARKER: &str = "marker.example.com";

pub fn tests() -> Vec<Named> {
    vec![named(
        "a_webhook_is_called_exactly_where_the_matcher_says_so",
        matcher,
    )]
}

/// Notes who was called for dry runs.
async fn listen(authority: &Authority, called: Arc<Mutex<BTreeSet<String>>>) -> SocketAddr {
    let certificate = authority.issue("127.0.0.1").unwrap();
    let acceptor = TlsAcceptor::from(certificate.server_config().unwrap());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, called) = (acceptor.clone(), Arc::clone(&called));
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else {
                    return;
                };
                let answer = service_fn(move |request: Request<Incoming>| {
                    let called = Arc::clone(&called);
                    async move {
                        let path = request.uri().path().trim_start_matches('/').to_owned();
                        let body = request.into_body().collect().await.unwrap().to_bytes();
                        let review: Value = serde_json::from_slice(&body).unwrap();
                        if review["request"]["dryRun"] == true {
                            called.lock().unwrap_or_else(PoisonError::into_inner).insert(path);
                        }
                        let answer = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                                            "response": {"uid": review["request"]["uid"], "allowed": true}});
                        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(answer.to_string()))))
                    }
                });
                let _ = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), answer)
                    .await;
            });
        }
    });
    address
}

fn definition() -> Value {
    let version = |name: &str, stored: bool, is_served: bool| {
        json!({"name": name, "served": is_served, "storage": stored, "subresources": {"status": {}},
               "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.matcher.example"},
        "spec": {"group": "matcher.example", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
                 "versions": [version("v1", true, true), version("v2", false, true), version("v3", false, false),
                              version("v1beta1", false, false)]},
    })
}

/// Makes what requests are about, and reads it back as it is stored.
async fn stage(cluster: &Cluster) -> BTreeMap<(usize, usize, usize), Value> {
    cluster.apply(&definition()).await;
    for (name, pairs) in NAMESPACES {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels(pairs)}});
        cluster.apply(&namespace).await;
    }
    until("custom resources are served", async || {
        let request = Request::get("/apis/matcher.example/v2/widgets")
            .body(Body::empty())
            .unwrap();
        cluster
            .admin
            .send(request)
            .await
            .is_ok_and(|answer| answer.status().is_success())
    })
    .await;
    let mut stored = BTreeMap::new();
    for (at, kind) in KINDS.iter().enumerate() {
        for (place, (namespace, _)) in NAMESPACES.iter().enumerate() {
            if !kind.4 && place > 0 {
                continue;
            }
            for (of, pairs) in LABELS.iter().enumerate() {
                let made = object(kind, namespace, &stands(of), pairs);
                let base = path(kind, namespace);
                let request = Request::post(&base)
                    .header("content-type", "application/json")
                    .body(Body::from(made.to_string().into_bytes()))
                    .unwrap();
                let answer = cluster.admin.send(request).await.unwrap();
                // The same object in another group or version is there already.
                let status = answer.status().as_u16();
                assert!(
                    matches!(status, 201 | 409),
                    "{base}: {status} {:?}",
                    answer.into_body().collect().await.unwrap().to_bytes()
                );
                let found = cluster
                    .admin(Method::GET, &format!("{base}/{}", stands(of)), &Value::Null)
                    .await;
                stored.insert((at, place, of), found);
            }
        }
    }
    stored
}

fn matcher() -> Played {
    play(async {
        let cluster = Cluster::start().await;
        let stored = stage(&cluster).await;
        let authority = Authority::new("matcher").unwrap();
        let called = Arc::new(Mutex::new(BTreeSet::new()));
        let url = format!("https://{}", listen(&authority, Arc::clone(&called)).await);
        let ca = BASE64_STANDARD.encode(authority.pem());
        let mut draw = Draw(SEED);
        let mut hooks: Vec<(Arc<Hook>, MatchConditions, bool)> = Vec::new();
        let compiler = ConditionCompiler::for_forecasts();
        let mut used: BTreeSet<(&str, &str)> = BTreeSet::new();
        for at in 0..CONFIGURATIONS {
            let kind = if at % 2 == 0 {
                HookKind::Mutating
            } else {
                HookKind::Validating
            };
            let webhooks = (0..HOOKS).map(|entry| {
                webhook(
                    &mut draw,
                    (&format!("h{at}-{entry}.example.com"), at * HOOKS + entry),
                    &url,
                    &ca,
                )
            });
            let configuration = json!({
                "apiVersion": kind.api_version(), "kind": kind.configuration_kind(),
                "metadata": {"name": format!("matcher-{at}")}, "webhooks": webhooks.collect::<Vec<_>>(),
            });
            cluster.apply(&configuration).await;
            for hook in convert::hooks(kind, serde_json::from_value(configuration).unwrap()) {
                let conditions = compiler.conditions(
                    hook.match_conditions
                        .iter()
                        .map(|condition| &*condition.expression),
                );
                let published = hook.match_conditions.iter().filter_map(|condition| {
                    let known = PUBLISHED.iter().find(|(_, text)| *text == condition.expression)?;
                    used.insert(*known);
                    Some(known)
                });
                let conditional = published.count() > 0;
                hooks.push((Arc::new(hook), conditions, conditional));
            }
        }
        for kind in ["Mutating", "Validating"] {
            let mut marker = webhook(&mut Draw(1), (MARKER, 2), &url, &ca);
            marker["rules"] = json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]);
            marker["matchConditions"] = json!([]);
            (marker["namespaceSelector"], marker["objectSelector"]) = (json!({}), json!({}));
            cluster.apply(&json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{kind}WebhookConfiguration"),
                "metadata": {"name": "zz-marker"}, "webhooks": [marker],
            })).await;
        }
        let take = || std::mem::take(&mut *called.lock().unwrap_or_else(PoisonError::into_inner));
        let askings = askings(&mut draw, &stored);
        until("the webhooks are in force", async || {
            let answer = cluster.admin.send(askings[0].request()).await.unwrap();
            drop(answer.into_body().collect().await);
            take().contains(MARKER)
        })
        .await;
        // The informers of the two kinds are not in step.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let known_labels: BTreeMap<String, Labels> = namespaces(&cluster).await;
        let (mut pairs, mut calls, mut conditional, mut may, mut may_of_published, mut passed_over) =
            (0, 0, 0, 0, 0, 0);
        let mut wrong = Vec::new();
        for asking in &askings {
            take();
            let answer = cluster.admin.send(asking.request()).await.unwrap();
            let status = answer.status().as_u16();
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            let called = take();
            if !called.contains(MARKER) || status >= 300 {
                passed_over += 1;
                println!(
                    "passed over: {} {}: {status} {}",
                    asking.operation,
                    asking.target(),
                    String::from_utf8_lossy(&body)
                        .chars()
                        .take(200)
                        .collect::<String>()
                );
                continue;
            }
            for (hook, conditions, has_conditions) in &hooks {
                pairs += 1;
                let really = called.contains(&*hook.id.webhook);
                calls += usize::from(really);
                conditional += usize::from(*has_conditions);
                match asking.foretold(hook, conditions, &known_labels) {
                    None => {
                        may += 1;
                        may_of_published += usize::from(*has_conditions);
                    }
                    Some(foretold) if foretold == really => {}
                    Some(foretold) => wrong.push(format!(
                        "{} {} by {}: foretold {foretold}, called {really}: rules {:?} {:?}, namespaces {:?}, objects {:?}, conditions {:?}",
                        asking.operation, asking.target(), asking.by.user, hook.rules, hook.match_policy, hook.namespace_selector, hook.object_selector, hook.match_conditions
                    )),
                }
            }
        }
        let projects: BTreeSet<&str> = used.iter().map(|(project, _)| *project).collect();
        println!(
            "{pairs} pairs of {} requests and {} webhooks: {calls} called ({} %); {may} may match; {} wrong; {passed_over} requests \
             were passed over; {conditional} pairs with {} published conditions of {} projects ({}), {may_of_published} of them may \
             match ({:.1} %)",
            askings.len() - passed_over,
            hooks.len(),
            100 * calls / pairs.max(1),
            wrong.len(),
            used.len(),
            projects.len(),
            projects.iter().copied().collect::<Vec<_>>().join(", "),
            100.0 * may_of_published as f64 / conditional as f64,
        );
        assert!(
            wrong.is_empty(),
            "{} wrong:\n{}",
            wrong.len(),
            wrong.iter().take(12).cloned().collect::<Vec<_>>().join("\n")
        );
        assert!(pairs >= 2_000, "{pairs}");
        assert!((33..=67).contains(&(100 * calls / pairs)), "{calls} of {pairs}");
        assert!(
            conditional >= 400 && may_of_published * 10 <= conditional,
            "{may_of_published} of {conditional}"
        );
        assert!(used.len() >= 12 && projects.len() >= 5, "{used:?}");
        assert!(passed_over * 5 < askings.len(), "{passed_over}");
    })
}

/// The labels of all namespaces, as they are stored.
async fn namespaces(cluster: &Cluster) -> BTreeMap<String, Labels> {
    let list = cluster
        .admin(Method::GET, "/api/v1/namespaces", &Value::Null)
        .await;
    let items = list["items"].as_array().unwrap().iter();
    items
        .map(|item| {
            (
                item["metadata"]["name"].as_str().unwrap().to_owned(),
                metadata_labels(item),
            )
        })
        .collect()
}
