//! A control plane as a sequence of events, and helpers for tests.

use super::*;

/// A control plane as a sequence of events. Times are milliseconds since the start of the incident.
pub(super) struct Incident {
    pub(super) watchdog: Watchdog,
    pub(super) last: Option<Arc<Assessment>>,
    pub(super) judged: Arc<Judged>,
    pub(super) told: Vec<LoggedChange>,
    pub(super) attention: Attention,
    pub(super) announced: Vec<Announcement>,
    pub(super) asked: Vec<AuditRequest>,
    pub(super) counters: Snapshot,
}

impl Incident {
    pub(super) fn with(hooks: Vec<Hook>) -> Self {
        let mut incident = Self {
            watchdog: Watchdog::new("hookwatch"),
            last: None,
            judged: Arc::default(),
            told: Vec::new(),
            attention: Attention::default(),
            announced: Vec::new(),
            asked: Vec::new(),
            counters: Snapshot {
                process_start: Some(1.0),
                ..Snapshot::default()
            },
        };
        incident.inventory(0, hooks);
        incident
    }

    pub(super) fn at(ms: u64) -> Time {
        Time::from_unix_millis(1_000_000_000 + ms)
    }

    pub(super) fn event(&mut self, ms: u64, event: Event) {
        for effect in self.watchdog.handle(event, Self::at(ms)) {
            match effect {
                WatchdogEffect::Publish(assessment, judged) => {
                    self.last = Some(assessment);
                    self.judged = judged;
                }
                WatchdogEffect::Tell(change) => self.told.push(change),
                WatchdogEffect::Attend(attention) => self.attention = attention,
                WatchdogEffect::Announce(said) => self.announced.push(*said),
                WatchdogEffect::Audit(request) => self.asked.push(*request),
            }
        }
    }

    pub(super) fn inventory(&mut self, ms: u64, hooks: Vec<Hook>) {
        let inventory = Inventory {
            at: Self::at(ms),
            hooks: hooks.into_iter().map(Arc::new).collect(),
            ..Inventory::default()
        };
        self.event(ms, Event::Inventory(Arc::new(inventory)));
    }

    pub(super) fn tick(&mut self, ms: u64) -> Arc<Assessment> {
        self.event(ms, Event::Tick);
        self.last.clone().expect("a tick publishes")
    }

    /// The verdict on one webhook.
    pub(super) fn verdict(&mut self, ms: u64, webhook: &str) -> Verdict {
        let assessment = self.tick(ms);
        let verdict = assessment
            .hooks
            .iter()
            .find(|verdict| &*verdict.webhook == webhook);
        verdict
            .cloned()
            .unwrap_or_else(|| panic!("no verdict on {webhook}"))
    }

    pub(super) fn probe(&mut self, ms: u64, hook: &Hook, backend: usize, outcome: ProbeOutcome) {
        self.probe_taking(ms, 3, hook, backend, outcome);
    }

    pub(super) fn probe_taking(
        &mut self,
        ms: u64,
        took: u64,
        hook: &Hook,
        backend: usize,
        outcome: ProbeOutcome,
    ) {
        let report = Self::probed(ms, Duration::from_millis(took), hook, backend, outcome);
        self.event(ms + took, Event::Probed(Box::new(report)));
    }

    pub(super) fn probed(
        ms: u64,
        took: Duration,
        hook: &Hook,
        backend: usize,
        outcome: ProbeOutcome,
    ) -> ProbeReport {
        ProbeReport {
            hook: hook.id.clone(),
            backend: hook.backends()[backend].clone(),
            level: ProbeLevel::Http,
            connection: ConnectionKind::Fresh,
            started: Self::at(ms),
            took,
            phases: PhaseDurations::default(),
            outcome,
            certificates: CertificateFacts::default(),
            shared: false,
        }
    }

    pub(super) fn probe_late(&mut self, ms: u64, hook: &Hook, backend: usize, waiting: u64) {
        let overdue = ProbeOverdue {
            hook: hook.id.clone(),
            backend: hook.backends()[backend].clone(),
            connection: ConnectionKind::Fresh,
            started: Self::at(ms),
            waiting: Duration::from_millis(waiting),
            phase: ProbePhase::Tls,
        };
        self.event(ms + waiting, Event::ProbeOverdue(Box::new(overdue)));
    }

    /// Every backend of the hook answers.
    pub(super) fn answers(&mut self, ms: u64, hook: &Hook) {
        for backend in 0..hook.backends().len() {
            self.probe(ms, hook, backend, alive());
        }
    }

    /// No backend of the hook has answered for `waiting` milliseconds.
    pub(super) fn silent(&mut self, ms: u64, hook: &Hook, waiting: u64) {
        for backend in 0..hook.backends().len() {
            self.probe_late(ms, hook, backend, waiting);
        }
    }

    pub(super) fn canary(&mut self, ms: u64, took: u64, outcome: CanaryOutcome) {
        self.canary_of(CanaryTarget::KubeSystem, ms, took, outcome);
    }

    pub(super) fn canary_of(&mut self, target: CanaryTarget, ms: u64, took: u64, outcome: CanaryOutcome) {
        self.event(
            ms + took,
            Event::CanaryWritten(CanaryReport {
                target,
                started: Self::at(ms),
                took: Duration::from_millis(took),
                created: false,
                outcome,
            }),
        );
    }

