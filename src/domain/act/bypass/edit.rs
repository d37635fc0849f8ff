//! The edits that bypass a hook, put it on probation, and restore it.
//!
//! [`plan`] is a function of the current object and the desired state. The process that applies the edits may be killed
//! between two of them: a new plan from the object as it is then still reaches the desired state. An edit is a JSON patch that
//! tests the object's uid, the webhook's name and the current value of everything that it changes. It changes nothing else, so
//! concurrent writes by other clients are kept.

mod builder;
mod restore;

use serde_json::{Map, Value};
use thiserror::Error;

use self::builder::EditBuilder;
use super::standing::{BypassStanding, WebhookInObject, annotation, ignoring_value, standing, state};
use super::state::{AnnotationEntry, FailureFields, ObjectWriter};
use super::{BypassPhase, Ceiling, IGNORE_SECONDS, OPT_OUT_ANNOTATION, Rung};
use crate::cluster::condition::BypassCondition;
use crate::cluster::hook::MAX_CONDITIONS;
use crate::time::Time;

pub use super::patch::FieldChange;

/// Most bytes of all annotations of an object together that the API server accepts.
const MAX_ANNOTATIONS: usize = 256 << 10;
/// Largest configuration that is changed, in bytes of JSON. etcd accepts 1.5 MiB; the rest is left for other writers.
const MAX_OBJECT: usize = 1 << 20;

/// The state that a webhook should reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Desired {
    /// Bypassed at exactly this rung.
    Bypass {
        /// The rung.
        rung: Rung,
        /// Why.
        why: Why,
    },
    /// Its failures are ignored, after a short wait. This is only for webhooks to which no match condition can be added: an
    /// account that the fence limits to match conditions could not restore it.
    Ignore {
        /// Why.
        why: Why,
    },
    /// Called for hookwatch's own dry-run canaries only.
    Probation,
    /// The original, without any change of hookwatch.
    Restore,
}

impl Desired {
    /// The actions by which these states are reached, as in the label `action` of metrics and in the audit log.
    pub const ACTIONS: [&str; 3] = ["bypass", "probation", "restore"];

    /// The action by which this state is reached: one of [`Self::ACTIONS`].
    pub const fn action(&self) -> &'static str {
        let [bypass, probation, restore] = Self::ACTIONS;
        match self {
            Self::Bypass { .. } | Self::Ignore { .. } => bypass,
            Self::Probation => probation,
            Self::Restore => restore,
        }
    }
}

/// Why a hook is bypassed, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why {
    /// In one sentence.
    pub reason: String,
    /// The observations behind it, a sentence each.
    pub evidence: Vec<String>,
    /// When it expires; `None` when no end was given.
    pub expires: Option<Time>,
}

/// Who writes, and what that writer may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Author {
    /// Hookwatch's own namespace.
    pub namespace: String,
    /// The user name of hookwatch's account, whose canaries reach a hook on probation.
    pub account: String,
    /// The name that is recorded on the object.
    pub writer: ObjectWriter,
    /// Whether the API servers know `matchConditions` (1.28, and every later release).
    pub match_conditions: bool,
    /// Whether the fence limits it to match conditions. Then it neither restores other fields nor removes their record.
    pub fenced: bool,
}

/// The next edit, if one is needed.
#[derive(Debug, Clone, PartialEq)]
pub enum Plan {
    /// Nothing: the webhook is in the desired state.
    AlreadySo,
    /// There is no such webhook.
    Gone,
    /// This edit.
    Edit(Edit),
}

/// One write, which tests everything that it depends on.
#[derive(Debug, Clone, PartialEq)]
pub struct Edit {
    /// A JSON patch (RFC 6902).
    pub patch: Value,
    /// What it changes, for people.
    pub changes: Vec<FieldChange>,
    /// Whether it reaches the desired state. If not, plan again after it.
    pub last: bool,
}

