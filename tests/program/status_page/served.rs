//! The page over HTTP: headers, who is let in, and clients that mean no good.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hookwatch::domain::report::assessment::Assessment;
use hookwatch::io::http;
use hookwatch::io::report::Reported;
use hookwatch::io::report::metrics::Metrics;
use hookwatch::io::report::page::past::Past;
use hookwatch::lab::ports::free_port;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::sync::watch;

use super::fixture;

/// A guard against a test that hangs, not a measurement.
const LIMIT: Duration = Duration::from_secs(60);

/// The daemon's server with an assessment of ours.
pub struct Served {
    pub address: SocketAddr,
    _publish: watch::Sender<Option<Arc<Assessment>>>,
    _stop: watch::Sender<bool>,
}

impl Served {
    pub async fn start(assessment: Assessment, minutes: u64) -> Self {
        let past = fixture::hour(&assessment, minutes);
        Self::start_with(assessment, past).await
    }

    pub async fn start_with(assessment: Assessment, past: Past) -> Self {
        let listener = http::listen("127.0.0.1:0".parse().unwrap(), "--listen")
            .await
            .unwrap();
        let address = listener.local_addr().unwrap();
        let (publish, assessment) = watch::channel(Some(Arc::new(assessment)));
        let shown = Reported {
            assessment,
            metrics: Arc::new(Metrics::new().unwrap()),
            certificates: Arc::default(),
            past: Arc::new(Mutex::new(past)),
        };
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(http::serve(listener.into(), shown, stopped));
        Self {
            address,
            _publish: publish,
            _stop: stop,
        }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

#[tokio::test]
async fn the_page_comes_in_one_answer_with_a_strict_policy_and_is_kept_nowhere() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let served = Served::start(fixture::many(500, 3), 8).await;
    for path in ["/", "/fragment"] {
        let answer = reqwest::get(served.url(path)).await.unwrap();
        assert_eq!(answer.status(), 200);
        let header = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
        let policy = header("content-security-policy");
        assert!(
            policy.starts_with("default-src 'none'; script-src 'sha256-"),
            "{policy}"
        );
        assert!(
            policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"),
            "{policy}"
        );
        assert_eq!(header("cache-control"), "no-store");
        assert_eq!(header("x-content-type-options"), "nosniff");
        assert_eq!(header("referrer-policy"), "no-referrer");
        assert_eq!(header("content-type"), "text/html; charset=utf-8");
        assert!(!answer.headers().contains_key("set-cookie"));
        let body = answer.text().await.unwrap();
        assert!(body.len() < 200_000, "{} bytes", body.len());
        assert!(body.contains("policy-0499"));
    }
    // A website whose name its owner lets resolve to 127.0.0.1 learns nothing.
    let client = reqwest::Client::new();
    for path in ["/", "/fragment", "/api/v1/assessment"] {
        let asked = client.get(served.url(path)).header("host", "evil.example");
        assert_eq!(asked.send().await.unwrap().status(), 403, "{path}");
    }
}

/// Whether the server has ended a connection; what was sent before is still to be read.
fn is_ended(stream: TcpStream) -> bool {
    /// More than two sockets hold of what is not read.
    const MOST: u64 = 16 << 20;
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    match std::io::copy(&mut stream.take(MOST), &mut std::io::sink()) {
        Ok(read) => read < MOST,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

/// Clients that ask for much and read nothing, as many as there is room for; a peer has room for a quarter of them.
#[tokio::test]
async fn of_clients_that_read_nothing_all_but_a_peers_share_are_ended_and_others_are_served() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let served = Served::start(fixture::many(500, 3), 8).await;
    let address = served.address;
    let slow = tokio::task::spawn_blocking(move || {
        let asked = "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(400);
        let clients = (0..64).map(|_| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
            // What does not go out would not be read either.
            let _ = stream.write_all(asked.as_bytes());
            stream
        });
        clients.collect::<Vec<_>>()
    });
    let slow = slow.await.unwrap();
    let page = reqwest::Client::new().get(served.url("/")).timeout(LIMIT);
    assert_eq!(page.send().await.unwrap().status(), 200);
    let ended = tokio::task::spawn_blocking(|| {
        slow.into_iter()
            .filter_map(|it| is_ended(it).then_some(()))
            .take(48)
            .count()
    });
    assert_eq!(ended.await.unwrap(), 48);
}

#[tokio::test]
async fn garbage_disturbs_no_other_client() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let served = Served::start(fixture::recorded("quiet"), 0).await;
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(200_000));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(5_000));
    let cases: [&[u8]; 6] = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\x00\xff\xfe\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/1.1\r\ncontent-length: 99999999999\r\nhost: localhost\r\n\r\nx",
        long.as_bytes(),
        many.as_bytes(),
    ];
    for case in cases {
        let (address, case) = (served.address, case.to_vec());
        let answer = tokio::task::spawn_blocking(move || {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(LIMIT)).unwrap();
            let _ = stream.write_all(&case);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            String::from_utf8_lossy(&answer).into_owned()
        });
        let answer = answer.await.unwrap();
        assert!(!answer.contains(" 500 "), "{answer}");
    }
    assert_eq!(reqwest::get(served.url("/")).await.unwrap().status(), 200);
}

