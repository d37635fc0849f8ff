//! The breaker's output: the requests and messages that it wants sent.

use std::sync::Arc;
use strum::{Display, IntoStaticStr, VariantNames};

use super::book::{Book, ResourceVersion};
use super::guards::HeldBack;
use super::observed::{BypassState, Ticket};
use super::policy::Rung;
use crate::cluster::hook::HookId;
use crate::text::named;
use crate::time::Time;

/// One request or message. Each one with a ticket is answered by one observation with the same ticket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Read the ledger, not older than what this replica read or wrote before.
    ReadLedger,
    /// Write the breaker's part of the ledger, and keep its other parts.
    WriteLedger {
        /// Returned with the outcome, to match it to this request.
        ticket: Ticket,
        /// The version that the ledger must still have; `None` to create it, which fails where it exists.
        version: Option<ResourceVersion>,
        /// The new content.
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
    /// Send a notice: to the log, the metrics, the Events and the assessment.
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
    /// When a bypass expires, for a restore without the daemon; `None` for one that stays at its limit.
    pub until: Option<Time>,
    /// The required uid and version of the object. The request must fail on any other.
    pub expects: Expects,
    /// Why, for the annotation, the Event and the audit log.
    pub why: Arc<str>,
}

/// The state to which an object is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum To {
    /// A bypass at this rung. It replaces a bypass at another rung.
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
    /// `metadata.resourceVersion`. A change that comes too late finds another version and fails.
    pub version: ResourceVersion,
    /// The bypass state of the fields, as last read.
    pub shown: BypassState,
}

/// A message about a hook. It is sent once for as long as it stays true.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// The hook.
    pub hook: HookId,
    /// What happened to it.
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
    /// It is not bypassed, for this reason.
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
    /// It keeps failing again after restores, so each restore waits longer.
    Flapping,
    /// It is being restored.
    Restoring,
    /// Restored, on every API server.
    Restored,
    /// Its bypass reached the time limit.
    #[strum(serialize = "LongestBypass")]
    Limit,
    /// Another writer reverted the bypass.
    Reverted,
    /// Another writer keeps reverting it: hookwatch has stopped.
    Contested,
    /// Several webhooks of the object have this name now, so it is unknown which of them hookwatch changed.
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
    /// Its object has a bypass of hookwatch.
    Bypassed {
        /// Which requests are kept from it.
        rung: Rung,
        /// Every API server shows it.
        effective: bool,
    },
    /// Only canaries reach it, before it is restored.
    Probation,
    /// Another writer keeps reverting the bypass: hookwatch has stopped.
    Contested,
    /// A person or an older release made the API server ignore its failures, and only an administrator can end that.
    Ignored,
}

named!(HookState, "The value of the `state` label in metrics.");
