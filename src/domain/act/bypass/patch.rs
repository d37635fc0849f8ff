//! Builds a JSON patch.

use serde_json::{Value, json};

/// One change of an object.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldChange {
    /// The path of the value, for people: `webhooks[a.example.com].failurePolicy`.
    pub what: String,
    /// The value before; `None` if there was none.
    pub before: Option<Value>,
    /// The value after; `None` if there is none.
    pub after: Option<Value>,
}

/// A patch under construction: its tests come first, and nothing is changed when one of them fails.
#[derive(Debug, Default)]
pub(super) struct PatchBuilder {
    tests: Vec<Value>,
    operations: Vec<Value>,
    changes: Vec<FieldChange>,
}

impl PatchBuilder {
    /// Adds a test of a value. `None` tests that there is none: the API server reads a test for null like that if the parent
    /// of the field exists.
    pub(super) fn expect(&mut self, path: &str, value: Option<&Value>) {
        self.tests
            .push(json!({"op": "test", "path": path, "value": value}));
    }

    /// Tests for the value before, and replaces it.
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

    /// Adds an operation whose precondition was added with [`Self::expect`].
    pub(super) fn operation(&mut self, operation: Value) {
        self.operations.push(operation);
    }

    /// Notes a change for people.
    pub(super) fn change(&mut self, what: String, before: Option<Value>, after: Option<Value>) {
        self.changes.push(FieldChange { what, before, after });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// The patch, and its changes for people.
    pub(super) fn finish(self) -> (Value, Vec<FieldChange>) {
        let patch = self.tests.into_iter().chain(self.operations).collect();
        (Value::Array(patch), self.changes)
    }
}

/// A key escaped for a JSON pointer.
pub fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}
