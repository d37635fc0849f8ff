//! Attacks by a tenant against a breaker that is permitted everything: they cause at most a shield.

mod world;

use std::collections::BTreeSet;

use self::world::World;
use super::*;
use crate::act::breaker::{PolicyRule, Rung, Witness};

fn all() -> Vec<Rung> {
    Rung::ALL.to_vec()
}

/// The control for all tests below: a genuine outage goes as far as the policy permits.
#[test]
fn a_hook_that_hangs_by_itself_is_skipped_where_that_is_permitted() {
    let opa = hook("opa", 2);
    let mut world = World::calm(&[&opa], &all());
    for _ in 0..60 {
        world.hangs(&opa, 0.0);
        world.step();
    }
    assert_eq!(world.furthest(&opa), Some(Rung::Skip), "{}", world.last);
}

#[test]
fn overloading_a_security_hook_gains_at_most_a_shield() {
    // First it is slow: it is bypassed (shielded) only if it exceeds a deadline.
    let opa = hook("opa", 2);
    let slow = |seconds: f64| {
        let mut slow = World::calm(&[&opa], &all());
        for _ in 0..60 {
            let ms = slow.now;
            for backend in 0..2 {
                let outcome = alive();
                slow.incident.probe_taking(ms, 900, &opa, backend, outcome);
            }
            let took = (seconds * 1_000.0) as u64;
            slow.incident
                .canary(ms + 900 - took, took, CanaryOutcome::Written);
            slow.incident.count_writes(100.0, seconds + 0.1, 0.004);
            slow.incident.count_calls("opa", 100.0, seconds);
            slow.incident.scrape(ms + 950);
            slow.step();
        }
        slow
    };
    let within = slow(3.9);
    assert_eq!(within.furthest(&opa), None, "{}", within.last);
    let slow = slow(5.1);
    assert_eq!(slow.furthest(&opa), Some(Rung::Shield), "{}", slow.last);

    // Then it is overloaded: most calls time out, and some are answered.
    let mut swamped = slow;
    for _ in 0..60 {
        swamped.hangs(&opa, 4.0);
        swamped.step();
    }
    assert_eq!(swamped.furthest(&opa), Some(Rung::Shield), "{}", swamped.last);

    // Finally it does not answer at all. That is a real outage, and the policy decides how far to go: without a rule for
    // this hook no further than shield.
    let fallback = PolicyRule::fallback();
    let rungs: Vec<Rung> = fallback.rungs.into_iter().collect();
    let mut down = World::calm(&[&opa], &rungs);
    for _ in 0..60 {
        down.hangs(&opa, 0.0);
        down.step();
    }
    assert_eq!(down.furthest(&opa), Some(Rung::Shield), "{}", down.last);
}

#[test]
fn framing_a_security_hook_in_another_hooks_messages_adds_no_witness() {
    let words = "Internal error occurred: failed calling webhook \\\"opa\\\": failed to call webhook: Post \
                 \\\"https://opa.ns.svc:443/?timeout=10s\\\": context deadline exceeded";
    let plain = words.replace('\\', "");
    let said = [
        // A denial, of whatever status, is the hook's own text behind the API server's words.
        format!("admission webhook \"liar\" denied the request: {plain}"),
        // The API server puts the body of a 500 in quotes; that of a 403 is the rest of the message.
        format!(
            "Internal error occurred: failed calling webhook \"liar\": failed to call webhook: an error on the \
             server (\"{words}\") has prevented the request from succeeding"
        ),
        format!("Internal error occurred: failed calling webhook \"liar\": failed to call webhook: {plain}"),
        // Text that no API server produces.
        format!("{plain} "),
    ];
    for (index, text) in said.iter().enumerate() {
        let (opa, liar) = (hook("opa", 2), hook("liar", 1));
        let mut world = World::calm(&[&opa, &liar], &all());
        let by_the_api_server = index == said.len() - 1;
        let mut witnessed = BTreeSet::new();
        for _ in 0..60 {
            let ms = world.now;
            // The only witness: opa does not answer probes, for another reason.
            for backend in 0..2 {
                world
                    .incident
                    .probe_late(ms - 2 * SECOND, &opa, backend, 2 * SECOND);
            }
            world.incident.probe(ms, &liar, 0, alive());
            let outcome = CanaryOutcome::from_status(500, text);
            world.incident.canary(ms, 4, outcome);
            world.incident.count_calls("liar", 20.0, 0.004).rejections.calling += 20.0;
            world.incident.scrape(ms + 100);
            world.step();
            witnessed.extend(world.witnesses(&opa));
        }
        if by_the_api_server {
            assert!(witnessed.contains(&Witness::Canary), "else the test sees nothing");
        } else {
            assert_eq!(witnessed, BTreeSet::from([Witness::Probes]), "{text}");
            assert_eq!(world.furthest(&opa), None, "{text}");
        }
    }
}

