mod delivery;
mod tracker;

use super::*;
use crate::act::leadership::{LeadershipObject, ReplicaRole, ReplicaStanding, ReplicaView, Undecided};
use crate::audit::findings::{CONTROL_PLANE_IN_REACH, KINDS};
use crate::audit::periodic::{AuditResult, PublishedFindings};
use crate::diagnose::verdict::{BypassByHand, NonHookCause};
use crate::observe::views::{ScrapeView, StoredView};
use crate::vocabulary::{Effect, NotAHook};
use crate::watchdog::{Event, Watchdog, WatchdogEffect};

const PACE: DeliveryPace = DeliveryPace {
    resend: Duration::from_secs(30),
    timeout: Duration::from_secs(10),
};

fn at(seconds: u64) -> Time {
    Time::from_unix_millis(1_795_219_862_000 + seconds * 1_000)
}

/// An assessment by the core itself, with nothing wrong.
pub(super) fn calm(now: Time) -> Assessment {
    let effects = Watchdog::new("hookwatch").handle(Event::Tick, now);
    let published = effects.into_iter().find_map(|effect| match effect {
        WatchdogEffect::Publish(assessment, _) => Some(Assessment::clone(&assessment)),
        _ => None,
    });
    let mut assessment = published.expect("a tick makes an assessment");
    assessment.sources.inventory_age_seconds = Some(0.0);
    assessment.control_plane.writes = Writes::Flowing;
    assessment
}

pub(in crate::report) fn verdict(webhook: &str, health: Health, cause: Cause, effect: Effect) -> Verdict {
    Verdict {
        kind: HookKind::Validating,
        configuration: Some("policy".into()),
        webhook: webhook.into(),
        incident: "policy/policy:443".to_owned(),
        health,
        cause: Some(cause),
        effect,
        confidence: 0.9,
        canaries: Vec::new(),
        bypass: None,
        by_hand: None,
        webhook_confidence: 0.9,
        rule: "no-data",
        needs_shield: false,
        fails_open: false,
        excess_share: None,
        since: None,
        summary: "It does not answer.".to_owned(),
        evidence: vec!["A canary named it.".to_owned()],
        advice: Some(cause.advice()),
        backends: Vec::new(),
    }
}

fn with(hooks: Vec<Verdict>) -> Assessment {
    let mut assessment = calm(at(0));
    assessment.hooks = hooks;
    assessment
}

fn names(conditions: &[AlertCondition]) -> Vec<(&'static str, &'static str)> {
    let name = |it: &AlertCondition| (it.rule.alert, it.rule.severity.as_str());
    conditions.iter().map(name).collect()
}

fn hanging(webhook: &str) -> Assessment {
    with(vec![verdict(
        webhook,
        Health::Failing,
        Cause::Hanging,
        Effect::Blocking,
    )])
}

fn look(tracker: &mut Tracker, assessment: &Assessment, now: u64) -> Board {
    // The core makes a new assessment at every tick.
    let mut assessment = assessment.clone();
    assessment.at = at(now);
    tracker.look(conditions(&assessment, &[], at(now)), at(now))
}

#[test]
fn nothing_is_on_while_nothing_is_wrong() {
    assert_eq!(conditions(&calm(at(0)), &[], at(0)), []);
}

#[test]
fn a_hook_that_blocks_is_told_with_the_labels_of_the_rule_and_the_words_of_the_verdict() {
    let found = conditions(&hanging("w.example.com"), &[], at(0));
    assert_eq!(names(&found), [("HookwatchHookFailing", "critical")]);
    let labels: Vec<_> = found[0]
        .labels
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    assert_eq!(
        labels,
        [
            "alertname=HookwatchHookFailing",
            "effect=Blocking",
            "incident=policy/policy:443",
            "severity=critical",
            "source=hookwatch"
        ]
    );
    assert_eq!(
        found[0].summary,
        "The validating webhook \"w.example.com\" is Hanging. It does not answer."
    );
    for part in ["\"policy\"", "A canary named it.", "Restart the webhook's server"] {
        assert!(found[0].description.contains(part), "{}", found[0].description);
    }
}

fn told_with_command(command: &str, webhooks: &[&str]) -> String {
    let failing = |webhook: &&str| {
        let mut failing = verdict(webhook, Health::Failing, Cause::Hanging, Effect::Blocking);
        failing.evidence = vec!["Its backend does not answer. ".repeat(20); 3];
        failing.by_hand = Some(BypassByHand {
            command: command.to_owned(),
            meaning: "It shields the webhook.".to_owned(),
            shared_with: None,
        });
        failing
    };
    let found = conditions(&with(webhooks.iter().map(failing).collect()), &[], at(0));
    found[0].description.clone()
}

