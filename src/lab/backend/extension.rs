//! What conversion webhooks and aggregated API servers answer: ConversionReviews, and the discovery document of an aggregated API.

use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::answer::{AnswerBody, json_answer, text};

/// Answers a request to a conversion webhook: every object in the wanted version, with nothing else changed.
pub(super) fn convert(body: Option<&Bytes>) -> Response<AnswerBody> {
    let review = body.and_then(|body| serde_json::from_slice::<Value>(body).ok());
    match review.as_ref().and_then(converted) {
        Some(answer) => json_answer(&answer),
        None => text(StatusCode::BAD_REQUEST, "the body is not a ConversionReview\n"),
    }
}

fn converted(review: &Value) -> Option<Value> {
    let request = review.get("request")?;
    let wanted = request.get("desiredAPIVersion")?;
    let mut objects = request.get("objects")?.as_array()?.clone();
    for object in &mut objects {
        object
            .as_object_mut()?
            .insert("apiVersion".to_owned(), wanted.clone());
    }
    Some(json!({
        "apiVersion": review.get("apiVersion")?,
        "kind": "ConversionReview",
        "response": {
            "uid": request.get("uid")?,
            "convertedObjects": objects,
            "result": {"status": "Success"},
        },
    }))
}

/// Answers a request to an aggregated API server that serves no resources: the document of `/apis/GROUP/VERSION`.
pub(super) fn discover(path: &str) -> Response<AnswerBody> {
    match path.strip_prefix("/apis/").filter(|at| at.contains('/')) {
        Some(group_version) => json_answer(&json!({
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": group_version,
            "resources": [],
        })),
        None => text(StatusCode::NOT_FOUND, "404 page not found\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_comes_back_in_the_wanted_version_under_the_uid_of_the_request() {
        let review = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": {
            "uid": "u", "desiredAPIVersion": "e/v2",
            "objects": [{"apiVersion": "e/v1", "kind": "W", "spec": {"a": 1}}]}});
        let answer = converted(&review).expect("an answer");
        assert_eq!(answer["response"]["uid"], "u");
        assert_eq!(
            answer["response"]["convertedObjects"][0],
            json!({"apiVersion": "e/v2", "kind": "W", "spec": {"a": 1}})
        );
        assert_eq!(
            converted(&json!({"kind": "AdmissionReview", "request": {}})),
            None
        );
        assert_eq!(convert(None).status(), StatusCode::BAD_REQUEST);
    }

    #[test]
    fn only_the_discovery_document_is_served() {
        assert_eq!(discover("/apis/e/v1").status(), StatusCode::OK);
        assert_eq!(discover("/metrics").status(), StatusCode::NOT_FOUND);
    }
}
