//! Conversion webhooks and aggregated APIServices on a real API server, watched by the daemon's own engine.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use hookwatch::app::engine::Engine;
use hookwatch::domain::cluster::hook::HookKind;
use hookwatch::domain::diagnose::verdict::Verdict;
use hookwatch::domain::report::assessment::Assessment;
use hookwatch::domain::vocabulary::{Cause, Effect, Health};
use hookwatch::lab::backend::{BackendRole, Behaviour, LabBackend};
use hookwatch::lab::certs::Authority;
use hookwatch::lab::cluster::client_for;
use hookwatch::lab::directory::PrivateDirectory;
use hookwatch::lab::envtest::Envtest;
use kube::Client;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::privileges::cluster::play;
use super::{Named, Outcome, named, needs};
use crate::engines::config;

/// A guard against waiting in vain, not a measurement: the aggregator looks at a service every half minute, and an API
/// server tries a failed conversion again about as rarely.
const GUARD: Duration = Duration::from_secs(120);
const REGISTRATIONS: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

pub fn tests() -> Vec<Named> {
    vec![named(
        "hooks_of_other_kinds_are_named_by_what_a_real_api_server_says_of_them",
        hooks_of_other_kinds_are_named_by_what_a_real_api_server_says_of_them,
    )]
}

fn hooks_of_other_kinds_are_named_by_what_a_real_api_server_says_of_them() -> Outcome {
    play(async {
        let directory = PrivateDirectory::create().unwrap();
        let control_plane = Envtest::start(directory.path()).await.unwrap();
        let kubeconfig = directory
            .write("kubeconfig", &control_plane.kubeconfig())
            .unwrap();
        let client = client_for(&control_plane.kubeconfig()).await.unwrap();
        let lab = Lab::set_up(client).await;
        let config = config(&kubeconfig, "scrapes: {interval: 2s}\nprobes: {interval: 1s}");
        let engine = Engine::start(&config).await.unwrap();
        lab.play(&engine).await;
        engine.stop().await;
    })
}

struct Lab {
    client: Client,
    widgets: LabBackend,
    gadgets: LabBackend,
}

