//! The result of a probe, which is one direct attempt against one backend.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray, VariantNames};

use crate::cluster::hook::{Backend, HookId, ProbeLevel};
use crate::text::named;
use crate::time::Time;

/// Whether the probe dialled or used the connection it keeps open, as the API server's pool does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, IntoStaticStr, VariantArray)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "snake_case")]
pub enum ConnectionKind {
    /// A new TCP connection with a full TLS handshake.
    Fresh,
    /// The connection kept from an earlier probe.
    Kept,
}

named!(ConnectionKind, "The value of the label `connection`.", all);

/// The phases of a probe, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ProbePhase {
    /// Name resolution (url hooks only).
    Resolve,
    /// The TCP connection.
    Connect,
    /// The TLS handshake.
    Tls,
    /// From the request to the first byte of the answer.
    FirstByte,
    /// The rest of the answer.
    Body,
    /// Not disclosed, because the backend may not be a Pod of the Service: see
    /// [`Hook::vouches_for`](crate::cluster::hook::Hook::vouches_for).
    Withheld,
}

named!(ProbePhase, "The value of the `phase` label in metrics.");

impl ProbePhase {
    /// The phases that have a duration, in order: all but [`Self::Withheld`].
    pub const ALL: [Self; 5] = [
        Self::Resolve,
        Self::Connect,
        Self::Tls,
        Self::FirstByte,
        Self::Body,
    ];
}

impl fmt::Display for ProbePhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Resolve => "resolving the name",
            Self::Connect => "connecting",
            Self::Tls => "in the TLS handshake",
            Self::FirstByte => "waiting for the answer",
            Self::Body => "reading the answer",
            Self::Withheld => {
                "how is not said: the cluster's endpoint controller does not list it as a Pod of the Service's namespace"
            }
        })
    }
}

/// How long each phase took; `None` for one that was not reached or not needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PhaseDurations {
    /// See [`ProbePhase::Resolve`].
    pub resolve: Option<Duration>,
    /// See [`ProbePhase::Connect`].
    pub connect: Option<Duration>,
    /// See [`ProbePhase::Tls`].
    pub tls: Option<Duration>,
    /// See [`ProbePhase::FirstByte`].
    pub first_byte: Option<Duration>,
    /// See [`ProbePhase::Body`].
    pub body: Option<Duration>,
}

impl PhaseDurations {
    /// The duration of one phase; always `None` for [`ProbePhase::Withheld`].
    pub const fn get(&self, phase: ProbePhase) -> Option<Duration> {
        match phase {
            ProbePhase::Resolve => self.resolve,
            ProbePhase::Connect => self.connect,
            ProbePhase::Tls => self.tls,
            ProbePhase::FirstByte => self.first_byte,
            ProbePhase::Body => self.body,
            ProbePhase::Withheld => None,
        }
    }
}

/// Why a TLS handshake failed when verified as the hook's configuration demands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TlsFault {
    /// The served certificate is past its `notAfter`.
    Expired,
    /// The served certificate is before its `notBefore`.
    NotYetValid,
    /// The served certificate does not chain to the hook's caBundle (or to the system's roots where that is empty).
    UnknownAuthority,
    /// The served certificate is not for `<service>.<namespace>.svc` (or the URL's host).
    WrongName,
    /// The caBundle holds no certificate at all.
    JunkCaBundle,
    /// The server does not use TLS on this port, or shares no TLS version or cipher suite with hookwatch.
    Protocol,
    /// Anything else; the text says what.
    Other,
}

/// The answer of a backend to a probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "answer")]
pub enum ProbeAnswer {
    /// The probe made only a TLS handshake, and it succeeded.
    Handshake,
    /// An HTTP answer to a request without a review.
    Http {
        /// The status code.
        status: u16,
    },
    /// An HTTP answer to a request for an API's discovery document.
    Discovery {
        /// The status code. The aggregator has credentials, expects 2xx and follows no redirect. 401 and 403 mean that the
        /// server works but does not accept hookwatch, which has no credentials for it.
        status: u16,
    },
    /// A well-formed AdmissionReview for our uid.
    Review {
        /// Whether the hook allowed the object.
        allowed: bool,
    },
    /// The review was answered with an HTTP error.
    ReviewRefused {
        /// The status code. 401 and 403 mean that the hook works but does not accept hookwatch, which has no credentials.
        status: u16,
    },
    /// The review was answered with 2xx and something that the API server would not accept.
    NotAnAdmissionReview {
        /// What is wrong with it.
        why: String,
    },
}

