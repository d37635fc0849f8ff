//! The whole API server, over the wire, with an ordinary client.

mod admission;
mod backend;
mod failures;
mod objects;

use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

use super::{ApiServer, ApiServerOptions};
use backend::Backend;

/// Nothing here takes long; what hangs shall fail.
const GUARD: Duration = Duration::from_secs(20);

struct Lab {
    server: ApiServer,
    client: Client,
}

impl Lab {
    async fn start() -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let server = ApiServer::start(ApiServerOptions::default())
            .await
            .expect("starts");
        server.knobs().set_storage_latency(Duration::ZERO, 0.0);
        let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig()).expect("a kubeconfig");
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .expect("a configuration");
        // By default the client repeats what is answered with 429, 503 or 504.
        config.default_retry = false;
        let client = Client::try_from(config).expect("a client");
        Self { server, client }
    }

    fn configmaps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), "default")
    }

    async fn create(&self, name: &str) -> kube::Result<ConfigMap> {
        create(&self.client, name, false).await
    }

    /// Creates a ConfigMap that must be refused; the code and the message.
    async fn refused(&self, name: &str) -> (u16, String) {
        refusal(self.create(name).await)
    }

    async fn get(&self, path: &str) -> String {
        let request = http::Request::get(path).body(Vec::new()).expect("a request");
        self.client.request_text(request).await.expect("an answer")
    }

    /// The sum of all samples of a family whose labels contain each of `labels`.
    async fn metric(&self, family: &str, labels: &[&str]) -> f64 {
        let text = self.get("/metrics").await;
        text.lines()
            .filter(|line| line.split(['{', ' ']).next() == Some(family))
            .filter(|line| labels.iter().all(|label| line.contains(label)))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }

    /// Registers webhooks in one configuration.
    async fn register(&self, mutating: bool, name: &str, webhooks: Vec<Value>) {
        let object = json!({"metadata": {"name": name}, "webhooks": webhooks});
        let parameters = PostParams::default();
        if mutating {
            let api: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
            let object = serde_json::from_value(object).expect("a configuration");
            api.create(&parameters, &object).await.expect("created");
        } else {
            let api: Api<ValidatingWebhookConfiguration> = Api::all(self.client.clone());
            let object = serde_json::from_value(object).expect("a configuration");
            api.create(&parameters, &object).await.expect("created");
        }
    }

    /// A Service with endpoints at the addresses of backends.
    async fn service(&self, name: &str, endpoints: &[(std::net::SocketAddr, bool)]) {
        let services: Api<k8s_openapi::api::core::v1::Service> =
            Api::namespaced(self.client.clone(), "default");
        let service = json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 443}]}});
        let service = serde_json::from_value(service).expect("a Service");
        services
            .create(&PostParams::default(), &service)
            .await
            .expect("created");
        let slices: Api<k8s_openapi::api::discovery::v1::EndpointSlice> =
            Api::namespaced(self.client.clone(), "default");
        // Backends differ in their ports, so each has a slice of its own.
        for (index, (address, ready)) in endpoints.iter().enumerate() {
            let slice = json!({
                "metadata": {
                    "name": format!("{name}-{index}"),
                    "labels": {"kubernetes.io/service-name": name},
                },
                "addressType": "IPv4",
                "endpoints": [{"addresses": [address.ip().to_string()], "conditions": {"ready": ready}}],
                "ports": [{"name": "", "port": address.port()}],
            });
            let slice = serde_json::from_value(slice).expect("an EndpointSlice");
            slices
                .create(&PostParams::default(), &slice)
                .await
                .expect("created");
        }
    }
}

async fn create(client: &Client, name: &str, dry_run: bool) -> kube::Result<ConfigMap> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let object = json!({"metadata": {"name": name}, "data": {"k": "v"}});
    let object = serde_json::from_value(object).expect("a ConfigMap");
    let parameters = PostParams {
        dry_run,
        ..PostParams::default()
    };
    tokio::time::timeout(GUARD, api.create(&parameters, &object))
        .await
        .expect("an answer in time")
}

fn refusal<T: std::fmt::Debug>(outcome: kube::Result<T>) -> (u16, String) {
    match outcome {
        Err(kube::Error::Api(status)) => (status.code, status.message.clone()),
        other => panic!("not refused: {other:?}"),
    }
}

/// A webhook over ConfigMaps at a URL.
fn webhook(name: &str, backend: &Backend) -> Value {
    let mut webhook = json!({
        "name": name,
        "clientConfig": {"url": format!("https://localhost:{}/admit", backend.address.port())},
        "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["*"], "resources": ["configmaps"]}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 5,
    });
    webhook["clientConfig"]["caBundle"] = json!(backend.ca_bundle());
    webhook
}

/// The same behind the Service `default/NAME`.
fn service_webhook(name: &str, service: &str, ca_bundle: &str) -> Value {
    json!({
        "name": name,
        "clientConfig": {
            "service": {"namespace": "default", "name": service, "path": "/admit"},
            "caBundle": ca_bundle,
        },
        "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["*"], "resources": ["configmaps"]}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 5,
    })
}
