//! The breaker's input.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantNames};

use super::book::{Book, ResourceVersion};
use super::policy::{OwnerAnnotations, Rung};
use crate::cluster::hook::HookId;
use crate::time::Time;
use crate::vocabulary::{Cause, Effect, Health};

/// The number of a request. A second outcome, or one of a request that was given up, changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// One thing that was observed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observation {
    /// Nothing happened, but time advanced.
    Tick,
    /// Whether this replica is the one that acts. Safety does not depend on there being only one.
    Leads(bool),
    /// The judgement of all hooks.
    Judged(Judged),
    /// The API servers that answer. A bypass is in force when all of them show it.
    Servers(BTreeSet<Arc<str>>),
    /// A hook's state in one API server's cache. It may lag behind. After a restart of the server, or where several share an
    /// address, it may be older than the state before: versions show only that they differ, and only a read tells which is
    /// newer.
    Shows {
        /// The hook that it is about.
        hook: HookId,
        /// The API server whose cache it is.
        server: Arc<str>,
        /// The hook's state in that cache.
        view: ObservedHook,
    },
    /// The result of a consistent read: the state at some time after the read was requested.
    Read {
        /// The ticket of the read.
        ticket: Ticket,
        /// The hook's state; `None` when it could not be read.
        view: Option<ObservedHook>,
    },
    /// The content of the ledger, never older than what this replica read or wrote before.
    Ledger {
        /// The ledger's version; `None` when there is no such object.
        version: Option<ResourceVersion>,
        /// The breaker's part of it.
        book: Book,
    },
    /// The ledger's version in a watch or a cache, which may lag behind. Another version than the known one makes a read due.
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
    /// The hook's state in it, if it has one.
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

/// The final outcome of a write, after the sender's retries of requests that certainly had no effect. The names are those
/// in logs and metrics.
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
    /// It was refused with this message; nothing was done.
    Refused(Arc<str>),
    /// It was sent, and it is unknown whether it was done, or still will be.
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
    /// What the fields that a bypass changes show.
    pub shown: BypassState,
    /// Its owner's annotations on exactly this version.
    pub owner: OwnerAnnotations,
    /// Whether its failures are ignored in exactly this version.
    pub ignores: bool,
    /// Whether there are leftovers of hookwatch without a bypass, as an entry in its annotation.
    pub left_over: bool,
    /// The end that a person gave for a bypass that is in force.
    pub by_hand_until: Option<Time>,
}

/// What the fields that a bypass changes show.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum BypassState {
    /// The owner's values, without any change of hookwatch.
    Original,
    /// A bypass of hookwatch.
    Ours {
        /// How far the bypass goes.
        rung: Rung,
        /// Only dry-run canaries reach the webhook.
        probation: bool,
    },
    /// Ambiguous: several webhooks have this name.
    DuplicateName,
    /// There is no such object or entry.
    Gone,
}

impl BypassState {
    /// Whether it is a bypass of hookwatch.
    pub fn is_ours(&self) -> bool {
        matches!(self, Self::Ours { .. })
    }
}

/// The judgement of all hooks at one instant.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Judged {
    /// All probes fail, and nothing rules out that the fault is hookwatch's own.
    pub self_doubt: bool,
    /// The inventory has not been current for a while.
    pub inventory_is_old: bool,
    /// The API servers' release has not been read yet, or the annotations of a failing hook: both decide on the rung.
    pub unread: bool,
    /// The fence around the account is proven.
    pub fence_holds: bool,
    /// Every API server supports `matchConditions`; it is on by default since 1.28.
    pub match_conditions: bool,
    /// Every hook of the inventory.
    pub hooks: BTreeMap<HookId, HookFacts>,
}

/// A source of evidence against a hook, independent of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Witness {
    /// hookwatch's probes, or an inventory without a backend.
    Probes,
    /// The API server's counters, without the calls that hookwatch's canaries made.
    Counters,
    /// A canary that was refused with a message about this hook, or is late.
    Canary,
}

