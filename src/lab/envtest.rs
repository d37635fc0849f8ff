//! A real control plane: kube-apiserver and etcd, started for one demo and gone with it.
//!
//! There is no kubelet and no kube-proxy. With `--enable-aggregator-routing` the API server dials the endpoints of a
//! hook's Service itself. kube-controller-manager and kube-scheduler run where their binaries are installed as well and
//! the lab's clients are wanted ([`Envtest::controllers`]).

pub mod binaries;
mod controllers;
pub mod namespace;
pub(super) mod process;
mod server;
mod throttle;

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use tokio::time::Instant;

use self::binaries::Binaries;
pub use self::controllers::Controller;
use self::process::{Process, ProcessGuard};
use self::server::{Launch, Origin, second_host};
pub use self::server::{SecondApiServer, SecondLaunch};
pub use self::throttle::Throttle;
use super::certs::Authority;
use super::cluster::client_for;
use super::kubeconfig::kubeconfig;
use super::ports::free_port;

/// Longest wait until the API server is ready; seen: 4 s on an idle machine.
pub(super) const READY_LIMIT: Duration = Duration::from_secs(90);
/// Pause between two requests for `/readyz`.
const READY_POLL: Duration = Duration::from_millis(200);
/// Longest wait for one answer to them.
const READY_ANSWER: Duration = Duration::from_secs(5);
/// Most attempts to start, when another process takes one of the chosen ports in between.
const ATTEMPTS: u32 = 3;
/// The host names that the API server's certificate is for; it has its addresses as well.
const NAMES: [&str; 4] = [
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
];
/// The last byte of the API server's address in a network namespace.
const OWN_ADDRESS: u8 = 9;
/// Where the API server listens outside a network namespace.
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Logs every request with its user and outcome, without contents. A watch is logged when it opens and when it ends.
const AUDIT_POLICY: &str = "apiVersion: audit.k8s.io/v1\n\
                            kind: Policy\n\
                            omitStages: [RequestReceived]\n\
                            rules: [{level: Metadata}]\n";

/// How a control plane differs from the usual one.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Whether the API server writes an audit log.
    pub audit: bool,
    /// Further flags of the API server.
    pub flags: &'static [&'static str],
}

/// A running control plane. Dropping it kills its processes.
#[derive(Debug)]
pub struct Envtest {
    // Fields are dropped in this order: the API server ends before etcd, and the guard after both.
    kube_apiserver: Process,
    etcd: Arc<Process>,
    guard: Arc<ProcessGuard>,
    controllers: Option<binaries::Controllers>,
    origin: Box<Origin>,
    address: SocketAddr,
    audit_log: Option<PathBuf>,
}

impl Envtest {
    /// Starts both servers on free ports, with data, logs and keys in `directory`, and waits until the
    /// API server is ready.
    ///
    /// The directory is removed as well when this process is killed; else that is up to the caller.
    ///
    /// # Errors
    /// When the binaries are missing, or a server does not start or does not become ready; with the end of its log.
    pub async fn start(directory: &Path) -> anyhow::Result<Self> {
        Self::start_with(directory, Options::default()).await
    }

    /// As [`Envtest::start`], with options.
    ///
    /// # Errors
    /// As [`Envtest::start`].
    pub async fn start_with(directory: &Path, options: Options) -> anyhow::Result<Self> {
        let binaries = binaries::find()?;
        let mut attempt = 1;
        loop {
            match Self::attempt(&binaries, directory, options).await {
                Err(error)
                    if attempt < ATTEMPTS && format!("{error:#}").contains("address already in use") =>
                {
                    attempt += 1;
                }
                result => return result,
            }
        }
    }

    async fn attempt(binaries: &Binaries, directory: &Path, options: Options) -> anyhow::Result<Self> {
        let guard = Arc::new(ProcessGuard::start(directory)?);
        let host = api_server_host(namespace::entered());
        let (clients, peers, secure) = (free_port()?, free_port()?, free_port()?);
        let data = directory.join(format!("etcd-{clients}"));
        let etcd = Process::start(
            "etcd",
            &binaries.etcd,
            etcd_arguments(&data, clients, peers),
            directory,
            &guard,
        )?;
        let address = SocketAddr::from((host, secure));
        let files = EnvtestFiles::write(&directory.join(format!("kube-apiserver-{secure}")), host)?;
        let mut arguments = api_server_arguments(&files, clients, address);
        let audit_log = if options.audit {
            Some(audit(&files.directory, &mut arguments)?)
        } else {
            None
        };
        arguments.extend(options.flags.iter().map(OsString::from));
        let launch = Launch {
            name: "kube-apiserver",
            binary: binaries.kube_apiserver.clone(),
            arguments,
            directory: directory.to_owned(),
        };
        let kube_apiserver = launch.start(&guard)?;
        let envtest = Self {
            kube_apiserver,
            etcd: Arc::new(etcd),
            guard,
            address,
            audit_log,
            controllers: binaries.controllers.clone(),
            origin: Box::new(Origin {
                launch,
                etcd_port: clients,
                files,
            }),
        };
        envtest.ready().await?;
        Ok(envtest)
    }

