//! Pushes alerts to an Alertmanager: its API v2, `POST /api/v2/alerts`.

mod wire;

use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderValue};
use reqwest::{Method, Response};
use thiserror::Error;

use crate::domain::text::bounded;
use crate::io::endpoint::{
    EndpointClient, EndpointError, EndpointTarget, beginning, quoted, redirect, unreachable,
};

pub use wire::{AlertEnvelope, body};

/// Alertmanagers that are told, at most: each is a series of some metrics.
pub const MAX_ALERTMANAGERS: usize = 16;
/// Characters of a refusal that are passed on; nothing is read of any other answer.
const MAX_SAID: usize = 300;

/// Why a push came to nothing.
#[derive(Debug, Error)]
pub enum PushError {
    /// The request could not be made, or got no answer.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// There was no answer in time.
    #[error("it did not answer within {} s", .0.as_secs_f32())]
    TimedOut(Duration),
    /// It answered that it does not take this, or that it cannot for now.
    #[error("it answered {status}{}", quoted(.said))]
    Status {
        /// The status.
        status: u16,
        /// The beginning of what it said.
        said: String,
    },
}

impl PushError {
    /// All values of [`Self::reason`].
    pub const REASONS: [&str; 5] = ["credentials", "timeout", "unreachable", "refused", "unavailable"];

    /// The value of the `reason` label in metrics.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Endpoint(EndpointError::Unusable { .. }) => "credentials",
            Self::Endpoint(EndpointError::Unreachable(_)) => "unreachable",
            Self::TimedOut(_) => "timeout",
            Self::Status { .. } if self.may_pass() => "unavailable",
            Self::Status { .. } => "refused",
        }
    }

    /// Whether the very same may be taken in a moment.
    pub const fn may_pass(&self) -> bool {
        match self {
            Self::Status { status, .. } => matches!(*status, 408 | 429 | 500..=599),
            Self::Endpoint(_) | Self::TimedOut(_) => true,
        }
    }

    /// Its status, when it answered.
    pub const fn status(&self) -> Option<u16> {
        match self {
            Self::Status { status, .. } => Some(*status),
            Self::Endpoint(_) | Self::TimedOut(_) => None,
        }
    }
}

/// The way to one Alertmanager.
pub struct Alertmanager {
    endpoint: EndpointClient,
    timeout: Duration,
}

impl Alertmanager {
    /// Nothing is read and nobody dialled yet. No push takes longer than `timeout`.
    pub fn new(target: EndpointTarget, timeout: Duration) -> Self {
        Self {
            endpoint: EndpointClient::new(target),
            timeout,
        }
    }

    /// Pushes what [`body`] made, once.
    pub async fn push(&mut self, body: Vec<u8>) -> Result<(), PushError> {
        let timeout = self.timeout;
        tokio::time::timeout(timeout, self.post(body))
            .await
            .unwrap_or(Err(PushError::TimedOut(timeout)))
    }

    async fn post(&mut self, body: Vec<u8>) -> Result<(), PushError> {
        let url = self.endpoint.target.below("/api/v2/alerts");
        let request = self.endpoint.request(Method::POST, url).await?;
        let request = request.header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let answer = request.body(body).send().await;
        judge(answer.map_err(|error| unreachable(&error))?).await
    }
}

async fn judge(answer: Response) -> Result<(), PushError> {
    if answer.status().is_success() {
        return Ok(());
    }
    let status = answer.status().as_u16();
    let said = match redirect(&answer) {
        Some(said) => said,
        None => beginning(answer).await,
    };
    let said: String = bounded(&said).trim().chars().take(MAX_SAID).collect();
    Err(PushError::Status { status, said })
}

#[cfg(test)]
mod tests;
