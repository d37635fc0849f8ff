//! A TCP balancer in this process, like those in front of the API servers of most control planes.
//!
//! It distributes connections in turn without health checks, like a cloud's balancer until its own health check has
//! failed often enough.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// A running balancer. Dropping it closes every connection.
#[derive(Debug)]
pub struct Balancer {
    address: SocketAddr,
    handed_out: Arc<AtomicUsize>,
    _task: JoinSet<()>,
}

impl Balancer {
    /// Listens on a free port of 127.0.0.1 and distributes connections to these servers in turn.
    ///
    /// # Errors
    /// When it cannot listen.
    pub async fn start(servers: Vec<SocketAddr>) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .context("a balancer cannot listen")?;
        let address = listener.local_addr().context("a balancer without an address")?;
        let handed_out = Arc::new(AtomicUsize::new(0));
        let turn = Arc::clone(&handed_out);
        let task = JoinSet::from_iter([async move {
            let mut connections = JoinSet::new();
            while let Ok((mut client, _)) = listener.accept().await {
                while connections.try_join_next().is_some() {}
                let number = turn.fetch_add(1, Ordering::Relaxed);
                let Some(server) = number
                    .checked_rem(servers.len())
                    .and_then(|at| servers.get(at).copied())
                else {
                    continue;
                };
                connections.spawn(async move {
                    if let Ok(mut server) = TcpStream::connect(server).await {
                        // Errors mean that either side ended the connection.
                        let _ = client.set_nodelay(true).and_then(|()| server.set_nodelay(true));
                        let _ = copy_bidirectional(&mut client, &mut server).await;
                    }
                });
            }
        }]);
        Ok(Self {
            address,
            handed_out,
            _task: task,
        })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections handed out so far.
    pub fn handed_out(&self) -> usize {
        self.handed_out.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// A server that sends its name to every client.
    async fn server(name: &'static [u8]) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.write_all(name).await;
            }
        });
        address
    }

    #[tokio::test]
    async fn connections_go_to_the_servers_in_turn() {
        let balancer = Balancer::start(vec![server(b"a").await, server(b"b").await])
            .await
            .unwrap();
        let mut heard = String::new();
        for _ in 0..4 {
            let mut stream = TcpStream::connect(balancer.address()).await.unwrap();
            let mut name = String::new();
            stream.read_to_string(&mut name).await.unwrap();
            heard.push_str(&name);
        }
        assert_eq!(heard, "abab");
        assert_eq!(balancer.handed_out(), 4);
    }
}
