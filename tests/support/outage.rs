//! A lab's configurations and their owner, for tests of daemons with the breaker on.

use std::path::Path;

use hookwatch::app::config::Config;
use hookwatch::domain::act::breaker::{Book, HookStanding};
use hookwatch::domain::act::bypass::{BypassStanding, Rung, STATE_ANNOTATION, touched};
use hookwatch::domain::act::ledger;
use hookwatch::domain::cluster::hook::HookKind;
use hookwatch::domain::report::assessment::Assessment;
use hookwatch::domain::vocabulary::Health;
use hookwatch::lab::cluster::{LabHook, configurations};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, PostParams};
use serde_json::{Value, json};

use crate::engines::breaking;
pub use crate::engines::{GUARD, assessed, until};

/// The configurations, as their owner has applied them.
pub struct Outage {
    client: Client,
    originals: Vec<(LabHook, Value)>,
}

impl Outage {
    /// The owner applies each configuration once.
    pub async fn begin(client: &Client) -> Self {
        let client = client.clone();
        let mut originals = Vec::new();
        for &hook in LabHook::ALL {
            let found = hook.read(&client).await.unwrap();
            originals.push((hook, hook.apply(&client, &found, true).await.unwrap()));
        }
        Self { client, originals }
    }

    pub async fn standing(&self, hook: LabHook) -> Option<BypassStanding> {
        standing(&hook.read(&self.client).await.unwrap(), hook)
    }

    /// Waits until `is_so` holds for a hook's bypass; `None` when it has none.
    pub async fn until(&self, hook: LabHook, what: &str, is_so: impl Fn(Option<&BypassStanding>) -> bool) {
        until(what, async || is_so(self.standing(hook).await.as_ref())).await;
    }

    /// Asserts that each object is as its owner wrote it or has the data to restore that.
    pub async fn assert_restorable(&self, what: &str) {
        for (hook, original) in &self.originals {
            let object = hook.read(&self.client).await.unwrap();
            match standing(&object, *hook) {
                None => assert_eq!(parts(&object), parts(original), "{what}"),
                Some(BypassStanding::Bypassed { .. }) => {}
                Some(other) => panic!("{what}: {other:?}"),
            }
        }
    }

    /// Asserts that every object is restored, hookwatch owns nothing in it, and its owner can apply it without a conflict.
    pub async fn assert_restored(&self, what: &str) {
        for (hook, original) in &self.originals {
            let object = hook.read(&self.client).await.unwrap();
            assert_eq!(parts(&object), parts(original), "{what}");
            let owned = object["metadata"]["managedFields"].to_string();
            let claims = [
                "\"manager\":\"hookwatch\"",
                STATE_ANNOTATION,
                "{\\\"name\\\":\\\"hookwatch.dev/",
            ];
            assert!(
                !claims.iter().any(|claim| owned.contains(claim)),
                "{what}: {owned}"
            );
            if let Err(error) = hook.apply(&self.client, original, false).await {
                panic!(
                    "{what}: the owner cannot apply {}: {error:#}",
                    hook.configuration()
                );
            }
        }
    }

    /// The content of the ledger.
    pub async fn book(&self) -> Book {
        let api = configurations(&self.client, HookKind::Validating);
        let object = api.get_opt(ledger::OBJECT).await.unwrap();
        let annotations = object.and_then(|object| object.metadata.annotations);
        let text = annotations.and_then(|mut all| all.remove(ledger::ANNOTATION));
        ledger::LedgerReading::of(text.as_deref()).book().unwrap()
    }

    /// Waits until nothing is bypassed, in the objects and in the ledger.
    pub async fn restored(&self, what: &str) {
        for &hook in LabHook::ALL {
            self.until(hook, what, |standing| standing.is_none()).await;
        }
        until(what, async || {
            self.book()
                .await
                .entries
                .values()
                .all(|entry| !entry.counts_as_bypassed())
        })
        .await;
        self.assert_restored(what).await;
    }
}

/// A hook's bypass by its object; `None` when nothing in it is hookwatch's.
pub fn standing(object: &Value, hook: LabHook) -> Option<BypassStanding> {
    let mut touched = touched(object);
    assert!(touched.len() < 2, "each of the lab's objects has one webhook");
    let (webhook, standing) = touched.pop()?;
    assert_eq!(webhook, hook.webhook());
    let text = object["metadata"]["annotations"][STATE_ANNOTATION].as_str();
    let text = text.unwrap_or_else(|| panic!("nothing says what was there: {object}"));
    let noted: Value = serde_json::from_str(text).unwrap();
    assert_eq!(
        noted["webhooks"].as_object().map(|all| all.len()),
        Some(1),
        "{text}"
    );
    Some(standing)
}

