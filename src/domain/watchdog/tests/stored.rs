//! A Prometheus in place of scrapes: it improves the verdicts for people, and the breaker never uses it.

use super::*;
use crate::observe::stored::PrometheusReading;

const SCRAPED_EVERY: u64 = 15 * SECOND;

fn reading(ms: u64, counters: &Snapshot) -> Event {
    let scrape = Scrape {
        target: "10.0.0.1:6443".into(),
        at: Incident::at(ms),
        took: Duration::ZERO,
        bytes: 0,
        snapshot: Snapshot {
            is_api_server: true,
            ..counters.clone()
        },
        complaints: Complaints::default(),
    };
    Event::Stored(Box::new(PrometheusReading {
        source: "http://prometheus:9090".into(),
        at: Incident::at(ms),
        took: Duration::ZERO,
        bytes: 0,
        scrapes: vec![scrape],
        complaints: Complaints::default(),
    }))
}

/// Counts calls that hang until their timeout and are then refused.
fn count_timeouts(incident: &mut Incident, webhook: &str, count: f64) {
    let series = incident.count_calls(webhook, count, 10.0);
    add(&mut series.rejected, count, 10.0);
    series.rejections.calling += count;
    *series.codes.entry(503).or_default() += count;
}

/// A healthy minute and a half in which the API servers' counters come only from a Prometheus.
fn unscraped(hook: &Hook) -> Incident {
    let mut incident = Incident::with(vec![hook.clone()]);
    for step in 0..=6 {
        let ms = step * SCRAPED_EVERY;
        incident.count_writes(200.0, 0.005, 0.004);
        incident.count_calls(&hook.id.webhook, 200.0, 0.001);
        incident.probe(ms, hook, 0, alive());
        incident.canary(ms, 5, CanaryOutcome::Written);
        let counters = incident.counters.clone();
        incident.event(ms, reading(ms, &counters));
        incident.tick(ms + 10);
    }
    incident
}

/// The instant after [`unscraped`] at which a scrape with many timeouts is stored.
const FAULT: u64 = 7 * SCRAPED_EVERY;

fn hanging(hook: &Hook) -> Incident {
    let mut incident = unscraped(hook);
    count_timeouts(&mut incident, &hook.id.webhook, 20.0);
    incident.probe(FAULT, hook, 0, alive());
    let counters = incident.counters.clone();
    incident.event(FAULT, reading(FAULT, &counters));
    incident
}

#[test]
fn what_a_prometheus_counted_names_a_hook_less_surely_and_says_why() {
    let opa = hook("opa", 1);
    let mut incident = hanging(&opa);
    let verdict = incident.verdict(FAULT + 10, "opa");
    assert_judged(&verdict, Health::Failing, Some(Cause::Hanging));
    let fresh = verdict.confidence;
    let said = verdict.evidence.last().expect("evidence");
    assert!(
        said.contains("Prometheus at http://prometheus:9090: one scrape every 15.0 s")
            && said.contains("Confidence is lowered from 0.96 to 0.91"),
        "{said}"
    );
    let older = incident.verdict(FAULT + 60 * SECOND, "opa");
    assert!(older.confidence < fresh && older.webhook_confidence < verdict.webhook_confidence);
    let sources = &incident.last.as_ref().expect("a tick").sources;
    let view = sources.prometheus.as_ref().expect("a Prometheus");
    assert!(view.used && view.age_seconds == Some(60.0) && view.resolution_seconds == Some(15.0));
    let gone = incident.verdict(FAULT + 130 * SECOND, "opa");
    assert_ne!(gone.health, Health::Failing, "what is minutes old says nothing");
}

#[test]
fn a_prometheus_alone_is_no_witness() {
    let opa = hook("opa", 1);
    let mut incident = hanging(&opa);
    for ms in (FAULT + 10..FAULT + 100 * SECOND).step_by(SECOND as usize) {
        let verdict = incident.verdict(ms, "opa");
        assert_eq!(verdict.health, Health::Failing, "{ms}");
        let facts = &incident.judged.hooks[&opa.id];
        assert!(facts.witnesses.is_empty() && !facts.harms_writes(), "{facts:?}");
    }
}

