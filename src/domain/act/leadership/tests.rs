//! Several replicas in a simulation that loses, delays and repeats requests. No replica knows the true time.

mod world;

use proptest::prelude::*;

use self::world::{CALM, Faults, Happening, Hooks, TERMS, World};
use super::candidate::ClaimStep;
use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn two_never_believe_at_the_same_instant(
        seed in any::<u64>(),
        drift in proptest::collection::vec(-90_000_i64..90_000, 2..4),
        lost in 0_u64..30,
        delay in prop_oneof![1_u64..50, 1_u64..3_000, 1_u64..30_000],
        trouble in 0_u64..10,
        hooks in any::<bool>(),
    ) {
        let faults = Faults { lost, delay, trouble, hooks };
        World::new(seed, &drift, faults).run(1_200_000);
    }

    #[test]
    fn after_any_trouble_a_replica_leads_again(
        seed in any::<u64>(),
        drift in proptest::collection::vec(-50_000_i64..50_000, 1..4),
        lost in 0_u64..30,
        trouble in 0_u64..10,
        hooks in any::<bool>(),
        after in 0_usize..4,
    ) {
        let faults = Faults { lost, delay: 2_000, trouble, hooks };
        let mut world = World::new(seed, &drift, faults);
        world.run(200_000);
        world.faults = CALM;
        world.hooks = [Hooks::Well, Hooks::Refuse, Hooks::HangAndFail, Hooks::HangAndIgnore][after];
        // Earlier requests time out, and the lease of a dead leader expires.
        world.run(300_000);
        world.led = 0;
        world.run(320_000);
        prop_assert!(world.led > 0, "nobody leads");
    }
}

fn world(replicas: usize) -> World {
    World::new(7, &vec![0; replicas], CALM)
}

#[test]
fn one_leads_by_the_lease_and_the_others_follow_it() {
    let mut world = world(3);
    world.run(60_000);
    let standings: Vec<_> = (0..3)
        .map(|at| world.actors[at].candidate.standing(world.local(at)))
        .collect();
    let leading = |it: &&ReplicaStanding| {
        matches!(
            it,
            ReplicaStanding::Leading {
                by: LeadershipObject::Lease,
                ..
            }
        )
    };
    let leader = standings.iter().position(|it| leading(&it)).expect("a leader");
    for (at, standing) in standings.iter().enumerate() {
        if at != leader {
            let holder = Arc::clone(&world.actors[leader].name);
            let by = LeadershipObject::Lease;
            assert_eq!(*standing, ReplicaStanding::Following { holder, by });
        }
    }
    assert_eq!(
        world.objects[1].content, None,
        "the ledger is not touched while the Lease can be written"
    );
}

#[test]
fn a_leader_that_is_blocked_goes_on_by_the_ledger_without_a_break_and_comes_back() {
    for hooks in [Hooks::Refuse, Hooks::HangAndFail, Hooks::HangAndIgnore] {
        let mut world = world(2);
        world.run(30_000);
        let leader = |world: &World| (0..2).find(|at| world.actors[*at].candidate.leads(world.local(*at)));
        let before = leader(&world).expect("a leader");
        world.hooks = hooks;
        world.by = [false; 2];
        for second in 31..120 {
            world.run(second * 1_000);
            assert_eq!(leader(&world), Some(before), "{hooks:?} at {second} s");
        }
        assert!(world.by[1], "the ledger was not used");
        let other = 1 - before;
        assert_eq!(
            world.actors[other].candidate.standing(world.local(other)),
            ReplicaStanding::Following {
                holder: Arc::clone(&world.actors[before].name),
                by: LeadershipObject::Ledger
            }
        );
        world.hooks = Hooks::Well;
        world.run(180_000);
        assert_eq!(leader(&world), Some(before));
        assert!(matches!(
            world.actors[before].candidate.standing(world.local(before)),
            ReplicaStanding::Leading {
                by: LeadershipObject::Lease,
                ..
            }
        ));
        let (holder, ..) = world.objects[1].content.clone().expect("was used");
        assert_eq!(holder, None, "it lets the ledger go");
    }
}

