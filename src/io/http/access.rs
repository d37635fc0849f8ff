//! Who may see the page and the API.
//!
//! Both show which policy does not work just now, so a tenant must not read them. Without a token file and a client CA they are for
//! this host alone, whatever address the server listens on: for connections from a loopback address (also those of `kubectl
//! port-forward`) whose requests name a loopback host. The second condition keeps out a website that resolves its own name to
//! 127.0.0.1. A TokenReview would wait for the API server, so none is made here.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use axum::extract::{Extension, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;

use crate::io::{file, lock};

/// Fewest bytes of a token: a shorter one could be guessed.
const SHORTEST: usize = 16;
/// Most bytes of a token file: a longer one holds no token.
const LONGEST: u64 = 4_096;
/// How long a token that was read is used: a renewed Secret takes effect after that.
const REREAD_AFTER: Duration = Duration::from_secs(10);

/// Headers that proxies add. The sidecar of a service mesh connects from a loopback address for every client, so a request with one
/// of these headers does not count as from this host.
const FORWARDED: [&str; 6] = [
    "forwarded",
    "via",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-client-cert",
    "x-request-id",
];

/// The other end of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    /// Whether it showed a certificate that the client CA signed.
    pub(super) certified: bool,
}

/// Decides who may see the page and the API.
#[derive(Debug, Default)]
pub struct Access {
    token: Option<TokenFile>,
    client_certificates: bool,
}

/// The file with the token cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// It cannot be read.
    #[error("the token file {path} cannot be read")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// What it holds is no token.
    #[error(
        "the token file {path} holds {what}; write {SHORTEST} to {LONGEST} characters without spaces into it"
    )]
    NoToken {
        /// The file.
        path: PathBuf,
        /// What is there instead.
        what: &'static str,
    },
}

impl Access {
    /// Requires the token in this file, or a client certificate if the server asks for them; without both, that a request
    /// comes from this host.
    ///
    /// # Errors
    /// When the file holds no token.
    pub fn new(token_file: Option<&Path>, client_certificates: bool) -> Result<Self, TokenError> {
        let token = token_file.map(TokenFile::open).transpose()?;
        Ok(Self {
            token,
            client_certificates,
        })
    }

    /// Whether a client on another host can authenticate.
    pub const fn reaches_beyond_this_host(&self) -> bool {
        self.token.is_some() || self.client_certificates
    }

    fn admits(&self, peer: Peer, headers: &HeaderMap) -> Result<(), AccessRefusal> {
        if self.client_certificates && peer.certified {
            return Ok(());
        }
        if let Some(token) = &self.token {
            let offered = headers
                .get(header::AUTHORIZATION)
                .and_then(|value| offered(value.as_bytes()));
            return if offered.is_some_and(|offered| token.accepts(&offered)) {
                Ok(())
            } else {
                Err(AccessRefusal::Token)
            };
        }
        if self.client_certificates {
            return Err(AccessRefusal::Certificate);
        }
        let forwarded = FORWARDED.iter().any(|name| headers.contains_key(*name));
        let is_local =
            peer.address.ip().to_canonical().is_loopback() && !forwarded && asks_for_this_host(headers);
        if is_local {
            Ok(())
        } else {
            Err(AccessRefusal::NotThisHost)
        }
    }
}

