//! What `diagnose` and `run` say when they are pointed at the wrong thing: which thing it is, and what to do next.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::thread;

const GOOD: &str = "apiVersion: v1\nkind: Config\n\
    clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n\
    users: [{name: u, user: {token: t}}]\n\
    contexts: [{name: x, context: {cluster: c, user: u}}]\n\
    current-context: x\n";

fn file(name: &str, bytes: &[u8]) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bad-input-{name}"));
    std::fs::write(&path, bytes).unwrap();
    path
}

fn hookwatch(arguments: &[&str], kubeconfig: &Path) -> Output {
    let mut command = crate::programs::hookwatch();
    command.args(arguments).arg("--kubeconfig").arg(kubeconfig);
    command.output().unwrap()
}

#[test]
fn a_kubeconfig_that_cannot_be_used_is_bad_usage_and_the_mistake_in_it_is_named() {
    let huge = format!("{GOOD}# {}\n", "x".repeat(10_000_000));
    let edited = |from: &str, to: &str| GOOD.replace(from, to).into_bytes();
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        (
            "context",
            edited("current-context: x", "current-context: prod"),
            "there is no context \"prod\" in it; it has x",
        ),
        (
            "user",
            edited("user: u}", "user: ghost}"),
            "there is no user \"ghost\" in it; it has u",
        ),
        (
            "cluster",
            edited("cluster: c,", "cluster: ghost,"),
            "there is no cluster \"ghost\" in it; it has c",
        ),
        (
            "ca-file",
            edited("server:", "certificate-authority: /nowhere/ca.crt, server:"),
            "the certificate authority /nowhere/ca.crt cannot be read",
        ),
        (
            "ca-junk",
            edited("server:", "certificate-authority-data: AAAA, server:"),
            "the certificate authority of cluster \"c\" holds no certificate",
        ),
        (
            "certificate-file",
            edited("token: t", "client-certificate: /nowhere/u.crt"),
            "the client certificate /nowhere/u.crt cannot be read",
        ),
        (
            "plugin",
            edited(
                "token: t",
                "exec: {apiVersion: client.authentication.k8s.io/v1, command: /nowhere/plugin, interactiveMode: Never}",
            ),
            "credential plugin \"/nowhere/plugin\"",
        ),
        ("url", edited("http://127.0.0.1:1", "no url"), "cluster url"),
        ("yaml", b"a: [1, 2".to_vec(), "it is no kubeconfig: line 1"),
        ("text", b"just text".to_vec(), "it is no kubeconfig: line 1"),
        ("empty", Vec::new(), "it has no current-context"),
        ("binary", vec![0, 159, 146, 150], "it is not text"),
        ("huge", huge.into_bytes(), "larger than 8 MiB"),
    ];
    for (name, bytes, says) in cases {
        let path = file(name, &bytes);
        for command in ["diagnose", "run"] {
            let output = hookwatch(&[command], &path);
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(64), "{command} {name}: {said}");
            let errors: Vec<&str> = said
                .lines()
                .filter(|line| line.starts_with("hookwatch: "))
                .collect();
            assert_eq!(errors.len(), 1, "{command} {name}: {said}");
            assert!(errors[0].contains(says), "{command} {name}: {said}");
            let next = errors[0].contains("correct it or name another by --kubeconfig")
                || errors[0].contains("correct the user's entry in the kubeconfig");
            assert!(next, "{command} {name}: {said}");
        }
    }
}

/// A server that does the same with every connection, for as long as the test's process lives.
fn server(with: impl Fn(TcpStream) + Send + Clone + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let with = with.clone();
            thread::spawn(move || with(stream));
        }
    });
    address
}

/// Answers every request by these bytes and ends the connection.
fn answering(head: &'static str, body: &'static str) -> SocketAddr {
    server(move |mut stream| {
        let mut request = Vec::new();
        let mut piece = [0; 4_096];
        while !request.windows(4).any(|end| end == b"\r\n\r\n") {
            match stream.read(&mut piece) {
                Ok(read) if read > 0 => request.extend_from_slice(&piece[..read]),
                _ => return,
            }
        }
        let length = body.len();
        let answer =
            format!("HTTP/1.1 {head}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
        // A client that went away is its own business.
        let _ = stream.write_all(answer.as_bytes());
    })
}

#[test]
fn what_stands_where_an_api_server_should_is_named_with_the_next_step_and_nothing_is_called_healthy() {
    const JSON: &str = "\r\ncontent-type: application/json";
    let json = |status: &str| -> &'static str { format!("{status} X{JSON}").leak() };
    let cases: Vec<(SocketAddr, &str)> = vec![
        (
            answering("200 OK\r\ncontent-type: text/html", "<html>Please log in</html>"),
            "something that is no API server's (<html>Please log in</html>)",
        ),
        (
            answering("302 X\r\nlocation: https://login.example/", ""),
            "redirects /version to https://login.example/",
        ),
        (
            answering(json("401"), r#"{"message":"Unauthorized"}"#),
            "does not accept hookwatch's credentials (HTTP 401: Unauthorized); renew them",
        ),
        (
            answering(json("403"), r#"{"message":"forbidden"}"#),
            "bind the ClusterRole system:public-info-viewer",
        ),
        (
            answering("429 X\r\nretry-after: 7", "slow down"),
            "(HTTP 429: slow down) and says Retry-After: 7; it is swamped",
        ),
        (
            answering("500 X", "boom"),
            "answers /version with HTTP 500: boom; look at the API server's own log",
        ),
        // Discovery that lists nothing: every path is there, and nothing is in it.
        (
            answering(
                json("200"),
                r#"{"gitVersion":"v1.99.0","resources":[],"metadata":{},"items":[]}"#,
            ),
            "(version v1.99.0) has no ValidatingWebhookConfigurations",
        ),
        (
            server(|stream| {
                let mut stream = stream;
                let mut piece = [0; 4_096];
                while stream.read(&mut piece).is_ok_and(|read| read > 0) {}
            }),
            "takes the connection and does not answer within 5 s",
        ),
        (server(drop), "takes the connection and ends it without an answer"),
    ];
    let looks = cases.into_iter().map(|(address, says)| {
        thread::spawn(move || {
            let kubeconfig = GOOD.replace("127.0.0.1:1", &address.to_string());
            let path = file(&address.port().to_string(), kubeconfig.as_bytes());
            (hookwatch(&["diagnose", "--for", "8s"], &path), address, says)
        })
    });
    for look in looks.collect::<Vec<_>>() {
        let (output, address, says) = look.join().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(2), "{says}: {said}");
        let mut lines = said.lines();
        assert_eq!(lines.next(), Some("COULD NOT TELL"), "{said}");
        let why = lines.next().unwrap();
        assert!(
            why.contains(says) && why.contains(&address.to_string()),
            "{says}: {said}"
        );
        // The one that takes everything takes writes, too.
        assert!(
            !said.contains("Writes flow;") || says.contains("v1.99.0"),
            "{says}: {said}"
        );
    }
}
