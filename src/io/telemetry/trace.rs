//! Traces: observations and the changes of verdicts that result from them, grouped in rounds.
//!
//! Everything is judged up to five times a second, mostly without a change; a trace per judgement would be noise. So a trace is
//! a *round*: it begins when the previous round ends, and its root has a child for everything observed in it. A round ends when
//! a verdict changes, after 15 s, or with 256 observations; this bounds a trace whatever the number of hooks. A
//! change of a verdict is a child, too, with links to the hook's last probes, including those in flight: the trace that the log
//! line names shows what led to the change.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry::trace::{
    Link, Span as _, SpanBuilder, SpanContext, SpanKind, TraceContextExt, TraceId, Tracer as _,
    TracerProvider,
};
use opentelemetry::{Context, InstrumentationScope, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, Span};

use super::SCOPE;
use super::observation::ObservationSpan;
use super::queue::Queue;
use super::settings::TracesSettings;
use crate::domain::cluster::hook::{Backend, HookId};
use crate::domain::diagnose::verdict::{ControlPlane, Verdict};
use crate::domain::observe::canary::CanaryTarget;
use crate::domain::report::assessment::Assessment;
use crate::domain::time::{Time, WallReading};
use crate::domain::vocabulary::Health;
use crate::domain::watchdog::LoggedChange;
use crate::io::report::metrics::Metrics;
use crate::io::{Clock, lock};

/// The longest round without a change; a round without observations may be longer.
const LONGEST: Duration = Duration::from_secs(15);
/// Most observations of one round.
const MOST: usize = 256;
/// Most probes to which a change of a hook's verdict links: its newest ones.
const LINKS: usize = 8;

/// Makes spans. Cheap to clone. If traces are off it is empty, and its spans are, too.
#[derive(Debug, Clone, Default)]
pub struct Tracer(Option<Arc<Rounds>>);

/// The current round, and what all rounds share.
pub(super) struct Rounds {
    tracer: SdkTracer,
    clock: Clock,
    /// Only for [`Metrics::wall`].
    metrics: Arc<Metrics>,
    pub(super) propagate: bool,
    state: Mutex<TraceState>,
}

struct TraceState {
    round: TraceRound,
    /// The newest probes of each hook.
    probes: HashMap<HookId, VecDeque<SpanContext>>,
}

struct TraceRound {
    root: Span,
    began: Time,
    wall: WallReading,
    observations: usize,
    changed: bool,
}

impl Tracer {
    pub(super) fn new(settings: TracesSettings, queue: Queue, clock: &Clock, metrics: &Arc<Metrics>) -> Self {
        let provider = SdkTracerProvider::builder()
            .with_sampler(settings.sampler)
            // The real resource is added when spans are sent; see `queue`.
            .with_resource(Resource::builder_empty().build())
            .with_span_processor(queue)
            .build();
        let scope = InstrumentationScope::builder(SCOPE)
            .with_version(env!("CARGO_PKG_VERSION"))
            .build();
        let tracer = provider.tracer_with_scope(scope);
        let round = TraceRound::begin(&tracer, clock(), metrics.wall.reading());
        Self(Some(Arc::new(Rounds {
            tracer,
            clock: Arc::clone(clock),
            metrics: Arc::clone(metrics),
            propagate: settings.propagate,
            state: Mutex::new(TraceState {
                round,
                probes: HashMap::new(),
            }),
        })))
    }