/// Why nothing is written.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EditRefusal {
    /// The owner keeps hookwatch from changing the object.
    #[error("the object is annotated {OPT_OUT_ANNOTATION}: off; remove that, or change the object yourself")]
    OptedOut,
    /// The owner permits only a lower rung.
    #[error("the object is annotated {OPT_OUT_ANNOTATION}: {permitted}, which does not permit {wanted}")]
    BeyondCeiling {
        /// What the annotation says.
        permitted: String,
        /// The rung or state that was requested.
        wanted: &'static str,
    },
    /// The name does not say which webhook is meant.
    #[error("several webhooks of the configuration are called {0:?}; give each a name of its own")]
    DuplicateName(String),
    /// There is no room for another condition.
    #[error(
        "the webhook has {0} matchConditions, and the API server takes {MAX_CONDITIONS}; only `hookwatch break --rung ignore` is left"
    )]
    ConditionsFull(usize),
    /// The API servers are too old.
    #[error(
        "the API server does not know matchConditions (Kubernetes 1.28); only `hookwatch break --rung ignore` is left"
    )]
    NoMatchConditions,
    /// A skip is possible, and hookwatch can restore it.
    #[error(
        "a match condition can be added to the webhook: use --rung skip, which hookwatch takes back by itself"
    )]
    CanBeSkipped,
    /// Its failures are ignored after the shortest timeout already.
    #[error("failurePolicy is Ignore and timeoutSeconds {seconds} already: there is nothing left to ignore")]
    NothingToIgnore {
        /// `timeoutSeconds`.
        seconds: u64,
    },
    /// The annotation would be longer than the fence takes.
    #[error("the annotation hookwatch.dev/bypass would have {0} characters, 16384 are permitted")]
    AnnotationTooLong(usize),
    /// All annotations together would be larger than the API server takes.
    #[error(
        "the annotations would have {0} bytes, and the API server takes 256 KiB; shorten others' annotations"
    )]
    AnnotationsFull(usize),
    /// The object is too large.
    #[error(
        "the configuration has {0} bytes; hookwatch changes none beyond 1 MiB, or the API server would refuse every later write"
    )]
    TooLarge(usize),
    /// Only a bypassed webhook can go on probation.
    #[error("the webhook is not bypassed")]
    NotBypassed,
    /// The annotation cannot be parsed.
    #[error("the annotation hookwatch.dev/bypass cannot be read: {0}; restore the webhook first")]
    Unreadable(String),
    /// The recorded original cannot be restored.
    #[error(
        "{0}; restore failurePolicy and timeoutSeconds yourself, then remove the annotation hookwatch.dev/bypass"
    )]
    InvalidOriginal(String),
    /// Nothing records the original.
    #[error("hookwatch has set {0}, and the annotation with the original is gone; restore it yourself")]
    OriginalUnknown(String),
    /// It is no webhook configuration.
    #[error("it is no webhook configuration: it has no uid")]
    NoObject,
}

/// The next edit to an object, as read whole from the API server (`managedFields` included), that takes a webhook to
/// its desired state.
///
/// # Errors
/// When the desired state is not permitted or not possible. Then nothing may be written.
pub fn plan(
    object: &Value,
    webhook: &str,
    desired: &Desired,
    author: &Author,
    now: Time,
) -> Result<Plan, EditRefusal> {
    if object.pointer("/metadata/uid").and_then(Value::as_str).is_none() {
        return Err(EditRefusal::NoObject);
    }
    let said = annotation(object, OPT_OUT_ANNOTATION);
    let ceiling = Ceiling::read(said);
    let wanted = match desired {
        // The owner always permits a restore.
        Desired::Restore => None,
        _ if ceiling == Ceiling::Off => return Err(EditRefusal::OptedOut),
        Desired::Bypass { rung, .. } => Some((rung.as_str(), *rung)),
        // Probation lets every write skip the hook, except dry runs of hookwatch.
        Desired::Probation => Some(("probation", Rung::Skip)),
        Desired::Ignore { .. } => Some(("ignore", Rung::Skip)),
    };
    if let Some((wanted, rung)) = wanted
        && !ceiling.permits(rung)
    {
        let said = said.unwrap_or_default().trim().to_ascii_lowercase();
        let permitted = said.chars().take(100).collect();
        return Err(EditRefusal::BeyondCeiling { permitted, wanted });
    }
    let here = match WebhookInObject::find(object, webhook) {
        (Some(here), 1) => here,
        (Some(_), _) => return Err(EditRefusal::DuplicateName(webhook.to_owned())),
        (None, _) if *desired == Desired::Restore => return restore::forget_gone(object, webhook, now),
        (None, _) => return Ok(Plan::Gone),
    };
    match desired {
        Desired::Bypass { rung, why } => bypass(&here, *rung, why, author, now),
        Desired::Ignore { why } => ignore(&here, why, author, now),
        Desired::Probation => probation(&here, author, now),
        Desired::Restore => restore::restore(&here, author.fenced, now),
    }
}

