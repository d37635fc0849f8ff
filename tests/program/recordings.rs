//! Recordings of a real kube-apiserver 1.36.2, replayed from its metrics alone: no inventory, no probe, no canary.
//!
//! The fixtures are excerpts: one scrape in three, and only series that matter and moved.

use std::path::Path;

use hookwatch::app::replay::{Replay, replay_scrapes};
use hookwatch::domain::vocabulary::{Cause, Effect, Health, NotAHook};

const OPA: &str = "validating-webhook.openpolicyagent.org";
const MUTATOR: &str = "mutate.policy.example.com";

fn recording(name: &str) -> Replay {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/recordings")
        .join(name);
    replay_scrapes(&folder).unwrap_or_else(|error| panic!("{error:#}"))
}

fn culprits(replay: &Replay) -> Vec<(&str, Cause, Effect)> {
    replay
        .culprits
        .iter()
        .map(|culprit| (&*culprit.webhook, culprit.cause, culprit.effect))
        .collect()
}

#[test]
fn a_quiet_recording_names_no_hook() {
    let replay = recording("quiet");
    assert_eq!(culprits(&replay), []);
    assert_eq!(replay.not_a_hook(), []);
}

#[test]
fn the_slow_hook_is_named_and_nearly_all_of_the_extra_time_is_laid_to_it() {
    let replay = recording("validating-slow");
    assert_eq!(culprits(&replay), [(OPA, Cause::Slow, Effect::Delaying)]);
    assert_eq!(replay.not_a_hook(), []);
}

#[test]
fn the_hanging_hook_is_named_when_its_first_calls_have_timed_out() {
    let replay = recording("validating-hang");
    assert_eq!(culprits(&replay), [(OPA, Cause::Hanging, Effect::Blocking)]);
    assert_eq!(replay.not_a_hook(), []);
}

#[test]
fn the_hook_that_hangs_and_fails_open_is_named_although_every_write_succeeds() {
    let replay = recording("mutating-hang-fail-open");
    assert_eq!(
        culprits(&replay),
        [(MUTATOR, Cause::Hanging, Effect::FailingOpen)]
    );
    assert_eq!(replay.not_a_hook(), []);
}

#[test]
fn a_hook_that_denies_everything_is_said_to_deny_and_is_no_culprit() {
    let replay = recording("deny-storm");
    assert_eq!(culprits(&replay), []);
    assert!(
        replay
            .turns
            .iter()
            .any(|turn| *turn.verdict.webhook == *OPA && turn.verdict.cause == Some(Cause::Denying))
    );
}

#[test]
fn a_slow_etcd_is_named_and_no_hook_is() {
    let replay = recording("etcd-slow");
    assert_eq!(culprits(&replay), []);
    assert_eq!(replay.not_a_hook(), [NotAHook::EtcdSlow]);
}

#[test]
fn no_recording_ends_with_a_culprit_for_each_fault_is_over_by_then() {
    for name in [
        "validating-slow",
        "validating-hang",
        "mutating-hang-fail-open",
        "deny-storm",
        "etcd-slow",
    ] {
        let replay = recording(name);
        let last = replay
            .last
            .as_ref()
            .unwrap_or_else(|| panic!("{name} holds no scrape"));
        for verdict in &last.hooks {
            assert_ne!(verdict.health, Health::Failing, "{name}: {}", verdict.summary);
        }
    }
}
