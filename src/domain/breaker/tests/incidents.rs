//! Single incidents from beginning to end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::super::*;
use crate::domain::fence::AutoBreak;
use crate::domain::hook::HookKind;
use crate::domain::vocabulary::{Cause, Effect, Health};

pub(super) fn at(seconds: u64) -> Time {
    Time::from_unix_millis(1_000_000 + seconds * 1_000)
}

pub(super) fn hook() -> HookId {
    HookId::new(HookKind::Validating, "policy", "w")
}

pub(super) fn policy(rungs: &[Rung]) -> Policy {
    Policy {
        fallback: PolicyRule {
            rungs: rungs.iter().copied().collect(),
            page: Some("somebody".into()),
            ..PolicyRule::fallback()
        },
        ..Policy::default()
    }
}

pub(super) fn view(version: &str, shown: Shown) -> View {
    View {
        version: Version::new(version),
        uid: "uid".into(),
        shown,
        ceiling: Ceiling::Open,
        left_over: false,
        by_hand_until: None,
    }
}

pub(super) fn ours(rung: Rung, probation: bool) -> Shown {
    Shown::Ours { rung, probation }
}

/// A breaker with one hook and one API server that does what it is asked to.
pub(super) struct Incident {
    pub(super) breaker: Breaker,
    pub(super) now: u64,
    pub(super) version: u64,
    pub(super) shown: Shown,
    pub(super) left_over: bool,
    pub(super) by_hand_until: Option<Time>,
    pub(super) ledger: (u64, Book),
    pub(super) facts: Facts,
    /// All that was said.
    pub(super) news: Vec<News>,
    pub(super) pages: usize,
    /// All changes that were made.
    pub(super) changes: Vec<To>,
    /// What becomes of writes; they are done where there is nothing.
    pub(super) refuses: Option<Outcome>,
    pub(super) ledger_refuses: bool,
}

impl Incident {
    pub(super) fn new(mode: AutoBreak, rungs: &[Rung]) -> Self {
        let mut incident = Self {
            breaker: Breaker::new(Settings::new("me", mode, policy(rungs))),
            now: 0,
            version: 1,
            shown: Shown::Original,
            left_over: false,
            by_hand_until: None,
            ledger: (1, Book::default()),
            facts: Facts {
                health: Health::Healthy,
                cause: None,
                effect: Effect::None,
                sure: true,
                witnesses: BTreeSet::new(),
                ambiguous: false,
                doubt: None,
                canary: CanaryWord::Awaited,
                meets_control_plane: true,
                ignores: false,
                place: None,
                conditions_full: false,
                ceiling: Ceiling::Open,
                subject: Arc::default(),
            },
            news: Vec::new(),
            pages: 0,
            changes: Vec::new(),
            refuses: None,
            ledger_refuses: false,
        };
        incident.begin();
        incident
    }

    pub(super) fn begin(&mut self) {
        self.observe(Observation::Servers(BTreeSet::from(["s".into()])));
        self.observe(Observation::Leads(true));
    }

    pub(super) fn view(&self) -> View {
        View {
            left_over: self.left_over,
            by_hand_until: self.by_hand_until,
            ..view(&self.version.to_string(), self.shown.clone())
        }
    }

    pub(super) fn observe(&mut self, observation: Observation) {
        let mut due = vec![observation];
        while let Some(observation) = due.pop() {
            for action in self.breaker.take(observation, at(self.now)) {
                due.extend(self.does(action));
            }
        }
    }

    pub(super) fn does(&mut self, action: Action) -> Option<Observation> {
        match action {
            Action::Tell(told) => {
                self.news.push(told.news);
                self.pages += usize::from(told.page.is_some());
                None
            }
            Action::ReadLedger if self.ledger_refuses => Some(Observation::NoLedger),
            Action::ReadLedger => Some(Observation::Ledger {
                version: Some(Version::new(&self.ledger.0.to_string())),
                book: self.ledger.1.clone(),
            }),
            Action::WriteLedger {
                ticket,
                version,
                book,
            } => {
                let outcome = match self.ledger_refuses {
                    true => Outcome::Refused("no".into()),
                    false => {
                        assert_eq!(version, Some(Version::new(&self.ledger.0.to_string())));
                        self.ledger = (self.ledger.0 + 1, book);
                        Outcome::Written(Version::new(&self.ledger.0.to_string()))
                    }
                };
                Some(Observation::Outcome { ticket, outcome })
            }
            Action::Read { ticket, .. } => Some(Observation::Read {
                ticket,
                view: Some(self.view()),
            }),
            Action::Change(change) => {
                let outcome = self.refuses.clone().unwrap_or_else(|| {
                    assert_eq!(change.expects.version.0.parse(), Ok(self.version));
                    self.changes.push(change.to);
                    self.shown = match change.to {
                        To::Bypass(rung) => ours(rung, false),
                        To::Probation => ours(Rung::Skip, true),
                        To::Original => Shown::Original,
                    };
                    (self.left_over, self.by_hand_until) = (false, None);
                    self.version += 1;
                    Outcome::Applied(self.view())
                });
                Some(Observation::Outcome {
                    ticket: change.ticket,
                    outcome,
                })
            }
        }
    }

