//! The outage that hookwatch was made after, with the breaker: writes stop, the culprit is bypassed, writes flow, the
//! hook recovers, and every object is what it was.

use std::time::Duration;

use hookwatch::app::demo::{
    BreakerReport, DaemonArguments, DemoOptions, DemoReport, StartingDaemon, Survival, Timing, run,
    start_configured, start_daemon, survive,
};
use hookwatch::app::engine::{Engine, clock};
use hookwatch::domain::act::breaker::HookStanding;
use hookwatch::domain::act::bypass::edit::{Author, Desired, Why};
use hookwatch::domain::act::bypass::{ObjectWriter, Rung, touched};
use hookwatch::domain::act::fence::AutoBreak;
use hookwatch::domain::cluster::hook::{HookId, HookKind};
use hookwatch::domain::report::assessment::Assessment;
use hookwatch::domain::vocabulary::Health;
use hookwatch::io::act::breaker::{ApiServerClient, ConfigWriter, PatchOutcome, RetryPolicy};
use hookwatch::io::report::metrics::Metrics;
use hookwatch::lab::api::{ApiServer, ApiServerOptions};
use hookwatch::lab::backend::Behaviour;
use hookwatch::lab::clients::Casualties;
use hookwatch::lab::cluster::{Cluster, LabHook, client_for};
use hookwatch::lab::control_plane::{BackendReach, ControlPlaneKind};
use hookwatch::lab::directory::PrivateDirectory;
use hookwatch::lab::scenario::by_name;

use crate::engines::{breaking, brief, config};
use crate::schemas;

/// Nobody was lost. How many writes time out depends on how many there were.
fn survives(casualties: Casualties) {
    let lost = Casualties {
        writes_timed_out: 0,
        ..casualties
    };
    assert_eq!(lost, Casualties::default());
}

/// Plays a scenario twice, with the breaker and without it, with a daemon that restores soon.
fn play(scenario: &str, permitted: Rung) -> DemoReport {
    play_with(scenario, permitted, true, soon)
}

/// The same without the run that has no breaker.
fn play_once(scenario: &str, permitted: Rung) -> DemoReport {
    play_with(scenario, permitted, false, soon)
}

/// As [`start_daemon`], with a fraction of the time in which a hook has to be well before it is restored.
fn soon(arguments: DaemonArguments) -> StartingDaemon {
    Box::pin(async {
        let mut config = arguments.config()?;
        config.breaker_times.healthy_for = Duration::from_secs(5);
        config.breaker_times.probation_for = Duration::from_secs(3);
        start_configured(config).await
    })
}

fn play_with(
    scenario: &str,
    permitted: Rung,
    compare: bool,
    start: impl FnMut(DaemonArguments) -> StartingDaemon,
) -> DemoReport {
    // Fails when another test of this file came first, which is as good.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let options = DemoOptions {
        control_plane: ControlPlaneKind::Embedded,
        scenario: by_name(scenario).unwrap(),
        timing: Timing::default(),
        timeline: None,
        colour: false,
        programs: None,
        auto_break: Some(permitted),
        compare,
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let report = runtime.block_on(run(options, start)).unwrap();
    assert!(report.correct, "{:?}\n{report:#?}", report.objections);
    schemas::holds("demo.v1.json", &serde_json::to_value(&report).unwrap());
    let compared = report
        .breaker
        .as_ref()
        .and_then(|breaker| breaker.without_breaker);
    assert!(compare || compared.is_none(), "{report:#?}");
    report
}

/// Without the breaker nothing is written before the fault is removed; with it something is.
fn helps(breaker: &BreakerReport) {
    assert!(breaker.restored && breaker.restored_identical, "{breaker:?}");
    let without = breaker.without_breaker.unwrap();
    let removed = without.fault_removed_after_seconds;
    assert!(
        without
            .first_write_after_seconds
            .is_none_or(|first| first >= removed),
        "{breaker:?}"
    );
    assert!(
        breaker
            .first_write_after_seconds
            .is_some_and(|first| first < removed),
        "{breaker:?}"
    );
}

/// With the times that a daemon has by default.
#[test]
fn without_a_rule_the_hook_is_shielded_and_put_back_to_the_byte() {
    let report = play_with("gke-opa-outage", Rung::Shield, true, start_daemon);
    survives(report.casualties);
    let breaker = report.breaker.unwrap();
    let without = breaker.without_breaker.unwrap().casualties;
    assert!(
        without.leaders_lost >= 1 && without.node_leases_expired >= 1 && without.servers_not_started == 1,
        "{without:?}"
    );
    assert_eq!(breaker.rung.as_deref(), Some("shield"));
    // The control plane's own writes flow, and nobody else's.
    assert_eq!(breaker.flowing, ["kube-node-lease", "kube-system"]);
    assert_eq!(breaker.waiting, ["team-a", "team-b"]);
    helps(&breaker);
}