impl ProbeAnswer {
    /// Whether the aggregator would call the service unavailable if its request for the discovery document got this status.
    /// False for 2xx, and for 401, 403 and 429, which the server may send to hookwatch alone.
    pub const fn is_no_discovery(status: u16) -> bool {
        !(matches!(status, 200..=299 | 401 | 403 | 429))
    }
}

/// How a probe ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantNames)]
#[serde(rename_all = "snake_case", tag = "outcome")]
#[strum(serialize_all = "snake_case")]
pub enum ProbeOutcome {
    /// The backend answered.
    Answered(ProbeAnswer),
    /// The backend works, but requires a client certificate that only the API server has.
    ClientCertificateWanted,
    /// The API server accepts the served certificate, hookwatch's TLS library does not: no evidence of a fault.
    VerifierDiffers {
        /// What our verifier objects to.
        why: String,
    },
    /// The probe reached its deadline.
    TimedOut {
        /// The phase in which it did.
        phase: ProbePhase,
    },
    /// The host answered that nothing listens on the port.
    Refused,
    /// The network reported that there is no route to the host.
    Unreachable {
        /// The system's text.
        why: String,
    },
    /// The name of a url hook did not resolve.
    Unresolvable {
        /// The resolver's text.
        why: String,
    },
    /// The handshake failed.
    TlsRejected {
        /// Which kind of failure.
        fault: TlsFault,
        /// The verifier's text.
        why: String,
    },
    /// The connection broke.
    Lost {
        /// The phase in which it broke.
        phase: ProbePhase,
        /// The system's text.
        why: String,
    },
    /// No attempt was made.
    NotProbed {
        /// Why not.
        why: String,
    },
}

impl ProbeOutcome {
    /// Whether a server answered, even with an error.
    pub const fn is_alive(&self) -> bool {
        matches!(
            self,
            Self::Answered(_) | Self::ClientCertificateWanted | Self::VerifierDiffers { .. }
        )
    }

    /// The value of the `outcome` label in metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Answered(ProbeAnswer::Discovery { status }) if ProbeAnswer::is_no_discovery(*status) => {
                "discovery_refused"
            }
            Self::Answered(ProbeAnswer::ReviewRefused { .. }) => "review_refused",
            Self::Answered(ProbeAnswer::NotAnAdmissionReview { .. }) => "not_an_admission_review",
            _ => self.into(),
        }
    }
}

/// The certificates of one backend and of the caBundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CertificateFacts {
    /// `notAfter` of the served certificate, also when verification failed.
    pub served_not_after: Option<Time>,
    /// `notBefore` of the served certificate; `None` in older recordings.
    #[serde(default)]
    pub served_not_before: Option<Time>,
    /// Whether the caBundle verified the served certificate in that handshake.
    #[serde(default)]
    pub served_is_trusted: bool,
    /// `notAfter` of the CA certificate in the caBundle that verified the served one (of several, the latest). If none
    /// verified it, the latest `notAfter` in the whole caBundle.
    pub ca_not_after: Option<Time>,
}

/// One finished probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeReport {
    /// The hook probed.
    pub hook: HookId,
    /// The address that was dialled, and how it became known.
    pub backend: Backend,
    /// How far the probe went: a handshake, a plain request or a review.
    pub level: ProbeLevel,
    /// A new connection, or the pooled one.
    pub connection: ConnectionKind,
    /// When it was sent.
    pub started: Time,
    /// How long it took in all.
    pub took: Duration,
    /// How long each phase took.
    pub phases: PhaseDurations,
    /// How it ended.
    pub outcome: ProbeOutcome,
    /// Certificates seen on the way.
    pub certificates: CertificateFacts,
    /// Whether another hook of the same target made this probe: metrics count the probe's cost for that hook only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
}

/// A probe that has not ended 1 s or 2 s after its start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeOverdue {
    /// The hook being probed.
    pub hook: HookId,
    /// The address that is dialled.
    pub backend: Backend,
    /// A new connection, or the pooled one.
    pub connection: ConnectionKind,
    /// When it was sent.
    pub started: Time,
    /// How long it has been in flight.
    pub waiting: Duration,
    /// The phase that it waits in.
    pub phase: ProbePhase,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_is_no_discovery_document_to_the_aggregator() {
        let available = [200, 204, 401, 403, 429];
        let unavailable = [301, 302, 307, 404, 500, 503];
        assert!(!available.into_iter().any(ProbeAnswer::is_no_discovery));
        assert!(unavailable.into_iter().all(ProbeAnswer::is_no_discovery));
    }
}
