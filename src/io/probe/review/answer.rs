//! Would the API server accept this answer?
//!
//! The rules are those of kube-apiserver 1.36, `admission/plugin/webhook/request/admissionreview.go`. The
//! content type does not matter to it: its decoder for webhooks takes any.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::super::text::bounded;
use super::Review;

/// As much of the answer as has a type that decoding can trip over.
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
}

/// Whether the hook allowed the object.
///
/// # Errors
/// What is wrong with the answer.
pub(in super::super) fn check(review: &Review, body: &[u8]) -> Result<bool, String> {
    let envelope: Envelope =
        serde_json::from_slice(body).map_err(|error| bounded(&format!("not an AdmissionReview: {error}")))?;
    let response = envelope.response.ok_or("the response is absent")?;
    // The API server never looked at these in v1beta1.
    if review.version == "v1" {
        let uid = response.uid.unwrap_or_default();
        if uid != review.uid {
            return Err(bounded(&format!(
                "response.uid is {uid:?} instead of that of the request, {:?}",
                review.uid
            )));
        }
        let (version, kind) = (
            envelope.api_version.unwrap_or_default(),
            envelope.kind.unwrap_or_default(),
        );
        if version != "admission.k8s.io/v1" || kind != "AdmissionReview" {
            return Err(bounded(&format!(
                "apiVersion and kind are {version:?} and {kind:?} instead of admission.k8s.io/v1 and AdmissionReview"
            )));
        }
        let has_patch = response.patch.as_deref().is_some_and(|patch| !patch.is_empty());
        match (review.mutating, has_patch, response.patch_type.as_deref()) {
            (false, true, _) => return Err("a validating webhook may not return response.patch".into()),
            (false, _, Some(_)) => {
                return Err("a validating webhook may not return response.patchType".into());
            }
            (true, true, None) => return Err("response.patch without response.patchType".into()),
            (true, false, Some(_)) => return Err("response.patchType without response.patch".into()),
            (true, true, Some(kind)) if kind != "JSONPatch" => {
                return Err(bounded(&format!(
                    "response.patchType is {kind:?} instead of JSONPatch"
                )));
            }
            _ => {}
        }
    }
    if let Some(patch) = response.patch.filter(|_| review.mutating) {
        check_patch(&patch)?;
    }
    Ok(response.allowed.unwrap_or(false))
}

/// The patch must decode and be a JSON patch. Whether it applies is between the hook and the object.
fn check_patch(patch: &str) -> Result<(), String> {
    if patch.is_empty() {
        return Ok(());
    }
    let bytes = STANDARD
        .decode(patch)
        .map_err(|error| format!("response.patch is not base64: {error}"))?;
    serde_json::from_slice::<json_patch::Patch>(&bytes)
        .map(drop)
        .map_err(|error| bounded(&format!("response.patch is not a JSON patch: {error}")))
}
