//! How long a Lease renewal of the control plane takes at an instant, and whether it succeeds.

use crate::model::bypass::Form;
use crate::model::cluster::{Cluster, HookSpec, Serving, WRITE_LIMIT};
use crate::model::manner::{Attempt, End, Met, meet, was_gone};
use crate::model::pool::Pool;
use crate::model::timeline::Timeline;
use crate::model::traffic::Class;
use crate::model::{At, SECOND, seconds};
use crate::random::Random;

/// Time until an immediate failure comes back: 1 ms.
const AT_ONCE: At = SECOND / 1_000;

/// Sends writes through API servers and webhooks. Answer times are the medians; only replicas, backends and denials are
/// random.
pub(super) struct Writes<'a> {
    cluster: &'a Cluster,
    /// The form of each webhook over time.
    forms: Vec<Timeline<Form>>,
    /// For each API server and Service: the caBundle's version and the pooled connections.
    pools: Vec<Vec<(u32, Pool)>>,
    random: Random,
}

impl<'a> Writes<'a> {
    pub(super) fn new(cluster: &'a Cluster, forms: Vec<Timeline<Form>>, random: Random) -> Self {
        let pools = vec![(0, Pool::default()); cluster.services.len()];
        Self {
            pools: vec![pools; cluster.replicas.len()],
            cluster,
            forms,
            random,
        }
    }

    /// When the client gets the result of a write, and whether the object was written.
    pub(super) fn write(&mut self, class: &Class, now: At) -> (At, bool) {
        let cluster = self.cluster;
        let limit = now + class.patience.unwrap_or(WRITE_LIMIT);
        let up: Vec<usize> = cluster.up(now).collect();
        let Some(replica) = self.random.pick(&up) else {
            let mut serving = cluster.replicas.iter().map(|replica| replica.serving.at(now));
            // A hung API server accepts the connection, so the client waits for its whole timeout.
            return if serving.any(|serving| *serving == Serving::Hung) {
                (limit, false)
            } else {
                (now + AT_ONCE, false)
            };
        };
        let server = &cluster.replicas[replica];
        if *server.forbids.at(now) {
            return (now + AT_ONCE, false);
        }
        let (ended, written) = self.admitted(class, replica, now, limit);
        // A process that dies or hangs takes the request with it.
        match server.serving.next_change(now) {
            Some(change) if change < ended => match server.serving.at(change) {
                Serving::Up => (ended, written),
                Serving::Down => (change, false),
                Serving::Hung => (limit, false),
            },
            _ => (ended, written),
        }
    }

    /// Admission and storage: mutating webhooks one after the other, validating ones in parallel, then etcd. Returns when it
    /// ended, and whether the object was written.
    fn admitted(&mut self, class: &Class, replica: usize, now: At, limit: At) -> (At, bool) {
        let hooks = &self.cluster.hooks;
        let mut at = now;
        for hook in (0..hooks.len()).filter(|hook| hooks[*hook].is_mutating()) {
            if !self.is_called(hook, class, at) {
                continue;
            }
            let (ended, passes) = self.call(hook, replica, at, limit);
            if !passes || ended >= limit {
                return (ended, false);
            }
            at = ended;
        }
        let (begun, mut passes) = (at, true);
        for hook in (0..hooks.len()).filter(|hook| !hooks[*hook].is_mutating()) {
            if self.is_called(hook, class, begun) {
                let (ended, passed) = self.call(hook, replica, begun, limit);
                (at, passes) = (at.max(ended), passes && passed);
            }
        }
        if !passes || at >= limit {
            return (at, false);
        }
        let stored = self.stored(replica, at);
        (stored.min(limit), stored <= limit)
    }

    fn is_called(&self, hook: usize, class: &Class, at: At) -> bool {
        let spec = &self.cluster.hooks[hook];
        spec.matches(class) && *spec.registered.at(at) && !self.forms[hook].at(at).spares(class)
    }

    /// Calls a webhook. Returns when the call ends, and whether the write may continue.
    fn call(&mut self, hook: usize, replica: usize, now: At, limit: At) -> (At, bool) {
        let cluster = self.cluster;
        let spec = &cluster.hooks[hook];
        let (met, backend) = self.meet(spec, replica, now, (now + spec.timeout).min(limit));
        if met.keeps
            && let Some((backend, opened)) = backend
        {
            self.pools[replica][spec.service]
                .1
                .put(backend, opened, met.ended);
        }
        let passes = match met.end {
            End::Answered => !self.random.chance(*spec.denies.at(now)),
            _ => !spec.fails,
        };
        (met.ended, passes)
    }

    fn meet(&mut self, spec: &HookSpec, replica: usize, now: At, limit: At) -> (Met, Option<(usize, At)>) {
        let cluster = self.cluster;
        let service = &cluster.services[spec.service];
        let attempt = |open| Attempt {
            at: now,
            limit,
            latency: seconds(service.latency * service.pace.at(now)),
            open,
        };
        let at_once = |end| Met {
            ended: (now + AT_ONCE).min(limit),
            end,
            keeps: false,
        };
        let (bundle, pool) = &mut self.pools[replica][spec.service];
        if *bundle != *service.bundle.at(now) {
            (*bundle, *pool) = (*service.bundle.at(now), Pool::default());
        }
        let kept = pool.take(now, |kept| {
            was_gone(&service.backends[kept.backend].to_api, kept.opened, now)
        });
        if let Some(kept) = kept {
            let met = meet(&service.backends[kept.backend].to_api, attempt(true));
            return (met, Some((kept.backend, kept.opened)));
        }
        match self.random.pick(&service.listed(now)) {
            _ if !service.exists.at(now) => (at_once(End::NoService), None),
            None => (at_once(End::NoEndpoints), None),
            Some(_) if !service.trusted.at(now) => (at_once(End::Tls), None),
            Some(backend) => {
                let met = meet(&service.backends[backend].to_api, attempt(false));
                (met, Some((backend, now)))
            }
        }
    }

    /// When the object is stored, after the API server's own work and two etcd requests: an update reads the object first.
    fn stored(&self, replica: usize, now: At) -> At {
        let cluster = self.cluster;
        let load = *cluster.replicas[replica].load.at(now);
        let mut at = now + seconds(cluster.own * load + cluster.authorizer.at(now));
        for _ in 0..2 {
            if *cluster.etcd_frozen.at(at) {
                at = cluster.etcd_frozen.next_change(at).unwrap_or(at + WRITE_LIMIT);
            }
            at += seconds(cluster.etcd * cluster.etcd_pace.at(at) * load.sqrt());
        }
        at
    }
}
