//! When hookwatch doubts its own network.

use super::*;

#[test]
fn when_probes_of_everything_fail_at_once_we_doubt_ourselves_first() {
    let (a, b) = (hook("a", 1), hook("b", 1));
    let mut incident = Incident::calm(&[&a, &b]);
    for hook in [&a, &b] {
        for step in 0..8 {
            incident.probe(11 * SECOND + step * SECOND, hook, 0, ProbeOutcome::Refused);
        }
    }
    let assessment = incident.tick(20 * SECOND);
    assert!(assessment.sources.self_doubt);
    assert_eq!(assessment.culprits().count(), 0);
    assert!(!assessment.control_plane.summary.contains("is failing"));
    // The API server answering us shows that our network is fine.
    incident.scrape(20 * SECOND + 500);
    let assessment = incident.tick(20 * SECOND + 600);
    assert!(!assessment.sources.self_doubt);
    assert_eq!(assessment.culprits().count(), 2);
}

#[test]
fn a_webhook_that_has_been_dead_for_long_does_not_keep_us_from_doubting_ourselves() {
    let (a, b, dead) = (hook("a", 1), hook("b", 1), hook("dead", 1));
    let mut incident = Incident::calm(&[&a, &b]);
    let all = [&a, &b, &dead].map(Clone::clone).to_vec();
    incident.inventory(10 * SECOND + 100, all);
    for second in 0..60 {
        incident.probe((11 + second) * SECOND, &dead, 0, ProbeOutcome::Refused);
        incident.probe((11 + second) * SECOND, &a, 0, alive());
        incident.probe((11 + second) * SECOND, &b, 0, alive());
    }
    incident.scrape(71 * SECOND);
    for second in 72..80 {
        for hook in [&a, &b, &dead] {
            incident.probe(second * SECOND, hook, 0, ProbeOutcome::Refused);
        }
    }
    let assessment = incident.tick(80 * SECOND);
    assert!(assessment.sources.self_doubt);
    for verdict in assessment
        .hooks
        .iter()
        .filter(|verdict| &*verdict.webhook != "dead")
    {
        assert_eq!(verdict.health, Health::Suspect, "{verdict:?}");
    }
    incident.scrape(80 * SECOND + 500);
    assert!(!incident.tick(80 * SECOND + 600).sources.self_doubt);
}

#[test]
fn what_probes_alone_suspect_is_not_said_to_refuse_writes_before_a_call_fails() {
    let opa = hook("opa", 2);
    let mut incident = Incident::calm(&[&opa]);
    for step in 0..4 {
        for backend in 0..2 {
            incident.probe(11 * SECOND + step * 500, &opa, backend, ProbeOutcome::Refused);
        }
    }
    let refused = |effect| (Health::Suspect, Some(Cause::Refused), effect);
    let verdict = incident.verdict(13 * SECOND, "opa");
    assert_eq!(found(&verdict), refused(Effect::None));
    assert!(!verdict.summary.contains("writes"), "{}", verdict.summary);
    let series = incident.count_calls("opa", 1.0, 0.001);
    series.rejections.calling += 1.0;
    incident.scrape(13 * SECOND + 100);
    let verdict = incident.verdict(13 * SECOND + 200, "opa");
    assert_eq!(found(&verdict), refused(Effect::Blocking));
}

/// The health of a hook without calls whose probes all end like this for half a minute while another hook answers. With
/// `canaries`, canaries that match it succeed.
fn probed_alone(opa: &Hook, canaries: bool, ends: &ProbeOutcome) -> Health {
    let other = hook("other", 1);
    let mut incident = Incident::calm(&[opa, &other]);
    for second in 11..45 {
        let ms = second * SECOND;
        incident.probe(ms, opa, 0, ends.clone());
        incident.probe(ms, &other, 0, alive());
        if canaries {
            incident.canary(ms + 100, 5, CanaryOutcome::Written);
        }
        incident.scrape(ms + 500);
        incident.tick(ms + 510);
    }
    incident.verdict(45 * SECOND, "opa").health
}

#[test]
fn a_canary_that_passes_a_webhook_shows_that_it_refuses_hookwatch_alone_unless_it_would_pass_anyway() {
    let opa = hook("opa", 1);
    let ignored = Hook {
        failure_policy: FailurePolicy::Ignore,
        ..opa.clone()
    };
    let conditional = super::acting::changed(&opa, "only-what-we-own");
    let expired = ProbeOutcome::TlsRejected {
        fault: crate::observe::probe::TlsFault::Expired,
        why: String::new(),
    };
    for (opa, canaries, ends, health) in [
        (&opa, true, &ProbeOutcome::Refused, Health::Suspect),
        (&opa, false, &ProbeOutcome::Refused, Health::Failing),
        (&opa, true, &expired, Health::Failing),
        (&ignored, true, &ProbeOutcome::Refused, Health::Failing),
        (&conditional, true, &ProbeOutcome::Refused, Health::Failing),
    ] {
        assert_eq!(probed_alone(opa, canaries, ends), health, "{canaries} {ends:?}");
    }
}

#[test]
fn a_name_that_does_not_resolve_here_accuses_no_webhook() {
    let why = || "no such host".to_owned();
    for (ends, health) in [
        (ProbeOutcome::Unresolvable { why: why() }, Health::Suspect),
        (ProbeOutcome::Unreachable { why: why() }, Health::Failing),
    ] {
        assert_eq!(probed_alone(&hook("opa", 1), false, &ends), health, "{ends:?}");
    }
}

#[test]
fn while_no_webhook_could_be_listed_the_summary_does_not_say_that_none_is_failing() {
    let a = hook("a", 1);
    let mut incident = Incident::calm(&[&a]);
    let summary = |incident: &mut Incident, ms| incident.tick(ms).control_plane.summary.clone();
    assert!(summary(&mut incident, 11 * SECOND).contains("no webhook is failing"));
    let refused = WatchReport {
        watch: "ValidatingWebhookConfigurations".to_owned(),
        known_good: None,
        health: InventoryHealth::Limited {
            why: "forbidden".to_owned(),
        },
    };
    incident.event(12 * SECOND, Event::Watches(vec![refused]));
    assert_eq!(summary(&mut incident, 12 * SECOND), "Writes flow.");
}
