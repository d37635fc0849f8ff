//! The whole of it: every scenario, played against the unchanged daemon.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use hookwatch::app::demo::{DaemonArguments, DemoOptions, DemoReport, Timing, run, start_daemon};
use hookwatch::app::replay::replay;
use hookwatch::lab::clients::Casualties;
use hookwatch::lab::control_plane::ControlPlaneKind;
use hookwatch::lab::scenario::{SCENARIOS, by_name};

use crate::schemas;

/// Plays a scenario, and hands out the arguments that the daemon was started with.
fn play(name: &str) -> (DemoReport, DaemonArguments, String) {
    play_and_record(name, None)
}

fn play_and_record(name: &str, record: Option<PathBuf>) -> (DemoReport, DaemonArguments, String) {
    // Fails when another test of this file came first, which is as good.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let scenario = by_name(name).unwrap_or_else(|error| panic!("{error:#}"));
    let options = DemoOptions {
        control_plane: ControlPlaneKind::Embedded,
        scenario,
        timing: Timing::default(),
        timeline: None,
        colour: false,
        programs: None,
        auto_break: None,
        compare: true,
    };
    let started_with = Arc::new(Mutex::new(None));
    let keep = Arc::clone(&started_with);
    let mut record = record;
    let start_noted = move |arguments: DaemonArguments| {
        let record = record.take();
        let arguments = DaemonArguments { record, ..arguments };
        let kubeconfig = std::fs::read_to_string(&arguments.kubeconfig).unwrap_or_default();
        if let Ok(mut started_with) = keep.lock() {
            *started_with = Some((arguments.clone(), kubeconfig));
        }
        start_daemon(arguments)
    };
    let runtime = tokio::runtime::Runtime::new().unwrap_or_else(|error| panic!("{error}"));
    let report = runtime
        .block_on(run(options, start_noted))
        .unwrap_or_else(|error| panic!("{error:#}"));
    schemas::holds("demo.v1.json", &serde_json::to_value(&report).unwrap_or_default());
    let Some((arguments, kubeconfig)) = started_with.lock().ok().and_then(|mut kept| kept.take()) else {
        panic!("the daemon was never started");
    };
    (report, arguments, kubeconfig)
}

/// Plays a scenario and holds it to what the table says.
fn holds(name: &str) {
    let (report, ..) = play(name);
    assert!(report.correct, "{name}: {:?}\n{report:#?}", report.objections);
}

#[test]
fn two_culprits_are_both_named_each_with_its_cause_and_a_replay_says_the_same_every_time() {
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let (report, ..) = play_and_record("two-culprits", Some(folder.path().to_owned()));
    assert!(report.correct, "{:?}", report.objections);
    let replayed = || replay(folder.path()).unwrap_or_else(|error| panic!("{error:#}"));
    let (once, again) = (replayed(), replayed());
    assert_eq!(once.complaints, [""; 0]);
    let bytes = |replay: &hookwatch::app::replay::Replay| {
        serde_json::to_string(&replay.document()).unwrap_or_default() + &replay.to_text()
    };
    assert_eq!(bytes(&once), bytes(&again));
    assert_eq!(report.verdicts.len(), 2);
    for live in &report.verdicts {
        let found = once.turns.iter().any(|turn| {
            *turn.verdict.webhook == *live.webhook
                && turn.verdict.configuration.as_deref() == Some(&live.configuration)
                && turn.verdict.cause.map(|cause| cause.as_str()) == Some(&*live.cause)
                && turn.verdict.effect.as_str() == live.effect
        });
        assert!(found, "{live:?} is not among {:#?}", once.turns);
    }
}

/// The hidden truth is that latency shows nothing for ten seconds; the verdict may not wait for it.
#[test]
fn validating_hang_is_named_before_the_first_request_has_timed_out() {
    let (report, ..) = play("validating-hang");
    assert!(report.correct, "{:?}", report.objections);
    let (Some(verdict), Some(failure)) = (&report.verdict_at, &report.first_failure_at) else {
        panic!("no verdict or no failure: {report:#?}");
    };
    assert!(verdict < failure, "verdict {verdict}, first failure {failure}");
}

