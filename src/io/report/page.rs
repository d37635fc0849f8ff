//! The status page: one HTML document, rendered from the newest assessment and the last hour.
//!
//! Everything here is a pure function; `io::http` serves the result. In an outage this page may be the only view, so it loads
//! no other resource, works without scripts, and stays small: each part has a byte limit, and the page says how many entries
//! did not fit; the API has them. Sentences about the cluster come from `diagnose` and Events, none from here.

mod breaker;
mod findings;
mod hooks;
pub mod past;
mod plane;
mod text;
mod timeline;

use std::time::Duration;

use aws_lc_rs::digest;
use base64::Engine as _;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use self::past::{Past, ShownPast};
use self::text::Foreign;
use crate::domain::diagnose::verdict::Verdict;
use crate::domain::report::assessment::Assessment;

/// The style sheet, inlined.
const STYLE: &str = include_str!("page/page.css");
/// The script that keeps the page current, inlined.
const SCRIPT: &str = include_str!("page/page.js");
/// An inline icon, a ring, so that browsers do not request `/favicon.ico`.
const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E\
                    %3Ccircle cx='8' cy='8' r='6' fill='none' stroke='%23888' stroke-width='3'/%3E%3C/svg%3E";
/// Most bytes of the changing part of the page, so that the whole page stays below 200 kB.
const FRAGMENT: usize = 172_000;
/// Bytes reserved for what follows the table of hooks.
const AFTER: usize = 34_000;

/// The data from which a page is rendered.
#[derive(Debug, Clone)]
pub struct Model {
    assessment: std::sync::Arc<Assessment>,
    past: ShownPast,
    /// The time since the last assessment, if it is so long that the page is outdated.
    silent: Option<Duration>,
}

impl Model {
    /// Copies from `past` what the page of this assessment shows. `silent`: the time since the last assessment, if it is so long
    /// that the page has to warn.
    pub fn new(assessment: std::sync::Arc<Assessment>, past: &Past, silent: Option<Duration>) -> Self {
        let drawn = hooks::in_full(&assessment.hooks).iter();
        let past = past.show(drawn, assessment.at);
        Self {
            assessment,
            past,
            silent,
        }
    }

    /// Renders the changing part of the page. `model` is `None` before the first assessment.
    pub fn fragment(model: Option<&Self>) -> String {
        let body = match model {
            Some(model) => model.body(),
            None => html! {
                section #verdict.unknown { p.state { "Starting" } h1 { "No verdict yet." } }
            },
        };
        html! { main #page { (body) } }.into_string()
    }

    fn body(&self) -> Markup {
        let assessment = &*self.assessment;
        let plane = &assessment.control_plane;
        let is_calm = leading(assessment).is_none();
        let findings = findings::section(&assessment.audit, is_calm, assessment.at);
        let above = html! {
            (plane::verdict(assessment, self.silent))
            (breaker::standings(assessment))
            (timeline::figure(&self.past, plane.usual_write_seconds, assessment.at))
            @if is_calm { (findings) }
        };
        let used = above.0.len() + findings.0.len() + AFTER;
        html! {
            a.skip href="#hooks" { "Skip to the webhooks" }
            (above)
            (hooks::table(assessment, &self.past, |rows| FRAGMENT.saturating_sub(used + rows)))
            // Risks come after current failures.
            @if !is_calm { (findings) }
            (hooks::happened(&self.past, assessment))
            (plane::sources(assessment))
        }
    }
}

/// The whole HTML document around the changing part. `cluster`: the configured name of the cluster.
pub fn document(fragment: &str, cluster: Option<&str>) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                noscript { meta http-equiv="refresh" content="15"; }
                title { "hookwatch" }
                link rel="icon" href=(ICON);
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    b { "hookwatch" @if let Some(cluster) = cluster { " · " (Foreign(cluster)) } }
                    span #live role="status" { noscript { "reloads every 15 s" } }
                }
                (PreEscaped(fragment))
                footer {
                    a href="/api/v1/assessment" { "assessment as JSON" }
                    span { "version " (env!("CARGO_PKG_VERSION")) " · times in UTC" }
                }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    }
    .into_string()
}

/// The page's Content-Security-Policy: permits its inline style and script by hash, its inline icon, and requests to its own
/// server.
pub fn content_security_policy() -> String {
    let hash = |text: &str| {
        let digest = digest::digest(&digest::SHA256, text.as_bytes());
        base64::engine::general_purpose::STANDARD.encode(digest)
    };
    format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        hash(SCRIPT),
        hash(STYLE)
    )
}

/// The culprit at the top of the page: the first that a person can bypass manually, else the first.
fn leading(assessment: &Assessment) -> Option<&Verdict> {
    let mut culprits = assessment.culprits();
    let first = assessment.culprits().next();
    culprits.find(|verdict| verdict.by_hand.is_some()).or(first)
}
