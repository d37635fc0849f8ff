//! The core's task: takes one event at a time, and carries out the effects that the core returns.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};

use super::announce::Announcements;
use super::breaker::Judgement;
use super::{audit, log};
use crate::domain::cluster::hook::HookId;
use crate::domain::report::assessment::Assessment;
use crate::domain::thresholds::stood_still;
use crate::domain::time::Time;
use crate::domain::watchdog::{Attention, Event, LoggedChange, Watchdog, WatchdogEffect};
use crate::io::recorder::Recorder;
use crate::io::report::Reported;
use crate::io::report::page::past::Past;
use crate::io::telemetry::Tracer;
use crate::io::{Clock, lock};

/// Least time for observations between two ticks, however long a tick takes, and the interval of the check for a
/// stalled process.
const BETWEEN: Duration = Duration::from_millis(200);
/// How often the expiry dates of certificates are copied to the metrics.
const CERTIFICATES: Duration = Duration::from_secs(5);

/// The core, with its inputs and outputs.
pub(super) struct Core {
    pub(super) watchdog: Watchdog,
    pub(super) clock: Clock,
    pub(super) shown: Reported,
    pub(super) recorder: Option<Recorder>,
    pub(super) attend: watch::Sender<Attention>,
    pub(super) publish: watch::Sender<Option<Arc<Assessment>>>,
    pub(super) judge: watch::Sender<Judgement>,
    pub(super) announcements: Option<Announcements>,
    pub(super) events: mpsc::Sender<Event>,
    pub(super) tracer: Tracer,
}

impl Core {
    pub(super) async fn run(mut self, mut incoming: mpsc::Receiver<Event>) {
        let mut certificates_read = Instant::now();
        let mut not_before = (self.clock)();
        loop {
            self.shown.metrics.wall.look(&self.clock);
            let now = (self.clock)();
            let due = self.watchdog.due().max(not_before);
            // The loop wakes up more often than it ticks, to notice that the process stood still.
            let wake = due.min(now + BETWEEN);
            let observed = tokio::select! {
                event = incoming.recv(), if wake > now => match event {
                    Some(event) => Some(event),
                    None => return,
                },
                () = tokio::time::sleep(wake.since(now)) => None,
            };
            if (self.clock)().since(wake) >= stood_still() {
                self.take(Event::Resumed);
            }
            if let Some(event) = observed {
                self.take(event);
            } else if (self.clock)() >= due {
                self.take(Event::Tick);
                self.tracer.judged(self.publish.borrow().as_deref());
                not_before = (self.clock)() + BETWEEN;
            }
            if certificates_read.elapsed() >= CERTIFICATES {
                certificates_read = Instant::now();
                self.read_certificates();
            }
        }
    }

    fn take(&mut self, event: Event) {
        self.count(&event);
        let now = (self.clock)();
        self.remember(|past| past.observed(&event, now));
        if let Some(recorder) = self
            .recorder
            .as_mut()
            .filter(|_| !matches!(event, Event::Audited(_)))
        {
            recorder.record(now, &event);
        }
        for effect in self.watchdog.handle(event, now) {
            self.carry_out(effect, now);
        }
    }

    fn count(&self, event: &Event) {
        match event {
            Event::Probed(report) => self.shown.metrics.probed(report),
            Event::CanaryWritten(report) => self.shown.metrics.canary_written(report),
            Event::Scraped(scrape) => self.shown.metrics.scraped(scrape),
            Event::ScrapeFailed(failure) => self.shown.metrics.scrape_failed(failure),
            Event::Inventory(inventory) => {
                let hooks: BTreeSet<HookId> = inventory.hooks.iter().map(|hook| hook.id.clone()).collect();
                self.shown.metrics.keep_only(&hooks);
                self.tracer.keep_only(&hooks);
            }
            Event::Stored(reading) => self.shown.metrics.stored_read(Ok(reading)),
            Event::StoredFailed(failure) => self.shown.metrics.stored_read(Err(failure)),
            Event::Watches(_)
            | Event::Readiness(_)
            | Event::NodeLeases(_)
            | Event::ProbeOverdue(_)
            | Event::ProbePace(_)
            | Event::CanaryOverdue(_)
            | Event::Fence(_)
            | Event::Standings(_)
            | Event::Frozen(_)
            | Event::ApiServers(_)
            | Event::Replica(_)
            | Event::Audited(_)
            | Event::Resumed
            | Event::Tick => {}
        }
    }

