//! Faults of webhooks, each kind in several variants.

use super::rollout::Rollout;
use super::stage::call_rate;
use super::{Fault, Kind};
use crate::model::cluster::{Cluster, Routing, Service};
use crate::model::manner::Manner;
use crate::model::{At, SECOND, as_seconds, seconds};
use crate::random::Random;

/// Least calls per second of a Service for faults that only calls show: with fewer, minutes are too short to see them.
const MET: f64 = 0.15;
/// Least calls per second for faults of pooled connections and rollouts: with fewer, no call meets them.
const BUSY: f64 = 2.0;

/// When the fault lasts.
#[derive(Debug, Clone, Copy)]
struct Span {
    from: At,
    until: At,
}

impl Span {
    /// Makes every backend behave like this towards the API server and, with `us_too`, towards hookwatch. Returns the note.
    fn all(self, service: &mut Service, manner: Manner, us_too: bool, note: &str) -> String {
        for backend in &mut service.backends {
            backend.to_api.during(self.from, self.until, manner);
            if us_too {
                backend.to_us.during(self.from, self.until, manner);
            }
        }
        let whom = if us_too {
            ""
        } else {
            "; hookwatch's probes see none of it"
        };
        format!("{note}{whom}")
    }

    /// The same span with a later start.
    fn later(self, by: At) -> Self {
        Self {
            from: self.from + by,
            ..self
        }
    }
}

/// Injects a fault into a Service that is not `taken`; `None` when no Service can have the fault.
pub fn inject(
    cluster: &mut Cluster,
    kind: Kind,
    (from, until): (At, At),
    taken: &[usize],
    random: &mut Random,
) -> Option<Fault> {
    let index = choose(cluster, kind, taken, random)?;
    // A fault of a Service affects all webhooks that it serves.
    let hooks: Vec<usize> = (0..cluster.hooks.len())
        .filter(|hook| cluster.hooks[*hook].service == index)
        .collect();
    let timeout = hooks.iter().map(|hook| cluster.hooks[*hook].timeout).min()?;
    let span = Span { from, until };
    let service = &mut cluster.services[index];
    let mut severity = 0.0;
    let note = match kind {
        Kind::Slow => {
            // Stays below the shortest timeout: a slower webhook would time out, which is another kind of fault.
            severity = random.log_between(0.25, (0.7 * as_seconds(timeout)).clamp(0.4, 4.0));
            slow(service, span, severity, random)
        }
        Kind::Hanging => hanging(service, span, random),
        Kind::Refused => span.all(service, Manner::Refusing, true, "nobody listens any more"),
        Kind::NoEndpoints => no_endpoints(service, span, random),
        Kind::NoService => no_service(service, span, random),
        Kind::Erroring => erroring(service, span, random),
        Kind::TlsInvalid => tls_invalid(service, span, random),
        Kind::Partial => partial(service, span, random),
        Kind::FailingOpen => failing_open(service, span, random),
        Kind::Unreachable => {
            if random.chance(0.6) {
                span.all(
                    service,
                    Manner::Vanished,
                    false,
                    "a firewall drops what the API server sends",
                )
            } else {
                span.all(
                    service,
                    Manner::Unroutable,
                    false,
                    "a router knows no way from the API server",
                )
            }
        }
        Kind::RolloutGap => rollout_gap(service, index, span, random),
        Kind::StaleConnection => stale(service, span, random),
        Kind::Denying => {
            let part = random.between(0.6, 1.0);
            for hook in &hooks {
                cluster.hooks[*hook].denies.during(from, until, part);
            }
            format!("denies {:.0} % of everything", part * 100.0)
        }
        _ => return None,
    };
    let fault = Fault::new(kind, hooks, (from, until), note);
    Some(Fault { severity, ..fault })
}

/// Picks a Service that can have the fault and whose webhooks are called often enough for it to matter.
fn choose(cluster: &Cluster, kind: Kind, taken: &[usize], random: &mut Random) -> Option<usize> {
    let fits = |index: &usize| {
        let service = &cluster.services[*index];
        let hooks = || cluster.hooks.iter().filter(|hook| hook.service == *index);
        let has_endpoints = service.routing != Routing::Url;
        let several = service.backends.len() >= 2;
        let rate = hooks().map(|hook| call_rate(cluster, hook)).sum::<f64>();
        let (met, busy) = (rate >= MET, rate >= BUSY);
        !taken.contains(index)
            && match kind {
                Kind::NoEndpoints | Kind::NoService => has_endpoints,
                Kind::RolloutGap => has_endpoints && busy,
                Kind::Partial => has_endpoints && several,
                Kind::StaleConnection => has_endpoints && several && busy,
                Kind::FailingOpen => met && hooks().all(|hook| !hook.fails),
                Kind::Slow | Kind::Erroring | Kind::Denying | Kind::Hanging | Kind::Unreachable => met,
                _ => true,
            }
    };
    let fitting: Vec<usize> = (0..cluster.services.len()).filter(fits).collect();
    random.pick(&fitting)
}

fn slow(service: &mut Service, span: Span, extra: f64, random: &mut Random) -> String {
    let us_too = random.chance(0.6);
    if !random.chance(0.15) {
        return span.all(
            service,
            Manner::Slow(extra),
            us_too,
            &format!("{extra:.2} s slower"),
        );
    }
    const STEPS: At = 40;
    for step in 0..STEPS {
        let part = (step + 1) as f64 / STEPS as f64;
        let later = span.later((span.until - span.from) / STEPS * step);
        later.all(service, Manner::Slow(extra * part * part), us_too, "");
    }
    let whom = if us_too {
        ""
    } else {
        "; hookwatch's probes see none of it"
    };
    format!("slower and slower, to {extra:.2} s in the end{whom}")
}