    /// Where the API server listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where the API server writes every request down, one JSON object per line, before it answers.
    pub fn audit_log(&self) -> Option<&Path> {
        self.audit_log.as_deref()
    }

    /// A kubeconfig (YAML) of a user that may do everything.
    pub fn kubeconfig(&self) -> String {
        self.kubeconfig_for(self.address)
    }

    /// As [`Self::kubeconfig`], for another API server's address or that of a balancer in front of several.
    pub fn kubeconfig_for(&self, address: SocketAddr) -> String {
        let files = &self.origin.files;
        kubeconfig(&files.authority.pem(), address, &files.token)
    }

    /// A kubeconfig of the same user by a client certificate, valid or expired.
    ///
    /// # Errors
    /// When the certificate cannot be made.
    pub fn kubeconfig_by_certificate(&self, expired: bool) -> anyhow::Result<String> {
        self.kubeconfig_of(("lab-admin", "system:masters"), expired, self.address)
    }

    /// A kubeconfig of any user, by a client certificate that names user and group, for the API server at `address`.
    ///
    /// # Errors
    /// When the certificate cannot be made, or the kubeconfig has no token to replace.
    pub fn kubeconfig_of(
        &self,
        (user, group): (&str, &str),
        expired: bool,
        address: SocketAddr,
    ) -> anyhow::Result<String> {
        let files = &self.origin.files;
        let certificate = files.authority.issue_client(user, group, expired)?;
        let [shown, key] =
            [certificate.chain_pem(), certificate.key_pem()].map(|pem| BASE64_STANDARD.encode(pem));
        let by_token = format!("token: {}", files.token);
        let by_certificate = format!("client-certificate-data: {shown}\n    client-key-data: {key}");
        let kubeconfig = self.kubeconfig_for(address);
        anyhow::ensure!(kubeconfig.contains(&by_token), "the kubeconfig has no such token");
        Ok(kubeconfig.replace(&by_token, &by_certificate))
    }

    /// The process id of the API server, for instance to measure its memory and CPU time.
    pub fn api_server_id(&self) -> u32 {
        self.kube_apiserver.id()
    }

    /// Stops etcd four fifths of the time until the returned value is dropped.
    pub fn throttle_etcd(&self) -> Throttle {
        Throttle::start(Arc::clone(&self.etcd))
    }

    async fn ready(&self) -> anyhow::Result<()> {
        let processes = [&*self.etcd, &self.kube_apiserver];
        ready(&self.kubeconfig(), &processes, READY_LIMIT).await
    }
}

/// Waits until the API server of a kubeconfig is ready; fails at once when one of these processes has exited.
async fn ready(kubeconfig: &str, processes: &[&Process], limit: Duration) -> anyhow::Result<()> {
    let client = client_for(kubeconfig).await?;
    let until = Instant::now() + limit;
    let mut last = "it was never asked".to_owned();
    while Instant::now() < until {
        for process in processes {
            process.check()?;
        }
        let request = http::Request::get("/readyz")
            .body(Vec::new())
            .context("asking for readiness")?;
        match tokio::time::timeout(READY_ANSWER, client.request_text(request)).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) => last = error.to_string(),
            Err(_) => last = "no answer".to_owned(),
        }
        tokio::time::sleep(READY_POLL).await;
    }
    let words: Vec<String> = processes.iter().map(|process| process.last_words()).collect();
    anyhow::bail!(
        "kube-apiserver is not ready after {} s: {last}\n{}",
        limit.as_secs(),
        words.join("\n")
    )
}

/// Where the API server listens. In a network namespace that is not loopback: it publishes the address as the endpoint of its
/// own Service, and clients must reach it there.
const fn api_server_host(in_namespace: bool) -> IpAddr {
    if in_namespace {
        namespace::address(OWN_ADDRESS)
    } else {
        LOOPBACK
    }
}

