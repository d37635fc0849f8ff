//! What an object shows of a bypass of one of its webhooks.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::ownership::{owners, owns_any};
use super::state::{AnnotationEntry, BypassAnnotation, FailureFields, UnreadableAnnotation};
use super::{BypassPhase, IGNORE_SECONDS, Rung, STATE_ANNOTATION};
use crate::cluster::condition::{BypassCondition, CONDITION_PREFIX};
use crate::time::Time;

/// What an object shows of a bypass of a webhook.
#[derive(Debug, Clone, PartialEq)]
pub enum BypassStanding {
    /// The webhook has no change of hookwatch, and the annotation no entry for it.
    Original,
    /// A bypass is in force and recorded.
    Bypassed {
        /// Its rung; in [`BypassPhase::Probation`] the rung before. `None` for a rung of another release.
        rung: Option<Rung>,
        /// Its phase.
        phase: BypassPhase,
        /// What is written down.
        entry: AnnotationEntry,
    },
    /// Its failures are ignored, by a person or by an older release, and that is recorded.
    Ignored {
        /// What is written down.
        entry: AnnotationEntry,
    },
    /// A bypass is recorded, and another writer has reverted it.
    Reverted {
        /// What is written down.
        entry: AnnotationEntry,
    },
    /// The webhook has changes of hookwatch, and no readable entry records its original.
    OursWithoutAnnotation {
        /// The names of match conditions that begin with [`CONDITION_PREFIX`].
        conditions: Vec<String>,
        /// Whether hookwatch changed `failurePolicy` or `timeoutSeconds` as well.
        fields: bool,
    },
    /// There is no such webhook in the object.
    Gone,
    /// Ambiguous: several webhooks have this name.
    DuplicateName,
}

impl BypassStanding {
    /// The rung of the bypass in force, if any; the highest where it is unknown.
    pub fn rung(&self) -> Option<Rung> {
        match self {
            Self::Bypassed { rung, .. } => Some(rung.unwrap_or(Rung::Skip)),
            Self::OursWithoutAnnotation { conditions, .. } if !conditions.is_empty() => {
                let has = |condition: BypassCondition| conditions.iter().any(|name| name == condition.name());
                let shields = has(BypassCondition::Shield) && !has(BypassCondition::Skip);
                Some(if shields { Rung::Shield } else { Rung::Skip })
            }
            _ => None,
        }
    }

    /// Whether its failures are ignored by a person or an older release, which the daemon cannot undo.
    pub fn is_ignored(&self) -> bool {
        matches!(
            self,
            Self::Ignored { .. } | Self::OursWithoutAnnotation { fields: true, .. }
        )
    }

    /// Whether `hookwatch restore --expired` restores it: the bypass is past its end, or nothing records an end that it could
    /// wait for. A recorded bypass without an end is not over.
    pub fn is_over(&self, now: Time) -> bool {
        match self {
            Self::Bypassed {
                phase: BypassPhase::Restored,
                ..
            } => true,
            Self::Bypassed { entry, .. } | Self::Reverted { entry } => {
                entry.expires().is_some_and(|expires| expires <= now)
            }
            // A shield in between has removed the end that the person gave.
            Self::Ignored { entry } => entry.expires().is_none_or(|expires| expires <= now),
            // A restore reports that it cannot restore a duplicate name.
            Self::Original | Self::OursWithoutAnnotation { .. } | Self::Gone | Self::DuplicateName => true,
        }
    }
}

/// The fields that are changed to ignore failures.
pub(super) const FIELDS: [&str; 2] = ["failurePolicy", "timeoutSeconds"];

/// One webhook, with the object that it is in.
pub(super) struct WebhookInObject<'a> {
    pub(super) object: &'a Value,
    pub(super) webhook: &'a str,
    pub(super) index: usize,
    pub(super) hook: &'a Value,
}

impl<'a> WebhookInObject<'a> {
    /// Every webhook that has a name.
    pub(super) fn all(object: &'a Value) -> impl Iterator<Item = Self> {
        let hooks = object.get("webhooks").and_then(Value::as_array);
        let hooks = hooks.into_iter().flatten().enumerate();
        hooks.filter_map(move |(index, hook)| {
            Some(Self {
                object,
                webhook: hook["name"].as_str()?,
                index,
                hook,
            })
        })
    }

    /// The first webhook of this name, and how many have it.
    pub(super) fn find(object: &'a Value, webhook: &'a str) -> (Option<Self>, usize) {
        let mut found = Self::all(object).filter(|here| here.webhook == webhook);
        let first = found.next();
        let count = usize::from(first.is_some()) + found.count();
        (first, count)
    }

