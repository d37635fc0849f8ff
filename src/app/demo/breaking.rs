//! The breaker in a demo: what it did to the lab's configurations, when writes flowed again, and whether everything came
//! back. It is watched as a stranger would watch it: by the daemon's assessment, the users' writes, and the objects.

use std::time::{Duration, Instant};

use anyhow::Context;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use serde::Serialize;
use serde_json::{Value, json};

use super::assessment::Assessment;
use super::judge::rounded;
use super::timeline::Event;
use crate::domain::bypass::{FIELD_MANAGER, touched};
use crate::lab::cluster::LabHook;
use crate::lab::workload::FirstSuccess;

/// Who owns the lab's configurations by server-side apply.
const OWNER: &str = "lab-owner";

/// What the breaker came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BreakerReport {
    /// How far the culprit was bypassed; `None` when it was not.
    pub rung: Option<String>,
    /// From the fault until every API server went by the bypass.
    pub bypassed_after_seconds: Option<f64>,
    /// From the fault to the end of the first create or update that was begun after it and succeeded.
    pub first_write_after_seconds: Option<f64>,
    /// The same in probe intervals.
    pub first_write_after_intervals: Option<f64>,
    /// Whether nothing is bypassed any more.
    pub restored: bool,
    /// Whether every configuration is what it was, and hookwatch owns nothing of it.
    pub restored_identical: bool,
}

/// Follows the breaker through one demo.
pub struct Breaking {
    client: kube::Client,
    originals: Vec<Value>,
    told: Option<String>,
    rung: Option<String>,
    bypassed_after: Option<Duration>,
    first_write: Option<Duration>,
    restored: bool,
    objections: Vec<String>,
}

impl Breaking {
    /// Begins: the owner applies each of the configurations, and they are noted as they are.
    ///
    /// # Errors
    /// When one cannot be read or applied.
    pub async fn begin(client: kube::Client) -> anyhow::Result<Self> {
        let mut originals = Vec::new();
        for hook in LabHook::ALL {
            let found = api(&client, hook).get(hook.configuration()).await?;
            let applied = apply(&client, hook, &serde_json::to_value(found)?, true).await?;
            originals.push(applied);
        }
        Ok(Self {
            client,
            originals,
            told: None,
            rung: None,
            bypassed_after: None,
            first_write: None,
            restored: false,
            objections: Vec::new(),
        })
    }

    /// Whether what is to be seen while the fault lasts was seen.
    pub fn is_through(&self) -> bool {
        self.bypassed_after.is_some() && self.first_write.is_some()
    }

    /// What an assessment and the users' writes bring that is new. `since` is when the fault was in force.
    pub fn observe(
        &mut self,
        since: Instant,
        assessment: &Assessment,
        first: Option<FirstSuccess>,
    ) -> Vec<Event> {
        let mut events = Vec::new();
        let after = since.elapsed();
        let standing = assessment.breaker.hooks.iter().find(|it| it.state != "enforcing");
        let state = standing.map(|it| match (it.state.as_str(), it.rung.as_deref(), it.effective) {
            ("bypassed", Some(rung), true) => rung.to_owned(),
            ("bypassed", _, _) => "under way".to_owned(),
            (state, ..) => state.to_owned(),
        });
        if let (Some(it), Some(state)) = (standing, &state)
            && self.told.as_ref() != Some(state)
            && state != "under way"
        {
            if it.rung.is_some() && self.bypassed_after.is_none() {
                (self.bypassed_after, self.rung) = (Some(after), it.rung.clone());
            }
            let what = match &it.rung {
                Some(rung) => format!("{} is bypassed ({rung}): {}", it.webhook, it.words),
                None => format!("{}: {}", it.webhook, it.words),
            };
            events.push(Event::Breaker {
                label: if it.rung.is_some() {
                    "bypassed"
                } else {
                    "probation"
                },
                text: what,
            });
        }
        if state.is_some() {
            self.told = state;
        }
        if self.first_write.is_none()
            && let Some(first) = first
        {
            let after = first.ended.saturating_duration_since(since);
            self.first_write = Some(after);
            let text = format!("{}, {:.1} s after the fault", first.request, after.as_secs_f64());
            events.push(Event::Breaker {
                label: "write succeeds",
                text,
            });
        }
        events
    }