/// 45 s are more than leaders (10 to 12 s), an API server's start (30 s) and node Leases (40 s) survive.
#[test]
fn an_outage_of_a_catch_all_webhook_costs_the_leaders_the_node_leases_and_a_starting_server() {
    let (report, ..) = play("gke-opa-outage");
    assert!(report.correct, "{:?}", report.objections);
    let lost = report.casualties;
    assert_eq!((lost.leaders_lost, lost.servers_not_started), (2, 1), "{lost:?}");
    assert!(lost.node_leases_expired >= 1, "{lost:?}");
    assert!(lost.writes_timed_out >= 1, "{lost:?}");
    // The controller that would mark them is one of those that were lost.
    assert_eq!(lost.nodes_not_ready, 0, "{lost:?}");
    assert_eq!(report.flaps.verdicts, 0, "{report:#?}");
}

#[test]
fn the_daemon_is_told_how_to_reach_the_cluster_and_nothing_else() {
    let (report, arguments, kubeconfig) = play("quiet");
    assert!(report.correct, "{:?}", report.objections);
    assert_eq!(report.casualties, Casualties::default());
    // Exhaustive on purpose: whoever tells the daemon more has to come by here.
    let DaemonArguments {
        kubeconfig: path,
        listen,
        record,
        auto_break,
        configurations,
    } = arguments;
    assert_eq!((record, auto_break), (None, None));
    assert!(configurations.is_empty());
    assert_eq!(listen, "127.0.0.1:0");
    let told = format!("{}{kubeconfig}", path.display());
    for scenario in &SCENARIOS {
        assert!(!told.contains(scenario.name), "{} is given away", scenario.name);
    }
    let parsed: serde_json::Value =
        serde_saphyr::from_str(&kubeconfig).unwrap_or_else(|error| panic!("{error}"));
    let keys: Vec<&str> = parsed
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, _)| key.as_str())
        .collect();
    let known = [
        "apiVersion",
        "clusters",
        "contexts",
        "current-context",
        "kind",
        "preferences",
        "users",
    ];
    assert!(keys.iter().all(|key| known.contains(key)), "{keys:?}");
}

macro_rules! scenarios {
    ($($test:ident: $name:literal,)*) => {
        $(
            #[test]
            fn $test() {
                holds($name);
            }
        )*

        #[test]
        fn every_scenario_has_a_test() {
            let others = ["validating-hang", "gke-opa-outage", "quiet", "two-culprits"];
            // About the breaker, and played with it.
            let others = [&others[..], &["self-blocked", "leader-lost", "path-lost", "deny-storm"]].concat();
            let tested = [&[$($name),*][..], &others].concat();
            for scenario in &SCENARIOS {
                assert!(tested.contains(&scenario.name), "{} is not played", scenario.name);
            }
        }
    };
}

scenarios! {
    a_slow_hook_is_named: "validating-slow",
    a_hook_that_refuses_connections_is_named: "validating-refused",
    one_bad_backend_of_three_is_seen_and_no_hook_is_blamed: "one-of-three-refused",
    a_hook_that_hangs_and_is_skipped_is_named: "mutating-hang-fail-open",
    a_hook_that_answers_500_is_named: "validating-http-500",
    a_hook_that_answers_nonsense_is_named: "not-an-admission-review",
    a_ca_bundle_that_does_not_fit_is_named: "ca-mismatch",
    an_expired_certificate_is_named: "certificate-expired",
    a_service_without_endpoints_is_named: "no-endpoints",
    a_slow_etcd_is_blamed_on_no_hook: "etcd-slow",
    an_overloaded_api_server_is_blamed_on_no_hook: "read-overload",
    calls_on_connections_to_a_backend_that_vanished_are_told_from_a_hang: "stale-connections",
    calls_skipped_in_rollouts_are_summed_up: "rollout-gap",
    the_loss_of_a_hooks_only_node_is_foreseen: "all-on-one-node",
    a_firewall_before_a_hook_is_told_from_a_hang: "firewalled",
    hooks_whose_failures_are_ignored_block_what_they_keep_past_its_deadline: "ignore-hang",
    each_of_three_hooks_on_one_service_is_named_and_one_that_receives_no_calls_as_well: "mixed-hang",
    short_timeouts_of_ignored_hooks_delay_and_block_nothing: "ignore-default-hang",
    the_first_webhook_of_a_cluster_is_named_though_it_never_was_well: "first-hook-hang",
    two_slow_hooks_that_only_together_pass_a_deadline_are_both_named: "slow-chain",
}
