//! The first request to a server: whether it is a Kubernetes API server at all, and if not, what it is instead.
//!
//! The observers report each failed request separately. For a wrong server address, one sentence serves the operator better.

use std::time::Duration;

use http::HeaderMap;
use http::header::{LOCATION, RETRY_AFTER};
use serde_json::Value;
use thiserror::Error;

use super::Connection;
use super::request::{ApiRequest, JSON, RequestError};
use crate::domain::text::bounded;

/// Longest wait for each of the two answers.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Most bytes read of one answer. The list of resources of a group has a few kilobytes.
const MAX_BODY: usize = 256 * 1024;
const VERSION: &str = "/version";
const RESOURCES: &str = "/apis/admissionregistration.k8s.io/v1";

/// Why this server cannot be watched, and what to do next. `server` is its URL.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Obstacle {
    /// There is no connection to the server, or its certificate does not verify.
    #[error(
        "there is no connection to {server} ({why}); check that the API server runs and that the kubeconfig has its \
         address and its certificate authority"
    )]
    NoConnection {
        /// The URL.
        server: String,
        /// What the system said.
        why: String,
    },
    /// The server accepts the connection and does not answer within 5 s.
    #[error(
        "{server} takes the connection and does not answer within 5 s; the API server hangs, or something in front of \
         it does: look at its own log, and ask it for /livez from its own machine"
    )]
    NoAnswer {
        /// The URL.
        server: String,
    },
    /// The connection ends without an HTTP answer.
    #[error(
        "{server} takes the connection and ends it without an answer ({why}); check the port, and whether https is \
         meant where the kubeconfig says http"
    )]
    Closed {
        /// The URL.
        server: String,
        /// What the client said.
        why: String,
    },
    /// The server redirects the request.
    #[error(
        "{server} redirects {path} to {to}; no API server does: a proxy or a login page stands in front of it. Check \
         the server in the kubeconfig, and HTTPS_PROXY"
    )]
    Redirects {
        /// The URL.
        server: String,
        /// The path that was asked for.
        path: &'static str,
        /// Where it leads.
        to: String,
    },
    /// A success whose body is not an API server's.
    #[error(
        "{server} answers {path} with something that is no API server's ({what}); a proxy or a login page stands in \
         front of it. Check the server in the kubeconfig, and HTTPS_PROXY"
    )]
    SomethingElse {
        /// The URL.
        server: String,
        /// The path that was asked for.
        path: &'static str,
        /// The beginning of what came.
        what: String,
    },
    /// Any other status that is not a success.
    #[error("{server} {said}")]
    Refused {
        /// The URL.
        server: String,
        /// The status.
        status: u16,
        /// What the status means and what to do next.
        said: String,
    },
    /// An API server without webhooks.
    #[error(
        "{server} (version {version}) has no ValidatingWebhookConfigurations in admissionregistration.k8s.io/v1; \
         hookwatch needs Kubernetes 1.16 or later, and not an aggregated API server by itself"
    )]
    NoWebhooks {
        /// The URL.
        server: String,
        /// Its version.
        version: String,
    },
}

impl Obstacle {
    /// Whether the server is no API server with webhooks: then its other answers are no evidence about one.
    pub const fn is_another_server(&self) -> bool {
        matches!(
            self,
            Self::Redirects { .. }
                | Self::SomethingElse { .. }
                | Self::Refused { status: 404, .. }
                | Self::NoWebhooks { .. }
        )
    }
}

impl Connection {
    /// Asks the configured server for its version, and checks that it has webhook configurations. Returns the `gitVersion`.
    ///
    /// # Errors
    /// Why it cannot be watched, in one sentence with the next step.
    pub async fn greet(&self) -> Result<String, Obstacle> {
        let server = self.server();
        let server = server.trim_end_matches('/');
        let about = self.ask(server, VERSION).await?;
        let version = about.as_ref().ok().and_then(|value| value["gitVersion"].as_str());
        let Some(version) = version.map(bounded) else {
            return Err(something_else(server, VERSION, about));
        };
        let has_webhooks = match self.ask(server, RESOURCES).await {
            Ok(Ok(list)) => list["resources"].as_array().is_some_and(|resources| {
                let mut names = resources.iter().map(|resource| &resource["name"]);
                names.any(|name| name == "validatingwebhookconfigurations")
            }),
            Ok(other) => return Err(something_else(server, RESOURCES, other)),
            Err(Obstacle::Refused { status: 404, .. }) => false,
            // An account that may not read the list of kinds may still read the objects.
            Err(Obstacle::Refused { status: 403, .. }) => true,
            Err(obstacle) => return Err(obstacle),
        };
        if has_webhooks {
            Ok(version)
        } else {
            Err(Obstacle::NoWebhooks {
                server: server.to_owned(),
                version,
            })
        }
    }

    /// The JSON at a path, or the beginning of what the server sent instead.
    async fn ask(&self, server: &str, path: &'static str) -> Result<Result<Value, String>, Obstacle> {
        let server = server.to_owned();
        let request = ApiRequest::get(self.canaries(), path, JSON).on_new_connection();
        let (status, message, headers) = match request.bytes(TIMEOUT, MAX_BODY).await {
            Ok(body) => return Ok(serde_json::from_slice(&body).map_err(|_| beginning(&body))),
            Err(unfit @ (RequestError::Unfit(_) | RequestError::TooLarge(_))) => {
                return Ok(Err(unfit.to_string()));
            }
            Err(RequestError::NoConnection(why)) => return Err(Obstacle::NoConnection { server, why }),
            Err(RequestError::NoAnswer(why)) => return Err(Obstacle::Closed { server, why }),
            Err(RequestError::TimedOut(_)) => return Err(Obstacle::NoAnswer { server }),
            Err(RequestError::Refused {
                status,
                message,
                headers,
            }) => (status, message, headers),
        };
        if (300..400).contains(&status) {
            let to = header(&headers, LOCATION.as_str()).unwrap_or_else(|| "nowhere".to_owned());
            return Err(Obstacle::Redirects { server, path, to });
        }
        let said = refusal(path, status, &message, &headers);
        Err(Obstacle::Refused { server, status, said })
    }
}

