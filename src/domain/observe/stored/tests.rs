use serde_json::{Value, json};

use super::answer::{Clocks, MAX_SERIES, UnusableAnswer, clock, query, refusal, scrapes};
use super::*;
use crate::cluster::hook::HookKind;
use crate::observe::snapshot::series_names;

/// The Prometheus's clock, a second and a half ahead of ours.
const THEIRS: i64 = 1_700_000_100_000;
const CLOCKS: Clocks = Clocks {
    theirs: THEIRS,
    ours: Time::from_unix_millis(1_700_000_098_500),
};

fn series(name: &str, labels: Value, samples: &[(f64, &str)]) -> Value {
    let mut metric = json!({"__name__": name, "instance": "10.0.0.1:6443", "job": "apiserver"});
    for (label, value) in labels.as_object().unwrap() {
        metric[label] = value.clone();
    }
    json!({"metric": metric, "values": samples})
}

fn answer(result: Vec<Value>) -> Vec<u8> {
    let body = json!({"status": "success", "data": {"resultType": "matrix", "result": result}});
    body.to_string().into_bytes()
}

fn read(result: Vec<Value>) -> Result<(Vec<Scrape>, Complaints), UnusableAnswer> {
    scrapes(&answer(result), CLOCKS)
}

fn failed(name: &str, samples: &[(f64, &str)]) -> Value {
    let labels = json!({"name": name, "type": "validating", "operation": "CREATE", "error_type": "calling_webhook_error"});
    series("apiserver_admission_webhook_rejection_count", labels, samples)
}

#[test]
fn what_was_scraped_at_one_instant_is_one_scrape_by_our_clock() {
    let start = |samples| series("process_start_time_seconds", json!({}), samples);
    let (found, complaints) = read(vec![
        failed("w", &[(1_700_000_060.25, "3"), (1_700_000_090.25, "7")]),
        start(&[(1_700_000_060.25, "1.5e9"), (1_700_000_090.25, "1.5e9")]),
    ])
    .unwrap();
    assert_eq!(complaints, Complaints::default());
    let seen: Vec<(u64, f64)> = found
        .iter()
        .map(|scrape| {
            let hook = &scrape.snapshot.hooks[&(HookKind::Validating, "w".to_owned())];
            (scrape.at.unix_millis(), hook.rejections.calling)
        })
        .collect();
    assert_eq!(seen, [(1_700_000_058_750, 3.0), (1_700_000_088_750, 7.0)]);
    assert!(found.iter().all(|scrape| scrape.target == "10.0.0.1:6443"));
    assert!(
        found
            .iter()
            .all(|scrape| scrape.snapshot.process_start == Some(1.5e9))
    );
}

/// What Prometheus 2.42 answered after it had scraped a recording twice.
#[test]
fn a_real_prometheus_tells_the_same_as_the_scrape_that_it_stored() {
    let fixture = |name: &str| {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/");
        std::fs::read(format!("{path}{name}")).unwrap()
    };
    let clocks = Clocks {
        theirs: 1_795_534_518_000,
        ours: Time::from_unix_millis(1_795_534_518_000),
    };
    let (found, complaints) = scrapes(&fixture("prometheus/quiet.json"), clocks).unwrap();
    assert_eq!((found.len(), complaints), (2, Complaints::default()));
    let mut exposition = crate::observe::exposition::Exposition::new();
    exposition.feed(&fixture("recordings/quiet/0000_1795219496541.prom"));
    let (snapshot, _) = exposition.finish();
    let expected = serde_json::to_value(&snapshot).unwrap();
    for scrape in found {
        let found = serde_json::to_value(&scrape.snapshot).unwrap();
        assert!(is_close(&found, &expected), "{found:#}\n{expected:#}");
    }
}

/// The same but for the order in which numbers were added up.
fn is_close(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter()
                    .all(|(key, a)| b.get(key).is_some_and(|b| is_close(a, b)))
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_close(a, b))
        }
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            (a - b).abs() <= 1e-9 * a.abs().max(1.0)
        }
        _ => a == b,
    }
}

#[test]
fn the_query_names_every_series_that_is_kept_and_no_bucket() {
    let asked = query("job=\"a\"", 90);
    assert!(
        asked.starts_with("{__name__=~\"apiserver_request_duration_seconds_sum|"),
        "{asked}"
    );
    assert!(asked.ends_with("\",job=\"a\"}[90s]"), "{asked}");
    assert!(series_names().iter().all(|name| asked.contains(name)) && !asked.contains("_bucket"));
    assert!(query("", 1).ends_with("\"}[1s]"));
}

