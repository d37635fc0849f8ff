//! The edits that restore a webhook.

use serde_json::Value;

use super::builder::{EditBuilder, annotate, finish};
use super::{Edit, EditRefusal, Plan};
use crate::act::bypass::patch::PatchBuilder;
use crate::act::bypass::standing::{WebhookInObject, state};
use crate::act::bypass::state::{BypassAnnotation, FailureFields, UnreadableAnnotation};
use crate::act::bypass::{BypassPhase, ownership};
use crate::time::Time;

/// Restores fields. Whatever the annotation says, this makes no webhook weaker: no `Fail` becomes `Ignore`
/// (`AnnotationEntry::has_set`), and no timeout becomes shorter.
fn restore_fields(
    builder: &mut EditBuilder<'_>,
    ours: &[&str],
    original: Option<&FailureFields>,
) -> Result<(), EditRefusal> {
    let Some(original) = original else {
        return Err(EditRefusal::OriginalUnknown(ours.join(" and ")));
    };
    // Another manager may claim a field without a change of its value, so a test of the value is not enough.
    let version = "/metadata/resourceVersion";
    builder
        .patch
        .expect(version, builder.here.object.pointer(version));
    let now = builder.here.fields();
    for field in ours {
        builder.field(
            field,
            match *field {
                "failurePolicy" => original.failure_policy.clone().into(),
                _ => original.timeout_seconds.max(now.timeout_seconds).into(),
            },
        );
    }
    Ok(())
}

/// Removes every change of hookwatch from a webhook. Hookwatch owns the fields that it restores, so a second edit gives them
/// up; until then the entry stays. A `fenced` account removes only the conditions, and leaves fields and their entry to an
/// administrator.
pub(super) fn restore(here: &WebhookInObject<'_>, fenced: bool, now: Time) -> Result<Plan, EditRefusal> {
    let (known, unreadable) = match state(here.object) {
        Ok(state) => (state, None),
        Err(unreadable) => (BypassAnnotation::default(), Some(unreadable)),
    };
    let entry = known.entry(here.webhook);
    let mut builder = EditBuilder::new(here, known);
    builder.set_condition(None);
    let original = match (&entry, &unreadable) {
        (Some(entry), _) => entry.original(here.webhook).map_err(EditRefusal::InvalidOriginal),
        (None, unreadable) => Ok(unreadable.as_ref().and_then(|it| it.original(here.webhook))),
    };
    let ours = match (&entry, &original) {
        (Some(entry), _) => here.still_applied(entry),
        (None, Ok(Some(_))) => here.still_ignored(),
        (None, _) => here.unexplained(),
    };
    if fenced && !ours.is_empty() {
        return Ok(last_edit(builder));
    }
    let restored = if ours.is_empty() {
        Ok(())
    } else {
        original.and_then(|original| restore_fields(&mut builder, &ours, original.as_ref()))
    };
    if let Err(refusal) = restored {
        // The conditions can be removed in any case. The next plan reports what is wrong.
        return if builder.patch.is_empty() {
            Err(refusal)
        } else {
            Ok(builder.edit(false))
        };
    }
    match (entry, unreadable) {
        (Some(mut entry), _) if builder.fields => {
            entry.set_phase(BypassPhase::Restored);
            let (since, expires) = (entry.since(), entry.expires());
            entry.set_times(since, now, expires);
            builder.record_entry(entry)?;
            Ok(builder.edit(false))
        }
        (Some(_), _) => remove_entry(builder, now),
        (None, _) if builder.fields => Ok(builder.edit(false)),
        (None, unreadable) => Ok(remove_remains(builder, unreadable.as_ref())),
    }
}

/// Removes the entry of a webhook whose fields are restored.
fn remove_entry(mut builder: EditBuilder<'_>, now: Time) -> Result<Plan, EditRefusal> {
    let here = builder.here;
    builder.state.forget(here.webhook);
    let text = builder.state.text();
    if text.is_none()
        && let Some(first) = remove_unexplained_first(others(here), now)
    {
        return first;
    }
    // Where another client removed another webhook's entry, the owned fields are the only trace that is left of it.
    let alone = others(here).all(|other| !ownership::owns_any(here.object, other.webhook));
    builder.release(text.is_none() && alone);
    builder.annotate(text);
    Ok(builder.edit(true))
}

/// Removes what is left of hookwatch in a webhook without a readable entry and without changed fields.
fn remove_remains(mut builder: EditBuilder<'_>, unreadable: Option<&UnreadableAnnotation>) -> Plan {
    let here = builder.here;
    let mut others = others(here);
    // Without the unreadable annotation, an original that can still be found in it would be lost.
    let needed = |other: &WebhookInObject<'_>| {
        let survives = unreadable.and_then(|it| it.original(other.webhook)).is_some();
        survives && !other.still_ignored().is_empty()
    };
    let alone = others.all(|other| {
        other.ours().is_empty() && !ownership::owns_any(here.object, other.webhook) && !needed(&other)
    });
    let removes_annotation = unreadable.is_some() && alone;
    let owns_any = ownership::owns_any(here.object, here.webhook);
    if builder.patch.is_empty() && !owns_any && !removes_annotation {
        return Plan::AlreadySo;
    }
    // A readable state has entries of other webhooks.
    let last_of_all = alone && builder.state.text().is_none();
    builder.release(last_of_all);
    if removes_annotation {
        builder.annotate(None);
    }
    last_edit(builder)
}

/// The edit that reaches the desired state, if one is needed.
fn last_edit(builder: EditBuilder<'_>) -> Plan {
    if builder.patch.is_empty() {
        Plan::AlreadySo
    } else {
        builder.edit(true)
    }
}

fn others<'a>(here: &WebhookInObject<'a>) -> impl Iterator<Item = WebhookInObject<'a>> {
    let index = here.index;
    WebhookInObject::all(here.object).filter(move |other| other.index != index)
}

/// The edit that removes a condition without an entry, as of a renamed webhook, if there is one. The fence refuses to remove
/// the annotation before that.
fn remove_unexplained_first<'a>(
    mut webhooks: impl Iterator<Item = WebhookInObject<'a>>,
    now: Time,
) -> Option<Result<Plan, EditRefusal>> {
    let here = webhooks.find(|other| !other.ours().is_empty())?;
    Some(restore(&here, true, now).map(|plan| match plan {
        Plan::Edit(edit) => Plan::Edit(Edit { last: false, ..edit }),
        other => other,
    }))
}

/// Removes the entry of a webhook that no longer exists. An unreadable annotation is removed when the configuration has no
/// webhooks at all.
pub(super) fn forget_gone(object: &Value, webhook: &str, now: Time) -> Result<Plan, EditRefusal> {
    let mut patch = PatchBuilder::default();
    let text = match state(object) {
        Ok(mut state) if state.entry(webhook).is_some() => {
            state.forget(webhook);
            state.text()
        }
        Err(_) if object["webhooks"].as_array().is_none_or(Vec::is_empty) => None,
        Ok(_) | Err(_) => return Ok(Plan::Gone),
    };
    if text.is_none()
        && let Some(first) = remove_unexplained_first(WebhookInObject::all(object), now)
    {
        return first;
    }
    ownership::release(object, webhook, text.is_none(), &mut patch);
    annotate(object, text.as_deref(), &mut patch);
    Ok(finish(object, patch, true))
}
