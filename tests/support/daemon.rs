//! A daemon with its breaker on, and a lab in which others write as well.

#![allow(dead_code, reason = "each of the tests takes what it needs")]

use std::path::PathBuf;
use std::time::Duration;

use hookwatch::app::engine::{Engine, clock};
use hookwatch::domain::act::breaker::{BreakerTimes, HookStanding};
use hookwatch::domain::act::bypass::edit::{Author, Desired, Why};
use hookwatch::domain::act::bypass::{ObjectWriter, Rung, STATE_ANNOTATION, touched};
use hookwatch::domain::cluster::hook::{HookId, HookKind};
use hookwatch::domain::report::assessment::Assessment;
use hookwatch::domain::vocabulary::Health;
use hookwatch::io::act::breaker::{ApiServerClient, ConfigWriter, PatchOutcome, RetryPolicy};
use hookwatch::io::report::metrics::Metrics;
use hookwatch::lab::api::{ApiServer, ApiServerOptions};
use hookwatch::lab::backend::Behaviour;
use hookwatch::lab::cluster::{Cluster, LabHook, client_for, configurations};
use hookwatch::lab::control_plane::BackendReach;
use hookwatch::lab::directory::PrivateDirectory;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::engines::{assessed, breaking, brief, spec};
use crate::programs::hookwatch;

/// Timeout of a test's waits.
const LONG: Duration = Duration::from_secs(120);
/// The hook that fails. It matches Services and Leases, so Events can still be written.
pub const HOOK: LabHook = LabHook::Quota;
/// Another webhook in the same object, which matches nothing.
pub const NEIGHBOUR: &str = "neighbour.example.com";

pub struct Lab {
    /// The embedded control plane; `None` for a real one.
    pub server: Option<ApiServer>,
    pub cluster: Cluster,
    pub client: Client,
    pub hook: HookId,
    /// The configuration as its owner wrote it.
    pub original: Value,
    writer: ConfigWriter,
    _directory: PrivateDirectory,
    kubeconfig: PathBuf,
    /// Path of the daemons' audit log.
    pub audit_log: PathBuf,
}

impl Lab {
    /// On the embedded control plane.
    pub async fn start() -> Self {
        // Fails only if another test of this process has already installed it.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let server = ApiServer::start(ApiServerOptions::default()).await.unwrap();
        let mut lab = Self::on(server.kubeconfig(), BackendReach::Loopback).await;
        lab.server = Some(server);
        lab
    }

    /// On the control plane of this kubeconfig.
    pub async fn on(kubeconfig: String, reach: BackendReach) -> Self {
        let cluster = Cluster::start(&kubeconfig, reach).await.unwrap();
        let client = client_for(&kubeconfig).await.unwrap();
        let servers = vec![ApiServerClient::new("lab", client.clone(), true)];
        let directory = PrivateDirectory::create().unwrap();
        let mut lab = Self {
            hook: HookId::new(HOOK.kind(), HOOK.configuration(), HOOK.webhook()),
            writer: ConfigWriter::new(servers, clock(), RetryPolicy::default()),
            kubeconfig: directory.write("kubeconfig", &kubeconfig).unwrap(),
            audit_log: directory.path().join("audit.jsonl"),
            original: Value::Null,
            server: None,
            cluster,
            client,
            _directory: directory,
        };
        let mut neighbour = lab.read().await["webhooks"][0].clone();
        neighbour["name"] = NEIGHBOUR.into();
        neighbour["rules"] = json!([{
            "apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["widgets"],
        }]);
        lab.patch(json!([{"op": "add", "path": "/webhooks/-", "value": neighbour}]))
            .await;
        lab.original = lab.read().await;
        lab
    }

