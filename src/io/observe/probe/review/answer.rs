//! Would the API server accept this answer?
//!
//! The rules are those of kube-apiserver 1.36, `admission/plugin/webhook/request/admissionreview.go`, each
//! tried on a real one. Its decoder takes any content type, and YAML as well as JSON; it refuses values of
//! the wrong type and does not mind fields it does not know.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::Review;
use crate::io::observe::probe::brief;

/// The fields whose type the API server's decoder checks, also those that are not used here.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    api_version: Option<String>,
    kind: Option<String>,
    response: Option<Response>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    uid: Option<String>,
    allowed: Option<bool>,
    #[serde(rename = "status")]
    _status: Option<Status>,
    patch: Option<String>,
    patch_type: Option<String>,
    #[serde(rename = "auditAnnotations")]
    _audit_annotations: Option<BTreeMap<String, Option<String>>>,
    #[serde(rename = "warnings")]
    _warnings: Option<Vec<Option<String>>>,
}

#[derive(Deserialize)]
struct Status {
    #[serde(rename = "code")]
    _code: Option<i32>,
    #[serde(rename = "message")]
    _message: Option<String>,
    #[serde(rename = "reason")]
    _reason: Option<String>,
    #[serde(rename = "details")]
    _details: Option<Map<String, Value>>,
}

/// Whether an answer to the review `uid` of `admission.k8s.io/v1` allows the object.
///
/// # Errors
/// Why the API server would not accept it, in one sentence.
pub fn check_answer(uid: &str, mutating: bool, body: &[u8]) -> Result<bool, String> {
    let asked = Review {
        version: "v1",
        uid: uid.to_owned(),
        mutating,
        body: Vec::new(),
    };
    check(&asked, body)
}

/// Whether the hook allowed the object.
pub(in super::super) fn check(review: &Review, body: &[u8]) -> Result<bool, String> {
    let envelope: Envelope = decode(body)
        .and_then(serde_json::from_value)
        .map_err(|error| brief(&format!("not an AdmissionReview: {error}")))?;
    let response = envelope.response.ok_or("the response is absent")?;
    // For v1beta1 the API server checks none of these.
    if review.version == "v1" {
        let uid = response.uid.unwrap_or_default();
        if uid != review.uid {
            return Err(brief(&format!(
                "response.uid is {uid:?} instead of that of the request, {:?}",
                review.uid
            )));
        }
        let (version, kind) = (
            envelope.api_version.unwrap_or_default(),
            envelope.kind.unwrap_or_default(),
        );
        if version != "admission.k8s.io/v1" || kind != "AdmissionReview" {
            return Err(brief(&format!(
                "it is a {kind:?} of {version:?} instead of an AdmissionReview of admission.k8s.io/v1 (kind, apiVersion)"
            )));
        }
        let has_patch = response.patch.as_deref().is_some_and(|patch| !patch.is_empty());
        match (review.mutating, has_patch, &response.patch_type) {
            (false, true, _) => return Err("a validating webhook may not return response.patch".into()),
            (false, _, Some(_)) => {
                return Err("a validating webhook may not return response.patchType".into());
            }
            (true, true, None) => return Err("response.patch without response.patchType".into()),
            (true, false, Some(_)) => return Err("response.patchType without response.patch".into()),
            _ => {}
        }
    }
    if let Some(patch) = response
        .patch
        .filter(|patch| review.mutating && !patch.is_empty())
    {
        check_patch(&patch, response.patch_type.as_deref().unwrap_or("JSONPatch"))?;
    }
    Ok(response.allowed.unwrap_or(false))
}

/// Decodes JSON, or else YAML. Of duplicate fields the last one counts, as in Go. When both fail, the error is that of JSON, which
/// webhooks intend to send.
fn decode(body: &[u8]) -> Result<Value, serde_json::Error> {
    serde_json::from_slice(body).or_else(|error| {
        let text = std::str::from_utf8(body).map(str::trim);
        match text {
            Ok(text) if !text.is_empty() => serde_saphyr::from_str(text).map_err(|_| error),
            _ => Err(error),
        }
    })
}

