//! The result of a canary (one dry-run write through the API server), and how to read the message of its refusal.
//!
//! A refusal that names a hook is the strongest single piece of evidence, and an attacker can write into it: a hook may put
//! any text into its denial or into the body of a 500. Only a message that *begins* with the API server's own words counts,
//! and only the first name in it.

mod further;

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantNames};

use crate::text::{MAX_MESSAGE, bounded};
use crate::time::Time;
use crate::vocabulary::Cause;

pub use further::{CanaryName, FurtherCanary, MAX_FURTHER, OBJECT};

/// Most canaries of one target in flight at once. Each occupies a flow-control seat in the API server.
const AT_ONCE: usize = 3;
/// Shortest time between sending the last of these and the one before it.
const LAST_AFTER: Duration = Duration::from_secs(8);

/// Whether another canary of a target may be sent, with `under_way` in flight, the newest of them sent `since_last` ago. They may
/// hang until the API server times them out after 34 s. The last one is therefore delayed by 8 s, until the hook may have
/// recovered or been bypassed.
pub fn may_be_sent(under_way: usize, since_last: Duration) -> bool {
    under_way + 1 < AT_ONCE || under_way < AT_ONCE && since_last >= LAST_AFTER
}

/// The objects that canaries write. They belong to hookwatch alone; nothing else reads them.
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
    /// Whether it was a CREATE, since there was nothing to update.
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
    /// hookwatch lacks the permission (401 or 403).
    Forbidden {
        /// The API server's message.
        message: String,
    },
    /// The canary needs an operator: its namespace or object does not exist and hookwatch may not create it, or the API server
    /// rejects the configured object.
    Missing {
        /// What to do about it, with the API server's message.
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
        match status {
            401 | 403 => Self::Forbidden { message },
            404 => Self::Missing { message },
            _ => Self::Refused { status, message },
        }
    }

    /// The value of the `outcome` label in metrics.
    pub fn as_str(&self) -> &'static str {
        self.into()
    }
}

/// The parts of the message `Internal error occurred: failed calling webhook "NAME": ...`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallFailure {
    /// The webhook's name; which configuration it belongs to is not in the message.
    pub webhook: String,
    /// The URL that was called, without the query; `None` when the message has none.
    pub url: Option<String>,
    /// Why the call failed.
    pub reason: CallFailureReason,
    /// The rest of the message, at most [`MAX_MESSAGE`] bytes.
    pub text: String,
}

/// Why a call to a hook failed, in the API server's own words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallFailureReason {
    /// `context deadline exceeded`, also `i/o timeout` and `Client.Timeout exceeded`.
    DeadlineExceeded,
    /// `dial tcp ADDRESS: i/o timeout`: the TCP connection was not established.
    DialTimeout,
    /// `net/http: TLS handshake timeout`.
    TlsHandshakeTimeout,
    /// `connect: connection refused`.
    ConnectionRefused,
    /// `no route to host`, `network is unreachable` and similar; or the proxy in front of the hook (from `HTTPS_PROXY` in the API
    /// server's environment, or Konnectivity) makes no connection.
    Unreachable,
    /// `tls: failed to verify certificate`, `x509: ...` and other handshake errors; a caBundle that holds no
    /// certificate.
    Tls,
    /// `no endpoints available for service`, or, before Kubernetes 1.34, `endpoints "..." not found`.
    NoEndpoints,
    /// `service "NAME" not found`, `no service port ... found`.
    NoService,
    /// `no such host`, or the lookup of the name failed otherwise.
    NoSuchHost,
    /// The hook answered with an HTTP error.
    ServerError,
    /// The hook's answer is empty or no AdmissionReview, has the wrong uid, or an impossible patch.
    BadAnswer,
    /// `EOF` or `connection reset by peer`.
    ConnectionLost,
    /// Something else.
    Other,
}

const CALL_FAILURE: &str = "Internal error occurred: failed calling webhook ";
const DENIAL: &str = "admission webhook ";

/// The beginnings of errors of a proxy between API server and webhook that does not reach the webhook: Konnectivity over gRPC,
/// and any proxy over HTTP CONNECT (`apiserver/pkg/server/egressselector`).
const NO_WAY: [&str; 2] = ["No agent available", "proxy error from "];

