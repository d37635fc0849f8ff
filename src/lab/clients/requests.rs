//! Requests in the name of a control-plane component, and the outcomes of its writes.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use http::Request;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::Value;

use crate::lab::workload::{RequestTicket, WorkloadRecord, is_timeout};

/// The user whom requests impersonate, and its groups.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClientIdentity<'a> {
    pub user: &'a str,
    pub groups: &'a [&'a str],
}

impl ClientIdentity<'_> {
    /// A client with connections of its own, that impersonates this user and does not retry.
    ///
    /// # Errors
    /// When the kubeconfig cannot be used.
    pub(super) async fn client(&self, kubeconfig: &str) -> anyhow::Result<Client> {
        let kubeconfig = Kubeconfig::from_yaml(kubeconfig).context("reading the lab's kubeconfig")?;
        let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .context("using the lab's kubeconfig")?;
        config.auth_info.impersonate = Some(self.user.to_owned());
        config.auth_info.impersonate_groups =
            Some(self.groups.iter().map(|group| (*group).to_owned()).collect());
        // client-go retries only answers with Retry-After.
        config.default_retry = false;
        Client::try_from(config).with_context(|| format!("making a client for {}", self.user))
    }
}

/// Why a request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestFailure {
    /// 404.
    NotFound,
    /// 409: another write came in between.
    Conflict,
    /// Anything else, timeouts included.
    Failed,
}

impl From<&kube::Error> for RequestFailure {
    fn from(error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.code == 404 => Self::NotFound,
            kube::Error::Api(status) if status.code == 409 => Self::Conflict,
            _ => Self::Failed,
        }
    }
}

/// Sends one request. It has no timeout.
pub(super) async fn send(
    client: &Client,
    method: &str,
    path: &str,
    agent: &str,
    body: &Value,
) -> kube::Result<Value> {
    let content_type = if method == "PATCH" {
        "application/merge-patch+json"
    } else {
        "application/json"
    };
    let body = if body.is_null() {
        Vec::new()
    } else {
        body.to_string().into_bytes()
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content_type)
        .header("user-agent", agent)
        .body(body)
        .map_err(kube::Error::HttpError)?;
    client.request(request).await
}

/// A write in flight. Dropped before its end, it counts as timed out.
struct PendingWrite<'a> {
    record: &'a Arc<WorkloadRecord>,
    ticket: Option<RequestTicket>,
}

impl Drop for PendingWrite<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.record.lost(Instant::now(), ticket, true);
        }
    }
}

/// Waits for a write, and records how it ends; `what` is for instance `renew leases in kube-system`.
pub(super) async fn recorded<T>(
    record: &Arc<WorkloadRecord>,
    what: &str,
    request: impl Future<Output = kube::Result<T>>,
) -> kube::Result<T> {
    let mut write = PendingWrite {
        record,
        ticket: Some(record.begins(Instant::now(), what)),
    };
    let answer = request.await;
    if let Some(ticket) = write.ticket.take() {
        match &answer {
            Ok(_) => record.wrote(Instant::now(), ticket),
            Err(error) => record.lost(Instant::now(), ticket, is_timeout(error)),
        }
    }
    answer
}