/// Whether the daemon could remove something of hookwatch from a webhook.
pub fn is_left_over(object: &Value, webhook: &str) -> bool {
    let plan = match WebhookInObject::find(object, webhook) {
        (Some(here), 1) => restore::restore(&here, true, Time::default()),
        (Some(_), _) => return false,
        (None, _) => restore::forget_gone(object, webhook, Time::default()),
    };
    matches!(plan, Ok(Plan::Edit(_)))
}

/// Whether an account that the fence limits to match conditions restores a webhook otherwise than an administrator does.
pub fn restore_differs_when_fenced(object: &Value, webhook: &str) -> bool {
    let (Some(here), 1) = WebhookInObject::find(object, webhook) else {
        return false;
    };
    restore::restore(&here, true, Time::default()) != restore::restore(&here, false, Time::default())
}

fn bypass(
    here: &WebhookInObject<'_>,
    rung: Rung,
    why: &Why,
    author: &Author,
    now: Time,
) -> Result<Plan, EditRefusal> {
    let mut builder = open_for_condition(here, author)?;
    let standing = standing(here.object, here.webhook);
    let is_recorded = matches!(&standing, BypassStanding::Bypassed { rung: Some(is), phase: BypassPhase::Bypassed, entry }
        if *is == rung && entry.rung() == Some(rung) && entry.phase() == Some(BypassPhase::Bypassed));
    let mut entry = builder.state.entry(here.webhook).unwrap_or_default();
    builder.condition(rung.condition(), author)?;
    if builder.patch.is_empty() && is_recorded && entry.expires() == why.expires {
        return Ok(Plan::AlreadySo);
    }
    if here.still_applied(&entry).is_empty() {
        entry.forget_fields();
    }
    entry.set_rung(rung, BypassPhase::Bypassed);
    let continues = matches!(
        standing,
        BypassStanding::Bypassed {
            phase: BypassPhase::Bypassed | BypassPhase::Probation,
            ..
        }
    );
    finish_bypass(builder, entry, (continues, &standing), why, author, now)
}

/// Records a bypass that begins or continues in the annotation, which completes its edit.
fn finish_bypass(
    mut builder: EditBuilder<'_>,
    mut entry: AnnotationEntry,
    (continues, standing): (bool, &BypassStanding),
    why: &Why,
    author: &Author,
    now: Time,
) -> Result<Plan, EditRefusal> {
    if matches!(standing, BypassStanding::Reverted { .. }) {
        entry.count_revert();
    }
    let since = entry.since().filter(|_| continues);
    entry.set_why(&why.reason, &why.evidence);
    entry.set_times(since, now, why.expires);
    entry.set_by(&author.writer);
    builder.record_entry(entry)?;
    builder.check_size()?;
    Ok(builder.edit(true))
}

