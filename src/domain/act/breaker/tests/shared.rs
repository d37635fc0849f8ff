//! Hooks that share their backends: one fault, one unit of the budget.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::super::*;
use super::incident::{at, held_by_another, ours, policy, view};
use crate::act::fence::AutoBreak;
use crate::act::ledger::LedgerReading;
use crate::cluster::hook::HookKind;
use crate::vocabulary::{Cause, Effect, Health};

/// A breaker with many hanging hooks, and an API server that executes every request.
struct Outage {
    breaker: Breaker,
    now: u64,
    ledger: (u64, Book),
    objects: BTreeMap<HookId, (u64, BypassState)>,
    facts: BTreeMap<HookId, HookFacts>,
    held_back: BTreeSet<(HookId, HeldBack)>,
    /// How often each object was changed: changes that are requested at the same time are one request.
    rounds: BTreeMap<&'static str, usize>,
}

impl Outage {
    /// This many hooks in each of these configurations, with a budget of one bypass.
    fn of(places: &[(&str, usize)], rungs: &[Rung]) -> Self {
        Self::seen_by(true, places, rungs)
    }

    /// The same for a replica that leads or does not.
    fn seen_by(leads: bool, places: &[(&str, usize)], rungs: &[Rung]) -> Self {
        let policy = Policy {
            rate: 1,
            ..one_each(rungs)
        };
        Self::with(policy, leads, places)
    }

    fn with(policy: Policy, leads: bool, places: &[(&str, usize)]) -> Self {
        let hooks = places.iter().flat_map(|(place, so_many)| {
            (0..*so_many).map(move |number| {
                let id = HookId::new(HookKind::Validating, place, &format!("w{number:02}"));
                (id, hangs(place))
            })
        });
        let facts: BTreeMap<HookId, HookFacts> = hooks.collect();
        let objects = facts.keys().map(|id| (id.clone(), (1, BypassState::Original)));
        let mut outage = Self {
            breaker: Breaker::new(BreakerSettings::new("me", AutoBreak::On, policy)),
            now: 0,
            ledger: (1, Book::default()),
            objects: objects.collect(),
            facts,
            held_back: BTreeSet::new(),
            rounds: BTreeMap::new(),
        };
        outage.observe(Observation::Servers(BTreeSet::from(["s".into()])));
        outage.observe(Observation::Leads(leads));
        for _ in 0..10 {
            outage.goes_on();
        }
        outage
    }

    fn goes_on(&mut self) {
        self.now += 1;
        let shown: Vec<(HookId, ObservedHook)> = self
            .objects
            .keys()
            .map(|id| (id.clone(), self.view(id)))
            .collect();
        let shows = shown.into_iter().map(|(hook, view)| {
            let server = "s".into();
            Observation::Shows { hook, server, view }
        });
        self.observe_all(shows.collect());
        self.observe(Observation::Judged(Judged {
            fence_holds: true,
            match_conditions: true,
            hooks: self.facts.clone(),
            ..Judged::default()
        }));
    }

    fn view(&self, id: &HookId) -> ObservedHook {
        let (version, shown) = &self.objects[id];
        ObservedHook {
            ignores: self.facts.get(id).is_some_and(|facts| facts.ignores),
            ..view(&version.to_string(), shown.clone())
        }
    }

    fn observe(&mut self, observation: Observation) {
        self.observe_all(vec![observation]);
    }

    fn observe_all(&mut self, mut due: Vec<Observation>) {
        while !due.is_empty() {
            let actions = self.breaker.take(std::mem::take(&mut due), at(self.now));
            let changes = actions.iter().filter_map(|action| match action {
                Action::Change(change) => Some(&*change.hook.configuration),
                _ => None,
            });
            for place in changes.collect::<BTreeSet<&str>>() {
                let known = ["one", "other"].into_iter().find(|known| *known == place);
                *self.rounds.entry(known.unwrap_or_default()).or_default() += 1;
            }
            due.extend(actions.into_iter().filter_map(|action| self.does(action)));
        }
    }