#[test]
fn where_the_policy_permits_it_the_hook_is_skipped_and_comes_back_over_probation() {
    let report = play_once("gke-opa-outage", Rung::Skip);
    survives(report.casualties);
    let breaker = report.breaker.unwrap();
    // Before the fault was removed: what goes through later counts for nothing.
    assert!(breaker.first_write_after_seconds.is_some(), "{breaker:?}");
    assert!(breaker.restored && breaker.restored_identical, "{breaker:?}");
    assert_eq!(breaker.rung.as_deref(), Some("skip"));
    let everybody = ["kube-node-lease", "kube-system", "team-a", "team-b"];
    assert_eq!(breaker.flowing, everybody);
    assert_eq!(breaker.waiting, [""; 0]);
}

/// Two hooks on one Service whose failures are ignored: nothing is refused, and clients that wait less than 20 s are lost.
#[test]
fn ignored_hooks_that_hang_are_shielded_before_a_leader_is_lost() {
    let report = play("ignore-hang", Rung::Shield);
    survives(report.casualties);
    let breaker = report.breaker.unwrap();
    let without = breaker.without_breaker.unwrap().casualties;
    assert!(
        without.leaders_lost >= 1 && without.node_leases_expired >= 1,
        "{without:?}"
    );
    // Without a rule tenants go on waiting.
    assert_eq!(breaker.rung.as_deref(), Some("shield"));
    assert_eq!(breaker.waiting, ["team-a", "team-b"]);
    assert!(breaker.restored && breaker.restored_identical, "{breaker:?}");
}

/// Every write passes them unreviewed already; the skip takes the wait off, and ends with their first answer.
#[test]
fn ignored_hooks_that_are_dead_are_skipped_by_a_rule_that_names_them_and_tenants_have_their_time_back() {
    let report = play_once("ignore-hang", Rung::Skip);
    survives(report.casualties);
    let breaker = report.breaker.unwrap();
    assert_eq!(breaker.rung.as_deref(), Some("skip"));
    assert_eq!(breaker.waiting, [""; 0], "{breaker:?}");
    // 20 s are thousands of times what a write takes; the skip leaves twice that, and a busy machine adds to it.
    let times = breaker.writes_take_times_usual.unwrap();
    assert!(times < 100.0, "{breaker:?}");
    // Not by its restore, which waits until all backends have answered for some time.
    let again = breaker.asked_again_after_seconds.unwrap();
    println!("    writes take {times} times as long as usual; asked again {again} s after the recovery");
    assert!(breaker.restored && breaker.restored_identical, "{breaker:?}");
}

/// The calls to the first time out after 10 s; the second would be shielded after that.
#[test]
fn ignored_hooks_of_two_services_that_fall_silent_together_are_shielded_before_a_leader_is_lost() {
    let report = play_once("two-services-hang", Rung::Shield);
    survives(report.casualties);
    let breaker = report.breaker.unwrap();
    assert_eq!(breaker.rung.as_deref(), Some("shield"));
    assert!(breaker.restored && breaker.restored_identical, "{breaker:?}");
}

/// One is ignored, one is not, and one receives no calls: that one is left alone.
#[test]
fn hooks_of_one_service_are_shielded_each_for_itself_before_a_leader_is_lost() {
    let report = play_once("mixed-hang", Rung::Shield);
    survives(report.casualties);
    let breaker = report.breaker.unwrap();
    assert!(
        breaker.held_back.contains_key(LabHook::Quota.webhook()),
        "{breaker:?}"
    );
    assert!(breaker.restored && breaker.restored_identical, "{breaker:?}");
}

/// The replica that is left does not lead, and nobody leads soon enough.
#[test]
fn a_replica_that_does_not_lead_shields_before_a_leader_of_the_control_plane_is_lost() {
    let report = play("leader-lost", Rung::Shield);
    survives(report.casualties);
    helps(&report.breaker.unwrap());
}

/// Three Services, one path: a canary that waits for all of them speaks against each.
#[test]
fn webhooks_whose_path_is_lost_are_shielded_as_one_before_a_leader_is_lost() {
    let report = play("path-lost", Rung::Shield);
    survives(report.casualties);
    let breaker = report.breaker.unwrap();
    assert!(breaker.restored && breaker.restored_identical, "{breaker:?}");
    helps(&breaker);
}

