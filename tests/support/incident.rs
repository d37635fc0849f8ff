//! Random incidents: hooks, their faults, and what probes, canaries and scrapes observe.
//!
//! [`counters`] models the API servers. The model is deliberately simple and shares nothing with the diagnosis.

#[path = "incident/counters.rs"]
mod counters;
#[path = "incident/draw.rs"]
mod draw;

use std::sync::Arc;
use std::time::Duration;

use hookwatch::domain::cluster::hook::{
    Endpoint, FailurePolicy, Hook, HookId, HookKind, HookRule, HookTarget, ProbeLevel, Scope, ServiceState,
    ServiceTarget,
};
use hookwatch::domain::cluster::inventory::Inventory;
use hookwatch::domain::observe::canary::{CanaryOutcome, CanaryOverdue, CanaryReport, CanaryTarget};
use hookwatch::domain::observe::probe::{
    CertificateFacts, ConnectionKind, PhaseDurations, ProbeAnswer, ProbeOutcome, ProbeOverdue, ProbePhase,
    ProbeReport, TlsFault,
};
use hookwatch::domain::observe::snapshot::{Complaints, Scrape};
use hookwatch::domain::report::assessment::Assessment;
use hookwatch::domain::time::Time;
use hookwatch::domain::watchdog::{Event, Watchdog, WatchdogEffect};

pub use draw::{incidents, of};

/// A probe or canary that has not returned after this many milliseconds is reported as late.
const LATE: u64 = 2_000;
/// Milliseconds for two scrapes, and for the window over which the diagnosis looks at recent counts.
const SETTLED: u64 = 20_000;
/// Timeout of a probe, in milliseconds.
const PROBE_TIMEOUT: u64 = 10_000;

/// The fault of a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Nothing,
    Hang,
    Refuse,
    ServerError,
    /// Milliseconds per answer.
    Slow(u64),
    Deny,
    /// One backend refuses. `met`: whether calls go to the backends in turn, or never to this one.
    OneBad {
        met: bool,
    },
    Certificate,
    /// The first endpoint is replaced by a new one; nothing fails.
    Rollout,
}

/// One hook of an incident.
#[derive(Debug, Clone)]
pub struct Planned {
    pub name: String,
    pub kind: HookKind,
    pub policy: FailurePolicy,
    /// Seconds.
    pub timeout: u64,
    pub endpoints: u8,
    pub fault: Fault,
    /// If set, the hook is called only for every nth write, and for no canary.
    pub every: Option<u64>,
}

/// One incident. Times are milliseconds from its beginning.
#[derive(Debug, Clone)]
pub struct Incident {
    pub hooks: Vec<Planned>,
    pub servers: usize,
    /// Writes per second and API server.
    pub writes: f64,
    pub scrape_every: u64,
    pub probe_every: u64,
    pub canary_every: u64,
    pub fault_at: u64,
    pub clear_at: u64,
    pub end: u64,
    /// Which API server restarts, and when.
    pub restart: Option<(usize, u64)>,
}

/// Observations with the instant at which they came in, in order.
pub type Events = Vec<(u64, Event)>;

/// An instant of an incident.
pub fn at(ms: u64) -> Time {
    Time::from_unix_millis(1_000_000_000 + ms)
}

impl Incident {
    /// Whether faults are there at an instant.
    fn is_broken(&self, ms: u64) -> bool {
        (self.fault_at..self.clear_at).contains(&ms)
    }

    /// Whether the last change is so long ago that every earlier call has ended and two scrapes have read it.
    pub fn is_settled(&self, ms: u64) -> bool {
        let held = |hook: &&Planned| matches!(hook.fault, Fault::Hang | Fault::Slow(_));
        let under_way: u64 = self
            .hooks
            .iter()
            .filter(held)
            .map(|hook| hook.timeout * 1_000)
            .sum();
        let settled = under_way + SETTLED;
        let restarted = self.restart.map(|(_, at)| at);
        let moments = [Some(0), Some(self.fault_at), Some(self.clear_at), restarted];
        moments
            .into_iter()
            .flatten()
            .all(|at| ms < at || ms >= at + settled)
    }