#[test]
fn the_newest_scrape_waits_while_a_part_of_it_is_under_way() {
    let other = |samples| failed("x", samples);
    let (found, _) = read(vec![
        failed("w", &[(1_700_000_060.0, "3"), (1_700_000_090.0, "3")]),
        other(&[(1_700_000_060.0, "1")]),
    ])
    .unwrap();
    assert_eq!(found.len(), 1);
    let (found, _) = read(vec![
        failed("w", &[(1_700_000_060.0, "3"), (1_700_000_090.0, "3")]),
        other(&[(1_700_000_090.0, "1")]),
    ])
    .unwrap();
    assert_eq!(found.len(), 2, "a counter that is new is whole");
}

#[test]
fn what_is_no_api_server_is_left_out() {
    let other = json!({"instance": "10.0.0.9:9100"});
    let cpu = series("process_cpu_seconds_total", other, &[(1_700_000_090.0, "3")]);
    assert_eq!(read(vec![cpu.clone()]), Err(UnusableAnswer::NoApiServer));
    let (found, _) = read(vec![cpu, failed("w", &[(1_700_000_090.0, "3")])]).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(read(Vec::new()), Err(UnusableAnswer::NoApiServer));
}

#[test]
fn two_targets_of_one_instance_are_never_added_up() {
    let start = |replica: &str| {
        let labels = json!({"prometheus_replica": replica});
        series(
            "process_start_time_seconds",
            labels,
            &[(1_700_000_090.0, "1.5e9")],
        )
    };
    let rejected = failed("w", &[(1_700_000_090.0, "3")]);
    let found = read(vec![start("a"), start("b"), rejected]);
    assert_eq!(found, Err(UnusableAnswer::Ambiguous("10.0.0.1:6443".to_owned())));
}

#[test]
fn samples_from_the_future_are_refused_and_a_clock_that_differs_is_not() {
    let found = read(vec![failed("w", &[(1_700_000_200.0, "3")])]);
    assert_eq!(found, Err(UnusableAnswer::Future(100)));
    let far = Clocks {
        theirs: THEIRS,
        ours: Time::from_unix_millis(1_000_000_000_000),
    };
    let (found, _) = scrapes(&answer(vec![failed("w", &[(1_700_000_090.0, "3")])]), far).unwrap();
    assert_eq!(found[0].at, Time::from_unix_millis(999_999_990_000));
}

#[test]
fn numbers_that_are_none_and_instants_that_are_none_are_counted_and_left_out() {
    let (found, complaints) = read(vec![failed(
        "w",
        &[
            (1_700_000_060.0, "NaN"),
            (1_700_000_070.0, "+Inf"),
            (-5.0, "1"),
            (1e300, "1"),
            (1_700_000_090.0, "3"),
        ],
    )])
    .unwrap();
    assert_eq!((found.len(), complaints.left_out), (1, 4));
}

#[test]
fn what_is_no_answer_is_said_to_be_none() {
    for body in [
        "",
        "<html>login</html>",
        "[]",
        "{\"status\":\"success\",\"data\":{\"resultType\":\"matrix\",\"result\":{}}}",
        "{\"status\":\"success\",\"data\":{\"resultType\":\"matrix\",\"result\":[{\"metric\":{\"a\":1},\"values\":[]}]}}",
        "{\"status\":\"success\",\"data\":{\"resultType\":\"matrix\",\"result\":[{\"metric\":{},\"values\":[[1,\"x\"]]}]}}",
        "{\"status\":\"success\",\"data\":{\"resultType\":\"matrix\",\"result\":[",
    ] {
        let found = scrapes(body.as_bytes(), CLOCKS);
        assert!(
            matches!(found, Err(UnusableAnswer::NotAnswer(_))),
            "{body}: {found:?}"
        );
    }
    let refused = b"{\"status\":\"error\",\"errorType\":\"bad_data\",\"error\":\"parse error\"}";
    assert_eq!(
        scrapes(refused, CLOCKS),
        Err(UnusableAnswer::Refused("bad_data: parse error".to_owned()))
    );
    assert_eq!(refusal(refused), Some("bad_data: parse error".to_owned()));
    assert_eq!(refusal(b"go away"), None);
}

#[test]
fn the_clock_is_read_to_the_millisecond() {
    let body = b"{\"status\":\"success\",\"data\":{\"resultType\":\"scalar\",\"result\":[1700000100.0,\"1700000100.123\"]}}";
    assert_eq!(clock(body), Ok(1_700_000_100_123));
    let never = b"{\"status\":\"success\",\"data\":{\"resultType\":\"scalar\",\"result\":[1,\"NaN\"]}}";
    assert!(clock(never).is_err());
}