impl Lab {
    /// Two CRDs with a conversion webhook each and an object of each, and two APIServices: one to a Service that does
    /// not exist, and one that the API server answers for itself.
    async fn set_up(client: Client) -> Self {
        let authority = Authority::new("hookwatch lab").unwrap();
        let certificate = authority.issue("127.0.0.1").unwrap();
        let start = async || {
            let group = LabBackend::start_group(&[HERE], BackendRole::Conversion, &certificate).await;
            group.unwrap().remove(0)
        };
        let (widgets, gadgets) = (start().await, start().await);
        let lab = Self {
            client,
            widgets,
            gadgets,
        };
        for (resource, kind, backend) in [
            ("widgets", "Widget", &lab.widgets),
            ("gadgets", "Gadget", &lab.gadgets),
        ] {
            lab.create(
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
                &definition(resource, kind, backend, &authority),
            )
            .await;
            lab.until_served(&format!("/apis/lab.hookwatch.dev/v2/{resource}"))
                .await;
            let object = json!({"apiVersion": "lab.hookwatch.dev/v1", "kind": kind,
                "metadata": {"name": "one"}, "spec": {"size": 1}});
            lab.create(
                &format!("/apis/lab.hookwatch.dev/v1/namespaces/default/{resource}"),
                &object,
            )
            .await;
        }
        lab.create(
            "/api/v1/namespaces/default/services",
            &json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "empty"},
                "spec": {"ports": [{"port": 443}]}}),
        )
        .await;
        for (group, service) in [("missing", Some("nowhere")), ("empty", None)] {
            lab.create(REGISTRATIONS, &registration(group, service)).await;
        }
        lab
    }

    async fn play(&self, engine: &Engine) {
        let well = |verdict: &Verdict| verdict.health == Health::Healthy;
        self.until(engine, "both converters are healthy", |assessment| {
            ["widgets", "gadgets"]
                .iter()
                .all(|resource| converter(assessment, resource).is_some_and(well))
        })
        .await;
        let missing = self
            .until(engine, "a missing Service is named", |assessment| {
                api(assessment, "missing").is_some_and(|verdict| verdict.health == Health::Failing)
            })
            .await;
        let verdict = api(&missing, "missing").unwrap();
        assert_eq!(
            (verdict.cause, verdict.effect),
            (Some(Cause::NoService), Effect::Blocking)
        );
        let evidence = verdict.evidence.join(" ");
        assert!(
            evidence.contains("not available")
                && evidence.contains("ServiceNotFound")
                && evidence.contains("Service default/nowhere does not exist"),
            "{evidence}"
        );
        assert!(api(&missing, "empty").is_none(), "it is the API server's own");
        let path = format!("{REGISTRATIONS}/v1alpha1.empty.hookwatch.dev");
        self.patch(&path, &registration("empty", Some("empty"))).await;
        let empty = self
            .until(engine, "a Service without endpoints is named", |assessment| {
                api(assessment, "empty").is_some_and(|verdict| verdict.health == Health::Failing)
            })
            .await;
        assert_eq!(api(&empty, "empty").unwrap().cause, Some(Cause::NoEndpoints));

        self.gadgets.behave(Behaviour::Refused).await.unwrap();
        let named = self
            .until(engine, "a converter that refuses is named", |assessment| {
                converter(assessment, "gadgets").is_some_and(|verdict| verdict.health == Health::Failing)
            })
            .await;
        let verdict = converter(&named, "gadgets").unwrap();
        assert_eq!(
            (verdict.cause, verdict.effect),
            (Some(Cause::Refused), Effect::Blocking)
        );
        let evidence = verdict.evidence.join(" ");
        assert!(
            evidence.contains("failed conversions of gadgets.lab.hookwatch.dev")
                && evidence.contains("gadgets in group lab.hookwatch.dev only"),
            "{evidence}"
        );
        assert!(
            converter(&named, "widgets").is_some_and(well),
            "{:?}",
            named.hooks
        );
        assert_ne!(named.control_plane.writes.as_str(), "blocked");
        self.only_another_version_than_the_stored_one_fails().await;
        keep(&self.text("/metrics").await.unwrap());
        let conclusion = hookwatch::app::diagnose::Conclusion::of(&named);
        assert_eq!(conclusion.exit_code(), 1, "a hook is failing");

        self.gadgets.behave(Behaviour::Healthy).await.unwrap();
        self.until(engine, "the converter is healthy again", |assessment| {
            converter(assessment, "gadgets").is_some_and(well)
        })
        .await;

        self.widgets.behave(Behaviour::HangAfterTls).await.unwrap();
        let named = self
            .until(engine, "a converter that hangs is named", |assessment| {
                converter(assessment, "widgets").is_some_and(|verdict| verdict.health == Health::Failing)
            })
            .await;
        let verdict = converter(&named, "widgets").unwrap();
        assert_eq!(
            (verdict.cause, verdict.effect),
            (Some(Cause::Hanging), Effect::Blocking)
        );
        let evidence = verdict.evidence.join(" ");
        assert!(
            evidence.contains("after 30.0 s each") || evidence.contains(", 30.0 s each"),
            "{evidence}"
        );
        assert_ne!(named.control_plane.writes.as_str(), "blocked");
        self.widgets.behave(Behaviour::Healthy).await.unwrap();
    }

    /// What the verdict says of its effect, held to the API server.
    async fn only_another_version_than_the_stored_one_fails(&self) {
        let path = |version: &str| format!("/apis/lab.hookwatch.dev/{version}/namespaces/default/gadgets");
        let failed = |answer: kube::Result<String>| {
            let error = answer.unwrap_err().to_string();
            assert!(
                error.contains("conversion webhook for lab.hookwatch.dev/v")
                    && error.contains("connection refused"),
                "{error}"
            );
        };
        failed(self.text(&format!("{}/one", path("v2"))).await);
        let object = |version: &str| {
            json!({"apiVersion": format!("lab.hookwatch.dev/{version}"), "kind": "Gadget",
                "metadata": {"name": format!("by-{version}")}})
        };
        failed(self.post(&path("v2"), &object("v2")).await);
        // Until an object changes, lists come from the API server's cache, which was converted before; up to 1.30 they come from
        // etcd (feature gate `ConsistentListFromCache`).
        let unchanged = self.text(&path("v2")).await;
        if needs::minor() < 31 {
            failed(unchanged);
        } else {
            unchanged.unwrap();
        }
        self.post(&path("v1"), &object("v1")).await.unwrap();
        failed(self.text(&path("v2")).await);
        for read in ["", "/one"] {
            self.text(&format!("{}{read}", path("v1"))).await.unwrap();
        }
    }

    /// Reads both resources in both versions again and again, as their users would, until an assessment is as it
    /// should be.
    async fn until(
        &self,
        engine: &Engine,
        what: &str,
        fits: impl Fn(&Assessment) -> bool,
    ) -> Arc<Assessment> {
        let mut assessments = engine.shown.assessment.clone();
        let users = async {
            loop {
                for resource in ["widgets", "gadgets"] {
                    // Whether it is answered is not the users' to judge.
                    let _ = self
                        .text(&format!(
                            "/apis/lab.hookwatch.dev/v2/namespaces/default/{resource}/one"
                        ))
                        .await;
                }
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        };
        let found = assessments.wait_for(|assessment| assessment.as_deref().is_some_and(&fits));
        let found = async { found.await.unwrap().clone().unwrap() };
        let outcome = timeout(GUARD, async {
            tokio::select! {
                found = found => found,
                () = users => unreachable!("users never stop"),
            }
        });
        match outcome.await {
            Ok(found) => found,
            Err(_) => panic!(
                "waited in vain until {what}: {:#?}",
                *engine.shown.assessment.borrow()
            ),
        }
    }

    async fn create(&self, path: &str, object: &Value) {
        self.post(path, object).await.unwrap();
    }

    async fn post(&self, path: &str, object: &Value) -> kube::Result<String> {
        let request = http::Request::post(path)
            .header("content-type", "application/json")
            .body(object.to_string().into_bytes())
            .unwrap();
        self.client.request_text(request).await
    }

    async fn patch(&self, path: &str, patch: &Value) {
        let request = http::Request::patch(path)
            .header("content-type", "application/merge-patch+json")
            .body(patch.to_string().into_bytes())
            .unwrap();
        self.client.request_text(request).await.unwrap();
    }

    async fn text(&self, path: &str) -> kube::Result<String> {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        self.client.request_text(request).await
    }

    async fn until_served(&self, path: &str) {
        let served = async {
            while self.text(path).await.is_err() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        timeout(GUARD, served).await.unwrap();
    }
}

fn definition(resource: &str, kind: &str, backend: &LabBackend, authority: &Authority) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object",
        "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}});
    let version = |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": schema});
    let bundle = base64::prelude::BASE64_STANDARD.encode(authority.pem());
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{resource}.lab.hookwatch.dev")},
        "spec": {
            "group": "lab.hookwatch.dev",
            "names": {"plural": resource, "kind": kind},
            "scope": "Namespaced",
            "versions": [version("v1", true), version("v2", false)],
            "conversion": {"strategy": "Webhook", "webhook": {
                "conversionReviewVersions": ["v1"],
                "clientConfig": {"url": format!("https://{}/convert", backend.address()), "caBundle": bundle},
            }},
        },
    })
}

