//! What becomes of alerts on the way to an Alertmanager.

use super::*;

/// A board with one alert that fires, and one on which it has ended.
fn boards() -> (Board, Board) {
    let mut tracker = Tracker::default();
    look(&mut tracker, &hanging("w"), 0);
    let firing = look(&mut tracker, &hanging("w"), 15);
    (firing, look(&mut tracker, &calm(at(45)), 45))
}

/// Takes what is to be pushed, and has it accepted.
fn accept(delivery: &mut AlertDelivery, board: &Board, voice: Voice, seconds: u64) -> Batch {
    let batch = delivery
        .next(board, voice, at(seconds))
        .expect("there is something to push");
    delivery.accepted(&batch, at(seconds));
    batch
}

#[test]
fn what_fires_is_repeated_and_its_end_is_said_once() {
    let (firing, ended) = boards();
    let mut delivery = AlertDelivery::new(PACE);
    accept(&mut delivery, &firing, Voice::Everything, 30);
    assert_eq!(delivery.next(&firing, Voice::Everything, at(59)), None);
    accept(&mut delivery, &firing, Voice::Everything, 60);
    let batch = accept(&mut delivery, &ended, Voice::Everything, 61);
    assert_eq!((batch.firing.len(), batch.ended.len()), (0, 1));
    assert_eq!(delivery.next(&ended, Voice::Everything, at(600)), None);
    assert_eq!(delivery.forgotten(&Board::default()), 0);
}

#[test]
fn a_failure_is_tried_again_with_growing_pauses_and_what_holds_by_then() {
    let (firing, ended) = boards();
    let mut delivery = AlertDelivery::new(PACE);
    let mut now = at(30);
    let mut pauses = Vec::new();
    for _ in 0..8 {
        assert!(delivery.next(&firing, Voice::Everything, now).is_some());
        delivery.failed(1.0, now);
        let failed = now;
        while delivery.next(&firing, Voice::Everything, now).is_none() {
            now = now + Duration::from_millis(500);
        }
        pauses.push(now.since(failed).as_secs_f64());
    }
    assert_eq!(pauses, [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]);
    let batch = delivery
        .next(&ended, Voice::Everything, now)
        .expect("the end is owed");
    assert_eq!((batch.firing.len(), batch.ended.len()), (0, 1));
}

#[test]
fn an_end_that_could_never_be_told_is_counted_as_lost() {
    let (firing, ended) = boards();
    let mut delivery = AlertDelivery::new(PACE);
    accept(&mut delivery, &firing, Voice::Everything, 30);
    delivery.failed(0.0, at(41));
    assert_eq!(delivery.forgotten(&ended), 0);
    assert_eq!(delivery.forgotten(&Board::default()), 1);
    assert_eq!(delivery.forgotten(&Board::default()), 0, "once");
}

#[test]
fn what_was_refused_is_offered_ever_more_seldom_and_news_at_once() {
    let (firing, ended) = boards();
    let mut delivery = AlertDelivery::new(PACE);
    let (mut offered, mut last) = (Vec::new(), at(30));
    for second in 30..7_300 {
        if let Some(batch) = delivery.next(&firing, Voice::Everything, at(second)) {
            let first = delivery.refused(&batch, at(second));
            assert_eq!(first, offered.is_empty());
            offered.push(at(second).since(last).as_secs());
            last = at(second);
        }
    }
    assert_eq!(offered[..3], [0, 30, 60]);
    // What it took before has not run out by then.
    assert!(
        offered[3..]
            .iter()
            .all(|pause| *pause == 90 && 90 < PACE.ahead().as_secs()),
        "{offered:?}"
    );
    assert!(
        delivery.next(&ended, Voice::Everything, at(7_300)).is_some(),
        "an end is news"
    );
}

#[test]
fn a_follower_is_silent_and_without_a_leader_each_replica_says_what_fires_and_none_that_it_ended() {
    let (firing, ended) = boards();
    let leading = |until| ReplicaStanding::Leading {
        by: LeadershipObject::Lease,
        until,
    };
    let following = ReplicaStanding::Following {
        holder: "b".into(),
        by: LeadershipObject::Ledger,
    };
    for (standing, voice) in [
        (None, Voice::Everything),
        (Some(leading(at(41))), Voice::Everything),
        (Some(leading(at(40))), Voice::Firing),
        (Some(following), Voice::Nothing),
        (
            Some(ReplicaStanding::Undecided(Undecided::LeaseBlocked)),
            Voice::Firing,
        ),
    ] {
        assert_eq!(Voice::of(standing.as_ref(), at(40)), voice);
        let mut delivery = AlertDelivery::new(PACE);
        let next = delivery.next(&firing, voice, at(40));
        assert_eq!(next.is_some(), voice != Voice::Nothing);
        let next = delivery.next(&ended, voice, at(40));
        assert_eq!(next.is_some(), voice == Voice::Everything, "{standing:?}");
    }
}

#[test]
fn a_replica_that_becomes_the_leader_says_at_once_what_fires_and_what_has_ended() {
    let (firing, ended) = boards();
    let mut delivery = AlertDelivery::new(PACE);
    accept(&mut delivery, &firing, Voice::Firing, 30);
    assert_eq!(delivery.next(&firing, Voice::Nothing, at(31)), None);
    assert!(delivery.next(&firing, Voice::Everything, at(32)).is_some());
    assert!(delivery.next(&ended, Voice::Everything, at(41)).is_some());
}
