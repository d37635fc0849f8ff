//! One HTTP/1.1 request and its answer on an open connection.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use super::fault;
use super::progress::Progress;
use super::trust::Sighting;
use crate::domain::observe::probe::{Phase, ProbeOutcome};

/// The longest answer that is read, in bytes. Review answers are a few hundred bytes, and with a patch of a
/// large object some hundred kilobytes; etcd's own limit per object is 1.5 MiB.
pub(super) const LONGEST_ANSWER: usize = 1024 * 1024;

/// The longest head of an answer, in bytes, and the most headers in it.
const LONGEST_HEAD: usize = 64 * 1024;
const MOST_HEADERS: usize = 100;

/// How long a finished connection may take to say goodbye before it is simply dropped.
const GOODBYE: Duration = Duration::from_secs(1);

/// A connection that speaks HTTP/1.1.
#[derive(Debug)]
pub(super) struct Link {
    sender: SendRequest<Full<Bytes>>,
    driver: Driver,
}

/// The task that moves the connection's bytes; ends with its owner.
#[derive(Debug)]
struct Driver {
    task: Option<JoinHandle<()>>,
    /// Why the connection ended, when it ended before a request could learn of it.
    ended: Arc<Mutex<Option<hyper::Error>>>,
}

/// What came back.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: StatusCode,
    /// `None` when it was longer than [`LONGEST_ANSWER`]; the connection is then of no further use.
    pub(super) body: Option<Bytes>,
}

/// A connection that broke instead.
#[derive(Debug)]
pub(super) struct Broken {
    /// Whether anything of the answer had arrived.
    pub(super) phase: Phase,
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
            .handshake(TokioIo::new(stream))
            .await;
        let (sender, connection) = built.map_err(|error| ProbeOutcome::Lost {
            phase: Phase::FirstByte,
            why: error.to_string(),
        })?;
        let ended = Arc::new(Mutex::new(None));
        let end = Arc::clone(&ended);
        let task = tokio::spawn(async move {
            if let Err(error) = connection.await {
                *end.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            }
        });
        Ok(Self {
            sender,
            driver: Driver {
                task: Some(task),
                ended,
            },
        })
    }

    /// Whether the peer is known to have closed.
    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Sends a request and reads the whole answer. Without a limit of its own: the probe has one.
    pub(super) async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
        progress: &Progress,
    ) -> Result<Reply, Broken> {
        progress.enter(Phase::FirstByte);
        let answered = match self.sender.ready().await {
            Ok(()) => self.sender.send_request(request).await,
            Err(error) => Err(error),
        };
        let response = match answered {
            Ok(response) => response,
            Err(error) => return Err(self.broken(error, Phase::FirstByte).await),
        };
        progress.enter(Phase::Body);
        let (head, mut body) = response.into_parts();
        let mut whole = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = match frame {
                Ok(frame) => frame,
                Err(error) => return Err(self.broken(error, Phase::Body).await),
            };
            let Some(data) = frame.data_ref() else {
                continue;
            };
            if whole.len() + data.len() > LONGEST_ANSWER {
                return Ok(Reply {
                    status: head.status,
                    body: None,
                });
            }
            whole.extend_from_slice(data);
        }
        Ok(Reply {
            status: head.status,
            body: Some(whole.freeze()),
        })
    }

    /// Closes in order, in the background: a server's log should not fill with "unexpected EOF".
    pub(super) fn close(self) {
        let Self { sender, mut driver } = self;
        drop(sender);
        // Outside a runtime there is no background; the driver's drop then cuts the connection.
        if let Ok(runtime) = tokio::runtime::Handle::try_current()
            && let Some(mut task) = driver.task.take()
        {
            runtime.spawn(async move {
                if timeout(GOODBYE, &mut task).await.is_err() {
                    task.abort();
                }
            });
        }
    }

    /// A request that came too late for its connection only hears "cancelled"; the connection's own error
    /// says why.
    async fn broken(&mut self, error: hyper::Error, phase: Phase) -> Broken {
        let mut error = error;
        if error.is_canceled() || error.is_closed() {
            if let Some(task) = self.driver.task.as_mut()
                && timeout(GOODBYE, task).await.is_ok()
            {
                self.driver.task = None;
            }
            let ended = self.driver.ended.lock();
            if let Some(cause) = ended.unwrap_or_else(PoisonError::into_inner).take() {
                error = cause;
            }
        }
        Broken { phase, error }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

/// Closes a connection on which nothing was asked.
pub(super) fn hang_up(mut stream: TlsStream<TcpStream>) {
    tokio::spawn(async move {
        // Nobody is left to hear whether it worked.
        let _ = timeout(GOODBYE, stream.shutdown()).await;
    });
}