    /// What is wrong with a hook at an instant.
    fn fault(&self, hook: &Planned, ms: u64) -> Fault {
        if self.is_broken(ms) {
            hook.fault
        } else {
            Fault::Nothing
        }
    }

    /// All observations in order.
    pub fn events(&self) -> Events {
        let mut events = vec![(0, self.inventory(0))];
        if self.hooks.iter().any(|hook| hook.fault == Fault::Rollout) {
            events.push((self.fault_at, self.inventory(self.fault_at)));
        }
        for (number, hook) in self.hooks.iter().enumerate() {
            // Each hook's probes have another offset.
            let first = 137 * (number as u64 + 1) % self.probe_every;
            for started in (first..self.end).step_by(self.probe_every as usize) {
                let there = self.hook(number, hook, started);
                for backend in 0..usize::from(hook.endpoints) {
                    self.probe(&mut events, &there, hook, backend, started);
                }
            }
        }
        for started in (200..self.end).step_by(self.canary_every as usize) {
            for target in [CanaryTarget::OwnNamespace, CanaryTarget::KubeSystem] {
                self.canary(&mut events, target, started);
            }
        }
        for (server, readings) in counters::readings(self).into_iter().enumerate() {
            for (ms, snapshot) in readings {
                let scrape = Scrape {
                    target: format!("10.0.0.{}:6443", server + 1),
                    at: at(ms),
                    took: Duration::from_millis(30),
                    bytes: 2_000_000,
                    snapshot,
                    complaints: Complaints::default(),
                };
                events.push((ms, Event::Scraped(Box::new(scrape))));
            }
        }
        events.retain(|(ms, _)| *ms <= self.end);
        events.sort_by_key(|(ms, _)| *ms);
        events
    }

    fn inventory(&self, ms: u64) -> Event {
        let mut hooks: Vec<Arc<Hook>> = self
            .hooks
            .iter()
            .enumerate()
            .map(|(number, hook)| Arc::new(self.hook(number, hook, ms)))
            .collect();
        hooks.sort_by(|a, b| a.id.cmp(&b.id));
        Event::Inventory(Arc::new(Inventory {
            at: at(ms),
            hooks,
            ..Inventory::default()
        }))
    }

    /// The hook's entry as it is at an instant.
    fn hook(&self, number: usize, hook: &Planned, ms: u64) -> Hook {
        let moved = u8::from(hook.fault == Fault::Rollout && ms >= self.fault_at);
        let endpoints =
            (1..=hook.endpoints).map(|n| Endpoint::ready(([10, 1, number as u8, n + moved], 8443).into()));
        let resource = if hook.every.is_some() { "widgets" } else { "*/*" };
        let target = HookTarget::Service(ServiceTarget {
            namespace: "ns".into(),
            name: hook.name.clone(),
            port: 443,
            path: "/".into(),
            service: ServiceState::Found {
                by_hand: false,
                cluster_ip: None,
                endpoints: endpoints.collect(),
            },
        });
        let id = HookId::new(hook.kind, &format!("{}-configuration", hook.name), &hook.name);
        Hook {
            failure_policy: hook.policy,
            timeout: Duration::from_secs(hook.timeout),
            rules: vec![HookRule {
                operations: vec!["*".into()],
                api_groups: vec!["*".into()],
                api_versions: vec!["*".into()],
                resources: vec![resource.into()],
                scope: Scope::All,
            }],
            review_versions: vec!["v1".into()],
            ..Hook::new(id, target)
        }
    }

