//! Bad input: however much there is to ask, so many probes and no more, and the rest on time.

use super::*;

/// The longest between two fresh probes of a Service's first endpoint.
fn longest_gap(sim: &Sim, service: usize) -> Duration {
    let backend = BackendAddress::Socket(address(service, 0));
    let fresh = sim.made.iter().filter(|(_, attempt)| {
        attempt.connection == ConnectionKind::Fresh && attempt.target.backend.address == backend
    });
    let at: Vec<Time> = fresh.map(|(at, _)| *at).collect();
    assert!(at.len() > 1, "service {service} was hardly probed");
    at.windows(2)
        .map(|pair| pair[1].since(pair[0]))
        .max()
        .expect("two")
}

/// The most probes that began within one second.
fn most_in_a_second(sim: &Sim) -> usize {
    let at: Vec<Time> = sim.made.iter().map(|(at, _)| *at).collect();
    let within = |from: &Time| {
        at.iter()
            .filter(|known| **known >= *from && known.since(*from) < s(1))
            .count()
    };
    at.iter().map(within).max().unwrap_or_default()
}

fn stretches(sim: &Sim) -> Vec<&Stretch> {
    sim.paces
        .iter()
        .filter_map(|pace| pace.stretch.as_ref())
        .collect()
}

/// So many hooks at one backend, each with a `caBundle` of its own.
fn bundles(count: usize) -> Vec<Hook> {
    let with_own = |nth| Hook {
        ca_bundle: format!("bundle {nth}").into_bytes().into(),
        ..hook(nth, 0, "/", 0..1)
    };
    (0..count).map(with_own).collect()
}

#[test]
fn two_thousand_bundles_at_one_backend_share_its_budget_and_others_are_on_time() {
    let mut hooks = bundles(2_000);
    hooks.extend((1..20).map(|service| hook(2_000 + service, service, "/", 0..1)));
    let mut sim = Sim::new(hooks, 1);
    sim.run(s(60));
    let crowded = sim
        .made
        .iter()
        .filter(|(_, attempt)| attempt.target.backend.address == BackendAddress::Socket(address(0, 0)));
    assert!(crowded.count() <= 2 * 60 + 2);
    assert!((1..20).all(|service| longest_gap(&sim, service) <= ms(5_100)));
    let said = stretches(&sim);
    let last = said.last().expect("it is said");
    assert!(
        !last.total && last.backends.len() == 1 && last.more == 0,
        "{last:?}"
    );
    assert!(
        last.sentences()[0].contains("endpoint 10.0.0.0:8443"),
        "{:?}",
        last.sentences()
    );
}

/// How often each target was probed on one kind of connection, the least and the most.
fn least_and_most(sim: &Sim, connection: ConnectionKind) -> (usize, usize) {
    let counts = sim.schedule.targets.keys().map(|target| {
        let of_it =
            |(_, made): &&(Time, ScheduledProbe)| made.target == *target && made.connection == connection;
        sim.made.iter().filter(of_it).count()
    });
    let counts: Vec<usize> = counts.collect();
    let (least, most) = (counts.iter().min(), counts.iter().max());
    (*least.expect("a target"), *most.expect("a target"))
}

#[test]
fn pooled_probes_get_a_fair_share_of_a_backend_that_many_trust_settings_have_in_common() {
    for (count, attended, span) in [(10, false, 200), (10, true, 80), (100, false, 2_000)] {
        let mut sim = Sim::new(bundles(count), 7);
        sim.attend((0..count).filter(|_| attended));
        sim.run(s(100));
        sim.made.clear();
        sim.run(s(span));
        let (fresh, kept) = (sim.made(ConnectionKind::Fresh), sim.made(ConnectionKind::Kept));
        assert!(
            kept * 5 >= fresh && kept * 2 <= fresh,
            "{count}: {fresh} fresh, {kept} kept"
        );
        for &connection in ConnectionKind::ALL {
            let (least, most) = least_and_most(&sim, connection);
            assert!(least * 3 >= most * 2, "{count} {connection:?}: {least} to {most}");
        }
    }
}

#[test]
fn pooled_probes_get_a_fair_share_of_all_probes_a_second() {
    let hooks = (0..300)
        .map(|service| hook(service, service, "/", 0..4))
        .collect();
    let mut sim = Sim::new(hooks, 8);
    sim.run(s(60));
    sim.made.clear();
    sim.run(s(60));
    assert!(most_in_a_second(&sim) <= 250, "{}", most_in_a_second(&sim));
    let (fresh, kept) = (sim.made(ConnectionKind::Fresh), sim.made(ConnectionKind::Kept));
    assert!(kept * 5 >= fresh && kept <= fresh, "{fresh} fresh, {kept} kept");
    assert!(least_and_most(&sim, ConnectionKind::Kept).0 >= 1);
    assert!(least_and_most(&sim, ConnectionKind::Fresh).0 >= 60 / 12);
}