fn hanging(service: &mut Service, span: Span, random: &mut Random) -> String {
    match random.weighted([0.35, 0.25, 0.2, 0.2]) {
        0 => span.all(service, Manner::Stopped, true, "stopped as under SIGSTOP"),
        1 => span.all(service, Manner::Silent, true, "accepts and says nothing"),
        2 => span.all(service, Manner::Vanished, true, "the hosts are gone"),
        _ => span.all(service, Manner::Silent, false, "reviews are never answered"),
    }
}

fn unlist(service: &mut Service, span: Span) {
    for backend in &mut service.backends {
        backend.listed.during(span.from, span.until, false);
    }
}

fn no_endpoints(service: &mut Service, span: Span, random: &mut Random) -> String {
    unlist(service, span);
    if random.chance(0.8) {
        span.all(service, Manner::Refusing, true, "all pods are gone")
    } else {
        "no pod is ready, but they serve on".to_owned()
    }
}

fn no_service(service: &mut Service, span: Span, random: &mut Random) -> String {
    service.exists.during(span.from, span.until, false);
    unlist(service, span);
    if random.chance(0.7) {
        span.all(service, Manner::Refusing, true, "Service and pods were deleted")
    } else {
        "the Service was deleted, its pods serve on".to_owned()
    }
}

fn erroring(service: &mut Service, span: Span, random: &mut Random) -> String {
    match random.weighted([0.6, 0.2, 0.2]) {
        0 => {
            let status = [500, 502, 503, 404, 413][random.weighted([4.0, 1.0, 1.0, 1.0, 0.5])];
            let us_too = random.chance(0.5);
            span.all(
                service,
                Manner::Failing(status),
                us_too,
                &format!("answers HTTP {status}"),
            )
        }
        1 => span.all(service, Manner::Nonsense, true, "answers with no AdmissionReview"),
        _ => span.all(
            service,
            Manner::Cutting,
            random.chance(0.7),
            "breaks every connection",
        ),
    }
}

fn tls_invalid(service: &mut Service, span: Span, random: &mut Random) -> String {
    match random.weighted([0.5, 0.3, 0.2]) {
        0 => {
            service.trusted.during(span.from, span.until, false);
            // The API server makes a new client for a new caBundle, so no pooled connection survives the change.
            let next = service.bundle.at(span.from) + 1;
            service.bundle.set(span.from, next);
            service.bundle.set(span.until, next + 1);
            "the caBundle is another authority's".to_owned()
        }
        1 => {
            span.all(service, Manner::Refusing, true, "");
            let begun = "began anew with a certificate that has expired";
            span.later(SECOND)
                .all(service, Manner::BadCertificate, true, begun)
        }
        _ => {
            let note = "the certificate has expired; connections that are open serve on";
            span.all(service, Manner::BadCertificate, true, note)
        }
    }
}

fn partial(service: &mut Service, span: Span, random: &mut Random) -> String {
    let bad = 1 + random.below(service.backends.len() - 1);
    let manners = [
        Manner::Refusing,
        Manner::Stopped,
        Manner::Vanished,
        Manner::BadCertificate,
    ];
    let manner = manners[random.weighted([0.5, 0.2, 0.2, 0.1])];
    let of = service.backends.len();
    for backend in service.backends.iter_mut().take(bad) {
        backend.behave(span.from, span.until, manner);
    }
    format!("{bad} of {of} backends: {manner:?}")
}

/// Calls fail and failurePolicy Ignore admits the writes, while hookwatch's probes see nothing wrong.
fn failing_open(service: &mut Service, span: Span, random: &mut Random) -> String {
    match random.weighted([0.5, 0.3, 0.2]) {
        0 => span.all(service, Manner::Nonsense, true, "answers with no AdmissionReview"),
        1 => span.all(
            service,
            Manner::Cutting,
            false,
            "breaks every connection of the API server",
        ),
        _ => {
            span.all(service, Manner::Cutting, false, "");
            let note = "a proxy on the API server's way serves a certificate of its own";
            span.later(SECOND)
                .all(service, Manner::BadCertificate, false, note)
        }
    }
}

/// Repeated rollouts in which ready endpoints do not serve.
fn rollout_gap(service: &mut Service, index: usize, span: Span, random: &mut Random) -> String {
    let rollout = Rollout {
        early: random.between(2.0, 8.0),
        late: if random.chance(0.5) {
            random.between(0.5, 2.5)
        } else {
            0.0
        },
    };
    let (mut at, mut rounds) = (span.from, 0);
    while at < span.until && service.backends.len() + 6 < 150 {
        at = rollout.run(service, index, at, random) + seconds(random.between(5.0, 30.0));
        rounds += 1;
    }
    format!(
        "{rounds} rollouts, each Pod listed {:.1} s before it serves and {:.1} s after it stopped",
        rollout.early, rollout.late
    )
}

/// A node dies: its Pod leaves the ready endpoints at once, but pooled connections to it are dead.
fn stale(service: &mut Service, span: Span, random: &mut Random) -> String {
    let gone = random.below(service.backends.len());
    let backend = &mut service.backends[gone];
    backend.to_api.set(span.from, Manner::Vanished);
    backend.to_us.set(span.from, Manner::Vanished);
    backend.listed.set(span.from, false);
    format!("the node of backend {gone} is gone, and the connections to it are dead")
}
