//! The edits that bypass a hook, put it on probation, and restore it.
//!
//! [`plan`] is a function of the current object and the desired state. The process that applies the edits may be killed
//! between any two: a new plan from the object as found then still reaches the desired state. An edit is a JSON patch that
//! tests the object's uid, the webhook's name and the current value of all it changes, and touches nothing else, so
//! concurrent writes by others are kept.

mod back;
mod page;

use serde_json::{Map, Value};
use thiserror::Error;

use self::page::EditPage;
use super::standing::{BypassStanding, Here, annotation, ignored, standing, state};
use super::state::{AnnotationEntry, FailureFields, ObjectWriter};
use super::{BypassPhase, Ceiling, IGNORE_SECONDS, OPT_OUT_ANNOTATION, Rung};
use crate::cluster::condition::BypassCondition;
use crate::time::Time;

pub use super::draft::FieldChange;

/// Most match conditions of a webhook that the API server takes.
pub const MAX_CONDITIONS: usize = 64;
/// Most bytes of all annotations of an object together that the API server takes.
const MAX_ANNOTATIONS: usize = 256 << 10;
/// Largest configuration that is changed, in bytes of JSON. etcd takes 1.5 MiB at most, and others have to be able to
/// write as well.
const MAX_OBJECT: usize = 1 << 20;

/// What a webhook is to become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Desired {
    /// Bypassed, so far and no farther.
    Bypass {
        /// How far.
        rung: Rung,
        /// Why.
        why: Why,
    },
    /// Its failures ignored, after a short wait. Only where no match condition can be added: nothing that the fence keeps
    /// to conditions could bring it back.
    Ignore {
        /// Why.
        why: Why,
    },
    /// Called for hookwatch's own dry-run canaries only.
    Probation,
    /// As its owner wants it, with nothing left of hookwatch's.
    Restore,
}

impl Desired {
    /// What is done to get there, in the label `action` of metrics and in the audit log.
    pub const ACTIONS: [&str; 3] = ["bypass", "probation", "restore"];

    /// What is done to get to this state: one of [`Self::ACTIONS`].
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
    /// What was seen, a sentence each.
    pub evidence: Vec<String>,
    /// When it expires; `None` when no end was given.
    pub expires: Option<Time>,
}

/// Who writes, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Author {
    /// Hookwatch's own namespace.
    pub namespace: String,
    /// The user name of hookwatch's account, whose canaries reach a hook on probation.
    pub account: String,
    /// Who it is.
    pub writer: ObjectWriter,
    /// Whether the API servers know `matchConditions` (1.28, and every later release).
    pub match_conditions: bool,
    /// Whether the fence keeps it to match conditions. Then it puts no other field back, and forgets none.
    pub fenced: bool,
}

/// The edits to make.
#[derive(Debug, Clone, PartialEq)]
pub enum Plan {
    /// Nothing: it is as wished.
    AlreadySo,
    /// There is no such webhook.
    Gone,
    /// This.
    Edit(Edit),
}

/// One write. It tests everything that it depends on.
#[derive(Debug, Clone, PartialEq)]
pub struct Edit {
    /// A JSON patch (RFC 6902).
    pub patch: Value,
    /// What it changes, for people; of the annotation only that it is written.
    pub changes: Vec<FieldChange>,
    /// Whether the desired state is reached with it. After one that is not the last, plan again.
    pub last: bool,
}

/// Why nothing is written.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EditRefusal {
    /// The owner keeps hookwatch from changing the object.
    #[error("the object is annotated {OPT_OUT_ANNOTATION}: off; remove that, or change the object yourself")]
    OptedOut,
    /// The owner permits less.
    #[error("the object is annotated {OPT_OUT_ANNOTATION}: {permitted}, which does not permit {wanted}")]
    BeyondCeiling {
        /// What the annotation says.
        permitted: String,
        /// What was wished for.
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
    /// Another way expires without hookwatch.
    #[error(
        "a match condition can be added to the webhook: use --rung skip, which hookwatch takes back by itself"
    )]
    CanBeSkipped,
    /// It has the least effect already.
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
    /// There is nothing to be on probation from.
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
    /// Nothing says what was there before.
    #[error("hookwatch has set {0}, and the annotation with the original is gone; restore it yourself")]
    OriginalUnknown(String),
    /// It is no object of this kind at all.
    #[error("it is no webhook configuration: it has no uid")]
    NoObject,
}