/// Why a tenant could have produced the evidence. It justifies only a shield: a tenant who makes a security hook fail on
/// purpose must not get around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Doubt {
    /// Some of its endpoints are not managed by the cluster's own controller. Anyone who may write EndpointSlices can
    /// redirect its calls.
    EndpointsUnmanaged,
    /// One of its endpoints has come and gone repeatedly: another writer may be fighting the controller.
    EndpointsUnsettled,
    /// The API server counts answered calls beside the failed ones: a tenant may send more calls than the hook can answer.
    SomeAnswered,
    /// It stopped answering together with other hooks, and no failed call has been counted for it yet: perhaps writes wait
    /// only for the others.
    SilentTogether,
}

impl Doubt {
    /// Whether it can apply to a skipped hook. Such a hook has no counted calls in any case.
    pub(super) fn outlives_its_calls(self) -> bool {
        self != Self::SilentTogether
    }

    /// Why only a shield is justified, as a part of a sentence.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::EndpointsUnmanaged => {
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

/// What the canaries that match a hook show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum CanaryEvidence {
    /// No canary matches it: it is called for other kinds, or not for dry runs.
    #[default]
    NoCanary,
    /// No canary has ended since the hook was last changed.
    Awaited,
    /// A canary got through since the hook was last changed.
    Through,
    /// The last canary failed because of this hook.
    Failed,
}

impl CanaryEvidence {
    /// Whether a canary matches the hook at all.
    pub fn has_canary(self) -> bool {
        self != Self::NoCanary
    }
}

/// Who is known to be affected by a hook, in ascending order. Hooks with a lower stake use up no budget of a hook with a
/// higher one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stake {
    /// Only hookwatch's own requests are known to be sent to it.
    Hookwatch,
    /// Other clients' requests are sent to it, by its rules and conditions or by counted calls.
    #[default]
    #[serde(rename = "met")]
    Called,
    /// Other clients' calls failed or were late, as counted.
    #[serde(rename = "felt")]
    Failed,
    /// Lease renewals of leaders or nodes are sent to it.
    Renewals,
}

/// The facts about one hook.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HookFacts {
    /// Its health. While it is bypassed, by probes and by the requests that still reach it.
    pub health: Health,
    /// What is wrong with it.
    pub cause: Option<Cause>,
    /// What that does to writes.
    pub effect: Effect,
    /// The rule of the verdict may be acted on, and the verdict is confident enough.
    pub confident: bool,
    /// The sources of evidence against it.
    pub witnesses: BTreeSet<Witness>,
    /// The evidence names a webhook, and other hooks have that name too, or had it a moment ago.
    pub ambiguous: bool,
    /// Why a tenant may have caused the evidence; `None` where no tenant could.
    pub doubt: Option<Doubt>,
    /// What canaries that match it show.
    pub canary: CanaryEvidence,
    /// It is called for requests of others than hookwatch that a shield spares. `false` while it is neither accused nor bypassed.
    pub meets_control_plane: bool,
    /// Who is affected by it; the default while it is neither accused nor bypassed.
    pub stake: Stake,
    /// Its failures are ignored: while it fails every write is admitted, and a bypass only removes the wait.
    pub ignores: bool,
    /// Its failures are ignored and it does not answer: every matching request is admitted without review. While it is
    /// skipped: no backend answers a probe.
    pub dead: bool,
    /// Hooks with the same key fail together, as their calls go to the same place. `None` for a hook that fails alone.
    pub incident_key: Option<Arc<str>>,
    /// It has as many match conditions as the API server accepts.
    pub conditions_full: bool,
    /// What its owner says.
    pub owner: OwnerAnnotations,
    /// The fence permits to skip it even without an annotation.
    pub may_skip: bool,
}

impl HookFacts {
    /// Whether it fails, and blocks or delays writes by that.
    pub fn harms_writes(&self) -> bool {
        self.health == Health::Failing
            && self.cause.is_some()
            && matches!(self.effect, Effect::Blocking | Effect::Delaying)
    }

    /// Whether it is slow, but not so slow that a control-plane request passes its deadline.
    pub fn is_merely_slow(&self) -> bool {
        self.cause == Some(Cause::Slow) && self.effect != Effect::Blocking
    }
}
