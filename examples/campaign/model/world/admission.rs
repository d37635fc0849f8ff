//! Admission: mutating webhooks one after the other, then all validating webhooks in parallel.

use std::sync::Arc;

use super::super::cluster::{HookSpec, Routing};
use super::super::counters::Outcome;
use super::super::manner::{Attempt, End, Met, Stage, meet, was_gone};
use super::super::messages;
use super::super::{At, SECOND, as_seconds, seconds};
use super::{Request, Step, Touch, World};

/// Time until the API server answers 403 to a request that it forbids: 0.5 ms.
const FORBIDDEN: At = SECOND / 2_000;

/// A call to a webhook that is under way. Its result is computed when it starts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    hook: usize,
    began: At,
    met: Met,
    /// The backend and when the connection to it was opened; `None` when the call did not reach a backend.
    connection: Option<(usize, At)>,
    denied: bool,
    /// Whether a failure refuses the request (`failurePolicy: Fail`).
    fails: bool,
    /// Whether the client disconnected before the call ended.
    abandoned: bool,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy)]
pub(super) struct Refusal {
    hook: usize,
    /// How the call failed; `None` for a denial.
    end: Option<End>,
    backend: Option<usize>,
    pub(super) status: u16,
}

impl World {
    /// Starts admission of a request that has its seat or needs none, unless RBAC forbids it.
    pub(super) fn begin(&mut self, index: usize, now: At) {
        if let Some(request) = self.requests[index].as_mut()
            && *self.cluster.replicas[request.replica].forbids.at(now)
        {
            request.code = 403;
            return self.plan(now + FORBIDDEN, Step::Stored { request: index });
        }
        self.mutate(index, now);
    }

    /// Calls the next mutating webhook or, after the last, all validating webhooks.
    fn mutate(&mut self, index: usize, now: At) {
        let cluster = Arc::clone(&self.cluster);
        let Some(request) = self.requests[index].as_mut() else {
            return;
        };
        let class = &cluster.classes[request.class];
        let (matches, forms) = (&self.matches, &self.forms);
        let called = |at: usize| {
            matches[at * cluster.classes.len() + request.class]
                && *cluster.hooks[at].registered.at(now)
                && !forms[at].spares(class)
        };
        let next = (request.next_hook..cluster.hooks.len())
            .find(|at| cluster.hooks[*at].is_mutating() && called(*at));
        if let Some(hook) = next {
            request.next_hook = hook + 1;
            return self.call(index, hook, now);
        }
        let validating: Vec<usize> = (0..cluster.hooks.len())
            .filter(|at| !cluster.hooks[*at].is_mutating() && called(*at))
            .collect();
        request.pending = validating.len();
        if validating.is_empty() {
            return self.store(index, now);
        }
        for hook in validating {
            self.call(index, hook, now);
        }
    }

    fn call(&mut self, index: usize, hook: usize, now: At) {
        let cluster = Arc::clone(&self.cluster);
        let Some(request) = self.requests[index].as_ref() else {
            return;
        };
        let spec = &cluster.hooks[hook];
        let (replica, leaves) = (request.replica, request.leaves);
        let limit = (now + spec.timeout).min(request.limit);
        let weight = cluster.classes[request.class].weight;
        let load = *cluster.replicas[replica].load.at(now);
        let service = &cluster.services[spec.service];
        let mut latency = self.random.log_normal(service.latency, service.spread) * service.pace.at(now);
        if self.random.chance(service.hiccups) {
            latency += self.random.between(0.1, 1.0);
        }
        // An overloaded API server is also slow to send the review and to read the answer.
        latency += self.random.log_normal(cluster.own, 0.5) * 0.2 * (load - 1.0 + weight);
        let (met, connection) = self.connect(replica, spec, latency, limit.min(leaves), now);
        let abandoned = met.ended >= leaves && leaves <= limit;
        let denied = met.end == End::Answered && self.random.chance(*spec.denies.at(now));
        let call = Call {
            hook,
            began: now,
            met,
            connection,
            denied,
            fails: spec.fails,
            abandoned,
        };
        let call = match self.free_calls.pop() {
            Some(free) => {
                self.calls[free] = Some(call);
                free
            }
            None => {
                self.calls.push(Some(call));
                self.calls.len() - 1
            }
        };
        self.plan(met.ended.max(now), Step::CallEnds { request: index, call });
    }