#[test]
fn a_ledger_that_cannot_be_read_is_replaced_after_a_term_and_let_go() {
    let mut world = world(2);
    world.run(30_000);
    world.objects[1].content = Some((Some(UNREADABLE.into()), 0, 0));
    world.objects[1].version += 1;
    world.run(40_000);
    let holder = |world: &World| world.objects[1].content.clone().and_then(|(holder, ..)| holder);
    assert_eq!(
        holder(&world).as_deref(),
        Some(UNREADABLE),
        "another replica may hold it"
    );
    world.run(90_000);
    assert_eq!(holder(&world), None);
    let leads = |at: &usize| world.actors[*at].candidate.leads(world.local(*at));
    assert_eq!((0..2).filter(leads).count(), 1);
}

#[test]
fn who_resigns_is_followed_within_a_round_and_who_dies_after_its_term() {
    let mut world = world(2);
    world.run(30_000);
    let leader = |world: &World| (0..2).find(|at| world.actors[*at].candidate.leads(world.local(*at)));
    let first = leader(&world).expect("a leader");
    world.later(first, 0, Happening::Resign);
    world.run(30_001);
    world.run(33_000);
    let second = leader(&world).expect("the other leads");
    assert_ne!(first, second);
    world.actors[first].candidate = Candidate::new("back".into(), TERMS);
    world.actors[first].name = "back".into();
    world.later(first, 0, Happening::Round);
    world.run(40_000);
    world.actors[second].gone = true;
    world.run(52_000);
    let alive = |world: &World| world.actors[first].candidate.leads(world.local(first));
    assert!(!alive(&world), "the dead one might still believe");
    world.run(60_000);
    assert!(alive(&world));
}

#[test]
fn a_write_that_changed_nothing_is_no_renewal() {
    // With a stopped wall clock, a renewal would write the same content, which an API server does not store: no replica
    // would see it.
    let (mut candidate, at) = (Candidate::new("me".into(), TERMS), Time::from_unix_millis(1_000));
    candidate.begin_round(at);
    let mine = HolderRecord {
        holder: Some("me".into()),
        term: TERMS.term,
        transitions: 0,
        uid: "u".into(),
        version: "7".into(),
    };
    assert_eq!(candidate.next(at), Some(ClaimStep::Read(LeadershipObject::Lease)));
    candidate.read(LeadershipObject::Lease, Some(mine), at);
    assert_eq!(
        candidate.next(at),
        Some(ClaimStep::Read(LeadershipObject::Ledger))
    );
    candidate.read(LeadershipObject::Ledger, None, at);
    let Some(ClaimStep::Write(LeadershipObject::Lease, bid)) = candidate.next(at) else {
        panic!("it renews");
    };
    let same = BidOutcome::Done { version: "7".into() };
    candidate.written(LeadershipObject::Lease, &bid, same, at, at);
    while let Some(step) = candidate.next(at) {
        assert_eq!(step, ClaimStep::Read(LeadershipObject::Lease));
        candidate.not_read(LeadershipObject::Lease);
    }
    assert!(!candidate.leads(at));
}

#[test]
fn an_object_that_is_deleted_under_its_holder_is_waited_for() {
    let mut claim = claim::Claim::new("me".into(), TERMS);
    let at = Time::from_unix_millis;
    let held = HolderRecord {
        holder: Some("other".into()),
        term: Duration::ZERO,
        transitions: 3,
        uid: "u".into(),
        version: "1".into(),
    };
    claim.read(Some(held), at(0));
    claim.read(None, at(14_000));
    assert_eq!(claim.hold(at(20_000)), claim::Hold::Other("other".into()));
    assert_eq!(claim.hold(at(29_000)), claim::Hold::Free);
    assert_eq!(claim.bid().precondition, None);
}

