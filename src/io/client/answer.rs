//! Reading what an API server answers, within bounds and leniently.
//!
//! kube's own reader collects bodies without a bound, and an error body that is not a `Status` (a proxy's
//! page, a load balancer's text) costs it the message. Here the HTTP status always survives.

use std::error::Error;
use std::time::Duration;

use http_body_util::BodyExt;
use kube::client::Body;
use serde::Deserialize;

use crate::domain::text::bounded;

/// Most that is read of an answer whose body matters only as a message.
pub(crate) const MAX_ERROR_BODY: usize = 64 * 1024;
/// Longest wait for the rest of a body whose status is already known.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a body could not be read whole.
#[derive(Debug)]
pub(crate) enum BodyError {
    /// It is larger than allowed.
    TooLarge,
    /// The connection broke.
    Broken(String),
}

impl std::fmt::Display for BodyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooLarge => f.write_str("the answer is larger than allowed"),
            Self::Broken(why) => write!(f, "the answer broke off: {why}"),
        }
    }
}

/// Reads a body of at most `limit` bytes. The caller keeps the time.
pub(crate) async fn read_body(mut body: Body, limit: usize) -> Result<Vec<u8>, BodyError> {
    let mut read = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| BodyError::Broken(chain(&error)))?;
        if let Ok(data) = frame.into_data() {
            if read.len() + data.len() > limit {
                return Err(BodyError::TooLarge);
            }
            read.extend_from_slice(&data);
        }
    }
    Ok(read)
}

/// The message of an answer that is not a success. Never fails: what cannot be read is left out.
pub(crate) async fn error_message(mut body: Body) -> String {
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
    struct Status {
        message: String,
    }
    if let Ok(Status { message }) = serde_json::from_slice(body)
        && !message.is_empty()
    {
        return message;
    }
    let text = bounded(String::from_utf8_lossy(body).trim());
    if text.is_empty() {
        "no message".to_owned()
    } else {
        text
    }
}

/// An error with its causes, each said once, bounded.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        // Many of kube's errors print their source themselves.
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    // kube's name for "something below me".
    bounded(text.strip_prefix("ServiceError: ").unwrap_or(&text))
}

/// Whether the request never left because there was no connection.
pub(crate) fn is_connect(error: &kube::Error) -> bool {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<hyper_util::client::legacy::Error>() {
            return error.is_connect();
        }
        cause = error.source();
    }
    false
}

/// A query value with everything escaped that is not plainly safe.
pub(crate) fn query_value(value: &str) -> String {
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
        assert_eq!(proxy, "<html><h1>502 Bad Gateway</h1></html>");
        assert_eq!(message_of(b""), "no message");
        assert_eq!(message_of(b"{\"message\":\"\"}"), "{\"message\":\"\"}");
        assert_eq!(message_of(br#"{"kind":"Status","message":"no"}"#), "no");
    }

    #[test]
    fn a_query_value_cannot_leave_its_place() {
        assert_eq!(
            query_value("kubernetes.io/x in (a,b)&c"),
            "kubernetes.io%2Fx%20in%20%28a%2Cb%29%26c"
        );
    }

    #[tokio::test]
    async fn a_body_beyond_its_bound_is_not_kept() {
        let body = Body::from(vec![b'x'; 1_000]);
        assert!(matches!(read_body(body, 999).await, Err(BodyError::TooLarge)));
        let body = Body::from(vec![b'x'; 1_000]);
        assert_eq!(
            read_body(body, 1_000).await.expect("within the bound").len(),
            1_000
        );
    }
}
