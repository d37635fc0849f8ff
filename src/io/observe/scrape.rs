//! Scrapes: reading the metrics of every API-server replica.
//!
//! Each replica counts for itself, and behind a load balancer every request may reach another one. So the replicas are asked by
//! the addresses that the Service `default/kubernetes` is made of, where these can be reached; on many managed control planes
//! they cannot, and then only the configured server is asked. That one, and any address behind which several processes were
//! seen, gets a new connection each time, and is asked as often as there are replicas behind it: a pooled connection would
//! always reach the same replica.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap};
use http_body_util::BodyExt;
use kube::Client;

use super::ReadingLimits;
use crate::domain::observe::snapshot::{Complaints, Scrape, ScrapeFailure, ScrapeFailureReason, Snapshot};
use crate::domain::text::{NOT_ACCEPTED, bounded};
use crate::io::client::Connection;
use crate::io::client::request::{ApiRequest, JSON, RequestError};
use crate::io::error::with_causes;
use crate::io::{Clock, lock};

mod reader;
mod readyz;
mod sniff;
mod targets;

use reader::{BodyReader, Format, UnusableBody};
use targets::Targets;

/// How often the caller should call [`Scraper::refresh`].
pub const REFRESH_EVERY: Duration = Duration::from_secs(30);
/// The `Accept` header. The binary format has less than a quarter of the bytes of the text and costs the API server two thirds of
/// the CPU (1.36). A server that cannot write it answers in text, which every implementation can write.
const FORMATS: &str = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
                       encoding=delimited, text/plain;version=0.0.4;q=0.5";
/// Longest wait for the list of replicas.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(10);
/// Most bytes of the list of replicas.
const MAX_REPLICAS_BODY: usize = 4 * 1024 * 1024;
/// The path of the list of replicas: the EndpointSlices of the Service `default/kubernetes`.
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices\
                                 ?labelSelector=kubernetes.io%2Fservice-name%3Dkubernetes&limit=50";

/// Where to scrape.
#[derive(Clone)]
pub struct ScrapeTarget {
    /// What it is called in metrics and messages: host and port.
    pub name: String,
    /// How often to ask it in one round, so that every process behind it can be met; at least once.
    pub visits: usize,
    /// Whether every connection is known to lead to one process, so that one can be kept.
    pub is_kept: bool,
    /// The replica's own address; `None` for the configured server.
    address: Option<SocketAddr>,
    client: Client,
}

impl ScrapeTarget {
    fn get(&self, path: &str, accept: &str) -> ApiRequest<'_> {
        let request = ApiRequest::get(&self.client, path, accept);
        if self.is_kept {
            request
        } else {
            request.on_new_connection()
        }
    }
}

/// The addresses of the API servers, from the EndpointSlices in which they register themselves.
///
/// # Errors
/// Why the list cannot be read within `limit`.
pub(in crate::io) async fn addresses(
    connection: &Connection,
    limit: Duration,
) -> Result<Vec<SocketAddr>, String> {
    let slices = ApiRequest::get(connection.calls(), SLICES, JSON);
    let slices = slices.bytes(limit, MAX_REPLICAS_BODY).await;
    let slices = slices.map_err(|why| bounded(&why.to_string()))?;
    targets::replicas(&slices).map_err(|error| with_causes(&error))
}

/// Scrapes the API server's replicas.
pub struct Scraper {
    connection: Connection,
    clock: Clock,
    limits: ReadingLimits,
    targets: Mutex<Targets>,
}

impl Scraper {
    /// A scraper that knows the configured server only, until [`refresh`](Self::refresh) succeeds.
    pub fn new(connection: Connection, clock: Clock, limits: ReadingLimits) -> Self {
        let server = ScrapeTarget {
            name: connection.server_name(),
            visits: 1,
            is_kept: false,
            address: None,
            // This client pools no connection, so that no request is sent over an old one.
            client: connection.canaries().clone(),
        };
        let targets = Targets::new(server, connection.server_address());
        Self {
            connection,
            clock,
            limits,
            targets: Mutex::new(targets),
        }
    }

