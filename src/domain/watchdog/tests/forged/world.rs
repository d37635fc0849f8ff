//! The core and a breaker, in a cluster that accepts every change.

use std::collections::BTreeSet;

use super::super::*;
use crate::act::breaker::{
    Action, Book, Breaker, BreakerSettings, BypassState, Observation, ObservedHook, OwnerAnnotations, Policy,
    PolicyRule, ResourceVersion, Rung, To, Witness, WriteOutcome,
};
use crate::act::fence::MaySkip;

/// The core, and a breaker whose decisions are executed, with one API server that never refuses a change.
pub(super) struct World {
    pub(super) incident: Incident,
    breaker: Breaker,
    /// The object of each hook: its version, and what it shows.
    objects: BTreeMap<HookId, (u64, BypassState)>,
    ledger: (u64, Book),
    /// The changes so far, in order.
    taken: Vec<(HookId, To)>,
    pub(super) now: u64,
    /// The latest facts for the breaker, for failure messages.
    pub(super) last: String,
}

impl World {
    /// The world after ten healthy seconds.
    pub(super) fn calm(hooks: &[&Hook], rungs: &[Rung]) -> Self {
        let policy = Policy {
            fallback: PolicyRule {
                rungs: rungs.iter().copied().collect(),
                ..PolicyRule::fallback()
            },
            ..Policy::default()
        };
        let mut world = Self {
            incident: Incident::calm(hooks),
            breaker: Breaker::new(BreakerSettings::new("me", AutoBreak::On, policy)),
            objects: BTreeMap::new(),
            ledger: (1, Book::default()),
            taken: Vec::new(),
            now: 13 * SECOND,
            last: String::new(),
        };
        world
            .incident
            .event(world.now, Event::Fence(Proof::Proven(MaySkip::all())));
        world.observe(Observation::Servers(BTreeSet::from(["s".into()])));
        world.observe(Observation::Leads(true));
        world
    }

    fn at(&mut self, hook: &HookId) -> &mut (u64, BypassState) {
        self.objects
            .entry(hook.clone())
            .or_insert((1, BypassState::Original))
    }

    fn view(&mut self, hook: &HookId) -> ObservedHook {
        let (version, shown) = self.at(hook).clone();
        ObservedHook {
            version: ResourceVersion::new(&version.to_string()),
            uid: "uid".into(),
            shown,
            left_over: false,
            by_hand_until: None,
            owner: OwnerAnnotations::default(),
            ignores: false,
        }
    }

    fn observe(&mut self, observation: Observation) {
        let mut due = vec![observation];
        while let Some(observation) = due.pop() {
            for action in self.breaker.take([observation], Incident::at(self.now)) {
                due.extend(self.does(action));
            }
        }
    }

    fn does(&mut self, action: Action) -> Option<Observation> {
        let ledger_version = |ledger: &(u64, Book)| ResourceVersion::new(&ledger.0.to_string());
        match action {
            Action::Tell(_) => None,
            Action::ReadLedger => Some(Observation::Ledger {
                version: Some(ledger_version(&self.ledger)),
                book: self.ledger.1.clone(),
            }),
            Action::WriteLedger { ticket, book, .. } => {
                self.ledger = (self.ledger.0 + 1, book);
                let outcome = WriteOutcome::Written(ledger_version(&self.ledger));
                Some(Observation::Outcome { ticket, outcome })
            }
            Action::Read { ticket, hook } => Some(Observation::Read {
                ticket,
                view: Some(self.view(&hook)),
            }),
            Action::Change(change) => {
                let shown = match change.to {
                    To::Bypass(rung) => BypassState::Ours {
                        rung,
                        probation: false,
                    },
                    To::Probation => BypassState::Ours {
                        rung: Rung::Skip,
                        probation: true,
                    },
                    To::Original => BypassState::Original,
                };
                let object = self.at(&change.hook);
                *object = (object.0 + 1, shown);
                self.taken.push((change.hook.clone(), change.to));
                let outcome = WriteOutcome::Applied(self.view(&change.hook));
                let ticket = change.ticket;
                Some(Observation::Outcome { ticket, outcome })
            }
        }
    }

    /// Advances one second: judges, and gives the judgement to the breaker.
    pub(super) fn step(&mut self) {
        self.now += SECOND;
        self.incident.tick(self.now);
        let mut judged = Judged::clone(&self.incident.judged);
        judged.match_conditions = true;
        self.last = format!("{:#?}", judged.hooks);
        for hook in judged.hooks.keys().cloned().collect::<Vec<_>>() {
            let (server, view) = ("s".into(), self.view(&hook));
            self.observe(Observation::Shows { hook, server, view });
        }
        self.observe(Observation::Judged(judged));
    }

    pub(super) fn witnesses(&mut self, hook: &Hook) -> BTreeSet<Witness> {
        self.incident.tick(self.now);
        self.incident.judged.hooks[&hook.id].witnesses.clone()
    }

    /// The highest rung of a hook's bypasses so far.
    pub(super) fn furthest(&self, hook: &Hook) -> Option<Rung> {
        let of_hook = self.taken.iter().filter(|(id, _)| *id == hook.id);
        let rungs = of_hook.filter_map(|(_, to)| match to {
            To::Bypass(rung) => Some(*rung),
            _ => None,
        });
        rungs.max()
    }

    /// One second in which no backend of the hook answers a probe, and a canary and users' writes hang. Of 20 calls that end
    /// under its name, `answered` were answered.
    pub(super) fn hangs(&mut self, hook: &Hook, answered: f64) {
        let ms = self.now;
        self.incident.silent(ms - 2 * SECOND, hook, 2 * SECOND);
        self.incident.canary_late(ms - 2 * SECOND);
        let began = ms - 2 * SECOND;
        if ms >= 23 * SECOND {
            let late = refusal(&hook.id.webhook, "context deadline exceeded");
            self.incident.canary(began - 8 * SECOND, 10 * SECOND, late);
        }
        if (ms / SECOND).is_multiple_of(2) {
            let failed = 20.0 - answered;
            self.incident.count_calls(&hook.id.webhook, answered, 9.0);
            let series = self.incident.count_calls(&hook.id.webhook, failed, 10.0);
            series.rejections.calling += failed;
            add(&mut series.rejected, failed, 10.0);
            self.incident.scrape(ms + 100);
        }
    }
}