/// The parts of an object that only its owner may change, as text for a comparison byte for byte.
fn parts(object: &Value) -> [Option<String>; 3] {
    ["/webhooks", "/metadata/annotations", "/metadata/labels"]
        .map(|part| object.pointer(part).map(Value::to_string))
}

/// A daemon's configuration with the breaker on, one rung permitted, and the shortest intervals of observation.
pub fn config(kubeconfig: &Path, rung: Rung) -> Config {
    // If shield were permitted as well, it would come first.
    breaking(kubeconfig, &[rung])
}

pub fn all_is_well(assessment: &Assessment) -> bool {
    let well = assessment
        .hooks
        .iter()
        .filter(|hook| hook.health == Health::Healthy);
    well.count() == LabHook::ALL.len()
}

/// The breaker's state of a hook in an assessment.
pub fn told(assessment: &Assessment, hook: LabHook) -> Option<&HookStanding> {
    let mut hooks = assessment.breaker.hooks.iter();
    hooks.find(|standing| &*standing.hook.webhook == hook.webhook())
}

/// Catch-all webhooks at a closed port that match only hookwatch's canaries, as an attacker would install them to use up
/// the budget of bypasses.
#[allow(
    dead_code,
    reason = "not every test that plays an outage has a saboteur in it"
)]
pub struct Traps(Api<ValidatingWebhookConfiguration>, Api<DynamicObject>);

#[allow(dead_code, reason = "as above")]
impl Traps {
    const NAMES: [&str; 2] = ["trap-1", "trap-2"];
    const API: &str = "v1.trap.example.com";

    pub async fn set(client: &Client) -> Self {
        let apis = GroupVersionKind::gvk("apiregistration.k8s.io", "v1", "APIService");
        let apis = Api::all_with(client.clone(), &ApiResource::from_gvk(&apis));
        let traps = Self(Api::all(client.clone()), apis);
        let broken = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": Self::API},
            "spec": {"group": "trap.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10,
                "insecureSkipTLSVerify": true, "service": {"namespace": "default", "name": "no-such"}}});
        let broken = serde_json::from_value(broken).unwrap();
        traps.1.create(&PostParams::default(), &broken).await.unwrap();
        for name in Self::NAMES {
            let object = serde_json::from_value(json!({
                "metadata": {"name": name},
                "webhooks": [{
                    "name": "w.trap.example.com",
                    "clientConfig": {"url": "https://127.0.0.1:1/"},
                    "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}],
                    "failurePolicy": "Fail", "timeoutSeconds": 5, "sideEffects": "None",
                    "admissionReviewVersions": ["v1"],
                    "matchConditions": [{
                        "name": "canaries-alone",
                        "expression": "has(request.name) && request.name.endsWith('-canary')",
                    }],
                }],
            }));
            let created = traps.0.create(&PostParams::default(), &object.unwrap()).await;
            created.unwrap();
        }
        traps
    }

    /// Whether each of them fails, and none is bypassed for it.
    pub fn are_left_alone(assessment: &Assessment) -> bool {
        let fail = |name: &&str| {
            let mut hooks = assessment.hooks.iter();
            hooks.any(|hook| hook.configuration.as_deref() == Some(*name) && hook.health == Health::Failing)
        };
        let left_alone = |name: &&str| {
            let mut hooks = assessment.breaker.hooks.iter();
            hooks.any(|told| {
                &*told.hook.configuration == *name
                    && told.state == "enforcing"
                    && told.held_back.as_deref() == Some("nothing_to_shield")
            })
        };
        let mut hooks = assessment.hooks.iter();
        let api = hooks.any(|hook| &*hook.webhook == Self::API && hook.health == Health::Failing);
        api && Self::NAMES.iter().all(|name| fail(name) && left_alone(name))
    }

    pub async fn take_away(self) {
        for name in Self::NAMES {
            self.0.delete(name, &DeleteParams::default()).await.unwrap();
        }
        self.1.delete(Self::API, &DeleteParams::default()).await.unwrap();
    }
}
