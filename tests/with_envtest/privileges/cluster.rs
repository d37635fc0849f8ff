//! A control plane with deploy/ applied to it, and ways to ask it as somebody.

use std::path::{Path, PathBuf};

use hookwatch::app::config::Config;
use hookwatch::domain::act::fence::{FENCE, MaySkip};
use hookwatch::lab::cluster::client_for;
use hookwatch::lab::directory::PrivateDirectory;
use hookwatch::lab::envtest::{Envtest, Options};
use http::{Method, Request};
use http_body_util::BodyExt;
use kube::Client;
use kube::api::{Api, DynamicObject, GroupVersionKind, Patch, PatchParams, TypeMeta};
use kube::client::Body;
use kube::discovery::{Scope, pinned_kind};
use serde_json::{Value, json};

use crate::Outcome;
use crate::versions::lacking;

pub use crate::engines::{assessed, until};

pub const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1";

pub struct Cluster {
    pub admin: Client,
    envtest: Envtest,
    // After the processes that write into it.
    directory: PrivateDirectory,
}

/// An API server's answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub body: Value,
}

impl Answer {
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    pub fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }
}

impl Cluster {
    pub async fn start() -> Self {
        Self::start_with(Options {
            audit: true,
            ..Options::default()
        })
        .await
    }

    pub async fn start_with(options: Options) -> Self {
        let directory = PrivateDirectory::create().unwrap();
        let envtest = Envtest::start_with(directory.path(), options).await.unwrap();
        let admin = client_for(&envtest.kubeconfig()).await.unwrap();
        Self {
            admin,
            envtest,
            directory,
        }
    }

    pub const fn envtest(&self) -> &Envtest {
        &self.envtest
    }

    /// The second number of its release.
    pub async fn minor(&self) -> u32 {
        let version = self.admin.apiserver_version().await.unwrap();
        version.minor.trim_end_matches('+').parse().unwrap()
    }

    /// With a folder of deploy/ applied.
    pub async fn with(folder: &str) -> Self {
        let cluster = Self::start().await;
        cluster.deploy(folder).await;
        cluster
    }

    /// Kills the API server.
    pub fn kill(&self) {
        self.envtest.kill();
    }

    /// Starts the API server again and waits until it is ready.
    pub async fn restart(&mut self) {
        self.envtest.restart().await.unwrap();
    }

    pub fn audit_log(&self) -> &Path {
        self.envtest.audit_log().unwrap()
    }

    /// Applies a folder of deploy/, without the kinds that this release does not have.
    pub async fn deploy(&self, folder: &str) {
        let lacking = lacking(self.minor().await);
        for object in manifests(folder) {
            if !lacking.iter().any(|kind| object["kind"] == *kind) {
                self.apply(&object).await;
            }
        }
    }

    pub async fn apply(&self, object: &Value) {
        apply(&self.admin, object).await;
    }

    /// As the administrator; anything but a success is a failure of the test.
    pub async fn admin(&self, method: Method, target: &str, body: &Value) -> Value {
        let answer = ask(&self.admin, method.clone(), target, body).await;
        assert!(answer.is_success(), "{method} {target}: {answer:?}");
        answer.body
    }

    /// A token of a service account of the namespace `hookwatch`, bound to an object if there is one.
    pub async fn token(&self, account: &str, bound_to: Option<&Value>) -> String {
        self.token_in("hookwatch", account, bound_to).await
    }