    /// The targets to scrape now: at least one, and no replica twice as far as that is known. With `wide` no connection is kept,
    /// and where no list gives the number of processes, one more visit may find another one.
    pub fn targets(&self, wide: bool) -> Vec<ScrapeTarget> {
        self.with_targets(|targets| targets.current((self.clock)(), wide))
    }

    /// Whether a single API server process has been seen for a minute, and no other.
    pub fn is_one_process(&self) -> bool {
        self.with_targets(|targets| targets.is_one_process((self.clock)()))
    }

    /// Rereads the list of replicas.
    ///
    /// # Errors
    /// When the list cannot be read; the previous one stays. When a replica cannot be asked at its own address; the others
    /// are.
    pub async fn refresh(&self) -> Result<(), String> {
        let addresses = addresses(&self.connection, REFRESH_TIMEOUT).await;
        let addresses = addresses
            .map_err(|why| format!("cannot read the EndpointSlices of default/kubernetes: {why}"))?;
        let unknown = self.with_targets(|targets| targets.keep_only(&addresses));
        let mut left_out = Ok(());
        for address in unknown {
            let client = match self.connection.direct(address).await {
                Ok(client) => client,
                Err(why) => {
                    left_out = Err(why.to_string());
                    continue;
                }
            };
            let target = ScrapeTarget {
                name: address.to_string(),
                visits: 1,
                is_kept: true,
                address: Some(address),
                client,
            };
            self.with_targets(|targets| targets.add(address, target));
        }
        left_out
    }

    /// Scrapes one target.
    ///
    /// A replica that cannot be reached, or answers with something other than metrics, is not offered by
    /// [`targets`](Self::targets) for a minute.
    ///
    /// # Errors
    /// Every failure, with its reason.
    pub async fn scrape(&self, target: &ScrapeTarget) -> Result<Scrape, ScrapeFailure> {
        let started = (self.clock)();
        let read = tokio::time::timeout(self.limits.timeout, self.read(target)).await;
        let at = (self.clock)();
        let read = read.unwrap_or_else(|_| {
            let timeout = self.limits.timeout;
            Err(FailedScrape(
                ScrapeFailureReason::TimedOut,
                format!("not back within {timeout:?}"),
            ))
        });
        if let Some(address) = target.address {
            match &read {
                Ok(_) => self.with_targets(|targets| targets.reached(address)),
                Err(FailedScrape(ScrapeFailureReason::Unreachable | ScrapeFailureReason::NotMetrics, _)) => {
                    self.with_targets(|targets| targets.out_of_reach(address, at));
                }
                // It answers, or is merely slow: no reason for the configured server to stand in.
                Err(_) => {}
            }
        }
        if let Ok((_, (snapshot, _))) = &read
            && let Some(started) = snapshot.process_start
        {
            self.with_targets(|targets| targets.met(target.address, started, at));
        }
        match read {
            Ok((bytes, (snapshot, complaints))) => Ok(Scrape {
                target: target.name.clone(),
                at,
                took: at.since(started),
                bytes,
                snapshot,
                complaints,
            }),
            Err(FailedScrape(reason, why)) => Err(ScrapeFailure {
                target: target.name.clone(),
                at,
                reason,
                why,
            }),
        }
    }

