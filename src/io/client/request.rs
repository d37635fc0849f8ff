//! One request to an API server: bounded in time and size, with its answers classified in one place.

use std::time::Duration;

use http::header::{ACCEPT, CONNECTION, CONTENT_TYPE};
use http::{HeaderMap, Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde::de::DeserializeOwned;
use serde_json::Value;
use thiserror::Error;

use super::answer::{error_message, is_connect, percent_encoded, read_body};
use crate::io::error::with_causes;

/// The media type of objects in requests and answers.
pub(crate) const JSON: &str = "application/json";
/// The media type of lists of metadata only. No other type is accepted, so an API server that can only list whole objects refuses.
pub(crate) const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// Why a request was not answered with what it asked for.
#[derive(Debug, Error)]
pub(crate) enum RequestError {
    /// There was no connection, so nothing was done.
    #[error("cannot connect: {0}")]
    NoConnection(String),
    /// The connection ended before an answer. What was asked for may have been done.
    #[error("no answer: {0}")]
    NoAnswer(String),
    /// There was no whole answer in time. What was asked for may have been done.
    #[error("no answer within {} s", .0.as_secs_f32())]
    TimedOut(Duration),
    /// A success whose body is larger than it may be.
    #[error("the answer is larger than the {0} bytes allowed")]
    TooLarge(usize),
    /// A success whose body was cut off, or is not the expected object.
    #[error("{0}")]
    Unfit(String),
    /// A status that is no success.
    #[error("HTTP {status}: {message}")]
    Refused {
        /// The HTTP status; 400 when no request could be built.
        status: u16,
        /// The server's words, as [`error_message`] reads them.
        message: String,
        /// The answer's headers.
        headers: Box<HeaderMap>,
    },
}

/// A request that has not been sent.
#[must_use]
pub(crate) struct ApiRequest<'a> {
    client: &'a Client,
    head: http::request::Builder,
    body: Vec<u8>,
}

impl<'a> ApiRequest<'a> {
    /// A read in the form that `accept` wants; `target` is a path with its query.
    pub(crate) fn get(client: &'a Client, target: &str, accept: &str) -> Self {
        let head = Request::get(target).header(ACCEPT, accept);
        Self {
            client,
            head,
            body: Vec::new(),
        }
    }

    /// A write with a body of this type. Reads name no content type, since `/version` would answer 406.
    pub(crate) fn write(
        client: &'a Client,
        method: Method,
        target: &str,
        content_type: &str,
        body: impl Into<Vec<u8>>,
    ) -> Self {
        let head = Request::builder().method(method).uri(target);
        Self {
            client,
            head: head.header(ACCEPT, JSON).header(CONTENT_TYPE, content_type),
            body: body.into(),
        }
    }

    /// Uses a connection opened for this request alone: behind a balancer, each may lead to another API server.
    pub(crate) fn on_new_connection(self) -> Self {
        Self {
            head: self.head.header(CONNECTION, "close"),
            ..self
        }
    }

    /// Sends the request and returns an answer of any status. It has no timeout: the caller sets one.
    pub(crate) async fn send(self) -> Result<Response<Body>, RequestError> {
        let request = self.head.body(Body::from(self.body));
        let request = request.map_err(|error| RequestError::Refused {
            status: 400,
            message: with_causes(&error),
            headers: Box::default(),
        })?;
        self.client.send(request).await.map_err(|error| {
            let how = if is_connect(&error) {
                RequestError::NoConnection
            } else {
                RequestError::NoAnswer
            };
            how(with_causes(&error))
        })
    }

    /// Sends the request and returns an answer that is a success, with its body still to be read. It has no timeout: the caller
    /// sets one.
    pub(crate) async fn open(self) -> Result<Response<Body>, RequestError> {
        let answer = self.send().await?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let (head, body) = answer.into_parts();
        Err(RequestError::Refused {
            status: head.status.as_u16(),
            message: error_message(body).await,
            headers: Box::new(head.headers),
        })
    }

