//! The span of one observation, and the spans of its phases.
//!
//! A span begins before its observation, because a probe carries the span's id in `traceparent`. Most attributes are set when
//! the report arrives. The spans of a probe's phases have their measured durations and adjoin each other, the last ending with
//! the probe.

use std::sync::Arc;
use std::time::SystemTime;

use http::HeaderValue;
use opentelemetry::KeyValue;
use opentelemetry::trace::{Span as _, SpanBuilder, Status};
use opentelemetry_sdk::trace::Span;

use super::trace::{Rounds, system};
use crate::domain::cluster::hook::{Backend, BackendAddress, HookId};
use crate::domain::observe::canary::{CanaryOutcome, CanaryReport};
use crate::domain::observe::probe::{ProbeAnswer, ProbeOutcome, ProbePhase, ProbeReport};
use crate::domain::observe::snapshot::{Scrape, ScrapeFailure};
use crate::domain::time::{Time, WallReading};

/// The span of an observation in progress; empty if traces are off. Dropping it ends the span at that moment.
#[derive(Debug, Default)]
pub struct ObservationSpan(pub(super) Option<Box<OpenSpan>>);

#[derive(Debug)]
pub(super) struct OpenSpan {
    rounds: Arc<Rounds>,
    span: Span,
    wall: WallReading,
}

impl ObservationSpan {
    pub(super) fn new(rounds: Arc<Rounds>, span: Span, wall: WallReading) -> Self {
        Self(Some(Box::new(OpenSpan { rounds, span, wall })))
    }

    pub(super) fn of_probe(self, hook: &HookId, backend: &Backend) -> Self {
        self.with(|| {
            let (host, port) = match &backend.address {
                BackendAddress::Socket(address) => (address.ip().to_string(), address.port()),
                BackendAddress::Host(host, port) => (host.clone(), *port),
            };
            vec![
                KeyValue::new("hookwatch.hook.kind", hook.kind.as_str()),
                KeyValue::new("hookwatch.hook.configuration", Arc::clone(&hook.configuration)),
                KeyValue::new("hookwatch.hook.webhook", Arc::clone(&hook.webhook)),
                KeyValue::new("hookwatch.backend.path", backend.path.as_str()),
                KeyValue::new("server.address", host),
                KeyValue::new("server.port", i64::from(port)),
            ]
        })
    }

    pub(super) fn with(mut self, attributes: impl FnOnce() -> Vec<KeyValue>) -> Self {
        self.set(attributes);
        self
    }

    /// The W3C `traceparent` header that propagates the span to a backend; `None` if traces or propagation are off.
    pub fn traceparent(&self) -> Option<HeaderValue> {
        let open = self.0.as_ref().filter(|open| open.rounds.propagate)?;
        let context = open.span.span_context();
        let header = format!(
            "00-{}-{}-{:02x}",
            context.trace_id(),
            context.span_id(),
            context.trace_flags().to_u8()
        );
        HeaderValue::try_from(header).ok()
    }

    /// Ends the span of a probe, with its outcome and a child span per phase.
    pub fn probed(mut self, report: &ProbeReport) {
        let outcome = &report.outcome;
        self.set(|| {
            let mut attributes = vec![
                KeyValue::new("hookwatch.probe.connection", report.connection.as_str()),
                KeyValue::new("hookwatch.probe.outcome", outcome.as_str()),
            ];
            if let ProbeOutcome::Answered(
                ProbeAnswer::Http { status }
                | ProbeAnswer::Discovery { status }
                | ProbeAnswer::ReviewRefused { status },
            ) = outcome
            {
                attributes.push(KeyValue::new("http.response.status_code", i64::from(*status)));
            }
            attributes
        });
        let end = self.date(report.started) + report.took;
        self.phases(report, end);
        self.end(trouble(outcome).map(|why| (outcome.as_str(), why)), end);
    }