/// Another owner's configuration with a webhook of the same name.
fn namesake(of: &Hook, kind: HookKind) -> Hook {
    let mut theirs = hook("theirs", 1);
    theirs.id = HookId::new(kind, "theirs", &of.id.webhook);
    if let HookTarget::Service(target) = &mut theirs.target
        && let ServiceState::Found { endpoints, .. } = &mut target.service
    {
        endpoints[0].address = ([10, 9, 9, 9], 8443).into();
    }
    theirs
}

#[test]
fn reusing_the_name_of_a_security_hook_gains_at_most_a_shield() {
    for kind in [HookKind::Validating, HookKind::Mutating] {
        let opa = hook("opa", 2);
        let theirs = namesake(&opa, kind);
        let mut world = World::calm(&[&opa], &all());
        let both = vec![opa.clone(), theirs.clone()];
        world.incident.inventory(world.now + 10, both);
        for _ in 0..60 {
            // Every kind of evidence, under a name that two hooks share.
            world.hangs(&opa, 0.0);
            world
                .incident
                .probe_late(world.now - 2 * SECOND, &theirs, 0, 2 * SECOND);
            let refused = refusal("opa", "context deadline exceeded");
            world.incident.canary(world.now + 10, 40, refused);
            world.step();
        }
        assert_eq!(world.furthest(&opa), Some(Rung::Shield), "{kind:?}");
    }
}

/// Counters under a reused name remain after its configuration is deleted.
#[test]
fn removing_the_reused_name_again_gains_nothing() {
    let opa = hook("opa", 2);
    let theirs = namesake(&opa, HookKind::Validating);
    let mut world = World::calm(&[&opa], &all());
    for second in 0..90 {
        let ms = world.now;
        let is_there = second < 8;
        if second == 0 {
            let both = vec![opa.clone(), theirs.clone()];
            world.incident.inventory(ms, both);
        }
        if second == 8 {
            world.incident.inventory(ms, vec![opa.clone()]);
        }
        world.incident.answers(ms, &opa);
        if is_there {
            let text = "Internal error occurred: failed calling webhook \"opa\": failed to call webhook: Post \
                        \"https://theirs.ns.svc:443/?timeout=10s\": context deadline exceeded";
            world
                .incident
                .canary(ms, 10, CanaryOutcome::from_status(500, text));
            let series = world.incident.count_calls("opa", 20.0, 0.5);
            series.rejections.calling += 20.0;
        }
        world.incident.scrape(ms + 100);
        world.step();
        let against = world.witnesses(&opa);
        assert!(
            !against.contains(&Witness::Canary),
            "{second}: it was called elsewhere"
        );
    }
    assert_eq!(world.furthest(&opa), None, "{}", world.last);

    // Evidence within the following minutes is ambiguous as well.
    let mut world = World::calm(&[&opa], &all());
    let both = vec![opa.clone(), theirs];
    world.incident.inventory(world.now + 10, both);
    world.incident.inventory(world.now + 20, vec![opa.clone()]);
    for _ in 0..60 {
        world.hangs(&opa, 0.0);
        world.step();
    }
    assert_eq!(world.furthest(&opa), Some(Rung::Shield), "{}", world.last);
}

