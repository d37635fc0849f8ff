//! Access to the API server: which cluster, as which user, and over which connections.
//!
//! kube's own inference quietly goes on to the next source when one is broken. A watchdog that then watches
//! another cluster than its operator thinks is worse than none, so here the first source that is *named*
//! decides, and its error is final.
//!
//! kube's built-in retry (15 attempts on 429, 503 and 504) is off in every client: a canary that is silently repeated
//! is no measurement, and everything else here has a backoff of its own. No client has a timeout for answers; the
//! caller sets one.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Uri;
use http::header::{HeaderValue, USER_AGENT};
use kube::Client;
use kube::config::{AuthInfo, Config, InClusterError, KubeConfigOptions};
use thiserror::Error;

use super::error::with_causes;

pub(crate) mod answer;
pub(crate) mod certificate;
pub mod greeting;
mod kubeconfig;
pub(crate) mod request;
mod stack;

use stack::ClientMaker;

pub use kubeconfig::Flaw;

/// Longest wait for a connection, TLS handshake included.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time to build the clients, which may run a credential plugin; see [`build_limit`] for a proxy.
const BUILD_TIMEOUT: Duration = Duration::from_secs(30);

/// Why there is no client.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The named kubeconfig cannot be used.
    #[error(
        "cannot use the kubeconfig {files} ({origin}): {why}; correct it or name another by --kubeconfig"
    )]
    Kubeconfig {
        /// The file or files.
        files: String,
        /// Where the path comes from: `--kubeconfig`, `KUBECONFIG` or the default.
        origin: &'static str,
        /// What is wrong.
        why: Box<Flaw>,
    },
    /// A context was asked for and there is no kubeconfig.
    #[error(
        "--context {context:?} needs a kubeconfig, and there is none: give --kubeconfig or set KUBECONFIG \
         ({looked_for} does not exist)"
    )]
    ContextWithoutKubeconfig {
        /// The context.
        context: String,
        /// The default file.
        looked_for: String,
    },
    /// There is no kubeconfig, and hookwatch does not run in a Pod.
    #[error(
        "no cluster to watch: give --kubeconfig, set KUBECONFIG, or write {looked_for}; inside a Pod, let its \
         service account's token be mounted ({why})"
    )]
    Nowhere {
        /// The default file.
        looked_for: String,
        /// Why the Pod's service account cannot be used.
        why: Box<InClusterError>,
    },
    /// The configuration was read, but no client can be made of it.
    #[error("cannot make a client for {server}: {why}; correct the user's entry in the kubeconfig")]
    Build {
        /// The API server.
        server: String,
        /// What is wrong, with its causes.
        why: String,
    },
    /// The replica's certificate would not be verified, so another server could receive the credentials.
    #[error(
        "{server} is not asked by its own address, since its certificate would not be verified; use https, and \
         certificate-authority-data instead of insecure-skip-tls-verify"
    )]
    Unverified {
        /// The address.
        server: String,
    },
}

/// The clients for one cluster.
///
/// They use HTTP/1.1, so requests that run at the same time never share a connection, and no two clients share a pool: a hung watch
/// never holds up a call.
#[derive(Clone)]
pub struct Connection {
    config: Config,
    watches: Client,
    calls: Client,
    canaries: Client,
}