    /// Whether nothing is bypassed any more, and whether every object is what it was.
    ///
    /// # Errors
    /// When the objects cannot be read.
    pub async fn look_at_objects(&mut self) -> anyhow::Result<bool> {
        let mut objections = Vec::new();
        let mut ours = false;
        for (hook, original) in LabHook::ALL.into_iter().zip(&self.originals) {
            let object = api(&self.client, hook).get(hook.configuration()).await?;
            let object = serde_json::to_value(object)?;
            let name = hook.configuration();
            ours |= !touched(&object).is_empty();
            for part in ["/webhooks", "/metadata/annotations", "/metadata/labels"] {
                // As text: to the byte.
                let text = |object: &Value| object.pointer(part).map(Value::to_string);
                if text(&object) != text(original) {
                    objections.push(format!("{part} of {name} is not what it was"));
                }
            }
            let claims = object["metadata"]["managedFields"].to_string();
            if claims.contains(&format!("\"manager\":\"{FIELD_MANAGER}\"")) {
                objections.push(format!("hookwatch still owns fields of {name}"));
            }
        }
        self.restored = !ours;
        self.objections = objections;
        Ok(self.restored && self.objections.is_empty())
    }

    /// The owner applies everything once more, without force.
    ///
    /// # Errors
    /// When a configuration cannot be reached at all.
    pub async fn apply_again(&mut self) -> anyhow::Result<()> {
        for (hook, original) in LabHook::ALL.into_iter().zip(&self.originals) {
            if let Err(error) = apply(&self.client, hook, original, false).await {
                let name = hook.configuration();
                self.objections
                    .push(format!("the owner cannot apply {name}: {error}"));
            }
        }
        Ok(())
    }

    /// What came of it, and what is wrong with that.
    pub fn report(&self, interval: Duration) -> (BreakerReport, Vec<String>) {
        let mut objections = self.objections.clone();
        if self.bypassed_after.is_none() {
            objections.push("the culprit was not bypassed".to_owned());
        }
        if self.first_write.is_none() {
            objections.push("no write succeeded while the fault lasted".to_owned());
        }
        if !self.restored {
            objections.push("a bypass is still there".to_owned());
        }
        let in_intervals =
            |after: Duration| (after.as_secs_f64() / interval.as_secs_f64() * 100.0).round() / 100.0;
        let report = BreakerReport {
            rung: self.rung.clone(),
            bypassed_after_seconds: self.bypassed_after.map(rounded),
            first_write_after_seconds: self.first_write.map(rounded),
            first_write_after_intervals: self.first_write.map(in_intervals),
            restored: self.restored,
            restored_identical: self.restored && self.objections.is_empty(),
        };
        (report, objections)
    }
}

fn api(client: &kube::Client, hook: LabHook) -> Api<DynamicObject> {
    let kind = hook.kind().configuration_kind();
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind));
    Api::all_with(client.clone(), &resource)
}

/// The owner's server-side apply of a configuration as it is there.
async fn apply(client: &kube::Client, hook: LabHook, object: &Value, force: bool) -> anyhow::Result<Value> {
    let wanted = json!({
        "apiVersion": hook.kind().api_version(), "kind": hook.kind().configuration_kind(),
        "metadata": {"name": hook.configuration()},
        "webhooks": object["webhooks"],
    });
    let mut parameters = PatchParams::apply(OWNER);
    parameters.force = force;
    let applied = api(client, hook)
        .patch(hook.configuration(), &parameters, &Patch::Apply(&wanted))
        .await
        .with_context(|| format!("applying {}", hook.configuration()))?;
    Ok(serde_json::to_value(applied)?)
}
