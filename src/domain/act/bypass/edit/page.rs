//! One edit in the making: a webhook in its object, what is written down on it, and the patch so far.

use serde_json::{Value, json};

use super::{Author, Edit, EditRefusal, MAX_ANNOTATIONS, MAX_CONDITIONS, MAX_OBJECT, Plan};
use crate::act::bypass::draft::{PatchDraft, escaped};
use crate::act::bypass::standing::{Here, annotation, annotations};
use crate::act::bypass::state::{AnnotationEntry, BypassAnnotation, MAX_STATE};
use crate::act::bypass::{STATE_ANNOTATION, ownership};
use crate::cluster::condition::BypassCondition;
use crate::cluster::hook::{Added, SPARE_ANNOTATION};

pub(super) struct EditPage<'a> {
    pub(super) here: &'a Here<'a>,
    pub(super) state: BypassAnnotation,
    pub(super) draft: PatchDraft,
    /// Whether a field beside the conditions changes; then hookwatch owns it once this is written.
    pub(super) fields: bool,
    /// Bytes by which the object grows, about.
    growth: usize,
}

impl<'a> EditPage<'a> {
    pub(super) fn open(here: &'a Here<'a>, state: BypassAnnotation) -> Self {
        Self {
            here,
            state,
            draft: PatchDraft::default(),
            fields: false,
            growth: 0,
        }
    }

    fn path(&self, field: &str) -> String {
        format!("/webhooks/{}/{field}", self.here.index)
    }

    fn what(&self, field: &str) -> String {
        format!("webhooks[{}].{field}", self.here.webhook)
    }

    /// Makes this the only condition of hookwatch's.
    pub(super) fn condition(
        &mut self,
        condition: BypassCondition,
        author: &Author,
    ) -> Result<(), EditRefusal> {
        let others = self.here.conditions().len() - self.here.ours().len();
        if others >= MAX_CONDITIONS {
            return Err(EditRefusal::ConditionsFull(others));
        }
        let value = annotation(self.here.object, SPARE_ANNOTATION);
        let namespace = self.here.hook.pointer("/clientConfig/service/namespace");
        let (added, _) = Added::read(value, namespace.and_then(Value::as_str));
        let expression = condition.expression(&author.namespace, &author.account, &added);
        self.set_condition(Some(json!({"name": condition.name(), "expression": expression})));
        Ok(())
    }

    pub(super) fn set_condition(&mut self, wanted: Option<Value>) {
        let (conditions, ours) = (self.here.conditions(), self.here.ours());
        let current: Vec<&Value> = ours.iter().map(|index| &conditions[*index]).collect();
        if current == wanted.iter().collect::<Vec<_>>() {
            return;
        }
        let others = conditions.len() - ours.len();
        let path = self.path("matchConditions");
        self.growth += wanted.as_ref().map_or(0, |wanted| wanted.to_string().len());
        let list = self.here.hook.get("matchConditions");
        self.draft.expect(&path, list);
        let what = |condition: &Value| {
            let name = condition["name"].as_str().unwrap_or_default();
            self.what(&format!("matchConditions[{name}]"))
        };
        let mut changes: Vec<(String, Option<Value>, Option<Value>)> = current
            .iter()
            .map(|gone| (what(gone), Some((*gone).clone()), None))
            .collect();
        changes.extend(wanted.iter().map(|new| (what(new), None, Some(new.clone()))));
        for (what, before, after) in changes {
            self.draft.change(what, before, after);
        }
        let mut operation = |operation: Value| self.draft.operation(operation);
        if wanted.is_none() && others == 0 {
            return operation(json!({"op": "remove", "path": path}));
        }
        // The first of ours is replaced. The others go from the end on, so that no index moves before its turn.
        for index in ours.iter().skip(usize::from(wanted.is_some())).rev() {
            operation(json!({"op": "remove", "path": format!("{path}/{index}")}));
        }
        let Some(wanted) = wanted else { return };
        operation(match ours.first() {
            Some(first) => json!({"op": "replace", "path": format!("{path}/{first}"), "value": wanted}),
            None if list.is_some_and(Value::is_array) => {
                json!({"op": "add", "path": format!("{path}/-"), "value": wanted})
            }
            None => json!({"op": "add", "path": path, "value": [wanted]}),
        });
    }

