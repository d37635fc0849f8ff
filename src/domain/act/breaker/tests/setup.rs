//! The initial state of a small world, and what may go wrong in it.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use super::super::guards::{Guard, Guards};
use super::super::*;
use super::world::{Object, UNIT};
use crate::act::fence::AutoBreak;
use crate::cluster::hook::HookKind;
use crate::vocabulary::{Cause, Effect, Health};

/// The state of a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Mood {
    Well,
    /// It hangs, and all witnesses show it.
    Hanging,
    /// It hangs and answers no call at all.
    Dead,
    /// It hangs, and only one witness shows it.
    Thin,
    /// It is slow, and all witnesses show it.
    Slow,
}

/// A change of an object by another writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum OtherWrite {
    /// Replaces the object by the owner's manifest.
    Revert,
    /// Restores the fields but leaves hookwatch's annotation.
    TakeBack,
    /// Changes what a bypass does not touch: the caBundle.
    Rotate,
    /// Changes the fields that a bypass touches.
    Rewrite,
    /// The owner opts out.
    OptOut,
    /// The owner sets `failurePolicy: Fail`.
    Enforce,
    /// Deletes the object.
    Delete,
}

/// How often each mishap may still happen.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Mishaps {
    pub(super) crashes: u8,
    pub(super) clock_steps: u8,
    pub(super) other_writes: u8,
    /// Requests whose sender stops waiting for the answer.
    pub(super) unheard: u8,
    pub(super) refusals: u8,
    /// How often a hook's mood changes.
    pub(super) moods: u8,
    /// How often a doubt about the evidence appears or disappears.
    pub(super) doubts: u8,
    pub(super) freezes: u8,
    /// Units of time in which a replica observes nothing.
    pub(super) naps: u8,
    /// Units of time that may pass while a write is under way.
    pub(super) delays: u8,
    /// Observations of a replica before its watches deliver others' writes.
    pub(super) glances: u8,
}

/// The parameters of a world.
#[derive(Debug, Clone)]
pub(super) struct Setup {
    pub(super) hooks: usize,
    pub(super) actors: usize,
    pub(super) servers: usize,
    pub(super) mode: AutoBreak,
    pub(super) most: usize,
    /// Bypasses per three units of time; `None`: unlimited.
    pub(super) rate: Option<usize>,
    pub(super) rungs: BTreeSet<Rung>,
    /// The hooks have `failurePolicy: Ignore`, and a rule permits `skip_while_dead`.
    pub(super) ignores: bool,
    /// In units.
    pub(super) hold: u32,
    /// In units; `None`: no limit.
    pub(super) longest: Option<u32>,
    /// What happens to a bypass at its limit; `None`: a shield stays.
    pub(super) at_limit: Option<AtLimit>,
    pub(super) first: Mood,
    pub(super) moods: Vec<Mood>,
    pub(super) other_writes: Vec<OtherWrite>,
    pub(super) canaries: bool,
    pub(super) mishaps: Mishaps,
    pub(super) guards: Guards,
    pub(super) settings: [OnceLock<Arc<BreakerSettings>>; 2],
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            hooks: 1,
            actors: 1,
            servers: 1,
            mode: AutoBreak::On,
            most: 1,
            rate: None,
            rungs: BTreeSet::from([Rung::Shield, Rung::Skip]),
            ignores: false,
            hold: 0,
            longest: None,
            at_limit: Some(AtLimit::Restore),
            first: Mood::Hanging,
            moods: vec![Mood::Well, Mood::Hanging],
            other_writes: Vec::new(),
            canaries: false,
            mishaps: Mishaps::default(),
            guards: Guards::default(),
            settings: Default::default(),
        }
    }
}

impl Setup {
    pub(super) fn without(mut self, guard: Guard) -> Self {
        self.guards = Guards::without(guard);
        self
    }

    /// The settings of a replica; created once.
    pub(super) fn settings(&self, actor: usize) -> Arc<BreakerSettings> {
        let settings = self.settings[actor].get_or_init(|| Arc::new(self.make_settings(actor)));
        Arc::clone(settings)
    }

    fn make_settings(&self, actor: usize) -> BreakerSettings {
        let forever = UNIT * 1_000_000;
        let policy = Policy {
            fallback: PolicyRule {
                rungs: self.rungs.clone(),
                skip_while_dead: self.ignores,
                hold: Some(UNIT * self.hold),
                longest: Some(self.longest.map_or(forever, |longest| UNIT * longest)),
                at_limit: self.at_limit,
                ..PolicyRule::fallback()
            },
            most_shielded: self.most,
            most_skipped: self.most,
            rate: self.rate.unwrap_or(usize::MAX),
            rate_window: UNIT * 3,
            ..Policy::default()
        };
        let mut settings = BreakerSettings::new(["a", "b"][actor], self.mode, policy);
        settings.times = BreakerTimes {
            act_within: UNIT,
            request_life: UNIT * 2,
            write_off_after: UNIT * 3,
            healthy_for: UNIT,
            probation_for: UNIT,
            remember_for: UNIT * 2,
            doublings: 1,
            judgement_life: UNIT / 2,
            retry_after: UNIT,
            reread_after: forever,
            without_ledger: forever,
            follower_delay: Duration::ZERO,
        };
        settings.guards = self.guards;
        settings
    }

    pub(super) fn hook(at: usize) -> HookId {
        thread_local! {
            static KNOWN: [HookId; 2] = ["h0", "h1"].map(|name| HookId::new(HookKind::Validating, name, "w"));
        }
        KNOWN.with(|known| known[at].clone())
    }

    pub(super) fn facts(&self, mood: Mood, object: &Object) -> HookFacts {
        let bad = mood != Mood::Well;
        let probation = matches!(object.shown, BypassState::Ours { probation: true, .. });
        let witnesses: BTreeSet<Witness> = match mood {
            Mood::Well => BTreeSet::new(),
            Mood::Thin => BTreeSet::from([Witness::Probes]),
            Mood::Hanging | Mood::Dead | Mood::Slow => BTreeSet::from([Witness::Probes, Witness::Counters]),
        };
        HookFacts {
            health: if bad { Health::Failing } else { Health::Healthy },
            cause: match mood {
                Mood::Well => None,
                Mood::Slow => Some(Cause::Slow),
                Mood::Hanging | Mood::Dead | Mood::Thin => Some(Cause::Hanging),
            },
            effect: match (bad, object.ignores, &object.shown) {
                (false, ..) => Effect::None,
                (true, false, _) => Effect::Blocking,
                // A skipped hook is not called, so it delays no request.
                (true, true, BypassState::Ours { rung: Rung::Skip, .. }) => Effect::FailingOpen,
                (true, true, _) => Effect::Delaying,
            },
            confident: true,
            witnesses,
            ambiguous: false,
            doubt: None,
            canary: match (self.canaries, probation, bad) {
                (false, ..) => CanaryEvidence::NoCanary,
                (true, true, false) => CanaryEvidence::Through,
                (true, true, true) => CanaryEvidence::Failed,
                (true, false, _) => CanaryEvidence::Awaited,
            },
            meets_control_plane: true,
            stake: Stake::Called,
            ignores: object.ignores,
            dead: object.ignores && mood == Mood::Dead,
            incident_key: None,
            conditions_full: false,
            owner: object.view().owner,
            may_skip: true,
        }
    }
}