/// Makes the API server ignore a webhook's failures.
fn ignore(here: &WebhookInObject<'_>, why: &Why, author: &Author, now: Time) -> Result<Plan, EditRefusal> {
    if author.match_conditions && here.conditions().len() < MAX_CONDITIONS {
        return Err(EditRefusal::CanBeSkipped);
    }
    let mut builder = open_for_any(here)?;
    let standing = standing(here.object, here.webhook);
    let mut entry = builder.state.entry(here.webhook).unwrap_or_default();
    let original = original(here, &entry)?;
    let mut applied = Map::new();
    if original.failure_policy != "Ignore" {
        applied.insert("failurePolicy".to_owned(), ignoring_value("failurePolicy"));
    }
    if original.timeout_seconds > IGNORE_SECONDS {
        applied.insert("timeoutSeconds".to_owned(), ignoring_value("timeoutSeconds"));
    }
    if applied.is_empty() {
        let seconds = original.timeout_seconds;
        return Err(EditRefusal::NothingToIgnore { seconds });
    }
    for (field, value) in &applied {
        builder.field(field, value.clone());
    }
    // Its failures may be ignored already, even beside a match condition of hookwatch.
    let continues = !here.still_applied(&entry).is_empty();
    if continues && !builder.fields && entry.expires() == why.expires {
        return Ok(Plan::AlreadySo);
    }
    entry.set_fields(here.webhook, &original, applied);
    entry.set_ignored();
    finish_bypass(builder, entry, (continues, &standing), why, author, now)
}

/// The owner's fields: for a field that hookwatch changed the recorded original, for others the current value.
fn original(here: &WebhookInObject<'_>, entry: &AnnotationEntry) -> Result<FailureFields, EditRefusal> {
    let mut original = here.fields();
    let ours = here.still_applied(entry);
    let recorded = entry
        .original(here.webhook)
        .map_err(EditRefusal::InvalidOriginal)?;
    if let Some(recorded) = recorded {
        if ours.contains(&"failurePolicy") {
            original.failure_policy = recorded.failure_policy;
        }
        if ours.contains(&"timeoutSeconds") {
            original.timeout_seconds = recorded.timeout_seconds;
        }
    }
    Ok(original)
}

/// Puts a bypassed webhook on probation.
fn probation(here: &WebhookInObject<'_>, author: &Author, now: Time) -> Result<Plan, EditRefusal> {
    let mut builder = open_for_condition(here, author)?;
    let standing = standing(here.object, here.webhook);
    let since = match &standing {
        BypassStanding::Bypassed {
            phase: BypassPhase::Bypassed | BypassPhase::Probation,
            entry,
            ..
        } => entry.since(),
        BypassStanding::OursWithoutAnnotation { .. } => None,
        _ => return Err(EditRefusal::NotBypassed),
    };
    let mut entry = builder.state.entry(here.webhook).unwrap_or_default();
    builder.condition(BypassCondition::Probation, author)?;
    if builder.patch.is_empty() && entry.phase() == Some(BypassPhase::Probation) {
        return Ok(Plan::AlreadySo);
    }
    match entry.rung() {
        Some(_) => entry.set_phase(BypassPhase::Probation),
        None => entry.set_rung(standing.rung().unwrap_or(Rung::Skip), BypassPhase::Probation),
    }
    let expires = entry.expires();
    entry.set_times(since, now, expires);
    entry.set_by(&author.writer);
    builder.record_entry(entry)?;
    Ok(builder.edit(true))
}

/// Begins an edit that leaves a condition of hookwatch in force.
fn open_for_condition<'a>(
    here: &'a WebhookInObject<'a>,
    author: &Author,
) -> Result<EditBuilder<'a>, EditRefusal> {
    if author.match_conditions {
        open_for_any(here)
    } else {
        Err(EditRefusal::NoMatchConditions)
    }
}

/// Begins an edit that leaves a change of hookwatch in force.
fn open_for_any<'a>(here: &'a WebhookInObject<'a>) -> Result<EditBuilder<'a>, EditRefusal> {
    let state = state(here.object).map_err(|unreadable| EditRefusal::Unreadable(unreadable.why))?;
    if state.entry(here.webhook).is_none() && !here.unexplained().is_empty() {
        return Err(EditRefusal::OriginalUnknown(here.unexplained().join(" and ")));
    }
    Ok(EditBuilder::new(here, state))
}
