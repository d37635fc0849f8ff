//! Pushes alerts to an Alertmanager: its API v2, `POST /api/v2/alerts`.
//!
//! Certificates, keys and passwords are read anew for every push, so that one that was renewed is used without a
//! restart, and one that is missing costs no more than the pushes until it is there. None of them is ever part of an
//! error. Redirects are not followed and proxies of the environment not used: credentials go to the configured address
//! and nowhere else.

mod secrets;
mod wire;

use std::path::PathBuf;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, LOCATION};
use reqwest::{Client, Response, StatusCode, Url};
use thiserror::Error;

use self::secrets::Material;
use crate::domain::canary::bounded;

pub use wire::{Envelope, body};

/// Alertmanagers that are told, at most: each is a series of some metrics.
pub const MAX_ALERTMANAGERS: usize = 16;
/// Bytes of an answer that are read, when it is a refusal; nothing is read of any other.
const MAX_ANSWER: usize = 2_048;
/// Characters of it that are passed on.
const MAX_SAID: usize = 300;

/// One Alertmanager and how to be let in. Every secret is in a file; here is only where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Its address with the prefix of its paths, as `--web.external-url` of Alertmanager has it. Without credentials.
    pub url: Url,
    /// PEM file with the authorities that may have signed its certificate; `None` for those of the system.
    pub ca_file: Option<PathBuf>,
    /// PEM files with the certificate by which hookwatch shows who it is, and with its key.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
    /// How it asks who comes.
    pub auth: Auth,
}

/// How an Alertmanager, or the proxy before it, asks who comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Auth {
    /// Not at all.
    None,
    /// By a name and a password, which is in this file.
    Basic {
        /// The name.
        username: String,
        /// The file with the password.
        password_file: PathBuf,
    },
    /// By a token, which is in this file.
    Bearer {
        /// The file with the token.
        token_file: PathBuf,
    },
}

impl Target {
    /// What it is called in logs and metrics: host, port and prefix.
    pub fn name(&self) -> String {
        let host = self.url.host_str().unwrap_or_default();
        let port = self
            .url
            .port_or_known_default()
            .map_or(String::new(), |port| format!(":{port}"));
        format!("{host}{port}{}", self.url.path().trim_end_matches('/'))
    }

    fn endpoint(&self) -> Url {
        let mut endpoint = self.url.clone();
        let prefix = self.url.path().trim_end_matches('/').to_owned();
        endpoint.set_path(&format!("{prefix}/api/v2/alerts"));
        endpoint
    }
}

/// Why a push came to nothing.
#[derive(Debug, Error)]
pub enum PushError {
    /// A certificate, a key, a password or a token cannot be used.
    #[error("{file}: {why}")]
    Unusable {
        /// The file.
        file: String,
        /// What is wrong.
        why: String,
    },
    /// There was no answer in time.
    #[error("it did not answer within {} s", .0.as_secs_f32())]
    TimedOut(Duration),
    /// There is no way to it, or what came back is not HTTP.
    #[error("{0}")]
    Unreachable(String),
    /// It answered that it does not take this.
    #[error("it answered {status}{}", quoted(.said))]
    Refused {
        /// The status.
        status: u16,
        /// The beginning of what it said.
        said: String,
    },
    /// It answered that it cannot, for now.
    #[error("it answered {status}{}", quoted(.said))]
    Unavailable {
        /// The status.
        status: u16,
        /// The beginning of what it said.
        said: String,
    },
}

fn quoted(said: &str) -> String {
    match said {
        "" => String::new(),
        said => format!(" and said {said:?}"),
    }
}

impl PushError {
    /// All values of [`Self::reason`].
    pub const REASONS: [&str; 5] = ["credentials", "timeout", "unreachable", "refused", "unavailable"];