    async fn read(&self, target: &ScrapeTarget) -> Result<(u64, (Snapshot, Complaints)), FailedScrape> {
        use ScrapeFailureReason as Reason;

        let answer = target.get("/metrics", FORMATS).open().await;
        let answer = answer.map_err(|why| match why {
            RequestError::Refused { status, message, .. } => refused(status, &message),
            why => FailedScrape(Reason::Unreachable, why.to_string()),
        })?;
        let format = format_of(answer.headers()).map_err(|why| FailedScrape(Reason::NotMetrics, why))?;
        let started = process_start(answer.headers());

        let mut body = answer.into_body();
        let (mut bytes, mut reader) = (0_u64, BodyReader::new(format));
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                FailedScrape(
                    Reason::Truncated,
                    format!("broke off after {bytes} bytes: {}", with_causes(&error)),
                )
            })?;
            let Ok(chunk) = frame.into_data() else { continue };
            bytes += chunk.len() as u64;
            if bytes > self.limits.max_bytes {
                let why = format!("larger than the {} bytes allowed", self.limits.max_bytes);
                return Err(FailedScrape(Reason::Truncated, why));
            }
            reader
                .feed(&chunk)
                .map_err(|why| FailedScrape(Reason::NotMetrics, why))?;
        }
        let mut read = reader.finish().map_err(|unfit| match unfit {
            UnusableBody::NotMetrics(why) => FailedScrape(Reason::NotMetrics, why),
            UnusableBody::CutOff(within) => FailedScrape(
                Reason::Truncated,
                format!("broke off after {bytes} bytes, within a {within}"),
            ),
        })?;
        read.0.process_start = read.0.process_start.or(started);
        Ok((bytes, read))
    }

    fn with_targets<T>(&self, work: impl FnOnce(&mut Targets) -> T) -> T {
        work(&mut lock(&self.targets))
    }
}

struct FailedScrape(ScrapeFailureReason, String);

fn refused(status: u16, message: &str) -> FailedScrape {
    let why = match status {
        401 => format!("HTTP 401: {message}; {NOT_ACCEPTED}"),
        403 => format!("HTTP 403: {message}; grant get on the nonResourceURL \"/metrics\""),
        429 | 500..=599 => format!("HTTP {status}: {message}"),
        _ => format!("HTTP {status} instead of metrics: {message}"),
    };
    FailedScrape(ScrapeFailureReason::of_status(status), bounded(&why))
}

/// The format that the headers promise; `None` when they promise none.
fn format_of(headers: &HeaderMap) -> Result<Option<Format>, String> {
    let value = |name| headers.get(name).and_then(|value| value.to_str().ok());
    match value(CONTENT_ENCODING) {
        None | Some("" | "identity") => {}
        Some(encoding) => return Err(format!("encoded as {encoding:?} although that was not asked for")),
    }
    // The API server always sends a type, a proxy in between may have lost it; the content decides then.
    value(CONTENT_TYPE)
        .map(|kind| {
            Format::of(kind).ok_or_else(|| bounded(&format!("content of type {kind:?} instead of metrics")))
        })
        .transpose()
}