    pub(super) fn fails(&mut self, cause: Cause) {
        self.facts.health = Health::Failing;
        self.facts.cause = Some(cause);
        self.facts.effect = Effect::Blocking;
        self.facts.witnesses = BTreeSet::from([Witness::Probes, Witness::Canary]);
    }

    pub(super) fn is_well(&mut self) {
        self.facts.health = Health::Healthy;
        self.facts.cause = None;
        self.facts.effect = Effect::None;
        self.facts.witnesses.clear();
    }

    /// Lets time go by, a second at a time.
    pub(super) fn wait(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now += 1;
            let view = self.view();
            self.observe(Observation::Shows {
                hook: hook(),
                server: "s".into(),
                view,
            });
            self.observe(Observation::Judged(Judged {
                fence_holds: true,
                match_conditions: true,
                hooks: BTreeMap::from([(hook(), self.facts.clone())]),
                ..Judged::default()
            }));
        }
    }

    pub(super) fn somebody_writes(&mut self, shown: Shown) {
        self.shown = shown;
        self.version += 1;
    }
}

#[test]
fn a_hung_hook_is_skipped_tried_by_canaries_and_put_back() {
    let mut incident = Incident::new(AutoBreak::On, &Rung::ALL);
    incident.fails(Cause::Hanging);
    incident.wait(5);
    assert_eq!(incident.changes, [To::Bypass(Rung::Skip)]);
    let stage = incident.breaker.stage(&hook());
    assert_eq!(
        stage,
        Stage::Bypassed {
            rung: Rung::Skip,
            effective: true
        }
    );
    incident.is_well();
    incident.wait(40);
    assert_eq!(incident.changes.last(), Some(&To::Probation));
    incident.wait(60);
    assert_eq!(
        incident.changes.last(),
        Some(&To::Probation),
        "no canary got through yet"
    );
    incident.facts.canary = CanaryWord::Through;
    incident.wait(30);
    assert_eq!(incident.changes.last(), Some(&To::Original));
    assert!(
        incident
            .ledger
            .1
            .entries
            .values()
            .all(|entry| entry.place == Place::Out)
    );
    assert_eq!(
        incident.news,
        [
            News::HeldBack(HeldBack::Hold),
            News::Bypassing(Rung::Skip),
            News::Effective(Rung::Skip),
            News::Probation,
            News::Restoring,
            News::Restored,
        ]
    );
    incident.wait(7_300);
    assert_eq!(
        incident.ledger.1.entries,
        BTreeMap::new(),
        "in the end it is forgotten"
    );
}

#[test]
fn a_hook_without_a_rule_is_shielded_and_put_back_without_letting_tenants_by() {
    let mut incident = Incident::new(AutoBreak::On, &[Rung::Shield]);
    incident.fails(Cause::Refused);
    incident.wait(5);
    incident.is_well();
    incident.wait(60);
    assert_eq!(incident.changes, [To::Bypass(Rung::Shield), To::Original]);
}

#[test]
fn plan_says_what_it_would_do_and_touches_nothing() {
    let mut incident = Incident::new(AutoBreak::Plan, &Rung::ALL);
    incident.fails(Cause::Hanging);
    incident.wait(30);
    assert_eq!(incident.changes, []);
    assert_eq!(incident.ledger.0, 1);
    assert_eq!(
        incident.news,
        [News::HeldBack(HeldBack::Hold), News::WouldBypass(Rung::Skip)]
    );
    let mut incident = Incident::new(AutoBreak::Off, &Rung::ALL);
    incident.fails(Cause::Hanging);
    incident.wait(30);
    assert!(incident.changes.is_empty() && incident.news.is_empty());
}

