//! When alerts begin to fire, go on and end.

use super::*;

#[test]
fn an_alert_fires_after_its_time_goes_on_under_another_cause_and_ends() {
    let mut tracker = Tracker::default();
    assert_eq!(look(&mut tracker, &hanging("w"), 0).firing, []);
    assert_eq!(look(&mut tracker, &hanging("w"), 14).firing, []);
    let board = look(&mut tracker, &hanging("w"), 15);
    assert_eq!((board.firing.len(), board.ended.len()), (1, 0));
    assert_eq!(board.firing[0].since, at(0));
    assert!(board.firing[0].runbook_url.ends_with("/HookwatchHookFailing.md"));

    let refused = with(vec![verdict(
        "w",
        Health::Failing,
        Cause::Refused,
        Effect::Blocking,
    )]);
    let board = look(&mut tracker, &refused, 31);
    assert!(
        board.firing[0].summary.contains("is Refused"),
        "{}",
        board.firing[0].summary
    );
    assert_eq!(board.firing[0].since, at(0), "it has been failing all the while");
    assert_eq!(board.ended, []);

    let board = look(&mut tracker, &calm(at(60)), 60);
    assert_eq!(
        (board.firing.len(), board.ended.len()),
        (1, 0),
        "it outlives its symptom"
    );
    let board = look(&mut tracker, &calm(at(61)), 61);
    assert_eq!((board.firing.len(), board.ended.len()), (0, 1));
    let board = look(&mut tracker, &refused, 62);
    assert_eq!(board.firing, [], "its time starts over");
    let board = look(&mut tracker, &refused, 92);
    assert_eq!((board.firing.len(), board.ended.len()), (1, 0), "it is not over");
    look(&mut tracker, &calm(at(121)), 121);
    let board = look(&mut tracker, &refused, 151);
    assert_eq!(board.firing[0].since, at(62), "nor was it while it was kept");
    let board = look(&mut tracker, &calm(at(181)), 181);
    assert_eq!((board.firing.len(), board.ended.len()), (0, 1));
    let board = look(&mut tracker, &calm(at(181)), 181 + RETENTION.as_secs());
    assert_eq!(board.ended, [], "and what ended long ago is forgotten");
}

/// What a daemon that has just started says of it.
fn at_once(conditions: Vec<AlertCondition>, now: Time) -> Vec<&'static str> {
    let names: Vec<_> = conditions.iter().map(|it| it.rule.alert).collect();
    assert_eq!(names.len(), 1);
    let board = Tracker::default().look(conditions, now);
    if board.firing.is_empty() {
        Vec::new()
    } else {
        names
    }
}

#[test]
fn a_restart_neither_ends_nor_delays_what_has_held_for_long_by_what_outlasts_it() {
    let (minute, day, now) = (60, 86_400, at(100 * 86_400));
    let id = HookId::new(HookKind::Mutating, "c", "w");
    for (ends, fires) in [
        (100 * day + 2 * day - 9 * minute, false),
        (100 * day + 2 * day - 11 * minute, true),
    ] {
        let found = conditions(&calm(now), &[(id.clone(), "ca", at(ends))], now);
        assert_eq!(!at_once(found, now).is_empty(), fires, "{ends}");
    }
    for (hours, fires) in [(11, false), (13, true)] {
        let mut frozen = calm(now);
        frozen.breaker.frozen = Some("Frozen by alice.".to_owned());
        frozen.breaker.frozen_since = Some(now.before(Duration::from_secs(hours * 3_600)));
        assert_eq!(
            !at_once(conditions(&frozen, &[], now), now).is_empty(),
            fires,
            "{hours} h"
        );
        // Of an order without a date it is not known.
        frozen.breaker.frozen_since = None;
        assert!(at_once(conditions(&frozen, &[], now), now).is_empty());
    }
    // A clock that is ahead of ours makes it hold from now on, and no sooner.
    let mut ahead = calm(now);
    ahead.breaker.frozen = Some("Frozen by alice.".to_owned());
    ahead.breaker.frozen_since = Some(at(101 * day));
    assert!(at_once(conditions(&ahead, &[], now), now).is_empty());
}

#[test]
fn a_condition_that_does_not_last_never_fires() {
    let mut tracker = Tracker::default();
    for second in 0..600 {
        let assessment = if second % 12 == 11 {
            calm(at(0))
        } else {
            hanging("w")
        };
        let board = look(&mut tracker, &assessment, second);
        assert_eq!((board.firing.len(), board.ended.len()), (0, 0));
    }
}

#[test]
fn five_thousand_failing_hooks_make_no_more_than_the_bound_and_the_same_ones_each_time() {
    let hooks = |from: usize| {
        let hooks = (0..5_000).map(|n| {
            let name = format!("w{:04}", (n + from) % 5_000);
            Verdict {
                incident: format!("{name}:443"),
                ..verdict(&name, Health::Failing, Cause::Hanging, Effect::Blocking)
            }
        });
        let mut assessment = with(hooks.collect());
        assessment.control_plane.writes = Writes::Delayed;
        assessment
    };
    let mut tracker = Tracker::default();
    look(&mut tracker, &hooks(0), 0);
    let board = look(&mut tracker, &hooks(0), 300);
    assert_eq!(
        (board.firing.len(), board.left_out),
        (MAX_ALERTS, 5_001 - MAX_ALERTS)
    );
    let again = look(&mut tracker, &hooks(2_500), 301);
    assert_eq!(again.firing, board.firing);
    assert_eq!(again.ended, []);
    let over = look(&mut tracker, &calm(at(0)), 331);
    assert_eq!((over.firing.len(), over.ended.len()), (0, MAX_ALERTS));
}
