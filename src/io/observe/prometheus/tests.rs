use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use serde_json::json;

use super::*;
use crate::io::endpoint::Auth;
use crate::io::testing::{ReceivedRequest, TestReply, TestServer, soon};

/// 100 s, by hookwatch's clock.
const OURS: u64 = 100_000;
const LIMITS: ReadingLimits = ReadingLimits {
    max_bytes: 1 << 20,
    timeout: Duration::from_secs(20),
};

fn prometheus(server: &TestServer, limits: ReadingLimits) -> Prometheus {
    let target = EndpointTarget {
        url: format!("http://{}/prefix/", server.address)
            .parse()
            .expect("an address"),
        ca_file: None,
        client_certificate: None,
        auth: Auth::None,
    };
    let clock: Clock = Arc::new(|| Time::from_unix_millis(OURS));
    Prometheus::new(target, "job=\"apiserver\"".to_owned(), limits, clock)
}

fn is_clock(asked: &ReceivedRequest) -> bool {
    asked.target.contains("query=time%28%29")
}

fn time(seconds: f64) -> TestReply {
    let result = json!([seconds, seconds.to_string()]);
    TestReply::json(
        200,
        json!({"status": "success", "data": {"resultType": "scalar", "result": result}}),
    )
}

fn counted(samples: &[(f64, &str)]) -> String {
    let metric =
        json!({"__name__": "apiserver_request_total", "instance": "a:6443", "verb": "POST", "code": "201"});
    let result = json!([{"metric": metric, "values": samples}]);
    json!({"status": "success", "data": {"resultType": "matrix", "result": result}}).to_string()
}

/// A server with the right time that answers every other query with this.
async fn fails(
    limits: ReadingLimits,
    reply: impl Fn() -> TestReply + Send + Sync + 'static,
) -> ScrapeFailure {
    let server = TestServer::start(move |asked| if is_clock(asked) { time(100.0) } else { reply() }).await;
    let failure = soon(prometheus(&server, limits).read())
        .await
        .expect_err("it is bad");
    assert_eq!(failure.target, format!("http://{}/prefix", server.address));
    assert!(
        failure.why.starts_with(&failure.target) && failure.why.len() < 1_100,
        "{}",
        failure.why
    );
    failure
}

#[tokio::test]
async fn what_is_stored_is_read_by_our_clock_and_only_what_is_new_the_next_time() {
    let shift = Arc::new(AtomicI64::new(0));
    let shifted = Arc::clone(&shift);
    let server = TestServer::start(move |asked| {
        // Three hours ahead, and some milliseconds later at the second reading.
        if is_clock(asked) {
            return time(10_900.0 + shifted.load(Ordering::Relaxed) as f64 / 1_000.0);
        }
        TestReply::json(200, counted(&[(10_840.0, "3"), (10_870.0, "5")]))
    })
    .await;
    let mut prometheus = prometheus(&server, LIMITS);
    let first = soon(prometheus.read()).await.expect("a reading");
    shift.store(700, Ordering::Relaxed);
    let second = soon(prometheus.read()).await.expect("a reading");
    let at = |reading: &PrometheusReading| -> Vec<u64> {
        let scrapes = reading.scrapes.iter();
        scrapes.map(|scrape| scrape.at.unix_millis()).collect()
    };
    assert_eq!(at(&first), [40_000, 70_000]);
    assert_eq!(
        at(&second),
        at(&first),
        "one scrape is of one instant whenever it is read"
    );
    let asked = server.asked();
    let spans: Vec<&str> = asked
        .iter()
        .filter(|asked| !is_clock(asked))
        .filter_map(|asked| asked.target.split("%5B").nth(1)?.split("%5D").next())
        .collect();
    assert_eq!(spans, ["190s", "45s"]);
    assert!(asked.iter().all(|asked| asked.method == "GET"));
    assert!(
        asked
            .iter()
            .all(|asked| asked.target.starts_with("/prefix/api/v1/query?query="))
    );
    assert!(
        asked
            .iter()
            .all(|asked| asked.target.contains("&timeout=20s&limit=100001"))
    );
}

