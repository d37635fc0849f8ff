//! The outage that hookwatch was made after, with the breaker: writes stop, the culprit is bypassed, writes flow, the
//! hook recovers, and every object is what it was.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and helpers of an integration test count as code"
)]

use hookwatch::app::demo::{BreakerReport, DemoOptions, Timing, run};
use hookwatch::app::run::for_demo;
use hookwatch::domain::bypass::Rung;
use hookwatch::lab::control_plane::Kind;
use hookwatch::lab::scenario::by_name;

fn outage(permitted: Rung) -> BreakerReport {
    // Fails when another test of this file came first, which is as good.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let options = DemoOptions {
        control_plane: Kind::Embedded,
        scenario: by_name("gke-opa-outage").unwrap(),
        timing: Timing::default(),
        timeline: None,
        colour: false,
        programs: None,
        auto_break: Some(permitted),
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let report = runtime.block_on(run(options, for_demo)).unwrap();
    assert!(report.correct, "{:?}\n{report:#?}", report.objections);
    report.breaker.unwrap()
}

#[test]
fn without_a_rule_the_hook_is_shielded_and_put_back_to_the_byte() {
    let breaker = outage(Rung::Shield);
    assert_eq!(breaker.rung.as_deref(), Some("shield"));
    assert!(breaker.restored && breaker.restored_identical, "{breaker:?}");
}

#[test]
fn where_the_policy_permits_it_the_hook_is_skipped_and_comes_back_over_probation() {
    let breaker = outage(Rung::Skip);
    assert_eq!(breaker.rung.as_deref(), Some("skip"));
    assert!(breaker.restored && breaker.restored_identical, "{breaker:?}");
}
