//! The schedule in simulated time, with backends that answer as told.

mod bounds;
mod sharing;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::cluster::hook::{BackendAddress, Endpoint, HookKind, HookTarget, ServiceState, ServiceTarget};
use crate::observe::probe::{
    CertificateFacts, PhaseDurations, ProbeAnswer, ProbeOutcome, ProbeOverdue, ProbePhase, ProbeReport,
};
use crate::observe::probing::{BackendMemory, BackendState};

const RATES: Rates = Rates {
    interval: Duration::from_secs(5),
    alert_interval: Duration::from_secs(1),
    per_second: 200,
    per_backend: 2,
    per_backend_alert: 5,
};

/// How a backend meets a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meets {
    Answers,
    Refuses,
    /// TCP is taken, and no handshake comes.
    HandshakeHangs,
    RequestHangs,
    /// In this time.
    Slow(Duration),
    Loses,
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn address(service: usize, endpoint: usize) -> std::net::SocketAddr {
    let [high, low] = (endpoint as u16).to_be_bytes();
    ([10, service as u8, high, low], 8443).into()
}

/// A hook behind one of the Services, each of which has endpoints of its own.
fn hook(name: usize, service: usize, path: &str, endpoints: std::ops::Range<usize>) -> Hook {
    let endpoints = endpoints.map(|nth| Endpoint::ready(address(service, nth)));
    let target = HookTarget::Service(ServiceTarget {
        namespace: "n".to_owned(),
        name: format!("service-{service}"),
        port: 443,
        path: path.to_owned(),
        service: ServiceState::Found {
            cluster_ip: None,
            endpoints: endpoints.collect(),
            by_hand: false,
        },
    });
    let id = HookId::new(HookKind::Validating, "c", &format!("{name:04}.example.com"));
    Hook {
        configuration_uid: "uid".to_owned(),
        ca_bundle: b"ca".as_slice().into(),
        ..Hook::new(id, target)
    }
}

fn http(hook: &Hook) -> Ask {
    Ask {
        level: ProbeLevel::Http,
        request: hook.url_path().into(),
    }
}

enum Moment {
    Shaken,
    Overdue(Duration),
    Back,
}

/// What is to happen with a probe that began.
struct Coming {
    attempt: ScheduledProbe,
    began: Time,
    meets: Meets,
    moment: Moment,
}

impl Coming {
    fn is_fresh(&self) -> bool {
        self.attempt.connection == ConnectionKind::Fresh
    }

    /// Where it is when it waits.
    fn phase(&self) -> ProbePhase {
        if self.meets == Meets::HandshakeHangs && self.is_fresh() {
            ProbePhase::Tls
        } else {
            ProbePhase::FirstByte
        }
    }

    fn overdue(&self, waiting: Duration) -> ProbeOverdue {
        ProbeOverdue {
            hook: self.attempt.hooks[0].id.clone(),
            backend: self.attempt.target.backend.clone(),
            connection: self.attempt.connection,
            started: self.began,
            waiting,
            phase: self.phase(),
        }
    }

    fn report(&self, at: Time) -> ProbeReport {
        let phase = self.phase();
        let took = at.since(self.began);
        let handshake = PhaseDurations {
            tls: self.is_fresh().then_some(ms(2)),
            ..PhaseDurations::default()
        };
        let asked = PhaseDurations {
            first_byte: Some(took.saturating_sub(ms(2))),
            ..handshake
        };
        let (outcome, phases) = match self.meets {
            _ if matches!(self.moment, Moment::Shaken) => {
                (ProbeOutcome::Answered(ProbeAnswer::Handshake), handshake)
            }
            Meets::Answers | Meets::Slow(_) => {
                (ProbeOutcome::Answered(ProbeAnswer::Http { status: 405 }), asked)
            }
            Meets::Refuses => (ProbeOutcome::Refused, PhaseDurations::default()),
            Meets::Loses => {
                let why = String::new();
                (ProbeOutcome::Lost { phase, why }, asked)
            }
            Meets::HandshakeHangs if self.is_fresh() => {
                let tls = Some(took);
                (
                    ProbeOutcome::TimedOut { phase },
                    PhaseDurations {
                        tls,
                        ..PhaseDurations::default()
                    },
                )
            }
            Meets::HandshakeHangs | Meets::RequestHangs => (ProbeOutcome::TimedOut { phase }, asked),
        };
        ProbeReport {
            hook: self.attempt.hooks[0].id.clone(),
            backend: self.attempt.target.backend.clone(),
            level: self.attempt.ask.level,
            connection: self.attempt.connection,
            started: self.began,
            took,
            phases,
            outcome,
            certificates: CertificateFacts::default(),
            shared: false,
        }
    }
}

type Meeting = Box<dyn Fn(&ScheduledProbe, Time) -> Meets>;

struct Sim {
    schedule: Schedule,
    now: Time,
    hooks: Vec<Arc<Hook>>,
    meets: Meeting,
    coming: BTreeMap<(Time, u64, u8), Coming>,
    /// Every probe that began.
    made: Vec<(Time, ScheduledProbe)>,
    told: usize,
    /// What each hook knows of each backend.
    memories: BTreeMap<(HookId, Backend), BackendMemory>,
    paces: Vec<ProbePace>,
}

impl Sim {
    fn new(hooks: Vec<Hook>, seed: u64) -> Self {
        let mut sim = Self {
            schedule: Schedule::new(RATES, seed),
            now: Time::from_unix_millis(1_000_000),
            hooks: Vec::new(),
            meets: Box::new(|_, _| Meets::Answers),
            coming: BTreeMap::new(),
            made: Vec::new(),
            told: 0,
            memories: BTreeMap::new(),
            paces: Vec::new(),
        };
        sim.take(hooks);
        sim
    }