impl Connection {
    /// Finds the cluster and makes the clients. Nothing is dialled yet.
    ///
    /// The order is `--kubeconfig`, `KUBECONFIG`, `~/.kube/config`, the Pod's service account. `--context` is that of the
    /// kubeconfig to use instead of its current one.
    ///
    /// # Errors
    /// When the first of these that exists cannot be used, or none exists. The message names the file.
    pub async fn open(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Self, ConnectError> {
        let of_home = std::env::home_dir().map(|home| home.join(".kube").join("config"));
        let source = ConfigSource::choose(kubeconfig, std::env::var_os("KUBECONFIG"), of_home);
        Self::from_config(source.load(context).await?).await
    }

    /// Makes the clients for a configuration. Nothing is dialled yet.
    ///
    /// # Errors
    /// When its certificates or credentials are unusable.
    pub async fn from_config(config: Config) -> Result<Self, ConnectError> {
        let config = adjusted(config);
        let clients = build(config.clone(), |client| Ok((client()?, client()?, client()?)));
        let (watches, calls, canaries) = clients.await?;
        Ok(Self {
            watches,
            calls,
            canaries,
            config,
        })
    }

    /// The client for watches, which keep a connection for minutes.
    pub fn watches(&self) -> &Client {
        &self.watches
    }

    /// The client for short calls.
    pub fn calls(&self) -> &Client {
        &self.calls
    }

    /// The client for canaries and other requests that each need a new connection. Callers ask for that by `Connection: close`, so
    /// that this client has no pooled connection.
    pub fn canaries(&self) -> &Client {
        &self.canaries
    }

    /// The URL of the API server as configured, without a user and password that it may hold.
    pub fn server(&self) -> String {
        without_secrets(&self.config.cluster_url)
    }

    /// The server's name in metrics and messages: host and port, without the user and password that a URL may hold.
    pub fn server_name(&self) -> String {
        let url = &self.config.cluster_url;
        match (url.host(), url.port_u16()) {
            (Some(host), Some(port)) => format!("{host}:{port}"),
            (Some(host), None) => host.to_owned(),
            (None, _) => "the configured server".to_owned(),
        }
    }

    /// The socket address of the API server, when it is configured by its IP address.
    pub fn server_address(&self) -> Option<SocketAddr> {
        let url = &self.config.cluster_url;
        let ip = server_host(url)?.parse().ok()?;
        Some(SocketAddr::new(ip, server_port(url)))
    }

    /// Whether the API server is reached at an address of this very host: then a loopback address means the same to both.
    pub fn is_beside_api_server(&self) -> bool {
        server_host(&self.config.cluster_url).is_some_and(is_loopback)
            || self.server_address().is_some_and(|address| is_here(address.ip()))
    }

    /// A client for one API-server replica at `address`, with the same trust and credentials.
    ///
    /// The certificate is verified for the configured server's name, which every replica must have. Otherwise a writer of
    /// the EndpointSlices that list them could have the credentials sent to a server of their own.
    ///
    /// # Errors
    /// When the certificate would not be verified, or the credentials have become unusable.
    pub async fn direct(&self, address: SocketAddr) -> Result<Client, ConnectError> {
        let mut config = self.config.clone();
        let scheme = config.cluster_url.scheme_str().unwrap_or("https");
        if config.accept_invalid_certs || (scheme != "https" && has_credentials(&config.auth_info)) {
            let server = address.to_string();
            return Err(ConnectError::Unverified { server });
        }
        config.tls_server_name = config
            .tls_server_name
            .or_else(|| server_host(&self.config.cluster_url).map(str::to_owned));
        config.cluster_url =
            format!("{scheme}://{address}")
                .parse()
                .map_err(|error| ConnectError::Build {
                    server: address.to_string(),
                    why: with_causes(&error),
                })?;
        build(config, |client| client()).await
    }
}

impl std::fmt::Debug for Connection {
    // Config's own Debug would print credentials that are not wrapped.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Connection({})", self.server())
    }
}

/// Whether requests carry credentials with which the receiver could act as this user.
const fn has_credentials(user: &AuthInfo) -> bool {
    user.token.is_some()
        || user.token_file.is_some()
        || user.password.is_some()
        || user.exec.is_some()
        || user.auth_provider.is_some()
}

fn without_secrets(url: &Uri) -> String {
    let authority = url.authority().map_or("", |authority| authority.as_str());
    let place = authority.rsplit('@').next().unwrap_or_default();
    let scheme = url.scheme().map(|scheme| format!("{scheme}://"));
    format!("{}{place}{}", scheme.unwrap_or_default(), url.path())
}

/// The host of the configured server, an IPv6 address without its brackets.
fn server_host(url: &Uri) -> Option<&str> {
    url.host()
        .map(|host| host.trim_start_matches('[').trim_end_matches(']'))
}

fn server_port(url: &Uri) -> u16 {
    let default = if url.scheme_str() == Some("http") { 80 } else { 443 };
    url.port_u16().unwrap_or(default)
}

/// Whether a host is `localhost` or a loopback address: each means the very host that uses it.
pub(super) fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host
            .parse::<IpAddr>()
            .is_ok_and(|address| address.to_canonical().is_loopback())
}

