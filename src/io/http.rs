//! The daemon's own HTTP server: `/metrics`, `/live`, `/ready` and `/api/v1/assessment`.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::metrics::{CertificateEnd, Metrics};
use crate::domain::verdict::Assessment;

/// What the server shows. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Shown {
    /// The newest assessment; `None` before the first.
    pub assessment: watch::Receiver<Option<Arc<Assessment>>>,
    /// All metrics.
    pub metrics: Arc<Metrics>,
    /// The end of every certificate known.
    pub certificates: Arc<Mutex<Vec<CertificateEnd>>>,
}

/// The server could not begin to listen.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}; choose another address with --listen")]
pub struct ListenError {
    address: SocketAddr,
    source: std::io::Error,
}

/// Begins to listen.
///
/// # Errors
/// When the address is taken or not ours.
pub async fn listen(address: SocketAddr) -> Result<TcpListener, ListenError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| ListenError { address, source })
}

/// Serves until `stop` turns true; requests under way are finished.
///
/// # Errors
/// When accepting connections fails for good.
pub async fn serve(
    listener: TcpListener,
    shown: Shown,
    mut stop: watch::Receiver<bool>,
) -> std::io::Result<()> {
    axum::serve(listener, router(shown))
        .with_graceful_shutdown(async move {
            // A sender that is gone means that the daemon is ending too.
            let _ = stop.wait_for(|stop| *stop).await;
        })
        .await
}

/// The routes.
pub fn router(shown: Shown) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/live", get(|| async { "alive\n" }))
        .route("/ready", get(ready))
        .route("/api/v1/assessment", get(assessment))
        .with_state(shown)
}

async fn metrics(State(shown): State<Shown>) -> Response {
    let assessment = shown.assessment.borrow().clone();
    let certificates = shown
        .certificates
        .lock()
        .map(|ends| ends.clone())
        .unwrap_or_default();
    match shown.metrics.gather(assessment.as_deref(), &certificates) {
        Ok(text) => (
            [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")],
            text,
        )
            .into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

/// Ready when there is an inventory to judge by. It does not go back: a daemon with an old inventory still
/// serves, and says how old it is.
async fn ready(State(shown): State<Shown>) -> Response {
    let assessment = shown.assessment.borrow().clone();
    let has_inventory =
        assessment.is_some_and(|assessment| assessment.sources.inventory_age_seconds.is_some());
    match has_inventory {
        true => "ready\n".into_response(),
        false => (
            StatusCode::SERVICE_UNAVAILABLE,
            "waiting for the first list of webhook configurations\n",
        )
            .into_response(),
    }
}

async fn assessment(State(shown): State<Shown>) -> Response {
    let assessment = shown.assessment.borrow().clone();
    match assessment {
        Some(assessment) => axum::Json(&*assessment).into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, "nothing has been judged yet\n").into_response(),
    }
}
