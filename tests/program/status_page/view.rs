//! The page as a function of what is published: nothing is served here.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use hookwatch::domain::act::fence::{AutoBreak, BreakerView};
use hookwatch::domain::act::leadership::ReplicaRole;
use hookwatch::domain::audit::findings::{CONTROL_PLANE_IN_REACH, NODES_GOING, ONE_NODE};
use hookwatch::domain::cluster::condition::BypassCondition;
use hookwatch::domain::observe::views::Sources;
use hookwatch::domain::report::assessment::Assessment;
use hookwatch::domain::vocabulary::{Health, Writes};
use hookwatch::domain::watchdog::LoggedChange;
use hookwatch::io::report::page::past::{MarkKind, Past};
use hookwatch::io::report::page::{Model, document};

use super::fixture::{self, NASTY, backend, failing, healthy, many, model, nasty, recorded};

/// What a page may weigh, in bytes.
const HEAVIEST: usize = 200_000;

fn page(model: &Model) -> String {
    document(&Model::fragment(Some(model)), None)
}

/// As text stands in markup.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[test]
fn whatever_the_cluster_calls_things_is_text_on_the_page() {
    let page = page(&model(nasty(), 8));
    assert_eq!(page.matches("<script").count(), 1, "one script, our own");
    assert_eq!(page.matches("<style").count(), 1);
    for dangerous in ["<img", "<svg onload", "javascript:", "\u{202e}", "\u{2066}"] {
        assert!(!page.contains(dangerous), "{dangerous:?} got into the page");
    }
    for name in NASTY {
        let shown = name.replace(['\u{202e}', '\u{2066}'], "\u{fffd}");
        assert!(
            page.contains(&format!("<bdi>{}</bdi>", escaped(&shown))),
            "{name}"
        );
    }
}

#[test]
fn the_page_asks_for_nothing_but_itself() {
    let page = page(&model(many(500, 3), 8));
    let body = page.split("<style>").nth(1).unwrap();
    for outside in ["http://", "https://", " src=", "url(", "@import", " style="] {
        assert!(!body.contains(outside), "{outside:?} is on the page");
    }
}

#[test]
fn everything_that_diagnose_says_of_a_culprit_is_on_the_page_without_a_script() {
    let assessment = fixture::with(fixture::culprits("validating-hang"));
    let page = page(&model(assessment.clone(), 2));
    let has = |text: &str| assert!(page.contains(&escaped(text)), "{text:?} is not on the page");
    has(&assessment.control_plane.summary);
    let mut culprits = 0;
    for verdict in &assessment.hooks {
        has(&verdict.webhook);
        has(&verdict.summary);
        verdict.evidence.iter().for_each(|said| has(said));
        verdict.advice.iter().for_each(|said| has(said));
        culprits += usize::from(verdict.health == Health::Failing);
    }
    assert!(culprits > 0, "the recording has a culprit");
    assert!(
        page.contains("<details class=\"hook failing\""),
        "a culprit's row can be opened"
    );
    assert!(
        page.contains("<noscript><meta http-equiv=\"refresh\""),
        "and the page loads anew by itself"
    );
}

#[test]
fn what_the_audit_found_is_on_the_page_with_the_change_that_helps_and_folded_in_an_outage() {
    let findings = || {
        let going = fixture::finding(NODES_GOING, "a", "Both ready endpoints are on node \"x\".");
        let one = fixture::finding(ONE_NODE, "b", "All 3 are on one node.");
        fixture::found([one, going].into_iter())
    };
    let mut calm = fixture::with(vec![healthy("a"), healthy("b")]);
    calm.audit = findings();
    let shown = page(&model(calm, 2));
    let (first, second) = (shown.find(NODES_GOING.title), shown.find(ONE_NODE.title));
    assert!(first.is_some() && first < second, "the critical one first");
    for part in [
        "1 critical, 1 warning",
        "Both ready endpoints are on node",
        "kubectl patch validatingwebhookconfiguration a-configuration --type json",
        "id=\"audit\" open",
    ] {
        assert!(shown.contains(part), "{part:?} is not on the page");
    }
    let mut outage = fixture::with(vec![failing("a", recorded("quiet").at), healthy("b")]);
    outage.audit = findings();
    let shown = page(&model(outage, 2));
    assert!(shown.contains("id=\"audit\"") && !shown.contains("id=\"audit\" open"));
    let none = page(&model(fixture::with(vec![healthy("a")]), 2));
    assert!(!none.contains("id=\"audit\""));
}

