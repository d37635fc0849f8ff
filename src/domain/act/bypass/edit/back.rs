//! The way back.

use serde_json::Value;

use super::page::{EditPage, annotate, finish};
use super::{Edit, EditRefusal, Plan};
use crate::act::bypass::draft::PatchDraft;
use crate::act::bypass::standing::{Here, state};
use crate::act::bypass::state::{BypassAnnotation, FailureFields, UnreadableAnnotation};
use crate::act::bypass::{BypassPhase, ownership};
use crate::time::Time;

/// Restores fields. This weakens none, whatever the annotation says: no `Fail` becomes `Ignore` (`AnnotationEntry::has_set`), and no
/// timeout becomes shorter than it is.
fn fields_back(
    page: &mut EditPage<'_>,
    ours: &[&str],
    original: Option<&FailureFields>,
) -> Result<(), EditRefusal> {
    let Some(original) = original else {
        return Err(EditRefusal::OriginalUnknown(ours.join(" and ")));
    };
    // A field's value does not show its owner: another manager may claim it unchanged before this is written.
    let version = "/metadata/resourceVersion";
    page.draft.expect(version, page.here.object.pointer(version));
    let now = page.here.fields();
    for field in ours {
        page.field(
            field,
            match *field {
                "failurePolicy" => original.failure_policy.clone().into(),
                _ => original.timeout_seconds.max(now.timeout_seconds).into(),
            },
        );
    }
    Ok(())
}

/// Removes everything of hookwatch's from a webhook. Writing the restored fields makes hookwatch their owner, so a
/// second edit gives them up; until then the entry stays. A `fenced` account removes the conditions, and leaves fields
/// and their entry to an administrator.
pub(super) fn restore(here: &Here<'_>, fenced: bool, now: Time) -> Result<Plan, EditRefusal> {
    let (known, unreadable) = match state(here.object) {
        Ok(state) => (state, None),
        Err(unreadable) => (BypassAnnotation::default(), Some(unreadable)),
    };
    let entry = known.entry(here.webhook);
    let mut page = EditPage::open(here, known);
    page.set_condition(None);
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
        return Ok(last_edit(page));
    }
    let put = if ours.is_empty() {
        Ok(())
    } else {
        original.and_then(|original| fields_back(&mut page, &ours, original.as_ref()))
    };
    if let Err(refusal) = put {
        // The conditions can be removed whatever is wrong with the rest, which is then reported.
        return if page.draft.is_empty() {
            Err(refusal)
        } else {
            Ok(page.edit(false))
        };
    }
    match (entry, unreadable) {
        (Some(mut entry), _) if page.fields => {
            entry.set_phase(BypassPhase::Restored);
            let (since, expires) = (entry.since(), entry.expires());
            entry.set_times(since, now, expires);
            page.write_down(entry)?;
            Ok(page.edit(false))
        }
        (Some(_), _) => forgotten(page, now),
        (None, _) if page.fields => Ok(page.edit(false)),
        (None, unreadable) => Ok(unnoted(page, unreadable.as_ref())),
    }
}

/// What was written down of a webhook that has its fields back goes.
fn forgotten(mut page: EditPage<'_>, now: Time) -> Result<Plan, EditRefusal> {
    let here = page.here;
    page.state.forget(here.webhook);
    let text = page.state.text();
    if text.is_none()
        && let Some(first) = unexplained_first(others(here), now)
    {
        return first;
    }
    // Where another client removed another webhook's note, what is owned of it is the one sign of it that is left.
    let alone = others(here).all(|other| !ownership::holds(here.object, other.webhook));
    page.release(text.is_none() && alone);
    page.annotate(text);
    Ok(page.edit(true))
}

/// Of a webhook that nothing legible is written down of, and that has its fields, goes what is left.
fn unnoted(mut page: EditPage<'_>, unreadable: Option<&UnreadableAnnotation>) -> Plan {
    let here = page.here;
    let mut others = others(here);
    // What survives of an original in an illegible annotation goes with it.
    let needed = |other: &Here<'_>| {
        let survives = unreadable.and_then(|it| it.original(other.webhook)).is_some();
        survives && !other.still_ignored().is_empty()
    };
    let alone = others.all(|other| {
        other.ours().is_empty() && !ownership::holds(here.object, other.webhook) && !needed(&other)
    });
    let (nonsense, left) = (unreadable.is_some(), ownership::holds(here.object, here.webhook));
    if page.draft.is_empty() && !left && !(nonsense && alone) {
        return Plan::AlreadySo;
    }
    // A readable state has entries of other webhooks.
    let last_of_all = alone && page.state.text().is_none();
    page.release(last_of_all);
    if nonsense && alone {
        page.annotate(None);
    }
    last_edit(page)
}

/// The edit that leads to the desired state, if there is anything to edit.
fn last_edit(page: EditPage<'_>) -> Plan {
    if page.draft.is_empty() {
        Plan::AlreadySo
    } else {
        page.edit(true)
    }
}

fn others<'a>(here: &Here<'a>) -> impl Iterator<Item = Here<'a>> {
    let index = here.index;
    Here::all(here.object).filter(move |other| other.index != index)
}

/// Removes a condition without an entry, as on a renamed webhook. The fence refuses to remove the annotation before that.
/// For an object without other entries.
fn unexplained_first<'a>(
    mut webhooks: impl Iterator<Item = Here<'a>>,
    now: Time,
) -> Option<Result<Plan, EditRefusal>> {
    let here = webhooks.find(|other| !other.ours().is_empty())?;
    Some(restore(&here, true, now).map(|plan| match plan {
        Plan::Edit(edit) => Plan::Edit(Edit { last: false, ..edit }),
        other => other,
    }))
}

/// Forgets a webhook that was removed or renamed. An unreadable annotation concerns no webhook once the configuration
/// has none.
pub(super) fn of_gone(object: &Value, webhook: &str, now: Time) -> Result<Plan, EditRefusal> {
    let mut draft = PatchDraft::default();
    let text = match state(object) {
        Ok(mut state) if state.entry(webhook).is_some() => {
            state.forget(webhook);
            state.text()
        }
        Err(_) if object["webhooks"].as_array().is_none_or(Vec::is_empty) => None,
        Ok(_) | Err(_) => return Ok(Plan::Gone),
    };
    if text.is_none()
        && let Some(first) = unexplained_first(Here::all(object), now)
    {
        return first;
    }
    ownership::release(object, webhook, text.is_none(), &mut draft);
    annotate(object, text.as_deref(), &mut draft);
    Ok(finish(object, draft, true))
}