/// Checks that the patch decodes to a JSON patch, not whether it applies to the object.
fn check_patch(patch: &str, kind: &str) -> Result<(), String> {
    let bytes = STANDARD
        .decode(patch)
        .map_err(|error| format!("response.patch is not base64: {error}"))?;
    let steps: json_patch::Patch = serde_json::from_slice(&bytes)
        .map_err(|error| brief(&format!("response.patch is not a JSON patch: {error}")))?;
    // The API server looks at the type only when there is something to apply.
    if kind != "JSONPatch" && !steps.is_empty() {
        return Err(brief(&format!(
            "response.patchType is {kind:?} instead of JSONPatch"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn review(mutating: bool) -> Review {
        Review {
            version: "v1",
            uid: "u".to_owned(),
            mutating,
            body: Vec::new(),
        }
    }

    fn answer(response: &str) -> String {
        format!(r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{response}}}"#)
    }

    /// What a real kube-apiserver 1.36.2 accepted.
    #[test]
    fn what_the_api_server_takes_is_taken() {
        for body in [
            answer(r#"{"uid":"u","allowed":true,"foo":1}"#),
            answer(r#"{"uid":"u","allowed":true,"patch":""}"#),
            answer(r#"{"uid":"u","allowed":true,"patch":null,"patchType":null,"status":null}"#),
            answer(r#"{"uid":"x","uid":"u","allowed":true}"#),
            format!("\u{feff}{}", answer(r#"{"uid":"u","allowed":true}"#)),
            "apiVersion: admission.k8s.io/v1\nkind: AdmissionReview\nresponse:\n  uid: u\n  allowed: true\n"
                .to_owned(),
        ] {
            assert_eq!(check(&review(false), body.as_bytes()), Ok(true), "{body}");
            assert_eq!(check(&review(true), body.as_bytes()), Ok(true), "{body}");
        }
        let unused_type = answer(r#"{"uid":"u","allowed":true,"patch":"W10=","patchType":"MergePatch"}"#);
        assert_eq!(check(&review(true), unused_type.as_bytes()), Ok(true));
        assert_eq!(
            check(&review(false), answer(r#"{"uid":"u"}"#).as_bytes()),
            Ok(false)
        );
    }

    /// What it refused.
    #[test]
    fn what_the_api_server_refuses_is_refused() {
        let good = answer(r#"{"uid":"u","allowed":true}"#);
        for body in [
            String::new(),
            "\u{feff}".to_owned(),
            "<html>".to_owned(),
            format!("{good} garbage"),
            good.replace("response", "Response"),
            answer(r#"{"uid":"u","allowed":"true"}"#),
            answer(r#"{"uid":"u","allowed":true,"status":"x"}"#),
            answer(r#"{"uid":"u","allowed":true,"status":{"code":"403"}}"#),
            answer(r#"{"uid":"u","allowed":true,"status":{"details":5}}"#),
            answer(r#"{"uid":"u","allowed":true,"warnings":[1]}"#),
            answer(r#"{"allowed":true}"#),
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500}).to_string(),
            "response:\n  uid: u\n  allowed: \"true\"\n".to_owned(),
        ] {
            assert!(check(&review(false), body.as_bytes()).is_err(), "{body}");
            assert!(check(&review(true), body.as_bytes()).is_err(), "{body}");
        }
    }

    #[test]
    fn nothing_that_comes_in_makes_it_stumble() {
        let deep = "[".repeat(100_000);
        let aliases = (0..40).fold("a0: &a0 [x]\n".to_owned(), |text, n| {
            format!("{text}a{m}: &a{m} [*a{n}, *a{n}]\n", m = n + 1)
        });
        for body in [
            deep.as_bytes(),
            aliases.as_bytes(),
            &[0xff; 1_000],
            b"\0",
            b"*a",
            b"--- --- ---",
        ] {
            assert!(check(&review(true), body).is_err());
        }
    }
}
