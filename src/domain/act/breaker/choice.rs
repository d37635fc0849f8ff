//! Which rung is taken, and why none of the others.

use std::sync::Arc;

use super::guards::{Guard, Guards, HeldBack};
use super::observed::{HookFacts, Stake};
use super::policy::{Ceiling, Permit, PolicyRule, Rung};
use super::{Breaker, HookMemory};
use crate::vocabulary::{Cause, Effect};

/// Whether a cause can be provoked from outside, or lets most writes through. Such a cause never goes past shield.
pub const fn is_weak(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::Slow
            | Cause::Denying
            | Cause::Partial
            | Cause::RolloutGap
            | Cause::StaleConnection
            | Cause::FailingOpen
    )
}

/// Why a shield waits where only hookwatch's own requests are known to be sent to a hook.
const ONLY_HOOKWATCH: &str = "only hookwatch is known to meet it, and no calls of others were counted";

/// Why a skip is not permitted by the fence, and what would permit it.
const FENCE_FORBIDS_SKIP: &str = "the fence lets only such webhooks be skipped whose configuration is annotated hookwatch.dev/breaker: skip, or named in \
     its maySkip";

/// The chosen rung, and the reasons for the choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The chosen rung.
    pub rung: Rung,
    /// Why it was chosen, in words.
    pub why: String,
    /// The other rungs, each with the reason why it was not chosen.
    pub not_taken: Vec<(Rung, String)>,
}

impl Choice {
    /// All reasons in one line.
    pub fn words(&self) -> Arc<str> {
        let others: Vec<String> = self
            .not_taken
            .iter()
            .map(|(rung, why)| format!("not {rung}: {why}"))
            .collect();
        if others.is_empty() {
            self.why.as_str().into()
        } else {
            format!("{} ({})", self.why, others.join("; ")).into()
        }
    }
}

impl Breaker {
    /// What the owner permits, by the newest known version of the object.
    pub(super) fn ceiling(hook: &HookMemory) -> Ceiling {
        hook.newest().map(|(owner, _)| owner.ceiling).unwrap_or_default()
    }

    /// Whether the owner and the fence permit a rung.
    pub(super) fn permits(hook: &HookMemory, rung: Rung) -> bool {
        Self::ceiling(hook).permits(rung) && (rung == Rung::Shield || Self::may_skip(hook))
    }

    /// Whether the fence permits to skip a hook: where an annotation of its owner or the fence itself says so.
    pub(super) fn may_skip(hook: &HookMemory) -> bool {
        let said = hook.newest().map(|(owner, ignores)| (owner.permit, ignores));
        Self::ceiling(hook) == Ceiling::At(Rung::Skip)
            || said == Some((Permit::SkipWhileDead, true))
            || hook.facts.as_ref().is_none_or(|facts| facts.may_skip)
    }
}

/// Why a rung is not taken, with the sentence to publish.
type RungObjection = (HeldBack, String);

/// The limits of the choice of a rung, besides the facts.
pub(super) struct RungBounds<'a> {
    /// The rule that counts.
    pub(super) rule: &'a PolicyRule,
    /// The owner's, by the newest that is known.
    pub(super) ceiling: Ceiling,
    /// Whether the fence lets it be skipped.
    pub(super) may_skip: bool,
    /// Whether the API servers know `matchConditions`.
    pub(super) match_conditions: bool,
    /// No rung beyond it is taken yet.
    pub(super) highest: Rung,
    /// Why a hook whose failures are ignored may not be skipped; `None` where it may.
    pub(super) skip_objection: Option<&'static str>,
    pub(super) guards: Guards,
}

