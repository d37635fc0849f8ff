//! A JSON patch in the making.

use serde_json::{Value, json};

/// One change of an object.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldChange {
    /// What is changed, as it is called in the object: `webhooks[a.example.com].failurePolicy`.
    pub what: String,
    /// What was there; `None` for nothing.
    pub before: Option<Value>,
    /// What will be there; `None` for nothing.
    pub after: Option<Value>,
}

/// The tests that a patch begins with, and its changes. The tests are the precondition: nothing is changed when any
/// of them fails.
#[derive(Debug, Default)]
pub(super) struct PatchDraft {
    tests: Vec<Value>,
    operations: Vec<Value>,
    changes: Vec<FieldChange>,
}

impl PatchDraft {
    /// Adds a test of a value; `None` tests for absence: the API server treats a test for null so, if the parent of the
    /// field exists.
    pub(super) fn expect(&mut self, path: &str, value: Option<&Value>) {
        self.tests
            .push(json!({"op": "test", "path": path, "value": value}));
    }

    /// Expects what is there and puts something else in its place.
    pub(super) fn set(&mut self, path: &str, what: String, before: Option<&Value>, after: Option<Value>) {
        self.expect(path, before);
        self.operations.push(match &after {
            Some(value) => {
                json!({"op": if before.is_some() { "replace" } else { "add" }, "path": path, "value": value})
            }
            None => json!({"op": "remove", "path": path}),
        });
        self.change(what, before.cloned(), after);
    }

    /// One operation on a place that was tested otherwise.
    pub(super) fn operation(&mut self, operation: Value) {
        self.operations.push(operation);
    }

    pub(super) fn change(&mut self, what: String, before: Option<Value>, after: Option<Value>) {
        self.changes.push(FieldChange { what, before, after });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// The patch, and what it changes of what people look at.
    pub(super) fn finish(self) -> (Value, Vec<FieldChange>) {
        let patch = self.tests.into_iter().chain(self.operations).collect();
        (Value::Array(patch), self.changes)
    }
}

/// A key escaped for a JSON pointer.
pub fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}