    pub(super) fn canary_late(&mut self, ms: u64) {
        self.canary_of_late(CanaryTarget::KubeSystem, ms);
    }

    pub(super) fn canary_of_late(&mut self, target: CanaryTarget, ms: u64) {
        let waiting = Duration::from_secs(2);
        let overdue = CanaryOverdue {
            target,
            started: Self::at(ms),
            waiting,
        };
        self.event(ms + 2 * SECOND, Event::CanaryOverdue(overdue));
    }

    /// Counts writes that ended since the last scrape, with their mean seconds in total and without webhooks.
    pub(super) fn count_writes(&mut self, count: f64, seconds_each: f64, sli_each: f64) {
        count_writes(&mut self.counters, count, seconds_each, sli_each);
    }

    pub(super) fn count_calls(&mut self, webhook: &str, count: f64, seconds_each: f64) -> &mut HookSeries {
        count_calls(&mut self.counters, webhook, count, seconds_each)
    }

    pub(super) fn scrape(&mut self, ms: u64) {
        self.scraped(ms, "10.0.0.1:6443", self.counters.clone());
    }

    pub(super) fn scraped(&mut self, ms: u64, target: &str, snapshot: Snapshot) {
        let scrape = Scrape {
            target: target.to_owned(),
            at: Self::at(ms),
            took: Duration::ZERO,
            bytes: 0,
            snapshot,
            complaints: Complaints::default(),
        };
        self.event(ms, Event::Scraped(Box::new(scrape)));
    }

    /// Ten healthy seconds: every backend answers, and there are a hundred writes of 5 ms per second.
    pub(super) fn calm(hooks: &[&Hook]) -> Self {
        let mut incident = Self::with(hooks.iter().map(|hook| (*hook).clone()).collect());
        for step in 0..=5 {
            let ms = step * 2 * SECOND;
            incident.count_writes(200.0, 0.005, 0.004);
            for hook in hooks {
                incident.count_calls(&hook.id.webhook, 200.0, 0.001);
                incident.answers(ms, hook);
            }
            incident.canary(ms, 5, CanaryOutcome::Written);
            incident.scrape(ms);
            let assessment = incident.tick(ms + 10);
            if step > 1 {
                assert_eq!(assessment.control_plane.writes, Writes::Flowing);
                assert!(
                    assessment
                        .hooks
                        .iter()
                        .all(|verdict| verdict.health == Health::Healthy)
                );
            }
        }
        incident
    }

    /// [`Self::calm`], then a hook and a canary that do not answer from 11 s on, without a further scrape.
    pub(super) fn hung(hook: &Hook) -> Self {
        let mut incident = Self::calm(&[hook]);
        incident.canary_late(11 * SECOND);
        incident.silent(11 * SECOND, hook, 2 * SECOND);
        incident
    }
}

/// Counts writes at one API server, with their mean seconds in total and without webhooks.
pub(super) fn count_writes(counters: &mut Snapshot, count: f64, seconds_each: f64, sli_each: f64) {
    let key = WriteKey {
        operation: WriteOperation::Create,
        group: String::new(),
        resource: "configmaps".into(),
        subresource: String::new(),
    };
    let series = counters.writes.entry(key).or_default();
    add(&mut series.duration, count, seconds_each);
    add(&mut series.sli, count, sli_each);
    counters.write_results.ok += count;
}

/// Counts calls at one API server.
pub(super) fn count_calls<'a>(
    counters: &'a mut Snapshot,
    webhook: &str,
    count: f64,
    seconds_each: f64,
) -> &'a mut HookSeries {
    let key = (HookKind::Validating, webhook.to_owned());
    let series = counters.hooks.entry(key).or_default();
    add(&mut series.calls, count, seconds_each);
    add(&mut series.writes, count, seconds_each);
    series
}

pub(super) fn add(cumulative: &mut Cumulative, count: f64, seconds_each: f64) {
    cumulative.count += count;
    cumulative.sum += count * seconds_each;
}

pub(super) fn alive() -> ProbeOutcome {
    ProbeOutcome::Answered(ProbeAnswer::Http { status: 405 })
}

pub(super) fn refusal(webhook: &str, why: &str) -> CanaryOutcome {
    CanaryOutcome::from_status(
        500,
        &format!(
            "Internal error occurred: failed calling webhook \"{webhook}\": failed to call webhook: Post \
             \"https://{webhook}.ns.svc:443/?timeout=10s\": {why}"
        ),
    )
}

/// A catch-all validating hook with this many endpoints.
pub(super) fn hook(webhook: &str, endpoints: u8) -> Hook {
    let endpoint = |n: u8| Endpoint::ready(([10, 0, 0, n], 8443).into());
    let target = HookTarget::Service(ServiceTarget {
        namespace: "ns".into(),
        name: webhook.into(),
        port: 443,
        path: "/".into(),
        service: ServiceState::Found {
            by_hand: false,
            cluster_ip: None,
            endpoints: (1..=endpoints).map(endpoint).collect(),
        },
    });
    let id = HookId::new(HookKind::Validating, &format!("{webhook}-configuration"), webhook);
    Hook {
        rules: vec![HookRule {
            operations: vec!["*".into()],
            api_groups: vec!["*".into()],
            api_versions: vec!["*".into()],
            resources: vec!["*/*".into()],
            scope: Scope::All,
        }],
        review_versions: vec!["v1".into()],
        ..Hook::new(id, target)
    }
}
