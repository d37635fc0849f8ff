//! The breaker's input.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantNames};

use super::book::{Book, ResourceVersion};
use super::policy::{OwnerWord, Rung};
use crate::cluster::hook::HookId;
use crate::time::Time;
use crate::vocabulary::{Cause, Effect, Health};

/// The number of a request. An outcome that comes twice, or for a request that was given up, changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// One thing that was observed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observation {
    /// Nothing happened, but time advanced.
    Tick,
    /// Whether this replica is the one that acts. Safety does not depend on there being only one.
    Leads(bool),
    /// How everything is judged.
    Judged(Judged),
    /// The API servers that answer. A bypass is in force when all of them show it.
    Servers(BTreeSet<Arc<str>>),
    /// A hook's state in one API server's cache. It may be late, and after a restart, or where several share an address,
    /// older than the state before: versions only show a difference, and only a read shows which is newer.
    Shows {
        /// The hook that it is about.
        hook: HookId,
        /// The API server whose cache it is.
        server: Arc<str>,
        /// The hook's state in that cache.
        view: ObservedHook,
    },
    /// What a consistent read showed that was sent after it was asked for: the truth at some time since.
    Read {
        /// The ticket of the read.
        ticket: Ticket,
        /// What; `None` when it could not be read.
        view: Option<ObservedHook>,
    },
    /// What a read of the ledger showed, which is never older than what this replica read or wrote.
    Ledger {
        /// Its version; `None` when there is no such object.
        version: Option<ResourceVersion>,
        /// The breaker's part of it.
        book: Book,
    },
    /// The version that a watch or a cache shows of the ledger. It may be late; a read becomes due.
    LedgerShows(ResourceVersion),
    /// The ledger cannot be read or parsed.
    NoLedger,
    /// The outcome of a write.
    Outcome {
        /// The ticket of the write.
        ticket: Ticket,
        /// The final outcome, after all retries.
        outcome: WriteOutcome,
    },
}

impl Observation {
    /// What it shows of a hook.
    pub fn view_mut(&mut self) -> Option<&mut ObservedHook> {
        match self {
            Self::Shows { view, .. }
            | Self::Read { view: Some(view), .. }
            | Self::Outcome {
                outcome: WriteOutcome::Applied(view),
                ..
            } => Some(view),
            _ => None,
        }
    }
}

/// The outcome of a write. The sender handles retries after answers that say nothing was done; this is the final
/// outcome. The names are those in logs and metrics.
#[derive(Debug, Clone, PartialEq, Eq, Hash, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum WriteOutcome {
    /// It was done, and this is what the answer shows.
    Applied(ObservedHook),
    /// The ledger was written, and has this version now.
    #[strum(serialize = "applied")]
    Written(ResourceVersion),
    /// A precondition did not hold; nothing was done.
    Conflict,
    /// The object, or the entry in it, is gone; nothing was done.
    Gone,
    /// No API server took it in time; nothing was done.
    GaveUp,
    /// It was refused, with this said; nothing was done.
    Refused(Arc<str>),
    /// It was sent, and whether it was done is not known. It may still be done.
    #[strum(serialize = "unclear")]
    Ambiguous,
}

/// A hook as an object shows it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ObservedHook {
    /// `resourceVersion` of the configuration.
    pub version: ResourceVersion,
    /// `metadata.uid` of the configuration.
    pub uid: Arc<str>,
    /// What the fields show that a bypass changes.
    pub shown: BypassState,
    /// Its owner's annotations on exactly this version.
    pub owner: OwnerWord,
    /// Its failures are ignored, by this very version.
    pub ignores: bool,
    /// Nothing of hookwatch's is in force, and something is still written down about it.
    pub left_over: bool,
    /// A person bypassed it, until then.
    pub by_hand_until: Option<Time>,
}

/// What the fields show that a bypass changes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum BypassState {
    /// They are as the owner has them; nothing is of hookwatch.
    Original,
    /// They are as hookwatch left them, with the original recorded beside them.
    Ours {
        /// How far the bypass goes.
        rung: Rung,
        /// Only dry-run canaries reach the webhook.
        probation: bool,
    },
    /// Ambiguous: several webhooks have this name.
    Foreign,
    /// There is no such object or entry.
    Gone,
}

impl BypassState {
    /// Whether less is enforced than the owner wants, and by us.
    pub fn is_ours(&self) -> bool {
        matches!(self, Self::Ours { .. })
    }
}

/// How everything is judged at one instant.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Judged {
    /// Every probe of everything fails, and nothing shows that this is not our own fault.
    pub self_doubt: bool,
    /// The inventory has not been current for a while.
    pub inventory_is_old: bool,
    /// What decides about the rung has not been read yet: the API servers' release, or what the owner of a culprit says.
    pub unread: bool,
    /// The fence around the account is proven.
    pub fence_holds: bool,
    /// The API servers know `matchConditions`: all of them. On by default since 1.28.
    pub match_conditions: bool,
    /// Every hook of the inventory.
    pub hooks: BTreeMap<HookId, HookFacts>,
}

