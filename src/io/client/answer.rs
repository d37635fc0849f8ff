//! Reading what an API server answers, within bounds and leniently.
//!
//! kube's own reader collects bodies without a bound, and an error body that is not a `Status` (a proxy's
//! page, a load balancer's text) costs it the message. Here the HTTP status always survives.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use kube::client::Body;
use serde::Deserialize;

use super::request::RequestError;
use crate::domain::text::{bounded, bounded_to};
use crate::io::error::{causes, with_causes};

/// Most that is read of an answer whose body matters only as a message, in bytes. A denial quotes the webhook's message, at
/// any length, and a truncated `Status` does not even yield the webhook's name.
const MAX_ERROR_BODY: usize = 1 << 20;
/// Most bytes kept of the message of a `Status`. A webhook's name and URL and why its call failed fit into that, and a longer text
/// of a webhook fills no log.
const MAX_STATUS_MESSAGE: usize = 4 << 10;
/// Longest wait for the rest of a body whose status is already known: shorter than any request may take, so that the status
/// survives a body that hangs.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(1);

/// Reads a body of at most `limit` bytes. It has no timeout: the caller sets one.
pub(crate) async fn read_body<B>(mut body: B, limit: usize) -> Result<Vec<u8>, RequestError>
where
    B: hyper::body::Body<Data = Bytes, Error: std::error::Error + 'static> + Unpin,
{
    let mut read = Vec::new();
    while let Some(frame) = body.frame().await {
        let broke_off =
            |error: B::Error| RequestError::Unfit(format!("the answer broke off: {}", with_causes(&error)));
        if let Ok(chunk) = frame.map_err(broke_off)?.into_data() {
            if read.len() + chunk.len() > limit {
                return Err(RequestError::TooLarge(limit));
            }
            read.extend_from_slice(&chunk);
        }
    }
    Ok(read)
}

/// The message of an answer that is not a success. Never fails: what cannot be read is left out.
pub(super) async fn error_message(mut body: Body) -> String {
    let mut read = Vec::new();
    let reading = async {
        while let Some(Ok(frame)) = body.frame().await {
            if let Ok(data) = frame.into_data() {
                let room = MAX_ERROR_BODY - read.len();
                read.extend_from_slice(&data[..data.len().min(room)]);
            }
            if read.len() == MAX_ERROR_BODY {
                break;
            }
        }
    };
    // Whatever came in time is used.
    let _ = tokio::time::timeout(ERROR_BODY_TIMEOUT, reading).await;
    message_of(&read)
}

/// The `message` of a `Status`; of anything else the beginning of its text.
fn message_of(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct StatusMessage {
        message: String,
    }
    if let Ok(StatusMessage { message }) = serde_json::from_slice(body)
        && !message.is_empty()
    {
        return bounded_to(MAX_STATUS_MESSAGE, &message);
    }
    let text = bounded(String::from_utf8_lossy(body).trim());
    if text.is_empty() {
        "no message".to_owned()
    } else {
        text
    }
}

/// Whether the request never left because there was no connection.
pub(super) fn is_connect(error: &kube::Error) -> bool {
    let sent = causes(error).find_map(|cause| cause.downcast_ref::<hyper_util::client::legacy::Error>());
    sent.is_some_and(|error| error.is_connect())
}

/// A value of a query or a segment of a path, with everything escaped that is not plainly safe.
pub(crate) fn percent_encoded(value: &str) -> String {
    use std::fmt::Write as _;
    let mut escaped = String::with_capacity(value.len());
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            escaped.push(byte as char);
        } else {
            // Writing into a String cannot fail.
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_that_is_no_status_still_gives_its_text() {
        let proxy = message_of(b"<html>\n<h1>502 Bad Gateway</h1></html>");
        assert_eq!(proxy, "<html> <h1>502 Bad Gateway</h1></html>");
        assert_eq!(message_of(b""), "no message");
        assert_eq!(message_of(b"{\"message\":\"\"}"), "{\"message\":\"\"}");
        assert_eq!(message_of(br#"{"kind":"Status","message":"no"}"#), "no");
    }

    #[tokio::test]
    async fn of_a_long_denial_the_webhook_can_still_be_read_and_no_more_than_the_bound_is_kept() {
        let denial = format!(
            "admission webhook \"w.x\" denied the request: {}",
            "no ".repeat(100_000)
        );
        let status = serde_json::json!({"kind": "Status", "message": denial});
        let body = Body::from(status.to_string().into_bytes());
        let message = error_message(body).await;
        assert_eq!(message, denial[..MAX_STATUS_MESSAGE]);
    }

    #[test]
    fn what_is_percent_encoded_cannot_leave_its_place() {
        assert_eq!(
            percent_encoded("kubernetes.io/x in (a,b)&c"),
            "kubernetes.io%2Fx%20in%20%28a%2Cb%29%26c"
        );
    }

    #[tokio::test]
    async fn a_body_beyond_its_bound_is_not_kept() {
        let body = Body::from(vec![b'x'; 1_000]);
        assert!(matches!(
            read_body(body, 999).await,
            Err(RequestError::TooLarge(999))
        ));
        let body = Body::from(vec![b'x'; 1_000]);
        assert_eq!(
            read_body(body, 1_000).await.expect("within the bound").len(),
            1_000
        );
    }
}