    /// Takes a pooled connection or dials, and simulates the request. Returns its result and the connection it used.
    fn connect(
        &mut self,
        replica: usize,
        spec: &HookSpec,
        latency: f64,
        limit: At,
        now: At,
    ) -> (Met, Option<(usize, At)>) {
        let cluster = Arc::clone(&self.cluster);
        let service = &cluster.services[spec.service];
        let at_once = |end| Met {
            ended: (now + SECOND / 4_000).min(limit),
            end,
            keeps: false,
        };
        let home = &mut self.replicas[replica];
        let bundle = *service.bundle.at(now);
        if home.bundles[spec.service] != bundle {
            home.bundles[spec.service] = bundle;
            home.pools[spec.service].clear();
        }
        let attempt = |open| Attempt {
            at: now,
            limit,
            latency: seconds(latency),
            open,
        };
        let kept = home.pools[spec.service].take(now, |connection| {
            let manner = &service.backends[connection.backend].to_api;
            was_gone(manner, connection.opened, now)
        });
        if let Some(kept) = kept {
            let met = meet(&service.backends[kept.backend].to_api, attempt(true));
            return (met, Some((kept.backend, kept.opened)));
        }
        // The API server resolves the Service only when it dials.
        if !service.exists.at(now) {
            return (at_once(End::NoService), None);
        }
        let Some(backend) = self.random.pick(&service.listed(now)) else {
            let end = match service.routing {
                Routing::Endpoints => End::NoEndpoints,
                Routing::ClusterIp | Routing::Url => End::Refused,
            };
            return (at_once(end), None);
        };
        if !service.trusted.at(now) {
            return (at_once(End::Tls), None);
        }
        let met = meet(&service.backends[backend].to_api, attempt(false));
        (met, Some((backend, now)))
    }

    pub(super) fn call_ends(&mut self, index: usize, call: usize, now: At) {
        let Some(ended) = self.calls[call].take() else {
            return;
        };
        self.free_calls.push(call);
        let cluster = Arc::clone(&self.cluster);
        let spec = &cluster.hooks[ended.hook];
        let Some(request) = self.requests[index].as_mut() else {
            return;
        };
        let took = now - ended.began;
        let class = &cluster.classes[request.class];
        let replica = &mut self.replicas[request.replica];
        let same_process = replica.process == request.process;
        let outcome = outcome(&ended);
        if same_process {
            replica.counters.calls[spec.series].note(class.verb.operation(), took, outcome);
            if ended.met.keeps
                && let Some((backend, opened)) = ended.connection
            {
                replica.pools[spec.service].put(backend, opened, now);
            }
        }
        if matches!(class.verb.operation(), "CREATE" | "UPDATE") {
            let touch = Touch {
                at: now,
                failed: ended.met.end != End::Answered,
                took,
                canary: class.dry_run,
            };
            self.ledger.note(ended.hook, touch);
        }
        let refused = outcome.rejected();
        if refused && request.refusal.is_none() {
            request.refusal = Some(Refusal {
                hook: ended.hook,
                end: (!ended.denied).then_some(ended.met.end),
                backend: ended.connection.map(|(backend, _)| backend),
                status: match outcome {
                    Outcome::Denied(code) => code,
                    _ => 500,
                },
            });
        }
        if spec.is_mutating() {
            request.mutating += took;
            match refused {
                true => self.store(index, now),
                // failurePolicy Ignore does not help when the request itself has timed out.
                false if now >= request.limit.min(request.leaves) => self.too_late(index, now),
                false => self.mutate(index, now),
            }
        } else {
            request.validating = request.validating.max(took);
            request.pending -= 1;
            if request.pending == 0 {
                self.store(index, now);
            }
        }
    }

    fn too_late(&mut self, index: usize, now: At) {
        if let Some(request) = self.requests[index].as_mut() {
            request.code = 504;
        }
        self.done(index, now);
    }

    /// The error message that the client gets.
    pub(super) fn explain(&self, request: &Request) -> String {
        match &request.refusal {
            Some(Refusal {
                hook,
                end: Some(end),
                backend,
                ..
            }) => messages::call_failed(&self.cluster, &self.cluster.hooks[*hook], *end, *backend),
            Some(Refusal { hook, end: None, .. }) => messages::denied(&self.cluster.hooks[*hook]),
            None if request.code == 403 => messages::forbidden(&self.cluster.classes[request.class]),
            None if request.code == 429 => "Too many requests, please try again later.".to_owned(),
            None => format!(
                "Timeout: request did not complete within the allotted timeout ({} s)",
                as_seconds(request.limit - request.began)
            ),
        }
    }
}

/// How the API server counts the end of a call.
fn outcome(call: &Call) -> Outcome {
    let refused = call.fails;
    match call.met.end {
        End::Answered if call.denied => Outcome::Denied(403),
        End::Answered => Outcome::Allowed,
        End::TimedOut(Stage::Connect | Stage::Tls | Stage::Answer) if call.abandoned => {
            Outcome::Abandoned { refused }
        }
        End::Status(code) => Outcome::Failed { code, refused },
        _ => Outcome::Failed { code: 503, refused },
    }
}
