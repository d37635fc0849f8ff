//! What hookwatch says: a verdict per hook, and the assessment of the whole control plane.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::canary::CanaryTarget;
use super::fence::Breaker;
use super::hook::{Backend, HookKind};
use super::inventory::Problem;
use super::leadership::ReplicaView;
use super::node_leases::NodeLeasesView;
use super::readiness::ReadinessView;
use super::risk::Risk;
use super::time::Time;

/// How a hook is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Health {
    /// Nothing speaks against it, and something speaks for it.
    Healthy,
    /// Something about it deserves a look; it is not named as a culprit.
    Suspect,
    /// Named as a culprit: somebody should act.
    Failing,
    /// There is no evidence either way. Never the same as healthy.
    Unknown,
}

impl Health {
    /// All of them, for metrics that export one series per value.
    pub const ALL: [Self; 4] = [Self::Healthy, Self::Suspect, Self::Failing, Self::Unknown];

    /// The value of the `health` label in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Suspect => "suspect",
            Self::Failing => "failing",
            Self::Unknown => "unknown",
        }
    }
}

/// The mechanism: what is wrong with a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Cause {
    /// It answers, late.
    Slow,
    /// It takes the connection or the request and does not answer.
    Hanging,
    /// Its host answers that nobody listens.
    Refused,
    /// Its Service has no ready endpoint.
    NoEndpoints,
    /// Its Service does not exist or does not offer the port.
    NoService,
    /// It answers with an HTTP error, or with something that is no AdmissionReview.
    Erroring,
    /// Its certificate does not stand up to its caBundle.
    TlsInvalid,
    /// Some of its backends are bad and others are good.
    Partial,
    /// Calls fail in bursts around changes of its endpoints: one is Ready before it serves, or listed while it stops.
    RolloutGap,
    /// The API server calls it on kept connections to a backend that is gone; new connections are fine.
    StaleConnection,
    /// There is no way to it: no route, no name, or nothing that comes back when it is dialled.
    Unreachable,
    /// Calls fail and are let pass, by which mechanism is not known.
    FailingOpen,
    /// It works and says no to most of what it is shown.
    Denying,
}

impl Cause {
    /// All of them, for whoever has to know what can be said.
    pub const ALL: [Self; 13] = [
        Self::Slow,
        Self::Hanging,
        Self::Refused,
        Self::NoEndpoints,
        Self::NoService,
        Self::Erroring,
        Self::TlsInvalid,
        Self::Partial,
        Self::RolloutGap,
        Self::StaleConnection,
        Self::Unreachable,
        Self::FailingOpen,
        Self::Denying,
    ];

    /// The name as it stands in reports, labels and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Slow => "Slow",
            Self::Hanging => "Hanging",
            Self::Refused => "Refused",
            Self::NoEndpoints => "NoEndpoints",
            Self::NoService => "NoService",
            Self::Erroring => "Erroring",
            Self::TlsInvalid => "TlsInvalid",
            Self::Partial => "Partial",
            Self::RolloutGap => "RolloutGap",
            Self::StaleConnection => "StaleConnection",
            Self::Unreachable => "Unreachable",
            Self::FailingOpen => "FailingOpen",
            Self::Denying => "Denying",
        }
    }

    /// What a person would do next, in one sentence.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Slow => {
                "Look at the hook's own CPU, memory and what it calls; a shorter timeoutSeconds limits the damage."
            }
            Self::Hanging => {
                "Restart the hook's pods; if that is not possible at once, bypass the hook so that writes flow."
            }
            Self::Refused => {
                "Start the hook's server: its pods are addressed but nobody listens on the port."
            }
            Self::NoEndpoints => {
                "Bring up a ready pod behind the hook's Service, or bypass the hook until there is one."
            }
            Self::NoService => "Create the Service or delete the webhook configuration that was left behind.",
            Self::Erroring => "Read the hook's own log: it answers, but not with a usable AdmissionReview.",
            Self::TlsInvalid => {
                "Renew the serving certificate, or put the authority that signed it into caBundle."
            }
            Self::Partial => "Replace the bad backends before the API server picks one of them.",
            Self::RolloutGap => {
                "Give the pods a readiness probe that tests TLS serving itself, and a preStop sleep of some seconds."
            }
            Self::StaleConnection => {
                "It passes by itself, one timeout per connection. Shorten timeoutSeconds; let the pods send \
                 Connection: close and sleep in preStop before they stop."
            }
            Self::Unreachable => {
                "Look at routes, firewall, tunnel and DNS between the control plane and the hook's pods and port."
            }
            Self::FailingOpen => "Find out why calls fail: objects are admitted without this policy.",
            Self::Denying => "Nothing is broken: ask the policy's owner whether these refusals are meant.",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What that does to the control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Effect {
    /// Nothing so far.
    None,
    /// Writes that match the hook are refused (failurePolicy Fail).
    Blocking,
    /// Writes that match the hook are slow.
    Delaying,
    /// Writes pass without the hook having seen them (failurePolicy Ignore).
    FailingOpen,
}