/// The whole error of Go's client when a proxy refuses an HTTP CONNECT: the reason phrase of the answer (`net/http/transport.go`).
const PROXY_REFUSED: [&str; 10] = [
    "Bad Request",
    "Forbidden",
    "Not Found",
    "Method Not Allowed",
    "Proxy Authentication Required",
    "Too Many Requests",
    "Internal Server Error",
    "Bad Gateway",
    "Service Unavailable",
    "Gateway Timeout",
];

impl CallFailure {
    /// Reads the message of a refused write; `None` when it does not begin with the API server's own words.
    pub fn parse(message: &str) -> Option<Self> {
        let (webhook, rest) = quoted(message.strip_prefix(CALL_FAILURE)?)?;
        let rest = rest.strip_prefix(": ")?;
        let (url, why) = split_url(rest);
        let reason = match &url {
            Some(_) => CallFailureReason::of_transport(why),
            None => CallFailureReason::of_answer(why),
        };
        Some(Self {
            webhook,
            url,
            reason,
            text: bounded(rest),
        })
    }
}

impl From<CallFailureReason> for Cause {
    fn from(reason: CallFailureReason) -> Self {
        match reason {
            CallFailureReason::DeadlineExceeded | CallFailureReason::TlsHandshakeTimeout => Self::Hanging,
            CallFailureReason::ConnectionRefused => Self::Refused,
            CallFailureReason::DialTimeout
            | CallFailureReason::Unreachable
            | CallFailureReason::NoSuchHost => Self::Unreachable,
            CallFailureReason::Tls => Self::TlsInvalid,
            CallFailureReason::NoEndpoints => Self::NoEndpoints,
            CallFailureReason::NoService => Self::NoService,
            CallFailureReason::ServerError
            | CallFailureReason::BadAnswer
            | CallFailureReason::ConnectionLost
            | CallFailureReason::Other => Self::Erroring,
        }
    }
}

impl CallFailureReason {
    /// Classifies an error without `Post "URL"`: the call got an answer, or was never made.
    ///
    /// In most HTTP errors the hook's own text is absent or quoted, but the body of a 403, 406 or 415 is the whole error. So only
    /// the beginning counts, and an unknown beginning is taken for such a body.
    fn of_answer(why: &str) -> Self {
        let begins = |beginnings: &[&str]| beginnings.iter().any(|beginning| why.starts_with(beginning));
        if begins(&["could not get REST client: unable to load root certificates"]) {
            Self::Tls
        } else if begins(&["could not "]) {
            Self::Other
        } else if begins(&[
            "received ",
            "0-length response with status code",
            "couldn't get version/kind",
        ]) || begins(&["no kind ", "converting ("])
        {
            Self::BadAnswer
        } else if begins(&["unexpected error when reading response body"]) {
            if why.ends_with("context deadline exceeded") {
                Self::DeadlineExceeded
            } else {
                Self::ConnectionLost
            }
        } else {
            Self::ServerError
        }
    }

    /// Classifies what follows `Post "URL"` (or `Get`): an error of Go's HTTP client for a request without an answer.
    pub(crate) fn of_transport(why: &str) -> Self {
        let has = |needle: &str| why.contains(needle);
        // A lookup that times out is the name server's fault, not the hook's.
        if why.starts_with("dial tcp: lookup ") {
            Self::NoSuchHost
        } else if NO_WAY.iter().any(|beginning| why.starts_with(beginning)) || PROXY_REFUSED.contains(&why) {
            Self::Unreachable
        } else if has("TLS handshake timeout") {
            Self::TlsHandshakeTimeout
        } else if has("dial tcp ") && has("i/o timeout") {
            Self::DialTimeout
        } else if has("context deadline exceeded") || has("i/o timeout") || has("Client.Timeout exceeded") {
            Self::DeadlineExceeded
        } else if has("connection refused") {
            Self::ConnectionRefused
        } else if has("no route to host") || has("network is unreachable") || has("host is down") {
            Self::Unreachable
        } else if has("x509: ") || has("tls: ") || has("server gave HTTP response to HTTPS client") {
            Self::Tls
        } else if has("no endpoints available for service")
            // Before 1.34, when the Service has no Endpoints object at all.
            || why.starts_with("endpoints \"") && has("\" not found")
        {
            Self::NoEndpoints
        } else if has("no service port") || why.starts_with("service \"") && has("\" not found") {
            Self::NoService
        } else if has("no such host") {
            Self::NoSuchHost
        } else if has("connection reset") || has("broken pipe") || why.ends_with("EOF") {
            Self::ConnectionLost
        } else if why.starts_with("dial tcp ") {
            // Anything else that prevents a connection, such as a network policy: `operation not permitted`.
            Self::Unreachable
        } else {
            Self::Other
        }
    }
}

