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
    /// Validating or mutating.
    pub kind: HookKind,
    /// Its configuration; `None` when only metrics or a refusal named it and the inventory has no such hook.
    pub configuration: Option<Arc<str>>,
    /// The webhook's name.
    pub webhook: Arc<str>,
    /// Where its calls go, as namespace/service:port or host:port: webhooks that fail and have this in common are one
    /// incident. Where that is not known, the webhook's own name; [`LOST_PATH`] as
    /// long as it is dead together with all others.
    pub incident: String,
    /// How it is.
    pub health: Health,
    /// What is wrong; `None` exactly when it is healthy or unknown.
    pub cause: Option<Cause>,
    /// What the failure does to writes.
    pub effect: Effect,
    /// It is shielded, and without that it would keep requests past their deadline: its restore depends on that.
    #[serde(skip)]
    pub needs_shield: bool,
    /// Its calls fail and its failures are ignored: writes pass without its review, whatever `effect` says of the wait.
    pub fails_open: bool,
    /// How likely it is that the right webhook is named, whatever the cause, as the campaign measures it, 0 to 1.
    pub webhook_confidence: f64,
    /// How likely it is that webhook and cause are right, 0 to 1.
    pub confidence: f64,
    /// The rule that made it.
    pub rule: &'static str,
    /// Which part of the extra time per write is this hook's, 0 to 1; `None` when there is no extra time.
    pub excess_share: Option<f64>,
    /// Since when the cause holds.
    pub since: Option<Time>,
    /// The verdict in one sentence.
    pub summary: String,
    /// The observations behind it, the strongest first, as sentences.
    pub evidence: Vec<String>,
    /// What a person would do next; `None` when there is nothing to do.
    pub advice: Option<&'static str>,
    /// Every address behind it.
    pub backends: Vec<BackendView>,
    /// Which canaries its rules and selectors match; whether one reaches it is up to `bypass` as well.
    pub canaries: Vec<CanaryTarget>,
    /// How a match condition of hookwatch's limits what is shown to it.
    pub bypass: Option<BypassCondition>,
    /// How a person gets writes past it, while it holds them up and is not bypassed.
    pub by_hand: Option<BypassByHand>,
}

/// What a person may type to bypass a hook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BypassByHand {
    /// The command. Of webhooks that fail together and take the same bypass, the command of the most urgent one names all.
    pub command: String,
    /// What it does, in a few sentences.
    pub meaning: String,
    /// The webhook, as CONFIG/WEBHOOK, whose command names this one as well; `command` names this one alone then.
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

/// Of a verdict's incident and webhook: where calls go, as namespace/service:port or host:port, where that is known and no
/// path that several Services lost together.
pub fn called_at<'a>(incident: &'a str, webhook: &str) -> Option<&'a str> {
    (!incident.is_empty() && incident != webhook && incident != LOST_PATH).then_some(incident)
}

impl Verdict {
    /// Whom it is about: kind, configuration where known, webhook.
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

    /// Where its calls go, where that is known and its own.
    pub fn called_at(&self) -> Option<&str> {
        called_at(&self.incident, &self.webhook)
    }

    /// The command that restores the hook, where it is bypassed.
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

    /// It fails, and can be behind trouble with writes in general; hooks that do not take part in admission concern one
    /// resource or API version.
    pub fn fails_admission(&self) -> bool {
        self.health == Health::Failing && self.kind.is_admission()
    }

    /// It fails, writes reach it, and they wait for it or are refused. Of one that metrics alone name, it is not known what its
    /// failures do.
    pub fn can_hold_writes_up(&self) -> bool {
        let holds_up =
            matches!(self.effect, Effect::Blocking | Effect::Delaying) || self.configuration.is_none();
        self.health == Health::Failing && self.is_asked() && holds_up
    }

    /// It takes part in admission, and users' writes reach it.
    pub fn is_asked(&self) -> bool {
        self.kind.is_admission() && !self.bypass.is_some_and(BypassCondition::covers_all_users)
    }

    /// All of its backends are dead by our probes, whatever its ClusterIP shows.
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

/// The explanation of a trouble that is no hook's.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NonHookCause {
    /// What it is.
    pub cause: NotAHook,
    /// How sure this is, 0 to 1.
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
    /// What gives up next while writes are blocked, or a webhook keeps them past their deadline, and when, as sentences.
    pub clocks: Vec<String>,
    /// Recent mean time per write, in seconds.
    pub write_seconds: Option<f64>,
    /// The same for CREATE alone.
    pub create_seconds: Option<f64>,
    /// And for UPDATE, which PATCH and server-side apply count as.
    pub update_seconds: Option<f64>,
    /// Mean time per write in usual times.
    pub usual_write_seconds: Option<f64>,
    /// What slows or blocks writes when it is no hook.
    pub not_a_hook: Option<NonHookCause>,
    /// Other symptoms of the control plane itself, as sentences: API servers that are not ready or do not answer, nodes
    /// with old Leases. Effects, never causes.
    pub symptoms: Vec<String>,
    /// How each canary does.
    pub canaries: Vec<CanaryView>,
}
