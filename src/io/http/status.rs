//! The status page over HTTP: drawn at most once a second, however many look at it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::LastJudged;
use crate::io::report::Reported;
use crate::io::report::page;
use crate::io::report::page::Model;

/// A page that was drawn is shown for so long.
const DRAWN_FOR: Duration = Duration::from_millis(900);

/// What draws the page. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct StatusPage {
    shown: Reported,
    judged: LastJudged,
    drawn: Arc<Mutex<Option<Drawn>>>,
    policy: HeaderValue,
}

/// The changing part of the page as it was at an instant.
#[derive(Debug)]
struct Drawn {
    at: Instant,
    fragment: Arc<str>,
}

impl StatusPage {
    pub(super) fn new(shown: Reported, judged: LastJudged) -> Self {
        let policy = HeaderValue::from_str(&page::content_security_policy());
        Self {
            shown,
            judged,
            drawn: Arc::default(),
            // It is of visible ASCII; were it not, nothing at all would be the right policy.
            policy: policy.unwrap_or(HeaderValue::from_static("default-src 'none'")),
        }
    }

    fn fragment(&self) -> Arc<str> {
        let mut drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = &*drawn
            && last.at.elapsed() < DRAWN_FOR
        {
            return Arc::clone(&last.fragment);
        }
        let assessment = self.shown.assessment.borrow().clone();
        let silent = Some(self.judged.elapsed()).filter(|silent| *silent >= super::JUDGES_WITHIN);
        let model = assessment.map(|assessment| {
            let past = self.shown.past.lock().unwrap_or_else(PoisonError::into_inner);
            Model::new(assessment, &past, silent)
        });
        let fragment: Arc<str> = Model::fragment(model.as_ref()).into();
        *drawn = Some(Drawn {
            at: Instant::now(),
            fragment: Arc::clone(&fragment),
        });
        fragment
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

/// The whole page.
pub(super) async fn whole(State(status): State<StatusPage>) -> Response {
    status.answer(page::document(&status.fragment()))
}

/// The part of it that changes, for its own script.
pub(super) async fn fragment(State(status): State<StatusPage>) -> Response {
    status.answer(status.fragment().to_string())
}
