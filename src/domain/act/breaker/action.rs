//! What the breaker wants done.

use std::sync::Arc;
use strum::{Display, IntoStaticStr, VariantNames};

use super::book::{Book, ResourceVersion};
use super::guards::HeldBack;
use super::observed::{BypassState, Ticket};
use super::policy::Rung;
use crate::cluster::hook::HookId;
use crate::text::named;
use crate::time::Time;

/// One thing to do. Every one with a ticket is answered by one observation that bears it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Read the ledger: never older than what this replica read or wrote. What is decided on it is written with its version.
    ReadLedger,
    /// Write the breaker's part of the ledger; its other parts stay.
    WriteLedger {
        /// Returned with the outcome, to match it to this request.
        ticket: Ticket,
        /// The version that it must still have; `None` to create it, which fails where it exists.
        version: Option<ResourceVersion>,
        /// The content to write.
        book: Book,
    },
    /// Read an object consistently (no `resourceVersion`).
    Read {
        /// Returned with the answer, to match it to this request.
        ticket: Ticket,
        /// The hook whose configuration is read.
        hook: HookId,
    },
    /// Change an object in one conditional request.
    Change(ObjectChange),
    /// Say something about a hook: a metric, an Event, the log, the assessment.
    Tell(Notice),
}

/// A change of an object, to be made in one request or not at all.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ObjectChange {
    /// Returned with the outcome, to match it to this request.
    pub ticket: Ticket,
    /// The hook whose configuration is changed.
    pub hook: HookId,
    /// The state to reach.
    pub to: To,
    /// When a bypass expires, for a restore without a daemon; `None` for one that stays at its limit.
    pub until: Option<Time>,
    /// The required uid and version of the object. The request must fail on any other.
    pub expects: Expects,
    /// Why, for the annotation, the Event and the audit log.
    pub why: Arc<str>,
}

/// To what an object is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum To {
    /// A bypass at this rung, in place of any of ours.
    Bypass(Rung),
    /// Only dry-run canaries reach the webhook.
    Probation,
    /// The owner's values, without any change of hookwatch.
    Original,
}

/// The precondition of a change.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Expects {
    /// `metadata.uid`.
    pub uid: Arc<str>,
    /// `metadata.resourceVersion`: a change that is late finds another one and fails.
    pub version: ResourceVersion,
    /// The bypass state of the fields, as last read.
    pub shown: BypassState,
}

/// A message about a hook. It is sent once while it stays true.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// The hook that it is about.
    pub hook: HookId,
    /// What happened to the hook.
    pub kind: NoticeKind,
    /// Whom to page; `None` where no page is due.
    pub page: Option<Arc<str>>,
    /// The text for the log, the Event and the assessment.
    pub words: String,
}

/// The kinds of notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, IntoStaticStr)]
pub enum NoticeKind {
    /// It would be bypassed if the mode were `on`.
    WouldBypass(Rung),
    /// It is not bypassed, and why.
    HeldBack(HeldBack),
    /// The bypass will be made next.
    Bypassing(Rung),
    /// Every API server shows the bypass.
    #[strum(serialize = "Bypassed")]
    Effective(Rung),
    /// Only canaries reach it.
    Probation,
    /// It failed again on probation.
    Relapsed,
    /// It keeps failing again, and each restore comes later.
    Flapping,
    /// It is being restored.
    Restoring,
    /// Restored, on every API server.
    Restored,
    /// Its bypass lasted as long as it may.
    #[strum(serialize = "LongestBypass")]
    Limit,
    /// Another writer reverted the bypass.
    Reverted,
    /// Another writer keeps reverting it: hookwatch has stopped.
    Contested,
    /// Several webhooks of the object have this name now: which of them was changed is unknown.
    #[strum(serialize = "ForeignChange")]
    Foreign,
    /// An API server or the fence refused a change.
    Refused,
}

named!(NoticeKind, "The name as it stands in Events and JSON.");

/// The breaker's state of a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Display, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum HookState {
    /// Not bypassed: its configuration is the original.
    Enforcing,
    /// A bypass of hookwatch is on its object.
    Bypassed {
        /// Which requests are kept from it.
        rung: Rung,
        /// Every API server shows it.
        effective: bool,
    },
    /// On its way back: only canaries reach it.
    Probation,
    /// Another writer keeps reverting the bypass: hookwatch has stopped.
    Contested,
    /// A person or an older release has its failures ignored, and only an administrator can end that.
    Ignored,
}

named!(HookState, "The value of the `state` label in metrics.");