#[test]
fn with_five_hundred_hooks_every_name_is_on_a_page_of_less_than_200_kb() {
    let page = page(&model(many(500, 3), 8));
    assert!(page.len() < HEAVIEST, "{} bytes", page.len());
    for number in 0..500 {
        assert!(
            page.contains(&format!("policy-{number:04}.validate.example.com")),
            "{number}"
        );
    }
    assert!(page.contains("<b>497 healthy</b>"));
}

#[test]
fn however_much_is_wrong_the_page_stays_below_200_kb_and_says_what_it_leaves_out() {
    let mut assessment = many(10_000, 9_000);
    let long = "\"<&>\" ".repeat(2_000);
    for verdict in assessment.hooks.iter_mut().take(50) {
        verdict.evidence = vec![long.clone(); 100];
        let view = verdict.backends[0].clone();
        verdict.backends = (0..1_000)
            .map(|number| hookwatch::domain::diagnose::verdict::BackendView {
                backend: backend(number),
                detail: long.clone(),
                ..view.clone()
            })
            .collect();
    }
    let findings = assessment.hooks.iter().flat_map(|verdict| {
        [CONTROL_PLANE_IN_REACH, NODES_GOING].map(|kind| fixture::finding(kind, &verdict.webhook, &long))
    });
    assessment.audit = fixture::found(findings);
    let plane = &mut assessment.control_plane;
    plane.summary.clone_from(&long);
    plane.symptoms = vec![long.clone(); 1_000];
    plane.clocks = vec![long.clone(); 1_000];
    plane
        .canaries
        .iter_mut()
        .for_each(|canary| canary.detail.clone_from(&long));
    assessment.breaker.why.clone_from(&long);
    assessment.sources.node_leases.detail.clone_from(&long);
    assessment.sources.api_servers_trouble = Some(long.clone());
    assessment.sources.inventory_trouble = vec![long.clone(); 1_000];
    assessment.problems = vec![
        hookwatch::domain::cluster::inventory::Problem {
            object: long.clone(),
            what: long.clone(),
        };
        1_000
    ];
    let scrape = assessment.sources.scrapes[0].clone();
    assessment.sources.scrapes = vec![scrape; 1_000];
    let page = page(&model(assessment, 8));
    assert!(page.len() < HEAVIEST, "{} bytes", page.len());
    assert!(page.contains(" more that are not healthy</b>"));
    assert!(page.contains("more; all of them are in the"));
}

#[test]
fn no_two_elements_have_the_same_id_and_each_link_leads_somewhere() {
    let page = page(&model(many(25, 4), 8));
    let after = |what: &str| -> Vec<String> {
        let found = page.split(what).skip(1).filter_map(|rest| rest.split('"').next());
        found.map(str::to_owned).collect()
    };
    let ids = after(" id=\"");
    let distinct: BTreeSet<&String> = ids.iter().collect();
    assert_eq!(ids.len(), distinct.len(), "{ids:?}");
    let links = after("href=\"#");
    assert!(!links.is_empty());
    for link in links {
        assert!(distinct.contains(&link), "{link} leads nowhere");
    }
}

#[test]
fn before_the_first_assessment_and_after_the_last_the_page_says_so() {
    let page = document(&Model::fragment(None), None);
    assert!(page.contains("No verdict yet."));
    let assessment = Arc::new(recorded("quiet"));
    let silent = Model::new(assessment, &Past::default(), Some(Duration::from_secs(75)));
    let page = document(&Model::fragment(Some(&silent)), None);
    assert!(page.contains("It has judged nothing for 75.0 s"));
}

#[test]
fn a_command_that_names_fifty_webhooks_is_on_the_page_whole() {
    let mut culprit = failing("a", recorded("quiet").at);
    let names: Vec<String> = (0..50)
        .map(|number| format!("configuration-{number}/policy.example.com"))
        .collect();
    let command = format!("hookwatch break {} --reason TEXT", names.join(" "));
    culprit.by_hand.as_mut().unwrap().command.clone_from(&command);
    let page = page(&model(fixture::with(vec![culprit]), 2));
    assert!(page.contains(&format!("<bdi>{command}</bdi>")));
}

/// What screen readers read aloud whenever it changes, in the order of the page.
fn read_aloud(page: &str) -> Vec<&str> {
    let regions = ["role=\"alert\">", "role=\"status\">"].map(|role| page.split(role).skip(1));
    let regions = regions.into_iter().flatten();
    regions.filter_map(|rest| rest.split('<').next()).collect()
}