    fn take(&mut self, hooks: Vec<Hook>) {
        self.hooks = hooks.into_iter().map(Arc::new).collect();
        let asked: Vec<_> = self
            .hooks
            .iter()
            .map(|hook| (Arc::clone(hook), Some(http(hook))))
            .collect();
        self.schedule.take_inventory(&asked, true, self.now);
    }

    fn meeting(&mut self, meets: impl Fn(&ScheduledProbe, Time) -> Meets + 'static) {
        self.meets = Box::new(meets);
    }

    fn attend(&mut self, hooks: impl IntoIterator<Item = usize>) {
        let ids: BTreeSet<HookId> = hooks.into_iter().map(|nth| self.hooks[nth].id.clone()).collect();
        self.schedule.attend(ids, None, self.now);
    }

    /// What happens to all hooks that are in trouble by their own probes, as the core wants it.
    fn attend_to_the_troubled(&mut self) {
        let odd = |state: &BackendState| {
            !matches!(state, BackendState::Alive { .. } | BackendState::Untried { .. })
        };
        let now = self.now;
        let odd = self.memories.iter().filter(|(_, memory)| odd(&memory.state(now)));
        let odd: BTreeSet<HookId> = odd.map(|((hook, _), _)| hook.clone()).collect();
        if odd != self.schedule.attended {
            self.schedule.attend(odd, None, now);
        }
    }

    fn run(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            self.step();
        }
    }

    /// One tick of 100 ms.
    fn step(&mut self) {
        let next = self.now + ms(100);
        while let Some(entry) = self.coming.first_entry().filter(|entry| entry.key().0 <= next) {
            let ((at, number, _), coming) = entry.remove_entry();
            self.happens(at, number, &coming);
        }
        self.now = next;
        let room = ProbeRoom {
            free: 256usize.saturating_sub(self.schedule.out.len()),
            scarce: 128,
        };
        for attempt in self.schedule.start(room, |_| true, next) {
            let meets = (self.meets)(&attempt, next);
            self.plan(&attempt, meets);
            self.made.push((next, attempt));
        }
        self.paces.extend(self.schedule.pace(next));
    }

    fn plan(&mut self, attempt: &ScheduledProbe, meets: Meets) {
        let fresh = attempt.connection == ConnectionKind::Fresh;
        let (shakes, back) = match meets {
            Meets::Answers => (true, ms(4)),
            Meets::Slow(after) => (true, after),
            Meets::Refuses => (false, ms(1)),
            Meets::Loses => (true, ms(4)),
            Meets::HandshakeHangs => (false, attempt.deadline),
            Meets::RequestHangs => (true, attempt.deadline),
        };
        let mut add = |after: Duration, order: u8, moment: Moment| {
            let key = (self.now + after, attempt.number, order);
            let (attempt, began) = (attempt.clone(), self.now);
            let coming = Coming {
                attempt,
                began,
                meets,
                moment,
            };
            self.coming.insert(key, coming);
        };
        if fresh && shakes {
            add(ms(2), 0, Moment::Shaken);
        }
        for mark in [s(1), s(2)].into_iter().filter(|mark| *mark < back) {
            add(mark, 1, Moment::Overdue(mark));
        }
        add(back, 2, Moment::Back);
    }

    fn happens(&mut self, at: Time, number: u64, coming: &Coming) {
        let reports = match coming.moment {
            Moment::Shaken => self.schedule.shaken(number, &coming.report(at), at),
            Moment::Overdue(waiting) => {
                for late in self.schedule.overdue(number, &coming.overdue(waiting), at) {
                    let key = (late.hook.clone(), late.backend.clone());
                    self.memories.entry(key).or_default().overdue(late);
                }
                return;
            }
            Moment::Back => self.schedule.finished(number, &coming.report(at), at),
        };
        self.told += reports.len();
        for report in reports {
            let key = (report.hook.clone(), report.backend.clone());
            self.memories.entry(key).or_default().finished(report);
        }
    }

    fn made(&self, connection: ConnectionKind) -> usize {
        self.made
            .iter()
            .filter(|(_, attempt)| attempt.connection == connection)
            .count()
    }

    fn state(&self, hook: usize, endpoint: usize) -> BackendState {
        let hook = &self.hooks[hook];
        let HookTarget::Service(target) = &hook.target else {
            return BackendState::Untried { why: None };
        };
        let service: usize = target
            .name
            .rsplit('-')
            .next()
            .and_then(|n| n.parse().ok())
            .expect("a number");
        let backend = Backend {
            path: BackendPath::Endpoint,
            address: BackendAddress::Socket(address(service, endpoint)),
        };
        let memory = self.memories.get(&(hook.id.clone(), backend));
        memory.map_or(BackendState::Untried { why: None }, |memory| {
            memory.state(self.now)
        })
    }

    /// How long it takes from now until a hook is known to be dead at its first endpoint, the core looking closely at
    /// whatever is in trouble.
    fn until_dead(&mut self, hook: usize, at_most: Duration) -> Duration {
        let began = self.now;
        while !matches!(self.state(hook, 0), BackendState::Dead(_)) {
            assert!(
                self.now.since(began) < at_most,
                "not found within {at_most:?}: {:?}",
                self.state(hook, 0)
            );
            self.step();
            self.attend_to_the_troubled();
        }
        self.now.since(began)
    }
}

/// The median and the longest over this many seeds.
fn median_and_longest(seeds: u64, found: impl Fn(u64) -> Duration) -> (Duration, Duration) {
    let mut all: Vec<Duration> = (0..seeds).map(found).collect();
    all.sort();
    (all[all.len() / 2], all[all.len() - 1])
}