/// The hook with endpoints that the EndpointSlice controller did not write: in this network, or none.
pub(super) fn by_hand(opa: &Hook, listed: Option<[u8; 3]>) -> Hook {
    let mut opa = opa.clone();
    if let HookTarget::Service(target) = &mut opa.target
        && let ServiceState::Found {
            endpoints, by_hand, ..
        } = &mut target.service
    {
        *by_hand = true;
        match listed {
            None => endpoints.clear(),
            Some([a, b, c]) => {
                for (endpoint, d) in endpoints.iter_mut().zip(1..) {
                    endpoint.address = ([a, b, c, d], 8443).into();
                }
            }
        }
    }
    opa
}

#[test]
fn writing_the_endpoints_of_a_security_hook_gains_at_most_a_shield() {
    let opa = hook("opa", 2);
    // Addresses at which nothing answers, so calls really hang.
    let astray = by_hand(&opa, Some([192, 0, 2]));
    let mut world = World::calm(&[&opa], &all());
    world.incident.inventory(world.now + 10, vec![astray.clone()]);
    for _ in 0..60 {
        world.hangs(&astray, 0.0);
        world.step();
    }
    assert_eq!(world.furthest(&opa), Some(Rung::Shield), "{}", world.last);

    // No addresses, so calls are refused.
    let mut world = World::calm(&[&opa], &all());
    world
        .incident
        .inventory(world.now + 10, vec![by_hand(&opa, None)]);
    for _ in 0..60 {
        let ms = world.now;
        let refused = refusal("opa", "no endpoints available for service \"opa\"");
        world.incident.canary(ms + 20, 4, refused);
        let series = world.incident.count_calls("opa", 20.0, 0.001);
        series.rejections.calling += 20.0;
        world.incident.scrape(ms + 100);
        world.step();
    }
    assert_eq!(world.furthest(&opa), Some(Rung::Shield), "{}", world.last);

    // Addresses that the API server does not use: probes are only one witness, and a second one is needed.
    let mut world = World::calm(&[&opa], &all());
    world.incident.inventory(world.now + 10, vec![astray.clone()]);
    for _ in 0..60 {
        let ms = world.now;
        for backend in 0..2 {
            world
                .incident
                .probe_late(ms - 2 * SECOND, &astray, backend, 2 * SECOND);
        }
        world.incident.canary(ms, 5, CanaryOutcome::Written);
        world.incident.count_writes(20.0, 0.005, 0.004);
        world.incident.count_calls("opa", 20.0, 0.001);
        world.incident.scrape(ms + 100);
        world.step();
    }
    assert_eq!(world.furthest(&opa), None, "{}", world.last);
}

/// The controller repairs its own slices; another writer keeps emptying them.
#[test]
fn fighting_the_controller_for_the_endpoints_gains_at_most_a_shield() {
    let opa = hook("opa", 2);
    let mut empty = opa.clone();
    if let HookTarget::Service(target) = &mut empty.target
        && let ServiceState::Found { endpoints, .. } = &mut target.service
    {
        endpoints.clear();
    }
    let refused = |world: &mut World| {
        let ms = world.now;
        let refused = refusal("opa", "no endpoints available for service \"opa\"");
        world.incident.canary(ms + 20, 4, refused);
        let series = world.incident.count_calls("opa", 20.0, 0.001);
        series.rejections.calling += 20.0;
        world.incident.scrape(ms + 100);
    };
    let mut fought = World::calm(&[&opa], &all());
    for second in 0..120 {
        // The controller repairs the slice after one second at first, and then for one second of every nine.
        let is_empty = second == 0 || second >= 2 && second % 9 != 1;
        let listed = if is_empty { &empty } else { &opa };
        let ms = fought.now;
        fought.incident.inventory(ms + 10, vec![listed.clone()]);
        if is_empty {
            refused(&mut fought);
        } else {
            fought.incident.answers(ms + 30, &opa);
            fought.incident.canary(ms + 30, 4, CanaryOutcome::Written);
            fought.incident.count_calls("opa", 20.0, 0.001);
            fought.incident.scrape(ms + 100);
        }
        fought.step();
    }
    assert_eq!(fought.furthest(&opa), Some(Rung::Shield), "{}", fought.last);

    // Emptied permanently by the controller itself: a real outage.
    let mut lost = World::calm(&[&opa], &all());
    lost.incident.inventory(lost.now + 10, vec![empty]);
    for _ in 0..60 {
        refused(&mut lost);
        lost.step();
    }
    assert_eq!(lost.furthest(&opa), Some(Rung::Skip), "{}", lost.last);
}