#[test]
fn two_never_lead_when_the_lease_is_deleted_under_a_leader_that_is_cut_off() {
    for again in [false, true] {
        let mut world = world(3);
        world.run(30_000);
        let leads = |world: &World, at: usize| world.actors[at].candidate.leads(world.local(at));
        let leader = (0..3).find(|at| leads(&world, *at)).expect("a leader");
        world.actors[leader].cut = world.now + 60_000;
        world.delete_lease(again);
        world.run(60_000);
        assert!((0..3).any(|at| at != leader && leads(&world, at)), "{again}");
    }
}

#[test]
fn an_object_that_is_created_again_under_its_holder_is_waited_for_and_one_that_is_released_is_not() {
    let at = Time::from_unix_millis;
    let record = |holder: Option<&str>, uid: &str, version: &str| {
        Some(HolderRecord {
            holder: holder.map(Into::into),
            term: Duration::ZERO,
            transitions: 0,
            uid: uid.into(),
            version: version.into(),
        })
    };
    for (uid, deleted, hold) in [
        ("new", false, claim::Hold::Other("other".into())),
        ("new", true, claim::Hold::Other("other".into())),
        ("old", false, claim::Hold::Free),
    ] {
        let mut claim = claim::Claim::new("me".into(), TERMS);
        claim.read(record(Some("other"), "old", "1"), at(0));
        if deleted {
            claim.read(None, at(500));
        }
        claim.read(record(None, uid, "2"), at(1_000));
        assert_eq!(claim.hold(at(2_000)), hold, "{uid} {deleted}");
        // Others write something else into it.
        claim.read(record(None, uid, "3"), at(3_000));
        assert_eq!(claim.hold(at(4_000)), hold, "{uid} {deleted}");
        assert_eq!(claim.hold(at(16_000)), claim::Hold::Free);
    }
}

#[test]
fn what_is_read_again_unchanged_runs_out_and_what_is_renewed_does_not() {
    let mut claim = claim::Claim::new("me".into(), TERMS);
    let at = Time::from_unix_millis;
    let held = |version: &str, term| HolderRecord {
        holder: Some("other".into()),
        term: Duration::from_secs(term),
        transitions: 3,
        uid: "u".into(),
        version: version.into(),
    };
    claim.read(Some(held("1", 15)), at(0));
    claim.read(Some(held("1", 15)), at(10_000));
    assert_eq!(claim.hold(at(15_000)), claim::Hold::Free);
    let bid = claim.bid();
    assert_eq!(
        (bid.precondition.as_deref(), bid.transitions, bid.changes_hands),
        (Some("1"), 4, true)
    );
    claim.read(Some(held("2", 40)), at(15_000));
    assert_eq!(
        claim.hold(at(54_999)),
        claim::Hold::Other("other".into()),
        "its own term is longer"
    );
    claim.read(Some(held("3", u64::MAX / 2)), at(15_000));
    assert_eq!(
        claim.hold(at(616_000)),
        claim::Hold::Free,
        "nobody is waited for for ever"
    );
}

#[test]
fn a_read_that_was_under_way_when_a_late_write_came_back_confirms_nothing() {
    let (mut candidate, at) = (Candidate::new("me".into(), TERMS), Time::from_unix_millis(1_000));
    candidate.begin_round(at);
    for &place in LeadershipObject::ALL {
        assert_eq!(candidate.next(at), Some(ClaimStep::Read(place)));
        candidate.read(place, None, at);
    }
    let Some(ClaimStep::Write(LeadershipObject::Lease, bid)) = candidate.next(at) else {
        panic!("it bids");
    };
    candidate.late();
    let Some(ClaimStep::Write(LeadershipObject::Ledger, ledger)) = candidate.next(at) else {
        panic!("the ledger decides");
    };
    candidate.written(LeadershipObject::Ledger, &ledger, BidOutcome::Conflict, at, at);
    assert_eq!(
        candidate.next(at),
        Some(ClaimStep::Read(LeadershipObject::Ledger))
    );
    // The Lease can be written again. Another replica may have written the ledger since it was read.
    let done = BidOutcome::Done { version: "1".into() };
    candidate.written(LeadershipObject::Lease, &bid, done, at, at);
    candidate.read(LeadershipObject::Ledger, None, at);
    assert!(!candidate.leads(at));
    assert_eq!(
        candidate.next(at),
        Some(ClaimStep::Confirm(LeadershipObject::Ledger)),
        "it asks again"
    );
    candidate.read(LeadershipObject::Ledger, None, at);
    assert!(candidate.leads(at));
}

