//! Builds one edit: from the webhook in its object and the annotation, to the patch.

use serde_json::{Value, json};

use super::{Author, Edit, EditRefusal, MAX_ANNOTATIONS, MAX_OBJECT, Plan};
use crate::act::bypass::patch::{PatchBuilder, escaped};
use crate::act::bypass::standing::{WebhookInObject, annotation, annotations};
use crate::act::bypass::state::{AnnotationEntry, BypassAnnotation, MAX_STATE};
use crate::act::bypass::{STATE_ANNOTATION, ownership};
use crate::cluster::condition::BypassCondition;
use crate::cluster::hook::{Added, MAX_CONDITIONS, SPARE_ANNOTATION};

/// An edit under construction.
pub(super) struct EditBuilder<'a> {
    pub(super) here: &'a WebhookInObject<'a>,
    /// The annotation as it will be.
    pub(super) state: BypassAnnotation,
    pub(super) patch: PatchBuilder,
    /// Whether it changes a field other than the conditions, which hookwatch then owns.
    pub(super) fields: bool,
    /// Bytes by which the object grows, at most.
    growth: usize,
}

impl<'a> EditBuilder<'a> {
    pub(super) fn new(here: &'a WebhookInObject<'a>, state: BypassAnnotation) -> Self {
        Self {
            here,
            state,
            patch: PatchBuilder::default(),
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

    /// Makes this the only condition of hookwatch in the webhook.
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

    /// Replaces hookwatch's conditions by this one, or removes them.
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
        self.patch.expect(&path, list);
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
            self.patch.change(what, before, after);
        }
        let mut operation = |operation: Value| self.patch.operation(operation);
        if wanted.is_none() && others == 0 {
            return operation(json!({"op": "remove", "path": path}));
        }
        // The first of hookwatch's conditions is replaced. The others are removed from the end on, so that no index shifts.
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

    /// Sets a field of the webhook.
    pub(super) fn field(&mut self, field: &str, value: Value) {
        if self.here.value(field) != value {
            let (path, what) = (self.path(field), self.what(field));
            self.patch
                .set(&path, what, self.here.hook.get(field), Some(value));
            self.fields = true;
        }
    }

    /// Puts the webhook's entry into the annotation. If that becomes too long, the evidence of all entries is dropped: the
    /// evidence about one webhook must not prevent the bypass of another.
    pub(super) fn record_entry(&mut self, entry: AnnotationEntry) -> Result<(), EditRefusal> {
        self.state.set(self.here.webhook, entry);
        let length = |state: &BypassAnnotation| state.text().map_or(0, |text| text.chars().count());
        if length(&self.state) > MAX_STATE {
            self.state.forget_evidence();
        }
        let length = length(&self.state);
        if length > MAX_STATE {
            return Err(EditRefusal::AnnotationTooLong(length));
        }
        self.annotate(self.state.text());
        Ok(())
    }

    /// Sets the annotation to a text, or removes it.
    pub(super) fn annotate(&mut self, text: Option<String>) {
        let object = self.here.object;
        annotate(object, text.as_deref(), &mut self.patch);
        self.growth += text.map_or(0, |text| text.len());
    }

    /// Whether the API server would accept the object as it will be.
    ///
    /// # Errors
    /// With the size that is too large.
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

    /// Gives up what hookwatch owns in the webhook, or in the whole object (`everything`).
    pub(super) fn release(&mut self, everything: bool) {
        let (object, webhook) = (self.here.object, self.here.webhook);
        ownership::release(object, webhook, everything, &mut self.patch);
    }

    /// The edit; `last`: whether it reaches the desired state.
    pub(super) fn edit(mut self, last: bool) -> Plan {
        let name = self.path("name");
        self.patch.expect(&name, self.here.hook.get("name"));
        finish(self.here.object, self.patch, last)
    }
}

/// Sets the annotation of an object to a text, or removes it.
pub(super) fn annotate(object: &Value, text: Option<&str>, patch: &mut PatchBuilder) {
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
            patch.expect(all, object.pointer(all));
            patch.operation(json!({"op": "add", "path": all, "value": map}));
            patch.change(what, None, new);
        }
        // An object without annotations has no empty map either.
        (Some(map), None) if map.len() == 1 => {
            patch.expect(all, object.pointer(all));
            patch.operation(json!({"op": "remove", "path": all}));
            patch.change(what, old, None);
        }
        _ => patch.set(&path, what, old.as_ref(), new),
    }
}

/// The edit with a patch, which also tests the object's uid.
pub(super) fn finish(object: &Value, mut patch: PatchBuilder, last: bool) -> Plan {
    patch.expect("/metadata/uid", object.pointer("/metadata/uid"));
    let (operations, changes) = patch.finish();
    Plan::Edit(Edit {
        patch: operations,
        changes,
        last,
    })
}
