//! What hookwatch says: a verdict per hook, and the assessment of the whole control plane.

use std::sync::Arc;

use serde::Serialize;

use super::audit::standing::Findings;
use super::canary::CanaryTarget;
use super::fence::Breaker;
use super::hook::{Backend, HookId, HookKind};
use super::inventory::Problem;
use super::leadership::ReplicaView;
use super::node_leases::NodeLeasesView;
use super::readiness::ReadinessView;
use super::time::Time;
pub use super::vocabulary::*;

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
    /// incident. Where that is not known, the webhook's own name; [`LOST_PATH`](crate::domain::diagnose::LOST_PATH) as
    /// long as it is dead together with all others.
    pub incident: String,
    /// How it is.
    pub health: Health,
    /// What is wrong; `None` exactly when it is healthy or unknown.
    pub cause: Option<Cause>,
    /// What that does.
    pub effect: Effect,
    /// Its calls fail and its failures are ignored: whatever `effect` says of the wait, writes pass that it has not seen.
    pub fails_open: bool,
    /// How likely it is that the webhook is judged rightly, whatever the cause, as the campaign measures it, 0 to 1.
    pub webhook_confidence: f64,
    /// How likely it is that webhook and cause are right, 0 to 1.
    pub confidence: f64,
    /// The rule that made it.
    pub rule: &'static str,
    /// Which part of the extra time per write is this hook's, 0 to 1; `None` when there is no extra time.
    pub excess_share: Option<f64>,
    /// Since when the cause holds.
    pub since: Option<Time>,
    /// One sentence.
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
    pub bypass: Option<Bypass>,
}

/// One backend as a person sees it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BackendView {
    /// The address and how it became known.
    #[serde(flatten)]
    pub backend: Backend,
    /// `alive`, `slow`, `wavering`, `dead`, `untried`.
    pub state: &'static str,
    /// A sentence about the last probe.
    pub detail: String,
}

impl Verdict {
    /// Whom it is about: kind, configuration where known, webhook.
    pub fn subject(&self) -> (HookKind, Option<Arc<str>>, Arc<str>) {
        let configuration = self.configuration.clone();
        (self.kind, configuration, Arc::clone(&self.webhook))
    }

    /// The hook; `None` where only metrics name it.
    pub fn hook(&self) -> Option<HookId> {
        Some(HookId {
            kind: self.kind,
            configuration: self.configuration.clone()?,
            webhook: Arc::clone(&self.webhook),
        })
    }

    /// The command by which a person gets writes past it, while it holds them up and is not bypassed. `None` also for names
    /// that a shell would read as more than a word; the API server admits none.
    pub fn bypass_command(&self) -> Option<String> {
        let harms = matches!(self.effect, Effect::Blocking | Effect::Delaying);
        if !harms || self.health != Health::Failing || self.bypass.is_some() || !self.kind.is_admission() {
            return None;
        }
        let (configuration, webhook) = (self.configuration.as_deref()?, &*self.webhook);
        let is_word = |name: &str| {
            name.chars()
                .all(|c| c.is_ascii_alphanumeric() || ".-_".contains(c))
        };
        (is_word(configuration) && is_word(webhook)).then(|| {
            format!(
                "hookwatch break {configuration}/{webhook} --kind {} --reason TEXT",
                self.kind
            )
        })
    }

    /// All backends that it has are dead by our probes.
    pub fn no_backend_answers(&self) -> bool {
        !self.backends.is_empty() && self.backends.iter().all(|backend| backend.state == "dead")
    }
}

/// The explanation of a trouble that is no hook's.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Elsewhere {
    /// What it is.
    pub cause: NotAHook,
    /// How sure this is, 0 to 1.
    pub confidence: f64,
    /// The observations behind it, as sentences.
    pub evidence: Vec<String>,
}

/// The state of the control plane as far as writes go.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ControlPlane {
    /// Whether it takes writes.
    pub writes: Writes,
    /// Since when that is so.
    pub since: Time,
    /// One sentence, with the culprit where there is one.
    pub summary: String,
    /// What gives up next while writes are blocked, and when, as sentences.
    pub clocks: Vec<String>,
    /// Mean time per write of late, in seconds.
    pub write_seconds: Option<f64>,
    /// The same for CREATE alone.
    pub create_seconds: Option<f64>,
    /// And for UPDATE, which PATCH and server-side apply count as.
    pub update_seconds: Option<f64>,
    /// Mean time per write in usual times.
    pub usual_write_seconds: Option<f64>,
    /// What slows or blocks writes when it is no hook.
    pub not_a_hook: Option<Elsewhere>,
    /// What else is seen of the control plane itself, as sentences: API servers that are not ready or do not
    /// answer, nodes whose leases grow old. Effects, never causes.
    pub symptoms: Vec<String>,
    /// How each canary does.
    pub canaries: Vec<CanaryView>,
}