/// Lets a request for the page or the API through, or says what is missing.
pub(super) async fn admit(
    State(access): State<std::sync::Arc<Access>>,
    Extension(peer): Extension<Peer>,
    request: Request,
    next: Next,
) -> Response {
    match access.admits(peer, request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

/// The metrics are open to any client that reaches them, but not to a website that resolves its own name to 127.0.0.1 and
/// asks from the browser of a user who forwards the port. A scraper behind a proxy in the Pod asks for the Pod's address.
pub(super) async fn refuse_other_names(
    Extension(peer): Extension<Peer>,
    request: Request,
    next: Next,
) -> Response {
    let is_here = peer.address.ip().to_canonical().is_loopback();
    match asked_for(request.headers()) {
        RequestedHost::Name if is_here => AccessRefusal::NotThisHost.into_response(),
        _ => next.run(request).await,
    }
}

/// Why a request is refused.
#[derive(Debug, PartialEq, Eq)]
enum AccessRefusal {
    Token,
    Certificate,
    NotThisHost,
}

impl IntoResponse for AccessRefusal {
    fn into_response(self) -> Response {
        match self {
            Self::Token => (
                StatusCode::UNAUTHORIZED,
                // A browser asks for a name and a password; any name will do.
                [(header::WWW_AUTHENTICATE, "Basic realm=\"hookwatch\", charset=\"UTF-8\"")],
                "a token is required, as a bearer token or as the password of any user\n",
            )
                .into_response(),
            Self::Certificate => (
                StatusCode::FORBIDDEN,
                "a client certificate of the configured authority is required\n",
            )
                .into_response(),
            Self::NotThisHost => (
                StatusCode::FORBIDDEN,
                "only for this host by the name localhost or its loopback address, and not through a proxy, for example \
                 through kubectl port-forward; to allow other hosts, set serve.tokenFile or serve.clientCAFile\n",
            )
                .into_response(),
        }
    }
}

/// The token in an `Authorization` header.
fn offered(value: &[u8]) -> Option<Vec<u8>> {
    let at = value.iter().position(|byte| *byte == b' ')?;
    let (scheme, rest) = (&value[..at], value[at..].trim_ascii());
    if scheme.eq_ignore_ascii_case(b"bearer") {
        return Some(rest.to_vec());
    }
    if !scheme.eq_ignore_ascii_case(b"basic") {
        return None;
    }
    let pair = base64::engine::general_purpose::STANDARD.decode(rest).ok()?;
    let colon = pair.iter().position(|byte| *byte == b':')?;
    Some(pair[colon + 1..].to_vec())
}

/// Whether the request names a loopback host. Every browser sends a `Host` header, so a request without one is not from a website.
fn asks_for_this_host(headers: &HeaderMap) -> bool {
    match asked_for(headers) {
        RequestedHost::Missing => true,
        RequestedHost::Address(address) => address.is_loopback(),
        RequestedHost::Name => false,
    }
}

/// The kind of host that a request names.
enum RequestedHost {
    /// There is no `Host` header.
    Missing,
    /// `localhost` counts as its address.
    Address(IpAddr),
    /// Any other name, or a text that is no host at all.
    Name,
}

fn asked_for(headers: &HeaderMap) -> RequestedHost {
    let Some(host) = headers.get(header::HOST) else {
        return RequestedHost::Missing;
    };
    let host = host.to_str().unwrap_or_default();
    let Ok(authority) = host.parse::<axum::http::uri::Authority>() else {
        return RequestedHost::Name;
    };
    let host = authority.host().trim_matches(['[', ']']);
    match host.parse::<IpAddr>() {
        Ok(address) => RequestedHost::Address(address.to_canonical()),
        Err(_) if host.eq_ignore_ascii_case("localhost") => {
            RequestedHost::Address(Ipv4Addr::LOCALHOST.into())
        }
        Err(_) => RequestedHost::Name,
    }
}

/// A file with a token, reread periodically.
#[derive(Debug)]
struct TokenFile {
    path: PathBuf,
    held: Mutex<CachedToken>,
}

struct CachedToken {
    read: Instant,
    /// `None` when the file was unusable at the last read: then no token is accepted.
    token: Option<Vec<u8>>,
}

impl std::fmt::Debug for CachedToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CachedToken")
            .field("read", &self.read)
            .finish_non_exhaustive()
    }
}

impl TokenFile {
    fn open(path: &Path) -> Result<Self, TokenError> {
        let held = CachedToken {
            read: Instant::now(),
            token: Some(read(path)?),
        };
        Ok(Self {
            path: path.to_owned(),
            held: Mutex::new(held),
        })
    }

