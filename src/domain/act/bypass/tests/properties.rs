//! Whatever other writers do during a bypass, a restore leaves no trace of it and loses none of their changes.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::objects::{
    NOW, author, bypass, carried_out, claimed, configuration, holds_ours, hook, ignore, patched, planned,
    spec, written,
};
use crate::act::bypass::edit::{Author, Desired, EditRefusal, Plan, plan};
use crate::act::bypass::{Rung, STATE_ANNOTATION, touched};

/// A change that another writer may make to a configuration. Indices are taken modulo the number of webhooks.
#[derive(Debug, Clone)]
enum Theirs {
    RotateBundle(usize, u8),
    Remove(usize),
    Rename(usize),
    Reverse,
    AddFirst,
    AddCondition(usize, usize),
    DropTheirConditions(usize),
    DropAllConditions(usize),
    Policy(usize, bool),
    Timeout(usize, u64),
    Annotate(u8),
    Label(u8),
    WipeAnnotation,
    Nonsense,
    ReplaceAll,
    ReplaceWebhooks,
}

fn theirs() -> impl Strategy<Value = Theirs> {
    use Theirs::*;
    prop_oneof![
        (any::<usize>(), any::<u8>()).prop_map(|(of, value)| RotateBundle(of, value)),
        any::<usize>().prop_map(Remove),
        any::<usize>().prop_map(Rename),
        Just(Reverse),
        Just(AddFirst),
        (any::<usize>(), any::<usize>()).prop_map(|(of, at)| AddCondition(of, at)),
        any::<usize>().prop_map(DropTheirConditions),
        any::<usize>().prop_map(DropAllConditions),
        (any::<usize>(), any::<bool>()).prop_map(|(of, fail)| Policy(of, fail)),
        (any::<usize>(), 1..31_u64).prop_map(|(of, seconds)| Timeout(of, seconds)),
        any::<u8>().prop_map(Annotate),
        any::<u8>().prop_map(Label),
        Just(WipeAnnotation),
        Just(Nonsense),
        Just(ReplaceAll),
        Just(ReplaceWebhooks),
    ]
}

/// A write by another writer. `step` makes new names differ; `first` is the owner's manifest.
fn done(object: &Value, change: &Theirs, step: usize, first: &Value) -> Value {
    let mut after = object.clone();
    let count = after["webhooks"].as_array().map_or(0, Vec::len);
    let hooks = |after: &mut Value| after["webhooks"].as_array().cloned().unwrap_or_default();
    let mut claim = None;
    match change {
        Theirs::AddFirst => {
            let mut all = hooks(&mut after);
            all.insert(0, hook(&format!("new-{step}"), "Fail", 5, 1));
            after["webhooks"] = all.into();
        }
        Theirs::Reverse => {
            let mut all = hooks(&mut after);
            all.reverse();
            after["webhooks"] = all.into();
        }
        Theirs::Annotate(value) => after["metadata"]["annotations"][format!("theirs-{value}")] = "x".into(),
        Theirs::Label(value) => after["metadata"]["labels"][format!("l{value}")] = "x".into(),
        Theirs::WipeAnnotation => {
            if let Some(annotations) = after["metadata"]["annotations"].as_object_mut() {
                annotations.remove(STATE_ANNOTATION);
            }
        }
        Theirs::Nonsense => {
            if let Some(text) = after["metadata"]["annotations"].get_mut(STATE_ANNOTATION) {
                *text = "by hand".into();
            }
        }
        Theirs::ReplaceAll => {
            let owners = after["metadata"]["managedFields"].take();
            after = spec(first);
            after["metadata"]["managedFields"] = owners;
        }
        Theirs::ReplaceWebhooks => after["webhooks"] = first["webhooks"].clone(),
        _ if count == 0 => {}
        Theirs::RotateBundle(of, value) => {
            after["webhooks"][of % count]["clientConfig"]["caBundle"] = format!("{value}").into();
        }
        Theirs::Remove(of) => {
            let mut all = hooks(&mut after);
            all.remove(of % count);
            after["webhooks"] = all.into();
        }
        Theirs::Rename(of) => after["webhooks"][of % count]["name"] = format!("renamed-{step}").into(),
        Theirs::AddCondition(of, at) => {
            let hook = &mut after["webhooks"][of % count];
            let mut conditions = hook["matchConditions"].as_array().cloned().unwrap_or_default();
            // Skip hookwatch's condition, so that the others have the same order with and without it.
            let theirs = conditions.iter().enumerate().filter(|(_, it)| !is_ours(it));
            let places: Vec<usize> = theirs.map(|(index, _)| index).chain([conditions.len()]).collect();
            let place = places[at % places.len()];
            conditions.insert(
                place,
                json!({"name": format!("added-{step}"), "expression": "true"}),
            );
            hook["matchConditions"] = conditions.into();
        }
        Theirs::DropTheirConditions(of) => {
            let hook = &mut after["webhooks"][of % count];
            let conditions = hook["matchConditions"].as_array().cloned().unwrap_or_default();
            hook["matchConditions"] = conditions.into_iter().filter(is_ours).collect();
        }
        Theirs::DropAllConditions(of) => after["webhooks"][of % count]["matchConditions"] = json!([]),
        Theirs::Policy(of, fail) => {
            let hook = &mut after["webhooks"][of % count];
            hook["failurePolicy"] = if *fail { "Fail" } else { "Ignore" }.into();
            claim = Some((hook["name"].clone(), "failurePolicy"));
        }
        Theirs::Timeout(of, seconds) => {
            let hook = &mut after["webhooks"][of % count];
            hook["timeoutSeconds"] = (*seconds).into();
            claim = Some((hook["name"].clone(), "timeoutSeconds"));
        }
    }
    let after = written(object, after, "somebody");
    match claim {
        Some((webhook, field)) => claimed(after, webhook.as_str().expect("a name"), field, "somebody"),
        None => after,
    }
}

