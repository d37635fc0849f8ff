//! Events of whole API-server processes: reads, which call no webhook, and restarts.

use std::sync::Arc;

use super::super::counters::Counters;
use super::super::pool::Pool;
use super::super::seats::Seats;
use super::super::{At, as_seconds};
use super::{READS, Replica, Request, World};

impl World {
    pub(super) fn count_reads(&mut self, now: At) {
        let cluster = Arc::clone(&self.cluster);
        let up: Vec<usize> = cluster.up(now).collect();
        for replica in up.iter().copied() {
            let load = *cluster.replicas[replica].load.at(now);
            let rate = cluster.reads.rate.at(now) / up.len() as f64;
            let count = self.random.poisson(rate * as_seconds(READS));
            let each =
                cluster.reads.latency * load * self.random.log_normal(1.0, 0.1) + cluster.authorizer.at(now);
            let counters = &mut self.replicas[replica].counters;
            counters.reads.observe_many(count, each);
            counters.reading = self.random.poisson(rate * each) + self.random.poisson(0.5);
            let etcd = cluster.etcd * cluster.etcd_pace.at(now) * load.sqrt();
            counters
                .etcd
                .observe_many(count / 4, etcd * self.random.log_normal(1.0, 0.2));
        }
    }

    /// Restarts the replicas whose process has changed: counters start at zero, pooled connections are gone.
    pub(super) fn restart(&mut self, now: At) {
        for index in 0..self.replicas.len() {
            let process = *self.cluster.replicas[index].process.at(now);
            let replica = &mut self.replicas[index];
            if replica.process == process {
                continue;
            }
            let series = replica.counters.calls.len();
            *replica = Replica {
                process,
                began: now,
                counters: Counters::new(self.cluster.classes.len(), series),
                pools: vec![Pool::default(); self.cluster.services.len()],
                bundles: replica.bundles.clone(),
                seats: Seats::default(),
                lost: replica.lost,
            };
            // Requests that were queued in the old process end here: no later event exists for them.
            let stranded =
                |request: &Request| request.replica == index && request.process != process && !request.seated;
            let stranded: Vec<usize> = (0..self.requests.len())
                .filter(|at| self.requests[*at].as_ref().is_some_and(stranded))
                .filter(|at| self.is_waiting(*at))
                .collect();
            for request in stranded {
                self.done(request, now);
            }
        }
    }

    /// Whether the request is queued for a seat, so that no event is planned for it.
    fn is_waiting(&self, index: usize) -> bool {
        self.requests[index].as_ref().is_some_and(|request| {
            let class = &self.cluster.classes[request.class];
            class.workload && !request.seated && request.code == 0
        })
    }
}
