//! What hookwatch observes of the model: inventory, probes, canaries and scrapes, each at the daemon's intervals.

mod canaries;
mod probes;
mod scrapes;

use std::collections::BTreeMap;
use std::sync::Arc;

use hookwatch::domain::cluster::inventory::{InventoryHealth, WatchReport};
use hookwatch::domain::watchdog::{Attention, Event};

use crate::model::cluster::Cluster;
use crate::model::counters::Counters;
use crate::model::inventory::{changes, inventory, time};
use crate::model::world::World;
use crate::model::{At, SECOND, seconds};
use crate::random::Random;

use canaries::Canaries;
use probes::Probes;
use scrapes::Scrapes;

/// Interval at which the schedules are checked, the same as in the daemon.
const LOOK: At = SECOND / 10;

/// Interval of the watches' reports that they are current while nothing changes.
const ALIVE: At = 5 * SECOND;

/// Interval between two observations of one kind: in calm times, and while the core asks to look closer.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    pub calm: At,
    pub alert: At,
}

impl Pace {
    fn now(self, alert: bool) -> At {
        if alert { self.alert } else { self.calm }
    }
}

/// What hookwatch observes, and at which intervals; `None` turns the observer off. The default is the daemon's.
#[derive(Debug, Clone, Copy)]
pub struct Watching {
    pub scrapes: Option<Pace>,
    pub probes: Option<Pace>,
    pub canaries: Option<Pace>,
    pub inventory: bool,
}

impl Default for Watching {
    fn default() -> Self {
        let pace = |calm: u64, alert: u64| {
            Some(Pace {
                calm: calm * SECOND,
                alert: alert * SECOND,
            })
        };
        Self {
            scrapes: pace(15, 2),
            probes: pace(5, 1),
            canaries: pace(2, 2),
            inventory: true,
        }
    }
}

/// The counters that one scrape read, with histogram buckets, for the naive judge. The core's snapshots have no buckets.
#[derive(Debug, Clone)]
pub struct Reading {
    pub replica: usize,
    pub process: u32,
    pub at: At,
    pub counters: Counters,
}

/// An observation that has arrived.
#[derive(Debug)]
pub enum Seen {
    Event(Event),
    /// A scrape with its buckets; the same scrape also arrives as an [`Event`].
    Reading(Box<Reading>),
}

/// A planned step of the observers.
#[derive(Debug)]
enum Later {
    Event(Box<Event>),
    /// The API server reads its counters for the answer to a scrape.
    Read(scrapes::Asked),
    Inventory,
    /// The watches report that they are current.
    Alive,
}

/// Planned steps, ordered by instant and then by when they were planned.
#[derive(Debug, Default)]
struct Coming {
    queue: BTreeMap<(At, u64), Later>,
    order: u64,
}

impl Coming {
    fn plan(&mut self, at: At, later: Later) {
        self.order += 1;
        self.queue.insert((at, self.order), later);
    }

    /// Plans the arrival of an event.
    fn tell(&mut self, at: At, event: Event) {
        self.plan(at, Later::Event(Box::new(event)));
    }

    fn next(&self) -> At {
        self.queue.first_key_value().map_or(At::MAX, |((at, _), _)| *at)
    }

    fn take(&mut self) -> Option<(At, Later)> {
        self.queue.pop_first().map(|((at, _), later)| (at, later))
    }
}

/// All observers together.
#[derive(Debug)]
pub struct Observers {
    cluster: Arc<Cluster>,
    random: Random,
    watching: Watching,
    coming: Coming,
    look: At,
    attention: Attention,
    /// When the core last reported a newly waiting canary: every backend is probed once after that. `None` when none waits.
    look_since: Option<At>,
    probes: Probes,
    canaries: Canaries,
    scrapes: Scrapes,
}