    fn does(&mut self, action: Action) -> Option<Observation> {
        let version = |ledger: &(u64, Book)| ResourceVersion::new(&ledger.0.to_string());
        match action {
            Action::Tell(told) => {
                if let NoticeKind::HeldBack(reason) = told.kind {
                    self.held_back.insert((told.hook, reason));
                }
                None
            }
            Action::ReadLedger => Some(Observation::Ledger {
                version: Some(version(&self.ledger)),
                book: self.ledger.1.clone(),
            }),
            Action::WriteLedger { ticket, book, .. } => {
                self.ledger = (self.ledger.0 + 1, book);
                let outcome = WriteOutcome::Written(version(&self.ledger));
                Some(Observation::Outcome { ticket, outcome })
            }
            Action::Read { ticket, hook } => Some(Observation::Read {
                ticket,
                view: Some(self.view(&hook)),
            }),
            Action::Change(ObjectChange { ticket, hook, to, .. }) => {
                let To::Bypass(rung) = to else { return None };
                let version = self.objects.get(&hook)?.0 + 1;
                for (id, object) in &mut self.objects {
                    if id.configuration == hook.configuration {
                        object.0 = version;
                    }
                }
                self.objects.get_mut(&hook)?.1 = ours(rung, false);
                let outcome = WriteOutcome::Applied(self.view(&hook));
                Some(Observation::Outcome { ticket, outcome })
            }
        }
    }

    /// How many hooks of a configuration are bypassed with this rung.
    fn bypassed(&self, place: &str, rung: Rung) -> usize {
        let there = self.objects.iter().filter(|(id, _)| *id.configuration == *place);
        there
            .filter(|(_, (_, shown))| *shown == ours(rung, false))
            .count()
    }

    fn is_held_back(&self, place: &str, reason: HeldBack) -> bool {
        let mut held_back = self.held_back.iter();
        held_back.any(|(id, other)| *id.configuration == *place && *other == reason)
    }
}

/// A policy with a budget of one shield and one skip.
fn one_each(rungs: &[Rung]) -> Policy {
    Policy {
        most_shielded: 1,
        most_skipped: 1,
        ..policy(rungs)
    }
}

fn hangs(place: &str) -> HookFacts {
    HookFacts {
        health: Health::Failing,
        cause: Some(Cause::Hanging),
        effect: Effect::Blocking,
        confident: true,
        witnesses: BTreeSet::from([Witness::Probes, Witness::Canary]),
        ambiguous: false,
        doubt: None,
        canary: CanaryEvidence::Failed,
        meets_control_plane: true,
        stake: Stake::Called,
        ignores: false,
        dead: false,
        incident_key: Some(place.into()),
        conditions_full: false,
        owner: OwnerAnnotations::default(),
        may_skip: true,
    }
}

#[test]
fn of_more_webhooks_than_the_ledger_holds_as_many_are_shielded_as_it_has_room_for() {
    let policy = Policy {
        most_shielded: 20,
        ..policy(&[Rung::Shield])
    };
    let outage = Outage::with(policy, true, &[("one", 600)]);
    let shielded = outage.bypassed("one", Rung::Shield);
    assert!((150..600).contains(&shielded), "{shielded}");
    assert!(outage.is_held_back("one", HeldBack::Budget));
    let ledger = LedgerReading::of(None).with_book(&outage.ledger.1);
    assert!(ledger.is_some(), "it can be written");
}

#[test]
fn forty_hooks_of_one_service_are_shielded_in_one_unit_of_the_budget_and_another_service_is_not() {
    let outage = Outage::of(&[("one", 40), ("other", 1)], &[Rung::Shield]);
    assert_eq!(outage.bypassed("one", Rung::Shield), 40);
    assert!(outage.ledger.1.skips_begun.is_empty(), "no rate limits shields");
    assert_eq!(outage.bypassed("other", Rung::Shield), 0);
    assert!(outage.is_held_back("other", HeldBack::Budget));
    // The version was 1 before; one write permits all of the bypasses.
    assert_eq!(outage.ledger.0, 2, "one write of the ledger");
    assert_eq!(
        outage.rounds,
        BTreeMap::from([("one", 1)]),
        "one round of changes"
    );
}