#[test]
fn a_service_with_a_thousand_endpoints_waits_for_itself() {
    let mut hooks = vec![hook(0, 0, "/", 0..1_000)];
    hooks.extend((1..40).map(|service| hook(service, service, "/", 0..3)));
    let mut sim = Sim::new(hooks, 2);
    sim.run(s(60));
    assert!(most_in_a_second(&sim) <= 250, "{}", most_in_a_second(&sim));
    sim.made
        .retain(|(at, _)| *at >= Time::from_unix_millis(1_010_000));
    assert!((1..40).all(|service| longest_gap(&sim, service) <= ms(5_500)));
    assert!(stretches(&sim).last().is_some_and(|stretch| stretch.total));
}

#[test]
fn endpoints_that_change_a_hundred_times_a_second_cost_others_nothing() {
    let others = || (1..40).map(|service| hook(service, service, "/", 0..3));
    let mut sim = Sim::new(others().collect(), 3);
    sim.run(s(20));
    sim.made.clear();
    // A tick sees ten changes at once.
    for round in 0..250 {
        let mut hooks = vec![hook(0, 0, "/", round * 10..round * 10 + 10)];
        hooks.extend(others());
        sim.take(hooks);
        sim.step();
        // The pool of pooled connections bounds what is asked of those that left.
        let left = sim
            .schedule
            .targets
            .values()
            .filter(|target| target.has_left())
            .count();
        assert!(left <= 10 * 900, "{left}");
    }
    assert!(most_in_a_second(&sim) <= 250, "{}", most_in_a_second(&sim));
    assert!((1..40).all(|service| longest_gap(&sim, service) <= ms(5_500)));
}

#[test]
fn hooks_in_trouble_come_first_and_the_rest_still_gets_its_turn() {
    let hooks = (0..250)
        .map(|service| hook(service, service, "/", 0..4))
        .collect();
    let mut sim = Sim::new(hooks, 4);
    sim.run(s(30));
    sim.attend(0..10);
    sim.made.clear();
    sim.run(s(40));
    assert!((0..10).all(|service| longest_gap(&sim, service) <= ms(1_600)));
    assert!((10..150).all(|service| longest_gap(&sim, service) <= s(30)));
    assert!(most_in_a_second(&sim) <= 250);
}

#[test]
fn that_probes_are_late_is_said_once_and_so_is_that_they_are_on_time_again() {
    let many = (0..250)
        .map(|service| hook(service, service, "/", 0..4))
        .collect();
    let mut sim = Sim::new(many, 5);
    sim.run(s(30));
    sim.take(vec![hook(0, 0, "/", 0..1)]);
    sim.run(s(60));
    let late = sim.paces.iter().map(|pace| pace.stretch.is_some());
    let mut turns: Vec<bool> = late.collect();
    turns.dedup();
    assert_eq!(turns.iter().filter(|late| **late).count(), 1, "{turns:?}");
    assert_eq!(turns.last(), Some(&false));
    let known = sim.paces.last().map(|pace| pace.targets);
    assert_eq!(known, Some(sim.schedule.len()));
}

#[test]
fn intervals_that_come_to_less_than_twice_their_length_are_told_of_as_well() {
    let mut delays = Vec::new();
    for count in 1..=6 {
        let mut sim = Sim::new(bundles(count), 3);
        sim.run(s(60));
        let late = sim.paces.iter().map(|pace| pace.late).max().expect("a pace");
        // The line in the log begins at half an interval.
        assert_eq!(!stretches(&sim).is_empty(), late >= s(5) / 2, "{count}: {late:?}");
        delays.push(late);
        sim.take(vec![hook(0, 1, "/", 0..1)]);
        sim.run(s(60));
        let last = sim.paces.last().expect("a pace");
        assert_eq!((last.late, &last.stretch), (Duration::ZERO, &None));
    }
    let within = |from: Duration, to: Duration| delays.iter().any(|late| *late > from && *late < to);
    assert!(
        within(Duration::ZERO, s(5) / 2) && within(s(5) / 2, s(5)),
        "{delays:?}"
    );
}

#[test]
fn that_hung_probes_leave_no_place_for_others_is_said() {
    let many = (0..250)
        .map(|service| hook(service, service, "/", 0..4))
        .collect();
    let mut sim = Sim::new(many, 6);
    sim.meeting(|_, _| Meets::HandshakeHangs);
    sim.run(s(8));
    let said = stretches(&sim);
    let first = said.first().expect("it is said");
    assert!(first.concurrency && !first.total, "{first:?}");
    let sentences = first.sentences();
    assert!(
        sentences[0].starts_with("probes.concurrency is too low"),
        "{sentences:?}"
    );
}

