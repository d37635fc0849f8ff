//! From an address to a TLS connection: resolve, connect, handshake.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::fault;
use super::progress::Progress;
use super::resolve::Resolver;
use super::trust::Sighting;
use crate::domain::cluster::hook::BackendAddress;
use crate::domain::observe::probe::{ProbeOutcome, ProbePhase};

/// Wait for an address that does not answer, before the next one is tried as well.
const NEXT_ADDRESS: Duration = Duration::from_millis(300);

pub(super) struct Dial<'a> {
    pub(super) address: &'a BackendAddress,
    pub(super) resolver: &'a Resolver,
    pub(super) server_name: &'a ServerName<'static>,
    pub(super) config: Arc<ClientConfig>,
    /// Longest TLS handshake: Go's own limit (client-go `transport.tlsCache`). The probe's deadline applies as well.
    pub(super) longest_handshake: Duration,
}

impl Dial<'_> {
    /// Opens a connection. The error is the probe's outcome.
    pub(super) async fn open(
        self,
        progress: &Progress,
        sighting: &Sighting,
    ) -> Result<TlsStream<TcpStream>, ProbeOutcome> {
        let addresses = resolve(self.resolver, self.address, progress).await?;
        progress.enter(ProbePhase::Connect);
        let connected = connect(&addresses, TcpStream::connect::<SocketAddr>).await;
        let tcp = connected.map_err(|error| fault::of_connect(&error))?;
        // Go does the same; without it a review in two segments would wait for a delayed ACK.
        let _ = tcp.set_nodelay(true);
        progress.enter(ProbePhase::Tls);
        let handshake = TlsConnector::from(self.config).connect(self.server_name.clone(), tcp);
        match timeout(self.longest_handshake, handshake).await {
            Ok(shaken) => shaken.map_err(|error| fault::of_handshake(&error, sighting)),
            Err(_) => Err(ProbeOutcome::TimedOut {
                phase: ProbePhase::Tls,
            }),
        }
    }
}

/// The addresses to try. An IP address needs no resolver, and has no resolve phase.
async fn resolve(
    resolver: &Resolver,
    address: &BackendAddress,
    progress: &Progress,
) -> Result<Vec<SocketAddr>, ProbeOutcome> {
    let (host, port) = match address {
        BackendAddress::Socket(address) => return Ok(vec![*address]),
        BackendAddress::Host(host, port) => (host.as_str(), *port),
    };
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    progress.enter(ProbePhase::Resolve);
    match resolver.addresses(host).await {
        Ok(found) => Ok(found.into_iter().map(|ip| SocketAddr::new(ip, port)).collect()),
        Err(why) => Err(ProbeOutcome::Unresolvable { why }),
    }
}

/// Connects to the first address that accepts; the error is that of the first address that failed. The next address is tried when
/// one fails or has not answered within [`NEXT_ADDRESS`], so an address that hangs is no fault while another one answers. Go does
/// likewise: it tries the other address family after 300 ms, and divides its time among the addresses of a family (`net.Dialer`).
pub(super) async fn connect<T, D: Future<Output = std::io::Result<T>>>(
    addresses: &[SocketAddr],
    dial: impl Fn(SocketAddr) -> D,
) -> std::io::Result<T> {
    let mut first_error = None;
    let mut addresses = addresses.iter();
    let mut attempts = FuturesUnordered::new();
    loop {
        attempts.extend(addresses.next().map(|address| dial(*address)));
        tokio::select! {
            attempt = attempts.next() => match attempt {
                Some(Ok(stream)) => return Ok(stream),
                Some(Err(error)) => first_error = first_error.or(Some(error)),
                None => return Err(first_error.unwrap_or_else(|| std::io::ErrorKind::AddrNotAvailable.into())),
            },
            () = sleep(NEXT_ADDRESS), if !addresses.as_slice().is_empty() => {}
        }
    }
}
