//! A connection that can be frozen: neither read nor written while its process is "stopped".

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};

use futures::task::AtomicWaker;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The switch that freezes all connections of one backend.
#[derive(Debug, Default)]
pub(super) struct Gate {
    frozen: AtomicBool,
    waiting: Mutex<Vec<Weak<Wakers>>>,
}

/// Reading and writing are polled by the same task or by two; each side keeps its own waker.
#[derive(Debug, Default)]
struct Wakers {
    read: AtomicWaker,
    write: AtomicWaker,
}

impl Gate {
    /// Freezes every connection, or resumes all of them.
    pub(super) fn set_frozen(&self, frozen: bool) {
        self.frozen.store(frozen, Ordering::SeqCst);
        if !frozen {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.retain(|wakers| {
                let Some(wakers) = wakers.upgrade() else {
                    return false;
                };
                wakers.read.wake();
                wakers.write.wake();
                true
            });
        }
    }

    /// Puts a connection behind this gate.
    pub(super) fn guard<S>(self: &Arc<Self>, stream: S) -> Gated<S> {
        let wakers = Arc::new(Wakers::default());
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|wakers| wakers.strong_count() > 0);
        waiting.push(Arc::downgrade(&wakers));
        Gated {
            stream,
            gate: Arc::clone(self),
            wakers,
        }
    }

    fn is_frozen(&self) -> bool {
        self.frozen.load(Ordering::SeqCst)
    }
}

/// A stream behind a [`Gate`].
#[derive(Debug)]
pub(super) struct Gated<S> {
    stream: S,
    gate: Arc<Gate>,
    wakers: Arc<Wakers>,
}

impl<S> Gated<S> {
    fn must_wait(&self, waker: &AtomicWaker, context: &Context<'_>) -> bool {
        if !self.gate.is_frozen() {
            return false;
        }
        waker.register(context.waker());
        // The gate may have opened between the check and the registration, and nothing would wake us then.
        self.gate.is_frozen()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Gated<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.must_wait(&this.wakers.read, context) {
            return Poll::Pending;
        }
        Pin::new(&mut this.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gated<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.must_wait(&this.wakers.write, context) {
            return Poll::Pending;
        }
        Pin::new(&mut this.stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.must_wait(&this.wakers.write, context) {
            return Poll::Pending;
        }
        Pin::new(&mut this.stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.must_wait(&this.wakers.write, context) {
            return Poll::Pending;
        }
        Pin::new(&mut this.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn a_frozen_stream_moves_nothing_and_goes_on_where_it_stood() {
        let gate = Arc::new(Gate::default());
        let (mut client, server) = tokio::io::duplex(64);
        let mut server = gate.guard(server);
        gate.set_frozen(true);
        client.write_all(b"ping").await.unwrap();
        let reader = tokio::spawn(async move {
            let mut bytes = [0; 4];
            server.read_exact(&mut bytes).await.unwrap();
            server.write_all(b"pong").await.unwrap();
            bytes
        });
        // The reader runs into the gate as soon as it is polled; yielding lets that happen.
        tokio::task::yield_now().await;
        assert!(!reader.is_finished());
        gate.set_frozen(false);
        assert_eq!(&reader.await.unwrap(), b"ping");
        let mut answer = [0; 4];
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"pong");
    }
}