/// The real daemon, whose cluster does not answer.
struct Daemon {
    child: Child,
    folder: tempfile::TempDir,
    main: u16,
    metrics: u16,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Daemon {
    /// Starts with these keys below `serve`, each a file's name and its content.
    fn start(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| -> PathBuf {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let (main, metrics) = (free_port().unwrap(), free_port().unwrap());
        let kubeconfig = write(
            "kubeconfig",
            "apiVersion: v1\nkind: Config\n\
             clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n\
             users: [{name: u, user: {token: t}}]\n\
             contexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n",
        );
        let mut config = format!("listen: 127.0.0.1:{main}\nserve:\n  metricsListen: 127.0.0.1:{metrics}\n");
        for (key, text) in files {
            let path = write(key, text);
            config.push_str(&format!("  {key}: {}\n", path.display()));
        }
        let config = write("hookwatch.yaml", &config);
        let child = Command::new(env!("CARGO_BIN_EXE_hookwatch"))
            .arg("run")
            .args([
                Path::new("--config"),
                &config,
                Path::new("--kubeconfig"),
                &kubeconfig,
            ])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let daemon = Self {
            child,
            folder,
            main,
            metrics,
        };
        for port in [main, metrics] {
            let begin = Instant::now();
            while TcpStream::connect(("127.0.0.1", port)).is_err() {
                assert!(begin.elapsed() < LIMIT, "the daemon does not listen");
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        daemon
    }

    /// The status of an answer.
    async fn status(&self, asked: reqwest::RequestBuilder) -> u16 {
        asked.timeout(LIMIT).send().await.unwrap().status().as_u16()
    }
}

#[tokio::test]
async fn with_a_token_file_the_page_and_the_api_want_the_token_and_the_metrics_are_apart() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let token = "not-to-be-guessed-0123456789";
    let daemon = Daemon::start(&[("tokenFile", token)]);
    let client = reqwest::Client::new();
    let main = |path: &str| client.get(format!("http://127.0.0.1:{}{path}", daemon.main));
    let apart = |path: &str| client.get(format!("http://127.0.0.1:{}{path}", daemon.metrics));
    for path in ["/", "/fragment", "/api/v1/assessment"] {
        assert_eq!(daemon.status(main(path)).await, 401, "{path}");
        assert_eq!(
            daemon
                .status(main(path).bearer_auth("not-to-be-guessed-987654321"))
                .await,
            401
        );
        assert_eq!(
            daemon.status(main(path).basic_auth("me", Some("wrong"))).await,
            401
        );
        assert_eq!(daemon.status(main(path).bearer_auth(token)).await, 200, "{path}");
        assert_eq!(daemon.status(main(path).basic_auth("me", Some(token))).await, 200);
        assert_eq!(daemon.status(apart(path).bearer_auth(token)).await, 404, "{path}");
    }
    let refused = main("/").send().await.unwrap();
    let asks = refused.headers()["www-authenticate"].to_str().unwrap();
    assert!(asks.starts_with("Basic "), "a browser asks for it: {asks}");
    let elsewhere = main("/metrics").send().await.unwrap();
    assert_eq!(elsewhere.status().as_u16(), 404);
    assert!(elsewhere.text().await.unwrap().contains("serve.metricsListen"));
    assert_eq!(daemon.status(apart("/metrics")).await, 200);
    for path in ["/live", "/ready"] {
        assert_eq!(
            daemon.status(main(path)).await,
            daemon.status(apart(path)).await,
            "{path}"
        );
    }
}

#[tokio::test]
async fn with_a_client_authority_a_certificate_of_it_opens_the_page_and_no_other() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let authority = |name: &str| {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    };
    let pair = |issuer: &CertifiedIssuer<'_, KeyPair>| {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    };
    let (ours, stranger) = (authority("ours"), authority("stranger"));
    let (certificate, key) = pair(&ours);
    let daemon = Daemon::start(&[
        ("certificateFile", &certificate),
        ("keyFile", &key),
        ("clientCAFile", &ours.pem()),
    ]);
    assert!(daemon.folder.path().join("keyFile").exists());
    let client = |identity: Option<(String, String)>| {
        let root = reqwest::Certificate::from_pem(ours.pem().as_bytes()).unwrap();
        let mut builder = reqwest::Client::builder().tls_certs_only([root]);
        if let Some((certificate, key)) = identity {
            let identity = reqwest::Identity::from_pem(format!("{key}{certificate}").as_bytes()).unwrap();
            builder = builder.identity(identity);
        }
        builder.build().unwrap()
    };
    let url = |path: &str| format!("https://localhost:{}{path}", daemon.main);
    let anonymous = client(None);
    assert_eq!(daemon.status(anonymous.get(url("/"))).await, 403);
    let ready = daemon.status(anonymous.get(url("/ready"))).await;
    assert!(ready == 200 || ready == 503, "{ready}");
    let known = client(Some(pair(&ours)));
    for path in ["/", "/api/v1/assessment"] {
        assert_eq!(daemon.status(known.get(url(path))).await, 200, "{path}");
    }
    let unknown = client(Some(pair(&stranger)));
    assert!(unknown.get(url("/")).timeout(LIMIT).send().await.is_err());
    let plain = reqwest::Client::new().get(format!("http://localhost:{}/", daemon.main));
    assert!(
        plain.timeout(LIMIT).send().await.is_err(),
        "there is no plain HTTP beside it"
    );
    let metrics = format!("http://127.0.0.1:{}/metrics", daemon.metrics);
    assert_eq!(daemon.status(reqwest::Client::new().get(metrics)).await, 200);
}

#[test]
fn a_token_file_without_a_token_is_said_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let token = write("token", "short\n");
    let config = write(
        "hookwatch.yaml",
        &format!("listen: 127.0.0.1:0\nserve: {{tokenFile: {}}}\n", token.display()),
    );
    let output = Command::new(env!("CARGO_BIN_EXE_hookwatch"))
        .args([Path::new("run"), Path::new("--config"), &config])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("too short a token"), "{said}");
}
