//! One HTTP/1.1 request and its answer on an open connection.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, Builder, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::coop::unconstrained;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use super::fault;
use super::progress::Progress;
use super::trust::Sighting;
use crate::domain::observe::probe::{ProbeOutcome, ProbePhase};

/// The longest answer that is read, in bytes. Review answers are a few hundred bytes, and with a patch of a
/// large object some hundred kilobytes; etcd's own limit per object is 1.5 MiB.
pub(super) const LONGEST_ANSWER: usize = 1024 * 1024;

/// The longest head of an answer, in bytes, and the most headers in it.
const LONGEST_HEAD: usize = 64 * 1024;
const MOST_HEADERS: usize = 100;

/// The most that is read for one request, in bytes: interim answers such as `100 Continue`, of which hyper skips any number, then
/// the head and the body.
const MOST_READ: usize = 2 * LONGEST_ANSWER;

/// How long a finished connection may take to close before it is dropped.
const GOODBYE: Duration = Duration::from_secs(1);

type HttpConnection = http1::Connection<TokioIo<CountedStream>, Full<Bytes>>;

/// A TLS connection that fails when the peer sends more than [`MOST_READ`] bytes for one request.
#[derive(Debug)]
struct CountedStream {
    tls: TlsStream<TcpStream>,
    /// Bytes read since the last write. Only requests are written, so this counts the answer to one.
    read: usize,
}

impl AsyncRead for CountedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read > MOST_READ {
            return Poll::Ready(Err(io::Error::other("the answer is longer than 2 MiB")));
        }
        let before = into.filled().len();
        ready!(Pin::new(&mut self.tls).poll_read(context, into))?;
        self.read += into.filled().len() - before;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for CountedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.tls).poll_write(context, bytes))?;
        self.read = 0;
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tls).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tls).poll_shutdown(context)
    }
}

/// An HTTP/1.1 connection. No task of its own drives it: it is polled during a request, which saves a probe two trips between
/// threads.
#[derive(Debug)]
pub(super) struct Link {
    sender: SendRequest<Full<Bytes>>,
    wire: Wire,
}

#[derive(Debug)]
struct Wire {
    /// `None` once it has ended.
    connection: Option<HttpConnection>,
    /// Why it ended, when it ended before a request could learn of it.
    ended: Option<hyper::Error>,
}

impl Wire {
    /// Polls the connection once.
    fn turn(&mut self, context: &mut Context<'_>) {
        if let Some(connection) = &mut self.connection
            && let Poll::Ready(ended) = Pin::new(connection).poll(context)
        {
            self.connection = None;
            self.ended = ended.err();
        }
    }
}

#[derive(Debug)]
pub(super) struct ProbeReply {
    pub(super) status: StatusCode,
    /// `None` when it was longer than [`LONGEST_ANSWER`]; the connection is then of no further use.
    pub(super) body: Option<Bytes>,
}

/// A connection that broke before the whole answer was read.
#[derive(Debug)]
pub(super) struct Broken {
    /// [`ProbePhase::FirstByte`] until the head of the answer is read, then [`ProbePhase::Body`].
    pub(super) phase: ProbePhase,
    error: hyper::Error,
}

impl Broken {
    pub(super) fn outcome(&self, sighting: &Sighting) -> ProbeOutcome {
        fault::of_exchange(&self.error, self.phase, sighting)
    }
}

impl Link {
    /// Puts HTTP on a TLS connection. Nothing is sent yet.
    pub(super) async fn new(stream: TlsStream<TcpStream>) -> Result<Self, ProbeOutcome> {
        let built = Builder::new()
            .max_headers(MOST_HEADERS)
            .max_buf_size(LONGEST_HEAD)
            .handshake(TokioIo::new(CountedStream { tls: stream, read: 0 }))
            .await;
        let (sender, connection) = built.map_err(|error| ProbeOutcome::Lost {
            phase: ProbePhase::FirstByte,
            why: error.to_string(),
        })?;
        let wire = Wire {
            connection: Some(connection),
            ended: None,
        };
        Ok(Self { sender, wire })
    }

    pub(super) fn is_closed(&mut self) -> bool {
        self.wire.turn(&mut Context::from_waker(Waker::noop()));
        self.sender.is_closed()
    }

    /// Sends a request and reads the whole answer. It has no timeout: the probe has one.
    pub(super) async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
        progress: &Progress,
    ) -> Result<ProbeReply, Broken> {
        let answered = {
            let Self { sender, wire } = self;
            // Both are polled in turn, so neither has to wake the task for the other: only the network does. The request is polled
            // without a waker, and an exhausted coop budget would need one: hence `unconstrained`.
            let mut asking = pin!(unconstrained(ask(sender, request, progress)));
            poll_fn(|context| {
                let asleep = &mut Context::from_waker(Waker::noop());
                wire.turn(asleep);
                if let Poll::Ready(answered) = asking.as_mut().poll(asleep) {
                    return Poll::Ready(answered);
                }
                wire.turn(context);
                asking.as_mut().poll(asleep)
            })
            .await
        };
        match answered {
            Ok(reply) => Ok(reply),
            Err((error, phase)) => Err(self.broken(error, phase).await),
        }
    }

    /// Closes the connection properly, in the background if that takes time: otherwise servers would log "unexpected EOF" for each
    /// probe.
    pub(super) fn close(self) {
        let Self { sender, mut wire } = self;
        drop(sender);
        wire.turn(&mut Context::from_waker(Waker::noop()));
        // Outside a runtime there is no background: the connection is dropped.
        if let Some(connection) = wire.connection
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            // The result is of no interest any more.
            runtime.spawn(timeout(GOODBYE, connection));
        }
    }

    /// A request that came too late for its connection only gets "cancelled"; the connection's own error has the
    /// reason.
    async fn broken(&mut self, error: hyper::Error, phase: ProbePhase) -> Broken {
        let mut error = error;
        if error.is_canceled() || error.is_closed() {
            let ended = match self.wire.connection.take() {
                Some(connection) => timeout(GOODBYE, connection).await.ok().and_then(Result::err),
                None => self.wire.ended.take(),
            };
            error = ended.unwrap_or(error);
        }
        Broken { phase, error }
    }
}

/// Sends the request and reads the answer. An error comes with the phase in which it happened.
async fn ask(
    sender: &mut SendRequest<Full<Bytes>>,
    request: Request<Full<Bytes>>,
    progress: &Progress,
) -> Result<ProbeReply, (hyper::Error, ProbePhase)> {
    progress.enter(ProbePhase::FirstByte);
    let unheard = |error| (error, ProbePhase::FirstByte);
    sender.ready().await.map_err(unheard)?;
    let response = sender.send_request(request).await.map_err(unheard)?;
    progress.enter(ProbePhase::Body);
    let (head, mut body) = response.into_parts();
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| (error, ProbePhase::Body))?;
        let Some(data) = frame.data_ref() else {
            continue;
        };
        if whole.len() + data.len() > LONGEST_ANSWER {
            return Ok(ProbeReply {
                status: head.status,
                body: None,
            });
        }
        whole.extend_from_slice(data);
    }
    Ok(ProbeReply {
        status: head.status,
        body: Some(whole.freeze()),
    })
}

/// Closes a connection on which nothing was asked.
pub(super) fn hang_up(mut stream: TlsStream<TcpStream>) {
    tokio::spawn(async move {
        // The result is of no interest any more.
        let _ = timeout(GOODBYE, stream.shutdown()).await;
    });
}