impl RungBounds<'_> {
    /// The objection to a rung for a hook that fails from this cause, if any.
    fn objection(&self, rung: Rung, facts: &HookFacts, cause: Cause) -> Option<RungObjection> {
        let guards = self.guards;
        let may_skip_while_dead = facts.ignores && self.skip_objection.is_none();
        if facts.ignores && rung == Rung::Skip {
            // A skip while dead has a permission of its own, apart from the rungs of the rule.
            if let Some(why) = self.skip_objection {
                return Some((HeldBack::WeakEvidence, why.to_owned()));
            }
        } else if !self.rule.rungs.contains(&rung) && guards.on(Guard::Policy) {
            let why = format!("the rule {:?} does not permit it", self.rule.name);
            return Some((HeldBack::Policy, why));
        }
        if !self.ceiling.permits(rung) {
            let why = "the annotation hookwatch.dev/breaker does not permit it".to_owned();
            return Some((HeldBack::Ceiling, why));
        }
        if rung == Rung::Skip && !self.may_skip {
            return Some((HeldBack::Ceiling, FENCE_FORBIDS_SKIP.to_owned()));
        }
        let weak = is_weak(cause) || facts.ambiguous || facts.doubt.is_some();
        if rung > Rung::Shield && weak && guards.on(Guard::WeakEvidence) {
            let why = match (facts.ambiguous, facts.doubt) {
                (true, _) => {
                    "evidence by a name that several webhooks have never goes past shield".to_owned()
                }
                (false, Some(doubt)) if !is_weak(cause) => doubt.sentence().to_owned(),
                (false, _) => format!("{cause} never goes past shield"),
            };
            return Some((HeldBack::WeakEvidence, why));
        }
        if !self.match_conditions {
            let why = "the API server knows no matchConditions".to_owned();
            return Some((HeldBack::ServerTooOld, why));
        }
        if facts.conditions_full {
            let why = "the webhook has as many matchConditions as the API server takes".to_owned();
            return Some((HeldBack::NoRoom, why));
        }
        if facts.stake == Stake::Hookwatch {
            return Some((HeldBack::NothingToShield, ONLY_HOOKWATCH.to_owned()));
        }
        // A dead hook is always shielded before it is skipped.
        if rung == Rung::Shield && !facts.meets_control_plane && !may_skip_while_dead {
            let why = "only hookwatch is known to write what it spares".to_owned();
            return Some((HeldBack::NothingToShield, why));
        }
        if rung == Rung::Shield && facts.is_merely_slow() {
            let why = "no request of the control plane's passes its deadline".to_owned();
            return Some((HeldBack::WithinDeadlines, why));
        }
        (rung > self.highest).then(|| (HeldBack::Policy, "a shield comes first".to_owned()))
    }
}

/// Chooses the lowest rung that restores what the hook blocks or delays, of those that are permitted and possible.
///
/// # Errors
/// With the reason to publish, when there is none.
pub(super) fn choose(facts: &HookFacts, bounds: &RungBounds<'_>) -> Result<Choice, HeldBack> {
    let Some(cause) = facts.cause else {
        return Err(HeldBack::Evidence);
    };
    match bounds.ceiling {
        Ceiling::Off => return Err(HeldBack::OptedOut),
        Ceiling::Unreadable => return Err(HeldBack::AnnotationUnreadable),
        Ceiling::Unread => return Err(HeldBack::NotRead),
        Ceiling::Open | Ceiling::At(_) => {}
    }
    let rungs: Vec<(Rung, Option<RungObjection>)> = Rung::ALL
        .iter()
        .map(|rung| (*rung, bounds.objection(*rung, facts, cause)))
        .collect();
    let mut usable = rungs
        .iter()
        .filter(|(_, objection)| objection.is_none())
        .map(|(rung, _)| *rung);
    // A shield does not help tenants' writes. A skip is justified only when none of them gets through.
    let blocks_all = facts.effect == Effect::Blocking && !facts.ignores;
    // Where failures are ignored, a skip is usable only while the hook is dead.
    let chosen = if blocks_all || facts.ignores {
        usable.next_back()
    } else {
        usable.next()
    };
    let Some(rung) = chosen else {
        return Err(reason(&rungs));
    };
    let why = match rung {
        Rung::Shield if blocks_all => format!("{cause}: restores the control plane's own writes"),
        Rung::Shield => format!("{cause}: ends the wait of the control plane's own writes"),
        Rung::Skip if facts.ignores => format!(
            "{cause}, and dead: every write is admitted without its review already; ends the wait of tenants' writes"
        ),
        Rung::Skip => format!("{cause}: restores all writes"),
    };
    let not_taken = rungs.into_iter().filter(|(other, _)| *other != rung);
    let not_taken = not_taken
        .map(|(other, objection)| {
            let why = match objection {
                Some((_, why)) => why,
                None if other < rung && facts.ignores => "it leaves the tenants' writes waiting".to_owned(),
                None if other < rung => "it leaves the tenants' writes blocked".to_owned(),
                None => "it goes further than is needed".to_owned(),
            };
            (other, why)
        })
        .collect();
    Ok(Choice { rung, why, not_taken })
}

