//! The guard rails, and the names under which each says that it held the breaker back.

use strum::{IntoStaticStr, VariantArray};

use crate::text::named;

/// Why a hook that looks like a culprit is not bypassed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum HeldBack {
    /// Fewer than two witnesses, or not sure enough.
    Evidence,
    /// We doubt ourselves: every probe of everything fails.
    SelfDoubt,
    /// What is known of the hooks or of how they are is old.
    #[strum(serialize = "stale_inventory")]
    Stale,
    /// The API servers' release, or the webhook's annotations, have not been read yet.
    NotRead,
    /// Its owner opted out.
    OptedOut,
    /// Its owner's annotation cannot be read.
    AnnotationUnreadable,
    /// The rungs that would help are beyond the owner's ceiling, or the fence's where the owner says nothing.
    Ceiling,
    /// The rule permits nothing, or only what would not help.
    Policy,
    /// The evidence is of a kind that never goes past shield, and shield is not permitted or not possible.
    WeakEvidence,
    /// The API server knows no match conditions.
    ServerTooOld,
    /// Only shield is permitted, and only hookwatch is known to write what it spares.
    NothingToShield,
    /// Only shield is permitted, and the hook is slow within the deadlines of what it spares.
    WithinDeadlines,
    /// It has not failed for long enough.
    Hold,
    /// The mode is `plan`: it is only said.
    Plan,
    /// The fence around the account is not proven.
    Fence,
    /// The ledger was not read yet, or cannot be written.
    Ledger,
    /// A person froze the breaker.
    Frozen,
    /// Another writer keeps reverting the bypass.
    Contested,
    /// Its bypass lasted as long as it may, and it was not well since.
    Limit,
    /// Several webhooks of the object have this name.
    Foreign,
    /// The limit of simultaneous bypasses is reached.
    Budget,
    /// The limit of recent skips is reached.
    Rate,
    /// The webhook has no room for another match condition.
    NoRoom,
    /// The change was refused, by the API server or because its object has no room; hookwatch retries later.
    Refused,
}

named!(HeldBack, "The value of the `reason` label in metrics.", all);

impl HeldBack {
    /// Why, as a sentence.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Evidence => "It needs two independent witnesses and a confident verdict.",
            Self::SelfDoubt => "Every probe fails, so the fault may be hookwatch's own.",
            Self::Stale => "The inventory is too old to act on.",
            Self::NotRead => {
                "The webhook's annotations, or the API servers' version, have not been read yet."
            }
            Self::OptedOut => "The configuration is annotated hookwatch.dev/breaker: off.",
            Self::AnnotationUnreadable => {
                "The annotation hookwatch.dev/breaker is none of off, shield, skip."
            }
            Self::Ceiling => {
                "The annotation hookwatch.dev/breaker, or the fence without one, does not permit what would help."
            }
            Self::Policy => "The policy does not permit what would help.",
            Self::WeakEvidence => "Evidence of this kind never goes past shield, and no shield is possible.",
            Self::ServerTooOld => {
                "The API server does not support matchConditions. Only a person can set failurePolicy: Ignore (hookwatch break)."
            }
            Self::NothingToShield => {
                "A shield would not help: only hookwatch is known to write what it spares. Nothing beyond a shield is permitted."
            }
            Self::WithinDeadlines => {
                "A shield would not help: the webhook is slow, but no control-plane request passes its deadline. Nothing beyond a shield is permitted."
            }
            Self::Hold => "It has not failed for long enough.",
            Self::Plan => "The mode is plan.",
            Self::Fence => "The fence around hookwatch's account is not proven.",
            Self::Ledger => "The ledger cannot be read or written.",
            Self::Frozen => "A person froze the breaker.",
            Self::Contested => "Contested: something keeps reverting the bypass, so hookwatch has stopped.",
            Self::Limit => "Its bypass reached its limit, and it has not been healthy for long enough since.",
            Self::Foreign => {
                "Several webhooks of the configuration have this name; give each a name of its own."
            }
            Self::Budget => "The limit of simultaneous bypasses is reached.",
            Self::Rate => "The limit of recent skips is reached.",
            Self::NoRoom => {
                "The webhook has as many matchConditions as the API server accepts. Only a person can set failurePolicy: Ignore (hookwatch break)."
            }
            Self::Refused => "The change was refused; hookwatch retries later.",
        }
    }
}

/// One thing that keeps the breaker from doing harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, VariantArray)]
pub(super) enum Guard {
    /// Two witnesses and a sure verdict before anything is done.
    Evidence,
    /// Not while we doubt ourselves.
    SelfDoubt,
    /// Not by old knowledge.
    Stale,
    /// Neither past the owner's annotation.
    Ceiling,
    /// Nor past the rule.
    Policy,
    /// Nor past shield on weak evidence.
    WeakEvidence,
    /// Nor past shield where its failures are ignored, unless it is dead.
    Dead,
    /// Not before it has failed for some time.
    Hold,
    /// Nothing is touched unless the mode is `on`.
    Mode,
    /// Nor unless the fence holds.
    Fence,
    /// Nothing new while frozen.
    Frozen,
    /// Two reverts are enough.
    Contested,
    /// Not again after the longest bypass, before it was well.
    Limit,
    /// The longest bypass itself.
    Longest,
    /// As many at once as permitted.
    Budget,
    /// As many in some time as permitted.
    Rate,
    /// The ledger is written, with its version as the precondition, before an object is.
    LedgerFirst,
    /// A change is made only to the very version of the object that was read.
    Version,
    /// The permission to act ends before another replica may treat the line as abandoned.
    Licence,
    /// A change that may still be in flight is not written off.
    Patience,
    /// A hook that canaries reach is restored only after they got through.
    Canary,
    /// Canaries alone go through only where nothing went through before: never from shield.
    Narrowing,
    /// Only what every API server shows is called effective, and only what none shows any more is over.
    EveryServer,
}

#[cfg(test)]
impl Guard {
    pub(super) const ALL: &'static [Self] = Self::VARIANTS;
}

/// Which guards are in force. What is shipped has no way to switch one off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Guards {
    #[cfg(test)]
    off: Option<Guard>,
}

impl Guards {
    /// All but one, to show that it is needed.
    #[cfg(test)]
    pub(super) fn without(guard: Guard) -> Self {
        Self { off: Some(guard) }
    }

    /// Whether a guard is in force.
    #[cfg(test)]
    pub(super) fn on(self, guard: Guard) -> bool {
        self.off != Some(guard)
    }

    /// Whether a guard is in force: always.
    #[cfg(not(test))]
    pub(super) const fn on(self, _: Guard) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_reason_has_a_label_of_its_own_and_a_sentence() {
        let labels: BTreeSet<&str> = HeldBack::ALL.iter().map(|reason| reason.as_str()).collect();
        assert_eq!(labels.len(), HeldBack::ALL.len());
        assert!(
            HeldBack::ALL
                .iter()
                .all(|reason| reason.sentence().ends_with('.'))
        );
    }
}