fn registration(group: &str, service: Option<&str>) -> Value {
    let group = format!("{group}.hookwatch.dev");
    let mut object = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": format!("v1alpha1.{group}")},
        "spec": {"group": group, "version": "v1alpha1", "groupPriorityMinimum": 100, "versionPriority": 10}});
    if let Some(service) = service {
        object["spec"]["service"] = json!({"namespace": "default", "name": service});
        object["spec"]["insecureSkipTLSVerify"] = json!(true);
    }
    object
}

fn converter<'a>(assessment: &'a Assessment, resource: &str) -> Option<&'a Verdict> {
    let name = format!("{resource}.lab.hookwatch.dev");
    assessment
        .hooks
        .iter()
        .find(|verdict| verdict.kind == HookKind::Conversion && *verdict.webhook == *name)
}

fn api<'a>(assessment: &'a Assessment, group: &str) -> Option<&'a Verdict> {
    let name = format!("v1alpha1.{group}.hookwatch.dev");
    assessment
        .hooks
        .iter()
        .find(|verdict| verdict.kind == HookKind::Aggregated && *verdict.webhook == *name)
}

/// With `HOOKWATCH_KEEP_METRICS` set to a file, what the API server said of these kinds is written there: so the fixture
/// of the pure tests was made.
fn keep(metrics: &str) {
    let Some(path) = std::env::var_os("HOOKWATCH_KEEP_METRICS") else {
        return;
    };
    let wanted = [
        "apiserver_crd_conversion_webhook_",
        "apiserver_conversion_webhook_",
        "aggregator_unavailable_",
    ];
    let lines: Vec<&str> = metrics
        .lines()
        .filter(|line| {
            wanted.iter().any(|name| {
                line.trim_start_matches("# HELP ")
                    .trim_start_matches("# TYPE ")
                    .starts_with(name)
            })
        })
        .collect();
    std::fs::write(path, lines.join("\n") + "\n").unwrap();
}
