//! Refusals, as the API server writes them: `Status` objects with its own reasons and sentences.

use serde_json::{Value, json};

use super::kinds::{ServedKind, qualify};

/// A refused request: the HTTP code and the `Status` object of the answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ApiFailure {
    pub code: u16,
    pub status: Box<Value>,
}

/// One field that did not pass validation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FieldError {
    reason: &'static str,
    field: String,
    message: String,
}

impl FieldError {
    /// The field is missing.
    pub(super) fn required(field: impl Into<String>, why: &str) -> Self {
        Self {
            reason: "FieldValueRequired",
            field: field.into(),
            message: if why.is_empty() {
                "Required value".to_owned()
            } else {
                format!("Required value: {why}")
            },
        }
    }

    /// The field has an impossible value.
    pub(super) fn invalid(field: impl Into<String>, value: &Value, why: &str) -> Self {
        Self {
            reason: "FieldValueInvalid",
            field: field.into(),
            message: format!("Invalid value: {value}: {why}"),
        }
    }

    /// The field has a value that another one has already.
    pub(super) fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self {
            reason: "FieldValueDuplicate",
            field: field.into(),
            message: format!("Duplicate value: {value}"),
        }
    }

    /// The field has more items than it may.
    pub(super) fn too_many(field: impl Into<String>, found: usize, most: usize) -> Self {
        Self {
            reason: "FieldValueTooMany",
            field: field.into(),
            message: format!("Too many: {found}: must have at most {most} items"),
        }
    }

    /// The field has a value outside a list.
    pub(super) fn unsupported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        let supported: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
        Self {
            reason: "FieldValueNotSupported",
            field: field.into(),
            message: format!(
                "Unsupported value: {value}: supported values: {}",
                supported.join(", ")
            ),
        }
    }
}

