//! Asking a running daemon what it sees, as `status` and `top` do.
//!
//! One connection is kept and every answer is bounded in size and time. Keeping the connection matters in an outage: the
//! port-forward of [`tunnel`] passes admission only when it is opened.

mod address;
pub mod tunnel;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, HOST, USER_AGENT};
use http::{Request, StatusCode};
use http_body_util::Empty;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use self::tunnel::{Tunnel, TunnelError};
use super::client::answer::read_body;
use super::endpoint::secrets::{Material, authorization};
use super::endpoint::{Auth, EndpointError};
use super::error::with_causes;
use crate::domain::report::assessment::NOTHING_JUDGED;
use crate::domain::text::bounded;

pub use address::{Address, BadAddress};

/// Longest wait for a connection, TLS included.
const CONNECT: Duration = Duration::from_secs(5);
/// Longest wait for one answer, its whole body included.
const ANSWER: Duration = Duration::from_secs(10);
/// Most bytes of an assessment. One of ten thousand hooks with ten backends each has some 30 MB.
const MAX_ASSESSMENT: usize = 64 << 20;
/// Most bytes read of an answer that is a message.
const MAX_MESSAGE: usize = 4 << 10;

/// Files by which we authenticate to a daemon and verify its certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonFiles {
    /// PEM file of the authorities that may have signed its certificate; `None` for those of the system.
    pub ca: Option<PathBuf>,
    /// PEM files of our client certificate with its chain, and of its key; `None` to present none.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// How the daemon authenticates us.
    pub auth: Auth,
}

/// How the daemon is reached.
#[derive(Debug)]
pub enum DaemonRoute {
    /// By its address.
    Direct,
    /// Through the API server, to its Pod.
    Tunnel(Box<Tunnel>),
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No daemon answers.
    #[error("no hookwatch answers at {server}: {why}")]
    Unreachable {
        /// Who was asked.
        server: String,
        /// What happened.
        why: String,
    },
    /// It is unreachable through the API server.
    #[error(transparent)]
    Tunnel(#[from] TunnelError),
    /// A file cannot be used.
    #[error(transparent)]
    Trust(#[from] EndpointError),
    /// The daemon answers that we are not authenticated or not permitted.
    #[error("{server} requires authentication ({status}): {said}")]
    Refused {
        /// Who was asked.
        server: String,
        /// 401 or 403.
        status: u16,
        /// Its own words.
        said: String,
    },
    /// It has just started.
    #[error("{server} has judged nothing yet")]
    NotYet {
        /// Who was asked.
        server: String,
    },
    /// Another server answers at this address.
    #[error("what answers at {server} is no hookwatch: {why}")]
    Another {
        /// Who was asked.
        server: String,
        /// What it answered.
        why: String,
    },
}

/// What a daemon answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonAnswer {
    /// The newest assessment, JSON.
    pub assessment: Bytes,
    /// What `/live` says when the daemon has stopped judging; `None` while it judges.
    pub silent: Option<String>,
}

/// A client for one daemon, which keeps one connection.
#[derive(Debug)]
pub struct DaemonClient {
    address: Address,
    way: DaemonRoute,
    files: DaemonFiles,
    kept: Option<SendRequest<Empty<Bytes>>>,
}

impl DaemonClient {
    /// A client for the daemon at `address`; no connection is opened yet.
    pub const fn new(address: Address, way: DaemonRoute, files: DaemonFiles) -> Self {
        Self {
            address,
            way,
            files,
            kept: None,
        }
    }

    /// The name of the daemon in messages: its address, or where its Pods are.
    pub fn name(&self) -> String {
        match &self.way {
            DaemonRoute::Direct => self.address.to_string(),
            DaemonRoute::Tunnel(tunnel) => tunnel.to_string(),
        }
    }

    fn unreachable(&self, why: String) -> AskError {
        AskError::Unreachable {
            server: self.name(),
            why,
        }
    }

    /// Asks for the newest assessment and whether the daemon still judges. When the kept connection fails, a new one is tried once.
    ///
    /// # Errors
    /// When no daemon answers, or its answer is not an assessment.
    pub async fn ask(&mut self) -> Result<DaemonAnswer, AskError> {
        if let Some(mut kept) = self.kept.take() {
            // The daemon may have closed the kept connection at any moment, so its failure is no error yet.
            if let Ok(answer) = self.ask_over(&mut kept).await {
                self.kept = Some(kept);
                return Ok(answer);
            }
        }
        let mut fresh = self.connect().await?;
        let answer = self.ask_over(&mut fresh).await?;
        self.kept = Some(fresh);
        Ok(answer)
    }

