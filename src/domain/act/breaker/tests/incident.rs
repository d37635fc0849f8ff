//! An incident of one webhook, with an API server that executes every request unless told otherwise.

use std::collections::{BTreeMap, BTreeSet};

use super::super::*;
use crate::act::fence::AutoBreak;
use crate::cluster::hook::HookKind;
use crate::vocabulary::{Cause, Effect, Health};

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

pub(super) fn view(version: &str, shown: BypassState) -> ObservedHook {
    ObservedHook {
        version: ResourceVersion::new(version),
        uid: "uid".into(),
        shown,
        owner: OwnerAnnotations::default(),
        ignores: false,
        left_over: false,
        by_hand_until: None,
    }
}

/// The ledger entry of another replica that is about to shield a webhook whose object has this version.
pub(super) fn held_by_another(version: u64, now: Time) -> BookEntry {
    BookEntry {
        stage: EntryStage::Bypassed,
        rung: Rung::Shield,
        cause: Cause::Hanging,
        stake: Stake::Called,
        by: "another".into(),
        since: now,
        at: now,
        object_version: ResourceVersion::new(&version.to_string()),
        reverts: 0,
        relapses: 0,
        contested: false,
        limit_reached: false,
        by_hand: false,
        skips: None,
    }
}

pub(super) fn ours(rung: Rung, probation: bool) -> BypassState {
    BypassState::Ours { rung, probation }
}

/// A breaker with one webhook and one API server that executes every request unless told otherwise.
pub(super) struct Incident {
    pub(super) breaker: Breaker,
    pub(super) id: HookId,
    pub(super) now: u64,
    pub(super) version: u64,
    pub(super) shown: BypassState,
    pub(super) left_over: bool,
    pub(super) by_hand_until: Option<Time>,
    /// Annotations on the object, which the judgements may not know yet.
    pub(super) owner: OwnerAnnotations,
    pub(super) self_doubt: bool,
    pub(super) ledger: (u64, Book),
    pub(super) facts: HookFacts,
    /// Every notice so far.
    pub(super) news: Vec<NoticeKind>,
    pub(super) words: Vec<String>,
    pub(super) pages: usize,
    /// Every change made so far.
    pub(super) changes: Vec<To>,
    /// The end of the bypass that each change wrote.
    pub(super) until: Vec<Option<Time>>,
    /// The outcome of writes; `None`: they succeed.
    pub(super) refuses: Option<WriteOutcome>,
    /// Whether skips are refused, whatever `refuses` says.
    pub(super) refuses_skips: bool,
    /// Whether shields are refused, whatever `refuses` says.
    pub(super) refuses_shields: bool,
    pub(super) ledger_refuses: bool,
    /// Whether the ledger can still be read while `ledger_refuses`.
    pub(super) ledger_is_read_only: bool,
    /// Outcomes that arrive with the next second.
    late: Vec<Observation>,
}

impl Incident {
    pub(super) fn new(mode: AutoBreak, rungs: &[Rung]) -> Self {
        let mut incident = Self {
            breaker: Breaker::new(BreakerSettings::new("me", mode, policy(rungs))),
            id: hook(),
            now: 0,
            version: 1,
            shown: BypassState::Original,
            left_over: false,
            by_hand_until: None,
            owner: OwnerAnnotations::default(),
            self_doubt: false,
            ledger: (1, Book::default()),
            facts: HookFacts {
                health: Health::Healthy,
                cause: None,
                effect: Effect::None,
                confident: true,
                witnesses: BTreeSet::new(),
                ambiguous: false,
                doubt: None,
                canary: CanaryEvidence::Awaited,
                meets_control_plane: true,
                stake: Stake::Called,
                ignores: false,
                dead: false,
                incident_key: None,
                conditions_full: false,
                owner: OwnerAnnotations::default(),
                may_skip: true,
            },
            news: Vec::new(),
            words: Vec::new(),
            pages: 0,
            changes: Vec::new(),
            until: Vec::new(),
            refuses: None,
            refuses_skips: false,
            refuses_shields: false,
            ledger_refuses: false,
            ledger_is_read_only: false,
            late: Vec::new(),
        };
        incident.begin();
        incident
    }

