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
