//! What hookwatch says: a verdict per hook, and the state of the control plane.

use std::sync::Arc;

use serde::Serialize;

use crate::cluster::condition::BypassCondition;
use crate::cluster::hook::{Backend, BackendPath, HookId, HookKind, Subject};
use crate::diagnose::LOST_PATH;
use crate::observe::canary::CanaryTarget;
use crate::observe::views::CanaryView;
use crate::time::Time;
use crate::vocabulary::{BackendHealth, Cause, Effect, Health, NotAHook, Writes};

/// The judgement of one hook at one instant.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// A validating, mutating or conversion webhook, or an APIService.
    pub kind: HookKind,
    /// Its configuration; `None` when only metrics or a refusal named it and the inventory has no such hook.
    pub configuration: Option<Arc<str>>,
    /// The webhook's name.
    pub webhook: Arc<str>,
    /// The key of its incident: failing webhooks with the same key are one incident. It is where calls go, as
    /// namespace/service:port or host:port; the webhook's own name where that is not known; [`LOST_PATH`] while the path to all
    /// webhooks is lost at once.
    pub incident: String,
    /// Whether it works, as far as the evidence shows.
    pub health: Health,
    /// What is wrong; `None` exactly when it is healthy or unknown.
    pub cause: Option<Cause>,
    /// What the failure does to writes.
    pub effect: Effect,
    /// It is shielded, and without the shield it would hold requests past their deadline. The breaker's decision to restore it
    /// depends on this.
    #[serde(skip)]
    pub needs_shield: bool,
    /// Its calls fail and its failures are ignored: writes pass without its review, also where `effect` says that they wait.
    pub fails_open: bool,
    /// How likely it is that the right webhook is named, whatever the cause, as the campaign measures it, 0 to 1.
    pub webhook_confidence: f64,
    /// How likely it is that webhook and cause are right, 0 to 1.
    pub confidence: f64,
    /// The name of the rule that made it, from `diagnose::rules::TABLE`.
    pub rule: &'static str,
    /// Which part of the extra time per write is this hook's, 0 to 1; `None` when there is no extra time.
    pub excess_share: Option<f64>,
    /// Since when it has had this cause; `None` without a cause.
    pub since: Option<Time>,
    /// The verdict in one sentence.
    pub summary: String,
    /// The observations behind it, the strongest first, as sentences.
    pub evidence: Vec<String>,
    /// What an operator should do next; `None` when there is nothing to do.
    pub advice: Option<&'static str>,
    /// Every address behind it.
    pub backends: Vec<BackendView>,
    /// Which canaries its rules and selectors match; a bypass may still keep them from it.
    pub canaries: Vec<CanaryTarget>,
    /// The match condition by which hookwatch limits which requests are sent to it; `None` while it is not bypassed.
    pub bypass: Option<BypassCondition>,
    /// How to bypass it manually; `None` unless it fails, holds writes up and is not bypassed.
    pub by_hand: Option<BypassByHand>,
}

/// A command that bypasses a hook, for a person to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BypassByHand {
    /// The command. Of webhooks that fail together and take the same bypass, the command of the most urgent one names all.
    pub command: String,
    /// What it does, in a few sentences.
    pub meaning: String,
    /// The webhook, as CONFIG/WEBHOOK, whose command names this one too; `command` is then for this one alone.
    pub shared_with: Option<String>,
}

/// One backend as a person sees it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BackendView {
    /// The address and how it became known.
    #[serde(flatten)]
    pub backend: Backend,
    /// How its last probes ended.
    pub state: BackendHealth,
    /// A sentence about the last probe.
    pub detail: String,
}

/// Where calls go, as namespace/service:port or host:port, from the incident and the webhook of a verdict. `None` where it is not
/// known, and for the incident [`LOST_PATH`].
pub fn called_at<'a>(incident: &'a str, webhook: &str) -> Option<&'a str> {
    (!incident.is_empty() && incident != webhook && incident != LOST_PATH).then_some(incident)
}

impl Verdict {
    /// The hook that it is about: kind, configuration where known, webhook.
    pub fn subject(&self) -> Subject {
        (self.kind, self.configuration.clone(), Arc::clone(&self.webhook))
    }