    pub(super) fn begin(&mut self) {
        self.observe(Observation::Servers(BTreeSet::from(["s".into()])));
        self.observe(Observation::Leads(true));
    }

    pub(super) fn view(&self) -> ObservedHook {
        ObservedHook {
            left_over: self.left_over,
            by_hand_until: self.by_hand_until,
            owner: self.owner.clone(),
            ignores: self.facts.ignores,
            ..view(&self.version.to_string(), self.shown.clone())
        }
    }

    pub(super) fn observe(&mut self, observation: Observation) {
        let mut due = vec![observation];
        while let Some(observation) = due.pop() {
            for action in self.breaker.take([observation], at(self.now)) {
                due.extend(self.does(action));
            }
        }
    }

    pub(super) fn does(&mut self, action: Action) -> Option<Observation> {
        match action {
            Action::Tell(told) => {
                self.news.push(told.kind);
                self.words.push(told.words);
                self.pages += usize::from(told.page.is_some());
                None
            }
            Action::ReadLedger if self.ledger_refuses => Some(Observation::NoLedger),
            Action::ReadLedger => Some(Observation::Ledger {
                version: Some(ResourceVersion::new(&self.ledger.0.to_string())),
                book: self.ledger.1.clone(),
            }),
            Action::WriteLedger {
                ticket,
                version,
                book,
            } => {
                let outcome = if self.ledger_refuses || self.ledger_is_read_only {
                    WriteOutcome::Refused("no".into())
                } else {
                    assert_eq!(version, Some(ResourceVersion::new(&self.ledger.0.to_string())));
                    self.ledger = (self.ledger.0 + 1, book);
                    WriteOutcome::Written(ResourceVersion::new(&self.ledger.0.to_string()))
                };
                Some(Observation::Outcome { ticket, outcome })
            }
            Action::Read { ticket, .. } => Some(Observation::Read {
                ticket,
                view: Some(self.view()),
            }),
            Action::Change(change) => {
                let fenced = self.refuses_skips && change.to == To::Bypass(Rung::Skip)
                    || self.refuses_shields && change.to == To::Bypass(Rung::Shield);
                let fenced = fenced.then(|| WriteOutcome::Refused("the fence".into()));
                let outcome = fenced.or(self.refuses.clone()).unwrap_or_else(|| {
                    assert_eq!(change.expects.version.0.parse(), Ok(self.version));
                    self.changes.push(change.to);
                    self.until.push(change.until);
                    self.shown = match change.to {
                        To::Bypass(rung) => ours(rung, false),
                        To::Probation => ours(Rung::Skip, true),
                        To::Original => BypassState::Original,
                    };
                    (self.left_over, self.by_hand_until) = (false, None);
                    self.version += 1;
                    WriteOutcome::Applied(self.view())
                });
                let gave_up = outcome == WriteOutcome::GaveUp;
                let told = Observation::Outcome {
                    ticket: change.ticket,
                    outcome,
                };
                if gave_up {
                    self.late.push(told);
                    return None;
                }
                Some(told)
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

    /// The facts of the next judgement. A skipped webhook gets no calls, so only the probes remain as witnesses.
    fn judged(&self) -> HookFacts {
        let mut facts = self.facts.clone();
        if self.shown == ours(Rung::Skip, false) {
            facts.witnesses.retain(|witness| *witness == Witness::Probes);
        }
        facts
    }

    /// Advances time, one second at a time.
    pub(super) fn wait(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now += 1;
            for told in std::mem::take(&mut self.late) {
                self.observe(told);
            }
            let view = self.view();
            self.observe(Observation::Shows {
                hook: self.id.clone(),
                server: "s".into(),
                view,
            });
            self.observe(Observation::Judged(Judged {
                fence_holds: true,
                match_conditions: true,
                self_doubt: self.self_doubt,
                hooks: BTreeMap::from([(self.id.clone(), self.judged())]),
                ..Judged::default()
            }));
        }
    }

    pub(super) fn another_writer_writes(&mut self, shown: BypassState) {
        self.shown = shown;
        self.version += 1;
    }
}
