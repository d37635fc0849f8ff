//! The vocabulary of the diagnosis: a hook's health, its cause, its effect on writes, and the state of all writes.

use serde::Serialize;
use strum::{Display, IntoStaticStr, VariantArray};

use crate::text::named;

/// The health of a hook.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, IntoStaticStr, VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum Health {
    /// Evidence shows that it works, and none shows that it fails.
    Healthy,
    /// Something about it deserves a look; it is not named as a culprit.
    Suspect,
    /// Named as a culprit: an operator should act.
    Failing,
    /// There is no evidence either way. Never the same as healthy.
    Unknown,
}

named!(Health, "The value of the `health` label in metrics.", all);

/// The state of one backend, according to direct probes.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, IntoStaticStr, VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum BackendHealth {
    /// Its last answer was good, and not the second late one in a row.
    Alive,
    /// At least its last two answers were good, but late.
    Slow,
    /// Only the last probe failed or is late.
    Wavering,
    /// It does not serve.
    Dead,
    /// No usable probe result: none was made, or the last one is old.
    Untried,
}

named!(BackendHealth, "The value of the `state` label in metrics.", all);

/// The mechanism: what is wrong with a hook.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Display, IntoStaticStr, VariantArray,
)]
pub enum Cause {
    /// It answers, late.
    Slow,
    /// It takes the connection or the request and does not answer.
    Hanging,
    /// Its host answers that nothing listens on the port.
    Refused,
    /// Its Service has no ready endpoint.
    NoEndpoints,
    /// Its Service does not exist or does not offer the port.
    NoService,
    /// It answers with an HTTP error, an invalid review or a patch that cannot be applied; or its match conditions err.
    Erroring,
    /// The TLS handshake fails: its certificate is expired, for another name or not signed by its caBundle, or it speaks no TLS.
    TlsInvalid,
    /// Some of its backends are bad and others are good.
    Partial,
    /// Calls fail in bursts around changes of its endpoints: one is Ready before it serves, or still listed while it stops.
    RolloutGap,
    /// The API server calls it on pooled connections to a backend that is gone; new connections are fine.
    StaleConnection,
    /// No connection: no route, a name that does not resolve, or no answer to a dial.
    Unreachable,
    /// Calls fail for an unknown reason, and `failurePolicy: Ignore` lets the writes pass.
    FailingOpen,
    /// It works, and denies most requests.
    Denying,
}

named!(Cause, "The name as it stands in reports, labels and JSON.", parse);

impl Cause {
    /// Whether calls fail at once with this cause, so that slow calls are no evidence for it.
    pub const fn fails_at_once(self) -> bool {
        use Cause::{Erroring, NoEndpoints, NoService, Refused, TlsInvalid};
        matches!(self, Refused | NoEndpoints | NoService | Erroring | TlsInvalid)
    }

    /// What an operator should do next, in one or two sentences.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Slow => {
                "Check the webhook's CPU, memory and what it calls. A shorter timeoutSeconds limits the damage."
            }
            Self::Hanging => {
                "Restart the webhook's server. If that takes time, bypass the webhook so that writes flow."
            }
            Self::Refused => {
                "Start the webhook's server: its Pods have addresses, but nothing listens on the port."
            }
            Self::NoEndpoints => "Get a Pod of its Service Ready, or bypass the webhook until one is.",
            Self::NoService => {
                "Create the Service, or delete the webhook configuration if it was left behind."
            }
            Self::Erroring => "Read the webhook's log: it answers, but not with a valid AdmissionReview.",
            Self::TlsInvalid => "Renew the serving certificate, or put the CA that signed it into caBundle.",
            Self::Partial => "Replace the bad backends before the API server picks one of them.",
            Self::RolloutGap => {
                "Add a readiness probe that tests TLS serving, and a preStop sleep of a few seconds."
            }
            Self::StaleConnection => {
                "It passes by itself, one timeout per connection. Shorten timeoutSeconds; let the pods send \
                 Connection: close and sleep in preStop before they stop."
            }
            Self::Unreachable => {
                "Look at routes, firewall, tunnel and DNS between the control plane and the webhook's pods and port."
            }
            Self::FailingOpen => "Find out why calls fail. Meanwhile objects are admitted without review.",
            Self::Denying => "Nothing is broken. Ask the policy's owner whether these denials are intended.",
        }
    }
}

/// What a hook's trouble does to writes; for conversion webhooks and APIServices, to all requests that need them.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, IntoStaticStr, VariantArray,
)]
pub enum Effect {
    /// Nothing so far.
    None,
    /// Writes that match the hook are refused (failurePolicy Fail), or wait for it longer than their clients wait.
    Blocking,
    /// Writes that match the hook are slow.
    Delaying,
    /// Writes pass without the hook having seen them (failurePolicy Ignore).
    FailingOpen,
}

named!(Effect, "The name as it stands in reports, labels and JSON.", all);

/// Whether the control plane takes writes; later variants are more urgent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Writes {
    /// No evidence: neither a recent canary nor recent counters of an API server.
    Unknown,
    /// They go through at their usual speed.
    Flowing,
    /// They go through, slower than usual.
    Delayed,
    /// They are refused, or get no answer.
    Blocked,
}

named!(Writes, "The value of the `state` label in metrics.", all);

/// Why writes are slow or refused, when no hook is the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, IntoStaticStr, VariantArray)]
pub enum NotAHook {
    /// etcd answers slowly.
    EtcdSlow,
    /// The API server gets more requests than it can handle.
    Overloaded,
    /// Requests queue for a seat in API Priority and Fairness.
    QueuedByFlowControl,
    /// The API server does not answer.
    ApiServerDown,
    /// One of several API servers does not answer, and requests that reach it do not come back.
    ReplicaDown,
    /// No known cause explains it.
    Unexplained,
}

named!(NotAHook, "The name in reports, labels and JSON.", all);

impl NotAHook {
    /// The cause as a clause, without a capital letter and a full stop.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::EtcdSlow => "etcd takes its time",
            Self::Overloaded => "the API server is overloaded with requests",
            Self::QueuedByFlowControl => "requests wait for a seat in flow control",
            Self::ApiServerDown => "the API server does not answer",
            Self::ReplicaDown => "one of the API servers does not answer",
            Self::Unexplained => "the reason is not known",
        }
    }
}