fn is_ours(condition: &Value) -> bool {
    condition["name"]
        .as_str()
        .is_some_and(|name| name.starts_with("hookwatch.dev/"))
}

fn first() -> impl Strategy<Value = Value> {
    let hook = (any::<bool>(), 2..31_u64, 0..3_usize);
    (prop::collection::vec(hook, 1..4), any::<bool>()).prop_map(|(hooks, annotated)| {
        let hooks = hooks
            .into_iter()
            .enumerate()
            .map(|(index, (fail, seconds, conditions))| {
                hook_named(index, if fail { "Fail" } else { "Ignore" }, seconds, conditions)
            });
        let annotations = if annotated {
            json!({"owner": "a"})
        } else {
            json!({})
        };
        configuration(hooks.collect(), annotations)
    })
}

fn hook_named(index: usize, policy: &str, seconds: u64, conditions: usize) -> Value {
    hook(&format!("hook-{index}"), policy, seconds, conditions)
}

fn desired_states() -> impl Strategy<Value = Vec<(usize, Desired)>> {
    let desired_states = vec![bypass(Rung::Shield), bypass(Rung::Skip), ignore()];
    prop::collection::vec((0..4_usize, prop::sample::select(desired_states)), 1..4)
}

/// Restores every bypassed webhook; also returns what was refused.
fn restored(object: &Value) -> (Value, Vec<EditRefusal>) {
    let (mut object, mut refusals) = (object.clone(), Vec::new());
    for (webhook, _) in touched(&object.clone()) {
        match carried_out(&object, &webhook, &Desired::Restore) {
            Ok(restored) => object = restored,
            Err((left, refusal)) => {
                object = left;
                refusals.push(refusal);
            }
        }
    }
    (object, refusals)
}