    /// The same in any namespace.
    pub async fn token_in(&self, namespace: &str, account: &str, bound_to: Option<&Value>) -> String {
        let target = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
        let mut body = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600},
        });
        if let Some(object) = bound_to {
            body["spec"]["boundObjectRef"] = json!({
                "apiVersion": object["apiVersion"], "kind": object["kind"], "name": object["metadata"]["name"],
                "uid": object["metadata"]["uid"],
            });
        }
        let answer = self.admin(Method::POST, &target, &body).await;
        answer["status"]["token"].as_str().unwrap().to_owned()
    }

    /// A kubeconfig whose user shows what is in a file, which is written here.
    pub fn kubeconfig(&self, name: &str, token: &str) -> (PathBuf, PathBuf) {
        let file = self.directory.write(&format!("{name}.token"), token).unwrap();
        let text: String = self
            .envtest
            .kubeconfig()
            .lines()
            .map(|line| {
                if line.trim_start().starts_with("token:") {
                    format!("    tokenFile: {}\n", file.display())
                } else {
                    format!("{line}\n")
                }
            })
            .collect();
        (
            self.directory
                .write(&format!("{name}.kubeconfig"), &text)
                .unwrap(),
            file,
        )
    }

    /// The administrator's kubeconfig, in a file.
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.directory
            .write("admin.kubeconfig", &self.envtest.kubeconfig())
            .unwrap()
    }

    /// A kubeconfig, as text, whose user shows a token.
    pub fn kubeconfig_with(&self, token: &str) -> String {
        self.kubeconfig_text()
            .lines()
            .map(|line| {
                if line.trim_start().starts_with("token:") {
                    format!("    token: {token}\n")
                } else {
                    format!("{line}\n")
                }
            })
            .collect()
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig_text(&self) -> String {
        self.envtest.kubeconfig()
    }

    /// A client that is a service account of the namespace `hookwatch`.
    pub async fn client(&self, account: &str) -> Client {
        let token = self.token(account, None).await;
        client_for(&self.kubeconfig_with(&token)).await.unwrap()
    }

    /// Names configurations in the fence's parameter.
    pub async fn let_skip(&self, configurations: &[&str]) {
        let policy = format!("{CONFIGURATIONS}/validatingadmissionpolicies/{FENCE}");
        let at = "/spec/variables/0";
        let named = json!([
            {"op": "test", "path": format!("{at}/name"), "value": MaySkip::VARIABLE},
            {"op": "replace", "path": format!("{at}/expression"), "value": json!(configurations).to_string()},
        ]);
        self.admin(Method::PATCH, &policy, &named).await;
    }

    /// Writes configurations, and what they refer to, that no request of these tests meets.
    pub async fn with_hooks(&self) {
        self.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "hooks"}}))
            .await;
        self.apply(&json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "policy", "namespace": "hooks"},
            "spec": {"ports": [{"port": 443, "targetPort": 8443}]},
        }))
        .await;
        self.apply(&json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": "policy-1", "namespace": "hooks", "labels": {"kubernetes.io/service-name": "policy"}},
            "endpoints": [
                {"addresses": ["192.0.2.1"], "conditions": {"ready": true}, "nodeName": "only"},
                {"addresses": ["192.0.2.2"], "conditions": {"ready": true}, "nodeName": "only"},
            ],
            "ports": [{"port": 8443}],
        }))
        .await;
        self.apply(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "only"}}))
            .await;
        for kind in ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"] {
            self.apply(&configuration(kind, "policy")).await;
        }
        // There is no such Service, so that nobody is called: an API server looks after the APIs of others by itself.
        let client_config = json!({"service": {"namespace": "hooks", "name": "nowhere"}});
        self.apply(&json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "policies.hooks.example.com", "annotations": {"hookwatch.dev/probe": "off"}},
            "spec": {
                "group": "hooks.example.com", "scope": "Namespaced",
                "names": {"plural": "policies", "singular": "policy", "kind": "Policy", "listKind": "PolicyList"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}},
                }],
                "conversion": {"strategy": "Webhook", "webhook": {
                    "conversionReviewVersions": ["v1"], "clientConfig": client_config,
                }},
            },
        }))
        .await;
        let mut api = json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": "v1.policy.example.com", "annotations": {"hookwatch.dev/probe": "off"}},
            "spec": {
                "group": "policy.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10,
                "insecureSkipTLSVerify": true,
            },
        });
        api["spec"]["service"] = client_config["service"].clone();
        self.apply(&api).await;
    }
}