/// The next edit to an object, as read whole from the API server (`managedFields` included), that takes a webhook to
/// its desired state.
///
/// # Errors
/// When it must not or cannot be done; then nothing may be written.
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
        // To take everything of hookwatch's away is what its owner wants.
        Desired::Restore => None,
        _ if ceiling == Ceiling::Off => return Err(EditRefusal::OptedOut),
        Desired::Bypass { rung, .. } => Some((rung.as_str(), *rung)),
        // To show a hook nothing but dry runs is to skip it.
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
    let here = match Here::find(object, webhook) {
        (Some(here), 1) => here,
        (Some(_), _) => return Err(EditRefusal::DuplicateName(webhook.to_owned())),
        (None, _) if *desired == Desired::Restore => return back::of_gone(object, webhook, now),
        (None, _) => return Ok(Plan::Gone),
    };
    match desired {
        Desired::Bypass { rung, why } => bypass(&here, *rung, why, author, now),
        Desired::Ignore { why } => ignore(&here, why, author, now),
        Desired::Probation => probation(&here, author, now),
        Desired::Restore => back::restore(&here, author.fenced, now),
    }
}

/// Whether there is something for the daemon to take away of a webhook that no condition of hookwatch's is in force on.
pub fn is_left_over(object: &Value, webhook: &str) -> bool {
    let plan = match Here::find(object, webhook) {
        (Some(here), 1) => back::restore(&here, true, Time::default()),
        (Some(_), _) => return false,
        (None, _) => back::of_gone(object, webhook, Time::default()),
    };
    matches!(plan, Ok(Plan::Edit(_)))
}

/// Whether an account that the fence keeps to match conditions takes another way back than an administrator.
pub fn is_other_when_fenced(object: &Value, webhook: &str) -> bool {
    let (Some(here), 1) = Here::find(object, webhook) else {
        return false;
    };
    back::restore(&here, true, Time::default()) != back::restore(&here, false, Time::default())
}

fn bypass(here: &Here<'_>, rung: Rung, why: &Why, author: &Author, now: Time) -> Result<Plan, EditRefusal> {
    let mut page = open(here, author)?;
    let standing = standing(here.object, here.webhook);
    let as_wished = matches!(&standing, BypassStanding::Bypassed { rung: Some(is), phase: BypassPhase::Bypassed, entry }
        if *is == rung && entry.rung() == Some(rung) && entry.phase() == Some(BypassPhase::Bypassed));
    let mut entry = page.state.entry(here.webhook).unwrap_or_default();
    page.condition(rung.condition(), author)?;
    if page.draft.is_empty() && as_wished && entry.expires() == why.expires {
        return Ok(Plan::AlreadySo);
    }
    if here.still_applied(&entry).is_empty() {
        entry.forget_fields();
    }
    entry.set_rung(rung, BypassPhase::Bypassed);
    let goes_on = matches!(standing, BypassStanding::Bypassed { .. });
    begun(page, entry, (goes_on, &standing), why, author, now)
}

/// The annotation entry of a bypass that begins or continues.
fn begun(
    mut page: EditPage<'_>,
    mut entry: AnnotationEntry,
    (goes_on, standing): (bool, &BypassStanding),
    why: &Why,
    author: &Author,
    now: Time,
) -> Result<Plan, EditRefusal> {
    if matches!(standing, BypassStanding::Reverted { .. }) {
        entry.reverted();
    }
    let since = entry.since().filter(|_| goes_on);
    entry.set_why(&why.reason, &why.evidence);
    entry.set_times(since, now, why.expires);
    entry.set_by(&author.writer);
    page.write_down(entry)?;
    page.check_size()?;
    Ok(page.edit(true))
}