impl Effect {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::None, Self::Blocking, Self::Delaying, Self::FailingOpen];

    /// The name as it stands in reports, labels and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Blocking => "Blocking",
            Self::Delaying => "Delaying",
            Self::FailingOpen => "FailingOpen",
        }
    }
}

/// The judgement of one hook at one instant.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// Validating or mutating.
    pub kind: HookKind,
    /// Its configuration; `None` when only metrics or a refusal named it and the inventory has no such hook.
    pub configuration: Option<Arc<str>>,
    /// The webhook's name.
    pub webhook: Arc<str>,
    /// How it is.
    pub health: Health,
    /// What is wrong; `None` exactly when it is healthy or unknown.
    pub cause: Option<Cause>,
    /// What that does.
    pub effect: Effect,
    /// How sure this is, 0 to 1.
    pub confidence: f64,
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
    /// What is not wrong yet and may become so. Never a reason for any health.
    pub risks: Vec<Risk>,
    /// Every address behind it.
    pub backends: Vec<BackendView>,
    /// Which canaries its rules and selectors match; whether one reaches it is up to `bypass` as well.
    pub canaries: Vec<CanaryTarget>,
    /// How a match condition of hookwatch's limits what is shown to it.
    pub bypass: Option<Bypass>,
}

/// What a match condition of hookwatch's lets through to a hook, as it stands on the object, whoever put it there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bypass {
    /// Everything but what keeps the control plane alive.
    Shield,
    /// Nothing but hookwatch's own dry runs.
    Probation,
    /// Nothing.
    Skip,
}

impl Bypass {
    /// The name as it stands in JSON and on the page.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Shield => "shield",
            Self::Probation => "probation",
            Self::Skip => "skip",
        }
    }

    /// Whether no user's write is shown to the hook.
    pub const fn is_for_everybody(self) -> bool {
        matches!(self, Self::Probation | Self::Skip)
    }
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
    /// All backends that it has are dead by our probes.
    pub fn no_backend_answers(&self) -> bool {
        !self.backends.is_empty() && self.backends.iter().all(|backend| backend.state == "dead")
    }
}

/// Whether the control plane takes writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Writes {
    /// They go through at their usual speed.
    Flowing,
    /// They go through, slower than usual.
    Delayed,
    /// They are refused or do not come back.
    Blocked,
    /// Nobody has looked yet, or nobody can.
    Unknown,
}

impl Writes {
    /// All of them, for metrics that export one series per value.
    pub const ALL: [Self; 4] = [Self::Flowing, Self::Delayed, Self::Blocked, Self::Unknown];

    /// The value of the `state` label in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Flowing => "flowing",
            Self::Delayed => "delayed",
            Self::Blocked => "blocked",
            Self::Unknown => "unknown",
        }
    }
}

/// A trouble with writes that no hook explains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum NotAHook {
    /// etcd takes its time.
    EtcdSlow,
    /// The API server is swamped.
    Overloaded,
    /// Requests wait for a seat in flow control.
    QueuedByFlowControl,
    /// The API server does not answer.
    ApiServerDown,
    /// One of several API servers does not answer, and requests that reach it do not come back.
    ReplicaDown,
    /// Writes are slow or refused and nothing that is known explains it.
    Unexplained,
}

impl NotAHook {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::EtcdSlow,
        Self::Overloaded,
        Self::QueuedByFlowControl,
        Self::ApiServerDown,
        Self::ReplicaDown,
        Self::Unexplained,
    ];

    /// The name as it stands in reports, labels and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::EtcdSlow => "EtcdSlow",
            Self::Overloaded => "Overloaded",
            Self::QueuedByFlowControl => "QueuedByFlowControl",
            Self::ApiServerDown => "ApiServerDown",
            Self::ReplicaDown => "ReplicaDown",
            Self::Unexplained => "Unexplained",
        }
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
    /// Why it is not known which API servers there are, when it is not; then the configured address stands for all.
    pub api_servers_trouble: Option<String>,
    /// The nodes' heartbeats.
    pub node_leases: NodeLeasesView,
    /// True when every probe fails at once and nothing shows that the fault is not ours.
    pub self_doubt: bool,
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

/// A duration as a person writes it: `3 ms`, `801 ms`, `2.0 s`.
pub fn human(duration: Duration) -> String {
    human_seconds(duration.as_secs_f64())
}

/// Seconds as a person writes them.
pub fn human_seconds(seconds: f64) -> String {
    if seconds < 0.000_95 {
        "under 1 ms".to_owned()
    } else if seconds < 0.9995 {
        format!("{:.0} ms", seconds * 1_000.0)
    } else if seconds < 120.0 {
        format!("{seconds:.1} s")
    } else {
        format!("{:.0} min", seconds / 60.0)
    }
}