/// Its Pods cannot be made for as long as it is asked about them; its owner lets a shield spare them.
#[test]
fn a_hook_that_blocks_its_own_pods_comes_back_by_itself_under_its_shield() {
    let report = play("self-blocked", Rung::Shield);
    survives(report.casualties);
    let breaker = report.breaker.unwrap();
    assert!(breaker.restored && breaker.restored_identical, "{breaker:?}");
    // Tenants' writes flow again because the hook does, and without a shield it never would.
    assert!(
        breaker.flowing.iter().any(|namespace| namespace == "team-a"),
        "{breaker:?}"
    );
    helps(&breaker);
}

/// Longer than leaders (10 to 12 s) survive an outage that nothing is done about.
const LASTING: Duration = Duration::from_secs(15);

/// Plays an outage with the breaker: all culprits are named, no innocent is shielded, and nothing is lost.
fn nothing_is_lost(scenario: &str) -> Survival {
    let survival = lasts(scenario);
    survives(survival.casualties);
    assert!(survival.verdict_after_seconds.is_some(), "{survival:?}");
    survival
}

/// Plays an outage with the breaker: no innocent is shielded.
fn lasts(scenario: &str) -> Survival {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let scenario = by_name(scenario).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let playing = survive(
        ControlPlaneKind::Embedded,
        scenario,
        (Timing::default(), LASTING),
        Some(Rung::Shield),
        start_daemon,
    );
    let survival = runtime.block_on(playing).unwrap();
    assert_eq!(survival.innocents_bypassed, [""; 0], "{survival:?}");
    survival
}

macro_rules! outages_that_cost_nothing {
    ($($test:ident: $name:literal,)*) => {
        $(
            #[test]
            fn $test() {
                let survival = nothing_is_lost($name);
                assert!(survival.bypassed_after_seconds.is_some(), "{survival:?}");
            }
        )*
    };
}

// More of the survival table.
outages_that_cost_nothing! {
    nothing_is_lost_to_ignored_hooks_with_short_timeouts: "ignore-default-hang",
    nothing_is_lost_to_the_first_webhook_of_a_cluster: "first-hook-hang",
    nothing_is_lost_where_users_write_next_to_nothing: "hang-quiet-cluster",
    nothing_is_lost_to_twelve_webhooks_of_one_service: "many-webhooks-hang",
    nothing_is_lost_to_a_hook_that_refuses_connections: "validating-refused",
    nothing_is_lost_to_a_hook_that_resets_connections: "connections-reset",
    nothing_is_lost_to_an_expired_certificate: "certificate-expired",
    nothing_is_lost_to_a_hook_that_takes_4_s: "slow-4s",
    nothing_is_lost_to_a_hook_that_takes_6_s: "slow-6s",
}

/// What is lost is not looked at: the shield comes so closely before a leader is lost that a busy machine would decide.
#[test]
fn webhooks_that_pass_a_deadline_only_together_are_shielded() {
    let survival = lasts("slow-chain");
    assert!(survival.bypassed_after_seconds.is_some(), "{survival:?}");
}

/// Every other call is answered at once, so that the breaker may take its time.
#[test]
fn nothing_is_lost_to_a_hook_of_which_one_backend_hangs() {
    nothing_is_lost("one-of-two-hung");
}

/// The hook works; that it says no is no fault.
#[test]
fn a_hook_that_denies_everything_is_not_bypassed() {
    let breaker = play("deny-storm", Rung::Skip).breaker.unwrap();
    assert_eq!((breaker.rung, breaker.without_breaker), (None, None));
    assert!(breaker.restored && breaker.restored_identical);
}

