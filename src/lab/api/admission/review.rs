//! AdmissionReview objects: what is sent to a hook and what may come back.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::Attributes;

/// The AdmissionRequest without its objects and uid: what match conditions see. Fields that are not set are absent.
pub(super) fn request(attributes: &Attributes) -> Value {
    let kind = attributes.kind;
    let (group, version, object_kind) = attributes.object_kind;
    let of_kind = json!({"group": group, "version": version, "kind": object_kind});
    let resource = json!({"group": kind.group, "version": kind.version, "resource": kind.resource});
    let mut user = json!({"username": attributes.user.name});
    if !attributes.user.uid.is_empty() {
        user["uid"] = json!(attributes.user.uid);
    }
    if !attributes.user.groups.is_empty() {
        user["groups"] = json!(attributes.user.groups);
    }
    let mut request = json!({
        "kind": of_kind,
        "resource": resource,
        "requestKind": of_kind,
        "requestResource": resource,
        "operation": attributes.operation,
        "userInfo": user,
        "dryRun": attributes.dry_run,
        "options": attributes.options,
    });
    for (field, value) in [
        ("name", &attributes.name),
        ("namespace", &attributes.namespace),
        ("subResource", &attributes.subresource),
        ("requestSubResource", &attributes.subresource),
    ] {
        if !value.is_empty() {
            request[field] = json!(value);
        }
    }
    request
}

/// The whole AdmissionReview for one hook, in its preferred version.
pub(super) fn review(attributes: &Attributes, version: &str, uid: &str) -> Value {
    let mut request = request(attributes);
    request["uid"] = json!(uid);
    request["object"] = attributes.object.clone().unwrap_or_default();
    request["oldObject"] = attributes
        .old
        .as_ref()
        .map(|old| old.object.clone())
        .unwrap_or_default();
    json!({
        "kind": "AdmissionReview",
        "apiVersion": format!("admission.k8s.io/{version}"),
        "request": request,
    })
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct AdmissionAnswer {
    pub allowed: bool,
    /// `response.status`.
    pub result: Value,
    /// The decoded JSON patch.
    pub patch: Option<Value>,
    pub warnings: Vec<String>,
}

/// Why an answer is not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unacceptable {
    /// Not decodable at all: the call counts as failed.
    Undecodable(String),
    /// Decodable, but not the answer to what was asked.
    Invalid(String),
}

/// Checks an answer the way `VerifyAdmissionResponse` does, and in its order.
pub(super) fn verify(
    body: &[u8],
    version: &str,
    uid: &str,
    mutating: bool,
) -> Result<AdmissionAnswer, Unacceptable> {
    // The API server reads answers as YAML, so it takes text that is not JSON for a string.
    let answer = match serde_json::from_slice(body) {
        Ok(answer @ Value::Object(_)) => answer,
        other => return Err(Unacceptable::Undecodable(no_object(&other.unwrap_or_default()))),
    };
    let text_of = |field: &str| answer[field].as_str().unwrap_or_default();
    let (api_version, kind) = (text_of("apiVersion"), text_of("kind"));
    let typed = !api_version.is_empty() && !kind.is_empty();
    if typed && (api_version, kind) != (&format!("admission.k8s.io/{version}"), "AdmissionReview") {
        return Err(Unacceptable::Undecodable(unknown_type(
            api_version,
            kind,
            version,
        )));
    }
    let response = &answer["response"];
    if !response.is_object() {
        return Err(Unacceptable::Invalid("webhook response was absent".to_owned()));
    }
    if version == "v1" {
        verify_v1((api_version, kind), response, uid, mutating).map_err(Unacceptable::Invalid)?;
    }
    let patch = response["patch"].as_str().filter(|patch| !patch.is_empty());
    let warnings = response["warnings"].as_array().into_iter().flatten();
    Ok(AdmissionAnswer {
        allowed: response["allowed"].as_bool().unwrap_or_default(),
        result: response["status"].clone(),
        patch: patch.filter(|_| mutating).map(decoded),
        warnings: warnings
            .filter_map(|warning| Some(warning.as_str()?.to_owned()))
            .collect(),
    })
}

/// What v1 demands beyond v1beta1.
fn verify_v1(
    (api_version, kind): (&str, &str),
    response: &Value,
    uid: &str,
    mutating: bool,
) -> Result<(), String> {
    let text = |field: &str| response[field].as_str().unwrap_or_default();
    if text("uid") != uid {
        let got = text("uid");
        return Err(format!("expected response.uid={uid:?}, got {got:?}"));
    }
    if (api_version, kind) != ("admission.k8s.io/v1", "AdmissionReview") {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        return Err(format!(
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {group}/{version}, Kind={kind}"
        ));
    }
    let breach = match (mutating, text("patch").is_empty(), response["patchType"].as_str()) {
        (true, false, None) => "webhook returned response.patch but not response.patchType",
        (true, true, Some(_)) => "webhook returned response.patchType but not response.patch",
        (false, false, _) => "validating webhook may not return response.patch",
        (false, _, Some(_)) => "validating webhook may not return response.patchType",
        _ => return Ok(()),
    };
    Err(breach.to_owned())
}

/// The decoded JSON patch; null when it is not base64 of JSON.
fn decoded(patch: &str) -> Value {
    let bytes = BASE64_STANDARD.decode(patch).ok();
    let patch = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    patch.unwrap_or(Value::Null)
}

/// Go's words for a JSON value that is no object.
fn no_object(found: &Value) -> String {
    let found = match found {
        Value::Array(_) => "array",
        Value::Number(_) => "number",
        Value::Bool(_) => "bool",
        _ => "string",
    };
    format!(
        "couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go value of type struct {{ \
         APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
    )
}

/// The API server's words for an object of another type than the one it asked for.
fn unknown_type(api_version: &str, kind: &str, version: &str) -> String {
    match (api_version.strip_prefix("admission.k8s.io/"), kind) {
        (Some(found @ ("v1" | "v1beta1")), "AdmissionReview") => {
            format!("converting ({found}.AdmissionReview) to ({version}.AdmissionReview): unknown conversion")
        }
        _ => format!(
            "no kind {kind:?} is registered for version {api_version:?} in scheme \
             \"k8s.io/apiserver/pkg/util/webhook/client.go:71\""
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invalid(body: &Value, mutating: bool) -> String {
        match verify(body.to_string().as_bytes(), "v1", "u", mutating) {
            Err(Unacceptable::Invalid(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_breach_of_the_protocol_is_named_in_the_api_servers_words() {
        assert_eq!(invalid(&json!({}), false), "webhook response was absent");
        assert_eq!(
            invalid(&json!({"response": {"uid": "x"}}), false),
            "expected response.uid=\"u\", got \"x\""
        );
        assert_eq!(
            invalid(&json!({"response": {"uid": "u"}}), false),
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind="
        );
        let with = |more: Value| {
            let mut response = more;
            response["uid"] = json!("u");
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
        };
        assert_eq!(
            invalid(&with(json!({"patch": "W10="})), false),
            "validating webhook may not return response.patch"
        );
        assert_eq!(
            invalid(&with(json!({"patch": "W10="})), true),
            "webhook returned response.patch but not response.patchType"
        );
    }

    #[test]
    fn what_is_no_json_cannot_be_decoded() {
        assert!(matches!(
            verify(b"<html>", "v1", "u", false),
            Err(Unacceptable::Undecodable(_))
        ));
    }
}