#[tokio::test]
async fn each_way_to_be_bad_names_the_address_and_what_to_do() {
    type Case = (&'static str, fn() -> TestReply, Reason, &'static [&'static str]);
    let cases: [Case; 11] = [
        (
            "429",
            || TestReply::json(429, "slow down"),
            Reason::Refused,
            &["429", "slow down", "prometheus.interval"],
        ),
        ("500", || TestReply::json(500, ""), Reason::Refused, &["500"]),
        (
            "401",
            || TestReply::json(401, ""),
            Reason::Forbidden,
            &["401", "prometheus.tokenFile"],
        ),
        (
            "404",
            || TestReply::json(404, "no"),
            Reason::NotMetrics,
            &["404", "end before /api/v1/query"],
        ),
        (
            "a query that it does not take",
            || {
                TestReply::json(
                    400,
                    json!({"status": "error", "errorType": "bad_data", "error": "parse error"}),
                )
            },
            Reason::NotMetrics,
            &["bad_data: parse error", "prometheus.selector"],
        ),
        (
            "a redirect",
            || {
                TestReply::Raw(
                    b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/login\r\ncontent-length: 0\r\n\r\n"
                        .to_vec(),
                )
            },
            Reason::NotMetrics,
            &[
                "a redirect to http://127.0.0.1:1/login, which is not followed",
                "prometheus.url",
            ],
        ),
        (
            "a page",
            || TestReply::Whole(200, "text/html", "<html>".to_owned()),
            Reason::NotMetrics,
            &["no answer of a Prometheus"],
        ),
        (
            "nothing stored",
            || {
                TestReply::json(
                    200,
                    json!({"status": "success", "data": {"resultType": "matrix", "result": []}}),
                )
            },
            Reason::NotMetrics,
            &["no metrics of an API server", "prometheus.selector"],
        ),
        (
            "a clock in the future",
            || TestReply::json(200, counted(&[(9_000.0, "1")])),
            Reason::NotMetrics,
            &["8900 s newer than its own clock", "set its clock"],
        ),
        (
            "an endless body",
            || TestReply::Endless("application/json", vec![b' '; 4_096]),
            Reason::Truncated,
            &["larger than 1048576 bytes", "prometheus.maxMebibytes"],
        ),
        (
            "a body that breaks off",
            || TestReply::Raw(b"HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n{\"status\"".to_vec()),
            Reason::Truncated,
            &["broke off"],
        ),
    ];
    for (what, reply, reason, says) in cases {
        let failure = fails(LIMITS, reply).await;
        assert_eq!(failure.reason, reason, "{what}: {}", failure.why);
        for said in says {
            assert!(failure.why.contains(said), "{what}: {}", failure.why);
        }
    }
}

/// Ten million series: nothing is kept of them, and the answer is not taken for the first of them.
#[tokio::test]
async fn ten_million_series_end_at_a_bound() {
    let row = br#"{"metric":{"__name__":"apiserver_request_total","instance":"a"},"values":[[1,"1"]]},"#;
    let begin = b"{\"status\":\"success\",\"data\":{\"resultType\":\"matrix\",\"result\":[".to_vec();
    let failure = fails(LIMITS, move || {
        let mut raw =
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n".to_vec();
        raw.extend_from_slice(&begin);
        raw.extend(row.repeat(20_000));
        TestReply::Raw(raw)
    })
    .await;
    assert_eq!(failure.reason, Reason::Truncated, "{}", failure.why);
    let large = ReadingLimits {
        max_bytes: 64 << 20,
        ..LIMITS
    };
    let failure = fails(large, move || {
        let mut body = "{\"status\":\"success\",\"data\":{\"resultType\":\"matrix\",\"result\":[".to_owned();
        body += &String::from_utf8_lossy(row).repeat(MAX_SERIES + 1);
        body.pop();
        TestReply::json(200, body + "]}}")
    })
    .await;
    assert!(failure.why.contains("more than 100000 series"), "{}", failure.why);
}

#[tokio::test]
async fn one_that_hangs_or_is_gone_costs_no_more_than_the_timeout() {
    let short = ReadingLimits {
        timeout: Duration::from_millis(200),
        ..LIMITS
    };
    let failure = fails(short, || TestReply::Hang).await;
    assert_eq!(failure.reason, Reason::TimedOut);
    let server = TestServer::start(|_| TestReply::Hang).await;
    let mut gone = prometheus(&server, LIMITS);
    server.stop().await;
    let failure = soon(gone.read()).await.expect_err("nothing listens");
    assert_eq!(failure.reason, Reason::Unreachable);
    assert!(failure.why.contains("prometheus.url"), "{}", failure.why);
}

#[tokio::test]
async fn a_token_goes_with_every_query_and_into_no_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let token_file: PathBuf = folder.path().join("token");
    std::fs::write(&token_file, "hunter2\n").expect("a file");
    let server = TestServer::start(|_| TestReply::json(403, "who are you?")).await;
    let mut prometheus = prometheus(&server, LIMITS);
    prometheus.endpoint.target.auth = Auth::Bearer {
        token_file: token_file.clone(),
    };
    let failure = soon(prometheus.read()).await.expect_err("a 403");
    assert_eq!(server.asked()[0].headers["authorization"], "Bearer hunter2");
    assert!(!failure.why.contains("hunter2"), "{}", failure.why);
    std::fs::remove_file(&token_file).expect("it is there");
    let failure = soon(prometheus.read()).await.expect_err("no token");
    assert_eq!(failure.reason, Reason::Forbidden);
    assert!(failure.why.contains("token"), "{}", failure.why);
}

#[test]
fn a_selector_is_taken_with_and_without_its_braces_and_nothing_else_is() {
    assert_eq!(selector(" {job=\"a\", } "), Ok("job=\"a\"".to_owned()));
    assert_eq!(selector(SELECTOR), Ok(SELECTOR.to_owned()));
    assert_eq!(selector(""), Ok(String::new()));
    for bad in ["apiserver", "__name__=\"x\"", "a=\"\n\"", &"a=".repeat(2_000)] {
        assert!(selector(bad).is_err(), "{bad}");
    }
}