    /// Ends the span of a canary, with its outcome.
    pub fn canary_written(mut self, report: &CanaryReport) {
        let outcome = &report.outcome;
        self.set(|| {
            let mut attributes = vec![KeyValue::new("hookwatch.canary.outcome", outcome.as_str())];
            if let CanaryOutcome::CallFailed(failure) = outcome {
                attributes.push(KeyValue::new("hookwatch.hook.webhook", failure.webhook.clone()));
            }
            attributes
        });
        let trouble = match outcome {
            // A denial is a healthy answer of a webhook.
            CanaryOutcome::Written | CanaryOutcome::Denied { .. } => None,
            CanaryOutcome::CallFailed(failure) => Some(failure.text.clone()),
            CanaryOutcome::Forbidden { message }
            | CanaryOutcome::Missing { message }
            | CanaryOutcome::Refused { message, .. } => Some(message.clone()),
            CanaryOutcome::TimedOut => Some("no answer in time".to_owned()),
            CanaryOutcome::Unreachable { why } => Some(why.clone()),
        };
        let end = self.date(report.started) + report.took;
        self.end(trouble.map(|why| (outcome.as_str(), why)), end);
    }

    /// Ends the span of a scrape, with its size or its failure.
    pub fn scraped(mut self, read: Result<&Scrape, &ScrapeFailure>) {
        match read {
            Ok(scrape) => {
                let bytes = i64::try_from(scrape.bytes).unwrap_or(i64::MAX);
                self.set(|| vec![KeyValue::new("hookwatch.scrape.bytes", bytes)]);
                let end = self.date(scrape.at);
                self.end(None, end);
            }
            Err(failure) => {
                let trouble = (failure.reason.as_str(), failure.why.clone());
                let end = self.date(failure.at);
                self.end(Some(trouble), end);
            }
        }
    }

    /// Makes a span for each phase that was reached. If the probe failed, the last one gets the error: the probe failed there.
    fn phases(&self, report: &ProbeReport, end: SystemTime) {
        let Some(open) = self.recording() else {
            return;
        };
        let mut until = end;
        let mut trouble = trouble(&report.outcome).filter(|_| !report.outcome.is_alive());
        for phase in ProbePhase::ALL.into_iter().rev() {
            let Some(took) = report.phases.get(phase) else {
                continue;
            };
            let from = until.checked_sub(took).unwrap_or(until);
            let parent = open.span.span_context().clone();
            let builder = SpanBuilder::from_name(phase.as_str());
            let mut span = open.rounds.child(builder, from, parent);
            if let Some(why) = trouble.take() {
                span.set_status(Status::error(why));
            }
            span.end_with_timestamp(until);
            until = from;
        }
    }

    fn date(&self, time: Time) -> SystemTime {
        let wall = self
            .0
            .as_ref()
            .map_or_else(WallReading::default, |open| open.wall);
        system(wall, time)
    }

    fn recording(&self) -> Option<&OpenSpan> {
        self.0.as_deref().filter(|open| open.span.is_recording())
    }

    /// Adds attributes. They are computed only if the span is recording.
    fn set(&mut self, attributes: impl FnOnce() -> Vec<KeyValue>) {
        if self.recording().is_some()
            && let Some(open) = &mut self.0
        {
            open.span.set_attributes(attributes());
        }
    }

    fn end(self, trouble: Option<(&'static str, String)>, at: SystemTime) {
        let Some(mut open) = self.0 else {
            return;
        };
        if let Some((kind, why)) = trouble {
            open.span.set_attribute(KeyValue::new("error.type", kind));
            open.span.set_status(Status::error(why));
        }
        open.span.end_with_timestamp(at);
    }
}

/// What went wrong in a probe; `None` if nothing did, or nothing that is the backend's fault.
fn trouble(outcome: &ProbeOutcome) -> Option<String> {
    match outcome {
        ProbeOutcome::Answered(ProbeAnswer::Discovery { status })
            if ProbeAnswer::is_no_discovery(*status) =>
        {
            Some(format!("HTTP {status}"))
        }
        ProbeOutcome::Answered(ProbeAnswer::ReviewRefused { status }) => Some(format!("HTTP {status}")),
        ProbeOutcome::Answered(ProbeAnswer::NotAnAdmissionReview { why }) => Some(why.clone()),
        ProbeOutcome::Answered(_)
        | ProbeOutcome::ClientCertificateWanted
        | ProbeOutcome::VerifierDiffers { .. }
        | ProbeOutcome::NotProbed { .. } => None,
        ProbeOutcome::TimedOut { phase } => Some(format!("no more time, {phase}")),
        ProbeOutcome::Refused => Some("connection refused".to_owned()),
        ProbeOutcome::Unreachable { why }
        | ProbeOutcome::Unresolvable { why }
        | ProbeOutcome::TlsRejected { why, .. } => Some(why.clone()),
        ProbeOutcome::Lost { phase, why } => Some(format!("{phase}: {why}")),
    }
}