impl Observers {
    /// Observers that start at `begin`.
    pub fn new(cluster: Arc<Cluster>, mut random: Random, watching: Watching, begin: At) -> Self {
        let mut coming = Coming::default();
        if watching.inventory {
            coming.plan(begin, Later::Inventory);
            coming.plan(begin + ALIVE, Later::Alive);
            for at in changes(&cluster).into_iter().filter(|at| *at > begin) {
                // Watches deliver a change after about 0.15 s.
                coming.plan(at + seconds(random.log_normal(0.15, 0.6)), Later::Inventory);
            }
        }
        Self {
            probes: Probes::new(&cluster, begin),
            canaries: Canaries::new(begin, &mut random),
            scrapes: Scrapes::new(begin),
            coming,
            look: begin,
            attention: Attention::default(),
            look_since: None,
            watching,
            random,
            cluster,
        }
    }

    /// The replica that canaries are sent to.
    pub fn canaries_at(&self) -> usize {
        self.canaries.replica(&self.cluster)
    }

    /// The core asks the observers to look closer, or no longer.
    pub fn attend(&mut self, attention: Attention) {
        if attention.waiting_since != self.attention.waiting_since {
            self.look_since = attention.waiting_since.map(|_| self.look);
        }
        self.attention = attention;
    }

    /// A webhook configuration was changed: its watch will deliver the change.
    pub fn reconfigured(&mut self, at: At) {
        if self.watching.inventory {
            let heard = at + seconds(self.random.log_normal(0.15, 0.6));
            self.coming.plan(heard, Later::Inventory);
        }
    }

    /// The instant of the next step.
    pub fn next(&self) -> At {
        self.look.min(self.coming.next())
    }

    /// Executes the next step and returns the observations that it delivers.
    pub fn step(&mut self, world: &mut World) -> Vec<Seen> {
        if self.coming.next() <= self.look {
            return match self.coming.take() {
                Some((at, later)) => self.arrived(at, later, world),
                None => Vec::new(),
            };
        }
        let now = self.look;
        self.look += LOOK;
        if let Some(pace) = self.watching.scrapes {
            let pace = pace.now(self.attention.everywhere);
            self.scrapes
                .look(now, pace, &self.cluster, &mut self.random, &mut self.coming);
        }
        if let Some(pace) = self.watching.canaries {
            self.canaries.look(
                now,
                pace.now(self.attention.everywhere),
                world,
                &mut self.random,
                &mut self.coming,
            );
        }
        if let Some(pace) = self.watching.probes {
            self.probes.look(
                now,
                pace,
                (&self.attention, self.look_since),
                &mut self.random,
                &mut self.coming,
            );
        }
        Vec::new()
    }

    /// Takes the canaries that have ended from the world and plans their reports.
    pub fn returned(&mut self, world: &mut World) {
        self.canaries
            .returned(&mut world.returned, &mut self.random, &mut self.coming);
    }

    fn arrived(&mut self, at: At, later: Later, world: &World) -> Vec<Seen> {
        match later {
            Later::Event(event) => {
                let current = match &*event {
                    Event::CanaryOverdue(overdue) => self.canaries.is_out(overdue),
                    _ => true,
                };
                self.scrapes.ended(&event);
                if current {
                    vec![Seen::Event(*event)]
                } else {
                    Vec::new()
                }
            }
            Later::Read(asked) => self.scrapes.read(asked, at, world, &mut self.coming),
            Later::Inventory => {
                let inventory = inventory(&self.cluster, world.forms(), at);
                self.probes.know(&inventory, &self.cluster, at, &mut self.random);
                vec![Seen::Event(Event::Inventory(inventory)), watches(at)]
            }
            Later::Alive => {
                self.coming.plan(at + ALIVE, Later::Alive);
                // Without an API server that serves, watches report nothing.
                match self.cluster.up(at).next() {
                    Some(_) => vec![watches(at)],
                    None => Vec::new(),
                }
            }
        }
    }
}

fn watches(at: At) -> Seen {
    Seen::Event(Event::Watches(vec![WatchReport {
        watch: "everything".to_owned(),
        health: InventoryHealth::Current,
        known_good: Some(time(at)),
    }]))
}