#[test]
fn what_is_read_aloud_does_not_change_with_time_alone_and_changes_with_the_state_of_writes() {
    let page = |writes, minute: u64| {
        let mut assessment = recorded("quiet");
        assessment.control_plane.writes = writes;
        assessment.at = assessment.at + Duration::from_secs(60 * minute);
        let silent = Some(Duration::from_secs(60 * minute));
        let model = Model::new(Arc::new(assessment), &Past::default(), silent);
        Model::fragment(Some(&model))
    };
    let (first, later) = (page(Writes::Flowing, 1), page(Writes::Flowing, 2));
    assert_ne!(first, later);
    let told = read_aloud(&first);
    assert_eq!(
        told,
        [
            "hookwatch does not judge any more: everything below is old.",
            "Writes flowing"
        ]
    );
    assert_eq!(told, read_aloud(&later));
    assert_eq!(read_aloud(&page(Writes::Blocked, 2))[1], "Writes blocked");
}

#[test]
fn a_quiet_cluster_has_no_trouble_on_its_page() {
    let page = Model::fragment(Some(&model(recorded("quiet"), 0)));
    assert!(page.contains("id=\"verdict\""));
    for trouble in ["class=\"blocked\"", "class=\"delayed\"", "hook failing", "m bad"] {
        assert!(!page.contains(trouble), "{trouble}");
    }
}

#[test]
fn what_changed_is_remembered_once_and_a_recovery_only_after_a_trouble() {
    let mut past = Past::default();
    let assessment = many(2, 1);
    let now = assessment.at;
    let hook = |from, verdict: hookwatch::domain::diagnose::verdict::Verdict| LoggedChange::Hook {
        from,
        verdict: Box::new(verdict),
    };
    // What is well from the beginning is no news.
    past.told(&hook(None, healthy("a")), now);
    past.told(
        &hook(
            Some((Health::Healthy, None)),
            failing("a", now.before(Duration::from_secs(4))),
        ),
        now,
    );
    past.told(
        &hook(Some((Health::Failing, None)), healthy("a")),
        now + Duration::from_secs(9),
    );
    let mut plane = assessment.control_plane.clone();
    plane.writes = Writes::Flowing;
    past.told(&LoggedChange::ControlPlane(Box::new(plane.clone())), now);
    for writes in [Writes::Blocked, Writes::Flowing] {
        plane.writes = writes;
        past.told(
            &LoggedChange::ControlPlane(Box::new(plane.clone())),
            now + Duration::from_secs(9),
        );
    }
    let kinds: Vec<MarkKind> = past
        .show([].iter(), now)
        .marks
        .iter()
        .rev()
        .map(|mark| mark.kind)
        .collect();
    assert_eq!(
        kinds,
        [
            MarkKind::Failing,
            MarkKind::Well,
            MarkKind::Writes(Writes::Blocked),
            MarkKind::Writes(Writes::Flowing)
        ]
    );
}

#[test]
fn ten_thousand_hooks_that_change_at_once_do_not_push_out_what_came_before() {
    let mut past = Past::default();
    let now = recorded("quiet").at;
    let mut tell = |name: &str, at| {
        let change = LoggedChange::Hook {
            from: Some((Health::Healthy, None)),
            verdict: Box::new(failing(name, at)),
        };
        past.told(&change, at);
    };
    tell("first", now);
    let later = now + Duration::from_secs(1);
    (0..10_000).for_each(|number| tell(&format!("hook-{number}"), later));
    let marks = past.show([].iter(), later).marks;
    assert_eq!(marks.len(), 1 + 20 + 1);
    assert_eq!(marks[0].kind, MarkKind::More(9_980));
    assert_eq!(marks[21].hook.as_ref().unwrap().webhook.as_ref(), "first");
}

#[test]
fn the_past_is_an_hour_long_and_no_longer() {
    let assessment = many(3, 1);
    let mut past = fixture::hour(&assessment, 8);
    let shown = past.show(assessment.hooks.iter(), assessment.at);
    assert!(shown.samples.len() > 1_700, "{} samples", shown.samples.len());
    assert_eq!(shown.tracks.len(), 3);
    let mut later = assessment.clone();
    later.at = assessment.at + Duration::from_secs(3_700);
    past.assessed(&later);
    let shown = past.show(assessment.hooks.iter(), later.at);
    assert_eq!((shown.samples.len(), shown.marks.len()), (1, 0));
}