    /// `now`: when the event was taken, the same for all its effects; the page groups simultaneous changes by it.
    fn carry_out(&mut self, effect: WatchdogEffect, now: Time) {
        match effect {
            WatchdogEffect::Publish(assessment, judged) => {
                self.judge.send_replace(Some((Arc::clone(&assessment), judged)));
                self.remember(|past| past.assessed(&assessment));
                self.publish.send_replace(Some(assessment));
            }
            WatchdogEffect::Attend(attention) => {
                self.attend.send_replace(attention);
            }
            WatchdogEffect::Audit(request) => audit::begin(*request, &self.events),
            WatchdogEffect::Announce(said) => {
                if let Some(announcements) = &self.announcements {
                    announcements.hand_in(*said, now);
                }
            }
            WatchdogEffect::Tell(change) => {
                match &change {
                    LoggedChange::Hook { verdict, .. } if change.is_of_health() => {
                        self.shown.metrics.verdict_changed(verdict);
                    }
                    LoggedChange::Replica { from, view } if *from != Some(view.role) => {
                        self.shown.metrics.role_changed(view.role);
                    }
                    _ => {}
                }
                self.remember(|past| past.told(&change, now));
                log(&change, self.tracer.changed(&change));
            }
        }
    }

    fn remember(&self, what: impl FnOnce(&mut Past)) {
        // Readers hold the lock for microseconds.
        what(&mut lock(&self.shown.past));
    }

