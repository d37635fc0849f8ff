//! Verdicts on a hook while it is bypassed.

use super::acting::{changed, witnesses};
use super::*;
use crate::act::breaker::{CanaryEvidence, Witness};
use crate::cluster::condition::BypassCondition;

/// During a skip no calls are counted, so the counters only show what was before it.
#[test]
fn a_hook_that_is_skipped_is_well_when_its_backends_are_whatever_was_counted_before() {
    let opa = hook("opa", 1);
    let mut incident = Incident::calm(&[&opa]);
    for step in 0..2 {
        let series = incident.count_calls("opa", 20.0, 10.0);
        series.rejections.calling += 20.0;
        incident.probe_late(11 * SECOND + step, &opa, 0, 2 * SECOND);
        incident.scrape((20 + 2 * step) * SECOND);
    }
    assert!(incident.facts(22 * SECOND + 10, &opa).harms_writes());
    let skipped = changed(&opa, "hookwatch.dev/skip");
    incident.inventory(23 * SECOND, vec![skipped.clone()]);
    assert!(incident.facts(23 * SECOND + 10, &opa).harms_writes());
    for step in 0..3 {
        incident.probe((24 + step) * SECOND, &skipped, 0, alive());
        incident.canary((24 + step) * SECOND, 5, CanaryOutcome::Written);
    }
    incident.scrape(27 * SECOND);
    let facts = incident.facts(27 * SECOND + 10, &opa);
    assert_eq!((facts.health, facts.cause), (Health::Healthy, None));
    // The published verdict agrees, and says that the hook is bypassed.
    let assessment = incident.tick(27 * SECOND + 20);
    let verdict = &assessment.hooks[0];
    assert_eq!((verdict.health, verdict.effect), (Health::Healthy, Effect::None));
    assert_eq!(verdict.bypass, Some(BypassCondition::Skip));
    assert!(
        verdict.summary.contains("it is bypassed (skip)"),
        "{}",
        verdict.summary
    );
    assert!(assessment.control_plane.summary.contains("it is bypassed (skip)"));
    // On probation, its canaries decide.
    incident.inventory(28 * SECOND, vec![changed(&opa, "hookwatch.dev/probation")]);
    incident.canary(30 * SECOND, 5, refusal("opa", "EOF"));
    let facts = incident.facts(30 * SECOND + 10, &opa);
    assert_eq!(facts.canary, CanaryEvidence::Failed);
    assert_ne!(facts.health, Health::Healthy);
    let verdict = incident.verdict(30 * SECOND + 20, "opa");
    assert!(
        verdict.evidence[0].contains("refused a dry-run write"),
        "{:?}",
        verdict.evidence
    );
}

/// An outage up to the moment of the bypass.
pub(super) fn outage(opa: &Hook) -> Incident {
    let mut incident = Incident::hung(opa);
    incident.scrape(13 * SECOND);
    let before = incident.tick(13 * SECOND + 100);
    assert_eq!(
        (before.hooks[0].health, before.hooks[0].effect),
        (Health::Failing, Effect::Blocking)
    );
    incident
}

/// The outage continues during a bypass; `shown` gets the assessment every two seconds.
fn under_bypass(opa: &Hook, condition: &str, mut shown: impl FnMut(&mut Incident, u64, &Assessment)) {
    let mut incident = outage(opa);
    incident.inventory(14 * SECOND, vec![changed(opa, condition)]);
    for step in 0..4 {
        let at = (16 + 2 * step) * SECOND;
        // The bypass exempts the canaries, so their success does not clear the hook.
        incident.canary(at, 5, CanaryOutcome::Written);
        incident.silent(at, opa, 2 * SECOND);
        let during = incident.tick(at + 2 * SECOND + 10);
        shown(&mut incident, at + 2 * SECOND + 20, &during);
    }
}