    /// Gives a field of the webhook this value.
    pub(super) fn field(&mut self, field: &str, value: Value) {
        if self.here.value(field) != value {
            let (path, what) = (self.path(field), self.what(field));
            self.draft
                .set(&path, what, self.here.hook.get(field), Some(value));
            self.fields = true;
        }
    }

    /// Records the entry of the webhook. Without room for it, the evidence of all entries is dropped first: one webhook's
    /// must not keep another from being bypassed.
    pub(super) fn write_down(&mut self, entry: AnnotationEntry) -> Result<(), EditRefusal> {
        self.state.set(self.here.webhook, entry);
        let length = |state: &BypassAnnotation| state.text().map_or(0, |text| text.chars().count());
        if length(&self.state) > MAX_STATE {
            self.state.forget_evidence();
        }
        match length(&self.state) {
            long if long > MAX_STATE => Err(EditRefusal::AnnotationTooLong(long)),
            _ => {
                self.annotate(self.state.text());
                Ok(())
            }
        }
    }

    pub(super) fn annotate(&mut self, text: Option<String>) {
        let object = self.here.object;
        annotate(object, text.as_deref(), &mut self.draft);
        self.growth += text.map_or(0, |text| text.len());
    }

    /// Whether the API server will take it.
    pub(super) fn check_size(&self) -> Result<(), EditRefusal> {
        let text = self.state.text().map_or(0, |text| text.len());
        let others: usize = annotations(self.here.object)
            .into_iter()
            .flatten()
            .filter(|(key, _)| *key != STATE_ANNOTATION)
            .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
            .sum();
        let all = others + STATE_ANNOTATION.len() + text;
        if all > MAX_ANNOTATIONS {
            return Err(EditRefusal::AnnotationsFull(all));
        }
        let size = self.here.object.to_string().len() + self.growth;
        if size > MAX_OBJECT {
            Err(EditRefusal::TooLarge(size))
        } else {
            Ok(())
        }
    }

    /// Gives up what hookwatch owns, with the last of it when nothing stays written down.
    pub(super) fn release(&mut self, everything: bool) {
        let (object, webhook) = (self.here.object, self.here.webhook);
        ownership::release(object, webhook, everything, &mut self.draft);
    }

    pub(super) fn edit(mut self, last: bool) -> Plan {
        let name = self.path("name");
        self.draft.expect(&name, self.here.hook.get("name"));
        finish(self.here.object, self.draft, last)
    }
}

/// Gives the annotation a text, or takes it away.
pub(super) fn annotate(object: &Value, text: Option<&str>, draft: &mut PatchDraft) {
    let before = annotation(object, STATE_ANNOTATION);
    if before == text {
        return;
    }
    let (all, key) = ("/metadata/annotations", escaped(STATE_ANNOTATION));
    let what = format!("metadata.annotations[{STATE_ANNOTATION}]");
    let (path, map) = (format!("{all}/{key}"), annotations(object));
    let (old, new) = (before.map(Value::from), text.map(Value::from));
    match (map, &new) {
        (None, Some(text)) => {
            let map = json!({STATE_ANNOTATION: text});
            draft.expect(all, object.pointer(all));
            draft.operation(json!({"op": "add", "path": all, "value": map}));
            draft.change(what, None, new);
        }
        // An empty map would not be what was there before.
        (Some(map), None) if map.len() == 1 => {
            draft.expect(all, object.pointer(all));
            draft.operation(json!({"op": "remove", "path": all}));
            draft.change(what, old, None);
        }
        _ => draft.set(&path, what, old.as_ref(), new),
    }
}

pub(super) fn finish(object: &Value, mut draft: PatchDraft, last: bool) -> Plan {
    draft.expect("/metadata/uid", object.pointer("/metadata/uid"));
    let (patch, changes) = draft.finish();
    Plan::Edit(Edit { patch, changes, last })
}