/// Whether an address is one of this host's own. Nothing is sent; the kernel just says whether it has it.
fn is_here(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

fn adjusted(mut config: Config) -> Config {
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.default_retry = false;
    config.disable_compression = true;
    config.headers.push((
        USER_AGENT,
        HeaderValue::from_static(concat!("hookwatch/", env!("CARGO_PKG_VERSION"))),
    ));
    config
}

/// Longest wait for the clients of a [`Connection`]: through a proxy each of the three runs the credential plugin for itself.
fn build_limit(config: &Config) -> Duration {
    BUILD_TIMEOUT * if config.proxy_url.is_some() { 3 } else { 1 }
}

/// Builds clients on a blocking thread, because it runs credential plugins and reads files.
async fn build<T: Send + 'static>(
    config: Config,
    make: fn(&ClientMaker) -> Result<T, kube::Error>,
) -> Result<T, ConnectError> {
    let server = without_secrets(&config.cluster_url);
    let plugin = config
        .auth_info
        .exec
        .as_ref()
        .and_then(|exec| exec.command.clone());
    let limit = build_limit(&config);
    let failed = |why: String| ConnectError::Build {
        server,
        why: match &plugin {
            Some(plugin) => format!("credential plugin {plugin:?}: {why}"),
            None => why,
        },
    };
    let building = tokio::task::spawn_blocking(move || make(&stack::maker(config)?));
    match tokio::time::timeout(limit, building).await {
        Ok(Ok(Ok(made))) => Ok(made),
        Ok(Ok(Err(error))) => Err(failed(with_causes(&error))),
        Ok(Err(error)) => Err(failed(with_causes(&error))),
        Err(_) => Err(failed(format!(
            "its credentials were not there within {} s; does the credential plugin wait for input?",
            limit.as_secs()
        ))),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum ConfigSource {
    Files(Vec<PathBuf>, &'static str),
    Pod { looked_for: String },
}

impl ConfigSource {
    fn choose(
        kubeconfig: Option<&Path>,
        kubeconfig_variable: Option<OsString>,
        default_file: Option<PathBuf>,
    ) -> Self {
        if let Some(file) = kubeconfig {
            return Self::Files(vec![file.to_owned()], "from --kubeconfig");
        }
        let named: Vec<PathBuf> = kubeconfig_variable
            .iter()
            .flat_map(std::env::split_paths)
            .filter(|path| !path.as_os_str().is_empty())
            .collect();
        if !named.is_empty() {
            return Self::Files(named, "from KUBECONFIG");
        }
        match default_file {
            Some(file) if file.exists() => Self::Files(vec![file], "the default"),
            other => Self::Pod {
                looked_for: other
                    .map_or_else(|| "~/.kube/config".to_owned(), |file| file.display().to_string()),
            },
        }
    }

    async fn load(self, context: Option<&str>) -> Result<Config, ConnectError> {
        match (self, context) {
            (Self::Files(files, origin), _) => {
                let failed = |why| ConnectError::Kubeconfig {
                    files: files
                        .iter()
                        .map(|file| file.display().to_string())
                        .collect::<Vec<_>>()
                        .join(", "),
                    origin,
                    why: Box::new(why),
                };
                let merged = kubeconfig::read(&files, context).map_err(failed)?;
                let own_proxy = kubeconfig::own_proxy(&merged, context);
                let chosen = KubeConfigOptions {
                    context: context.map(str::to_owned),
                    ..KubeConfigOptions::default()
                };
                let mut config = Config::from_custom_kubeconfig(merged, &chosen)
                    .await
                    .map_err(|error| failed(error.into()))?;
                config.proxy_url =
                    kubeconfig::proxy(&config.cluster_url, own_proxy, |name| std::env::var(name).ok());
                Ok(config)
            }
            (Self::Pod { looked_for }, Some(context)) => Err(ConnectError::ContextWithoutKubeconfig {
                context: context.to_owned(),
                looked_for,
            }),
            (Self::Pod { looked_for }, None) => Config::incluster().map_err(|why| ConnectError::Nowhere {
                looked_for,
                why: Box::new(why),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::testing::{TestReply, TestServer, soon};

    fn path(text: &str) -> PathBuf {
        PathBuf::from(text)
    }

    #[test]
    fn the_first_source_that_is_named_decides() {
        let default = path(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let variable = || Some(OsString::from("/a::/b"));
        assert_eq!(
            ConfigSource::choose(Some(Path::new("/flag")), variable(), Some(default.clone())),
            ConfigSource::Files(vec![path("/flag")], "from --kubeconfig")
        );
        assert_eq!(
            ConfigSource::choose(None, variable(), Some(default.clone())),
            ConfigSource::Files(vec![path("/a"), path("/b")], "from KUBECONFIG")
        );
        assert_eq!(
            ConfigSource::choose(None, Some(OsString::new()), Some(default.clone())),
            ConfigSource::Files(vec![default], "the default")
        );
        assert_eq!(
            ConfigSource::choose(None, None, Some(path("/nowhere/config"))),
            ConfigSource::Pod {
                looked_for: "/nowhere/config".to_owned()
            }
        );
    }

    #[tokio::test]
    async fn a_kubeconfig_that_cannot_be_used_is_named() {
        let open = |file: &str, context: Option<&str>| {
            let (file, context) = (path(file), context.map(str::to_owned));
            async move {
                Connection::open(Some(&file), context.as_deref())
                    .await
                    .expect_err("unusable")
                    .to_string()
            }
        };
        let said = open("/nowhere/config", None).await;
        assert!(
            said.contains("/nowhere/config") && said.contains("--kubeconfig"),
            "{said}"
        );
        // Any file that is no kubeconfig.
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let said = open(manifest, None).await;
        assert!(said.contains("Cargo.toml"), "{said}");
    }

    #[tokio::test]
    async fn a_context_needs_a_kubeconfig() {
        let pod = ConfigSource::Pod {
            looked_for: "/home/u/.kube/config".to_owned(),
        };
        let said = pod.load(Some("prod")).await.expect_err("no file").to_string();
        assert!(
            said.contains("prod") && said.contains("/home/u/.kube/config"),
            "{said}"
        );
    }

    #[tokio::test]
    async fn a_replica_is_trusted_under_the_configured_servers_name_only() {
        let server = TestServer::start_tls("api.example", |_| TestReply::json(200, "{}")).await;
        let ask = async |config| {
            let connection = Connection::from_config(config).await.expect("a client");
            let client = connection.direct(server.address).await.expect("a client");
            let request = http::Request::get("/version").body(kube::client::Body::empty());
            soon(client.send(request.expect("a request"))).await
        };
        let answered = ask(server.config("api.example")).await;
        assert_eq!(answered.expect("the name fits").status(), 200);

        let mut named = server.config("127.0.0.1");
        named.tls_server_name = Some("api.example".to_owned());
        assert_eq!(ask(named).await.expect("the name fits").status(), 200);

        let error = ask(server.config("other.example"))
            .await
            .expect_err("another name");
        assert!(answer::is_connect(&error), "{error}");
    }

    #[tokio::test]
    async fn for_all_clients_together_a_credential_plugin_runs_twice_at_most() {
        let folder = tempfile::tempdir().expect("a folder");
        let runs = folder.path().join("runs");
        let credential = r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"t"}}"#;
        let server = TestServer::start(|_| TestReply::json(200, "{}")).await;
        let mut config = server.config("127.0.0.1");
        config.auth_info.exec = Some(kube::config::ExecConfig {
            api_version: Some("client.authentication.k8s.io/v1".to_owned()),
            command: Some("sh".to_owned()),
            args: Some(vec![
                "-c".to_owned(),
                format!("echo run >> '{}'; echo '{credential}'", runs.display()),
            ]),
            ..kube::config::ExecConfig::default()
        });
        let connection = Connection::from_config(config).await.expect("clients");
        for client in [connection.watches(), connection.calls(), connection.canaries()] {
            let request = http::Request::get("/version").body(kube::client::Body::empty());
            let answer = soon(client.send(request.expect("a request"))).await;
            assert_eq!(answer.expect("an answer").status(), 200);
        }
        for asked in server.asked() {
            assert_eq!(asked.headers["authorization"], "Bearer t");
        }
        let runs = std::fs::read_to_string(runs).expect("it ran");
        assert!(runs.lines().count() <= 2, "{runs}");
    }

    #[test]
    fn through_a_proxy_each_client_has_the_time_to_run_its_credential_plugin() {
        let mut config = Config::new(Uri::from_static("https://10.0.0.1:6443"));
        assert_eq!(build_limit(&config), BUILD_TIMEOUT);
        config.proxy_url = Some(Uri::from_static("http://10.1.0.1:3128"));
        assert_eq!(build_limit(&config), BUILD_TIMEOUT * 3);
    }

    #[tokio::test]
    async fn debugging_a_connection_shows_no_credentials() {
        let server = TestServer::start(|_| TestReply::Hang).await;
        let shown = format!("{:?}", server.connection().await);
        assert_eq!(shown, format!("Connection(http://{}/)", server.address));
    }

    #[test]
    fn an_address_of_this_host_is_told_from_others() {
        assert!(is_here(IpAddr::from([127, 0, 0, 3])));
        // Reserved for documentation, so no host has it.
        assert!(!is_here(IpAddr::from([203, 0, 113, 7])));
    }

    #[test]
    fn a_password_in_the_url_of_the_server_is_not_shown() {
        for (url, shown) in [
            (
                "https://me:secret@api.example:6443/k8s/c-1?token=secret",
                "https://api.example:6443/k8s/c-1",
            ),
            ("https://[::1]:6443", "https://[::1]:6443/"),
            ("api.example:6443", "api.example:6443"),
        ] {
            assert_eq!(without_secrets(&url.parse().expect("a URL")), shown);
        }
    }

    #[test]
    fn loopback_is_known_by_its_name_and_by_its_addresses() {
        for host in [
            "localhost",
            "LocalHost",
            "127.0.0.1",
            "127.3.2.1",
            "::1",
            "::ffff:127.0.0.1",
        ] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["localhost.example.com", "10.0.0.1", "::", "128.0.0.1", ""] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
