//! The Pod of the Deployment, run as the manifests say: these arguments, this configuration, this account.

use serde_json::{Value, json};

use super::lab::{done, get};
use super::room::{self, Daemon};
use crate::privileges::cluster::Cluster;

const ACCOUNT_FILES: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// What a kubelet does of the Deployment that an API server has: its files, its account, its arguments.
pub async fn pod(cluster: &Cluster) -> Daemon {
    let deployment = get(
        cluster,
        "/apis/apps/v1/namespaces/hookwatch/deployments/hookwatch",
    )
    .await;
    let spec = &deployment["spec"]["template"]["spec"];
    let container = &spec["containers"][0];
    let mut files = Vec::new();
    for mount in container["volumeMounts"].as_array().unwrap() {
        let volumes = spec["volumes"].as_array().unwrap();
        let volume = volumes
            .iter()
            .find(|volume| volume["name"] == mount["name"])
            .unwrap();
        let name = volume["configMap"]["name"].as_str().unwrap();
        let map = get(
            cluster,
            &format!("/api/v1/namespaces/hookwatch/configmaps/{name}"),
        )
        .await;
        for (key, text) in map["data"].as_object().unwrap() {
            let path = format!("{}/{key}", mount["mountPath"].as_str().unwrap());
            files.push((path, text.as_str().unwrap().to_owned()));
        }
    }
    assert_eq!(spec["automountServiceAccountToken"], true);
    let account = spec["serviceAccountName"].as_str().unwrap();
    for (name, text) in [
        ("token", cluster.token(account, None).await),
        ("namespace", "hookwatch".to_owned()),
        ("ca.crt", authority(cluster)),
    ] {
        files.push((format!("{ACCOUNT_FILES}/{name}"), text));
    }
    let arguments: Vec<String> = serde_json::from_value(container["args"].clone()).unwrap();
    let address = cluster.envtest().address();
    let variables = [
        ("KUBERNETES_SERVICE_HOST", address.ip().to_string()),
        ("KUBERNETES_SERVICE_PORT", address.port().to_string()),
    ];
    assert_eq!(spec["securityContext"]["runAsNonRoot"], true);
    room::start(&arguments, &variables, &files, user_of_the_image())
}

fn user_of_the_image() -> i64 {
    let image = include_str!("../../../deploy/Containerfile");
    let user = image.lines().find_map(|line| line.strip_prefix("USER ")).unwrap();
    user.split(':').next().unwrap().parse().unwrap()
}

/// What is trusted to name the API server, in PEM.
fn authority(cluster: &Cluster) -> String {
    let kubeconfig: Value = serde_saphyr::from_str(&cluster.envtest().kubeconfig()).unwrap();
    let data = &kubeconfig["clusters"][0]["cluster"]["certificate-authority-data"];
    let pem = base64::Engine::decode(&base64::prelude::BASE64_STANDARD, data.as_str().unwrap()).unwrap();
    String::from_utf8(pem).unwrap()
}

/// Whether nothing that it needs in order to see is missing.
fn sees_everything(assessment: &Value) -> bool {
    let sources = &assessment["sources"];
    let scrapes = sources["scrapes"].as_array();
    let canaries = assessment["control_plane"]["canaries"].as_array();
    sources["inventory_age_seconds"].is_number()
        && sources["inventory_trouble"] == json!([])
        && sources["api_servers_trouble"].is_null()
        && ["current", "none"].contains(&sources["node_leases"]["state"].as_str().unwrap_or_default())
        && scrapes.is_some_and(|scrapes| {
            scrapes.iter().any(|scrape| {
                scrape["age_seconds"].is_number()
                    && scrape["failure"].is_null()
                    && scrape["readiness"]["state"] == "ready"
                    && scrape["version"].is_string()
            })
        })
        && canaries.is_some_and(|canaries| {
            canaries.len() == 3 && canaries.iter().all(|canary| canary["state"] == "written")
        })
        && assessment["replica"]["role"] == "Leader"
}

pub async fn the_pod_as_it_is_shipped_does_the_whole_job() {
    let cluster = Cluster::start().await;
    cluster.with_hooks().await;
    let kubeconfig = cluster.admin_kubeconfig();
    done(
        &kubeconfig,
        "kubectl apply --server-side --validate=strict -k deploy/overlays/observe",
    )
    .await;
    let mut daemon = pod(&cluster).await;
    let assessment = daemon
        .assessed("everything is seen", |assessment| {
            sees_everything(assessment)
                && assessment["hooks"]
                    .as_array()
                    .is_some_and(|hooks| hooks.len() == 4)
        })
        .await;
    assert_eq!(assessment["breaker"]["effective"], "plan", "{assessment:#}");

    // What is asked for from outside the Pod is apart from what is not.
    let (page, metrics) = (daemon.ports.page, daemon.ports.metrics);
    for (port, path, status) in [
        (metrics, "/live", 200),
        (metrics, "/ready", 200),
        (metrics, "/metrics", 200),
        (metrics, "/", 404),
        (metrics, "/api/v1/assessment", 404),
        (page, "/metrics", 404),
        (page, "/", 200),
    ] {
        let answer = daemon.get(port, path).await;
        assert_eq!(answer.map(|(status, _)| status), Some(status), "{port} {path}");
    }
    // Its log is what a collector of logs expects.
    for line in daemon.said().lines() {
        assert!(serde_json::from_str::<Value>(line).is_ok(), "{line}");
    }
    assert!(daemon.terminate().await, "it did not end when it was asked to");
}