    /// Sends the request and returns the body of a success, of at most `max` bytes and within `limit`.
    pub(crate) async fn bytes(self, limit: Duration, max: usize) -> Result<Vec<u8>, RequestError> {
        within(limit, async {
            read_body(self.open().await?.into_body(), max).await
        })
        .await
    }

    /// The same as [`Self::bytes`], with the body parsed as JSON.
    pub(crate) async fn json<T: DeserializeOwned>(
        self,
        limit: Duration,
        max: usize,
    ) -> Result<T, RequestError> {
        let body = self.bytes(limit, max).await?;
        // A proxy's login page comes with a 200 as well.
        serde_json::from_slice(&body).map_err(|error| {
            RequestError::Unfit(format!(
                "the answer is not what was asked for ({error}): something other than an API server may answer"
            ))
        })
    }
}

/// The path of a version of an API group; the core group has no name.
pub(crate) fn base(group: &str, version: &str) -> String {
    if group.is_empty() {
        format!("/api/{version}")
    } else {
        format!("/apis/{group}/{version}")
    }
}

/// The target of one page of a list: `limit` objects, from the continue token of the page before.
pub(crate) fn page(path: &str, limit: usize, next: &str) -> String {
    let mut target = format!("{path}?limit={limit}");
    if !next.is_empty() {
        target.push_str("&continue=");
        target.push_str(&percent_encoded(next));
    }
    target
}

pub(crate) fn items(list: &mut Value) -> Vec<Value> {
    match list.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}

/// The result of `work`, or [`RequestError::TimedOut`] after `limit`.
pub(crate) async fn within<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, RequestError>>,
) -> Result<T, RequestError> {
    let done = tokio::time::timeout(limit, work).await;
    done.unwrap_or(Err(RequestError::TimedOut(limit)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::testing::{TestReply, TestServer, soon};

    async fn asked(reply: fn() -> TestReply) -> Result<Value, RequestError> {
        let server = TestServer::start(move |_| reply()).await;
        let connection = server.connection().await;
        let request = ApiRequest::get(connection.calls(), "/x", JSON);
        soon(request.json(Duration::from_millis(300), 1_000)).await
    }

    #[tokio::test]
    async fn a_request_that_may_have_been_carried_out_is_told_from_one_that_was_not() {
        type Check = fn(&RequestError) -> bool;
        let answers: [(fn() -> TestReply, Check); 6] = [
            (|| TestReply::Hang, |why| matches!(why, RequestError::TimedOut(_))),
            (
                || TestReply::Raw(Vec::new()),
                |why| matches!(why, RequestError::NoAnswer(_)),
            ),
            (
                || TestReply::status(409, "changed"),
                |why| matches!(why, RequestError::Refused { status: 409, message, .. } if message == "changed"),
            ),
            (
                || TestReply::Endless("application/json", vec![b' '; 512]),
                |why| why.to_string() == "the answer is larger than the 1000 bytes allowed",
            ),
            (
                || TestReply::Whole(200, "text/html", "<html>log in</html>".to_owned()),
                |why| matches!(why, RequestError::Unfit(why) if why.contains("something other")),
            ),
            (
                || TestReply::Raw(b"HTTP/1.1 200 X\r\ncontent-length: 9\r\n\r\n{".to_vec()),
                |why| matches!(why, RequestError::Unfit(why) if why.contains("broke off")),
            ),
        ];
        for (reply, is_right) in answers {
            let why = asked(reply).await.expect_err("no object");
            assert!(is_right(&why), "{why:?}");
        }
        let server = TestServer::start(|_| TestReply::Hang).await;
        let connection = server.connection().await;
        server.stop().await;
        let request = ApiRequest::get(connection.calls(), "/x", JSON);
        let why = soon(request.open()).await.expect_err("no connection");
        assert!(matches!(why, RequestError::NoConnection(_)), "{why:?}");
    }

    #[test]
    fn a_page_goes_on_from_where_the_one_before_ends() {
        assert_eq!(page("/api/v1/nodes", 5, ""), "/api/v1/nodes?limit=5");
        assert_eq!(page("/x", 5, "a&b"), "/x?limit=5&continue=a%26b");
    }
}