#[test]
fn that_second_looks_wait_because_half_of_the_places_are_taken_is_said() {
    let hooks = (0..70).map(|service| hook(service, service, "/", 0..1)).collect();
    let mut sim = Sim::new(hooks, 9);
    sim.meeting(|_, _| Meets::HandshakeHangs);
    sim.attend(0..70);
    sim.run(s(8));
    let said = stretches(&sim);
    let first = said.first().expect("it is said");
    assert!(
        first.concurrency && !first.total && first.backends.is_empty(),
        "{first:?}"
    );
}

#[test]
fn one_broken_of_a_thousand_is_found_as_soon_as_alone() {
    let found = |count: usize, seed: u64| {
        let hooks = (0..count)
            .map(|nth| hook(nth, nth % 40, &format!("/{}", nth % 5), 0..3))
            .collect();
        let mut sim = Sim::new(hooks, seed);
        sim.run(s(6) + ms(seed * 170));
        let broken = sim.hooks[0].backends()[0].clone();
        sim.meeting(move |attempt, _| {
            if attempt.target.backend == broken {
                Meets::Refuses
            } else {
                Meets::Answers
            }
        });
        sim.until_dead(0, s(15))
    };
    let alone = median_and_longest(30, |seed| found(1, seed));
    let of_many = median_and_longest(30, |seed| found(1_000, seed));
    assert!(
        of_many.0 <= alone.0 + ms(300) && of_many.1 <= alone.1 + ms(500),
        "{alone:?} alone, {of_many:?} of 1,000"
    );
}

#[test]
fn no_budget_is_smaller_than_what_a_hook_takes_that_is_alone() {
    let rates = Rates {
        interval: s(1),
        alert_interval: ms(500),
        per_backend: 1,
        per_backend_alert: 1,
        ..RATES
    };
    // Two probes an interval, each up to a tenth early.
    for attended in [false, true] {
        let alone = 2.0 / rates.interval(attended).mul_f64(0.9).as_secs_f64();
        assert!(rates.of_backend(attended) >= alone);
    }
    assert_eq!(RATES.of_backend(false), 2.0);
    assert_eq!(RATES.of_backend(true), 5.0);
}

/// For each interval, the largest share of its probes that began in one tenth of it.
fn largest_shares(sim: &Sim, from: Time) -> Vec<f64> {
    let mut tenths: BTreeMap<u128, BTreeMap<u128, usize>> = BTreeMap::new();
    let (interval, tenth) = (RATES.interval.as_millis(), RATES.interval.as_millis() / 10);
    for (at, _) in &sim.made {
        // Ticks end a tick after `from`.
        let after = at.since(from).as_millis() - 1;
        let of_interval = tenths.entry(after / interval).or_default();
        *of_interval.entry(after / tenth).or_default() += 1;
    }
    let counts = tenths.values().map(|tenths| tenths.values());
    let shares =
        counts.map(|counts| *counts.clone().max().expect("one") as f64 / counts.sum::<usize>() as f64);
    shares.collect()
}

#[test]
fn probes_past_the_budget_begin_evenly_and_those_within_it_drift_apart() {
    let webhooks = |count| (0..count).map(|nth| hook(nth, nth, "/", 0..1)).collect();
    // Twice as many as fit.
    let mut crowded = Sim::new(webhooks(1_000), 11);
    crowded.run(s(60));
    let mut by_tick: BTreeMap<Time, usize> = BTreeMap::new();
    crowded
        .made
        .iter()
        .for_each(|(at, _)| *by_tick.entry(*at).or_default() += 1);
    let counts: Vec<usize> = by_tick.values().copied().collect();
    assert_eq!(
        (counts.len(), counts[0]),
        (600, 50),
        "a quarter of a second's begin at once"
    );
    assert!(counts[1..].iter().all(|count| *count == 20), "{counts:?}");

    // They are all new at once, and within the budget even then only for a moment.
    let mut sim = Sim::new(webhooks(200), 11);
    for (after, largest) in [(s(0), 0.34), (s(240), 0.2), (s(540), 0.15)] {
        sim.run(after);
        sim.made.clear();
        let from = sim.now;
        sim.run(s(60));
        let shares = largest_shares(&sim, from);
        assert_eq!(shares.len(), 12);
        assert!(
            shares.iter().all(|share| *share <= largest),
            "{largest}: {shares:?}"
        );
    }
}
