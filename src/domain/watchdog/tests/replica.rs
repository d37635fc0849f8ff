//! What depends on which of several replicas leads.

use super::*;
use crate::act::leadership::{LeadershipObject, ReplicaRole, ReplicaStanding, Undecided};

fn report(standing: ReplicaStanding, trouble: Option<&str>) -> Event {
    Event::Replica(ReplicaReport {
        identity: "me".into(),
        standing,
        trouble: trouble.map(str::to_owned),
    })
}

fn leading(until: u64) -> Event {
    let until = Incident::at(until);
    let by = LeadershipObject::Lease;
    report(ReplicaStanding::Leading { by, until }, None)
}

fn following() -> Event {
    let (holder, by) = ("other".into(), LeadershipObject::Ledger);
    report(ReplicaStanding::Following { holder, by }, None)
}

fn view(incident: &mut Incident, ms: u64) -> ReplicaView {
    incident.tick(ms).replica.clone().expect("it takes part")
}

/// A hook that hangs from 11 s on; the last observation is at 13 s.
fn hanging() -> (Incident, Hook) {
    let opa = hook("opa", 3);
    let mut incident = Incident::hung(&opa);
    incident.scrape(13 * SECOND);
    (incident, opa)
}

#[test]
fn a_daemon_without_an_election_shows_no_replica_and_announces_nothing() {
    let (mut incident, _) = hanging();
    let at = 13 * SECOND + 100;
    assert_eq!(incident.verdict(at, "opa").health, Health::Failing);
    assert_eq!(incident.tick(at).replica, None);
    assert_eq!(incident.announced, []);
}

#[test]
fn the_leader_announces_a_failing_hook_once_and_a_follower_never() {
    let (mut incident, _) = hanging();
    let at = 13 * SECOND + 100;
    incident.event(at, following());
    assert_eq!(view(&mut incident, at).role, ReplicaRole::Follower);
    assert_eq!(incident.announced, []);
    incident.event(at + 100, leading(30 * SECOND));
    incident.tick(at + 100);
    incident.tick(at + 300);
    let [said] = &incident.announced[..] else {
        panic!("{:?}", incident.announced);
    };
    assert_eq!((said.reason, &*said.hook.webhook), ("Hanging", "opa"));
}

#[test]
fn a_leader_that_is_not_renewed_is_none_from_that_instant() {
    let mut incident = Incident::calm(&[&hook("opa", 1)]);
    incident.event(11 * SECOND, leading(20 * SECOND));
    let leader = view(&mut incident, 19 * SECOND);
    assert_eq!(
        (leader.role, leader.holder.as_deref()),
        (ReplicaRole::Leader, Some("me"))
    );
    assert_eq!(
        (leader.by, leader.since),
        (Some(LeadershipObject::Lease), Incident::at(11 * SECOND))
    );
    let none = view(&mut incident, 20 * SECOND);
    assert_eq!((none.role, none.holder), (ReplicaRole::Unknown, None));
    assert!(none.trouble.is_some());
}

#[test]
fn a_change_of_place_is_told_and_new_words_for_the_same_trouble_are_not() {
    let mut incident = Incident::calm(&[&hook("opa", 1)]);
    let blocked = |words| report(ReplicaStanding::Undecided(Undecided::LeaseBlocked), Some(words));
    incident.told.clear();
    incident.event(11 * SECOND, blocked("one"));
    incident.event(12 * SECOND, blocked("two"));
    incident.event(13 * SECOND, following());
    incident.event(14 * SECOND, leading(30 * SECOND));
    incident.event(15 * SECOND, leading(31 * SECOND));
    let told: Vec<_> = incident
        .told
        .iter()
        .filter_map(|change| match change {
            LoggedChange::Replica { from, view } => Some((*from, view.role)),
            _ => None,
        })
        .collect();
    assert_eq!(
        told,
        [
            (None, ReplicaRole::Unknown),
            (Some(ReplicaRole::Unknown), ReplicaRole::Follower),
            (Some(ReplicaRole::Follower), ReplicaRole::Leader),
        ]
    );
    assert_eq!(view(&mut incident, 16 * SECOND).trouble, None);
}