    /// The hook; `None` where only metrics name it.
    pub fn hook(&self) -> Option<HookId> {
        Some(HookId {
            kind: self.kind,
            configuration: self.configuration.clone()?,
            webhook: Arc::clone(&self.webhook),
        })
    }

    /// Where its calls go, as namespace/service:port or host:port; see [`called_at`] for when this is `None`.
    pub fn called_at(&self) -> Option<&str> {
        called_at(&self.incident, &self.webhook)
    }

    /// The command that restores the hook; `None` where it is not bypassed, or its names cannot be pasted into a shell.
    pub fn restore_command(&self) -> Option<String> {
        self.bypass?;
        self.as_argument()
            .map(|hook| format!("hookwatch restore {hook} --kind {}", self.kind))
    }

    /// The hook as commands take it, CONFIG/WEBHOOK; `None` where its names cannot be pasted into a shell as they are.
    pub(crate) fn as_argument(&self) -> Option<String> {
        let (configuration, webhook) = (self.configuration.as_deref()?, &*self.webhook);
        let is_word = |name: &str| {
            name.chars()
                .all(|c| c.is_ascii_alphanumeric() || ".-_".contains(c))
        };
        (is_word(configuration) && is_word(webhook)).then(|| format!("{configuration}/{webhook}"))
    }

    /// It is failing and takes part in admission, so that it can be the reason for trouble with writes in general. Conversion
    /// webhooks and APIServices concern one resource or API version only.
    pub fn fails_admission(&self) -> bool {
        self.health == Health::Failing && self.kind.is_admission()
    }

    /// It is failing, users' writes reach it, and they wait for it or are refused. Also true of a hook that only metrics name, as
    /// its failurePolicy is not known.
    pub fn can_hold_writes_up(&self) -> bool {
        let holds_up =
            matches!(self.effect, Effect::Blocking | Effect::Delaying) || self.configuration.is_none();
        self.health == Health::Failing && self.is_asked() && holds_up
    }

    /// It takes part in admission, and users' writes reach it.
    pub fn is_asked(&self) -> bool {
        self.kind.is_admission() && !self.bypass.is_some_and(BypassCondition::covers_all_users)
    }

    /// All of its backends are dead by our probes. The ClusterIP counts only where there is no other backend.
    pub fn no_backend_answers(&self) -> bool {
        let is_endpoint = |it: &BackendView| it.backend.path != BackendPath::ClusterIp;
        let some = self.backends.iter().any(is_endpoint);
        let mut counted = self
            .backends
            .iter()
            .filter(|it| !some || is_endpoint(it))
            .peekable();
        counted.peek().is_some() && counted.all(|it| it.state == BackendHealth::Dead)
    }
}

/// A cause of slow or refused writes other than a hook.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NonHookCause {
    /// Which cause.
    pub cause: NotAHook,
    /// How likely it is right, 0 to 1.
    pub confidence: f64,
    /// The observations behind it, as sentences.
    pub evidence: Vec<String>,
}

/// The state of the control plane's writes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ControlPlane {
    /// Whether it takes writes.
    pub writes: Writes,
    /// Since when that is so.
    pub since: Time,
    /// One sentence, with the culprit where there is one.
    pub summary: String,
    /// Which clients give up next, and when, as sentences, while writes are blocked or a webhook holds them past their deadline.
    pub clocks: Vec<String>,
    /// Recent mean time per write, in seconds, without dry runs; `None` while no writes are counted.
    pub write_seconds: Option<f64>,
    /// The same for CREATE alone.
    pub create_seconds: Option<f64>,
    /// And for UPDATE, which PATCH and server-side apply count as.
    pub update_seconds: Option<f64>,
    /// The usual time per write, in seconds: the median of the means of calm intervals. `None` without any.
    pub usual_write_seconds: Option<f64>,
    /// What slows or blocks writes when it is no hook.
    pub not_a_hook: Option<NonHookCause>,
    /// Other symptoms of the control plane itself, as sentences: API servers that are not ready or do not answer, nodes
    /// with old Leases. Effects, never causes.
    pub symptoms: Vec<String>,
    /// How each canary does.
    pub canaries: Vec<CanaryView>,
}