#[test]
fn a_late_renewal_of_the_lease_does_not_shorten_what_the_ledger_has_given() {
    let (mut candidate, start) = (Candidate::new("me".into(), TERMS), Time::from_unix_millis(1_000));
    candidate.begin_round(start);
    for &place in LeadershipObject::ALL {
        assert_eq!(candidate.next(start), Some(ClaimStep::Read(place)));
        candidate.read(place, None, start);
    }
    let Some(ClaimStep::Write(LeadershipObject::Lease, bid)) = candidate.next(start) else {
        panic!("it bids");
    };
    candidate.late();
    let at = start + TERMS.deadline() / 2;
    let Some(ClaimStep::Write(LeadershipObject::Ledger, ledger)) = candidate.next(at) else {
        panic!("the ledger decides");
    };
    let done = || BidOutcome::Done { version: "1".into() };
    candidate.written(LeadershipObject::Ledger, &ledger, done(), at, at);
    let (begins, goes_on) = (LeadershipObject::Lease, LeadershipObject::Ledger);
    assert_eq!(candidate.next(at), Some(ClaimStep::Confirm(begins)));
    candidate.read(begins, None, at);
    candidate.written(LeadershipObject::Lease, &bid, done(), start, at);
    assert_eq!(candidate.next(at), Some(ClaimStep::Read(goes_on)));
    candidate.read(goes_on, None, at);
    assert!(candidate.leads(start + TERMS.deadline() + TERMS.round()));
}

#[test]
fn who_may_not_write_the_ledger_leads_again_as_soon_as_the_lease_can_be_written() {
    let (mut candidate, mut at) = (Candidate::new("me".into(), TERMS), Time::from_unix_millis(1_000));
    let mut lease_version = 0;
    let mut ledger_bids = 0;
    let mut play = |candidate: &mut Candidate, at: Time, blocked: bool| {
        candidate.begin_round(at);
        let mut steps = 0;
        while let Some(step) = candidate.next(at) {
            steps += 1;
            assert!(steps < 12, "a round ends");
            match step {
                ClaimStep::Read(place) | ClaimStep::Confirm(place) => candidate.read(place, None, at),
                ClaimStep::Write(LeadershipObject::Ledger, bid) => {
                    ledger_bids += 1;
                    candidate.written(LeadershipObject::Ledger, &bid, BidOutcome::Refused, at, at);
                }
                ClaimStep::Write(LeadershipObject::Lease, bid) if blocked => {
                    candidate.written(LeadershipObject::Lease, &bid, BidOutcome::Refused, at, at);
                }
                ClaimStep::Write(LeadershipObject::Lease, bid) => {
                    lease_version += 1;
                    let version = lease_version.to_string();
                    candidate.written(
                        LeadershipObject::Lease,
                        &bid,
                        BidOutcome::Done { version },
                        at,
                        at,
                    );
                }
            }
        }
    };
    for _ in 0..10 {
        play(&mut candidate, at, true);
        assert!(!candidate.leads(at));
        assert_eq!(
            candidate.standing(at),
            ReplicaStanding::Undecided(Undecided::LeaseBlocked)
        );
        at = at + TERMS.round();
    }
    play(&mut candidate, at, false);
    assert!(candidate.leads(at));
    assert_eq!(ledger_bids, 11, "once a round");
}

#[test]
fn rounds_begin_at_most_a_round_apart_and_not_all_together() {
    for toss in 0..1_000 {
        let pause = TERMS.pause(toss);
        assert!(
            pause <= TERMS.round() && pause >= TERMS.round() * 4 / 5,
            "{pause:?}"
        );
    }
}
