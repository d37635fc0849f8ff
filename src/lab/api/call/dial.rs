//! From a hook's clientConfig to an open connection, or to Go's sentence on why there is none.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rustls::AlertDescription;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::super::kinds::{ENDPOINT_SLICE, SERVICE};
use super::super::random;
use super::super::store::ObjectStore;
use super::trust::Distrust;
use super::{CallDestination, CallTarget};

/// Go's words for a deadline that passed.
pub(super) const DEADLINE: &str = "context deadline exceeded";
/// Go's words for a TLS handshake that took too long.
const HANDSHAKE_TIMEOUT: &str = "net/http: TLS handshake timeout";
/// Longest TLS handshake with a backend, as in a real API server.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// When the handshake limit and the deadline of the call are this close together, the handshake limit is reported. They coincide
/// for a webhook timeout of 10 s, and Go was seen to report the handshake then.
const PHOTO_FINISH: Duration = Duration::from_millis(100);

/// The address to dial: of a Service a random ready endpoint, as with `--enable-aggregator-routing`; of a URL its host.
pub(super) async fn resolve(store: &ObjectStore, target: &CallTarget) -> Result<SocketAddr, String> {
    match &target.destination {
        CallDestination::Service { namespace, name } => resolve_service(store, namespace, name, target.port),
        CallDestination::Url => {
            let host = target.host.trim_start_matches('[').trim_end_matches(']');
            let found = tokio::net::lookup_host((host, target.port)).await;
            found
                .ok()
                .and_then(|mut addresses| addresses.next())
                .ok_or_else(|| format!("dial tcp: lookup {host}: no such host"))
        }
    }
}

fn resolve_service(
    store: &ObjectStore,
    namespace: &str,
    name: &str,
    port: u16,
) -> Result<SocketAddr, String> {
    let service = store
        .get(SERVICE, namespace, name)
        .ok_or_else(|| format!("service {name:?} not found"))?;
    let spec = &service.object["spec"];
    let kind = spec["type"].as_str().unwrap_or("ClusterIP");
    if kind == "ExternalName" {
        return Err(format!("unsupported service type {kind:?}"));
    }
    let port_name = items(&spec["ports"])
        .find(|offered| offered["port"].as_u64() == Some(u64::from(port)))
        .map(|offered| offered["name"].as_str().unwrap_or_default().to_owned())
        .ok_or_else(|| format!("no service port {port} found for service {name:?}"))?;
    let (_, slices) = store.list(ENDPOINT_SLICE, Some(namespace));
    for slice in &slices {
        let slice = &slice.object;
        if slice.pointer("/metadata/labels/kubernetes.io~1service-name") != Some(&Value::from(name)) {
            continue;
        }
        let target_port = items(&slice["ports"])
            .find(|offered| offered["name"].as_str().unwrap_or_default() == port_name)
            .and_then(|offered| offered["port"].as_u64())
            .and_then(|port| u16::try_from(port).ok());
        let ready: Vec<&str> = items(&slice["endpoints"])
            .filter(|endpoint| endpoint.pointer("/conditions/ready") != Some(&Value::Bool(false)))
            .filter_map(|endpoint| endpoint.pointer("/addresses/0")?.as_str())
            .collect();
        if let Some(port) = target_port
            && let Some(address) = ready.get(random::below(ready.len()))
            && let Ok(ip) = address.parse()
        {
            return Ok(SocketAddr::new(ip, port));
        }
    }
    Err(format!("no endpoints available for service {name:?}"))
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// Opens a TCP connection and does the TLS handshake.
pub(super) async fn connect(
    address: SocketAddr,
    server_name: ServerName<'static>,
    connector: &TlsConnector,
    deadline: Instant,
) -> Result<TlsStream<TcpStream>, String> {
    let tcp = timeout_at(deadline, TcpStream::connect(address))
        .await
        .map_err(|_| DEADLINE.to_owned())?
        .map_err(|error| format!("dial tcp {address}: connect: {}", system_text(&error)))?;
    // Without this, small requests on kept-alive connections wait for delayed acknowledgements.
    let _ = tcp.set_nodelay(true);
    let local = tcp.local_addr().ok();
    let begin = Instant::now();
    let handshake_ends = begin + HANDSHAKE_LIMIT;
    match timeout_at(deadline.min(handshake_ends), connector.connect(server_name, tcp)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(connection_text(&error, local, address)),
        Err(_) if handshake_ends <= deadline + PHOTO_FINISH => Err(HANDSHAKE_TIMEOUT.to_owned()),
        Err(_) => Err(DEADLINE.to_owned()),
    }
}

/// What went wrong on a connection, in its handshake or later.
pub(super) fn connection_text(error: &io::Error, local: Option<SocketAddr>, peer: SocketAddr) -> String {
    let tls = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match (tls, error.kind()) {
        (Some(tls), _) => tls_text(tls),
        (None, io::ErrorKind::UnexpectedEof) => "EOF".to_owned(),
        (None, _) => {
            let local = local.map_or_else(|| "127.0.0.1:0".to_owned(), |local| local.to_string());
            format!("read tcp {local}->{peer}: read: {}", system_text(error))
        }
    }
}

fn tls_text(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(rustls::CertificateError::Other(rustls::OtherError(other))) => {
            match other.downcast_ref::<Distrust>() {
                Some(distrust) => format!("tls: failed to verify certificate: {distrust}"),
                None => format!("tls: failed to verify certificate: {other}"),
            }
        }
        // Go recognizes HTTP by its first bytes, which rustls does not show. Other servers without TLS are rare.
        rustls::Error::InvalidMessage(_) => "http: server gave HTTP response to HTTPS client".to_owned(),
        rustls::Error::AlertReceived(alert) => {
            let words = match alert {
                AlertDescription::ProtocolVersion => "protocol version not supported".to_owned(),
                AlertDescription::UnknownCA => "unknown certificate authority".to_owned(),
                AlertDescription::InsufficientSecurity => "insufficient security level".to_owned(),
                other => words(&format!("{other:?}")),
            };
            format!("remote error: tls: {words}")
        }
        other => format!("tls: {other}"),
    }
}

/// `HandshakeFailure` as `handshake failure`.
fn words(camel: &str) -> String {
    let mut words = String::new();
    for character in camel.chars() {
        if character.is_ascii_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.push(character.to_ascii_lowercase());
    }
    words
}

/// The system's error as Go prints it.
fn system_text(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::ConnectionReset => "connection reset by peer".to_owned(),
        io::ErrorKind::BrokenPipe => "broken pipe".to_owned(),
        io::ErrorKind::HostUnreachable => "no route to host".to_owned(),
        io::ErrorKind::NetworkUnreachable => "network is unreachable".to_owned(),
        io::ErrorKind::TimedOut => "connection timed out".to_owned(),
        _ => error.to_string(),
    }
}
