//! The HTTP stack of a client.
//!
//! kube's own stack leaves Nagle's algorithm on. On a new connection the request then waits for the server's delayed
//! acknowledgement of the handshake: 40 ms on every canary (43 ms measured instead of 3 ms), which is as much as a slow
//! hook. It also logs each failed answer as an error, which a daemon that expects them would do every few seconds.
//! Behind a proxy kube's stack is used unchanged.

use std::time::Duration;

use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt};
use kube::{Client, Config};
use tower::timeout::Timeout;
use tower::{BoxError, ServiceBuilder, ServiceExt};

use super::CONNECT_TIMEOUT;

/// Idle time before the first TCP keepalive probe.
const KEEPALIVE: Duration = Duration::from_secs(20);

/// Makes clients that share trust and credentials, and no connection.
pub(super) type ClientMaker = Box<dyn Fn() -> Result<Client, kube::Error>>;

/// Prepares what the clients share. It runs a credential plugin up to twice, for its certificate and for its token, so call it on a
/// blocking thread of a runtime. Behind a proxy, kube's stack runs the plugin for each client.
pub(super) fn maker(config: Config) -> Result<ClientMaker, kube::Error> {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Without one rustls panics below. An error means that one is installed already.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    }
    if config.proxy_url.is_some() {
        return Ok(Box::new(move || Client::try_from(config.clone())));
    }
    let tls = config.rustls_https_connector_with_connector(tcp(HttpConnector::new()))?;
    let (auth, headers) = (config.auth_layer()?, config.extra_headers_layer()?);
    Ok(Box::new(move || {
        let connector = Timeout::new(tls.clone(), CONNECT_TIMEOUT).map_future(Box::pin);
        let http: HttpClient<_, Body> = HttpClient::builder(TokioExecutor::new()).build(connector);
        let service = ServiceBuilder::new()
            .layer(config.base_uri_layer())
            .option_layer(auth.as_ref())
            .layer(&headers)
            .map_err(BoxError::from)
            .service(http);
        Ok(Client::new(service, config.default_namespace.clone()))
    }))
}

/// How connections are dialled.
fn tcp<R>(mut tcp: HttpConnector<R>) -> HttpConnector<R> {
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(KEEPALIVE / 4));
    tcp.set_keepalive_retries(Some(3));
    // hyper divides this among the addresses of a name, so a dead one leaves time for the others. The rest of the time is for TLS.
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT * 4 / 5));
    tcp
}

#[cfg(test)]
mod tests {
    use http::Uri;
    use hyper_util::client::legacy::connect::dns::Name;
    use tokio::net::TcpListener;
    use tokio::time::timeout;
    use tower::service_fn;

    use super::*;
    use crate::io::testing::full_listener;

    #[tokio::test]
    async fn behind_an_http_proxy_and_a_socks5_proxy_a_client_can_be_made() {
        for proxy in ["http://10.1.0.1:3128", "socks5://10.1.0.1:1080"] {
            let mut config = Config::new(Uri::from_static("https://10.0.0.1:6443"));
            config.accept_invalid_certs = true;
            config.proxy_url = Some(Uri::from_static(proxy));
            let maker = maker(config).expect("a maker");
            assert!(maker().is_ok(), "{proxy}");
        }
    }

    #[tokio::test]
    async fn of_several_addresses_a_dead_one_leaves_time_for_the_next() {
        let Some((dead, _queued)) = full_listener().await else {
            return;
        };
        let live = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let addresses = [&dead, &live].map(|listener| listener.local_addr().expect("bound"));
        let resolver =
            service_fn(move |_: Name| async move { Ok::<_, std::io::Error>(addresses.into_iter()) });
        let dialling = tcp(HttpConnector::new_with_resolver(resolver))
            .oneshot("http://two.example/".parse().expect("a URL"));
        let dialled = timeout(CONNECT_TIMEOUT, dialling).await.expect("in time");
        dialled.expect("a connection to the second address");
    }
}
