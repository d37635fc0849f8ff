//! Scrapes: the counters of a replica, read halfway between the request and the answer.

use std::time::Duration;

use hookwatch::domain::observe::snapshot::{Complaints, Scrape, ScrapeFailure, ScrapeFailureReason};
use hookwatch::domain::watchdog::Event;

use super::{Coming, Later, Reading, Seen};
use crate::model::cluster::{Cluster, Serving};
use crate::model::inventory::time;
use crate::model::world::World;
use crate::model::{At, SECOND, exposition, seconds};
use crate::random::Random;

/// The daemon's timeout for a scrape.
const TIMEOUT: At = 10 * SECOND;

/// A scrape that the API server is answering.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    target: String,
    replica: usize,
    began: At,
    ends: At,
}

#[derive(Debug)]
pub(super) struct Scrapes {
    due_from: At,
    first: bool,
    /// Targets that have not answered yet.
    out: Vec<String>,
}

impl Scrapes {
    pub(super) fn new(begin: At) -> Self {
        Self {
            due_from: begin,
            first: true,
            out: Vec::new(),
        }
    }

    pub(super) fn look(
        &mut self,
        now: At,
        pace: At,
        cluster: &Cluster,
        random: &mut Random,
        coming: &mut Coming,
    ) {
        if !self.first && now < self.due_from + pace {
            return;
        }
        (self.first, self.due_from) = (false, now);
        if cluster.balanced {
            let standing: Vec<usize> = (0..cluster.replicas.len())
                .filter(|replica| *cluster.replicas[*replica].serving.at(now) != Serving::Down)
                .collect();
            let replica = random.pick(&standing).unwrap_or(0);
            return self.ask(
                "api.example.com:6443".to_owned(),
                replica,
                now,
                cluster,
                random,
                coming,
            );
        }
        for replica in 0..cluster.replicas.len() {
            let target = format!("10.1.0.{}:6443", replica + 1);
            self.ask(target, replica, now, cluster, random, coming);
        }
    }

    fn ask(
        &mut self,
        target: String,
        replica: usize,
        now: At,
        cluster: &Cluster,
        random: &mut Random,
        coming: &mut Coming,
    ) {
        use ScrapeFailureReason::{Forbidden, TimedOut, Truncated, Unreachable};
        if self.out.contains(&target) {
            return;
        }
        self.out.push(target.clone());
        let spec = &cluster.replicas[replica];
        let mut fail = |at, reason, why: &str| {
            let failure = ScrapeFailure {
                target: target.clone(),
                at: time(at),
                reason,
                why: why.to_owned(),
            };
            coming.tell(at, Event::ScrapeFailed(failure));
        };
        match spec.serving.at(now) {
            Serving::Down => return fail(now + SECOND / 500, Unreachable, "connection refused"),
            Serving::Hung => return fail(now + TIMEOUT, TimedOut, "no answer in 10 s"),
            Serving::Up if *spec.forbids.at(now) => {
                return fail(now + SECOND / 500, Forbidden, "HTTP 403 Forbidden");
            }
            Serving::Up => {}
        }
        // In 0.4 % of the scrapes the body breaks off; 1 % take up to 4 s longer.
        if random.chance(0.004) {
            return fail(now + SECOND / 10, Truncated, "the body broke off");
        }
        let mut took = random.log_normal(0.08, 0.4) * spec.load.at(now);
        if random.chance(0.01) {
            took += random.between(0.5, 4.0);
        }
        let took = seconds(took);
        if took >= TIMEOUT {
            return fail(now + TIMEOUT, TimedOut, "no answer in 10 s");
        }
        let asked = Asked {
            target,
            replica,
            began: now,
            ends: now + took,
        };
        coming.plan(now + took / 2, Later::Read(asked));
    }

    pub(super) fn ended(&mut self, event: &Event) {
        let target = match event {
            Event::Scraped(scrape) => &scrape.target,
            Event::ScrapeFailed(failure) => &failure.target,
            _ => return,
        };
        self.out.retain(|out| out != target);
    }

    pub(super) fn read(&mut self, asked: Asked, at: At, world: &World, coming: &mut Coming) -> Vec<Seen> {
        let Some((counters, process, began)) = world.counters(asked.replica, at) else {
            let failure = ScrapeFailure {
                target: asked.target,
                at: time(at),
                reason: ScrapeFailureReason::Unreachable,
                why: "connection reset".to_owned(),
            };
            coming.tell(at, Event::ScrapeFailed(failure));
            return Vec::new();
        };
        let release = *world.cluster.replicas[asked.replica].release.at(at);
        // Processes that were there from the beginning started a day earlier, and no two at the same instant.
        let started = time(began).unix_seconds() - 3_600.0 * 24.0 + asked.replica as f64 * 17.3;
        let started = if process == 0 {
            started
        } else {
            started + 3_600.0 * 24.0
        };
        let snapshot = exposition::snapshot(&world.cluster, counters, release, started, at);
        let scrape = Scrape {
            target: asked.target,
            at: time(asked.ends),
            took: Duration::from_micros(asked.ends - asked.began),
            bytes: 0,
            snapshot,
            complaints: Complaints::default(),
        };
        coming.tell(asked.ends, Event::Scraped(Box::new(scrape)));
        vec![Seen::Reading(Box::new(Reading {
            replica: asked.replica,
            process,
            at,
            counters: counters.clone(),
        }))]
    }
}