impl ApiFailure {
    /// A refusal; an empty `reason` and absent `details` are left out.
    pub(super) fn new(code: u16, reason: &str, message: impl Into<String>, details: Option<Value>) -> Self {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message.into(),
            "code": code,
        });
        if !reason.is_empty() {
            status["reason"] = json!(reason);
        }
        if let Some(details) = details {
            status["details"] = details;
        }
        Self {
            code,
            status: Box::new(status),
        }
    }

    /// The sentence for people.
    #[cfg(test)]
    pub(super) fn message(&self) -> &str {
        self.status["message"].as_str().unwrap_or_default()
    }

    pub(super) fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized", None)
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message, None)
    }

    /// There is nothing at that URL.
    pub(super) fn no_such_path() -> Self {
        let message = "the server could not find the requested resource";
        Self::new(404, "NotFound", message, Some(json!({})))
    }

    pub(super) fn not_found(kind: &ServedKind, name: &str) -> Self {
        let message = format!("{} {name:?} not found", kind.qualified());
        Self::new(404, "NotFound", message, Some(details(kind, name)))
    }

    pub(super) fn already_exists(kind: &ServedKind, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", kind.qualified());
        Self::new(409, "AlreadyExists", message, Some(details(kind, name)))
    }

    pub(super) fn conflict(kind: &ServedKind, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} {name:?}: {why}",
            kind.qualified()
        );
        Self::new(409, "Conflict", message, Some(details(kind, name)))
    }

    /// A precondition that does not hold. The kind stands where other conflicts have the resource.
    pub(super) fn precondition(kind: &ServedKind, name: &str, why: &str) -> Self {
        let qualified = qualify(kind.kind, kind.group);
        let message = format!("Operation cannot be fulfilled on {qualified} {name:?}: {why}");
        let mut details = details(kind, name);
        details["kind"] = json!(kind.kind);
        Self::new(409, "Conflict", message, Some(details))
    }

    pub(super) fn forbidden(kind: &ServedKind, name: &str, why: &str) -> Self {
        let message = if name.is_empty() {
            format!("{} is forbidden: {why}", kind.qualified())
        } else {
            format!("{} {name:?} is forbidden: {why}", kind.qualified())
        };
        Self::new(403, "Forbidden", message, Some(details(kind, name)))
    }

    /// An object that does not pass validation.
    pub(super) fn invalid(kind: &ServedKind, name: &str, errors: &[FieldError]) -> Self {
        Self::invalid_as(kind.kind, kind.group, name, errors)
    }

    /// An object of any kind, or the options of a request, that do not pass validation.
    pub(super) fn invalid_as(kind: &str, group: &str, name: &str, errors: &[FieldError]) -> Self {
        let listed: Vec<String> = errors
            .iter()
            .map(|error| format!("{}: {}", error.field, error.message))
            .collect();
        let listed = match listed.as_slice() {
            [one] => one.clone(),
            more => format!("[{}]", more.join(", ")),
        };
        let causes: Vec<Value> = errors
            .iter()
            .map(|error| json!({"reason": error.reason, "message": error.message, "field": error.field}))
            .collect();
        let mut details = json!({"kind": kind, "causes": causes});
        if !name.is_empty() {
            details["name"] = json!(name);
        }
        if !group.is_empty() {
            details["group"] = json!(group);
        }
        let message = format!("{} {name:?} is invalid: {listed}", qualify(kind, group));
        Self::new(422, "Invalid", message, Some(details))
    }

    /// A patch that cannot be applied, a failed `test` among them. The API server does not say why.
    pub(super) fn unprocessable_patch() -> Self {
        let message = "the server rejected our request due to an error in our request";
        Self::new(422, "Invalid", message, Some(json!({})))
    }

    pub(super) fn internal(why: &str) -> Self {
        let message = format!("Internal error occurred: {why}");
        Self::new(
            500,
            "InternalError",
            message,
            Some(json!({"causes": [{"message": why}]})),
        )
    }

    /// The whole request took longer than it may.
    pub(super) fn timeout() -> Self {
        let message =
            "Timeout: request did not complete within requested timeout - context deadline exceeded";
        Self::new(504, "Timeout", message, Some(json!({})))
    }

    /// The timeout that the client sent has passed.
    pub(super) fn allotted_time_is_over() -> Self {
        let message = "Timeout: request did not complete within the allotted timeout";
        Self::new(504, "Timeout", message, Some(json!({})))
    }

    /// The store did not reach the revision that the client asked for.
    pub(super) fn too_large_version(wanted: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {wanted}, current: {current}");
        let causes = json!([{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]);
        Self::new(
            504,
            "Timeout",
            message,
            Some(json!({"causes": causes, "retryAfterSeconds": 1})),
        )
    }

    pub(super) fn too_many_requests() -> Self {
        let message = "Too many requests, please try again later.";
        Self::new(
            429,
            "TooManyRequests",
            message,
            Some(json!({"retryAfterSeconds": 1})),
        )
    }

    pub(super) fn too_large(limit: usize) -> Self {
        let message = format!("Request entity too large: limit is {limit}");
        Self::new(413, "RequestEntityTooLarge", message, None)
    }

    pub(super) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message, None)
    }

    pub(super) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message, Some(json!({})))
    }

    pub(super) fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::new(415, "UnsupportedMediaType", message, None)
    }
}

fn details(kind: &ServedKind, name: &str) -> Value {
    let mut details = json!({"kind": kind.resource});
    if !name.is_empty() {
        details["name"] = json!(name);
    }
    if !kind.group.is_empty() {
        details["group"] = json!(kind.group);
    }
    details
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::api::kinds::VALIDATING;

    #[test]
    fn an_invalid_object_lists_every_field_in_one_sentence() {
        let errors = [
            FieldError::required("webhooks[0].sideEffects", ""),
            FieldError::duplicate("webhooks[1].name", &json!("a")),
        ];
        let failure = ApiFailure::invalid(VALIDATING, "policy", &errors);
        assert_eq!(failure.code, 422);
        assert_eq!(
            failure.message(),
            "ValidatingWebhookConfiguration.admissionregistration.k8s.io \"policy\" is invalid: \
             [webhooks[0].sideEffects: Required value, webhooks[1].name: Duplicate value: \"a\"]"
        );
        assert_eq!(
            failure.status["details"]["causes"][1]["field"],
            "webhooks[1].name"
        );
    }

    #[test]
    fn a_missing_object_is_named_with_its_group() {
        let failure = ApiFailure::not_found(VALIDATING, "policy");
        assert_eq!(
            failure.message(),
            "validatingwebhookconfigurations.admissionregistration.k8s.io \"policy\" not found"
        );
    }
}