#[test]
fn a_canary_that_is_out_counts_for_as_long_as_it_is_out() {
    use hookwatch::domain::observe::canary::{CanaryOutcome, CanaryOverdue, CanaryReport, CanaryTarget};
    use hookwatch::domain::watchdog::Event;
    let mut past = Past::default();
    let mut assessment = recorded("quiet");
    let begin = assessment.at;
    let target = CanaryTarget::KubeSystem;
    let waiting = Duration::from_secs(2);
    let late = CanaryOverdue {
        target,
        started: begin,
        waiting,
    };
    let next = CanaryOverdue {
        started: begin + Duration::from_secs(5),
        ..late.clone()
    };
    past.observed(&Event::CanaryOverdue(late), begin + waiting);
    past.observed(&Event::CanaryOverdue(next.clone()), next.started + waiting);
    for seconds in [4, 9] {
        assessment.at = begin + Duration::from_secs(seconds);
        past.assessed(&assessment);
    }
    let report = CanaryReport {
        target,
        started: begin,
        took: Duration::from_secs(10),
        created: false,
        outcome: CanaryOutcome::Written,
    };
    past.observed(
        &Event::CanaryWritten(report.clone()),
        begin + Duration::from_secs(10),
    );
    for seconds in [12, 17] {
        assessment.at = begin + Duration::from_secs(seconds);
        past.assessed(&assessment);
    }
    let report = CanaryReport {
        started: next.started,
        took: Duration::from_secs(13),
        ..report
    };
    past.observed(&Event::CanaryWritten(report), begin + Duration::from_secs(18));
    for seconds in [19, 60] {
        assessment.at = begin + Duration::from_secs(seconds);
        past.assessed(&assessment);
    }
    let shown = past.show([].iter(), assessment.at);
    let canaries: Vec<Option<f32>> = shown.samples.iter().map(|sample| sample.canary).collect();
    assert_eq!(
        canaries,
        [Some(4.0), Some(9.0), Some(10.0), Some(12.0), Some(13.0), None]
    );
}

#[test]
fn what_the_breaker_did_stands_in_the_table_in_the_history_and_on_the_timeline() {
    let (assessment, past) = fixture::bypassed();
    let shown = Model::new(Arc::new(assessment), &past, None);
    let page = page(&shown);
    let row = page.split("<details class=\"hook failing\"").nth(1).unwrap();
    let row = row.split("</details>").next().unwrap();
    let (summary, body) = row.split_once("</summary>").unwrap();
    assert!(summary.contains("bypassed (skip)"), "{summary}");
    assert!(
        body.contains("Breaker: ") && body.contains("Every API server shows the bypass."),
        "{body}"
    );
    assert!(
        body.contains("Canaries that cover it: own_namespace, kube_system."),
        "{body}"
    );
    let history = body.split("History").nth(1).unwrap();
    let at = |what: &str| history.find(what).unwrap_or_else(|| panic!("{what}: {history}"));
    // The newest first: bypassed again, tried, bypassed.
    assert!(at("bypassed</span>") < at("on probation</span>"));
    assert_eq!(history.matches("bypassed</span>").count(), 2);
    let timeline = page.split("<svg class=\"chart\"").nth(1).unwrap();
    assert_eq!(timeline.matches("<g class=\"m act\">").count(), 3);
    for curve in ["create", "update"] {
        assert_eq!(
            timeline.matches(&format!("<path class=\"{curve}\"")).count(),
            1,
            "{curve}"
        );
    }
}

#[test]
fn a_bypass_that_the_breaker_does_not_know_yet_has_no_words_about_what_was_before() {
    let (mut assessment, past) = fixture::bypassed();
    let standing = &mut assessment.breaker.hooks[0];
    (standing.state, standing.rung, standing.effective) = ("enforcing".into(), None, false);
    standing.words = "It is enforced.".into();
    let page = page(&Model::new(Arc::new(assessment), &past, None));
    let row = page.split("<details class=\"hook").nth(1).unwrap();
    let row = row.split("</details>").next().unwrap();
    assert!(row.contains("bypassed (skip)"), "{row}");
    assert!(!row.contains("It is enforced."), "{row}");
}

/// The page of this assessment, up to the chart: its verdict and the breaker's section.
fn top(assessment: Assessment) -> String {
    let page = Model::fragment(Some(&model(assessment, 2)));
    page.split("id=\"timeline\"").next().unwrap().to_owned()
}