/// A configuration with one webhook behind a Service. It is not probed, for nobody is there, and not called, for
/// nobody writes what it asks for.
pub fn configuration(kind: &str, name: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": {"name": name, "annotations": {"hookwatch.dev/probe": "off"}},
        "webhooks": [{
            "name": format!("{}.example.com", kind.to_lowercase()),
            "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail", "timeoutSeconds": 10,
            "clientConfig": {"service": {"namespace": "hooks", "name": "policy"}},
            "namespaceSelector": {"matchLabels": {"team": "a"}},
            "rules": [{
                "apiGroups": ["example.com"], "apiVersions": ["*"], "operations": ["*"], "resources": ["widgets"],
            }],
        }],
    })
}

/// Every object that a kustomization of deploy/ is made of, in order.
pub fn manifests(folder: &str) -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(folder);
    let read = |path: &Path| {
        std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let kustomization: Value = serde_saphyr::from_str(&read(&folder.join("kustomization.yaml"))).unwrap();
    let mut objects = Vec::new();
    let list = |key: &str| kustomization[key].as_array().cloned().unwrap_or_default();
    // Patches of components and overlays are passed over: what they change concerns the Pods.
    for resource in list("resources").into_iter().chain(list("components")) {
        let path = folder.join(resource.as_str().unwrap());
        if path.is_dir() {
            objects.extend(manifests(path.to_str().unwrap()));
        } else {
            let documents = read(&path);
            let documents = documents.split("\n---\n");
            objects.extend(documents.map(|document| serde_saphyr::from_str::<Value>(document).unwrap()));
        }
    }
    objects
}

/// Applies an object as `kubectl apply --server-side` does, and takes no field that the API server does not know.
pub async fn apply(admin: &Client, object: &Value) {
    let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    let TypeMeta { api_version, kind } = object.types.clone().unwrap();
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let kind_of_it = GroupVersionKind::gvk(group, version, &kind);
    let (resource, capabilities) = pinned_kind(admin, &kind_of_it).await.unwrap();
    let api: Api<DynamicObject> = match (capabilities.scope, object.metadata.namespace.as_deref()) {
        (Scope::Namespaced, namespace) => {
            Api::namespaced_with(admin.clone(), namespace.expect("a namespace"), &resource)
        }
        (Scope::Cluster, None) => Api::all_with(admin.clone(), &resource),
        (Scope::Cluster, Some(namespace)) => panic!("{kind} is in no namespace, not in {namespace}"),
    };
    let name = object.metadata.name.clone().unwrap();
    let how = PatchParams::apply("installer").validation_strict().force();
    if let Err(error) = api.patch(&name, &how, &Patch::Apply(&object)).await {
        panic!("{kind} {name}: {error}");
    }
}

/// A patch is a list of steps, or else what is merged.
pub fn content_type(method: &Method, body: &Value) -> &'static str {
    match *method {
        Method::PATCH if body.is_array() => "application/json-patch+json",
        Method::PATCH => "application/merge-patch+json",
        _ => "application/json",
    }
}

pub async fn ask(client: &Client, method: Method, target: &str, body: &Value) -> Answer {
    let content_type = content_type(&method, body);
    ask_as(client, method, target, content_type, body).await
}

pub async fn ask_as(
    client: &Client,
    method: Method,
    target: &str,
    content_type: &str,
    body: &Value,
) -> Answer {
    let request = Request::builder()
        .method(method)
        .uri(target)
        .header("content-type", content_type)
        .header("accept", "application/json");
    let body = match body {
        Value::Null => Vec::new(),
        body => body.to_string().into_bytes(),
    };
    let answer = client
        .send(request.body(Body::from(body)).unwrap())
        .await
        .unwrap();
    let status = answer.status().as_u16();
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    Answer {
        status,
        body: serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned())),
    }
}

/// The daemon's configuration, at the highest pace.
pub fn config(kubeconfig: &Path, more: &str) -> Config {
    let text = format!(
        "scrapes: {{interval: 1s, alertInterval: 1s}}\ncanaries: {{interval: 1s, alertInterval: 1s}}\n{more}\n"
    );
    crate::engines::config(kubeconfig, &text)
}

pub fn block_on(test: impl Future<Output = ()>) {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(test);
}

pub fn play(test: impl Future<Output = ()>) -> Outcome {
    block_on(test);
    Outcome::Held
}
