//! The connections that an API server keeps open to a Service's backends.

use super::{At, SECOND};

/// Idle timeout of a pooled connection (`IdleConnTimeout` of Go's default transport).
const IDLE: At = 90 * SECOND;
/// Most idle connections per host (kube-apiserver 1.36, `apis/util/webhook/client.go`).
const MOST: usize = 25;

/// One idle connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connection {
    /// Index of the backend.
    pub backend: usize,
    /// When it was opened.
    pub opened: At,
    used: At,
}

/// The idle connections of one API-server replica to one Service.
#[derive(Debug, Clone, Default)]
pub struct Pool(Vec<Connection>);

impl Pool {
    /// Takes the most recently used connection, as Go's transport does. Connections that are idle for too long or that the
    /// backend has closed (`is_closed`) are dropped.
    pub fn take(&mut self, now: At, is_closed: impl Fn(&Connection) -> bool) -> Option<Connection> {
        self.0
            .retain(|connection| now.saturating_sub(connection.used) < IDLE && !is_closed(connection));
        self.0.pop()
    }

    /// Returns a connection to the pool after its request was answered.
    pub fn put(&mut self, backend: usize, opened: At, now: At) {
        self.0.push(Connection {
            backend,
            opened,
            used: now,
        });
        if self.0.len() > MOST {
            self.0.remove(0);
        }
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connection_used_last_is_used_next_and_idle_ones_are_closed() {
        let mut pool = Pool::default();
        pool.put(0, 0, 0);
        pool.put(1, 0, 50 * SECOND);
        let taken = pool.take(60 * SECOND, |_| false);
        assert_eq!(taken.map(|connection| connection.backend), Some(1));
        assert_eq!(pool.take(100 * SECOND, |_| false), None);
    }
}
