//! What a client is made of.
//!
//! kube's own stack leaves Nagle's algorithm on. On a new connection the request then waits for the server's
//! delayed acknowledgement of the handshake: 40 ms on every canary (43 ms measured instead of 3 ms), which is
//! as much as a slow hook. It also logs each failed answer as an error, which a daemon that expects them would
//! do every few seconds. Behind a proxy kube's stack is taken as it is.

use std::time::Duration;

use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt};
use kube::{Client, Config};
use tower::timeout::Timeout;
use tower::{BoxError, ServiceBuilder, ServiceExt};

use super::CONNECT_TIMEOUT;

/// After so much silence the system asks whether the other side is still there.
const KEEPALIVE: Duration = Duration::from_secs(20);

/// Makes a client. May run a credential plugin, so not on a runtime thread, but within a runtime.
pub(super) fn client(config: Config) -> Result<Client, kube::Error> {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Without one rustls panics below. An error means that somebody else was faster.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    }
    if config.proxy_url.is_some() {
        return Client::try_from(config);
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(KEEPALIVE / 4));
    tcp.set_keepalive_retries(Some(3));
    let tls = config.rustls_https_connector_with_connector(tcp)?;
    let connector = Timeout::new(tls, CONNECT_TIMEOUT).map_future(Box::pin);
    let http: HttpClient<_, Body> = HttpClient::builder(TokioExecutor::new()).build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(Client::new(service, config.default_namespace))
}
