//! Reviews: requests that are posted, answered and not stored. Hooks are still called for them (in Kubernetes 1.36; not
//! any more from 1.37).

use http::Response;
use serde_json::{Value, json};

use super::super::defaults;
use super::super::reply::{self, Body};
use super::super::status::ApiFailure;
use super::{WriteRequest, object};

impl WriteRequest<'_> {
    /// Calls the hooks for the review and answers it as a server that permits everything.
    pub(super) async fn review(&self, mut sent: Value) -> Result<Response<Body>, ApiFailure> {
        let kind = self.request.kind;
        object::check_type(kind, &mut sent)?;
        if kind.namespaced {
            sent["metadata"]["namespace"] = json!(self.request.namespace);
        }
        defaults::default(kind, &mut sent);
        let mut attributes = self.attributes("CREATE", "")?;
        attributes.object = Some(sent);
        self.state
            .admission
            .mutate(self.around(), &mut attributes)
            .await?;
        self.state.admission.validate(self.around(), &attributes).await?;
        let mut answer = attributes.object.take().unwrap_or_default();
        answer["status"] = match kind.kind {
            // No token is looked up here: the lab's only token never comes in a review.
            "TokenReview" => json!({"user": {}, "error": "invalid bearer token"}),
            "SelfSubjectReview" => {
                json!({"userInfo": {"username": self.user.name, "groups": self.user.groups}})
            }
            "SelfSubjectRulesReview" => json!({
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
                "nonResourceRules": [],
                "incomplete": false,
            }),
            _ => json!({"allowed": true}),
        };
        Ok(reply::value(201, &answer))
    }
}
