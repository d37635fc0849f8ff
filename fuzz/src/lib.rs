//! What hookwatch does with bytes that others wrote, one function for each place where they come in.
//!
//! Each must come back, whatever it is handed, and says by assertions what else has to hold. libFuzzer calls them from
//! `fuzz_targets/`; `tests/program/hostile.rs` of the crate calls them with the seeds in `corpus/`, on a stable toolchain.

use std::time::Duration;

use hookwatch::app::config::{Config, ConfigArguments};
use hookwatch::app::replay;
use hookwatch::domain::act::breaker::book::Book;
use hookwatch::domain::act::bypass::edit::{Author, Desired, Plan, plan};
use hookwatch::domain::act::bypass::{BypassAnnotation, ObjectWriter, STATE_ANNOTATION, touched};
use hookwatch::domain::act::leadership::Bid;
use hookwatch::domain::act::ledger::LedgerReading;
use hookwatch::domain::cluster::condition::CONDITION_PREFIX;
use hookwatch::domain::diagnose::verdict::Verdict;
use hookwatch::domain::observe::canary::{CallFailure, CanaryOutcome};
use hookwatch::domain::observe::exposition::Exposition;
use hookwatch::domain::observe::exposition::protobuf::ProtobufExposition;
use hookwatch::domain::observe::snapshot::{Complaints, Scrape, Snapshot};
use hookwatch::domain::observe::stored;
use hookwatch::domain::observe::stored::answer;
use hookwatch::domain::observe::stored::answer::Clocks;
use hookwatch::domain::text::MAX_MESSAGE;
use hookwatch::domain::time::Time;
use hookwatch::domain::vocabulary::Health;
use hookwatch::domain::watchdog::{Event, Watchdog, WatchdogEffect};
use hookwatch::io::observe::probe::check_answer;
use serde_json::{Value, json};

/// Takes whatever came.
pub type Target = fn(&[u8]);

/// Every target by its name, which is that of its file in `fuzz_targets/` and of its folder in `corpus/`.
pub const TARGETS: [(&str, Target); 9] = [
    ("metrics_text", metrics_text),
    ("metrics_protobuf", metrics_protobuf),
    ("prometheus_answer", prometheus_answer),
    ("probe_answer", probe_answer),
    ("state_annotation", state_annotation),
    ("ledger", ledger),
    ("failed_write", failed_write),
    ("configuration", configuration),
    ("recording", recording),
];

/// When everything here happens.
const NOW: Time = Time::from_unix_millis(1_795_219_862_156);

/// An API server's metrics as text, and what the core makes of them. A line `%%` stands between two scrapes.
pub fn metrics_text(data: &[u8]) {
    let mut core = Watchdog::new("hookwatch");
    let mut at = NOW;
    for body in split(data, b"%%\n").into_iter().take(8) {
        let whole = text(&[body]);
        let (first, second) = body.split_at(cut(body));
        assert_eq!(text(&[first, second]), whole, "it matters where the body was cut");
        at = at + Duration::from_secs(15);
        hear(&mut core, whole, at);
    }
}

/// The same as delimited protobuf, one scrape.
pub fn metrics_protobuf(data: &[u8]) {
    let (read, standing) = protobuf(&[data]);
    let (first, second) = data.split_at(cut(data));
    let parts = protobuf(&[first, second]);
    assert_eq!(
        parts,
        (read.clone(), standing),
        "it matters where the body was cut"
    );
    hear(&mut Watchdog::new("hookwatch"), read, NOW);
}

/// What a Prometheus answers to each query, and what the core makes of its samples.
pub fn prometheus_answer(data: &[u8]) {
    let _ = (answer::clock(data), answer::refusal(data));
    let clocks = Clocks {
        theirs: i64::try_from(NOW.unix_millis()).expect("an instant of this century"),
        ours: NOW,
    };
    let read = answer::scrapes(data, clocks);
    assert_eq!(
        answer::scrapes(data, clocks),
        read,
        "it is read in another way each time"
    );
    let (scrapes, complaints) = match read {
        Ok(read) => read,
        Err(why) => return assert!(why.to_string().len() <= MAX_MESSAGE + 200, "{why}"),
    };
    assert!(scrapes.is_sorted_by_key(|scrape| scrape.at));
    let mut core = Watchdog::new("hookwatch");
    let reading = stored::PrometheusReading {
        source: "http://127.0.0.1:9090".to_owned(),
        at: NOW,
        took: Duration::from_millis(80),
        bytes: 1,
        scrapes,
        complaints,
    };
    core.handle(Event::Stored(Box::new(reading)), NOW);
    judge(&mut core, NOW);
}