#[test]
fn after_two_reverts_the_hook_is_left_alone_and_somebody_is_told() {
    let mut incident = Incident::new(AutoBreak::On, &Rung::ALL);
    incident.fails(Cause::Hanging);
    for _ in 0..4 {
        incident.wait(20);
        incident.somebody_writes(Shown::Original);
    }
    incident.wait(300);
    assert_eq!(incident.changes, [To::Bypass(Rung::Skip); 2]);
    assert_eq!(incident.breaker.stage(&hook()), Stage::Contested);
    assert!(incident.news.contains(&News::Reverted) && incident.news.contains(&News::Contested));
    assert_eq!(incident.pages, 1);
}

#[test]
fn what_somebody_else_changed_stays_theirs() {
    let mut incident = Incident::new(AutoBreak::On, &Rung::ALL);
    incident.fails(Cause::Hanging);
    incident.wait(5);
    incident.somebody_writes(Shown::Foreign);
    incident.wait(100);
    incident.is_well();
    incident.wait(600);
    assert_eq!(incident.changes, [To::Bypass(Rung::Skip)]);
    assert!(incident.news.contains(&News::Foreign));
}

#[test]
fn a_rotated_ca_bundle_hinders_neither_bypass_nor_restore() {
    let mut incident = Incident::new(AutoBreak::On, &[Rung::Shield]);
    incident.fails(Cause::TlsInvalid);
    incident.wait(5);
    let shown = incident.shown.clone();
    incident.somebody_writes(shown);
    incident.wait(5);
    incident.is_well();
    incident.wait(60);
    assert_eq!(incident.changes, [To::Bypass(Rung::Shield), To::Original]);
}

#[test]
fn a_bypass_found_at_the_start_is_taken_over_and_put_back() {
    let mut incident = Incident::new(AutoBreak::On, &[Rung::Shield]);
    incident.shown = ours(Rung::Shield, false);
    incident.wait(3);
    assert!(incident.ledger.1.entries[&hook()].counts(), "it counts");
    incident.wait(60);
    assert_eq!(incident.changes, [To::Original]);
}

#[test]
fn a_restore_does_not_wait_for_a_ledger_that_cannot_be_written() {
    let mut incident = Incident::new(AutoBreak::On, &[Rung::Shield]);
    incident.fails(Cause::Hanging);
    incident.wait(5);
    incident.ledger_refuses = true;
    incident.is_well();
    incident.wait(120);
    assert_eq!(incident.changes, [To::Bypass(Rung::Shield), To::Original]);
    // And after a crash, with a ledger that was never read.
    let mut incident = Incident::new(AutoBreak::On, &[Rung::Shield]);
    incident.ledger_refuses = true;
    incident.breaker = Breaker::new(Settings::new("me", AutoBreak::On, policy(&[Rung::Shield])));
    incident.begin();
    incident.shown = ours(Rung::Shield, false);
    incident.wait(120);
    assert_eq!(incident.changes, [To::Original]);
}

#[test]
fn without_a_ledger_nothing_is_bypassed() {
    let mut incident = Incident::new(AutoBreak::On, &Rung::ALL);
    incident.breaker = Breaker::new(Settings::new("me", AutoBreak::On, policy(&Rung::ALL)));
    incident.ledger_refuses = true;
    incident.begin();
    incident.fails(Cause::Hanging);
    incident.wait(300);
    assert_eq!(incident.changes, []);
    assert!(incident.news.contains(&News::HeldBack(HeldBack::Ledger)));
}

#[test]
fn what_is_restored_is_said_once_however_often_it_is_looked_at_again() {
    let mut incident = Incident::new(AutoBreak::On, &[Rung::Shield]);
    incident.fails(Cause::Hanging);
    incident.wait(10);
    incident.is_well();
    incident.wait(300);
    let restored = incident.news.iter().filter(|news| **news == News::Restored);
    assert_eq!(restored.count(), 1, "{:?}", incident.news);
}