#[test]
fn more_series_or_instances_than_are_taken_are_a_failure_and_not_a_part() {
    let row = r#"{"metric":{"__name__":"apiserver_request_total","instance":"a"},"values":[]},"#;
    let many = row.repeat(MAX_SERIES + 1);
    let body = format!(
        "{{\"status\":\"success\",\"data\":{{\"result\":[{}]}}}}",
        many.trim_end_matches(',')
    );
    assert!(matches!(
        scrapes(body.as_bytes(), CLOCKS),
        Err(UnusableAnswer::TooMuch(_))
    ));
    let instances = (0..=MAX_INSTANCES).map(|n| {
        let labels = json!({"instance": format!("10.0.0.{n}:6443")});
        series("apiserver_request_total", labels, &[(1_700_000_090.0, "1")])
    });
    assert!(matches!(
        read(instances.collect()),
        Err(UnusableAnswer::TooMuch(_))
    ));
}

fn reading(scrapes: Vec<Scrape>) -> PrometheusReading {
    PrometheusReading {
        source: "http://p:9090".to_owned(),
        at: scrapes.last().map_or(Time::default(), |scrape| scrape.at),
        took: Duration::ZERO,
        bytes: 0,
        scrapes,
        complaints: Complaints::default(),
    }
}

fn stored(instances: &[(&str, &[u64])]) -> PrometheusMemory {
    let mut stored = PrometheusMemory::default();
    let mut all: Vec<Scrape> = Vec::new();
    for (instance, seconds) in instances {
        for second in *seconds {
            let labels = json!({"instance": instance, "verb": "POST", "resource": "pods"});
            let count = (second * 10).to_string();
            let at = 1_700_000_000.0 + *second as f64;
            let row = series(
                "apiserver_request_duration_seconds_count",
                labels,
                &[(at, &count)],
            );
            let clocks = Clocks {
                theirs: THEIRS + 100_000,
                ours: Time::from_unix_millis(THEIRS.unsigned_abs() + 100_000),
            };
            all.extend(scrapes(&answer(vec![row]), clocks).unwrap().0);
        }
    }
    all.sort_by_key(|scrape| scrape.at);
    stored.take(reading(all.clone()));
    // What is read twice counts once.
    stored.take(reading(all));
    stored
}

fn at(second: u64) -> Time {
    Time::from_unix_millis(1_700_000_000_000 + second * 1_000)
}

#[test]
fn the_older_and_coarser_the_less_it_is_trusted_and_past_two_minutes_not_at_all() {
    let mut fine = stored(&[("a", &[0, 15, 30, 45])]);
    let trust = |stored: &mut PrometheusMemory, second| stored.speaks(at(second)).map(|it| it.trust());
    assert_eq!(trust(&mut fine, 45), Some(0.95));
    assert_eq!(trust(&mut fine, 75), Some(0.85));
    assert_eq!(trust(&mut fine, 45 + 120), Some(0.55));
    assert_eq!(trust(&mut fine, 45 + 121), None);
    let mut coarse = stored(&[("a", &[0, 60])]);
    assert_eq!(trust(&mut coarse, 60), Some(0.8));
    let said = coarse.speaks(at(90)).unwrap().sentence();
    assert!(
        said.contains("http://p:9090") && said.contains("every 60.0 s") && said.contains("30.0 s old"),
        "{said}"
    );
}

#[test]
fn one_scrape_or_scrapes_minutes_apart_say_nothing() {
    assert!(stored(&[("a", &[60])]).speaks(at(61)).is_none());
    assert!(stored(&[("a", &[0, 150])]).speaks(at(151)).is_none());
}

#[test]
fn api_servers_are_added_up_as_of_when_all_of_them_are_known() {
    let mut two = stored(&[("a", &[0, 60, 120]), ("b", &[30, 90])]);
    let speaks = two.speaks(at(125)).unwrap();
    let minute = speaks.windows.recent.as_ref().unwrap();
    assert_eq!(minute.gained.all_writes().duration.count, 1_200.0);
    let view = two.view(true, at(125)).unwrap();
    assert_eq!((view.api_servers, view.age_seconds), (2, Some(5.0)));
    assert_eq!(view.resolution_seconds, Some(60.0));
}

#[test]
fn a_failure_is_told_once_and_so_is_its_end() {
    let failure = |second| ScrapeFailure {
        target: "http://p:9090".to_owned(),
        at: at(second),
        reason: crate::observe::snapshot::ScrapeFailureReason::Refused,
        why: "HTTP 429".to_owned(),
    };
    let mut stored = PrometheusMemory::default();
    assert_eq!(stored.view(false, at(0)), None);
    assert_eq!(
        (stored.failed(failure(0)), stored.failed(failure(60))),
        (true, false)
    );
    let view = stored.view(false, at(61)).unwrap();
    assert_eq!(
        (view.failure.as_deref(), view.failing_since),
        (Some("HTTP 429"), Some(at(0)))
    );
    assert!(stored.take(reading(Vec::new())));
    assert!(!stored.take(reading(Vec::new())));
}