#[test]
fn while_a_failing_webhook_could_be_missed_the_page_says_why_and_is_not_calm() {
    let calm = || fixture::with(vec![healthy("a")]);
    assert!(top(calm()).contains("<section class=\"flowing\" id=\"verdict\">"));
    type Change = fn(&mut Sources);
    let changes: [(Change, &str); 4] = [
        (
            |sources| sources.hooks_listed = false,
            "the webhook configurations could not be read",
        ),
        (
            |sources| sources.inventory_age_seconds = None,
            "the webhook configurations have not been read yet",
        ),
        (
            |sources| sources.inventory_age_seconds = Some(1_800.0),
            "its list of webhooks is 30 min old",
        ),
        (
            |sources| sources.self_doubt = true,
            "every probe fails at once, and the fault may be hookwatch's own",
        ),
    ];
    for (change, why) in changes {
        let mut blind = calm();
        change(&mut blind.sources);
        let top = top(blind);
        assert!(
            top.contains("<section class=\"unknown\" id=\"verdict\">"),
            "{top}"
        );
        let told = format!("<b>hookwatch does not see everything: </b>{}.", escaped(why));
        assert!(top.contains(&told), "{top}");
    }
}

#[test]
fn a_replica_that_does_not_lead_names_the_leader_and_what_only_that_one_shows_while_a_webhook_fails() {
    let told = "What would be bypassed, or is held back, only the leader shows";
    let since = recorded("quiet").at;
    let with = |hooks, replica| Assessment {
        replica,
        ..fixture::with(hooks)
    };
    let failing = || vec![failing("a", since)];
    let follows = top(with(failing(), Some(fixture::follower())));
    assert!(
        follows.contains("id=\"breaker\"") && follows.contains(&format!("{told}: pod-2.")),
        "{follows}"
    );
    let mut unknown = fixture::follower();
    (unknown.role, unknown.holder, unknown.by) = (ReplicaRole::Unknown, None, None);
    assert!(top(with(failing(), Some(unknown))).contains(&format!("{told}, and no leader is known.")));
    let mut leader = fixture::follower();
    leader.role = ReplicaRole::Leader;
    let calm = with(vec![healthy("a")], Some(fixture::follower()));
    let mut off = with(failing(), Some(fixture::follower()));
    off.breaker = BreakerView::new(AutoBreak::Off, None);
    for silent in [
        with(failing(), Some(leader)),
        with(failing(), None),
        calm.clone(),
        off,
    ] {
        assert!(!top(silent).contains(told));
    }
    let sources = page(&model(calm, 2));
    assert!(
        sources.contains(", <bdi>pod-2</bdi> leads (by the lease)"),
        "{sources}"
    );
}

#[test]
fn with_two_culprits_the_page_leads_with_the_one_that_is_not_bypassed_and_each_row_has_its_own_command() {
    let since = recorded("quiet").at;
    let mut shielded = failing("shielded", since);
    shielded.bypass = Some(BypassCondition::Shield);
    (shielded.by_hand, shielded.advice) = (None, Some("Fix the shielded one."));
    let mut second = failing("second", since);
    second.advice = Some("Restart the second one.");
    let mut third = failing("third", since);
    third.by_hand.as_mut().unwrap().shared_with = Some("opa/second".to_owned());
    let assessment = fixture::with(vec![shielded, second, third]);
    let (top, page) = (top(assessment.clone()), page(&model(assessment, 2)));
    assert!(
        top.contains("Restart the second one.") && !top.contains("Fix the shielded one."),
        "{top}"
    );
    let rows: Vec<&str> = page.split("<details class=\"hook failing\"").skip(1).collect();
    for (row, command) in rows.iter().zip([
        "To restore it: </b><code><bdi>hookwatch restore shielded-configuration/shielded --kind validating</bdi>",
        "To bypass it: </b><code><bdi>hookwatch break opa/second --reason TEXT</bdi>",
        "To bypass it: </b>the command for <bdi>opa/second</bdi> names it, too.",
    ]) {
        assert!(row.contains(command), "{command}: {row}");
    }
}

#[test]
fn a_row_says_where_its_webhook_is_called_and_names_no_path_that_many_lost_together() {
    let since = recorded("quiet").at;
    let shown = |incident: &str| {
        let mut culprit = failing("a", since);
        culprit.incident = incident.to_owned();
        page(&model(fixture::with(vec![culprit]), 2))
    };
    assert!(shown("opa/opa:443").contains(", called at <bdi>opa/opa:443</bdi>."));
    for none in ["lost path", "a"] {
        assert!(!shown(none).contains("called at"), "{none}");
    }
}

#[test]
fn times_have_their_zone_where_they_are_read_and_the_page_names_its_cluster() {
    let model = model(many(3, 1), 8);
    let page = page(&model);
    for zone in [
        "</time> UTC, for ",
        "last 60 min, UTC</h2>",
        ">since (UTC)</span>",
    ] {
        assert!(page.contains(zone), "{zone:?} is not on the page");
    }
    let named = document(&Model::fragment(Some(&model)), Some("prod <1>"));
    assert!(named.contains("<b>hookwatch · <bdi>prod &lt;1&gt;</bdi></b>"));
}