/// One canary as a person sees it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CanaryView {
    /// What it writes.
    pub canary: CanaryTarget,
    /// `written`, `overdue`, ... or `untried`.
    pub state: &'static str,
    /// A sentence about the last one.
    pub detail: String,
}

/// Where the knowledge comes from and how fresh it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sources {
    /// Seconds since the inventory was last known to be current; `None` before the first list.
    pub inventory_age_seconds: Option<f64>,
    /// What keeps it from being current or complete.
    pub inventory_trouble: Vec<String>,
    /// False when neither kind of webhook configuration may be read or is there: then that no hook is listed means
    /// nothing.
    pub hooks_listed: bool,
    /// Every scrape target with what is known of it.
    pub scrapes: Vec<ScrapeView>,
    /// The Prometheus that is asked as well; `None` without one.
    pub prometheus: Option<StoredView>,
    /// Why it is not known which API servers there are, when it is not; then the configured address stands for all.
    pub api_servers_trouble: Option<String>,
    /// The nodes' heartbeats.
    pub node_leases: NodeLeasesView,
    /// Whether probes come as often as they should.
    pub probes: ProbeView,
    /// True when every probe fails at once and nothing shows that the fault is not ours.
    pub self_doubt: bool,
}

/// How probes keep up, as a person sees it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProbeView {
    /// Backends that are probed, each as webhooks with the same server name and trust meet it.
    pub targets: usize,
    /// How late the probe is that waits longest for its turn within the budget; 0 while all are on time.
    pub late_seconds: f64,
    /// Which budget is used up and what that means, as sentences.
    pub late: Vec<String>,
}

/// One API-server replica (or address) as a person sees it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScrapeView {
    /// The address asked.
    pub target: String,
    /// Processes seen behind it of late.
    pub replicas: usize,
    /// Seconds since the last good scrape; `None` when there was none.
    pub age_seconds: Option<f64>,
    /// The last failure, when it is newer than the last good scrape.
    pub failure: Option<String>,
    /// Since when nothing but failures came back; `None` while scrapes succeed.
    pub failing_since: Option<Time>,
    /// The processes behind it that answered before and do not any more.
    pub silent: Vec<SilentView>,
    /// Its release, as it says itself.
    pub version: Option<String>,
    /// How ready it is, as it says itself.
    pub readiness: ReadinessView,
    /// Metrics that it does not have, with what is judged without them.
    pub missing: Vec<String>,
}

/// A Prometheus that is asked for the API servers' metrics, as a person sees it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StoredView {
    /// Its address.
    pub source: String,
    /// Whether verdicts rest on it now: while hookwatch's own scrapes say something, they do not.
    pub used: bool,
    /// API servers that it scraped lately.
    pub api_servers: usize,
    /// Seconds since the newest scrape that it has stored; `None` when there is none.
    pub age_seconds: Option<f64>,
    /// Seconds between its scrapes, of the API server that it scrapes most rarely; `None` while only one is known.
    pub resolution_seconds: Option<f64>,
    /// The last failure to read it, when it is newer than the last good reading.
    pub failure: Option<String>,
    /// Since when nothing but failures came back; `None` while readings succeed.
    pub failing_since: Option<Time>,
    /// Metrics that it has not stored, with what is judged without them.
    pub missing: Vec<String>,
}

/// An API-server process behind an address shared with others that stopped answering.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SilentView {
    /// When the process began: what tells it from the others.
    pub started: Option<Time>,
    /// When it answered last.
    pub since: Time,
}

/// All verdicts and the state of the control plane at one instant.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Assessment {
    /// The instant.
    pub at: Time,
    /// The control plane.
    pub control_plane: ControlPlane,
    /// A verdict for each hook, the worst first.
    pub hooks: Vec<Verdict>,
    /// Where the knowledge comes from.
    pub sources: Sources,
    /// What is done about a culprit.
    pub breaker: Breaker,
    /// This daemon among its replicas; `None` when it does not take part in an election.
    pub replica: Option<ReplicaView>,
    /// What the last audit found. Never a reason for any health.
    pub audit: Arc<Findings>,
    /// Objects in the cluster that could not be made sense of.
    pub problems: Vec<Problem>,
}

impl Assessment {
    /// The hooks named as culprits.
    pub fn culprits(&self) -> impl Iterator<Item = &Verdict> {
        self.hooks
            .iter()
            .filter(|verdict| verdict.health == Health::Failing)
    }
}
