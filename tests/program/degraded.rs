//! API servers that lack a metric: every recording of a real one, with each family taken out in turn.
//!
//! The right culprit where it can still be known, nobody where it cannot; never another one.

use std::path::{Path, PathBuf};

use hookwatch::app::replay::{Replay, replay_scrapes};
use hookwatch::domain::vocabulary::{Cause, NotAHook};

const OPA: &str = "validating-webhook.openpolicyagent.org";
const MUTATOR: &str = "mutate.policy.example.com";

/// Every family that hookwatch reads.
const FAMILIES: [&str; 14] = [
    "apiserver_request_duration_seconds",
    "apiserver_request_sli_duration_seconds",
    "apiserver_request_total",
    "apiserver_current_inflight_requests",
    "apiserver_current_inqueue_requests",
    "apiserver_admission_webhook_admission_duration_seconds",
    "apiserver_admission_webhook_request_total",
    "apiserver_admission_webhook_rejection_count",
    "apiserver_admission_webhook_fail_open_count",
    "apiserver_admission_match_condition_exclusions_total",
    "apiserver_flowcontrol_request_wait_duration_seconds",
    "etcd_request_duration_seconds",
    "process_start_time_seconds",
    "process_cpu_seconds_total",
];

/// A copy of a recording without the series whose names begin with one of these.
fn without(name: &str, recording: &str, families: &[&str]) -> PathBuf {
    let from = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/recordings")
        .join(recording);
    let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join("degraded").join(name);
    std::fs::create_dir_all(&to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "prom") {
            let text = std::fs::read_to_string(&path).unwrap();
            let kept = text
                .lines()
                .filter(|line| !families.iter().any(|family| line.starts_with(family)));
            let kept: String = kept.map(|line| format!("{line}\n")).collect();
            std::fs::write(to.join(path.file_name().unwrap()), kept).unwrap();
        }
    }
    to
}

fn replayed(recording: &str, families: &[&str]) -> Replay {
    replayed_as(
        &format!("{recording}-{}", families.join("-")),
        recording,
        families,
    )
}

fn replayed_as(name: &str, recording: &str, families: &[&str]) -> Replay {
    let folder = without(name, recording, families);
    let replay = replay_scrapes(&folder).unwrap_or_else(|error| panic!("{error:#}"));
    std::fs::remove_dir_all(&folder).unwrap();
    replay
}

const DURATIONS: &str = "apiserver_admission_webhook_admission_duration_seconds";
const ETCD: &str = "etcd_request_duration_seconds";

/// What is known of each recording: its culprit, or the trouble that is no hook's.
type Truth = (&'static str, Option<(&'static str, Cause)>, &'static [NotAHook]);
const TRUTH: [Truth; 6] = [
    ("quiet", None, &[]),
    ("validating-slow", Some((OPA, Cause::Slow)), &[]),
    ("validating-hang", Some((OPA, Cause::Hanging)), &[]),
    ("mutating-hang-fail-open", Some((MUTATOR, Cause::Hanging)), &[]),
    ("deny-storm", None, &[]),
    ("etcd-slow", None, &[NotAHook::EtcdSlow]),
];

fn culprits(replay: &Replay) -> Vec<(&str, Cause)> {
    let culprits = replay.culprits.iter();
    culprits
        .map(|culprit| (&*culprit.webhook, culprit.cause))
        .collect()
}

#[test]
fn without_any_one_family_the_culprit_is_still_named_where_it_can_be_known_and_no_other_hook_is() {
    for (recording, culprit, elsewhere) in TRUTH {
        for family in FAMILIES {
            let replay = replayed(recording, &[family]);
            let expected = match (recording, family) {
                // Nothing else in its metrics says which hook took the time.
                ("validating-slow", DURATIONS) => None,
                // Calls that fail are counted; that each took ten seconds is not.
                ("validating-hang", DURATIONS) => Some((OPA, Cause::Refused)),
                ("mutating-hang-fail-open", DURATIONS) => Some((MUTATOR, Cause::FailingOpen)),
                // It takes five seconds; whether objects passed unseen is not counted.
                ("mutating-hang-fail-open", "apiserver_admission_webhook_fail_open_count") => {
                    Some((MUTATOR, Cause::Slow))
                }
                _ => culprit,
            };
            let expected: Vec<_> = expected.into_iter().collect();
            assert_eq!(culprits(&replay), expected, "{recording} without {family}");
            if family == DURATIONS {
                let sure = replay.culprits.iter().find(|culprit| culprit.confidence > 0.5);
                assert!(sure.is_none(), "{recording} without {family}: {sure:?}");
            }
            let elsewhere = match (recording, family) {
                ("etcd-slow", ETCD) => &[NotAHook::Unexplained],
                _ => elsewhere,
            };
            assert_eq!(replay.not_a_hook(), elsewhere, "{recording} without {family}");
        }
    }
}

#[test]
fn without_any_two_families_no_hook_is_accused_falsely() {
    for (recording, culprit, elsewhere) in TRUTH {
        for (at, one) in FAMILIES.iter().enumerate() {
            for other in &FAMILIES[at + 1..] {
                let replay = replayed(recording, &[one, other]);
                for (webhook, _) in culprits(&replay) {
                    let right = culprit.is_some_and(|(culprit, _)| culprit == webhook);
                    assert!(right, "{recording} without {one} and {other} accuses {webhook}");
                }
                for cause in &replay.not_a_hook() {
                    let right = elsewhere.contains(cause) || *cause == NotAHook::Unexplained;
                    assert!(right, "{recording} without {one} and {other} finds {cause:?}");
                }
            }
        }
    }
}

#[test]
fn with_no_family_but_one_nothing_breaks_and_what_is_missing_is_said() {
    for (recording, culprit, _) in TRUTH {
        for kept in FAMILIES {
            let gone: Vec<&str> = FAMILIES.into_iter().filter(|family| *family != kept).collect();
            let replay = replayed_as(&format!("{recording}-only-{kept}"), recording, &gone);
            let last = replay.last.as_ref().expect("something was scraped");
            let said = last.sources.scrapes[0].missing.len();
            // Without any family of an API server it is none, and lacks nothing.
            assert!(said == 0 || said >= 4, "{recording} with {kept} alone: {said}");
            for (webhook, _) in culprits(&replay) {
                assert_eq!(culprit.map(|(culprit, _)| culprit), Some(webhook));
            }
        }
    }
}

#[test]
fn what_is_missing_is_named_with_what_is_judged_without_it() {
    let replay = replayed("validating-hang", &[ETCD]);
    let last = replay.last.expect("something was scraped");
    assert_eq!(
        last.sources.scrapes[0].missing,
        [
            "this API server shows no etcd_request_duration_seconds: a slow etcd cannot be told from other slowness of \
             the API server"
        ]
    );
}
