//! `status --cluster`: through a port-forward to the Pod, with an API server that has nothing else.

use std::net::SocketAddr;
use std::process::Command;

use futures::{SinkExt, StreamExt};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};

use super::screens::incident;
use super::served::Served;
use crate::cli::told;

fn pod(name: &str, phase: &str, ready: bool, ports: serde_json::Value) -> serde_json::Value {
    json!({
        "metadata": {"name": name, "namespace": "hookwatch"},
        "spec": {"containers": [{"name": "hookwatch", "ports": ports}]},
        "status": {"phase": phase, "conditions": [
            {"type": "Ready", "status": if ready { "True" } else { "False" }, "lastTransitionTime": null},
        ]},
    })
}

/// An API server that lists these Pods and forwards the port of the one called `good` to the daemon.
async fn api_server(pods: Vec<serde_json::Value>, daemon: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let list = json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": pods}).to_string();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(answer(stream, list.clone(), daemon));
        }
    });
    address
}

async fn answer(mut stream: TcpStream, list: String, daemon: SocketAddr) {
    let mut head = [0; 4_096];
    let length = stream.peek(&mut head).await.unwrap();
    let line = String::from_utf8_lossy(&head[..length])
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned();
    if line.contains("/pods/good/portforward?") {
        forward(stream, daemon).await;
        return;
    }
    let (status, body) = if line.contains("/api/v1/namespaces/hookwatch/pods?") {
        ("200 OK", list)
    } else {
        (
            "404 Not Found",
            json!({"kind": "Status", "message": "pod is sick", "code": 404}).to_string(),
        )
    };
    let _ = stream.read(&mut head).await;
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(answer.as_bytes()).await.unwrap();
}

#[allow(clippy::result_large_err, reason = "the type is the library's")]
async fn forward(stream: TcpStream, daemon: SocketAddr) {
    let accept = |request: &Request, mut response: Response| {
        assert!(
            request.uri().query().unwrap().contains("ports=9443"),
            "{}",
            request.uri()
        );
        response
            .headers_mut()
            .insert("sec-websocket-protocol", "v4.channel.k8s.io".parse().unwrap());
        Ok(response)
    };
    let socket = tokio_tungstenite::accept_hdr_async(stream, accept).await.unwrap();
    let (mut to_client, mut from_client) = socket.split();
    for channel in [0, 1] {
        let first = [&[channel][..], &9_443_u16.to_le_bytes()].concat();
        to_client.send(Message::binary(first)).await.unwrap();
    }
    let (mut from_daemon, mut to_daemon) = TcpStream::connect(daemon).await.unwrap().into_split();
    let back = async {
        let mut bytes = [0; 16_384];
        while let Ok(read @ 1..) = from_daemon.read(&mut bytes).await {
            let frame = [&[0][..], &bytes[..read]].concat();
            to_client.send(Message::binary(frame)).await.unwrap();
        }
    };
    let there = async {
        while let Some(Ok(message)) = from_client.next().await {
            if let Message::Binary(bytes) = message
                && to_daemon.write_all(&bytes[1..]).await.is_err()
            {
                return;
            }
        }
    };
    tokio::select! {
        () = back => {}
        () = there => {}
    }
}

async fn status(api_server: SocketAddr, more: &'static [&'static str]) -> (i32, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("config");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters: [{{name: c, cluster: {{server: 'http://{api_server}'}}}}]\n\
         contexts: [{{name: x, context: {{cluster: c}}}}]\n"
    );
    std::fs::write(&kubeconfig, text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_hookwatch"));
    command
        .env_clear()
        .env("HOME", "/nowhere")
        .env("KUBECONFIG", kubeconfig);
    command.args(["status", "--cluster"]).args(more);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap());
    told(output.await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_pod_that_can_be_reached_is_asked_at_the_port_that_has_the_name() {
    let served = tokio::task::spawn_blocking(|| Served::start(incident()))
        .await
        .unwrap();
    let named = json!([{"name": "metrics", "containerPort": 9881}, {"name": "http", "containerPort": 9443}]);
    let pods = vec![
        pod("starting", "Pending", false, json!([])),
        pod("good", "Running", false, named),
        pod("sick", "Running", true, json!([])),
    ];
    let api_server = api_server(pods, served.address).await;
    let (code, said, complained) = status(api_server, &[]).await;
    assert_eq!(code, 1, "{said}{complained}");
    assert!(said.starts_with("A WEBHOOK IS FAILING\n"), "{said}");
    assert!(
        said.contains(&format!(
            "a Pod in namespace hookwatch through http://{api_server}"
        )),
        "{said}"
    );
    tokio::task::spawn_blocking(move || drop(served)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_pod_that_can_be_reached_it_says_which_and_why() {
    let nobody = "127.0.0.1:1".parse().unwrap();
    let api = api_server(vec![pod("starting", "Pending", false, json!([]))], nobody).await;
    let (code, _, complained) = status(api, &[]).await;
    assert_eq!(code, 2);
    assert!(
        complained.contains(
            "no running Pod with the label app.kubernetes.io/name=hookwatch in namespace hookwatch"
        ),
        "{complained}"
    );
    let (_, _, complained) = status(api, &["--namespace", "elsewhere"]).await;
    assert!(
        complained
            .contains("the Pods of hookwatch in namespace elsewhere cannot be listed: HTTP 404: pod is sick"),
        "{complained}"
    );
    let api = api_server(vec![pod("sick", "Running", true, json!([]))], nobody).await;
    let (code, _, complained) = status(api, &[]).await;
    assert_eq!(code, 2);
    assert!(
        complained.contains("no port-forward to Pod hookwatch/sick: pod is sick"),
        "{complained}"
    );
    assert!(complained.contains("`hookwatch diagnose`"), "{complained}");
}
