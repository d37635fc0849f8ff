//! How a change gets to the API server, and what is made of the answers.

use super::*;

/// How a change gets to the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Put,
    JsonPatch,
    MergePatch,
    Apply,
}

impl Way {
    pub(super) const ALL: [Self; 4] = [Self::Put, Self::JsonPatch, Self::MergePatch, Self::Apply];

    pub(super) async fn go(
        self,
        client: &Client,
        object: &str,
        before: &Value,
        after: &Value,
        dry_run: bool,
    ) -> Answer {
        let mut target = format!("{CONFIGURATIONS}/{object}?fieldManager=hookwatch");
        if dry_run {
            target.push_str("&dryRun=All");
        }
        let (method, content_type, body) = match self {
            Self::Put => (Method::PUT, "application/json", after.clone()),
            Self::JsonPatch => {
                let patch = json_patch::diff(before, after);
                (
                    Method::PATCH,
                    "application/json-patch+json",
                    serde_json::to_value(patch).unwrap(),
                )
            }
            Self::MergePatch => (
                Method::PATCH,
                "application/merge-patch+json",
                merge_patch(before, after),
            ),
            Self::Apply => {
                target.push_str("&force=true");
                let mut applied = after.clone();
                for key in [
                    "managedFields",
                    "resourceVersion",
                    "uid",
                    "creationTimestamp",
                    "generation",
                ] {
                    applied["metadata"].as_object_mut().unwrap().remove(key);
                }
                // It is named in the path; another one is refused before anything else.
                (Method::PATCH, "application/apply-patch+yaml", applied)
            }
        };
        ask_as(client, method, &target, content_type, &body).await
    }
}

/// What turns one into the other.
pub(super) fn merge_patch(before: &Value, after: &Value) -> Value {
    let (Value::Object(from), Value::Object(to)) = (before, after) else {
        return after.clone();
    };
    let mut patch = Map::new();
    for (key, value) in to {
        match from.get(key) {
            Some(same) if same == value => {}
            Some(other) => drop(patch.insert(key.clone(), merge_patch(other, value))),
            None => drop(patch.insert(key.clone(), value.clone())),
        }
    }
    for key in from.keys().filter(|key| !to.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    Value::Object(patch)
}

pub(super) fn by_the_fence(answer: &Answer, says: &str) -> bool {
    let head = format!("ValidatingAdmissionPolicy '{FENCE}' with binding '{FENCE}' denied request: ");
    !answer.is_success()
        && answer
            .message()
            .split_once(&head)
            .is_some_and(|(_, said)| said.contains(says) && !said.contains("resulted in error"))
}

pub(super) fn by_rbac(answer: &Answer) -> bool {
    answer.status == 403 && answer.message().contains(" cannot ")
}

/// Complaints of everything that did not come out as it has to.
#[derive(Default)]
pub(super) struct Account {
    pub(super) tried: usize,
    pub(super) wrong: Vec<String>,
}

impl Account {
    pub(super) fn check(&mut self, what: &str, right: bool, answer: &Answer) {
        self.tried += 1;
        if !right {
            let said = if answer.is_success() {
                "let through"
            } else {
                answer.message()
            };
            self.wrong.push(format!("{what}: {} {said}", answer.status));
        }
    }

    pub(super) fn settle(self) {
        assert!(
            self.wrong.is_empty(),
            "{} of {}:\n{}",
            self.wrong.len(),
            self.tried,
            self.wrong.join("\n")
        );
    }
}