#[test]
fn a_replica_that_does_not_lead_shields_and_goes_no_deeper() {
    let outage = Outage::seen_by(false, &[("one", 40), ("other", 1)], &[Rung::Shield]);
    assert_eq!(outage.bypassed("one", Rung::Shield), 40);
    assert_eq!(
        outage.bypassed("other", Rung::Shield),
        0,
        "the budget holds for it as well"
    );
    let outage = Outage::seen_by(false, &[("one", 1)], &[Rung::Skip]);
    assert_eq!(outage.bypassed("one", Rung::Skip), 0);
    assert!(outage.held_back.is_empty(), "nor does it say anything");
}

#[test]
fn a_replica_that_does_not_lead_waits_for_the_one_that_does_and_brings_nothing_back() {
    let begun = |outage: &Outage| outage.ledger.1.entries.values().next().unwrap().since;
    let mut outage = Outage::seen_by(false, &[("one", 1)], &[Rung::Shield]);
    let led = Outage::seen_by(true, &[("one", 1)], &[Rung::Shield]);
    assert!(begun(&outage) > begun(&led));
    for facts in outage.facts.values_mut() {
        (facts.health, facts.cause, facts.effect) = (Health::Healthy, None, Effect::None);
        facts.canary = CanaryEvidence::Through;
    }
    for _ in 0..300 {
        outage.goes_on();
    }
    assert_eq!(outage.bypassed("one", Rung::Shield), 1);
}

#[test]
fn no_more_than_fifty_shields_count_as_one() {
    let outage = Outage::of(&[("one", 52)], &[Rung::Shield]);
    assert_eq!(outage.bypassed("one", Rung::Shield), 50);
    assert!(outage.is_held_back("one", HeldBack::Budget));
}

#[test]
fn what_goes_beyond_a_shield_counts_for_each_hook() {
    let outage = Outage::of(&[("one", 3)], &[Rung::Skip]);
    assert_eq!(outage.bypassed("one", Rung::Skip), 1);
    assert!(outage.is_held_back("one", HeldBack::Budget));
}

#[test]
fn skips_take_no_room_from_shields_and_shields_none_from_skips() {
    let outage = Outage::of(&[("one", 3), ("other", 1)], &[Rung::Shield, Rung::Skip]);
    assert_eq!(outage.bypassed("one", Rung::Skip), 1);
    assert_eq!(outage.bypassed("one", Rung::Shield), 2);
    assert_eq!(outage.ledger.1.skips_begun.len(), 1);
    assert_eq!(outage.bypassed("other", Rung::Shield), 0);
    assert!(outage.is_held_back("other", HeldBack::Budget));
}

/// Three dead hooks of one Service that may be skipped while dead, after one minute.
fn dead_together(limits: Policy) -> Outage {
    let mut policy = policy(&[Rung::Shield]);
    policy.fallback.skip_while_dead = true;
    let policy = Policy {
        fallback: policy.fallback,
        ..limits
    };
    let mut outage = Outage::with(policy, true, &[]);
    for number in 0..3 {
        let id = HookId::new(HookKind::Validating, "one", &format!("w{number}"));
        outage.objects.insert(id.clone(), (1, BypassState::Original));
        outage.facts.insert(
            id,
            HookFacts {
                effect: Effect::Delaying,
                ignores: true,
                dead: true,
                ..hangs("one")
            },
        );
    }
    for _ in 0..60 {
        outage.goes_on();
    }
    outage
}

#[test]
fn of_three_dead_hooks_at_one_place_one_is_skipped_where_one_may_be_and_two_stay_shielded() {
    let skipped_and_shielded = |most_skipped, rate| {
        let outage = dead_together(Policy {
            most_skipped,
            rate,
            ..Policy::default()
        });
        [Rung::Skip, Rung::Shield].map(|rung| outage.bypassed("one", rung))
    };
    assert_eq!(skipped_and_shielded(3, 3), [3, 0]);
    assert_eq!(skipped_and_shielded(1, 3), [1, 2], "one at once");
    assert_eq!(skipped_and_shielded(3, 1), [1, 2], "one in ten minutes");
}