/// What an error status means and what to do next, as the rest of a sentence that begins with the server's URL.
fn refusal(path: &str, status: u16, message: &str, headers: &HeaderMap) -> String {
    let answer = format!("(HTTP {status}: {message})");
    match status {
        401 => {
            format!("does not accept hookwatch's credentials {answer}; renew them, or log in again")
        }
        403 => format!(
            "forbids even {path} {answer}; bind the ClusterRole system:public-info-viewer to hookwatch's account, and \
             check that it is the account that is meant"
        ),
        404 => format!(
            "has no {path} {answer}: it is no Kubernetes API server, or the server in the kubeconfig lacks a path"
        ),
        429 => {
            let wait = header(headers, RETRY_AFTER.as_str());
            let wait = wait.map_or_else(String::new, |wait| format!(" and says Retry-After: {wait}"));
            format!(
                "turns requests away {answer}{wait}; it is swamped: look at who asks it most, and try again"
            )
        }
        _ => format!("answers {path} with HTTP {status}: {message}; look at the API server's own log"),
    }
}

fn something_else(server: &str, path: &'static str, came: Result<Value, String>) -> Obstacle {
    Obstacle::SomethingElse {
        server: server.to_owned(),
        path,
        what: came.map_or_else(|what| what, |value| beginning(value.to_string().as_bytes())),
    }
}

/// The beginning of a body, by which a person can recognize it.
fn beginning(body: &[u8]) -> String {
    const TOLD: usize = 80;
    let text = bounded(String::from_utf8_lossy(body).trim());
    match text.char_indices().nth(TOLD) {
        None if text.is_empty() => "nothing".to_owned(),
        None => text,
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}

fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .map(bounded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::testing::{ReceivedRequest, TestReply, TestServer, soon};

    async fn greet(
        handler: impl Fn(&ReceivedRequest) -> TestReply + Send + Sync + 'static,
    ) -> Result<String, Obstacle> {
        let server = TestServer::start(handler).await;
        soon(server.connection().await.greet()).await
    }

    fn raw(head: &str, body: &str) -> TestReply {
        let length = body.len();
        TestReply::Raw(
            format!("HTTP/1.1 {head}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}").into(),
        )
    }

    const ABOUT: &str = r#"{"major":"1","minor":"36","gitVersion":"v1.36.2"}"#;

    #[tokio::test]
    async fn an_api_server_with_webhooks_is_known_by_its_version() {
        let version = greet(|asked| match asked.target.as_str() {
            VERSION => TestReply::json(200, ABOUT),
            _ => TestReply::json(
                200,
                r#"{"resources":[{"name":"validatingwebhookconfigurations"}]}"#,
            ),
        })
        .await;
        assert_eq!(version.as_deref(), Ok("v1.36.2"));
    }

    #[tokio::test]
    async fn an_api_server_whose_discovery_knows_no_webhooks_is_said_to_have_none() {
        for answer in [
            || TestReply::json(200, r#"{"resources":[]}"#),
            || TestReply::status(404, "no"),
        ] {
            let obstacle = greet(move |asked| match asked.target.as_str() {
                VERSION => TestReply::json(200, ABOUT),
                _ => answer(),
            })
            .await
            .expect_err("no webhooks");
            let said = obstacle.to_string();
            assert!(
                said.contains("(version v1.36.2) has no ValidatingWebhookConfigurations"),
                "{said}"
            );
        }
    }

    #[tokio::test]
    async fn whatever_stands_there_instead_is_named_with_the_next_step() {
        type Answer = fn() -> TestReply;
        let answers: [(Answer, &str); 9] = [
            (
                || TestReply::Whole(200, "text/html", "<html>Please log in</html>".to_owned()),
                "something that is no API server's (<html>Please log in</html>)",
            ),
            (
                || raw("302 X\r\nlocation: https://login.example/", ""),
                "redirects /version to https://login.example/; no API server does",
            ),
            (
                || TestReply::status(401, "Unauthorized"),
                "renew them, or log in again",
            ),
            (|| TestReply::status(403, "no"), "system:public-info-viewer"),
            (
                || raw("429 X\r\nretry-after: 7", "slow down"),
                "(HTTP 429: slow down) and says Retry-After: 7; it is swamped",
            ),
            (
                || raw("500 X", "boom"),
                "answers /version with HTTP 500: boom; look at the API server's own log",
            ),
            (
                || raw("404 X", "404 page not found"),
                "HTTP 404: 404 page not found",
            ),
            (|| TestReply::Hang, "does not answer within 5 s"),
            (|| TestReply::Raw(Vec::new()), "ends it without an answer"),
        ];
        for (answer, says) in answers {
            let obstacle = greet(move |_| answer()).await.expect_err(says);
            let said = obstacle.to_string();
            assert!(
                said.contains(says) && said.starts_with("http://127.0.0.1:"),
                "{said}"
            );
        }
    }

    #[tokio::test]
    async fn an_address_that_refuses_connections_is_named() {
        let server = TestServer::start(|_| TestReply::Hang).await;
        let connection = server.connection().await;
        let address = server.address;
        server.stop().await;
        let said = soon(connection.greet()).await.expect_err("refused").to_string();
        assert!(
            said.contains(&format!("there is no connection to http://{address}")) && said.contains("refused"),
            "{said}"
        );
    }
}