    pub async fn daemon(&self, rungs: &[Rung]) -> Engine {
        let mut config = breaking(&self.kubeconfig, rungs);
        config.without_fence = true;
        config.audit_log = Some(self.audit_log.clone());
        config.breaker_times = BreakerTimes {
            retry_after: Duration::from_secs(1),
            ..brief()
        };
        config.breaker.fallback.page = Some("somebody".into());
        let engine = Engine::start(&config).await.unwrap();
        let is_known = |it: &Assessment| {
            let mut hooks = it.hooks.iter();
            hooks.any(|hook| *hook.webhook == *self.hook.webhook && hook.health != Health::Unknown)
        };
        assessed(&engine, "the hook is known", is_known).await;
        engine
    }

    /// The lines of the audit log.
    pub fn audited(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.audit_log).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    pub async fn behave(&self, behaviour: Behaviour) {
        let all = HOOK.backends();
        self.cluster.behave(HOOK, all, &behaviour).await.unwrap();
    }

    /// The configuration as it is now.
    pub async fn read(&self) -> Value {
        let read = self.writer.read(self.hook.kind, &self.hook.configuration).await;
        read.unwrap().unwrap()
    }

    pub async fn ledger(&self) -> Value {
        let read = self.writer.read(HookKind::Validating, "hookwatch-ledger").await;
        let ledger = read.unwrap().unwrap();
        let text = ledger["metadata"]["annotations"]["hookwatch.dev/ledger"].as_str();
        serde_json::from_str(text.unwrap()).unwrap()
    }