    /// Begins the span of a probe that `hooks` share. Its attributes name the first; empty if there is none.
    pub fn probe<'a>(
        &self,
        hooks: impl Iterator<Item = &'a HookId> + Clone,
        backend: &Backend,
    ) -> ObservationSpan {
        let Some(first) = hooks.clone().next() else {
            return ObservationSpan::default();
        };
        self.observe("probe", |state, span| {
            for hook in hooks.filter(|_| span.is_sampled()) {
                let probes = state.probes.entry(hook.clone()).or_default();
                probes.truncate(LINKS - 1);
                probes.push_front(span.clone());
            }
        })
        .of_probe(first, backend)
    }

    /// Begins the span of a canary.
    pub fn canary(&self, target: CanaryTarget) -> ObservationSpan {
        let name = || vec![KeyValue::new("hookwatch.canary", target.as_str().to_owned())];
        self.observe("canary", |_, _| {}).with(name)
    }

    /// Begins the span of a scrape.
    pub fn scrape(&self, target: &str) -> ObservationSpan {
        let address = || vec![KeyValue::new("server.address", target.to_owned())];
        self.observe("scrape", |_, _| {}).with(address)
    }

    fn observe(
        &self,
        name: &'static str,
        note: impl FnOnce(&mut TraceState, &SpanContext),
    ) -> ObservationSpan {
        let Some(rounds) = &self.0 else {
            return ObservationSpan::default();
        };
        let (now, mut state) = rounds.now();
        if state.round.observations >= MOST {
            rounds.next(&mut state, now, "full", None);
        }
        state.round.observations += 1;
        let parent = state.round.root.span_context().clone();
        let builder = SpanBuilder::from_name(name).with_kind(SpanKind::Client);
        let wall = rounds.wall();
        let span = rounds.child(builder, system(wall, now), parent);
        note(&mut state, span.span_context());
        drop(state);
        ObservationSpan::new(Arc::clone(rounds), span, wall)
    }

    /// Records a change of a hook or of the control plane as a span. Returns its trace, for the log line; `None` for other changes,
    /// and if the round is not sampled or traces are off.
    pub fn changed(&self, change: &LoggedChange) -> Option<TraceId> {
        let rounds = self.0.as_ref()?;
        let (name, attributes, hook) = match change {
            LoggedChange::Hook { from, verdict } => {
                let well = !matches!(verdict.health, Health::Failing | Health::Suspect);
                // A first verdict that is healthy or unknown is not a change.
                if from.is_none() && well {
                    return None;
                }
                let attributes = of_verdict(verdict, from.map(|(health, _)| health));
                ("verdict", attributes, verdict.hook())
            }
            LoggedChange::ControlPlane(plane) => ("control_plane", of_plane(plane), None),
            _ => return None,
        };
        let (now, mut state) = rounds.now();
        let now = system(rounds.wall(), now);
        state.round.changed = true;
        let parent = state.round.root.span_context().clone();
        if !parent.is_sampled() {
            return None;
        }
        let probes = hook.and_then(|hook| state.probes.get(&hook));
        let links = probes.into_iter().flatten().cloned().map(Link::with_context);
        let builder = SpanBuilder::from_name(name)
            .with_attributes(attributes)
            .with_links(links.collect());
        let trace = parent.trace_id();
        rounds.child(builder, now, parent).end_with_timestamp(now);
        Some(trace)
    }

    /// Ends the round if a verdict has changed in it or it is long enough. The caller calls this after every judgement.
    pub fn judged(&self, assessment: Option<&Assessment>) {
        let Some(rounds) = &self.0 else {
            return;
        };
        let (now, mut state) = rounds.now();
        if state.round.changed {
            rounds.next(&mut state, now, "changed", assessment);
        } else if state.round.observations > 0 && now.since(state.round.began) >= LONGEST {
            rounds.next(&mut state, now, "time", assessment);
        }
    }

    /// Drops the remembered probes of hooks that are no longer in the inventory.
    pub fn keep_only(&self, hooks: &BTreeSet<HookId>) {
        if let Some(rounds) = &self.0 {
            rounds.lock().probes.retain(|hook, _| hooks.contains(hook));
        }
    }

    pub(super) fn end(&self) {
        if let Some(rounds) = &self.0 {
            let (now, mut state) = rounds.now();
            state.round.end(now, "stopped", None);
        }
    }
}

impl fmt::Debug for Rounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rounds").finish_non_exhaustive()
    }
}

