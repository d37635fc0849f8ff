//! A server beside the cluster, such as an Alertmanager or a Prometheus: how hookwatch reaches it and authenticates.
//!
//! Certificates, keys and passwords are read again for every request: a renewed one is used without a restart, and a missing one
//! fails only the requests until it is there. None of them is ever part of an error. Redirects are not followed and proxies of the
//! environment not used: credentials go to the configured address and nowhere else.

pub(super) mod secrets;

use std::path::PathBuf;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, LOCATION};
use reqwest::{Client, Method, RequestBuilder, Response, Url};
use thiserror::Error;

use self::secrets::Material;
use super::error::without_url;
use crate::domain::text::bounded;

/// Most bytes read of the body of an error answer.
const MAX_ANSWER: usize = 2_048;
/// Most characters of that body in an error.
const MAX_SAID: usize = 300;

/// One server and how hookwatch authenticates to it. Secrets are in files, of which only the paths are here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointTarget {
    /// Its address with the prefix of its paths, as in `--web.external-url`. Without credentials.
    pub url: Url,
    /// PEM file with the authorities that may have signed its certificate; `None` for those of the system.
    pub ca_file: Option<PathBuf>,
    /// PEM files of hookwatch's client certificate and of its key; `None` to present none.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
    /// How it authenticates hookwatch.
    pub auth: Auth,
}

/// How a server, or the proxy in front of it, authenticates a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Auth {
    /// Not at all.
    None,
    /// HTTP Basic: by a name, and a password in this file.
    Basic {
        /// The name.
        username: String,
        /// The file with the password.
        password_file: PathBuf,
    },
    /// By a bearer token in this file.
    Bearer {
        /// The file with the token.
        token_file: PathBuf,
    },
}

impl EndpointTarget {
    /// What it is called in logs and metrics: host, port and prefix.
    pub fn name(&self) -> String {
        let host = self.url.host_str().unwrap_or_default();
        let port = self
            .url
            .port_or_known_default()
            .map_or(String::new(), |port| format!(":{port}"));
        format!("{host}{port}{}", self.url.path().trim_end_matches('/'))
    }

    /// The address of a path below the prefix.
    pub(super) fn below(&self, path: &str) -> Url {
        let mut url = self.url.clone();
        let prefix = self.url.path().trim_end_matches('/').to_owned();
        url.set_path(&format!("{prefix}{path}"));
        url
    }
}

/// Why a request could not be made, got no answer, or a refusal.
#[derive(Debug, Error)]
pub enum EndpointError {
    /// A certificate, a key, a password or a token cannot be used.
    #[error("{file}: {why}")]
    Unusable {
        /// The file.
        file: String,
        /// What is wrong.
        why: String,
    },
    /// It is unreachable, or the answer is not HTTP.
    #[error("{0}")]
    Unreachable(String),
    /// There was no answer in time.
    #[error("it did not answer within {} s", .0.as_secs_f32())]
    TimedOut(Duration),
    /// It answered with a status that is not a success.
    #[error("it answered {status}{}", quoted(.said))]
    Status {
        /// The status.
        status: u16,
        /// The beginning of its message; empty when there is none.
        said: String,
    },
}

impl EndpointError {
    /// All values of [`Self::reason`].
    pub const REASONS: [&str; 5] = ["credentials", "timeout", "unreachable", "refused", "unavailable"];

    /// The value of the `reason` label in metrics.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Unusable { .. } => "credentials",
            Self::Unreachable(_) => "unreachable",
            Self::TimedOut(_) => "timeout",
            Self::Status { .. } if self.may_pass() => "unavailable",
            Self::Status { .. } => "refused",
        }
    }

    /// Whether a retry may succeed.
    pub const fn may_pass(&self) -> bool {
        match self {
            Self::Status { status, .. } => matches!(*status, 408 | 429 | 500..=599),
            _ => true,
        }
    }

    /// The status of its answer; `None` when the failure is not an answer.
    pub const fn status(&self) -> Option<u16> {
        match self {
            Self::Status { status, .. } => Some(*status),
            _ => None,
        }
    }
}

/// The end of a sentence about a server: the message that came with its status.
fn quoted(said: &str) -> String {
    match said {
        "" => String::new(),
        said => format!(" and said {said:?}"),
    }
}

/// The client for one server.
pub(super) struct EndpointClient {
    pub(super) target: EndpointTarget,
    client: Option<(Material, Client)>,
}

impl EndpointClient {
    /// Nothing is read and nothing dialled yet.
    pub(super) fn new(target: EndpointTarget) -> Self {
        Self { target, client: None }
    }

    /// A request with the credentials of the target.
    pub(super) async fn request(
        &mut self,
        method: Method,
        url: Url,
    ) -> Result<RequestBuilder, EndpointError> {
        let authorization = secrets::authorization(&self.target.auth).await?;
        let request = self.client().await?.request(method, url);
        Ok(match authorization {
            Some(authorization) => request.header(AUTHORIZATION, authorization),
            None => request,
        })
    }

    /// The client, made again when a file that it was made of has changed.
    async fn client(&mut self) -> Result<Client, EndpointError> {
        let target = &self.target;
        let material = Material::read(target.ca_file.as_deref(), target.client_certificate.as_ref()).await?;
        if let Some((of, client)) = &self.client
            && *of == material
        {
            return Ok(client.clone());
        }
        let client = Client::builder()
            .tls_backend_preconfigured(material.tls(target.url.scheme() == "https")?)
            .redirect(reqwest::redirect::Policy::none())
            // Callers repeat requests themselves, with credentials read again.
            .retry(reqwest::retry::never())
            .no_proxy()
            .pool_max_idle_per_host(1)
            .user_agent(concat!("hookwatch/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| unreachable(&error))?;
        self.client = Some((material, client.clone()));
        Ok(client)
    }
}

/// The error for an answer that is not a success. `words` extracts the message from the beginning of the body.
pub(super) async fn refused(answer: Response, words: impl FnOnce(String) -> String) -> EndpointError {
    let status = answer.status().as_u16();
    let said = match redirect(&answer) {
        Some(said) => said,
        None => words(beginning(answer).await),
    };
    let said = bounded(&said).trim().chars().take(MAX_SAID).collect();
    EndpointError::Status { status, said }
}

/// The message for a redirect; `None` for any other answer.
fn redirect(answer: &Response) -> Option<String> {
    let location = answer.headers().get(LOCATION)?.to_str().ok()?;
    let is_redirect = answer.status().is_redirection();
    is_redirect.then(|| format!("a redirect to {location}, which is not followed"))
}

/// The beginning of an answer, however long it is.
async fn beginning(mut answer: Response) -> String {
    let mut read = Vec::new();
    while read.len() < MAX_ANSWER {
        match answer.chunk().await {
            Ok(Some(chunk)) => read.extend_from_slice(&chunk[..chunk.len().min(MAX_ANSWER - read.len())]),
            // The part received before the failure is still used.
            Ok(None) | Err(_) => break,
        }
    }
    String::from_utf8_lossy(&read).into_owned()
}

/// The error for an unreachable server, or an answer that was cut off.
pub(super) fn unreachable(error: &reqwest::Error) -> EndpointError {
    EndpointError::Unreachable(without_url(error))
}