/// The hook named at the very beginning of a denial.
fn parse_denial(message: &str) -> Option<String> {
    let (webhook, rest) = quoted(message.strip_prefix(DENIAL)?)?;
    rest.starts_with(" denied the request").then_some(webhook)
}

/// Splits `failed to call webhook: Post "URL": WHY` into the URL and WHY.
fn split_url(rest: &str) -> (Option<String>, &str) {
    let call = rest.strip_prefix("failed to call webhook: ").unwrap_or(rest);
    let Some((url, why)) = call.strip_prefix("Post ").and_then(quoted) else {
        return (None, call);
    };
    let url = url.split('?').next().unwrap_or_default().to_owned();
    (Some(url), why.strip_prefix(": ").unwrap_or(why))
}

/// Reads a Go-quoted string at the beginning of `text` and returns it with what follows.
fn quoted(text: &str) -> Option<(String, &str)> {
    let text = text.strip_prefix('"')?;
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(characters.next()?.1),
            _ => value.push(character),
        }
        if value.len() > MAX_MESSAGE {
            return None;
        }
    }
    None
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

    fn reason_of(why: &str) -> CallFailureReason {
        let message = format!(
            "Internal error occurred: failed calling webhook \"w.example\": failed to call webhook: \
             Post \"https://opa.opa.svc:443/v0/admit?timeout=10s\": {why}"
        );
        let failure = CallFailure::parse(&message).expect("begins as the API server's own words do");
        assert_eq!(failure.webhook, "w.example");
        assert_eq!(failure.url.as_deref(), Some("https://opa.opa.svc:443/v0/admit"));
        failure.reason
    }

    #[test]
    fn every_reason_is_told_apart() {
        use CallFailureReason as R;
        for (why, reason) in [
            ("context deadline exceeded", R::DeadlineExceeded),
            ("dial tcp 10.0.0.7:443: i/o timeout", R::DialTimeout),
            ("net/http: TLS handshake timeout", R::TlsHandshakeTimeout),
            (
                "dial tcp 10.0.0.7:443: connect: connection refused",
                R::ConnectionRefused,
            ),
            ("dial tcp 10.0.0.7:443: connect: no route to host", R::Unreachable),
            (
                "tls: failed to verify certificate: x509: certificate signed by unknown authority",
                R::Tls,
            ),
            ("no endpoints available for service \"opa\"", R::NoEndpoints),
            ("endpoints \"opa\" not found", R::NoEndpoints),
            ("service \"opa\" not found", R::NoService),
            ("no service port 8443 found for service \"opa\"", R::NoService),
            (
                "dial tcp: lookup nowhere.example on 10.0.0.10:53: no such host",
                R::NoSuchHost,
            ),
            (
                "dial tcp: lookup nowhere.example on 10.0.0.10:53: server misbehaving",
                R::NoSuchHost,
            ),
            (
                "dial tcp: lookup nowhere.example on 10.0.0.10:53: read udp 10.0.0.1:4000->10.0.0.10:53: i/o timeout",
                R::NoSuchHost,
            ),
            ("No agent available", R::Unreachable),
            ("Forbidden", R::Unreachable),
            ("Service Unavailable", R::Unreachable),
            ("Proxy Authentication Required", R::Unreachable),
            (
                "proxy error from 127.0.0.1:8131 while dialing 10.0.0.7:443, code 503: 503 Service Unavailable",
                R::Unreachable,
            ),
            (
                "dial tcp 10.0.0.7:443: connect: operation not permitted",
                R::Unreachable,
            ),
            (
                "dial tcp 10.0.0.7:443: connect: network is unreachable",
                R::Unreachable,
            ),
            (
                "dial tcp 10.0.0.7:443: connect: cannot assign requested address",
                R::Unreachable,
            ),
            ("http: server closed idle connection", R::Other),
            ("EOF", R::ConnectionLost),
            (
                "read tcp 10.0.0.1:50000->10.0.0.7:443: read: connection reset by peer",
                R::ConnectionLost,
            ),
        ] {
            assert_eq!(reason_of(why), reason, "{why}");
        }
    }

    #[test]
    fn a_server_error_is_recognised_with_and_without_the_hooks_own_words() {
        let message = "Internal error occurred: failed calling webhook \"w\": failed to call webhook: an error on \
                       the server (\"dial tcp: connection refused\") has prevented the request from succeeding";
        let failure = CallFailure::parse(message).expect("a call failure");
        assert_eq!(
            failure.reason,
            CallFailureReason::ServerError,
            "the hook's words must not be believed"
        );
    }

    #[test]
    fn what_a_hook_says_in_a_403_does_not_pass_for_a_failure_of_the_network() {
        for lie in ["context deadline exceeded", "x509: expired", "connection refused"] {
            let message = format!("{CALL_FAILURE}\"w\": failed to call webhook: {lie}");
            let failure = CallFailure::parse(&message).expect("a call failure");
            assert_eq!(failure.reason, CallFailureReason::ServerError, "{lie}");
        }
    }

    #[test]
    fn calls_that_got_an_answer_or_were_never_made_are_told_apart_by_how_the_text_begins() {
        use CallFailureReason as R;
        for (why, reason) in [
            (
                "could not get REST client: unable to load root certificates: unable to parse bytes as PEM block",
                R::Tls,
            ),
            (
                "failed to call webhook: 0-length response with status code: 200 and content type: text/plain",
                R::BadAnswer,
            ),
            (
                "failed to call webhook: couldn't get version/kind; json parse error: json: cannot unmarshal string",
                R::BadAnswer,
            ),
            (
                "failed to call webhook: unexpected error when reading response body. Please retry. Original error: \
                 context deadline exceeded",
                R::DeadlineExceeded,
            ),
            ("could not create admission objects: x", R::Other),
        ] {
            let failure = CallFailure::parse(&format!("{CALL_FAILURE}\"w\": {why}")).expect("a call failure");
            assert_eq!(failure.reason, reason, "{why}");
        }
    }

    #[test]
    fn an_answer_that_is_no_admission_review_is_recognised() {
        let message = "Internal error occurred: failed calling webhook \"w\": received invalid webhook response: \
                       expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind=";
        assert_eq!(
            CallFailure::parse(message).map(|f| f.reason),
            Some(CallFailureReason::BadAnswer)
        );
    }

    #[test]
    fn a_hook_cannot_accuse_another_one() {
        let lie = "admission webhook \"liar\" denied the request: Internal error occurred: failed calling webhook \
                   \"innocent\": failed to call webhook: context deadline exceeded";
        assert_eq!(CallFailure::parse(lie), None);
        assert_eq!(
            CanaryOutcome::from_status(400, lie),
            CanaryOutcome::Denied {
                webhook: "liar".into()
            }
        );
        let nested = "Internal error occurred: failed calling webhook \"liar\": failed to call webhook: an error on \
                      the server (\"Internal error occurred: failed calling webhook \\\"innocent\\\": x\") has \
                      prevented the request from succeeding";
        assert_eq!(
            CallFailure::parse(nested).map(|f| f.webhook).as_deref(),
            Some("liar")
        );
    }

    #[test]
    fn a_message_without_end_is_cut() {
        let message = format!("{CALL_FAILURE}\"w\": {}", "x".repeat(1 << 20));
        let failure = CallFailure::parse(&message).expect("a call failure");
        assert!(failure.text.len() <= MAX_MESSAGE);
        assert_eq!(
            CallFailure::parse(&format!("{CALL_FAILURE}\"{}", "x".repeat(1 << 20))),
            None
        );
    }

    #[test]
    fn a_missing_permission_is_no_trouble_of_a_hook() {
        let message = "configmaps \"hookwatch-canary\" is forbidden: User \"u\" cannot patch resource";
        assert!(matches!(
            CanaryOutcome::from_status(403, message),
            CanaryOutcome::Forbidden { .. }
        ));
    }
}
