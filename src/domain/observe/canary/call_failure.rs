//! How to read the message of a write that was refused because a call to a hook failed.

use serde::{Deserialize, Serialize};

use crate::text::{MAX_MESSAGE, bounded};
use crate::vocabulary::Cause;

/// The parts of the message `Internal error occurred: failed calling webhook "NAME": ...`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallFailure {
    /// The webhook's name; which configuration it belongs to is not in the message.
    pub webhook: String,
    /// The URL that was called, without the query; `None` when the message has none. A hook that answers 403 may have chosen it.
    pub url: Option<String>,
    /// Why the call failed, with the same reserve.
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
    /// the beginning counts, and an unknown beginning is taken for such a body. One that begins like an error of Go's client never
    /// gets here: what the hook says of its own failure is believed then, but it can name no other hook.
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
            "no kind ",
            "converting (",
        ]) {
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
pub(super) fn quoted(text: &str) -> Option<(String, &str)> {
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
    use super::super::CanaryOutcome;
    use super::*;

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
    fn a_hook_that_words_a_403_like_a_failed_call_speaks_of_itself_alone() {
        let body = "Post \"https://innocent.svc/x?timeout=10s\": context deadline exceeded";
        let message = format!("{CALL_FAILURE}\"liar\": failed to call webhook: {body}");
        let failure = CallFailure::parse(&message).expect("a call failure");
        assert_eq!(failure.webhook, "liar");
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
}