#[test]
fn a_second_dead_hook_is_skipped_once_the_rate_has_room_for_it() {
    let mut outage = dead_together(Policy {
        most_skipped: 3,
        rate: 1,
        ..Policy::default()
    });
    // The first answers: its bypass becomes a shield again and still counts against the rate.
    let first = outage.facts.keys().next().cloned().expect("there are three");
    for facts in outage.facts.values_mut().take(1) {
        facts.dead = false;
    }
    for _ in 0..500 {
        outage.goes_on();
    }
    assert_eq!(outage.bypassed("one", Rung::Skip), 0);
    for _ in 0..60 {
        outage.goes_on();
    }
    assert_eq!(outage.bypassed("one", Rung::Skip), 1);
    assert_eq!(outage.objects[&first].1, ours(Rung::Shield, false));
}

/// Whether a hook with stake `then` is bypassed although a hook with stake `first` uses up the budget.
fn bypassed_beside(first: Stake, then: Stake, rung: Rung) -> bool {
    let mut outage = Outage::with(one_each(&[rung]), true, &[]);
    let fails = |place: &'static str, stake| {
        let id = HookId::new(HookKind::Validating, place, "w");
        (
            id,
            HookFacts {
                stake,
                ..hangs(place)
            },
        )
    };
    for (place, stake) in [("one", first), ("other", then)] {
        let (id, facts) = fails(place, stake);
        outage.objects.insert(id.clone(), (1, BypassState::Original));
        outage.facts.insert(id, facts);
        for _ in 0..10 {
            outage.goes_on();
        }
    }
    assert_eq!(outage.bypassed("one", rung), 1, "{first:?} {then:?}");
    outage.bypassed("other", rung) == 1
}

#[test]
fn a_hook_with_a_higher_stake_finds_room_whatever_those_with_a_lower_one_have_taken() {
    use Stake::{Called, Failed, Renewals};
    for &rung in Rung::ALL {
        for (first, then, wanted) in [
            (Called, Called, false),
            (Called, Failed, true),
            (Called, Renewals, true),
            (Failed, Called, false),
            (Failed, Failed, false),
            (Failed, Renewals, true),
            (Renewals, Failed, false),
            (Renewals, Renewals, false),
        ] {
            assert_eq!(
                bypassed_beside(first, then, rung),
                wanted,
                "{rung} {first:?} {then:?}"
            );
        }
    }
}

#[test]
fn a_hook_that_only_hookwatch_calls_is_bypassed_at_no_rung() {
    for &rung in Rung::ALL {
        let mut outage = Outage::of(&[], &[rung]);
        let id = HookId::new(HookKind::Validating, "one", "w");
        outage.objects.insert(id.clone(), (1, BypassState::Original));
        let stake = Stake::Hookwatch;
        outage.facts.insert(
            id,
            HookFacts {
                stake,
                ..hangs("one")
            },
        );
        for _ in 0..30 {
            outage.goes_on();
        }
        assert_eq!(outage.bypassed("one", rung), 0);
        assert!(outage.is_held_back("one", HeldBack::NothingToShield), "{rung}");
    }
}

/// The most webhooks that are watched, less one, fail without blocking a write before the one that blocks Leases fails.
#[test]
fn however_many_webhooks_fail_the_one_that_leaders_wait_for_is_shielded() {
    let mut outage = Outage::of(&[], &[Rung::Shield]);
    for number in 0..1_999 {
        let id = HookId::new(HookKind::Validating, "trap", &format!("w{number}"));
        outage.objects.insert(id.clone(), (1, BypassState::Original));
        let incident_key = Some(format!("trap {number}").as_str().into());
        outage.facts.insert(
            id,
            HookFacts {
                incident_key,
                ..hangs("trap")
            },
        );
    }
    for _ in 0..3 {
        outage.goes_on();
    }
    assert_eq!(outage.bypassed("trap", Rung::Shield), 1);
    let id = HookId::new(HookKind::Validating, "one", "w");
    outage.objects.insert(id.clone(), (1, BypassState::Original));
    let stake = Stake::Renewals;
    outage.facts.insert(
        id,
        HookFacts {
            stake,
            ..hangs("one")
        },
    );
    for _ in 0..3 {
        outage.goes_on();
    }
    assert_eq!(outage.bypassed("one", Rung::Shield), 1);
}