#[test]
fn a_hook_that_is_skipped_and_does_not_answer_goes_on_failing_and_harms_no_write() {
    let opa = hook("opa", 2);
    under_bypass(&opa, "hookwatch.dev/skip", |incident, later, during| {
        let verdict = &during.hooks[0];
        assert_judged(verdict, Health::Failing, Some(Cause::Hanging));
        assert_eq!(
            (verdict.effect, verdict.bypass),
            (Effect::None, Some(BypassCondition::Skip))
        );
        let summary = &verdict.summary;
        assert!(
            summary.contains("does not answer; it is bypassed (skip)"),
            "{summary}"
        );
        let first = &verdict.evidence[0];
        assert!(first.starts_with("It is bypassed since"), "{first}");
        // The facts for the breaker are those without the bypass.
        assert!(incident.facts(later, &opa).harms_writes());
    });
}

#[test]
fn a_hook_that_is_shielded_goes_on_being_named_though_every_canary_is_spared() {
    under_bypass(&hook("opa", 2), "hookwatch.dev/shield", |_, _, during| {
        let verdict = &during.hooks[0];
        assert_eq!(
            (verdict.health, verdict.effect, verdict.bypass),
            (Health::Failing, Effect::Blocking, Some(BypassCondition::Shield))
        );
        let summary = &verdict.summary;
        assert!(
            summary.contains("all others that match it are refused"),
            "{summary}"
        );
        let headline = &during.control_plane.summary;
        assert!(!headline.starts_with("Writes flow"), "{headline}");
    });
}

/// Otherwise a skip would have to wait until the first calls have timed out.
#[test]
fn a_canary_that_was_sent_before_the_shield_goes_on_speaking_against_the_hook() {
    let opa = hook("opa", 2);
    let mut incident = outage(&opa);
    let shielded = changed(&opa, "hookwatch.dev/shield");
    incident.inventory(13 * SECOND + 200, vec![shielded.clone()]);
    incident.canary(13 * SECOND + 300, 5, CanaryOutcome::Written);
    let during = incident.facts(14 * SECOND, &opa);
    assert!(during.confident && during.harms_writes(), "{during:?}");
    assert_eq!(during.witnesses, witnesses(&[Witness::Probes, Witness::Canary]));
    // Finally it is refused, and counts for a minute.
    incident.canary(
        11 * SECOND,
        10 * SECOND,
        refusal("opa", "context deadline exceeded"),
    );
    let mut speaks = |second: u64| {
        incident.silent((second - 3) * SECOND, &opa, 2 * SECOND);
        incident.canary(second * SECOND - 100, 5, CanaryOutcome::Written);
        let facts = incident.facts(second * SECOND, &shielded);
        facts.witnesses.contains(&Witness::Canary)
    };
    assert!(speaks(22));
    assert!(!speaks(90));
}

#[test]
fn a_late_canary_that_came_back_before_the_shield_accuses_no_hook() {
    let opa = hook("opa", 2);
    let mut incident = outage(&opa);
    incident.canary(11 * SECOND, 2_150, CanaryOutcome::Written);
    let shielded = changed(&opa, "hookwatch.dev/shield");
    incident.inventory(13 * SECOND + 200, vec![shielded.clone()]);
    let after = incident.facts(14 * SECOND, &shielded);
    assert!(!after.witnesses.contains(&Witness::Canary), "{after:?}");
}

/// Otherwise a tenant whose writes it denies could keep the shield in place.
#[test]
fn a_webhook_that_denies_most_of_what_still_reaches_it_is_well_to_the_breaker() {
    let opa = hook("opa", 1);
    let mut incident = outage(&opa);
    let shielded = changed(&opa, "hookwatch.dev/shield");
    incident.inventory(14 * SECOND, vec![shielded.clone()]);
    for step in 0..20 {
        let at = (16 + 2 * step) * SECOND;
        incident.answers(at, &shielded);
        incident.canary(at, 5, CanaryOutcome::Written);
        incident.count_calls("opa", 10.0, 0.01).rejections.denied += 10.0;
        incident.scrape(at);
        incident.tick(at + 10);
    }
    let verdict = incident.verdict(55 * SECOND, "opa");
    assert_judged(&verdict, Health::Suspect, Some(Cause::Denying));
    let facts = incident.facts(55 * SECOND + 10, &opa);
    assert_eq!((facts.health, facts.cause), (Health::Healthy, None));
}