    pub(super) fn conditions(&self) -> &'a [Value] {
        let conditions = self.hook.get("matchConditions").and_then(Value::as_array);
        conditions.map_or(&[], Vec::as_slice)
    }

    /// The indices of hookwatch's conditions among them.
    pub(super) fn ours(&self) -> Vec<usize> {
        let conditions = self.conditions().iter().enumerate();
        conditions
            .filter(|(_, it)| is_ours(it))
            .map(|(index, _)| index)
            .collect()
    }

    /// A field's value, or the API server's default for an absent one (1.36,
    /// `pkg/apis/admissionregistration/v1/defaults.go`).
    pub(super) fn value(&self, field: &str) -> Value {
        let given = self.hook.get(field).filter(|value| !value.is_null());
        given.cloned().unwrap_or_else(|| match field {
            "failurePolicy" => json!("Fail"),
            _ => json!(10),
        })
    }

    pub(super) fn fields(&self) -> FailureFields {
        FailureFields {
            failure_policy: self.value("failurePolicy").as_str().unwrap_or("Fail").to_owned(),
            timeout_seconds: self.value("timeoutSeconds").as_u64().unwrap_or(10),
        }
    }

    /// The fields that still have the value that hookwatch wrote, according to `is_set`. A field that another manager has
    /// claimed since is not hookwatch's any more, whatever its value.
    fn still_ours(&self, is_set: impl Fn(&str, &Value) -> bool) -> Vec<&'static str> {
        let is_ours = |field: &&str| {
            is_set(field, &self.value(field)) && !owners(self.object, self.webhook, field).others
        };
        FIELDS.into_iter().filter(is_ours).collect()
    }

    /// The fields that hookwatch changed according to an entry, and that are still hookwatch's.
    pub(super) fn still_applied(&self, entry: &AnnotationEntry) -> Vec<&'static str> {
        self.still_ours(|field, value| entry.has_set(field, value))
    }

    /// The fields that have the value that ignores failures, and that no other manager owns.
    pub(super) fn still_ignored(&self) -> Vec<&'static str> {
        self.still_ours(|field, value| *value == ignoring_value(field))
    }

    /// The fields that hookwatch changed although no entry records it: it owns them, and they have the value that ignores
    /// failures.
    pub(super) fn unexplained(&self) -> Vec<&'static str> {
        let ours = self.still_ignored();
        let owned = |field: &&str| owners(self.object, self.webhook, field).ours;
        ours.into_iter().filter(owned).collect()
    }
}

/// The value of a field that ignores failures.
pub(super) fn ignoring_value(field: &str) -> Value {
    match field {
        "failurePolicy" => json!("Ignore"),
        _ => IGNORE_SECONDS.into(),
    }
}

fn is_ours(condition: &Value) -> bool {
    let name = condition["name"].as_str();
    name.is_some_and(|name| name.starts_with(CONDITION_PREFIX))
}

pub(super) fn annotations(object: &Value) -> Option<&Map<String, Value>> {
    object.pointer("/metadata/annotations")?.as_object()
}

pub(super) fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    annotations(object)?.get(key)?.as_str()
}

/// The annotation on the object.
///
/// # Errors
/// When it cannot be parsed.
pub fn state(object: &Value) -> Result<BypassAnnotation, UnreadableAnnotation> {
    BypassAnnotation::read(annotation(object, STATE_ANNOTATION))
}

/// What a configuration shows of a bypass of one of its webhooks.
pub fn standing(object: &Value, webhook: &str) -> BypassStanding {
    let state = state(object);
    let entry = state.as_ref().ok().and_then(|state| state.entry(webhook));
    let here = match WebhookInObject::find(object, webhook) {
        (Some(here), 1) => here,
        (Some(_), _) => return BypassStanding::DuplicateName,
        (None, _) => return BypassStanding::Gone,
    };
    let names: Vec<String> = here
        .ours()
        .into_iter()
        .filter_map(|index| here.conditions()[index]["name"].as_str().map(str::to_owned))
        .collect();
    let Some(entry) = entry else {
        let fields = match &state {
            Err(unreadable) if unreadable.original(webhook).is_some() => !here.still_ignored().is_empty(),
            _ => !here.unexplained().is_empty(),
        };
        return if names.is_empty() && !fields {
            BypassStanding::Original
        } else {
            BypassStanding::OursWithoutAnnotation {
                conditions: names,
                fields,
            }
        };
    };
    let has = |condition: BypassCondition| names.iter().any(|name| name == condition.name());
    if has(BypassCondition::Probation) {
        let (rung, phase) = (entry.rung(), BypassPhase::Probation);
        return BypassStanding::Bypassed { rung, phase, entry };
    }
    let highest = Rung::ALL.iter().rev().find(|rung| has(rung.condition()));
    let rung = match highest {
        Some(rung) => Some(*rung),
        // A condition of another release.
        None if !names.is_empty() => None,
        None if !here.still_applied(&entry).is_empty() => return BypassStanding::Ignored { entry },
        None if entry.phase() == Some(BypassPhase::Restored) => {
            let (rung, phase) = (entry.rung(), BypassPhase::Restored);
            return BypassStanding::Bypassed { rung, phase, entry };
        }
        None => return BypassStanding::Reverted { entry },
    };
    let phase = BypassPhase::Bypassed;
    BypassStanding::Bypassed { rung, phase, entry }
}

/// Every webhook of a configuration with traces of hookwatch: those that are not [`BypassStanding::Original`], those that are
/// recorded and gone, and those with field ownership to give up or an unreadable annotation to remove.
pub fn touched(object: &Value) -> Vec<(String, BypassStanding)> {
    let mut names: BTreeSet<String> = WebhookInObject::all(object)
        .map(|here| here.webhook.to_owned())
        .collect();
    let mut recorded = BTreeSet::new();
    let is_unreadable = match state(object) {
        Ok(state) => {
            recorded.extend(state.names().map(str::to_owned));
            names.extend(recorded.iter().cloned());
            false
        }
        Err(_) => {
            if names.is_empty() {
                names.insert(String::new());
            }
            true
        }
    };
    let standings = names.into_iter().map(|name| {
        let standing = standing(object, &name);
        (name, standing)
    });
    let has_traces = |(name, standing): &(String, BypassStanding)| match standing {
        BypassStanding::Original => is_unreadable || owns_any(object, name),
        BypassStanding::DuplicateName => {
            let ours = |here: WebhookInObject<'_>| here.webhook == name && !here.ours().is_empty();
            recorded.contains(name) || WebhookInObject::all(object).any(ours)
        }
        _ => true,
    };
    standings.filter(has_traces).collect()
}
