//! Stand-ins for the metrics of API servers: one process that serves a large body on several addresses.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::process::Command;

use anyhow::Context;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use hookwatch::lab::certs::Authority;
use http::header::CONTENT_TYPE;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::process::Process;
use crate::{exposition, metric_family, peers};

const PROTOBUF: &str =
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";

/// Serves metrics of this size (as text; it sends protobuf) until its input ends. Prints its port, its certificate
/// authority and the number of bytes it sends.
///
/// # Errors
/// When it cannot listen.
pub async fn serve(megabytes: usize) -> anyhow::Result<()> {
    let text = peers::grown(&exposition::scrape()?, megabytes * 1_000_000, false);
    let body = Bytes::from(metric_family::encode(&text));
    drop(text);
    let authority = Authority::new("benchmarks of API servers")?;
    // hookwatch verifies every replica under the name in the kubeconfig.
    let certificate = authority.issue_names(&["127.0.0.1"])?;
    let acceptor = TlsAcceptor::from(certificate.server_config()?);
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
    println!(
        "{}",
        json!({"port": listener.local_addr()?.port(), "ca": authority.pem(), "bytes": body.len()})
    );
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(connection(acceptor.clone(), stream, body.clone()));
        }
    });
    tokio::task::spawn_blocking(|| std::io::stdin().lines().last()).await?;
    Ok(())
}

async fn connection(acceptor: TlsAcceptor, stream: TcpStream, body: Bytes) {
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    let service = service_fn(|request: Request<Incoming>| {
        let metrics = request.uri().path() == "/metrics";
        let (kind, body) = if metrics {
            (PROTOBUF, body.clone())
        } else {
            (
                "text/plain",
                Bytes::from_static(b"[+]ping ok\nreadyz check passed\n"),
            )
        };
        let answer = Response::builder()
            .header(CONTENT_TYPE, kind)
            .body(Full::new(body));
        async { Ok::<_, Infallible>(answer.unwrap_or_default()) }
    });
    // A client that disconnects is no error.
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

/// The process that serves the metrics.
pub struct ApiServers {
    _process: Process,
    /// Size of one body as it is sent.
    pub bytes: u64,
}

/// Starts the process, and replaces the lab's own replicas by `count` addresses of it. Returns it with a kubeconfig that
/// trusts it.
///
/// # Errors
/// When the process does not start, or the lab refuses.
pub async fn start(
    client: &Client,
    kubeconfig: &str,
    count: u8,
    megabytes: usize,
) -> anyhow::Result<(ApiServers, String)> {
    let mut command = Command::new(std::env::current_exe()?);
    let mut process = Process::start(command.args(["--serve-metrics", &megabytes.to_string()]))?;
    let said: Value = serde_json::from_str(&process.line()?)?;
    let addresses = (1..=count).map(|nth| Ipv4Addr::new(127, 0, 9, nth));
    let endpoints = addresses.map(|address| json!({"addresses": [address], "conditions": {"ready": true}}));
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), "default");
    let patch = json!({
        "endpoints": endpoints.collect::<Vec<_>>(),
        "ports": [{"name": "https", "port": said["port"], "protocol": "TCP"}],
    });
    slices
        .patch("kubernetes", &PatchParams::default(), &Patch::Merge(patch))
        .await?;
    let ca = said["ca"].as_str().context("an authority")?;
    let servers = ApiServers {
        _process: process,
        bytes: said["bytes"].as_u64().context("a size")?,
    };
    Ok((servers, trusting(kubeconfig, ca)?))
}

/// The kubeconfig with one more certificate authority.
fn trusting(kubeconfig: &str, ca: &str) -> anyhow::Result<String> {
    const KEY: &str = "certificate-authority-data: ";
    let (before, rest) = kubeconfig
        .split_once(KEY)
        .context("an authority in the kubeconfig")?;
    let (known, after) = rest.split_once('\n').context("more of the kubeconfig")?;
    let mut pem = BASE64_STANDARD.decode(known)?;
    pem.extend_from_slice(ca.as_bytes());
    Ok(format!("{before}{KEY}{}\n{after}", BASE64_STANDARD.encode(pem)))
}
