//! The status page over HTTP: rendered at most once a second for all clients.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::cached::Cached;
use super::{LastJudged, STOPPING};
use crate::io::lock;
use crate::io::report::Reported;
use crate::io::report::page;
use crate::io::report::page::Model;

/// What draws the page. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct StatusPage {
    shown: Reported,
    judged: LastJudged,
    drawn: Cached<Arc<str>>,
    policy: HeaderValue,
    cluster: Option<Arc<str>>,
}

impl StatusPage {
    pub(super) fn new(shown: Reported, judged: LastJudged, cluster: Option<String>) -> Self {
        let policy = HeaderValue::from_str(&page::content_security_policy());
        Self {
            shown,
            judged,
            drawn: Cached::default(),
            cluster: cluster.map(Arc::from),
            // The policy is visible ASCII, so the fallback, which allows nothing, is never used.
            policy: policy.unwrap_or(HeaderValue::from_static("default-src 'none'")),
        }
    }

    /// The changing part of the page.
    fn draw(&self) -> Arc<str> {
        let assessment = self.shown.assessment.borrow().clone();
        let silent = Some(self.judged.elapsed()).filter(|silent| *silent >= super::JUDGES_WITHIN);
        let model = assessment.map(|assessment| {
            let past = lock(&self.shown.past);
            Model::new(assessment, &past, silent)
        });
        Model::fragment(model.as_ref()).into()
    }

    /// An answer with what `whole` makes of the changing part.
    async fn with_fragment(&self, whole: impl FnOnce(&str) -> String) -> Response {
        let page = self.clone();
        match self.drawn.get(move || page.draw()).await {
            Some(fragment) => self.answer(whole(&fragment)),
            None => (StatusCode::INTERNAL_SERVER_ERROR, STOPPING).into_response(),
        }
    }

    fn answer(&self, body: String) -> Response {
        let fixed = [
            (header::CONTENT_TYPE, "text/html; charset=utf-8"),
            (header::CACHE_CONTROL, "no-store"),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::REFERRER_POLICY, "no-referrer"),
            (header::X_FRAME_OPTIONS, "DENY"),
            (
                HeaderName::from_static("cross-origin-opener-policy"),
                "same-origin",
            ),
            (
                HeaderName::from_static("cross-origin-resource-policy"),
                "same-origin",
            ),
        ];
        let policy = [(header::CONTENT_SECURITY_POLICY, self.policy.clone())];
        (StatusCode::OK, policy, fixed, body).into_response()
    }
}

pub(super) async fn whole(State(status): State<StatusPage>) -> Response {
    let document = |fragment: &str| page::document(fragment, status.cluster.as_deref());
    status.with_fragment(document).await
}

/// The changing part of the page, which the page's own script fetches.
pub(super) async fn fragment(State(status): State<StatusPage>) -> Response {
    status.with_fragment(str::to_owned).await
}