    fn accepts(&self, offered: &[u8]) -> bool {
        let mut held = lock(&self.held);
        if held.read.elapsed() >= REREAD_AFTER {
            // A few bytes of a local file, so it may block this task.
            let token = read(&self.path);
            if let Err(error) = &token {
                tracing::warn!(error = error as &dyn std::error::Error, "no token is accepted");
            }
            *held = CachedToken {
                read: Instant::now(),
                token: token.ok(),
            };
        }
        let token = held.token.as_deref();
        // The time that this takes may reveal the length of the token, but not its content.
        token.is_some_and(|token| verify_slices_are_equal(token, offered).is_ok())
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TokenError> {
    let unreadable = |source| TokenError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let no_token = |what| TokenError::NoToken {
        path: path.to_owned(),
        what,
    };
    let bytes = file::read(path, LONGEST).map_err(|error| match error.kind() {
        ErrorKind::FileTooLarge => no_token("too much"),
        _ => unreadable(error),
    })?;
    let token = bytes.trim_ascii();
    let what = match token.len() {
        0 => "nothing",
        length if length < SHORTEST => "too short a token",
        _ if !token.iter().all(u8::is_ascii_graphic) => "other characters than a token has",
        _ => return Ok(token.to_vec()),
    };
    Err(no_token(what))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn peer(address: &str) -> Peer {
        Peer {
            address: address.parse().expect("an address"),
            certified: false,
        }
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pairs = pairs.iter().map(|(name, value)| {
            let value = value.parse().expect("a value");
            (axum::http::HeaderName::from_static(name), value)
        });
        pairs.collect()
    }

    fn with_token(text: &str) -> (tempfile::TempDir, Result<Access, TokenError>) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        std::fs::write(&path, text).expect("a file");
        let access = Access::new(Some(&path), false);
        (folder, access)
    }

    #[test]
    fn without_a_token_only_this_host_is_let_in_and_only_by_its_own_names() {
        let access = Access::default();
        let asked = |from: &str, pairs: &[(&'static str, &str)]| access.admits(peer(from), &headers(pairs));
        for (from, host) in [
            ("127.0.0.1:5", "localhost:9880"),
            ("127.0.0.1:5", "127.0.0.1"),
            ("[::1]:5", "[::1]:9880"),
            ("[::ffff:127.0.0.1]:5", "LOCALHOST"),
        ] {
            assert_eq!(asked(from, &[("host", host)]), Ok(()), "{from} {host}");
        }
        assert_eq!(asked("127.0.0.1:5", &[]), Ok(()));
        for (from, host) in [
            ("10.0.0.7:5", "localhost"),
            ("[2001:db8::1]:5", "localhost"),
            ("127.0.0.1:5", "evil.example"),
            ("127.0.0.1:5", "localhost.evil.example"),
            ("127.0.0.1:5", "10.0.0.7"),
            ("127.0.0.1:5", ""),
        ] {
            assert_eq!(
                asked(from, &[("host", host)]),
                Err(AccessRefusal::NotThisHost),
                "{from} {host}"
            );
        }
    }

    #[test]
    fn what_a_proxy_on_this_host_has_forwarded_is_not_from_this_host() {
        let (access, peer) = (Access::default(), peer("127.0.0.1:5"));
        for (name, value) in [
            ("forwarded", "for=10.0.0.7"),
            ("via", "1.1 gateway"),
            ("x-forwarded-for", "10.0.0.7"),
            // What Envoy adds, as the sidecar of Istio.
            ("x-forwarded-proto", "http"),
            ("x-forwarded-client-cert", "By=spiffe://cluster.local/ns/a/sa/b"),
            ("x-request-id", "7a1f"),
        ] {
            let forwarded = headers(&[("host", "localhost"), (name, value)]);
            assert_eq!(
                access.admits(peer, &forwarded),
                Err(AccessRefusal::NotThisHost),
                "{name}"
            );
        }
    }

    #[test]
    fn with_a_token_every_client_needs_it_as_a_bearer_or_as_a_password() {
        let (_folder, access) = with_token(&format!("{TOKEN}\n"));
        let access = access.expect("a token");
        let basic = |text: &str| format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(text));
        let asked = |value: &str| access.admits(peer("127.0.0.1:5"), &headers(&[("authorization", value)]));
        for value in [
            format!("Bearer {TOKEN}"),
            format!("bearer  {TOKEN}"),
            basic(&format!(":{TOKEN}")),
            basic(&format!("anybody:{TOKEN}")),
        ] {
            assert_eq!(asked(&value), Ok(()), "{value}");
        }
        for value in [
            "Bearer".to_owned(),
            "Bearer ".to_owned(),
            "Bearer 0123456789abcdeX".to_owned(),
            format!("Bearer {TOKEN}0"),
            format!("Digest {TOKEN}"),
            basic(TOKEN),
            basic(&format!("{TOKEN}:")),
            "Basic ????".to_owned(),
        ] {
            assert_eq!(asked(&value), Err(AccessRefusal::Token), "{value}");
        }
        assert_eq!(
            access.admits(peer("127.0.0.1:5"), &HeaderMap::new()),
            Err(AccessRefusal::Token)
        );
    }

    #[test]
    fn a_file_without_a_token_is_refused_at_the_start() {
        for text in ["", "  \n", "short", "0123456789 abcdef", &"x".repeat(5_000)] {
            let (_folder, access) = with_token(text);
            assert!(matches!(access, Err(TokenError::NoToken { .. })), "{text:?}");
        }
        let missing = Access::new(Some(Path::new("/nowhere/token")), false);
        assert!(matches!(missing, Err(TokenError::Unreadable { .. })));
    }

    #[test]
    fn a_renewed_token_is_accepted_and_without_the_file_no_token_is() {
        let (folder, access) = with_token(TOKEN);
        let access = access.expect("a token");
        let later = || {
            let token = access.token.as_ref().expect("a token");
            let mut held = token.held.lock().expect("no poison");
            held.read = held
                .read
                .checked_sub(REREAD_AFTER)
                .expect("the machine runs for longer");
        };
        let asked = |token: &str| {
            let value = format!("Bearer {token}");
            access.admits(peer("127.0.0.1:5"), &headers(&[("authorization", &value)]))
        };
        let renewed = "fedcba9876543210";
        std::fs::write(folder.path().join("token"), renewed).expect("a file");
        assert_eq!(
            (asked(TOKEN), asked(renewed)),
            (Ok(()), Err(AccessRefusal::Token))
        );
        later();
        assert_eq!(
            (asked(TOKEN), asked(renewed)),
            (Err(AccessRefusal::Token), Ok(()))
        );
        std::fs::remove_file(folder.path().join("token")).expect("a file");
        later();
        assert_eq!(asked(renewed), Err(AccessRefusal::Token));
    }

    #[test]
    fn a_client_certificate_is_enough_where_they_are_asked_for_and_nothing_where_not() {
        let certified = Peer {
            certified: true,
            ..peer("10.0.0.7:5")
        };
        let wanting = Access::new(None, true).expect("no file");
        assert_eq!(wanting.admits(certified, &HeaderMap::new()), Ok(()));
        assert_eq!(
            wanting.admits(peer("127.0.0.1:5"), &HeaderMap::new()),
            Err(AccessRefusal::Certificate)
        );
        assert!(wanting.reaches_beyond_this_host() && !Access::default().reaches_beyond_this_host());
        assert!(Access::default().admits(certified, &HeaderMap::new()).is_err());
    }
}
