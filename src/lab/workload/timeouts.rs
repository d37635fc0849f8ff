//! Which failures of a request are timeouts.

use kube::Error;

/// What Go's HTTP client and the API server say when time has run out. A bare `timeout` proves nothing: every call of
/// a webhook has `?timeout=10s` in its URL.
const SIGNS: [&str; 4] = [
    "context deadline exceeded",
    "i/o timeout",
    "TLS handshake timeout",
    "request did not complete within",
];

/// Whether the API server says that time has run out: its own (504), or that of a webhook (500, with the reason).
pub(in crate::lab) fn is_timeout(error: &Error) -> bool {
    match error {
        Error::Api(status) => status.code == 504 || SIGNS.iter().any(|sign| status.message.contains(sign)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn a_refused_connection_is_no_timeout_although_its_url_has_the_word() {
        let post = "failed calling webhook \"v\": failed to call webhook: Post \"https://opa.opa.svc:443/?timeout=10s\": ";
        for (code, why, timed_out) in [
            (500, "context deadline exceeded", true),
            (500, "dial tcp 10.0.0.1:443: i/o timeout", true),
            (500, "net/http: TLS handshake timeout", true),
            (500, "dial tcp 10.0.0.1:443: connect: connection refused", false),
            (403, "denied", false),
            (504, "", true),
        ] {
            let status = Status::failure(&format!("{post}{why}"), "").with_code(code);
            assert_eq!(
                is_timeout(&Error::Api(Box::new(status))),
                timed_out,
                "{code} {why}"
            );
        }
    }
}
