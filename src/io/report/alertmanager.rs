//! Pushes alerts to an Alertmanager: its API v2, `POST /api/v2/alerts`.

mod wire;

use std::time::Duration;

use reqwest::Method;
use reqwest::header::{CONTENT_TYPE, HeaderValue};

use crate::io::endpoint::{EndpointClient, EndpointError, EndpointTarget, refused, unreachable};

pub use wire::{AlertEnvelope, body};

/// Most Alertmanagers that can be configured: each is a label value of some metrics.
pub const MAX_ALERTMANAGERS: usize = 16;

/// The client for one Alertmanager.
pub struct Alertmanager {
    endpoint: EndpointClient,
    timeout: Duration,
}

impl Alertmanager {
    /// A client; does no I/O yet. A push takes at most `timeout`.
    pub fn new(target: EndpointTarget, timeout: Duration) -> Self {
        Self {
            endpoint: EndpointClient::new(target),
            timeout,
        }
    }

    /// Pushes a body made by [`body`], without retries.
    ///
    /// # Errors
    /// If there is no 2xx answer within the timeout.
    pub async fn push(&mut self, body: Vec<u8>) -> Result<(), EndpointError> {
        let timeout = self.timeout;
        tokio::time::timeout(timeout, self.post(body))
            .await
            .unwrap_or(Err(EndpointError::TimedOut(timeout)))
    }

    async fn post(&mut self, body: Vec<u8>) -> Result<(), EndpointError> {
        let url = self.endpoint.target.below("/api/v2/alerts");
        let request = self.endpoint.request(Method::POST, url).await?;
        let request = request.header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let answer = request.body(body).send().await;
        let answer = answer.map_err(|error| unreachable(&error))?;
        if answer.status().is_success() {
            return Ok(());
        }
        Err(refused(answer, |said| said).await)
    }
}

#[cfg(test)]
mod tests;