/// The reason to publish when there is an objection to every rung: the objection of the rung that came closest to being
/// taken.
fn reason(rungs: &[(Rung, Option<RungObjection>)]) -> HeldBack {
    let order = [
        HeldBack::NothingToShield,
        HeldBack::WithinDeadlines,
        HeldBack::ServerTooOld,
        HeldBack::NoRoom,
        HeldBack::WeakEvidence,
        HeldBack::Ceiling,
    ];
    let has = |reason: &HeldBack| {
        let mut objections = rungs.iter().filter_map(|(_, objection)| objection.as_ref());
        objections.any(|(other, _)| other == reason)
    };
    order.into_iter().find(has).unwrap_or(HeldBack::Policy)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::act::breaker::OwnerAnnotations;
    use crate::act::breaker::observed::{CanaryEvidence, Doubt, Witness};
    use crate::vocabulary::Health;

    fn facts(cause: Cause, effect: Effect) -> HookFacts {
        HookFacts {
            health: Health::Failing,
            cause: Some(cause),
            effect,
            confident: true,
            witnesses: BTreeSet::from([Witness::Probes, Witness::Canary]),
            ambiguous: false,
            doubt: None,
            canary: CanaryEvidence::NoCanary,
            meets_control_plane: true,
            stake: Stake::Failed,
            ignores: false,
            dead: false,
            incident_key: None,
            conditions_full: false,
            owner: OwnerAnnotations::default(),
            may_skip: true,
        }
    }

    fn rule(rungs: &[Rung]) -> PolicyRule {
        PolicyRule {
            rungs: rungs.iter().copied().collect(),
            ..PolicyRule::fallback()
        }
    }

    const NOT_DEAD: Option<&str> = Some("it is not dead");

    fn bounds(rule: &PolicyRule) -> RungBounds<'_> {
        RungBounds {
            rule,
            ceiling: Ceiling::Open,
            may_skip: true,
            match_conditions: true,
            highest: Rung::Skip,
            skip_objection: NOT_DEAD,
            guards: Guards::default(),
        }
    }

    fn chosen(facts: &HookFacts, rungs: &[Rung], ceiling: Ceiling, new: bool) -> Result<Rung, HeldBack> {
        let rule = rule(rungs);
        let bounds = RungBounds {
            ceiling,
            match_conditions: new,
            ..bounds(&rule)
        };
        choose(facts, &bounds).map(|choice| choice.rung)
    }

    #[test]
    fn what_blocks_all_writes_is_skipped_where_that_is_permitted_and_shielded_where_it_is_not() {
        let hanging = facts(Cause::Hanging, Effect::Blocking);
        let chosen = |rungs: &[Rung], ceiling| chosen(&hanging, rungs, ceiling, true);
        assert_eq!(chosen(Rung::ALL, Ceiling::Open), Ok(Rung::Skip));
        assert_eq!(chosen(&[Rung::Shield], Ceiling::Open), Ok(Rung::Shield));
        assert_eq!(chosen(Rung::ALL, Ceiling::At(Rung::Shield)), Ok(Rung::Shield));
        assert_eq!(
            chosen(&[Rung::Skip], Ceiling::At(Rung::Shield)),
            Err(HeldBack::Ceiling)
        );
        assert_eq!(chosen(Rung::ALL, Ceiling::Off), Err(HeldBack::OptedOut));
        assert_eq!(
            chosen(Rung::ALL, Ceiling::Unreadable),
            Err(HeldBack::AnnotationUnreadable)
        );
        assert_eq!(chosen(Rung::ALL, Ceiling::Unread), Err(HeldBack::NotRead));
        assert_eq!(chosen(&[], Ceiling::Open), Err(HeldBack::Policy));
    }

    #[test]
    fn what_the_fence_does_not_let_be_skipped_is_shielded() {
        let hanging = facts(Cause::Hanging, Effect::Blocking);
        let fenced = |rungs: &[Rung]| {
            let rule = rule(rungs);
            let bounds = RungBounds {
                may_skip: false,
                ..bounds(&rule)
            };
            choose(&hanging, &bounds)
        };
        let shield = fenced(Rung::ALL).unwrap();
        assert_eq!(shield.rung, Rung::Shield);
        assert!(shield.words().contains("maySkip"), "{}", shield.words());
        assert_eq!(fenced(&[Rung::Skip]), Err(HeldBack::Ceiling));
    }

    #[test]
    fn slow_denying_partial_and_ambiguous_evidence_never_goes_past_shield() {
        let mut weak: Vec<HookFacts> = [Cause::Slow, Cause::Denying, Cause::Partial]
            .map(|cause| facts(cause, Effect::Blocking))
            .into();
        let mut ambiguous = facts(Cause::Hanging, Effect::Blocking);
        ambiguous.ambiguous = true;
        weak.push(ambiguous);
        for facts in weak {
            assert_eq!(chosen(&facts, Rung::ALL, Ceiling::Open, true), Ok(Rung::Shield));
            let held_back = chosen(&facts, &[Rung::Skip], Ceiling::Open, true);
            assert_eq!(held_back, Err(HeldBack::WeakEvidence), "{:?}", facts.cause);
        }
    }

    #[test]
    fn a_hook_whose_failures_are_ignored_and_that_is_not_dead_is_shielded_and_never_more_whatever_it_blocks()
    {
        let mut ignoring = facts(Cause::Hanging, Effect::Blocking);
        ignoring.ignores = true;
        let all = rule(Rung::ALL);
        let choice = choose(&ignoring, &bounds(&all)).unwrap();
        assert_eq!(choice.rung, Rung::Shield);
        assert!(choice.why.contains("ends the wait of"), "{}", choice.why);
        let held_back = chosen(&ignoring, &[Rung::Skip], Ceiling::Open, true);
        assert_eq!(held_back, Err(HeldBack::WeakEvidence));
    }

    /// A hook that is dead and may be skipped, with what else there is to it.
    fn dead(change: impl FnOnce(&mut HookFacts, &mut RungBounds<'_>)) -> Result<Rung, HeldBack> {
        let rule = PolicyRule::fallback();
        let mut facts = facts(Cause::Hanging, Effect::Delaying);
        facts.ignores = true;
        let mut bounds = RungBounds {
            skip_objection: None,
            ..bounds(&rule)
        };
        change(&mut facts, &mut bounds);
        choose(&facts, &bounds).map(|choice| choice.rung)
    }

    #[test]
    fn a_hook_that_is_dead_is_skipped_but_for_whatever_speaks_against_more_than_a_shield() {
        assert_eq!(dead(|_, _| {}), Ok(Rung::Skip));
        assert_eq!(dead(|facts, _| facts.effect = Effect::Blocking), Ok(Rung::Skip));
        let shielded: [fn(&mut HookFacts, &mut RungBounds<'_>); 7] = [
            |_, bounds| bounds.may_skip = false,
            |_, bounds| bounds.skip_objection = NOT_DEAD,
            |_, bounds| bounds.ceiling = Ceiling::At(Rung::Shield),
            |_, bounds| bounds.highest = Rung::Shield,
            |facts, _| (facts.cause, facts.effect) = (Some(Cause::Slow), Effect::Blocking),
            |facts, _| facts.ambiguous = true,
            |facts, _| facts.doubt = Some(Doubt::SomeAnswered),
        ];
        for (at, change) in shielded.into_iter().enumerate() {
            assert_eq!(dead(change), Ok(Rung::Shield), "{at}");
        }
        assert_eq!(
            dead(|_, bounds| bounds.ceiling = Ceiling::Off),
            Err(HeldBack::OptedOut)
        );
        assert_eq!(
            dead(|_, bounds| bounds.match_conditions = false),
            Err(HeldBack::ServerTooOld)
        );
    }

    #[test]
    fn a_dead_hook_is_shielded_first_even_where_a_shield_spares_nothing() {
        let tenants_only = |most| {
            dead(|facts, bounds| {
                facts.meets_control_plane = false;
                bounds.highest = most;
            })
        };
        assert_eq!(tenants_only(Rung::Shield), Ok(Rung::Shield));
        assert_eq!(tenants_only(Rung::Skip), Ok(Rung::Skip));
        let alive = dead(|facts, bounds| {
            facts.meets_control_plane = false;
            bounds.skip_objection = NOT_DEAD;
        });
        assert_eq!(alive, Err(HeldBack::NothingToShield));
    }

    #[test]
    fn where_no_match_condition_can_be_added_nothing_is_done() {
        let hanging = facts(Cause::Hanging, Effect::Blocking);
        let chosen = |facts: &HookFacts, new| chosen(facts, Rung::ALL, Ceiling::Open, new);
        assert_eq!(chosen(&hanging, false), Err(HeldBack::ServerTooOld));
        let full = HookFacts {
            conditions_full: true,
            ..hanging
        };
        assert_eq!(chosen(&full, true), Err(HeldBack::NoRoom));
    }

    #[test]
    fn a_shield_that_spares_nothing_is_not_raised() {
        let mut hanging = facts(Cause::Hanging, Effect::Blocking);
        hanging.meets_control_plane = false;
        let held_back = chosen(&hanging, &[Rung::Shield], Ceiling::Open, true);
        assert_eq!(held_back, Err(HeldBack::NothingToShield));
        assert_eq!(chosen(&hanging, Rung::ALL, Ceiling::Open, true), Ok(Rung::Skip));
    }

    #[test]
    fn a_slow_hook_is_not_shielded_while_every_deadline_is_kept() {
        let slow = |effect| chosen(&facts(Cause::Slow, effect), &[Rung::Shield], Ceiling::Open, true);
        assert_eq!(slow(Effect::Delaying), Err(HeldBack::WithinDeadlines));
        assert_eq!(slow(Effect::Blocking), Ok(Rung::Shield));
    }

    #[test]
    fn the_rungs_not_taken_are_explained() {
        let hanging = facts(Cause::Hanging, Effect::Blocking);
        let words = |rungs: &[Rung]| choose(&hanging, &bounds(&rule(rungs))).unwrap().words();
        assert_eq!(
            &*words(Rung::ALL),
            "Hanging: restores all writes (not shield: it leaves the tenants' writes blocked)"
        );
        assert_eq!(
            &*words(&[Rung::Shield]),
            "Hanging: restores the control plane's own writes (not skip: the rule \"default\" does not permit it)"
        );
    }
}
