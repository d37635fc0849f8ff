//! Canaries, dry-run writes through the API server: what they write, how many may be in flight, and how they end.
//!
//! A refusal that names a hook is the strongest single piece of evidence, and an attacker can write into it: a hook may put
//! any text into its denial or into the body of a 500. Only a message that *begins* with the API server's own words counts,
//! and only the first name in it.

mod call_failure;
mod further;

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantNames};

use crate::text::bounded;
use crate::time::Time;

use call_failure::quoted;
pub use call_failure::{CallFailure, CallFailureReason};
pub use further::{CanaryName, FurtherCanary, MAX_FURTHER, OBJECT};

/// Most canaries of one target in flight at once. Each occupies a flow-control seat in the API server.
const MOST_IN_FLIGHT: usize = 3;
/// Shortest time between sending the last of these and the one before it.
const LAST_AFTER: Duration = Duration::from_secs(8);

/// Whether another canary of a target may be sent, with `under_way` in flight, the newest of them sent `since_newest` ago. One may
/// hang until the API server times it out after 34 s. The last free place is therefore kept for 8 s: by then the hook may have
/// recovered or been bypassed.
pub fn may_be_sent(under_way: usize, since_newest: Duration) -> bool {
    let is_last = under_way + 1 == MOST_IN_FLIGHT;
    under_way < MOST_IN_FLIGHT && (!is_last || since_newest >= LAST_AFTER)
}

/// What a canary writes, always as a dry run. The objects belong to hookwatch alone; nothing else reads them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum CanaryTarget {
    /// ConfigMap `hookwatch-canary` in hookwatch's own namespace: represents a tenant's write.
    OwnNamespace,
    /// ConfigMap `hookwatch-canary` in kube-system: represents the control plane's own writes.
    KubeSystem,
    /// Lease `hookwatch-canary` in kube-node-lease: represents the nodes' heartbeats.
    NodeLease,
    /// A configured canary, by its name; only ever created.
    Further(CanaryName),
}

impl From<CanaryTarget> for String {
    fn from(target: CanaryTarget) -> Self {
        target.as_str().to_owned()
    }
}

impl TryFrom<String> for CanaryTarget {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|target| target.as_str() == name);
        known.map_or_else(|| CanaryName::parse(&name).map(Self::Further), Ok)
    }
}

impl CanaryTarget {
    /// The canaries that hookwatch always writes, without the configured ones.
    pub const ALL: [Self; 3] = [Self::OwnNamespace, Self::KubeSystem, Self::NodeLease];

    /// The value of the `canary` label in metrics. A configured canary's name cannot contain `_`, so these names never clash.
    pub fn as_str(&self) -> &str {
        match self {
            Self::OwnNamespace => "own_namespace",
            Self::KubeSystem => "kube_system",
            Self::NodeLease => "node_lease",
            Self::Further(name) => name.as_str(),
        }
    }
}

impl fmt::Display for CanaryTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OwnNamespace => "a ConfigMap in hookwatch's namespace",
            Self::KubeSystem => "a ConfigMap in kube-system",
            Self::NodeLease => "a Lease in kube-node-lease",
            Self::Further(name) => return write!(f, "the canary {}", name.as_str()),
        })
    }
}

/// One finished canary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CanaryReport {
    /// The object of the canary.
    pub target: CanaryTarget,
    /// When it was sent.
    pub started: Time,
    /// Time until the answer, or until it was given up.
    pub took: Duration,
    /// Whether it was a CREATE: always for a configured canary, otherwise because there was no object to update.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub created: bool,
    /// How it ended.
    pub outcome: CanaryOutcome,
}

/// A canary without an answer 0.3 s after it was sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CanaryOverdue {
    /// The object of the canary.
    pub target: CanaryTarget,
    /// When it was sent.
    pub started: Time,
    /// How long it has been in flight.
    pub waiting: Duration,
}

/// How a canary ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantNames)]
#[serde(rename_all = "snake_case", tag = "outcome")]
#[strum(serialize_all = "snake_case")]
pub enum CanaryOutcome {
    /// The API server would have written it.
    Written,
    /// A call to a hook failed, and the API server refused the write because of that.
    CallFailed(CallFailure),
    /// A hook denied the write, so the hook works.
    Denied {
        /// The hook's name, from the beginning of the message.
        webhook: String,
    },
    /// hookwatch is not authenticated (401), or lacks the permission (403 in the authorizer's own words).
    Forbidden {
        /// The API server's message.
        message: String,
    },
    /// The canary needs an operator: its namespace or object does not exist and hookwatch may not create it, or the API server
    /// rejects the configured object.
    Missing {
        /// The API server's message; the writer of canaries adds what to do about it.
        message: String,
    },
    /// The API server refused the write for another reason.
    Refused {
        /// The HTTP status.
        status: u16,
        /// The API server's message.
        message: String,
    },
    /// No answer before the canary's own deadline.
    TimedOut,
    /// The API server could not be reached.
    Unreachable {
        /// The client's text.
        why: String,
    },
}

impl CanaryOutcome {
    /// Whether an API server answered at all.
    pub const fn is_heard(&self) -> bool {
        !matches!(self, Self::TimedOut | Self::Unreachable { .. })
    }

    /// Reads the status and message of an API server's non-2xx answer.
    pub fn from_status(status: u16, message: &str) -> Self {
        if let Some(failure) = CallFailure::parse(message) {
            return Self::CallFailed(failure);
        }
        if let Some(webhook) = parse_denial(message) {
            return Self::Denied { webhook };
        }
        let message = bounded(message);
        // A match condition that errs, a quota and a namespace that is being deleted are answered with 403 as well.
        let of_authorizer = message.contains("User \"") && message.contains(" cannot ");
        match status {
            401 => Self::Forbidden { message },
            403 if of_authorizer => Self::Forbidden { message },
            404 => Self::Missing { message },
            _ => Self::Refused { status, message },
        }
    }

    /// The value of the `outcome` label in metrics.
    pub fn as_str(&self) -> &'static str {
        self.into()
    }
}

const DENIAL: &str = "admission webhook ";

/// The hook named at the very beginning of a denial.
fn parse_denial(message: &str) -> Option<String> {
    let (webhook, rest) = quoted(message.strip_prefix(DENIAL)?)?;
    rest.starts_with(" denied the request").then_some(webhook)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_canary_that_may_hang_is_sent_8_s_after_the_one_before() {
        // One would be sent every 2 s. All of them hang until a hook's timeout of 30 s.
        let mut sent: Vec<u64> = Vec::new();
        for second in (0..=32).step_by(2) {
            let under_way = sent.iter().filter(|sent| second < **sent + 30).count();
            let since_last = second - sent.last().unwrap_or(&0);
            if may_be_sent(under_way, Duration::from_secs(since_last)) {
                sent.push(second);
            }
        }
        assert_eq!(sent, [0, 2, 10, 30]);
    }

    #[test]
    fn only_the_authorizers_own_words_are_a_missing_permission() {
        let of = |message: &str| CanaryOutcome::from_status(403, message);
        let missing = of("configmaps \"hookwatch-canary\" is forbidden: User \"u\" cannot patch resource");
        assert!(matches!(missing, CanaryOutcome::Forbidden { .. }), "{missing:?}");
        let quota = of("configmaps \"hookwatch-canary\" is forbidden: exceeded quota: objects");
        assert!(
            matches!(quota, CanaryOutcome::Refused { status: 403, .. }),
            "{quota:?}"
        );
    }
}