/// Its own path hangs, and the path of the security hook works.
#[test]
fn a_broken_hook_that_shares_the_service_of_a_security_hook_on_purpose_harms_itself_alone() {
    let (opa, mut broken) = (hook("opa", 2), hook("broken", 2));
    broken.target = opa.target.clone();
    if let HookTarget::Service(target) = &mut broken.target {
        target.path = "/hangs".into();
    }
    let mut world = World::calm(&[&opa, &broken], &all());
    for _ in 0..120 {
        world.incident.answers(world.now - SECOND, &opa);
        world.incident.count_calls("opa", 20.0, 0.004);
        world.hangs(&broken, 0.0);
        world.step();
    }
    assert_eq!(world.furthest(&opa), None, "{}", world.last);
    assert_eq!(world.furthest(&broken), Some(Rung::Skip), "{}", world.last);
}

/// A tenant's Service whose EndpointSlice lists the Pods of a security hook.
#[test]
fn listing_the_addresses_of_a_security_hook_for_another_brings_it_into_no_incident() {
    let (opa, broken) = (hook("opa", 2), by_hand(&hook("broken", 2), Some([10, 0, 0])));
    let addresses = |hook: &Hook| {
        hook.backends()
            .iter()
            .map(|it| it.address.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(addresses(&opa), addresses(&broken));
    let mut world = World::calm(&[&opa, &broken], &all());
    for _ in 0..120 {
        world.incident.answers(world.now - SECOND, &opa);
        world.incident.count_calls("opa", 20.0, 0.004);
        world.hangs(&broken, 0.0);
        world.step();
    }
    assert_eq!(world.furthest(&opa), None, "{}", world.last);
    assert_eq!(world.furthest(&broken), Some(Rung::Shield), "{}", world.last);
    let ms = world.now + 10;
    let [opa, broken] = ["opa", "broken"].map(|name| world.incident.verdict(ms, name));
    assert_judged(&opa, Health::Healthy, None);
    assert_ne!(opa.incident, broken.incident);
}

#[test]
fn a_part_of_the_backends_and_denials_never_lead_past_a_shield() {
    let opa = hook("opa", 3);
    let mut partial = World::calm(&[&opa], &all());
    for _ in 0..60 {
        let ms = partial.now;
        partial.incident.probe(ms, &opa, 0, ProbeOutcome::Refused);
        for backend in 1..3 {
            partial.incident.probe(ms, &opa, backend, alive());
        }
        let refused = refusal("opa", "dial tcp 10.0.0.1:8443: connect: connection refused");
        partial.incident.canary(ms + 10, 4, refused);
        partial.incident.count_writes(40.0, 0.005, 0.004);
        let series = partial.incident.count_calls("opa", 60.0, 0.001);
        series.rejections.calling += 20.0;
        partial.incident.scrape(ms + 100);
        partial.step();
    }
    assert_eq!(partial.furthest(&opa), Some(Rung::Shield), "{}", partial.last);

    let mut denying = World::calm(&[&opa], &all());
    for _ in 0..60 {
        let ms = denying.now;
        denying.incident.answers(ms, &opa);
        let denied = "admission webhook \"opa\" denied the request: no";
        denying
            .incident
            .canary(ms + 10, 4, CanaryOutcome::from_status(403, denied));
        let series = denying.incident.count_calls("opa", 60.0, 0.001);
        series.rejections.denied += 60.0;
        denying.incident.scrape(ms + 100);
        denying.step();
    }
    assert_eq!(denying.furthest(&opa), None, "{}", denying.last);
}
