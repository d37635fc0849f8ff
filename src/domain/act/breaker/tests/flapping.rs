//! A webhook that recovers and fails repeatedly: each wait before a restore is twice the last, which bounds how often its
//! object is changed. docs/breaker.md has the numbers.

use super::super::*;
use super::dead::skipped;
use super::incident::{Incident, ours};
use crate::act::fence::AutoBreak;
use crate::vocabulary::Cause;

const HOUR: u64 = 3_600;

/// How many waits fit into an hour, after `before` earlier ones, when each takes `longer` in addition.
fn waits_in_an_hour(before: u32, longer: Duration) -> usize {
    let times = BreakerTimes::default();
    let waits = (before..).map(|number| {
        let doubled = 2_u32.saturating_pow(number.min(times.doublings));
        (times.healthy_for * doubled + longer).as_secs()
    });
    let ends = waits.scan(0, |end, wait| {
        *end += wait;
        Some(*end)
    });
    ends.take_while(|end| *end <= HOUR).count()
}

/// How often the object is changed within an hour from the first change, when `each` is called every second.
fn changes(mut incident: Incident, each: impl Fn(&mut Incident)) -> usize {
    for _ in 0..HOUR {
        each(&mut incident);
        incident.wait(1);
    }
    incident.changes.len()
}

/// Makes the webhook healthy while it is bypassed, and failing otherwise.
fn never_stays(incident: &mut Incident) {
    if incident.shown.is_ours() {
        incident.is_well();
        incident.facts.canary = CanaryEvidence::Through;
    } else {
        incident.fails(Cause::Hanging);
        incident.facts.canary = CanaryEvidence::Failed;
    }
}

#[test]
fn each_relapse_at_least_doubles_the_wait_and_in_the_end_it_is_called_flapping() {
    let mut incident = Incident::new(AutoBreak::On, &[Rung::Shield]);
    let mut waits = Vec::new();
    for _ in 0..5 {
        incident.fails(Cause::Hanging);
        incident.wait(10);
        assert!(incident.shown.is_ours());
        incident.is_well();
        // The next judgement shows it.
        incident.wait(1);
        let well = incident.now;
        while incident.shown.is_ours() {
            incident.wait(1);
        }
        waits.push(incident.now - well);
        incident.wait(200);
    }
    assert!(waits[0] >= 30, "{waits:?}");
    assert!(waits.windows(2).all(|pair| pair[1] >= 2 * pair[0]), "{waits:?}");
    assert!(incident.news.contains(&NoticeKind::Flapping));
}

#[test]
fn a_shielded_object_is_changed_thirteen_times_in_an_hour_at_most() {
    let most = 1 + 2 * waits_in_an_hour(0, Duration::ZERO);
    assert_eq!(most, 13);
    let made = changes(Incident::new(AutoBreak::On, &[Rung::Shield]), never_stays);
    assert!((10..=most).contains(&made), "{made}");
}

#[test]
fn a_skipped_object_is_changed_nineteen_times_in_an_hour_at_most() {
    let probation = BreakerTimes::default().probation_for;
    let most = 1 + 3 * waits_in_an_hour(0, probation);
    assert_eq!(most, 19);
    let made = changes(Incident::new(AutoBreak::On, &[Rung::Skip]), never_stays);
    assert!((15..=most).contains(&made), "{made}");
}

#[test]
fn the_object_of_a_dead_webhook_that_answers_once_each_time_is_changed_thirteen_times_in_an_hour_at_most() {
    // Shielded, skipped and shielded again, and then skipped and shielded once after each wait.
    let most = 3 + 2 * waits_in_an_hour(1, Duration::ZERO);
    assert_eq!(most, 13);
    let made = changes(skipped(), |incident| {
        if incident.shown == ours(Rung::Skip, false) {
            incident.answers();
        } else {
            incident.is_dead_again();
        }
    });
    assert!((10..=most).contains(&made), "{made}");
}