/// The answer of a backend to a review.
pub fn probe_answer(data: &[u8]) {
    for mutating in [false, true] {
        let answer = check_answer("uid-1", mutating, data);
        if let Err(why) = answer {
            // With an ellipsis.
            assert!(why.chars().count() <= 301, "{why}");
            assert!(!why.contains(char::is_control), "{why:?}");
        }
    }
}

/// The annotation on a webhook configuration that hookwatch has changed, rewritten by somebody else.
pub fn state_annotation(data: &[u8]) {
    let Ok(annotation) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(state) = BypassAnnotation::read(Some(annotation))
        && let Some(written) = state.text()
    {
        let again = BypassAnnotation::read(Some(&written)).map(|state| state.text());
        assert_eq!(again, Ok(Some(written)), "what is kept changes on the way");
    }
    let mut object = changed(annotation);
    // Whoever takes everything back gets there in a few steps, or is told why not.
    let hooks = touched(&object);
    for (webhook, _) in hooks.iter().take(20) {
        let mut steps = 0;
        while let Ok(Plan::Edit(edit)) = plan(&object, webhook, &Desired::Restore, &author(), NOW) {
            let patch: json_patch::Patch =
                serde_json::from_value(edit.patch.clone()).expect("it plans a JSON patch");
            json_patch::patch(&mut object, &patch).unwrap_or_else(|error| panic!("{error}: {}", edit.patch));
            steps += 1;
            assert!(steps <= 4, "{webhook:?} is never restored: {object}");
        }
        let left = object["webhooks"].as_array().into_iter().flatten();
        let left = left
            .filter(|hook| hook["name"] == **webhook)
            .filter_map(|hook| hook["matchConditions"].as_array())
            .flatten()
            .filter_map(|condition| condition["name"].as_str())
            .filter(|name| name.starts_with(CONDITION_PREFIX));
        assert_eq!(left.count(), 0, "{webhook:?}: {object}");
    }
}

/// The annotation by which replicas agree.
pub fn ledger(data: &[u8]) {
    let Ok(annotation) = std::str::from_utf8(data) else {
        return;
    };
    let reading = LedgerReading::of(Some(annotation));
    let record = reading.record("u", "1");
    let book = reading.book();
    if let Ok(book) = &book
        && let Some(written) = reading.with_book(book)
    {
        let again = LedgerReading::of(Some(&written));
        assert_eq!(again.record("u", "1"), record, "another one holds it");
        assert_eq!(again.book().as_ref(), Ok(book), "the book changes on the way");
    }
    let bid = Bid {
        precondition: Some("1".into()),
        holder: Some("a".into()),
        changes_hands: true,
        transitions: record.transitions,
        term: record.term,
    };
    if let Some(written) = reading.with_bid(&bid, "2026-11-21T00:11:02Z") {
        assert_eq!(
            LedgerReading::of(Some(&written))
                .record("u", "2")
                .holder
                .as_deref(),
            Some("a")
        );
    }
    let _ = reading.with_book(&Book::default());
}

/// The message of a write that the API server refused.
pub fn failed_write(data: &[u8]) {
    let message = String::from_utf8_lossy(data);
    let failure = CallFailure::parse(&message);
    if let Some(failure) = &failure {
        assert!(message.starts_with("Internal error occurred: failed calling webhook \""));
        assert!(failure.text.len() <= MAX_MESSAGE && failure.webhook.len() <= MAX_MESSAGE);
    }
    for status in [400, 401, 403, 404, 409, 422, 429, 500, 503] {
        let outcome = CanaryOutcome::from_status(status, &message);
        assert_eq!(
            matches!(outcome, CanaryOutcome::CallFailed(_)),
            failure.is_some(),
            "{outcome:?}"
        );
        match outcome {
            CanaryOutcome::Forbidden { message }
            | CanaryOutcome::Missing { message }
            | CanaryOutcome::Refused { message, .. } => assert!(message.len() <= MAX_MESSAGE),
            _ => {}
        }
    }
}

/// The configuration file.
pub fn configuration(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let read = || Config::parse(text, &ConfigArguments::default());
    match read() {
        Ok(config) => assert_eq!(read(), Ok(config), "it is read in another way each time"),
        Err(errors) => assert!(!errors.is_empty(), "refused without a reason"),
    }
}

