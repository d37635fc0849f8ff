//! The guards of the breaker, and the reasons that are published when a hook is not bypassed.

use strum::{IntoStaticStr, VariantArray};

use crate::text::named;

/// Why a failing hook is not bypassed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum HeldBack {
    /// There are fewer than two witnesses, or the verdict is not confident enough.
    Evidence,
    /// All probes fail, so the fault may be hookwatch's own.
    SelfDoubt,
    /// The inventory or the last judgement is too old.
    #[strum(serialize = "stale_inventory")]
    Stale,
    /// The API servers' release, or the webhook's annotations, have not been read yet.
    NotRead,
    /// Its owner opted out.
    OptedOut,
    /// Its owner's annotation cannot be read.
    AnnotationUnreadable,
    /// The owner's ceiling does not permit a rung that would help, or the fence does not where the owner says nothing.
    Ceiling,
    /// The rule permits no rung that would help.
    Policy,
    /// The evidence justifies only a shield, and the rule permits none.
    WeakEvidence,
    /// The API server does not support `matchConditions`.
    ServerTooOld,
    /// Only a shield is permitted, and of what it spares the hook receives only hookwatch's own requests, as far as is known.
    NothingToShield,
    /// Only a shield is permitted, and the hook is slow but no control-plane request passes its deadline.
    WithinDeadlines,
    /// It has not failed for long enough.
    Hold,
    /// The mode is `plan`: hookwatch only reports.
    Plan,
    /// The fence around the account is not proven.
    Fence,
    /// The ledger was not read yet, or cannot be written.
    Ledger,
    /// A person froze the breaker.
    Frozen,
    /// Another writer keeps reverting the bypass.
    Contested,
    /// Its bypass reached the time limit, and it was not healthy for long enough since.
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
            Self::Stale => "The inventory, or the last judgement, is too old to act on.",
            Self::NotRead => {
                "The webhook's annotations, or the API servers' version, have not been read yet."
            }
            Self::OptedOut => "The configuration is annotated hookwatch.dev/breaker: off.",
            Self::AnnotationUnreadable => {
                "The annotation hookwatch.dev/breaker is none of off, shield, skip."
            }
            Self::Ceiling => {
                "The annotation hookwatch.dev/breaker does not permit what would help, or, without it, the fence does not."
            }
            Self::Policy => "The policy does not permit what would help.",
            Self::WeakEvidence => "Evidence of this kind justifies only a shield, and the rule permits none.",
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

/// One rule that keeps the breaker from doing harm. A test switches off one at a time, to show that it is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, VariantArray)]
pub(super) enum Guard {
    /// A bypass requires two witnesses and a confident verdict.
    Evidence,
    /// No bypass while the fault may be hookwatch's own.
    SelfDoubt,
    /// No bypass by an outdated inventory or judgement.
    Stale,
    /// No rung beyond the owner's annotation.
    Ceiling,
    /// No rung that the rule does not permit.
    Policy,
    /// Only a shield on weak evidence.
    WeakEvidence,
    /// Only a shield for a hook whose failures are ignored, unless it is dead.
    Dead,
    /// No bypass before the hook has failed for some time.
    Hold,
    /// No change of an object unless the mode is `on`.
    Mode,
    /// No bypass unless the fence is proven.
    Fence,
    /// No new bypass while frozen.
    Frozen,
    /// No further bypass after two reverts by another writer.
    Contested,
    /// After a bypass that reached its time limit, no other before the hook was healthy.
    Limit,
    /// A bypass ends at its time limit.
    Longest,
    /// No more bypasses at once than permitted.
    Budget,
    /// No more skips within some time than permitted.
    Rate,
    /// The ledger is written before an object, with the ledger's version as the precondition.
    LedgerFirst,
    /// A change is made only to exactly the version of the object that was read.
    Version,
    /// The licence to begin a bypass expires before another replica may write the line off.
    Licence,
    /// A line is not written off while a change under it may still be in flight.
    WriteOff,
    /// A hook that a canary matches is restored only after a canary got through.
    Canary,
    /// Probation only follows a skip: after a shield it would enforce less.
    Narrowing,
    /// A bypass is effective only when every API server shows it, and over only when none shows it any more.
    EveryServer,
}

#[cfg(test)]
impl Guard {
    pub(super) const ALL: &'static [Self] = Self::VARIANTS;
}

/// Which guards are in force. Only tests can switch one off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Guards {
    #[cfg(test)]
    off: Option<Guard>,
}

impl Guards {
    /// All guards but one.
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