/// What the Prometheus of an incident reports.
#[derive(Clone, Copy, PartialEq)]
enum Says {
    Nothing,
    AllIsWell,
    EverythingHangs,
}

/// Four minutes: own scrapes in the first and last, none in the two between. The hook hangs from the second minute on; with
/// `witnesses`, probes and canaries show it. Returns the facts for the breaker and the assessment of every tick.
fn told(says: Says, scraped: bool, witnesses: bool) -> Vec<(Arc<Judged>, Arc<Assessment>)> {
    let opa = hook("opa", 1);
    let mut incident = Incident::with(vec![opa.clone()]);
    let mut stored = Snapshot {
        process_start: Some(1.0),
        ..Snapshot::default()
    };
    let mut told = Vec::new();
    for second in 0..240 {
        let ms = second * SECOND;
        let hangs = (60..180).contains(&second) && witnesses;
        incident.count_writes(100.0, 0.005, 0.004);
        if hangs {
            count_timeouts(&mut incident, "opa", 3.0);
        } else {
            incident.count_calls("opa", 100.0, 0.001);
        }
        if second % 2 == 0 {
            if hangs {
                let phase = ProbePhase::FirstByte;
                incident.probe_taking(ms, 900, &opa, 0, ProbeOutcome::TimedOut { phase });
                incident.canary(ms, 900, refusal("opa", "context deadline exceeded"));
            } else {
                incident.probe(ms, &opa, 0, alive());
                incident.canary(ms, 5, CanaryOutcome::Written);
            }
            if scraped && !(60..180).contains(&second) {
                incident.scrape(ms);
            }
        }
        if says != Says::Nothing && second % 15 == 0 {
            let honest = std::mem::replace(&mut incident.counters, stored);
            incident.count_writes(1_500.0, 0.005, 0.004);
            match says {
                Says::EverythingHangs => count_timeouts(&mut incident, "opa", 50.0),
                _ => {
                    incident.count_calls("opa", 1_500.0, 0.001);
                }
            }
            stored = std::mem::replace(&mut incident.counters, honest);
            incident.event(ms, reading(ms, &stored));
        }
        let assessment = incident.tick(ms + 990);
        told.push((Arc::clone(&incident.judged), assessment));
    }
    told
}

#[test]
fn whatever_a_prometheus_says_the_breaker_is_told_the_same() {
    for (scraped, witnesses) in [(true, true), (true, false), (false, true), (false, false)] {
        let without = told(Says::Nothing, scraped, witnesses);
        for says in [Says::AllIsWell, Says::EverythingHangs] {
            for (second, (with, without)) in told(says, scraped, witnesses).iter().zip(&without).enumerate() {
                assert_eq!(
                    with.0, without.0,
                    "scraped {scraped}, witnesses {witnesses}, second {second}"
                );
            }
        }
    }
    let witnessed = told(Says::AllIsWell, true, true);
    let most = witnessed.iter().flat_map(|(judged, _)| judged.hooks.values());
    let most = most.map(|facts| facts.witnesses.len()).max();
    assert!(most >= Some(2), "the witnesses speak that are hookwatch's own");
}

#[test]
fn beside_scrapes_of_its_own_a_prometheus_changes_no_verdict() {
    let without = told(Says::Nothing, true, true);
    let with = told(Says::EverythingHangs, true, true);
    for ((_, with), (_, without)) in with.iter().zip(&without).take(60) {
        assert_eq!(with.hooks, without.hooks);
        assert!(with.sources.prometheus.as_ref().is_some_and(|view| !view.used));
    }
    let in_use = |assessment: &Assessment| {
        assessment
            .sources
            .prometheus
            .as_ref()
            .is_some_and(|view| view.used)
    };
    assert!(with[60..180].iter().any(|(_, assessment)| in_use(assessment)));
    assert!(!in_use(&with[239].1), "scrapes are back");
}
