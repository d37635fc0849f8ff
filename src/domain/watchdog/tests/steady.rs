//! What is said once stays said until something new is known.

use super::*;

/// Calls of two seconds: some are answered, some ran into their timeout.
fn count(incident: &mut Incident, answered: f64, timed_out: f64) {
    incident.count_calls("opa", answered, 0.001);
    let series = incident.count_calls("opa", timed_out, 10.0);
    series.rejections.calling += timed_out;
    add(&mut series.rejected, timed_out, 10.0);
}

fn health(incident: &mut Incident, second: u64, outcome: ProbeOutcome) -> Health {
    let ms = second * SECOND;
    let took = if outcome == alive() { 3 } else { 2 * SECOND };
    incident.probe_taking(ms - took, took, &hook("opa", 1), 0, outcome);
    incident.scrape(ms);
    incident.verdict(ms + 10, "opa").health
}

fn timed_out() -> ProbeOutcome {
    let phase = Phase::Connect;
    ProbeOutcome::TimedOut { phase }
}

/// A hook that hung from 10 s to 20 s, and was found to be well at 22 s.
fn recovered() -> Incident {
    let mut incident = Incident::calm(&[&hook("opa", 1)]);
    for second in [14, 16, 18, 20] {
        count(&mut incident, 0.0, 4.0);
        health(&mut incident, second, timed_out());
    }
    assert_eq!(incident.verdict(20 * SECOND + 20, "opa").health, Health::Failing);
    count(&mut incident, 20.0, 0.0);
    assert_eq!(health(&mut incident, 22, alive()), Health::Healthy);
    incident
}

#[test]
fn a_hook_that_was_found_well_is_not_named_again_for_calls_that_began_before() {
    let mut incident = recovered();
    for second in [24, 26, 28, 30] {
        count(&mut incident, 20.0, 4.0);
        assert_eq!(
            health(&mut incident, second, alive()),
            Health::Healthy,
            "{second} s"
        );
    }
}

#[test]
fn a_hook_that_was_found_well_is_named_again_for_calls_that_began_after() {
    let mut incident = recovered();
    for second in (24..=34).step_by(2) {
        count(&mut incident, 20.0, 4.0);
        health(&mut incident, second, alive());
    }
    assert_eq!(incident.verdict(34 * SECOND + 20, "opa").health, Health::Failing);
}

#[test]
fn a_hook_that_was_found_well_is_named_again_at_once_when_its_backends_are_dead() {
    let mut incident = recovered();
    count(&mut incident, 0.0, 4.0);
    assert_eq!(health(&mut incident, 24, timed_out()), Health::Failing);
}

#[test]
fn a_hook_that_is_called_rarely_stays_named_until_a_call_is_answered() {
    let mut incident = Incident::calm(&[&hook("opa", 1)]);
    count(&mut incident, 0.0, 3.0);
    assert_eq!(health(&mut incident, 90, alive()), Health::Failing);
    for second in (92..=120).step_by(2) {
        count(&mut incident, 0.0, if second % 10 == 0 { 1.0 } else { 0.0 });
        assert_eq!(
            health(&mut incident, second, alive()),
            Health::Failing,
            "{second} s"
        );
    }
    count(&mut incident, 5.0, 0.0);
    assert_eq!(health(&mut incident, 122, alive()), Health::Healthy);
}