    async fn ask_over(&self, connection: &mut SendRequest<Empty<Bytes>>) -> Result<DaemonAnswer, AskError> {
        let (status, assessment) = self.get(connection, "/api/v1/assessment", MAX_ASSESSMENT).await?;
        let server = self.name();
        let said =
            || bounded(String::from_utf8_lossy(&assessment[..assessment.len().min(MAX_MESSAGE)]).trim());
        match status {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                let (status, said) = (status.as_u16(), said());
                return Err(AskError::Refused { server, status, said });
            }
            // A proxy in front of a daemon that is down answers 503 as well.
            StatusCode::SERVICE_UNAVAILABLE if *assessment == *NOTHING_JUDGED.as_bytes() => {
                return Err(AskError::NotYet { server });
            }
            status => {
                let why = format!("{status}: {}", said());
                return Err(AskError::Another { server, why });
            }
        }
        // Only the daemon itself can distinguish a stalled assessment from a quiet cluster.
        let (status, said) = self.get(connection, "/live", MAX_MESSAGE).await?;
        let silent = (status == StatusCode::SERVICE_UNAVAILABLE)
            .then(|| bounded(String::from_utf8_lossy(&said).trim()));
        Ok(DaemonAnswer { assessment, silent })
    }

    async fn get(
        &self,
        connection: &mut SendRequest<Empty<Bytes>>,
        path: &str,
        most: usize,
    ) -> Result<(StatusCode, Bytes), AskError> {
        let mut request = Request::get(format!("{}{path}", self.address.prefix))
            .header(HOST, self.address.authority())
            .header(ACCEPT, "application/json, text/plain")
            .header(USER_AGENT, concat!("hookwatch/", env!("CARGO_PKG_VERSION")))
            .body(Empty::new())
            .map_err(|error| self.unreachable(with_causes(&error)))?;
        if let Some(authorization) = authorization(&self.files.auth).await? {
            request.headers_mut().insert(AUTHORIZATION, authorization);
        }
        let asking = async {
            connection.ready().await.map_err(|error| with_causes(&error))?;
            let answer = connection.send_request(request).await;
            let answer = answer.map_err(|error| with_causes(&error))?;
            let status = answer.status();
            let body = read_body(answer.into_body(), most).await;
            let body = body.map_err(|why| why.to_string())?;
            Ok::<_, String>((status, Bytes::from(body)))
        };
        match timeout(ANSWER, asking).await {
            Ok(answered) => answered.map_err(|why| self.unreachable(why)),
            Err(_) => Err(self.unreachable(format!("no whole answer within {} s", ANSWER.as_secs()))),
        }
    }

    async fn connect(&self) -> Result<SendRequest<Empty<Bytes>>, AskError> {
        let tls = if self.address.encrypted {
            let DaemonFiles { ca, certificate, .. } = &self.files;
            let material = Material::read(ca.as_deref(), certificate.as_ref()).await?;
            Some(Arc::new(material.tls(true)?))
        } else {
            None
        };
        let connected = match &self.way {
            DaemonRoute::Direct => {
                let dialling = async {
                    let target = (self.address.host.as_str(), self.address.port);
                    let stream = TcpStream::connect(target)
                        .await
                        .map_err(|error| error.to_string())?;
                    // Without TCP_NODELAY a request only takes milliseconds longer.
                    let _ = stream.set_nodelay(true);
                    self.greet(stream, tls).await
                };
                timeout(CONNECT, dialling).await
            }
            DaemonRoute::Tunnel(tunnel) => {
                let stream = tunnel.open().await?;
                timeout(CONNECT, self.greet(stream, tls)).await
            }
        };
        match connected {
            Ok(connected) => connected.map_err(|why| self.unreachable(why)),
            Err(_) => Err(self.unreachable(format!("no connection within {} s", CONNECT.as_secs()))),
        }
    }

    /// Does the TLS handshake, if there is TLS, and starts HTTP/1.1.
    async fn greet<S>(
        &self,
        stream: S,
        tls: Option<Arc<ClientConfig>>,
    ) -> Result<SendRequest<Empty<Bytes>>, String>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Some(config) = tls else {
            return speak(stream).await;
        };
        let host = &self.address.host;
        let name = match host.parse::<IpAddr>() {
            Ok(ip) => ServerName::IpAddress(ip.into()),
            Err(_) => ServerName::try_from(host.clone()).map_err(|error| error.to_string())?,
        };
        let stream = TlsConnector::from(config).connect(name, stream).await;
        speak(stream.map_err(|error| error.to_string())?).await
    }
}

async fn speak<S>(stream: S) -> Result<SendRequest<Empty<Bytes>>, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| with_causes(&error))?;
    // It ends when the sender is dropped; the requests on it get the reason.
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::testing::{TestReply, TestServer, soon};

    #[tokio::test]
    async fn a_proxys_503_is_not_taken_for_a_daemon_that_has_judged_nothing_yet() {
        let asked = async |said: &'static str| {
            let server =
                TestServer::start(move |_| TestReply::Whole(503, "text/plain", said.to_owned())).await;
            let address = format!("http://{}", server.address).parse().expect("an address");
            let files = DaemonFiles {
                ca: None,
                certificate: None,
                auth: Auth::None,
            };
            soon(DaemonClient::new(address, DaemonRoute::Direct, files).ask()).await
        };
        let fresh = asked(NOTHING_JUDGED).await;
        assert!(matches!(fresh, Err(AskError::NotYet { .. })), "{fresh:?}");
        let proxy = asked("upstream connect error").await;
        assert!(
            matches!(&proxy, Err(AskError::Another { why, .. }) if why.contains("503") && why.contains("upstream")),
            "{proxy:?}"
        );
    }
}