/// When the process began, in Unix seconds, from the header that Prometheus's handler sets. The metric of the same meaning may have
/// been filtered out.
fn process_start(headers: &HeaderMap) -> Option<f64> {
    let value = headers.get("process-start-time-unix")?.to_str().ok()?;
    value.parse().ok().filter(|seconds: &f64| seconds.is_finite())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use super::*;
    use crate::domain::time::Time;
    use crate::io::testing::metric_family::encode;
    use crate::io::testing::{ReceivedRequest, TestReply, TestServer, clock, soon};

    const METRICS: &str = "# HELP process_start_time_seconds x\n# TYPE process_start_time_seconds gauge\n\
                           process_start_time_seconds 1.5e+09\n# TYPE apiserver_request_total counter\n";
    const SAMPLES: &str = "apiserver_request_total{code=\"201\",dry_run=\"\",verb=\"POST\"} 3\nprocess_start_time_seconds 1.5e9\n";
    const PROTOBUF: &str = "content-type: application/vnd.google.protobuf; \
                            proto=io.prometheus.client.MetricFamily; encoding=delimited; escaping=underscores";
    const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

    fn limits() -> ReadingLimits {
        ReadingLimits {
            max_bytes: 4 * 1024 * 1024,
            timeout: Duration::from_secs(20),
        }
    }

    async fn scrape(
        limits: ReadingLimits,
        handler: impl Fn(&ReceivedRequest) -> TestReply + Send + Sync + 'static,
    ) -> Result<Scrape, ScrapeFailure> {
        let server = TestServer::start(handler).await;
        let scraper = Scraper::new(server.connection().await, clock(), limits);
        let targets = scraper.targets(false);
        assert_eq!(targets.len(), 1);
        let result = soon(scraper.scrape(&targets[0])).await;
        let asked = server.asked();
        assert_eq!(asked[0].target, "/metrics");
        let accept = &asked[0].headers["accept"];
        assert!(accept.starts_with("application/vnd.google.protobuf;"), "{accept}");
        assert!(
            accept.ends_with("encoding=delimited, text/plain;version=0.0.4;q=0.5"),
            "{accept}"
        );
        assert!(!asked[0].headers.contains_key("accept-encoding"));
        result
    }

    #[tokio::test]
    async fn an_exposition_is_read() {
        let scrape = scrape(limits(), |_| TestReply::Whole(200, TEXT, METRICS.to_owned()))
            .await
            .expect("metrics");
        assert_eq!(scrape.bytes, METRICS.len() as u64);
        assert_eq!(scrape.snapshot.process_start, Some(1.5e9));
        assert!(scrape.target.starts_with("127.0.0.1:"));
    }

    #[tokio::test]
    async fn the_binary_format_is_read_with_and_without_its_type() {
        for header in [PROTOBUF, "x-proxy: lost it"] {
            let body = encode(SAMPLES);
            let length = body.len() as u64;
            let reply = binary(header, &body);
            let scrape = scrape(limits(), move |_| TestReply::Raw(reply.clone()))
                .await
                .expect("metrics");
            assert_eq!(scrape.bytes, length);
            assert_eq!(scrape.snapshot.process_start, Some(1.5e9));
            assert_eq!(scrape.snapshot.write_results.ok, 3.0);
            assert_eq!(scrape.complaints, Complaints::default());
        }
    }

    #[tokio::test]
    async fn every_failure_of_the_binary_format_has_its_reason() {
        use ScrapeFailureReason as Reason;
        let whole = encode(SAMPLES);
        for (what, body, reason, says) in [
            (
                "cut off",
                &whole[..whole.len() - 1],
                Reason::Truncated,
                "within a message",
            ),
            ("nothing", b"", Reason::NotMetrics, "empty"),
            (
                "another server's",
                &encode("etcd_request_duration_seconds_sum 1\n"),
                Reason::NotMetrics,
                "none of an API server",
            ),
            (
                "text",
                METRICS.as_bytes(),
                Reason::NotMetrics,
                "without any metric family",
            ),
            ("noise", &[0xff; 100], Reason::NotMetrics, "no sequence"),
        ] {
            let reply = binary(PROTOBUF, body);
            let failure = scrape(limits(), move |_| TestReply::Raw(reply.clone()))
                .await
                .expect_err(what);
            assert_eq!(failure.reason, reason, "{what}: {}", failure.why);
            assert!(failure.why.contains(says), "{what}: {}", failure.why);
        }
    }

    fn binary(header: &str, body: &[u8]) -> Vec<u8> {
        let length = body.len();
        let head =
            format!("HTTP/1.1 200 X\r\nconnection: close\r\ncontent-length: {length}\r\n{header}\r\n\r\n");
        [head.as_bytes(), body].concat()
    }

    /// An answer as it goes over the wire, of which nothing is corrected.
    fn raw(status: u16, headers: &str, body: &str) -> String {
        format!("HTTP/1.1 {status} X\r\nconnection: close\r\n{headers}\r\n\r\n{body}")
    }

    fn text(status: u16, body: &str) -> String {
        raw(status, &format!("content-type: {TEXT}"), body)
    }

    #[tokio::test]
    async fn every_failure_has_its_reason() {
        use ScrapeFailureReason as Reason;
        let rbac = r#"{"message": "forbidden: User \"u\" cannot get path \"/metrics\""}"#;
        let chunked = "transfer-encoding: chunked";
        for (what, answer, reason, says) in [
            ("401", text(401, "Unauthorized"), Reason::Forbidden, "credentials"),
            (
                "403",
                text(403, rbac),
                Reason::Forbidden,
                "grant get on the nonResourceURL",
            ),
            ("429", text(429, "Too many requests"), Reason::Refused, "429"),
            ("500", text(500, METRICS), Reason::Refused, "500"),
            ("404", text(404, "no"), Reason::NotMetrics, "404"),
            (
                "a redirect",
                raw(302, "location: /login", ""),
                Reason::NotMetrics,
                "302",
            ),
            (
                "a page",
                raw(200, "content-type: text/html", METRICS),
                Reason::NotMetrics,
                "text/html",
            ),
            (
                "a disguised page",
                text(200, "<html>"),
                Reason::NotMetrics,
                "HTML",
            ),
            (
                "gzip",
                raw(200, "content-encoding: gzip", METRICS),
                Reason::NotMetrics,
                "gzip",
            ),
            (
                "the metrics of something else",
                text(200, "# TYPE go_x gauge\ngo_x 1\n"),
                Reason::NotMetrics,
                "none of an API server",
            ),
            ("nothing", text(200, ""), Reason::NotMetrics, "empty"),
            (
                "a body shorter than announced",
                raw(200, "content-length: 9999", METRICS),
                Reason::Truncated,
                "broke off",
            ),
            (
                "a chunked body without its end",
                raw(200, chunked, "8\r\n# TYPE a\r\n"),
                Reason::Truncated,
                "broke off",
            ),
            (
                "a last line without its end",
                text(200, &format!("{METRICS}apiserver_request_total 1")),
                Reason::Truncated,
                "within a line",
            ),
            (
                "no HTTP",
                "hello\r\n\r\n".to_owned(),
                Reason::Unreachable,
                "no answer",
            ),
        ] {
            let failure = scrape(limits(), move |_| TestReply::Raw(answer.clone().into()))
                .await
                .expect_err(what);
            assert_eq!(failure.reason, reason, "{what}: {}", failure.why);
            assert!(failure.why.contains(says), "{what}: {}", failure.why);
        }
    }

    #[tokio::test]
    async fn an_endless_body_ends_at_the_bound() {
        let metrics = METRICS.as_bytes();
        let failure = scrape(limits(), move |_| TestReply::Endless(TEXT, metrics.to_vec()))
            .await
            .expect_err("endless");
        assert_eq!(failure.reason, ScrapeFailureReason::Truncated);
        assert!(failure.why.contains("4194304 bytes allowed"), "{}", failure.why);
        let failure = scrape(limits(), |_| TestReply::Endless(TEXT, vec![b'x'; 4096]))
            .await
            .expect_err("endless");
        assert_eq!(failure.reason, ScrapeFailureReason::NotMetrics);
    }

    #[tokio::test]
    async fn a_server_that_hangs_is_given_up() {
        let short = ReadingLimits {
            timeout: Duration::from_millis(100),
            ..limits()
        };
        let failure = scrape(short, |_| TestReply::Hang).await.expect_err("no answer");
        assert_eq!(failure.reason, ScrapeFailureReason::TimedOut);
    }

    #[tokio::test]
    async fn behind_one_address_every_scrape_dials_and_the_header_tells_processes_apart() {
        let answers = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&answers);
        let server = TestServer::start(move |_| {
            let started = 1_000 + count.fetch_add(1, Ordering::Relaxed) % 2;
            let headers = format!("content-type: {TEXT}\r\nprocess-start-time-unix: {started}");
            let body = "# TYPE apiserver_request_total counter\napiserver_request_total{verb=\"POST\"} 3\n";
            TestReply::Raw(raw(200, &headers, body).into())
        })
        .await;
        let scraper = Scraper::new(server.connection().await, clock(), limits());
        let target = scraper.targets(false).remove(0);
        assert_eq!([false, true].map(|wide| scraper.targets(wide)[0].visits), [1, 2]);
        let mut started = Vec::new();
        for _ in 0..2 {
            let scrape = soon(scraper.scrape(&target)).await.expect("metrics");
            started.extend(scrape.snapshot.process_start);
        }
        assert_eq!(started, [1_000.0, 1_001.0]);
        assert_eq!(scraper.targets(false)[0].visits, 2, "one for each that was met");
        for asked in server.asked() {
            assert_eq!(asked.headers["connection"], "close");
        }
    }

    fn slices(addresses: &[SocketAddr]) -> String {
        let items: Vec<_> = addresses
            .iter()
            .map(|address| {
                serde_json::json!({
                    "metadata": {"name": "kubernetes", "labels": {"kubernetes.io/service-name": "kubernetes"}},
                    "addressType": "IPv4",
                    "ports": [{"name": "https", "port": address.port(), "protocol": "TCP"}],
                    "endpoints": [{"addresses": [address.ip().to_string()], "conditions": {"ready": true}},
                                  {"addresses": ["10.0.0.9"], "conditions": {"ready": false}}],
                })
            })
            .collect();
        serde_json::json!({"metadata": {}, "items": items}).to_string()
    }

    fn names(scraper: &Scraper) -> Vec<(String, bool)> {
        let targets = scraper.targets(false);
        targets
            .into_iter()
            .map(|target| (target.name.clone(), target.address.is_some()))
            .collect()
    }

    #[tokio::test]
    async fn replicas_are_asked_one_by_one_and_the_server_stands_in_for_those_out_of_reach() {
        let replica = TestServer::start(|_| TestReply::Whole(200, TEXT, METRICS.to_owned())).await;
        let gone = TestServer::start(|_| TestReply::Hang).await;
        let list = slices(&[replica.address, gone.address]);
        let server = TestServer::start(move |asked| {
            assert!(asked.target.starts_with(
                "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io%2F"
            ));
            TestReply::json(200, &list)
        })
        .await;
        let now = Arc::new(AtomicU64::new(1_000));
        let ticking = Arc::clone(&now);
        let scraper = Scraper::new(
            server.connection().await,
            Arc::new(move || Time::from_unix_millis(ticking.load(Ordering::Relaxed))),
            limits(),
        );
        let direct = |server: &TestServer| (server.address.to_string(), true);
        let configured = (server.address.to_string(), false);
        let (ok, lost) = (direct(&replica), direct(&gone));
        assert_eq!(names(&scraper), std::slice::from_ref(&configured));

        soon(scraper.refresh()).await.expect("a list");
        let mut both = vec![ok.clone(), lost.clone()];
        both.sort();
        let mut found = names(&scraper);
        found.sort();
        assert_eq!(found, both);

        gone.stop().await;
        for target in scraper.targets(false) {
            let result = soon(scraper.scrape(&target)).await;
            assert_eq!(result.is_ok(), target.name == ok.0);
        }
        assert_eq!(names(&scraper), [ok.clone(), configured.clone()]);
        let visits = scraper.targets(true).into_iter().map(|target| target.visits);
        assert_eq!(visits.collect::<Vec<_>>(), [1, 1], "one replica is out of reach");
        soon(scraper.refresh()).await.expect("a list");
        assert_eq!(names(&scraper), [ok, configured], "a refresh forgets nothing");

        now.fetch_add(60_000, Ordering::Relaxed);
        let mut found = names(&scraper);
        found.sort();
        assert_eq!(found, both, "tried again after a minute");
    }

    #[tokio::test]
    async fn credentials_go_to_no_listed_address_whose_certificate_is_not_verified() {
        let other = TestServer::start_tls("other.example", |_| TestReply::Hang).await;
        let list = slices(&[other.address]);
        let list = move |_: &ReceivedRequest| TestReply::json(200, &list);
        let encrypted = TestServer::start_tls("127.0.0.1", list.clone()).await;
        let plain = TestServer::start(list).await;
        for (server, accept_invalid_certs) in [(&encrypted, true), (&plain, false)] {
            let mut config = server.config("127.0.0.1");
            config.accept_invalid_certs = accept_invalid_certs;
            config.auth_info.token = Some("secret".to_owned().into());
            let connection = Connection::from_config(config).await.expect("clients");
            let scraper = Scraper::new(connection, clock(), limits());
            let why = soon(scraper.refresh()).await.expect_err("one is left out");
            assert!(why.contains("insecure-skip-tls-verify"), "{why}");
            assert_eq!(names(&scraper), [(server.address.to_string(), false)]);
        }
        assert!(other.asked().is_empty());
    }

    #[tokio::test]
    async fn a_balancer_in_the_list_of_replicas_is_found_out_and_all_behind_it_are_met() {
        let balances = Arc::new(AtomicBool::new(false));
        let (answers, now) = (AtomicU64::new(0), Arc::new(AtomicU64::new(1_000)));
        let address = Arc::new(std::sync::OnceLock::<SocketAddr>::new());
        let (own, several, ticking) = (Arc::clone(&address), Arc::clone(&balances), Arc::clone(&now));
        let server = TestServer::start(move |asked| {
            if asked.target != "/metrics" {
                return TestReply::json(200, slices(&[*own.get().expect("set below")]));
            }
            let other = several.load(Ordering::Relaxed) && answers.fetch_add(1, Ordering::Relaxed) % 2 == 0;
            let headers = format!(
                "content-type: {TEXT}\r\nprocess-start-time-unix: {}",
                1_000 + u32::from(other)
            );
            let body = "# TYPE apiserver_request_total counter\napiserver_request_total{verb=\"POST\"} 3\n";
            TestReply::Raw(raw(200, &headers, body).into())
        })
        .await;
        address.set(server.address).expect("set once");
        let clock = Arc::new(move || Time::from_unix_millis(ticking.load(Ordering::Relaxed)));
        let scraper = Scraper::new(server.connection().await, clock, limits());
        soon(scraper.refresh()).await.expect("a list");
        let round = async |wide| {
            for target in scraper.targets(wide) {
                assert_eq!(target.name, server.address.to_string());
                for _ in 0..target.visits {
                    soon(scraper.scrape(&target)).await.expect("metrics");
                }
            }
            now.fetch_add(30_000, Ordering::Relaxed);
            let target = scraper.targets(false).remove(0);
            (target.visits, target.is_kept, scraper.is_one_process())
        };
        assert_eq!(round(true).await, (1, true, false), "not for long enough");
        round(true).await;
        assert_eq!(round(false).await, (1, true, true));
        let last = server.asked().pop().expect("scraped");
        assert!(
            !last.headers.contains_key("connection"),
            "it is kept between wide looks"
        );

        balances.store(true, Ordering::Relaxed);
        round(true).await;
        assert_eq!(round(true).await, (2, false, false));
        let last = server.asked().pop().expect("scraped");
        assert_eq!(last.headers["connection"], "close");
        assert_eq!(scraper.targets(true)[0].visits, 3, "there may be more");
    }

    #[tokio::test]
    async fn a_configured_server_that_is_a_replica_is_asked_once() {
        let refuses = Arc::new(AtomicBool::new(false));
        let address = Arc::new(std::sync::OnceLock::<SocketAddr>::new());
        let (own, no) = (Arc::clone(&address), Arc::clone(&refuses));
        let server = TestServer::start(move |_| {
            if no.load(Ordering::Relaxed) {
                return TestReply::status(403, "endpointslices is forbidden");
            }
            TestReply::json(200, slices(&[*own.get().expect("set below")]))
        })
        .await;
        address.set(server.address).expect("set once");
        let scraper = Scraper::new(server.connection().await, clock(), limits());
        soon(scraper.refresh()).await.expect("a list");
        let expected = [(server.address.to_string(), true)];
        assert_eq!(names(&scraper), expected);

        refuses.store(true, Ordering::Relaxed);
        let error = soon(scraper.refresh()).await.expect_err("403").to_string();
        assert!(
            error.contains("403") && error.contains("default/kubernetes"),
            "{error}"
        );
        assert_eq!(names(&scraper), expected, "what was known stays");
    }
}