    /// Waits until `is_so` holds for the configuration.
    pub async fn becomes(&self, engine: &Engine, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let found = async {
            loop {
                let object = self.read().await;
                if is_so(&object) {
                    return object;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        match tokio::time::timeout(LONG, found).await {
            Ok(object) => object,
            Err(_) => {
                let last = engine.shown.assessment.borrow().clone();
                let object = self.read().await;
                panic!(
                    "not in time: {what}\n{:#?}\n{object:#}",
                    last.map(|last| last.breaker.clone())
                )
            }
        }
    }

    pub async fn bypassed(&self, engine: &Engine) -> Value {
        self.becomes(engine, "it is bypassed", |it| is_bypassed(it, &self.hook))
            .await
    }

    /// Waits until nothing of hookwatch is left in the configuration.
    pub async fn free(&self, engine: &Engine) -> Value {
        self.becomes(engine, "nothing is left of hookwatch's", is_free)
            .await
    }

    fn api(&self) -> Api<DynamicObject> {
        configurations(&self.client, self.hook.kind)
    }

    /// Deletes the ledger.
    pub async fn forget(&self) {
        let forgotten = self.api().delete("hookwatch-ledger", &Default::default()).await;
        forgotten.unwrap();
    }

    /// Changes the configuration with a JSON patch by another field manager.
    pub async fn patch(&self, patch: Value) -> Value {
        let path = format!(
            "{}/{}?fieldManager=somebody",
            self.hook.kind.path(),
            self.hook.configuration
        );
        let request = http::Request::patch(path)
            .header("content-type", "application/json-patch+json")
            .body(patch.to_string().into_bytes());
        self.client.request(request.unwrap()).await.unwrap()
    }

    /// Replaces the whole configuration, as `kubectl replace` and Helm do, with what `change` makes of the current one.
    pub async fn replace(&self, change: impl Fn(&mut Value)) -> Value {
        loop {
            let mut object = self.read().await;
            change(&mut object);
            let object: DynamicObject = serde_json::from_value(object).unwrap();
            let replaced = self
                .api()
                .replace(&self.hook.configuration, &PostParams::default(), &object)
                .await;
            match replaced {
                Ok(object) => return serde_json::to_value(object).unwrap(),
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// The owner applies the original with server-side apply and `force`.
    pub async fn apply(&self) {
        let mut object = self.original.clone();
        let metadata = object["metadata"].as_object_mut().unwrap();
        for key in [
            "managedFields",
            "resourceVersion",
            "uid",
            "generation",
            "creationTimestamp",
        ] {
            metadata.remove(key);
        }
        object["apiVersion"] = self.hook.kind.api_version().into();
        object["kind"] = self.hook.kind.configuration_kind().into();
        let owner = PatchParams::apply("owner").force();
        let applied = self
            .api()
            .patch(&self.hook.configuration, &owner, &Patch::Apply(object))
            .await;
        applied.unwrap();
    }

    /// A person sets `failurePolicy: Ignore` through hookwatch, as on an API server without match conditions.
    pub async fn ignored_by_hand(&self) {
        let person = Author {
            namespace: "hookwatch".to_owned(),
            account: String::new(),
            writer: ObjectWriter {
                identity: "anna@desk".to_owned(),
                version: "0.1.0".to_owned(),
            },
            match_conditions: false,
            fenced: false,
        };
        let why = Why {
            reason: "it hangs".to_owned(),
            evidence: Vec::new(),
            expires: None,
        };
        let report = self
            .writer
            .carry_out(&self.hook, &Desired::Ignore { why }, &person)
            .await;
        assert_eq!(report.outcome, PatchOutcome::Applied, "{:?}", report.steps);
    }

    /// Runs the hookwatch command line as a person.
    pub async fn by_hand(&self, words: &[&str]) -> (Option<i32>, String) {
        let mut command = hookwatch();
        command.args(words).arg("--kubeconfig").arg(&self.kubeconfig);
        command.env("USER", "anna");
        let output = tokio::task::spawn_blocking(move || command.output().unwrap());
        let output = output.await.unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&said).into_owned())
    }

    pub fn target(&self) -> String {
        format!("{}/{}", self.hook.configuration, self.hook.webhook)
    }
}

/// Waits until the breaker publishes this state of the hook.
pub async fn standing(
    lab: &Lab,
    engine: &Engine,
    what: &str,
    is_so: impl Fn(&HookStanding) -> bool,
) -> HookStanding {
    let of = |it: &Assessment| -> Option<HookStanding> {
        let mut hooks = it.breaker.hooks.iter();
        hooks.find(|standing| standing.hook == lab.hook).cloned()
    };
    let found = assessed(engine, what, |it| of(it).as_ref().is_some_and(&is_so)).await;
    of(&found).unwrap()
}

pub fn metrics(engine: &Engine) -> String {
    let assessment = engine.shown.assessment.borrow().clone().unwrap();
    let metrics = Metrics::text(&engine.shown.metrics.families(Some(&assessment), &[])).unwrap();
    String::from_utf8(metrics).unwrap()
}

pub fn is_bypassed(object: &Value, hook: &HookId) -> bool {
    use hookwatch::domain::act::bypass::{BypassPhase, BypassStanding, standing};
    let standing = standing(object, &hook.webhook);
    matches!(
        standing,
        BypassStanding::Bypassed {
            phase: BypassPhase::Bypassed,
            ..
        }
    )
}

pub fn is_free(object: &Value) -> bool {
    touched(object).is_empty() && annotation(object).is_none()
}

pub fn annotation(object: &Value) -> Option<&str> {
    object["metadata"]["annotations"][STATE_ANNOTATION].as_str()
}

/// Asserts that the object is as expected, apart from the metadata that the API server writes.
pub fn assert_is(object: &Value, expected: &Value) {
    let short = |object: &Value| {
        let mut object = spec(object);
        for hook in object["webhooks"].as_array_mut().unwrap() {
            hook["clientConfig"] = Value::Null;
            hook["rules"] = Value::Null;
        }
        object.to_string()
    };
    assert!(
        spec(object) == spec(expected),
        "\n{}\n{}",
        short(object),
        short(expected)
    );
}

/// The index of a webhook in its object.
pub fn place(object: &Value, webhook: &str) -> usize {
    let mut hooks = object["webhooks"].as_array().unwrap().iter();
    hooks.position(|hook| hook["name"] == *webhook).unwrap()
}