/// Flags that etcd 3.5 and 3.6 share; a cluster of one needs no other.
fn etcd_arguments(data: &Path, clients: u16, peers: u16) -> Vec<OsString> {
    let clients = format!("http://127.0.0.1:{clients}");
    let mut arguments = vec![flag("data-dir", data)];
    arguments.extend([
        flag("listen-client-urls", &clients),
        flag("advertise-client-urls", &clients),
        flag("listen-peer-urls", format!("http://127.0.0.1:{peers}")),
        // What it holds is thrown away at the end.
        OsString::from("--unsafe-no-fsync"),
        flag("log-level", "warn"),
    ]);
    arguments
}

fn api_server_arguments(files: &EnvtestFiles, etcd: u16, address: SocketAddr) -> Vec<OsString> {
    let mut arguments = vec![
        flag("etcd-servers", format!("http://127.0.0.1:{etcd}")),
        flag("bind-address", address.ip().to_string()),
        flag("secure-port", address.port().to_string()),
        flag("cert-dir", &files.directory),
        flag("tls-cert-file", files.directory.join("serving.crt")),
        flag("tls-private-key-file", files.directory.join("serving.key")),
        flag("client-ca-file", files.directory.join("clients.crt")),
        flag("token-auth-file", files.directory.join("tokens.csv")),
        flag("authorization-mode", "RBAC"),
        flag(
            "service-account-issuer",
            "https://kubernetes.default.svc.cluster.local",
        ),
        flag("service-account-key-file", files.directory.join("accounts.pub")),
        flag(
            "service-account-signing-key-file",
            files.directory.join("accounts.key"),
        ),
        flag("service-cluster-ip-range", "10.96.0.0/16"),
        flag("enable-aggregator-routing", "true"),
        // The plugin needs default service accounts, which do not exist without kube-controller-manager.
        flag("disable-admission-plugins", "ServiceAccount"),
    ];
    arguments.push(flag("advertise-address", address.ip().to_string()));
    if address.ip().is_loopback() {
        // Otherwise it would try to publish its own address as an endpoint, and refuse that, again and again.
        arguments.push(flag("endpoint-reconciler-type", "none"));
    }
    arguments
}

/// Adds the flags for an audit log, and returns the path of the log.
fn audit(directory: &Path, arguments: &mut Vec<OsString>) -> anyhow::Result<PathBuf> {
    let policy = directory.join("audit-policy.yaml");
    std::fs::write(&policy, AUDIT_POLICY).with_context(|| format!("writing {}", policy.display()))?;
    let log = directory.join("audit.log");
    arguments.extend([flag("audit-policy-file", &policy), flag("audit-log-path", &log)]);
    Ok(log)
}

fn flag(name: &str, value: impl AsRef<std::ffi::OsStr>) -> OsString {
    let mut flag = OsString::from(format!("--{name}="));
    flag.push(value);
    flag
}

/// Keys, certificates and tokens, in files as the API server wants them.
struct EnvtestFiles {
    directory: PathBuf,
    authority: Authority,
    token: String,
}

impl EnvtestFiles {
    fn write(directory: &Path, host: IpAddr) -> anyhow::Result<Self> {
        let authority = Authority::new("hookwatch lab API server")?;
        let [first, second] = [host, second_host(host)].map(|host| host.to_string());
        let serving = authority.issue_names(&[NAMES.as_slice(), &[&first, &second]].concat())?;
        let accounts = rcgen::KeyPair::generate().context("making the key of service account tokens")?;
        let token = token()?;
        std::fs::create_dir(directory).with_context(|| format!("making {}", directory.display()))?;
        for (name, text) in [
            ("serving.crt", serving.chain_pem()),
            ("serving.key", serving.key_pem()),
            ("clients.crt", authority.pem()),
            ("accounts.pub", accounts.public_key_pem()),
            ("accounts.key", accounts.serialize_pem()),
            (
                "tokens.csv",
                format!("{token},lab-admin,lab-admin,\"system:masters\"\n"),
            ),
        ] {
            // The directory around it is for its owner only.
            let path = directory.join(name);
            std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        }
        Ok(Self {
            directory: directory.to_owned(),
            authority,
            token,
        })
    }
}

impl std::fmt::Debug for EnvtestFiles {
    // Keys and tokens are not printed.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Files({})", self.directory.display())
    }
}

/// An unguessable token: every user of this machine can reach the port.
fn token() -> anyhow::Result<String> {
    let mut bytes = [0_u8; 24];
    rustls::crypto::aws_lc_rs::default_provider()
        .secure_random
        .fill(&mut bytes)
        .map_err(|_| anyhow::anyhow!("the system has no random bytes for a token"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