    /// The value of the `reason` label in metrics.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Unusable { .. } => "credentials",
            Self::TimedOut(_) => "timeout",
            Self::Unreachable(_) => "unreachable",
            Self::Refused { .. } => "refused",
            Self::Unavailable { .. } => "unavailable",
        }
    }

    /// Whether the very same may be taken in a moment.
    pub const fn may_pass(&self) -> bool {
        !matches!(self, Self::Refused { .. })
    }

    /// Its status, when it answered.
    pub const fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } | Self::Unavailable { status, .. } => Some(*status),
            _ => None,
        }
    }
}

/// The way to one Alertmanager.
pub struct Alertmanager {
    target: Target,
    timeout: Duration,
    client: Option<(Material, Client)>,
}

impl Alertmanager {
    /// Nothing is read and nobody dialled yet. No push takes longer than `timeout`.
    pub fn new(target: Target, timeout: Duration) -> Self {
        Self {
            target,
            timeout,
            client: None,
        }
    }

    /// Pushes what [`body`] made, once.
    ///
    /// # Errors
    /// When it was not taken.
    pub async fn push(&mut self, body: Vec<u8>) -> Result<(), PushError> {
        let timeout = self.timeout;
        tokio::time::timeout(timeout, self.post(body))
            .await
            .unwrap_or(Err(PushError::TimedOut(timeout)))
    }

    async fn post(&mut self, body: Vec<u8>) -> Result<(), PushError> {
        let authorization = secrets::authorization(&self.target.auth).await?;
        let client = self.client().await?;
        let mut request = client
            .post(self.target.endpoint())
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .body(body);
        if let Some(authorization) = authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let answer = request.send().await.map_err(|error| unreachable(&error))?;
        judge(answer).await
    }

    /// The client, made anew when a file that it was made of is another.
    async fn client(&mut self) -> Result<Client, PushError> {
        let material = Material::read(&self.target).await?;
        if let Some((of, client)) = &self.client
            && *of == material
        {
            return Ok(client.clone());
        }
        let client = Client::builder()
            .tls_backend_preconfigured(material.tls()?)
            .redirect(reqwest::redirect::Policy::none())
            // A push that is repeated is repeated with what holds by then.
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

async fn judge(answer: Response) -> Result<(), PushError> {
    let status = answer.status();
    if status.is_success() {
        return Ok(());
    }
    let redirected = answer
        .headers()
        .get(LOCATION)
        .and_then(|location| location.to_str().ok())
        .filter(|_| status.is_redirection())
        .map(|location| format!("a redirect to {location}, which is not followed"));
    let said = match redirected {
        Some(said) => said,
        None => beginning(answer).await,
    };
    let said: String = bounded(&said).trim().chars().take(MAX_SAID).collect();
    let may_pass = status.is_server_error()
        || [StatusCode::TOO_MANY_REQUESTS, StatusCode::REQUEST_TIMEOUT].contains(&status);
    let status = status.as_u16();
    Err(match may_pass {
        true => PushError::Unavailable { status, said },
        false => PushError::Refused { status, said },
    })
}

/// The beginning of an answer, however long it is.
async fn beginning(mut answer: Response) -> String {
    let mut read = Vec::new();
    while read.len() < MAX_ANSWER {
        match answer.chunk().await {
            Ok(Some(chunk)) => read.extend_from_slice(&chunk[..chunk.len().min(MAX_ANSWER - read.len())]),
            // What was said until it broke off is said all the same.
            Ok(None) | Err(_) => break,
        }
    }
    String::from_utf8_lossy(&read).into_owned()
}

/// An error with all its causes, each once: the last one says what it is about.
fn unreachable(error: &reqwest::Error) -> PushError {
    let mut said = Vec::new();
    let mut next: Option<&dyn std::error::Error> = std::error::Error::source(error);
    while let Some(cause) = next {
        said.push(cause.to_string());
        next = cause.source();
    }
    if said.is_empty() {
        // Its own words begin with the address, which whoever reads this has already.
        said.push("the request could not be made".to_owned());
    }
    said.dedup();
    PushError::Unreachable(bounded(&said.join(": ")))
}

#[cfg(test)]
mod tests;