#[test]
fn a_rule_that_permits_a_skip_does_not_hold_the_shield_back_by_its_hold() {
    let mut rule = PolicyRule {
        hold: Some(Duration::from_secs(30)),
        ..PolicyRule::fallback()
    };
    let holds = |rule: &PolicyRule| [Rung::Shield, Rung::Skip].map(|rung| rule.hold(rung).as_secs());
    assert_eq!(holds(&rule), [30, 30]);
    rule.rungs.insert(Rung::Skip);
    assert_eq!(holds(&rule), [1, 30]);
    rule.rungs.remove(&Rung::Skip);
    rule.skip_while_dead = true;
    assert_eq!(holds(&rule), [1, 30]);
    rule.hold = Some(Duration::ZERO);
    assert_eq!(holds(&rule), [0, 0]);
}

#[test]
fn a_shield_is_raised_after_a_second_and_what_goes_further_after_two() {
    let hold = |rung| PolicyRule::fallback().hold(rung);
    assert_eq!(hold(Rung::Shield), Duration::from_secs(1));
    assert_eq!(hold(Rung::Skip), Duration::from_secs(2));
    let said = PolicyRule {
        hold: Some(Duration::from_secs(7)),
        ..PolicyRule::fallback()
    };
    assert_eq!(said.hold(Rung::Shield), Duration::from_secs(7));
}

#[test]
fn hooks_that_fail_together_are_shielded_at_one_time_and_a_merely_slow_one_shortens_no_hold() {
    let shielded_after = |first: Cause, effect: Effect| {
        let mut outage = Outage::seen_by(true, &[("one", 2)], &[Rung::Shield]);
        let hooks: Vec<HookId> = outage.facts.keys().cloned().collect();
        let fresh = Breaker::new(BreakerSettings::new("me", AutoBreak::On, policy(&[Rung::Shield])));
        (outage.breaker, outage.ledger) = (fresh, (1, Book::default()));
        outage
            .objects
            .values_mut()
            .for_each(|object| *object = (1, BypassState::Original));
        outage.observe(Observation::Servers(BTreeSet::from(["s".into()])));
        outage.observe(Observation::Leads(true));
        let second = hangs("one");
        outage.facts = BTreeMap::from([
            (
                hooks[0].clone(),
                HookFacts {
                    cause: Some(first),
                    effect,
                    ..hangs("one")
                },
            ),
            (
                hooks[1].clone(),
                HookFacts {
                    health: Health::Healthy,
                    cause: None,
                    effect: Effect::None,
                    ..hangs("one")
                },
            ),
        ]);
        outage.goes_on();
        outage.facts.insert(hooks[1].clone(), second);
        outage.goes_on();
        outage.bypassed("one", Rung::Shield)
    };
    assert_eq!(shielded_after(Cause::Hanging, Effect::Blocking), 2);
    assert_eq!(shielded_after(Cause::Slow, Effect::Delaying), 0);
}

#[test]
fn what_another_replica_never_began_was_not_reverted_when_we_changed_its_object_meanwhile() {
    let mut outage = Outage::with(policy(&[Rung::Shield]), true, &[]);
    let [ours, theirs] = ["ours", "theirs"].map(|name| HookId::new(HookKind::Validating, "one", name));
    for id in [&ours, &theirs] {
        outage.objects.insert(id.clone(), (1, BypassState::Original));
        outage.facts.insert(id.clone(), hangs("one"));
    }
    let line = held_by_another(1, at(outage.now));
    outage.ledger = (2, Book::default());
    outage.ledger.1.entries.insert(theirs.clone(), line);
    outage.observe(Observation::LedgerShows(ResourceVersion::new("2")));
    for _ in 0..10 {
        outage.goes_on();
    }
    assert_eq!(outage.bypassed("one", Rung::Shield), 2);
    let line = &outage.ledger.1.entries[&theirs];
    assert_eq!((&*line.by, line.reverts), ("me", 0));
}