    fn probe(&self, events: &mut Events, there: &Hook, hook: &Planned, backend: usize, started: u64) {
        let (took, outcome) = match self.fault(hook, started) {
            Fault::Hang => {
                let phase = ProbePhase::FirstByte;
                (PROBE_TIMEOUT, ProbeOutcome::TimedOut { phase })
            }
            Fault::Refuse => (1, ProbeOutcome::Refused),
            Fault::OneBad { .. } if backend == 0 => (1, ProbeOutcome::Refused),
            Fault::ServerError => (
                4,
                ProbeOutcome::Answered(ProbeAnswer::ReviewRefused { status: 500 }),
            ),
            Fault::Certificate => (
                4,
                ProbeOutcome::TlsRejected {
                    fault: TlsFault::Expired,
                    why: "certificate expired".into(),
                },
            ),
            Fault::Slow(ms) => (ms, ProbeOutcome::Answered(ProbeAnswer::Review { allowed: true })),
            Fault::Deny => (4, ProbeOutcome::Answered(ProbeAnswer::Review { allowed: false })),
            Fault::Nothing | Fault::OneBad { .. } | Fault::Rollout => {
                (4, ProbeOutcome::Answered(ProbeAnswer::Review { allowed: true }))
            }
        };
        let backend = there.backends()[backend].clone();
        if took > LATE {
            let overdue = ProbeOverdue {
                hook: there.id.clone(),
                backend: backend.clone(),
                connection: ConnectionKind::Fresh,
                started: at(started),
                waiting: Duration::from_millis(LATE),
                phase: ProbePhase::FirstByte,
            };
            events.push((started + LATE, Event::ProbeOverdue(Box::new(overdue))));
        }
        let report = ProbeReport {
            hook: there.id.clone(),
            backend,
            level: ProbeLevel::Review,
            connection: ConnectionKind::Fresh,
            started: at(started),
            took: Duration::from_millis(took),
            phases: PhaseDurations::default(),
            outcome,
            certificates: CertificateFacts::default(),
            shared: false,
        };
        events.push((started + took, Event::Probed(Box::new(report))));
    }

    fn canary(&self, events: &mut Events, target: CanaryTarget, started: u64) {
        let walk = counters::walk(self, started, None);
        let took = walk.ends - started;
        if took > LATE {
            let waiting = Duration::from_millis(LATE);
            let overdue = CanaryOverdue {
                target,
                started: at(started),
                waiting,
            };
            events.push((started + LATE, Event::CanaryOverdue(overdue)));
        }
        let outcome = match walk.refused_by {
            None => CanaryOutcome::Written,
            Some(hook) => CanaryOutcome::from_status(500, &refusal(hook, self.fault(hook, started))),
        };
        let report = CanaryReport {
            target,
            started: at(started),
            took: Duration::from_millis(took),
            created: false,
            outcome,
        };
        events.push((walk.ends, Event::CanaryWritten(report)));
    }
}

/// The API server's message when it refuses a write because of a hook.
fn refusal(hook: &Planned, fault: Fault) -> String {
    let name = &hook.name;
    let post = format!("Post \"https://{name}.ns.svc:443/?timeout={}s\"", hook.timeout);
    let why = match fault {
        Fault::Deny => return format!("admission webhook \"{name}\" denied the request: no"),
        Fault::Hang => format!("{post}: context deadline exceeded"),
        Fault::Certificate => format!(
            "{post}: tls: failed to verify certificate: x509: certificate has expired or is not yet valid"
        ),
        Fault::ServerError => {
            "an error on the server (\"boom\") has prevented the request from succeeding".to_owned()
        }
        _ => format!("{post}: dial tcp 10.1.0.1:8443: connect: connection refused"),
    };
    format!("Internal error occurred: failed calling webhook \"{name}\": failed to call webhook: {why}")
}

/// Plays events to a new core and returns its assessments, one per second. Events at the instant of an assessment are
/// included in it.
pub fn play(events: &Events, end: u64) -> Vec<Arc<Assessment>> {
    let mut watchdog = Watchdog::new("hookwatch");
    let mut published = Vec::new();
    let mut events = events.iter().peekable();
    for tick in (1_000..=end).step_by(1_000) {
        while let Some((ms, event)) = events.next_if(|(ms, _)| *ms <= tick) {
            watchdog.handle(event.clone(), at(*ms));
        }
        let effects = watchdog.handle(Event::Tick, at(tick));
        published.extend(effects.into_iter().filter_map(|effect| match effect {
            WatchdogEffect::Publish(assessment, _) => Some(assessment),
            _ => None,
        }));
    }
    published
}
