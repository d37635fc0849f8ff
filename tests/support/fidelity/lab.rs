//! A control plane of either kind, with raw requests and answers.

use std::time::{Duration, Instant};

use hookwatch::lab::api::{ApiServer, ApiServerOptions};
use hookwatch::lab::control_plane::{ControlPlaneKind, LabControlPlane};
use hookwatch::lab::directory::PrivateDirectory;
use http_body_util::BodyExt;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::ask::{Answer, Ask};
use super::{WITH_CONDITIONS, by_version};

/// Timeout of a request: longer than an API server allows for a write.
const LIMIT: Duration = Duration::from_secs(60);
/// Timeout of other waits.
const PATIENCE: Duration = Duration::from_secs(30);

/// The two kinds of webhook configurations, as URLs name them.
pub const VALIDATING: &str = "validatingwebhookconfigurations";
pub const MUTATING: &str = "mutatingwebhookconfigurations";

/// The path of webhook configurations, or of one of them.
pub fn configurations(resource: &str, name: &str) -> String {
    let path = format!("/apis/admissionregistration.k8s.io/v1/{resource}");
    if name.is_empty() {
        path
    } else {
        format!("{path}/{name}")
    }
}

/// A running control plane.
pub struct Lab {
    pub kind: ControlPlaneKind,
    /// The version that it reports.
    pub version: String,
    pub kubeconfig: String,
    /// Its limit on the duration of a write.
    pub request_limit: Duration,
    client: Client,
    beacons: Mutex<u32>,
    pub plane: Mutex<LabControlPlane>,
    /// The last field, so that it is removed after the processes that use it have ended.
    pub directory: PrivateDirectory,
}