/// A source of evidence against a hook. Each observes it independently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Witness {
    /// Our own probes, or the inventory that shows no backend.
    Probes,
    /// The API server's counters, beyond what our own canaries moved.
    Counters,
    /// A canary that was refused in the hook's name, or is late.
    Canary,
}

/// Evidence that a mere tenant could produce. It never goes past shield: a tenant who makes a security hook fail on
/// purpose must not get past it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Doubt {
    /// Its endpoints are not, or not only, those that the cluster's own controller lists. Anyone who may write
    /// EndpointSlices can redirect its calls.
    EndpointsByHand,
    /// One of its endpoints has come and gone repeatedly: another writer may be fighting the controller.
    EndpointsUnsettled,
    /// The API server counts calls that are answered although others fail: there may be too many of them.
    SomeAnswered,
    /// It fell silent together with others, and no failed call has been counted for it yet: perhaps writes wait for the
    /// others alone.
    SilentTogether,
}

impl Doubt {
    /// Whether it can hold of a hook that is skipped: that no failed call of it is counted says nothing then.
    pub(super) fn outlives_its_calls(self) -> bool {
        self != Self::SilentTogether
    }

    /// Why it does not go further, as a part of a sentence.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::EndpointsByHand => {
                "endpoints that the cluster's controller does not manage never lead past shield"
            }
            Self::EndpointsUnsettled => "endpoints that come and go never lead past shield",
            Self::SomeAnswered => "a webhook that answers some of its calls never goes past shield",
            Self::SilentTogether => {
                "no failed call tells it yet from those that fell silent at the same time"
            }
        }
    }
}

/// The evidence of a canary that matches a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum CanaryWord {
    /// No canary meets it (it is asked about other kinds, or not about dry runs).
    #[default]
    Unmet,
    /// None has come back since the hook was last changed.
    Awaited,
    /// One got through since the hook was last changed.
    Through,
    /// The last one failed by this hook.
    Failed,
}

impl CanaryWord {
    /// Whether a canary meets the hook at all.
    pub fn is_met(self) -> bool {
        self != Self::Unmet
    }
}

/// Who is known to be affected by a hook, in ascending order. A bypass never takes the place of one with a higher
/// stake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stake {
    /// Only hookwatch is known to meet it.
    Hookwatch,
    /// Others meet it, by its rules and conditions or by what was counted.
    #[default]
    Met,
    /// Calls of others were counted that failed or were late.
    Felt,
    /// Leaders' or nodes' renewals of their Leases meet it.
    Renewals,
}

/// What is known of one hook.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HookFacts {
    /// How it is. While it is bypassed, by probes and by what still reaches it.
    pub health: Health,
    /// What is wrong with it.
    pub cause: Option<Cause>,
    /// What that does.
    pub effect: Effect,
    /// The verdict is of a rule that may be acted on, and as likely right as that takes.
    pub sure: bool,
    /// The sources of evidence against it.
    pub witnesses: BTreeSet<Witness>,
    /// The evidence is by a name that other hooks have too, or had a moment ago.
    pub ambiguous: bool,
    /// Why a mere tenant may have caused it; `None` where none could.
    pub doubt: Option<Doubt>,
    /// What the canary that meets it says.
    pub canary: CanaryWord,
    /// It is called for others' requests that a shield would spare. Not evaluated while it is neither accused nor bypassed.
    pub meets_control_plane: bool,
    /// Who is affected by it; the default while it is neither accused nor bypassed.
    pub stake: Stake,
    /// Its failures are ignored: while it fails every write passes it, and a bypass only removes the wait.
    pub ignores: bool,
    /// Its failures are ignored and it does not answer: every matching request is admitted without review. While it is
    /// skipped: no backend answers a probe.
    pub dead: bool,
    /// Where its calls go: hooks that share it fail together. `None` where it shares it with none.
    pub place: Option<Arc<str>>,
    /// It has as many match conditions as the API server takes.
    pub conditions_full: bool,
    /// What its owner says.
    pub owner: OwnerWord,
    /// The fence lets it be skipped though no annotation says so.
    pub may_skip: bool,
}

impl HookFacts {
    /// Whether it fails, and keeps or slows writes by that.
    pub fn harms_writes(&self) -> bool {
        self.health == Health::Failing
            && self.cause.is_some()
            && matches!(self.effect, Effect::Blocking | Effect::Delaying)
    }

    /// Whether it takes long and no request of the control plane's passes its deadline for that.
    pub fn is_merely_slow(&self) -> bool {
        self.cause == Some(Cause::Slow) && self.effect != Effect::Blocking
    }
}
