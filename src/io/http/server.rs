//! Accepting connections within bounds, so that no client can hold the server by being slow.
//!
//! A client may take [`HEADER_TIMEOUT`] for the head of a request, also between two requests. It must read its answer at a minimum
//! speed ([`Patient`]). A connection lives for [`LIFETIME`], and then ends after the current request. Where there is no room for
//! another one ([`ConnectionRoom`]), one is closed.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

use super::access::Peer;
use super::patient::Patient;
use super::room::{ConnectionPermit, ConnectionRoom};
use super::tls::Tls;

/// Longest wait for the head of a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest wait for a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Largest head of a request, in bytes.
const MAX_HEAD: usize = 32 << 10;
/// A connection is closed after this time, even one in use.
const LIFETIME: Duration = Duration::from_secs(300);
/// Longest wait for the client to read its answer once the connection must end.
const LAST_ANSWER: Duration = Duration::from_secs(5);
/// Pause after a failed accept: the cause, such as too few file descriptors, lasts for a while.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

/// Serves until `stop` turns true; requests in flight are finished.
pub(super) async fn serve(
    listener: TcpListener,
    tls: Option<Tls>,
    router: Router,
    mut stop: watch::Receiver<bool>,
) {
    let room = ConnectionRoom::default();
    // Dropped, and with it every connection, when this future is.
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopped(&mut stop) => break,
        };
        while connections.try_join_next().is_some() {}
        match accepted {
            Ok((stream, address)) => {
                let (router, stop) = (router.clone(), stop.clone());
                let acceptor = tls.as_ref().map(|tls| TlsAcceptor::from(tls.config()));
                let permit = room.enter(address.ip());
                let number = permit.number;
                let task = shake_hands(stream, (address, permit), acceptor, router, stop);
                room.abort_with(number, connections.spawn(task));
            }
            Err(error) => {
                tracing::debug!(%error, "a connection could not be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    while connections.join_next().await.is_some() {}
}

/// Does the TLS handshake, if there is TLS, and serves the connection.
async fn shake_hands(
    stream: TcpStream,
    (address, permit): (SocketAddr, ConnectionPermit),
    acceptor: Option<TlsAcceptor>,
    router: Router,
    mut stop: watch::Receiver<bool>,
) {
    let mut peer = Peer {
        address,
        certified: false,
    };
    let stream = Patient::new(stream);
    let Some(acceptor) = acceptor else {
        return serve_connection(stream, (peer, permit), router, stop).await;
    };
    let greeted = tokio::select! {
        greeted = timeout(HANDSHAKE, acceptor.accept(stream)) => greeted,
        () = stopped(&mut stop) => return,
    };
    if let Ok(Ok(stream)) = greeted {
        // A certificate that does not verify has ended the handshake already.
        peer.certified = stream.get_ref().1.peer_certificates().is_some();
        serve_connection(stream, (peer, permit), router, stop).await;
    }
}

async fn serve_connection<S>(
    stream: S,
    (peer, permit): (Peer, ConnectionPermit),
    router: Router,
    mut stop: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let permit = &permit;
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        let router = router.clone();
        async move {
            permit.asks();
            let answer = router.oneshot(request).await;
            permit.answered();
            answer
        }
    });
    let mut connection = std::pin::pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .max_buf_size(MAX_HEAD)
            .serve_connection(TokioIo::new(stream), service)
    );
    tokio::select! {
        // A client may end its connection in any way.
        _ = connection.as_mut() => return,
        () = stopped(&mut stop) => {}
        () = sleep(LIFETIME) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = timeout(LAST_ANSWER, connection).await;
}

/// Waits for `stop`. A sender that was dropped means that the daemon is ending, too.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}