/// The object without the fields that `Ignore` sets, and without an annotation that is only left because of them.
fn but_fields(object: &Value) -> Value {
    let mut object = spec(object);
    if let Some(metadata) = object["metadata"].as_object_mut()
        && let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut)
    {
        annotations.remove(STATE_ANNOTATION);
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    for hook in object["webhooks"].as_array_mut().into_iter().flatten() {
        let hook = hook.as_object_mut().expect("a webhook");
        hook.remove("failurePolicy");
        hook.remove("timeoutSeconds");
    }
    object
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn a_bypass_and_its_end_leave_no_trace(first in first(), desired_states in desired_states(), probation in any::<bool>()) {
        let mut object = first.clone();
        for (of, desired) in desired_states {
            let webhook = format!("hook-{of}");
            object = carried_out(&object, &webhook, &desired).unwrap_or(object);
            if probation && let Ok(tried) = carried_out(&object, &webhook, &Desired::Probation) {
                object = tried;
            }
        }
        let (object, refusals) = restored(&object);
        prop_assert_eq!(refusals, []);
        prop_assert_eq!(spec(&object), spec(&first));
        prop_assert!(!holds_ours(&object), "{:#}", object);
    }

    #[test]
    fn nothing_of_others_is_lost_and_nothing_of_ours_stays(
        first in first(),
        desired_states in desired_states(),
        steps in prop::collection::vec((theirs(), 0..4_usize), 0..8),
    ) {
        // `without` is what the others' changes give without hookwatch.
        let (mut with, mut without) = (first.clone(), first.clone());
        for (of, desired) in &desired_states {
            with = carried_out(&with, &format!("hook-{of}"), desired).unwrap_or(with);
        }
        let ignored = desired_states.iter().any(|(_, desired)| *desired == ignore());
        let mut told = true;
        for (step, (change, again)) in steps.iter().enumerate() {
            // A patch that was planned for an older version is refused or does no harm.
            let (of, desired) = desired_states[again % desired_states.len()].clone();
            let desired = [desired, Desired::Probation, Desired::Restore][again % 3].clone();
            let late = planned(&with, &format!("hook-{of}"), &desired);
            // A replacement that says what hookwatch has set changes no value, so nothing shows that its owner wants it now.
            told &= !(matches!(change, Theirs::ReplaceWebhooks) && says_what_is_ours(&first, &with, &without));
            with = done(&with, change, step, &first);
            without = done(&without, change, step, &first);
            if let Ok(Plan::Edit(edit)) = late && *again > 0 {
                with = patched(&with, &edit.patch).unwrap_or(with);
            }
            // A writer who renames a hook, or removes its annotation, adopts its fields as they are.
            told &= !matches!(change, Theirs::Rename(_) | Theirs::WipeAnnotation | Theirs::Nonsense | Theirs::ReplaceAll);
        }
        let (with, refusals) = restored(&with);
        prop_assert_eq!(but_fields(&with), but_fields(&without));
        if told || !ignored {
            prop_assert_eq!(refusals, []);
            prop_assert_eq!(spec(&with), spec(&without));
            prop_assert!(!holds_ours(&with), "{:#}", with);
        }
    }

    /// What the fence permits the daemon.
    #[test]
    fn the_daemon_changes_match_conditions_alone_and_notes_and_forgets_no_original(
        first in first(),
        desired_states in desired_states(),
        steps in prop::collection::vec((theirs(), 0..4_usize), 0..8),
    ) {
        let fenced = Author { fenced: true, ..author() };
        let mut object = first.clone();
        for (of, desired) in &desired_states {
            object = carried_out(&object, &format!("hook-{of}"), desired).unwrap_or(object);
        }
        for (step, (change, again)) in steps.iter().enumerate() {
            object = done(&object, change, step, &first);
            for desired in [[bypass(Rung::Shield), bypass(Rung::Skip), Desired::Probation][again % 3].clone(), Desired::Restore] {
                let Ok(Plan::Edit(edit)) = plan(&object, &format!("hook-{again}"), &desired, &fenced, NOW) else {
                    continue;
                };
                let after = patched(&object, &edit.patch).expect("its tests hold");
                prop_assert_eq!(ignored(&after), ignored(&object));
                object = after;
            }
        }
    }
}

/// Whether a field is in `first` as it is with hookwatch, and would be something else without.
fn says_what_is_ours(first: &Value, with: &Value, without: &Value) -> bool {
    let value = |object: &Value, webhook: &Value, field: &str| {
        let mut hooks = object["webhooks"].as_array().into_iter().flatten();
        hooks
            .find(|hook| hook["name"] == *webhook)
            .map(|hook| hook[field].clone())
    };
    let mut hooks = first["webhooks"].as_array().into_iter().flatten();
    hooks.any(|hook| {
        ["failurePolicy", "timeoutSeconds"].into_iter().any(|field| {
            let (is, would_be) = (
                value(with, &hook["name"], field),
                value(without, &hook["name"], field),
            );
            is.as_ref() == Some(&hook[field]) && would_be != is
        })
    })
}

/// Every webhook's `failurePolicy` and `timeoutSeconds`, and the originals of those whose failures are ignored.
fn ignored(object: &Value) -> (Vec<[Value; 2]>, Vec<String>) {
    let hooks = object["webhooks"].as_array().into_iter().flatten();
    let fields = hooks
        .clone()
        .map(|hook| [hook["failurePolicy"].clone(), hook["timeoutSeconds"].clone()]);
    let text = object["metadata"]["annotations"][STATE_ANNOTATION]
        .as_str()
        .unwrap_or_default();
    let originals = text.split('"').filter(|piece| piece.contains("=Fail/"));
    let is_ignored = |piece: &&str| {
        let mut hooks = hooks.clone().filter(|hook| hook["failurePolicy"] == "Ignore");
        let name = |hook: &Value| format!("{}=Fail/", hook["name"].as_str().unwrap_or_default());
        let claimed = |hook: &Value| {
            let field = &hook["name"].as_str().unwrap_or_default();
            owned_by_others(object, field)
        };
        hooks.any(|hook| piece.starts_with(&name(hook)) && !claimed(hook))
    };
    let originals = originals.filter(is_ignored).map(str::to_owned);
    (fields.collect(), originals.collect())
}

/// Whether another manager has claimed a webhook's `failurePolicy`.
fn owned_by_others(object: &Value, webhook: &str) -> bool {
    let key = format!("k:{}", json!({"name": webhook}));
    let mut managers = object["metadata"]["managedFields"]
        .as_array()
        .into_iter()
        .flatten();
    managers.any(|entry| {
        let owned = &entry["fieldsV1"]["f:webhooks"][&key]["f:failurePolicy"];
        entry["manager"] != "hookwatch" && !owned.is_null()
    })
}