#[test]
fn at_its_limit_a_skip_is_restored_and_a_shield_stays_and_both_page() {
    for (rung, restored) in [(Rung::Skip, true), (Rung::Shield, false)] {
        let mut incident = Incident::new(AutoBreak::On, &[rung]);
        incident.fails(Cause::Hanging);
        incident.wait(3_700);
        assert_eq!(incident.shown == Shown::Original, restored, "{rung}");
        assert!(incident.news.contains(&News::Limit));
        assert_eq!(incident.pages, 1, "{rung}: {:?}", incident.news);
        incident.wait(3_700);
        assert_eq!(
            incident.changes.len(),
            1 + usize::from(restored),
            "{rung}: not again"
        );
    }
}

#[test]
fn each_relapse_makes_the_wait_longer_and_in_the_end_it_is_called_flapping() {
    let mut incident = Incident::new(AutoBreak::On, &[Rung::Shield]);
    let mut waits = Vec::new();
    for _ in 0..5 {
        incident.fails(Cause::Hanging);
        incident.wait(10);
        assert!(incident.shown.is_ours());
        incident.is_well();
        let well = incident.now;
        while incident.shown.is_ours() {
            incident.wait(1);
        }
        waits.push(incident.now - well);
        // Not so fast that the rate holds it back.
        incident.wait(200);
    }
    assert!(waits.windows(2).all(|pair| pair[0] < pair[1]), "{waits:?}");
    assert!(incident.news.contains(&News::Flapping));
}

#[test]
fn a_canary_that_fails_on_probation_takes_the_hook_back_out() {
    let mut incident = Incident::new(AutoBreak::On, &[Rung::Skip]);
    incident.fails(Cause::Hanging);
    incident.wait(5);
    incident.is_well();
    incident.wait(35);
    assert_eq!(incident.changes.last(), Some(&To::Probation));
    incident.facts.canary = CanaryWord::Failed;
    incident.wait(2);
    assert_eq!(incident.changes.last(), Some(&To::Bypass(Rung::Skip)));
    assert!(incident.news.contains(&News::Relapsed));
    incident.facts.canary = CanaryWord::Awaited;
    incident.wait(40);
    assert_eq!(incident.shown, ours(Rung::Skip, false), "it waits for longer now");
    incident.wait(40);
    assert_eq!(incident.shown, ours(Rung::Skip, true));
}

#[test]
fn an_owner_who_opts_out_of_a_bypass_gets_the_original_back() {
    let mut incident = Incident::new(AutoBreak::On, &Rung::ALL);
    incident.fails(Cause::Hanging);
    incident.wait(5);
    assert!(incident.shown.is_ours());
    // The fallback rule is the operator's word; a rule that permits nothing any more comes to the same.
    let mut settings = Settings::new("me", AutoBreak::On, policy(&[Rung::Shield]));
    settings.policy.fallback.mode = AutoBreak::Off;
    incident.breaker = Breaker::new(settings);
    incident.begin();
    incident.wait(5);
    assert_eq!(incident.changes, [To::Bypass(Rung::Skip), To::Original]);
}

#[test]
fn a_shield_raised_for_slowness_becomes_a_skip_when_the_hook_hangs_for_good() {
    let mut incident = Incident::new(AutoBreak::On, &Rung::ALL);
    incident.fails(Cause::Slow);
    incident.wait(5);
    incident.fails(Cause::Hanging);
    incident.wait(5);
    assert_eq!(
        incident.changes,
        [To::Bypass(Rung::Shield), To::Bypass(Rung::Skip)]
    );
    assert_eq!(incident.ledger.1.entries[&hook()].rung, Rung::Skip);
}

#[test]
fn a_refusal_is_said_and_tried_again_later() {
    let mut incident = Incident::new(AutoBreak::On, &Rung::ALL);
    incident.fails(Cause::Hanging);
    incident.refuses = Some(Outcome::Refused("a policy says no".into()));
    incident.wait(20);
    let refused = News::HeldBack(HeldBack::Refused);
    let said = incident.news.iter().filter(|news| **news == refused);
    assert!((1..=3).contains(&said.count()), "{:?}", incident.news);
    assert_eq!(
        incident.ledger.1,
        Book::default(),
        "it has not begun, and takes nobody's place"
    );
    incident.refuses = None;
    incident.wait(20);
    assert_eq!(incident.changes, [To::Bypass(Rung::Skip)]);
}

#[test]
fn the_times_leave_no_gap_for_a_change_that_comes_late() {
    let times = Times::default();
    let slack = times
        .patience
        .saturating_sub(times.act_within + times.request_life);
    assert!(slack >= Duration::from_secs(20), "{slack:?}");
}
