//! Conversion webhooks and aggregated APIs on the control plane in this process, watched by the daemon's own engine.

use std::net::{IpAddr, Ipv4Addr};

use base64::Engine as _;
use hookwatch::app::engine::Engine;
use hookwatch::domain::cluster::hook::HookKind;
use hookwatch::domain::report::assessment::Assessment;
use hookwatch::domain::vocabulary::{Cause, Effect, Health, Writes};
use hookwatch::io::report::metrics::Metrics;
use hookwatch::lab::api::{ApiServer, ApiServerOptions};
use hookwatch::lab::backend::{BackendRole, Behaviour, LabBackend};
use hookwatch::lab::certs::Authority;
use hookwatch::lab::cluster::{Cluster, client_for};
use hookwatch::lab::control_plane::BackendReach;
use hookwatch::lab::directory::PrivateDirectory;
use kube::Client;
use serde_json::{Value, json};

use crate::engines::{assessed, config};

const CRD: &str = "widgets.example.com";
const API: &str = "v1.metrics.example.com";

struct Lab {
    client: Client,
    converter: LabBackend,
    server: LabBackend,
}

impl Lab {
    /// A CRD with a conversion webhook and an APIService, each behind a Service of its own.
    async fn set_up(client: Client) -> Self {
        let authority = Authority::new("hookwatch lab").unwrap();
        let bundle = base64::prelude::BASE64_STANDARD.encode(authority.pem());
        let start = async |name: &str, host: u8, role| {
            let certificate = authority.issue(&format!("{name}.default.svc")).unwrap();
            let host = IpAddr::V4(Ipv4Addr::new(127, 0, 0, host));
            LabBackend::start_group(&[host], role, &certificate)
                .await
                .unwrap()
                .remove(0)
        };
        let lab = Self {
            client,
            converter: start("converter", 41, BackendRole::Conversion).await,
            server: start("metrics", 42, BackendRole::Aggregated).await,
        };
        for (name, backend) in [("converter", &lab.converter), ("metrics", &lab.server)] {
            let address = backend.address();
            // As the cluster's controller lists a Pod: of others hookwatch does not say how they fail.
            let labels = json!({"kubernetes.io/service-name": name,
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"});
            let pod = json!({"kind": "Pod", "namespace": "default", "name": name});
            let service = json!({"metadata": {"name": name},
                "spec": {"selector": {"app": name}, "ports": [{"port": 443}]}});
            lab.create("/api/v1/namespaces/default/services", &service).await;
            let slice = json!({"metadata": {"name": name, "labels": labels}, "addressType": "IPv4",
                "endpoints": [{"addresses": [address.ip()], "conditions": {"ready": true}, "targetRef": pod}],
                "ports": [{"name": "", "port": address.port()}]});
            let path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
            lab.create(path, &slice).await;
        }
        let definition = json!({"metadata": {"name": CRD}, "spec": {"group": "example.com",
            "names": {"plural": "widgets", "kind": "Widget"}, "scope": "Namespaced",
            "versions": [{"name": "v1", "served": true, "storage": true},
                {"name": "v2", "served": true, "storage": false}],
            "conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
                "clientConfig": {"caBundle": bundle,
                    "service": {"namespace": "default", "name": "converter", "path": "/convert"}}}}}});
        lab.create(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            &definition,
        )
        .await;
        let registration = json!({"metadata": {"name": API}, "spec": {"group": "metrics.example.com",
            "version": "v1", "caBundle": bundle, "groupPriorityMinimum": 100, "versionPriority": 10,
            "service": {"namespace": "default", "name": "metrics"}}});
        lab.create("/apis/apiregistration.k8s.io/v1/apiservices", &registration)
            .await;
        lab
    }

    async fn create(&self, path: &str, object: &Value) {
        let request = http::Request::post(path)
            .header("content-type", "application/json")
            .body(object.to_string().into_bytes())
            .unwrap();
        self.client.request_text(request).await.unwrap();
    }
}

/// Health, cause and effect of the hook of this kind.
fn found(assessment: &Assessment, kind: HookKind, name: &str) -> Option<(Health, Option<Cause>, Effect)> {
    let of = assessment
        .hooks
        .iter()
        .find(|verdict| verdict.kind == kind && *verdict.webhook == *name)?;
    Some((of.health, of.cause, of.effect))
}

const WELL: Option<(Health, Option<Cause>, Effect)> = Some((Health::Healthy, None, Effect::None));
const REFUSED: Option<(Health, Option<Cause>, Effect)> =
    Some((Health::Failing, Some(Cause::Refused), Effect::Blocking));

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_backends_of_both_kinds_are_named_and_no_other_hook_is_blamed() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let server = ApiServer::start(ApiServerOptions::default()).await.unwrap();
    let cluster = Cluster::start(&server.kubeconfig(), BackendReach::Loopback)
        .await
        .unwrap();
    let lab = Lab::set_up(client_for(&server.kubeconfig()).await.unwrap()).await;
    let directory = PrivateDirectory::create().unwrap();
    let kubeconfig = directory.write("kubeconfig", &server.kubeconfig()).unwrap();
    let config = config(&kubeconfig, "scrapes: {interval: 2s}\nprobes: {interval: 1s}");
    let engine = Engine::start(&config).await.unwrap();

    assessed(&engine, "everything is healthy", |assessment| {
        assessment.hooks.len() == 5
            && assessment
                .hooks
                .iter()
                .all(|verdict| verdict.health == Health::Healthy)
            && assessment.control_plane.writes == Writes::Flowing
    })
    .await;
    lab.converter.behave(Behaviour::Refused).await.unwrap();
    lab.server.behave(Behaviour::Refused).await.unwrap();
    let named = assessed(&engine, "both are named", |assessment| {
        found(assessment, HookKind::Conversion, CRD) == REFUSED
            && found(assessment, HookKind::Aggregated, API) == REFUSED
    })
    .await;
    assert_eq!(named.culprits().count(), 2, "{:#?}", named.hooks);
    assert_eq!(named.control_plane.writes, Writes::Flowing);
    assert_eq!(named.control_plane.not_a_hook, None);
    let metrics = Metrics::text(&engine.shown.metrics.families(Some(&named), &[])).unwrap();
    let metrics = String::from_utf8(metrics).unwrap();
    for kind in ["conversion", "aggregated"] {
        assert!(
            metrics
                .lines()
                .any(|line| line.starts_with("hookwatch_hook_cause")
                    && line.contains("cause=\"Refused\"")
                    && line.contains(&format!("kind=\"{kind}\""))),
            "{metrics}"
        );
    }

    lab.converter.behave(Behaviour::Healthy).await.unwrap();
    lab.server.behave(Behaviour::Healthy).await.unwrap();
    assessed(&engine, "both are healthy again", |assessment| {
        found(assessment, HookKind::Conversion, CRD) == WELL
            && found(assessment, HookKind::Aggregated, API) == WELL
    })
    .await;
    engine.stop().await;
    drop(cluster);
}