impl Rounds {
    pub(super) fn child(&self, builder: SpanBuilder, at: SystemTime, parent: SpanContext) -> Span {
        let parent = Context::new().with_remote_span_context(parent);
        self.tracer
            .build_with_context(builder.with_start_time(at), &parent)
    }

    fn next(&self, state: &mut TraceState, now: Time, why: &'static str, assessment: Option<&Assessment>) {
        state.round.end(now, why, assessment);
        state.round = TraceRound::begin(&self.tracer, now, self.wall());
    }

    /// A reading of the wall clock. A span keeps the one from its start, so that a step of the clock does not distort it.
    fn wall(&self) -> WallReading {
        self.metrics.wall.reading()
    }

    /// Locks the state, then reads the time: a time read before the lock could be earlier than the start of the round.
    fn now(&self) -> (Time, MutexGuard<'_, TraceState>) {
        let state = self.lock();
        ((self.clock)(), state)
    }

    fn lock(&self) -> MutexGuard<'_, TraceState> {
        lock(&self.state)
    }
}

impl TraceRound {
    fn begin(tracer: &SdkTracer, now: Time, wall: WallReading) -> Self {
        let builder = SpanBuilder::from_name("round").with_start_time(system(wall, now));
        Self {
            root: tracer.build_with_context(builder, &Context::new()),
            began: now,
            wall,
            observations: 0,
            changed: false,
        }
    }

    fn end(&mut self, now: Time, why: &'static str, assessment: Option<&Assessment>) {
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.root.set_attribute(KeyValue::new("hookwatch.round.end", why));
        let observations = count(self.observations);
        self.root
            .set_attribute(KeyValue::new("hookwatch.round.observations", observations));
        if let Some(assessment) = assessment {
            let failing = count(assessment.culprits().count());
            let writes = assessment.control_plane.writes.as_str();
            self.root.set_attributes([
                KeyValue::new("hookwatch.hooks", count(assessment.hooks.len())),
                KeyValue::new("hookwatch.hooks.failing", failing),
                KeyValue::new("hookwatch.control_plane.writes", writes),
            ]);
        }
        self.root.end_with_timestamp(system(self.wall, now));
    }
}

fn of_verdict(verdict: &Verdict, from: Option<Health>) -> Vec<KeyValue> {
    let mut attributes = vec![
        KeyValue::new("hookwatch.hook.kind", verdict.kind.as_str()),
        KeyValue::new("hookwatch.hook.webhook", Arc::clone(&verdict.webhook)),
        KeyValue::new("hookwatch.verdict.health", verdict.health.as_str()),
        KeyValue::new("hookwatch.verdict.effect", verdict.effect.as_str()),
        KeyValue::new("hookwatch.verdict.confidence", verdict.confidence),
        KeyValue::new("hookwatch.verdict.summary", verdict.summary.clone()),
        KeyValue::new("hookwatch.verdict.evidence", verdict.evidence.join(" ")),
    ];
    if let Some(configuration) = &verdict.configuration {
        attributes.push(KeyValue::new(
            "hookwatch.hook.configuration",
            Arc::clone(configuration),
        ));
    }
    if let Some(cause) = verdict.cause {
        attributes.push(KeyValue::new("hookwatch.verdict.cause", cause.as_str()));
    }
    if let Some(from) = from {
        attributes.push(KeyValue::new("hookwatch.verdict.from", from.as_str()));
    }
    attributes
}

fn of_plane(plane: &ControlPlane) -> Vec<KeyValue> {
    vec![
        KeyValue::new("hookwatch.control_plane.writes", plane.writes.as_str()),
        KeyValue::new("hookwatch.control_plane.summary", plane.summary.clone()),
    ]
}

/// Converts an instant of the daemon's clock to the `SystemTime` that OpenTelemetry uses.
pub(super) fn system(wall: WallReading, time: Time) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(wall.date(time).unix_millis())
}

#[cfg(test)]
mod tests;