/// A part of a recording, compressed or not.
pub fn recording(data: &[u8]) {
    if let Ok(result) = replay::replay_part(data) {
        for turn in &result.turns {
            is_sound(&turn.verdict);
        }
        let again = replay::replay_part(data).map(|again| again.to_text());
        assert_eq!(
            again.ok(),
            Some(result.to_text()),
            "it comes out differently each time"
        );
        assert!(serde_json::to_string(&result.document()).is_ok());
    }
}

/// What is between the separators.
fn split<'a>(mut data: &'a [u8], separator: &[u8]) -> Vec<&'a [u8]> {
    let mut parts = Vec::new();
    while let Some(at) = data.windows(separator.len()).position(|found| found == separator) {
        parts.push(&data[..at]);
        data = &data[at + separator.len()..];
    }
    parts.push(data);
    parts
}

/// Some place to cut a body at, given by the body.
fn cut(body: &[u8]) -> usize {
    let sum: usize = body.iter().take(64).map(|byte| usize::from(*byte)).sum();
    sum % (body.len() + 1)
}

fn text(chunks: &[&[u8]]) -> (Snapshot, Complaints) {
    let mut exposition = Exposition::new();
    chunks.iter().for_each(|chunk| exposition.feed(chunk));
    exposition.finish()
}

fn protobuf(
    chunks: &[&[u8]],
) -> (
    (Snapshot, Complaints),
    hookwatch::domain::observe::exposition::protobuf::BodyStanding,
) {
    let mut exposition = ProtobufExposition::new();
    chunks.iter().for_each(|chunk| exposition.feed(chunk));
    let standing = exposition.standing();
    (exposition.finish(), standing)
}

/// Tells the core of a scrape, and has it judge; the assessment must be fit to be served.
fn hear(core: &mut Watchdog, (snapshot, complaints): (Snapshot, Complaints), at: Time) {
    let scrape = Scrape {
        target: "127.0.0.1:6443".to_owned(),
        at,
        took: Duration::from_millis(80),
        bytes: 1,
        snapshot,
        complaints,
    };
    core.handle(Event::Scraped(Box::new(scrape)), at);
    judge(core, at);
}

fn judge(core: &mut Watchdog, at: Time) {
    for effect in core.handle(Event::Tick, at) {
        if let WatchdogEffect::Publish(assessment, _) = effect {
            assessment.hooks.iter().for_each(is_sound);
            assert!(serde_json::to_string(&assessment).is_ok());
        }
    }
}

/// What holds of every verdict.
fn is_sound(verdict: &Verdict) {
    let is_ratio = |number: f64| (0.0..=1.0).contains(&number);
    assert!(is_ratio(verdict.confidence), "{verdict:?}");
    assert!(verdict.excess_share.is_none_or(is_ratio), "{verdict:?}");
    let is_named = matches!(verdict.health, Health::Suspect | Health::Failing);
    assert_eq!(verdict.cause.is_some(), is_named, "{verdict:?}");
}

/// A configuration in which hookwatch has changed two of three webhooks.
fn changed(annotation: &str) -> Value {
    let client = json!({"service": {"namespace": "ns", "name": "svc"}, "caBundle": "Cg=="});
    let condition = json!({"name": "hookwatch.dev/skip", "expression": "false"});
    let theirs = json!({"name": "theirs", "expression": "true"});
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {
            "name": "configuration", "uid": "u", "resourceVersion": "7",
            "annotations": {STATE_ANNOTATION: annotation, "theirs": "kept"},
        },
        "webhooks": [
            {"name": "a.example.com", "clientConfig": client, "failurePolicy": "Fail",
             "timeoutSeconds": 10, "matchConditions": [condition, theirs]},
            {"name": "b.example.com", "clientConfig": client, "failurePolicy": "Ignore", "timeoutSeconds": 1},
            {"name": "c.example.com", "clientConfig": client, "failurePolicy": "Fail", "timeoutSeconds": 3},
        ],
    })
}

fn author() -> Author {
    Author {
        namespace: "hookwatch".to_owned(),
        account: "system:serviceaccount:hookwatch:hookwatch".to_owned(),
        writer: ObjectWriter {
            identity: "replica".to_owned(),
            version: "0".to_owned(),
        },
        match_conditions: true,
        fenced: false,
    }
}
