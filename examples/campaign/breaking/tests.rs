//! A small campaign with the breaker on.

use super::*;
use crate::incident::draw;
use crate::model::bypass::Form;
use crate::model::traffic::{Class, Place, Verb};
use crate::play::{Manner, play};
use crate::score::breaker::{Handled, Harm, Reckoning};
use crate::score::score;

const SEED: u64 = 6;

/// Plays an incident and returns the breaker's score; `None` when a release without match conditions is in it.
fn reckoned(index: u64) -> Option<Reckoning> {
    let incident = draw::incident(SEED, index);
    let mut replicas = incident.cluster.replicas.iter();
    if replicas.any(|replica| *replica.release.at(0) != Release::New) {
        return None;
    }
    let manner = Manner {
        breaker: Some(Farthest::Skip),
        ..Manner::default()
    };
    score(index, &incident, &play(&incident, manner)).breaker
}

#[test]
fn no_innocent_hook_is_bypassed_and_most_that_block_writes_are_and_come_back() {
    let reckonings: Vec<Reckoning> = (0..48).filter_map(reckoned).collect();
    let innocent: Vec<&String> = reckonings.iter().flat_map(|it| &it.innocent).collect();
    assert!(innocent.is_empty(), "{innocent:?}");
    assert!(
        reckonings.iter().all(|it| it.left.is_empty()),
        "some were left bypassed"
    );
    let handled = reckonings.iter().flat_map(|it| &it.handled);
    let blocking: Vec<&Handled> = handled
        .filter(|handled| handled.felt && handled.harm == Harm::Blocking)
        .collect();
    let bypassed: Vec<&&Handled> = blocking.iter().filter(|handled| handled.rung.is_some()).collect();
    assert!(blocking.len() >= 5, "{} were felt", blocking.len());
    assert!(bypassed.len() * 10 >= blocking.len() * 7, "{blocking:#?}");
    assert!(
        bypassed.iter().all(|handled| handled.restored.is_some()),
        "{bypassed:#?}"
    );
}

#[test]
fn no_hook_is_bypassed_before_it_is_named() {
    let reckonings: Vec<Reckoning> = (0..48).filter_map(reckoned).collect();
    let bypasses: usize = reckonings.iter().map(|it| it.bypasses).sum();
    assert!(bypasses >= 10, "{bypasses} bypasses");
    let unnamed: Vec<&String> = reckonings.iter().flat_map(|it| &it.unnamed).collect();
    assert!(unnamed.is_empty(), "{unnamed:?}");
}

#[test]
fn a_quiet_hour_sees_no_bypass() {
    let incident = draw::quiet(SEED, 1, 900 * SECOND);
    let manner = Manner {
        breaker: Some(Farthest::Skip),
        ..Manner::default()
    };
    let broken = play(&incident, manner).broken.unwrap();
    assert_eq!(broken.acts, []);
}

#[test]
fn an_unfounded_shield_is_reckoned_with_how_long_it_stood() {
    let incident = draw::quiet(SEED, 1, 60 * SECOND);
    let manner = Manner {
        breaker: Some(Farthest::Shield),
        ..Manner::default()
    };
    let stood = |acts: &[(At, usize, To)]| {
        let mut played = play(&incident, manner);
        let acts = acts.iter().map(|(after, hook, to)| Act {
            at: incident.begin + after,
            hook: *hook,
            to: *to,
            cause: None,
        });
        played.broken = Some(Broken {
            acts: acts.collect(),
            ..Broken::default()
        });
        let reckoning = score(1, &incident, &played).breaker.unwrap();
        (reckoning.innocent.len(), reckoning.innocent_stood)
    };
    let (shield, original) = (To::Bypass(Rung::Shield), To::Original);
    assert_eq!(stood(&[]), (0, None));
    let two = [
        (SECOND, 0, shield),
        (2 * SECOND, 1, shield),
        (14 * SECOND, 0, original),
        (33 * SECOND, 1, original),
    ];
    assert_eq!(stood(&two), (2, Some(31.0)));
    let never_over = (incident.end - incident.begin - SECOND) / SECOND;
    assert_eq!(stood(&[(SECOND, 0, shield)]), (1, Some(never_over as f64)));
}

#[test]
fn a_shield_spares_the_control_planes_writes_and_no_tenants() {
    let tenant = Class::new(Verb::Post, "", "pods", Place::Tenant, 1.0);
    let system = Class::new(Verb::Post, "", "pods", Place::KubeSystem, 1.0);
    let heartbeat = Class::status("", "nodes", Place::Cluster, 1.0);
    let role = Class::new(
        Verb::Post,
        "rbac.authorization.k8s.io",
        "clusterroles",
        Place::Cluster,
        1.0,
    );
    let spared = |form: Form| [&tenant, &system, &heartbeat, &role].map(|class| form.spares(class));
    assert_eq!(spared(Form::Original), [false; 4]);
    assert_eq!(spared(Form::Shielded), [false, true, true, false]);
    assert_eq!(spared(Form::Skipped), [true; 4]);
    assert!(!Form::OnProbation.spares(&Class::canary(Place::Hookwatch)));
}