    /// Copies the earliest expiry dates of each hook's served certificates and caBundle to what is reported.
    fn read_certificates(&self) {
        let mut ends: std::collections::BTreeMap<(HookId, &'static str), Time> = Default::default();
        for (id, _, facts) in self.watchdog.certificates() {
            for (which, end) in [("served", facts.served_not_after), ("ca", facts.ca_not_after)] {
                let Some(end) = end else { continue };
                ends.entry((id.clone(), which))
                    .and_modify(|first| *first = end.min(*first))
                    .or_insert(end);
            }
        }
        let ends = ends.into_iter().map(|((id, which), end)| (id, which, end));
        *lock(&self.shown.certificates) = ends.collect();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::app::engine::clock;
    use crate::domain::cluster::hook::{
        Endpoint, Hook, HookKind, HookTarget, ProbeLevel, ServiceState, ServiceTarget,
    };
    use crate::domain::observe::probe::{
        CertificateFacts, PhaseDurations, ProbeAnswer, ProbeOutcome, ProbeReport,
    };
    use crate::domain::observe::schedule::{Ask, ProbeRoom, Rates, Schedule, ScheduledProbe};
    use crate::io::report::metrics::Metrics;

    fn core(clock: Clock) -> Core {
        let (publish, assessment) = watch::channel(None);
        Core {
            watchdog: Watchdog::new("hookwatch"),
            clock,
            shown: Reported {
                assessment,
                metrics: Arc::new(Metrics::new().unwrap()),
                certificates: Arc::default(),
                past: Arc::default(),
            },
            recorder: None,
            attend: watch::channel(Attention::default()).0,
            publish,
            judge: watch::channel(None).0,
            announcements: None,
            events: mpsc::channel(1).0,
            tracer: Tracer::default(),
        }
    }

    fn gauge(shown: &Reported, name: &str) -> f64 {
        let families = shown.families();
        let family = families.iter().find(|family| family.name() == name).unwrap();
        family.get_metric()[0].get_gauge().get_value()
    }

    /// A minute off, `HookwatchBlind` fires.
    #[tokio::test(start_paused = true)]
    async fn metrics_are_dated_by_the_wall_clock_however_far_it_has_stepped_from_the_daemons() {
        let (began, start) = (tokio::time::Instant::now(), Time::from_unix_millis(1_000_000));
        let (_events, incoming) = mpsc::channel(1);
        let core = core(Arc::new(move || start + began.elapsed()));
        let shown = core.shown.clone();
        let running = tokio::time::timeout(Duration::from_secs(5), core.run(incoming)).await;
        assert!(running.is_err(), "it runs until it is stopped");
        let dated = gauge(&shown, "hookwatch_assessment_timestamp_seconds");
        let off = (clock()().unix_seconds() - dated).abs();
        assert!(off < 60.0, "{off} s off");
    }

    /// What a thread logs.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Log {
        fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
            lock(&self.0).write(text)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// A webhook of one Service with this many endpoints.
    fn webhook(endpoints: u16) -> (Arc<Hook>, Option<Ask>) {
        let endpoints = (0..endpoints).map(u16::to_be_bytes);
        let endpoints = endpoints.map(|[high, low]| Endpoint::ready(([10, 0, high, low], 8443).into()));
        let target = HookTarget::Service(ServiceTarget {
            namespace: "n".to_owned(),
            name: "s".to_owned(),
            port: 443,
            path: "/".to_owned(),
            service: ServiceState::Found {
                cluster_ip: None,
                endpoints: endpoints.collect(),
                by_hand: false,
            },
        });
        let ask = Ask {
            level: ProbeLevel::Http,
            request: "/".into(),
        };
        let hook = Hook::new(HookId::new(HookKind::Validating, "c", "w"), target);
        (Arc::new(hook), Some(ask))
    }

    fn answered(attempt: &ScheduledProbe, now: Time) -> ProbeReport {
        ProbeReport {
            hook: attempt.hooks[0].id.clone(),
            backend: attempt.target.backend.clone(),
            level: attempt.ask.level,
            connection: attempt.connection,
            started: now,
            took: Duration::ZERO,
            phases: PhaseDurations::default(),
            outcome: ProbeOutcome::Answered(ProbeAnswer::Http { status: 405 }),
            certificates: CertificateFacts::default(),
            shared: false,
        }
    }

    #[test]
    fn late_probes_are_a_line_in_the_log_and_a_figure_in_the_assessment_and_the_metric_until_they_are_on_time()
     {
        let now = Arc::new(Mutex::new(Time::from_unix_millis(1_000_000)));
        let time = Arc::clone(&now);
        let mut core = core(Arc::new(move || *lock(&time)));
        let log = Log::default();
        let writer = log.clone();
        let logging = tracing_subscriber::fmt().with_writer(move || writer.clone());
        let _logging = tracing::subscriber::set_default(logging.with_ansi(false).finish());
        let rates = Rates {
            interval: Duration::from_secs(5),
            alert_interval: Duration::from_secs(1),
            per_second: 200,
            per_backend: 2,
            per_backend_alert: 5,
        };
        let room = ProbeRoom {
            free: 256,
            scarce: 128,
        };
        let (mut schedule, mut reports) = (Schedule::new(rates, 1), 0);
        // 1,500 are three times as many as fit into an interval.
        for (endpoints, fits) in [(1_500, false), (1, true)] {
            schedule.take_inventory(&[webhook(endpoints)], false, *lock(&now));
            for _ in 0..600 {
                let now = {
                    let mut now = lock(&now);
                    *now = *now + Duration::from_millis(100);
                    *now
                };
                for attempt in schedule.start(room, |_| false, now) {
                    schedule.finished(attempt.number, &answered(&attempt, now), now);
                }
                let Some(pace) = schedule.pace(now) else { continue };
                reports += 1;
                let late = pace.stretch.as_ref().map_or(pace.late, |stretch| stretch.late);
                core.take(Event::ProbePace(pace));
                core.take(Event::Tick);
                let shown = core.shown.assessment.borrow().clone().unwrap();
                assert_eq!(shown.sources.probes.late_seconds, late.as_secs_f64());
                assert_eq!(
                    gauge(&core.shown, "hookwatch_probes_late_seconds"),
                    late.as_secs_f64()
                );
            }
            let late = gauge(&core.shown, "hookwatch_probes_late_seconds");
            assert_eq!(late == 0.0, fits, "{late} s");
        }
        assert!(reports > 10, "{reports} reports and two lines");
        let log = String::from_utf8(lock(&log.0).clone()).unwrap();
        let said: Vec<&str> = log.lines().filter(|line| line.contains("probes are")).collect();
        let [late, on_time] = said[..] else {
            panic!("{log}")
        };
        assert!(late.contains("WARN") && late.contains("probes are late: probes.mostPerSecond is used up"));
        assert!(on_time.contains("INFO") && on_time.contains("probes are on time again"));
    }
}