#[test]
fn the_command_is_told_whole_before_all_evidence_and_a_cut_is_marked() {
    let command = format!("hookwatch break policy/{} --reason TEXT", "w".repeat(300));
    let names: Vec<String> = (0..60).map(|n| format!("w{n}.example.com")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for webhooks in [&names[..1], &names] {
        let told = told_with_command(&command, webhooks);
        let remedy = format!("To bypass it: {command}. It shields the webhook. ");
        assert!(told.contains(&remedy), "{told}");
        assert!(told.ends_with('…') && told.len() <= MAX_MESSAGE, "{told}");
    }
}

#[test]
fn a_command_that_is_too_long_to_be_told_whole_is_not_told_at_all() {
    let command = format!("hookwatch break {}--reason TEXT", "policy/w ".repeat(50));
    let told = told_with_command(&command, &["w"]);
    assert!(
        told.contains("To bypass it: `hookwatch diagnose` prints the command. "),
        "{told}"
    );
    assert!(!told.contains("hookwatch break"), "{told}");
}

#[test]
fn webhooks_that_fail_at_one_place_are_one_alert_that_names_them_all() {
    let failing = |webhook, effect| verdict(webhook, Health::Failing, Cause::Hanging, effect);
    let elsewhere = Verdict {
        incident: "quota/quota:443".to_owned(),
        ..failing("limits.example.org", Effect::Blocking)
    };
    let both = [
        failing("a.example.com", Effect::Blocking),
        failing("b.example.com", Effect::Blocking),
    ];
    let found = conditions(&with([both.to_vec(), vec![elsewhere]].concat()), &[], at(0));
    assert_eq!(
        names(&found),
        [
            ("HookwatchHookFailing", "critical"),
            ("HookwatchHookFailing", "critical")
        ]
    );
    assert_eq!(
        found[0].summary,
        "2 webhooks fail together (policy/policy:443). The validating webhook \"a.example.com\" is Hanging."
    );
    for name in ["a.example.com", "b.example.com"] {
        assert!(found[0].description.contains(name), "{}", found[0].description);
        assert!(!found[1].description.contains(name), "{}", found[1].description);
    }
    assert_eq!(found[1].labels["incident"], "quota/quota:443");
}

#[test]
fn each_rule_finds_what_it_is_for_and_nothing_else() {
    let failing = |effect| verdict("w", Health::Failing, Cause::Slow, effect);
    let suspect = |cause| verdict("w", Health::Suspect, cause, Effect::None);
    let of_kind = |kind| Verdict {
        kind,
        ..failing(Effect::Blocking)
    };
    let open = Verdict {
        fails_open: true,
        ..failing(Effect::FailingOpen)
    };
    for (verdict, expected) in [
        (
            failing(Effect::Blocking),
            vec![("HookwatchHookFailing", "critical")],
        ),
        (
            failing(Effect::Delaying),
            vec![("HookwatchHookFailing", "warning")],
        ),
        (open, vec![("HookwatchHookFailingOpen", "warning")]),
        (failing(Effect::None), vec![]),
        (suspect(Cause::Slow), vec![("HookwatchHookAtRisk", "info")]),
        (suspect(Cause::Partial), vec![("HookwatchHookAtRisk", "warning")]),
        (
            suspect(Cause::TlsInvalid),
            vec![("HookwatchHookCertificate", "warning")],
        ),
        (suspect(Cause::Denying), vec![]),
        (suspect(Cause::RolloutGap), vec![]),
        (
            of_kind(HookKind::Conversion),
            vec![("HookwatchApiFailing", "warning")],
        ),
        (
            of_kind(HookKind::Aggregated),
            vec![("HookwatchApiFailing", "warning")],
        ),
    ] {
        let told = format!("{:?} {:?} {:?}", verdict.kind, verdict.health, verdict.effect);
        assert_eq!(
            names(&conditions(&with(vec![verdict]), &[], at(0))),
            expected,
            "{told}"
        );
    }
}

#[test]
fn blocked_writes_name_the_culprit_and_what_is_no_hook_is_told_as_such() {
    let mut assessment = hanging("w.example.com");
    assessment.control_plane.writes = Writes::Blocked;
    assessment.control_plane.not_a_hook = Some(NonHookCause {
        cause: NotAHook::EtcdSlow,
        confidence: 0.9,
        evidence: vec!["etcd takes 3 s.".to_owned()],
    });
    let found = conditions(&assessment, &[], at(0));
    assert_eq!(
        names(&found),
        [
            ("HookwatchWritesBlocked", "critical"),
            ("HookwatchNotAHook", "critical"),
            ("HookwatchHookFailing", "critical")
        ]
    );
    assert!(found[0].description.contains("w.example.com"));
    assert_eq!(found[0].labels["state"], "blocked");
    assert!(found[1].summary.contains("EtcdSlow"), "{}", found[1].summary);
    let cause = found[1].labels.get("cause");
    assert_eq!(cause, None, "another cause would be another alert");
    assert!(found[1].description.contains("etcd takes 3 s."));
    assessment.control_plane.writes = Writes::Delayed;
    assert_eq!(
        names(&conditions(&assessment, &[], at(0)))[..2],
        [
            ("HookwatchWritesDelayed", "warning"),
            ("HookwatchNotAHook", "warning")
        ]
    );
}

#[test]
fn a_certificate_is_told_of_in_two_steps_and_when_it_has_ended() {
    let id = HookId::new(HookKind::Mutating, "c", "w");
    let (day, now) = (86_400, at(0));
    for (end, expected) in [
        (at(15 * day), None),
        (at(13 * day), Some("warning")),
        (at(day), Some("critical")),
        (now.before(Duration::from_secs(60)), Some("critical")),
    ] {
        let found = conditions(&calm(now), &[(id.clone(), "ca", end)], now);
        let severities: Vec<_> = names(&found).into_iter().map(|(_, severity)| severity).collect();
        assert_eq!(severities, expected.into_iter().collect::<Vec<_>>(), "{end}");
        assert!(found.iter().all(|it| it.labels["certificate"] == "ca"));
    }
}

#[test]
fn blindness_and_a_missing_leader_are_told() {
    let missing = |assessment: &Assessment, now| {
        let found = conditions(assessment, &[], now);
        let label = |it: &AlertCondition| it.labels.get("missing").cloned().unwrap_or_default();
        found.iter().map(label).collect::<Vec<_>>()
    };
    let mut assessment = calm(at(0));
    assert_eq!(missing(&assessment, at(59)), Vec::<String>::new());
    assert_eq!(missing(&assessment, at(61)), ["inventory"]);
    assessment.sources.inventory_age_seconds = None;
    assert_eq!(missing(&assessment, at(0)), ["inventory"]);
    assessment.sources.inventory_age_seconds = Some(1.0);
    assessment.sources.self_doubt = true;
    assessment.control_plane.writes = Writes::Unknown;
    assert_eq!(missing(&assessment, at(0)), ["answers", "answers"]);
    assessment.hooks = vec![verdict("w", Health::Suspect, Cause::Slow, Effect::None)];
    assert_eq!(missing(&assessment, at(0)), ["answers", "answers"]);

    let mut assessment = calm(at(0));
    let scrape = |age, failure: Option<&str>| ScrapeView {
        target: "a:1".to_owned(),
        replicas: 1,
        age_seconds: age,
        failure: failure.map(str::to_owned),
        failing_since: None,
        silent: Vec::new(),
        version: None,
        readiness: Default::default(),
        missing: Vec::new(),
    };
    for (scrapes, expected) in [
        (vec![scrape(Some(3.0), None)], vec![]),
        (vec![scrape(Some(200.0), Some("timeout"))], vec![]),
        (vec![scrape(Some(301.0), Some("timeout"))], vec!["scrapes"]),
        (vec![scrape(None, Some("timeout"))], vec!["scrapes"]),
        (vec![scrape(None, None)], vec![]),
        (vec![scrape(None, Some("x")), scrape(Some(1.0), None)], vec![]),
    ] {
        assessment.sources.scrapes = scrapes;
        assert_eq!(missing(&assessment, at(0)), expected);
    }

    let mut assessment = calm(at(0));
    for (role, expected) in [
        (ReplicaRole::Unknown, vec!["leader"]),
        (ReplicaRole::Follower, vec![]),
        (ReplicaRole::Leader, vec![]),
    ] {
        assessment.replica = Some(ReplicaView {
            identity: "a".into(),
            role,
            holder: None,
            by: None,
            since: at(0),
            trouble: None,
        });
        assert_eq!(missing(&assessment, at(0)), expected, "{role:?}");
    }
}

#[test]
fn nothing_is_missed_of_scrapes_while_a_prometheus_stands_in_and_something_is_once_it_does_not() {
    let stored = |used, failure: Option<&str>| StoredView {
        source: "https://p.example.com".to_owned(),
        used,
        api_servers: 1,
        age_seconds: Some(20.0),
        resolution_seconds: Some(30.0),
        failure: failure.map(str::to_owned),
        failing_since: None,
        missing: Vec::new(),
    };
    let forbidden = ScrapeView {
        target: "a:1".to_owned(),
        replicas: 1,
        age_seconds: None,
        failure: Some("forbidden".to_owned()),
        failing_since: None,
        silent: Vec::new(),
        version: None,
        readiness: Default::default(),
        missing: Vec::new(),
    };
    let good = ScrapeView {
        age_seconds: Some(1.0),
        failure: None,
        ..forbidden.clone()
    };
    for (scrapes, prometheus, expected) in [
        (
            vec![forbidden.clone()],
            None,
            Some("The last scrape failed: forbidden"),
        ),
        (vec![forbidden.clone()], Some(stored(true, None)), None),
        (vec![], Some(stored(true, None)), None),
        (vec![], None, None),
        (
            vec![],
            Some(stored(false, Some("timeout"))),
            Some("does not stand in: timeout"),
        ),
        (vec![], Some(stored(false, None)), Some("no new scrapes")),
        (
            vec![forbidden],
            Some(stored(false, None)),
            Some("The last scrape failed: forbidden"),
        ),
        (vec![good], Some(stored(false, Some("timeout"))), None),
    ] {
        let mut assessment = calm(at(0));
        assessment.sources.scrapes = scrapes;
        assessment.sources.prometheus = prometheus;
        let found = conditions(&assessment, &[], at(0));
        let told = found.first().map(|it| it.description.as_str());
        assert_eq!(told.is_some(), expected.is_some(), "{told:?} {expected:?}");
        assert!(
            told.unwrap_or_default().contains(expected.unwrap_or_default()),
            "{told:?}"
        );
    }
}

/// What is pushed while the audit has found this, as bad as it can be.
fn pushed(kind: &'static FindingKind, since: Option<Time>) -> Vec<AlertCondition> {
    let id = HookId::new(HookKind::Validating, "policy", "w");
    let finding = Finding {
        hook: Some(id),
        since,
        ..Finding::new(
            kind,
            "ValidatingWebhookConfiguration/policy/w".to_owned(),
            "All of it is on one node.",
        )
    };
    let audited = AuditResult {
        at: at(0),
        took: Duration::ZERO,
        findings: vec![finding],
    };
    let mut assessment = with(Vec::new());
    assessment.audit = Arc::new(PublishedFindings::of(audited));
    conditions(&assessment, &[], at(50))
}

#[test]
fn where_its_pods_are_and_whom_it_tells_apart_is_told_of_a_hook_that_is_well() {
    for (kind, severity) in [
        (NODES_GOING, "warning"),
        (ONE_NODE, "info"),
        (TELLS_APART, "info"),
    ] {
        let found = pushed(kind, None);
        assert_eq!(names(&found), [("HookwatchHookAtRisk", severity)]);
        assert_eq!(found[0].labels["risk"], kind.id);
        assert_eq!(found[0].description, "All of it is on one node.");
    }
}

#[test]
fn a_critical_finding_is_told_while_it_is_new_and_nothing_else_tells_it() {
    let found = pushed(CONTROL_PLANE_IN_REACH, Some(at(20)));
    assert_eq!(names(&found), [("HookwatchCriticalFinding", "warning")]);
    assert_eq!(found[0].labels["risk"], "control-plane-in-reach");
    assert_eq!(found[0].labels["webhook"], "w");
    assert_eq!(
        pushed(CONTROL_PLANE_IN_REACH, None),
        [],
        "it was there when hookwatch began"
    );
    let long_ago = at(50).before(NEW);
    assert_eq!(pushed(CONTROL_PLANE_IN_REACH, Some(long_ago)), []);
    for kind in KINDS
        .iter()
        .filter(|kind| kind.severity != findings::FindingSeverity::Critical)
    {
        let told = pushed(kind, Some(at(20)));
        assert!(
            told.iter().all(|told| told.rule.alert == "HookwatchHookAtRisk"),
            "{}",
            kind.id
        );
    }
}

#[test]
fn hostile_names_stay_labels_and_do_not_turn_a_page_around() {
    let hostile = "<script>\"x\"\n\u{202e}evil\\{{ .Labels }}";
    let mut assessment = hanging(hostile);
    assessment.hooks[0].configuration = None;
    assessment.hooks[0].incident = hostile.to_owned();
    assessment.hooks[0].evidence = vec!["\u{202e}boom\n\r\u{0}".repeat(500)];
    let found = conditions(&assessment, &[], at(0));
    assert_eq!(
        found[0].labels["incident"], hostile,
        "a label is what Prometheus has"
    );
    for text in [&found[0].summary, &found[0].description] {
        assert!(
            text.len() <= 1_024 && !text.contains(['\n', '\u{202e}', '\0']),
            "{text:?}"
        );
    }
    let mut endless = hanging("w");
    endless.hooks[0].incident = "\u{1F4A5}".repeat(1_000);
    assert!(conditions(&endless, &[], at(0))[0].labels["incident"].len() <= 1_024);
}

#[test]
fn no_label_is_one_that_an_operator_may_set() {
    let mut assessment = hanging("w");
    assessment.control_plane.writes = Writes::Unknown;
    let certificates = [(HookId::new(HookKind::Mutating, "c", "w"), "ca", at(0))];
    for condition in conditions(&assessment, &certificates, at(0)) {
        assert!(condition.labels.keys().all(|name| LABELS.contains(name)));
    }
}