/// What another daemon did before it was killed, or a person: nothing is known of it but what stands on the object.
#[test]
fn a_bypass_that_is_found_at_the_start_is_brought_back_when_its_hook_is_well() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let server = ApiServer::start(ApiServerOptions::default()).await.unwrap();
        let kubeconfig = server.kubeconfig();
        let _cluster = Cluster::start(&kubeconfig, BackendReach::Loopback).await.unwrap();
        let client = client_for(&kubeconfig).await.unwrap();
        let writer = ConfigWriter::new(
            vec![ApiServerClient::new("lab", client, true)],
            clock(),
            RetryPolicy::default(),
        );
        let opa = LabHook::Opa;
        let hook = HookId::new(opa.kind(), opa.configuration(), opa.webhook());
        let read = async || {
            let object = writer.read(hook.kind, &hook.configuration).await.unwrap();
            object.unwrap()
        };
        let original = read().await["webhooks"].to_string();
        let author = Author {
            namespace: "hookwatch".to_owned(),
            account: "system:serviceaccount:hookwatch:hookwatch".to_owned(),
            writer: ObjectWriter {
                identity: "one that was killed".to_owned(),
                version: "0.0.1".to_owned(),
            },
            match_conditions: true,
            fenced: true,
        };
        let why = Why {
            reason: "It hung.".to_owned(),
            evidence: Vec::new(),
            expires: None,
        };
        let desired = Desired::Bypass {
            rung: Rung::Shield,
            why,
        };
        let report = writer.carry_out(&hook, &desired, &author).await;
        assert_eq!(report.outcome, PatchOutcome::Applied);

        let directory = PrivateDirectory::create().unwrap();
        let kubeconfig = directory.write("kubeconfig", &kubeconfig).unwrap();
        let mut config = breaking(&kubeconfig, &[Rung::Shield]);
        config.without_fence = true;
        config.breaker_times = brief();
        let engine = Engine::start(&config).await.unwrap();
        let back = async {
            while !touched(&read().await).is_empty() {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        let back = tokio::time::timeout(Duration::from_secs(180), back).await;
        let last = engine.shown.assessment.borrow().clone();
        assert!(back.is_ok(), "{:#?}", last.map(|last| last.breaker.clone()));
        assert_eq!(read().await["webhooks"].to_string(), original);
        engine.stop().await;
    });
}

#[test]
fn with_plan_it_is_said_what_would_be_done_and_nothing_is_touched() {
    let would_bypass = |it: &HookStanding| it.would_bypass == Some(Rung::Shield);
    touches_nothing(
        AutoBreak::Plan,
        would_bypass,
        "hookwatch_breaker_would_bypass{rung=\"shield\"} 1",
    );
}

#[test]
fn with_on_and_no_proven_fence_the_hook_is_held_back_for_that_and_nothing_is_touched() {
    let held_back = |it: &HookStanding| it.held_back.as_deref() == Some("fence");
    touches_nothing(
        AutoBreak::On,
        held_back,
        "hookwatch_breaker_held_back{reason=\"fence\"} 1",
    );
}

/// On a control plane without the policy that fences hookwatch's account.
fn touches_nothing(wanted: AutoBreak, is_said: impl Fn(&HookStanding) -> bool, line: &str) {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let server = ApiServer::start(ApiServerOptions::default()).await.unwrap();
        let kubeconfig = server.kubeconfig();
        let cluster = Cluster::start(&kubeconfig, BackendReach::Loopback).await.unwrap();
        let directory = PrivateDirectory::create().unwrap();
        let mut config = config(&directory.write("kubeconfig", &kubeconfig).unwrap(), "");
        config.auto_break = wanted;
        // Who leads is written down in the ledger while the Lease cannot be.
        config.leadership.enabled = false;
        let engine = Engine::start(&config).await.unwrap();
        let mut assessment = engine.shown.assessment.clone();
        let mut until = async |what: &str, holds: &dyn Fn(&Assessment) -> bool| {
            let found = assessment.wait_for(|it| it.as_ref().is_some_and(|it| holds(it)));
            let found = tokio::time::timeout(Duration::from_secs(60), found).await;
            found
                .unwrap_or_else(|_| panic!("not in time: {what}"))
                .unwrap()
                .clone()
        };
        until("every hook is well", &|it| {
            let well = it.hooks.iter().filter(|hook| hook.health == Health::Healthy);
            well.count() == LabHook::ALL.len()
        })
        .await;
        let opa = LabHook::Opa;
        cluster
            .behave(opa, opa.backends(), &Behaviour::HangAfterTls)
            .await
            .unwrap();
        let said = until("it is said of the hook", &|it| {
            it.breaker.hooks.iter().any(&is_said)
        })
        .await;
        let said = said.unwrap();
        assert_eq!(said.breaker.hooks.len(), 1, "{:#?}", said.breaker);
        let modes = (said.breaker.wanted, said.breaker.effective);
        assert_eq!(modes, (wanted, AutoBreak::Plan), "{}", said.breaker.why);
        let metrics = Metrics::text(&engine.shown.metrics.families(Some(&said), &[])).unwrap();
        let metrics = String::from_utf8(metrics).unwrap();
        assert!(metrics.contains(line));
        let client = client_for(&kubeconfig).await.unwrap();
        let writer = ConfigWriter::new(
            vec![ApiServerClient::new("lab", client, true)],
            clock(),
            RetryPolicy::default(),
        );
        for kind in [HookKind::Validating, HookKind::Mutating] {
            for object in writer.list(kind).await.unwrap() {
                assert!(touched(&object).is_empty(), "{object}");
                assert_ne!(
                    object["metadata"]["name"], "hookwatch-ledger",
                    "nothing is written"
                );
            }
        }
        engine.stop().await;
    });
}