impl Lab {
    /// Starts a control plane; `sooner` is a shorter request limit for the embedded one.
    pub async fn start(kind: ControlPlaneKind, sooner: Option<Duration>) -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let directory = PrivateDirectory::create().unwrap();
        let mut options = ApiServerOptions::default();
        let request_limit = sooner.unwrap_or(options.request_limit);
        options.request_limit = request_limit;
        let plane = match kind {
            ControlPlaneKind::Embedded => LabControlPlane::Embedded(ApiServer::start(options).await.unwrap()),
            ControlPlaneKind::Envtest => LabControlPlane::start(kind, directory.path()).await.unwrap(),
        };
        let kubeconfig = plane.kubeconfig();
        let mut lab = Self {
            kind,
            version: String::new(),
            client: client(&kubeconfig).await,
            kubeconfig,
            request_limit,
            beacons: Mutex::new(0),
            plane: Mutex::new(plane),
            directory,
        };
        let version = lab.send(&Ask::get("/version")).await;
        lab.version = version.body["gitVersion"].as_str().unwrap().to_owned();
        lab.permit_everything().await;
        lab
    }

    /// Its minor version.
    pub fn minor(&self) -> u32 {
        by_version::minor(&self.version)
    }

    /// Sends a request and returns the raw answer.
    pub async fn send(&self, ask: &Ask) -> Answer {
        let answer = self.try_to_send(ask).await;
        answer.unwrap_or_else(|error| panic!("{} {}: {error:?}", ask.method, ask.path))
    }

    /// Like [`Self::send`], but returns an error if the connection breaks.
    pub async fn try_to_send(&self, ask: &Ask) -> kube::Result<Answer> {
        let begin = Instant::now();
        let answer = tokio::time::timeout(LIMIT, self.client.send(ask.to_http()))
            .await
            .unwrap_or_else(|_| panic!("no answer to {} {}", ask.method, ask.path))?;
        let (parts, body) = answer.into_parts();
        let body = body.collect().await?.to_bytes();
        let text = String::from_utf8_lossy(&body).into_owned();
        let warnings = parts.headers.get_all("warning");
        Ok(Answer {
            status: parts.status.as_u16(),
            took: begin.elapsed(),
            body: serde_json::from_str(&text).unwrap_or(Value::Null),
            text,
            warnings: warnings
                .iter()
                .map(|value| value.to_str().unwrap().to_owned())
                .collect(),
        })
    }

    /// Sends a request that must succeed; returns the body.
    pub async fn done(&self, ask: &Ask) -> Value {
        let answer = self.send(ask).await;
        assert!(
            (200..300).contains(&answer.status),
            "{} {}: {}",
            ask.method,
            ask.path,
            answer.text
        );
        answer.body
    }

    /// Creates an object that may already exist.
    pub async fn have(&self, path: &str, body: Value) {
        let answer = self.send(&Ask::post(path, body)).await;
        assert!(matches!(answer.status, 201 | 409), "{path}: {}", answer.text);
    }

    pub async fn namespace(&self, name: &str) {
        self.have("/api/v1/namespaces", json!({"metadata": {"name": name}}))
            .await;
    }

    /// The metrics as text.
    pub async fn metrics(&self) -> String {
        self.send(&Ask::get("/metrics")).await.text
    }

    /// Deletes all hooks that an earlier case left behind.
    pub async fn clear(&self) {
        for resource in [VALIDATING, MUTATING] {
            let list = self.done(&Ask::get(&configurations(resource, ""))).await;
            for item in list["items"].as_array().unwrap() {
                let name = item["metadata"]["name"].as_str().unwrap();
                self.done(&Ask::delete(&configurations(resource, name))).await;
            }
        }
        for resource in [VALIDATING, MUTATING] {
            self.settle(resource).await;
        }
    }

    /// Waits until the API server uses every webhook configuration as written.
    ///
    /// A real API server learns of its own writes through a watch, in order. So this writes one more configuration, the beacon,
    /// whose match condition errs: once a probe write gets that error, all earlier configurations are in force. The error comes
    /// before any hook is called. On a release without match conditions, the beacon selects the probe by a label and refuses it
    /// after all hooks were called.
    pub async fn settle(&self, resource: &str) {
        let mut beacons = self.beacons.lock().await;
        *beacons += 1;
        let name = format!("beacon-{}", *beacons);
        let has_conditions = self.minor() >= WITH_CONDITIONS;
        let expression = format!(
            "has(request.name) && request.name == \"{name}\" && request.subResource == \"there is none\""
        );
        let mut beacon = json!({
            "name": "beacon.fidelity.example",
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "rules": [{
                "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"],
            }],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 1,
        });
        if has_conditions {
            beacon["matchConditions"] = json!([{"name": "beacon", "expression": expression}]);
        } else {
            beacon["objectSelector"] = json!({"matchLabels": {"beacon": name}});
        }
        let path = configurations(resource, "000-beacon");
        let there = self.send(&Ask::get(&path)).await;
        if there.status == 404 {
            let beacon = json!({"metadata": {"name": "000-beacon"}, "webhooks": [beacon]});
            self.done(&Ask::post(&configurations(resource, ""), beacon)).await;
        } else {
            let patch = json!([{"op": "replace", "path": "/webhooks/0", "value": beacon}]);
            self.done(&Ask::json_patch(&path, patch)).await;
        }
        let secret = json!({"metadata": {"name": name, "labels": {"beacon": name}}});
        let probe = Ask::post("/api/v1/namespaces/default/secrets", secret).dry_run();
        let begin = Instant::now();
        loop {
            let answer = self.send(&probe).await;
            let (status, said) = if has_conditions {
                (403, "no such key")
            } else {
                (500, "beacon.fidelity.example")
            };
            if answer.status == status && answer.text.contains(said) {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "not in force: {}", answer.text);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Permits everything to everyone on a real control plane, because the cases are about admission. The embedded one has no
    /// authorization.
    async fn permit_everything(&self) {
        let subjects = ["system:authenticated", "system:unauthenticated"]
            .map(|group| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}));
        let binding = json!({
            "metadata": {"name": "fidelity"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": subjects,
        });
        let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
        self.done(&Ask::post(path, binding)).await;
        let probe = Ask::post(
            "/api/v1/namespaces/default/configmaps",
            json!({"metadata": {"name": "may-i"}}),
        );
        let probe = probe.user("system:anonymous", &[]).dry_run();
        let begin = Instant::now();
        while self.send(&probe).await.status != 201 {
            assert!(begin.elapsed() < PATIENCE, "the binding has no effect");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// A client without retries.
async fn client(kubeconfig: &str) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).unwrap();
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    config.default_retry = false;
    Client::try_from(config).unwrap()
}