/// Has a webhook's failures ignored.
fn ignore(here: &Here<'_>, why: &Why, author: &Author, now: Time) -> Result<Plan, EditRefusal> {
    if author.match_conditions && here.conditions().len() < MAX_CONDITIONS {
        return Err(EditRefusal::CanBeSkipped);
    }
    let mut page = opened(here)?;
    let standing = standing(here.object, here.webhook);
    let mut entry = page.state.entry(here.webhook).unwrap_or_default();
    let original = original(here, &entry)?;
    let mut applied = Map::new();
    if original.failure_policy != "Ignore" {
        applied.insert("failurePolicy".to_owned(), ignored("failurePolicy"));
    }
    if original.timeout_seconds > IGNORE_SECONDS {
        applied.insert("timeoutSeconds".to_owned(), ignored("timeoutSeconds"));
    }
    if applied.is_empty() {
        let seconds = original.timeout_seconds;
        return Err(EditRefusal::NothingToIgnore { seconds });
    }
    for (field, value) in &applied {
        page.field(field, value.clone());
    }
    // Beside a condition, too, its failures may be ignored already.
    let goes_on = !here.still_applied(&entry).is_empty();
    if goes_on && !page.fields && entry.expires() == why.expires {
        return Ok(Plan::AlreadySo);
    }
    entry.set_fields(here.webhook, &original, applied);
    entry.set_ignored();
    begun(page, entry, (goes_on, &standing), why, author, now)
}

/// The fields as their owner has them: of one that is as hookwatch has set it, what is written down is the original.
fn original(here: &Here<'_>, entry: &AnnotationEntry) -> Result<FailureFields, EditRefusal> {
    let mut original = here.fields();
    let ours = here.still_applied(entry);
    let noted = entry
        .original(here.webhook)
        .map_err(EditRefusal::InvalidOriginal)?;
    if let Some(noted) = noted {
        if ours.contains(&"failurePolicy") {
            original.failure_policy = noted.failure_policy;
        }
        if ours.contains(&"timeoutSeconds") {
            original.timeout_seconds = noted.timeout_seconds;
        }
    }
    Ok(original)
}

fn probation(here: &Here<'_>, author: &Author, now: Time) -> Result<Plan, EditRefusal> {
    let mut page = open(here, author)?;
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
    let mut entry = page.state.entry(here.webhook).unwrap_or_default();
    page.condition(BypassCondition::Probation, author)?;
    if page.draft.is_empty() && entry.phase() == Some(BypassPhase::Probation) {
        return Ok(Plan::AlreadySo);
    }
    match entry.rung() {
        Some(_) => entry.set_phase(BypassPhase::Probation),
        None => entry.set_rung(standing.rung().unwrap_or(Rung::Skip), BypassPhase::Probation),
    }
    let expires = entry.expires();
    entry.set_times(since, now, expires);
    entry.set_by(&author.writer);
    page.write_down(entry)?;
    Ok(page.edit(true))
}

/// The beginning of an edit that leaves a condition of hookwatch's in force.
fn open<'a>(here: &'a Here<'a>, author: &Author) -> Result<EditPage<'a>, EditRefusal> {
    if author.match_conditions {
        opened(here)
    } else {
        Err(EditRefusal::NoMatchConditions)
    }
}

/// The beginning of an edit that leaves something of hookwatch's in force.
fn opened<'a>(here: &'a Here<'a>) -> Result<EditPage<'a>, EditRefusal> {
    let state = state(here.object).map_err(|unreadable| EditRefusal::Unreadable(unreadable.why))?;
    if state.entry(here.webhook).is_none() && !here.unexplained().is_empty() {
        return Err(EditRefusal::OriginalUnknown(here.unexplained().join(" and ")));
    }
    Ok(EditPage::open(here, state))
}
