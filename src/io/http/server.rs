//! Accepting connections within bounds, so that no client can hold the server by being slow.
//!
//! A client may take [`HEADER_TIMEOUT`] for the head of a request, between two requests as well; a connection lives
//! [`LIFETIME`] and then ends after the request under way; and while [`MAX_CONNECTIONS`] are open, others wait.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Connections open at once. A scraper, a few people and the kubelet's probes need ten.
pub(super) const MAX_CONNECTIONS: usize = 64;
/// Longest wait for the head of a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// A connection is closed after so long, even one that is used.
const LIFETIME: Duration = Duration::from_secs(300);
/// Longest wait for an answer to be taken once the connection is to end.
const LAST_ANSWER: Duration = Duration::from_secs(5);
/// Pause after a failed accept: running out of file descriptors does not get better by trying at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

/// Serves until `stop` turns true; requests under way are finished.
pub(super) async fn serve(listener: TcpListener, router: Router, mut stop: watch::Receiver<bool>) {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    // Dropped, and with it every connection, when this future is.
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &room) => accepted,
            () = stopped(&mut stop) => break,
        };
        while connections.try_join_next().is_some() {}
        match accepted {
            Ok((stream, permit)) => {
                let (router, stop) = (router.clone(), stop.clone());
                connections.spawn(async move {
                    hold(stream, router, stop).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "a connection could not be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    while connections.join_next().await.is_some() {}
}

async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    // Whoever finds no room waits in the system's queue, which costs nothing here.
    let permit = Arc::clone(room)
        .acquire_owned()
        .await
        .map_err(std::io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, permit))
}

async fn hold(stream: TcpStream, router: Router, mut stop: watch::Receiver<bool>) {
    let mut connection = std::pin::pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
    );
    tokio::select! {
        // How a client leaves is its own business.
        _ = connection.as_mut() => return,
        () = stopped(&mut stop) => {}
        () = sleep(LIFETIME) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = timeout(LAST_ANSWER, connection).await;
}

/// A sender that is gone means that the daemon is ending too.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}
