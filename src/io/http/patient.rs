//! A connection that waits only for a limited time for a client that does not read.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// How long a client may read nothing of an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Least reading speed of a client, in bytes per second: a slow phone gets a page within the connection's lifetime.
const SLOWEST: usize = 2_048;

/// The connection. A client that stopped reading has [`PATIENCE`], and gains time by what it reads; a new request
/// restarts the time.
#[derive(Debug)]
pub(super) struct Patient<S> {
    stream: S,
    patience: Duration,
    until: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            patience: PATIENCE,
            until: None,
        }
    }

    /// Accounts for the outcome of a write.
    fn wrote(
        &mut self,
        context: &mut Context<'_>,
        wrote: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match wrote {
            Poll::Ready(Ok(taken)) => {
                if let Some(until) = &mut self.until {
                    let gained = Duration::from_millis((taken * 1_000 / SLOWEST) as u64);
                    let most = Instant::now() + self.patience;
                    let later = (until.deadline() + gained).min(most);
                    until.as_mut().reset(later);
                }
                Poll::Ready(Ok(taken))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                let patience = self.patience;
                let until = self.until.get_or_insert_with(|| Box::pin(sleep(patience)));
                ready!(until.as_mut().poll(context));
                Poll::Ready(Err(ErrorKind::TimedOut.into()))
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        if buffer.filled().len() > before {
            self.until = None;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.wrote(context, wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.wrote(context, wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn patient(patience: Duration) -> (Patient<tokio::io::DuplexStream>, tokio::io::DuplexStream) {
        let (ours, theirs) = tokio::io::duplex(64);
        let patient = Patient {
            patience,
            ..Patient::new(ours)
        };
        (patient, theirs)
    }

    #[tokio::test]
    async fn a_client_that_reads_nothing_is_given_up() {
        let (mut ours, _theirs) = patient(Duration::from_millis(20));
        let error = ours.write_all(&[0; 1_000]).await.expect_err("nobody reads");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_client_that_reads_a_byte_now_and_then_gains_next_to_nothing() {
        let (mut ours, mut theirs) = patient(Duration::from_millis(50));
        let reading = tokio::spawn(async move {
            while theirs.read_u8().await.is_ok() {
                sleep(Duration::from_millis(5)).await;
            }
        });
        let error = ours.write_all(&[0; 100_000]).await.expect_err("too slow");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        drop(ours);
        reading.await.expect("no panic");
    }

    #[tokio::test]
    async fn a_client_that_reads_gets_all_of_it() {
        let (mut ours, mut theirs) = patient(Duration::from_secs(10));
        let reading = tokio::spawn(async move {
            let mut all = Vec::new();
            theirs.read_to_end(&mut all).await.map(|_| all.len())
        });
        ours.write_all(&[0; 100_000]).await.expect("it is read");
        drop(ours);
        assert_eq!(reading.await.expect("no panic").expect("all"), 100_000);
    }
}
