//! One direct attempt against one backend, as the API server would connect.
//!
//! The API server's visible behaviour is copied: HTTP/1.1 only, TLS 1.2 or newer, trust in the hook's caBundle alone, the server
//! name `<service>.<namespace>.svc`, no session resumption, no retries (kube-apiserver 1.36, `apis/util/webhook/client.go`). The
//! API server's client follows redirects; a probe does not, because they lead to a server that is not the backend. reqwest is not
//! used here: it does not expose the phases, hides the certificate when verification fails, and resumes sessions.

use std::fmt;
use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::FutureExt;
use http::HeaderValue;
use rustls::crypto::CryptoProvider;
use thiserror::Error;
use tokio::time::{Instant, sleep_until, timeout};

mod bundle;
mod dial;
mod exchange;
mod fault;
mod parity;
mod plan;
mod pool;
mod progress;
mod resolve;
mod review;
mod taken;
#[cfg(test)]
mod tests;
mod trust;

pub use plan::ask_of;
pub use review::answer::check_answer;

use crate::domain::cluster::hook::{Backend, Hook, ProbeLevel, ProbeTarget};
use crate::domain::observe::probe::{
    CertificateFacts, ConnectionKind, PhaseDurations, ProbeAnswer, ProbeOutcome, ProbeOverdue, ProbePhase,
    ProbeReport, TlsFault,
};
use crate::domain::text::bounded_to;
use crate::domain::time::Time;
use crate::io::Clock;

use dial::Dial;
use exchange::{Link, ProbeReply};
use plan::{ProbePlan, Uids};
use pool::Pool;
use progress::Progress;
use resolve::Resolver;
use trust::{Sighting, Trust, TrustStore};

/// The bounds of a [`Prober`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbeLimits {
    /// The longest any probe may take, whatever its request allows. The API server's own cap is 30 s, which is also its dialer's
    /// limit for a TCP connection.
    pub longest: Duration,
    /// The longest a TLS handshake may take; 10 s as the API server's transport.
    pub tls: Duration,
    /// How long after its start a probe is reported as overdue, in ascending order.
    pub overdue: [Duration; 2],
    /// How many connections are kept open at most, over all backends. Each is a file descriptor.
    pub pooled: usize,
    /// Whether hookwatch runs on the API server's host. If not, a hook whose `url` names a loopback address is not probed: here
    /// that address belongs to another server.
    pub beside_api_server: bool,
}

impl Default for ProbeLimits {
    fn default() -> Self {
        Self {
            longest: Duration::from_secs(30),
            tls: Duration::from_secs(10),
            overdue: [Duration::from_secs(1), Duration::from_secs(2)],
            pooled: 512,
            beside_api_server: true,
        }
    }
}

/// Most bytes of the reason for a failure. An alert's description has 1024 in all, and the remedy follows the reason.
const MAX_WHY: usize = 300;

/// Cuts a text about a failure that came from outside to [`MAX_WHY`] bytes.
fn brief(text: &str) -> String {
    bounded_to(MAX_WHY, text)
}

/// Why there is no [`Prober`].
#[derive(Debug, Error)]
pub enum ProberError {
    /// The TLS provider can do neither TLS 1.2 nor 1.3.
    #[error("the TLS provider is of no use for probes: {0}")]
    Provider(#[source] rustls::Error),
}

/// What to probe, and how.
#[derive(Debug, Clone)]
pub struct ProbeRequest {
    /// The hook that the backend serves.
    pub hook: Arc<Hook>,
    /// One of its backends.
    pub backend: Backend,
    /// How far to go.
    pub level: ProbeLevel,
    /// On a new connection or on the pooled one.
    pub connection: ConnectionKind,
    /// Whether the backend was removed: its pooled connection is probed but never redialled, because the address may
    /// belong to another Pod by now.
    pub gone: bool,
    /// How long the whole probe may take: the hook's timeout.
    pub deadline: Duration,
    /// Hookwatch's own namespace: a review's object and its service account are in it.
    pub namespace: Arc<str>,
    /// The W3C trace context that the request carries, where there is one.
    pub traceparent: Option<HeaderValue>,
}

impl ProbeRequest {
    /// Whether the report may say how the probe fails, see [`Hook::vouches_for`]. A pooled connection to a removed backend was
    /// opened while the backend was listed.
    fn may_tell(&self) -> bool {
        self.gone || self.hook.vouches_for(&self.backend)
    }

    /// The phase, or [`ProbePhase::Withheld`] where the report may not say how the probe fails.
    fn tells(&self, phase: ProbePhase) -> ProbePhase {
        if self.may_tell() {
            phase
        } else {
            ProbePhase::Withheld
        }
    }

    /// Whether the report may say no more of an outcome than that there was no good answer in time.
    fn withholds(&self, outcome: &ProbeOutcome, sighting: &Sighting) -> bool {
        // A verifier that differs counts as alive. Without a caBundle and roots to verify with, every TLS server would be alive,
        // and so would one that sends an alert before its certificate.
        let unproven = matches!(outcome, ProbeOutcome::VerifierDiffers { .. })
            && (self.hook.ca_bundle.is_empty() || sighting.seen().objection.is_none());
        let undialled = matches!(
            outcome,
            ProbeOutcome::NotProbed { .. }
                | ProbeOutcome::TlsRejected {
                    fault: TlsFault::JunkCaBundle,
                    ..
                }
        );
        let good = outcome.is_alive() && !unproven;
        !good && !undialled && !self.may_tell()
    }
}

/// Ready once a handshake is done. It registers no waker: poll it after the attempt, which alone can complete a handshake. A task
/// that wakes itself runs once more, and tokio wakes another thread to help.
fn shaken(progress: &Progress) -> impl Future<Output = ()> {
    poll_fn(|_| {
        if progress.take_shaken() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
}

/// What is reported of a probe before it ends.
#[derive(Debug)]
pub enum ProbeNews {
    /// It has not ended within one of [`ProbeLimits::overdue`].
    Overdue(ProbeOverdue),
    /// Its handshake is done. The report has the outcome of a probe that asks for no more than that.
    Shaken(Box<ProbeReport>),
}

/// Probes backends. One for the whole daemon; how many probes run at once is the caller's business.
pub struct Prober {
    trust: TrustStore,
    pool: Pool,
    resolver: Resolver,
    uids: Uids,
    limits: ProbeLimits,
    clock: Clock,
}

impl fmt::Debug for Prober {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prober")
            .field("limits", &self.limits)
            .field("kept", &self.pool.len())
            .finish_non_exhaustive()
    }
}

struct Underway {
    request: ProbeRequest,
    started: Time,
    began: Instant,
    progress: Progress,
    sighting: Arc<Sighting>,
    ca_not_after: Option<Time>,
}

impl Underway {
    fn overdue(&self) -> ProbeOverdue {
        ProbeOverdue {
            hook: self.request.hook.id.clone(),
            backend: self.request.backend.clone(),
            connection: self.request.connection,
            started: self.started,
            waiting: self.began.elapsed(),
            phase: self.request.tells(self.progress.phase()),
        }
    }

    fn report(&self, phases: PhaseDurations, outcome: ProbeOutcome) -> ProbeReport {
        let withheld = matches!(
            outcome,
            ProbeOutcome::TimedOut {
                phase: ProbePhase::Withheld
            }
        );
        let seen = self.sighting.seen();
        let [served_not_before, served_not_after] = seen
            .validity
            .filter(|_| !withheld)
            .map(|both| both.map(Some))
            .unwrap_or_default();
        let vouched_until = seen.vouched_until.filter(|_| !withheld);
        ProbeReport {
            hook: self.request.hook.id.clone(),
            backend: self.request.backend.clone(),
            level: self.request.level,
            connection: self.request.connection,
            started: self.started,
            took: self.began.elapsed(),
            phases: if withheld {
                PhaseDurations::default()
            } else {
                phases
            },
            outcome,
            certificates: CertificateFacts {
                served_not_after,
                served_not_before,
                served_is_trusted: vouched_until.is_some(),
                // Unless a handshake showed which authority verifies the served certificate, only the end of the whole bundle is
                // known.
                ca_not_after: vouched_until.or(self.ca_not_after),
            },
            shared: false,
        }
    }
}

impl Prober {
    /// Reads the system's roots once. A machine without any is no error: hooks without a caBundle are then
    /// reported as [`ProbeOutcome::VerifierDiffers`].
    ///
    /// # Errors
    /// When the TLS provider can do neither TLS 1.2 nor 1.3.
    pub fn new(
        provider: Arc<CryptoProvider>,
        limits: ProbeLimits,
        clock: Clock,
    ) -> Result<Self, ProberError> {
        Ok(Self {
            trust: TrustStore::new(provider).map_err(ProberError::Provider)?,
            pool: Pool::new(limits.pooled),
            resolver: Resolver::default(),
            uids: Uids::default(),
            limits,
            clock,
        })
    }

    /// Makes one attempt. `on_news` is called at each of [`ProbeLimits::overdue`] that passes before the attempt ends, and when the
    /// handshake of a [`ConnectionKind::Fresh`] probe is done and a request follows. Dropping the future ends the attempt.
    pub async fn probe(&self, request: ProbeRequest, on_news: impl FnMut(ProbeNews)) -> ProbeReport {
        let mut attempt = Underway {
            request,
            started: (self.clock)(),
            began: Instant::now(),
            progress: Progress::default(),
            sighting: Arc::default(),
            ca_not_after: None,
        };
        let request = &attempt.request;
        let planned = ProbePlan::new(
            request,
            self.limits.beside_api_server,
            &self.uids,
            attempt.started,
        );
        let outcome = match planned {
            Err(why) => ProbeOutcome::NotProbed { why },
            Ok(plan) => {
                let trust = if plan.target.terms.insecure {
                    Trust::Anything
                } else {
                    self.trust.of(&plan.target.terms.ca_bundle, plan.service)
                };
                attempt.ca_not_after = trust.ends();
                self.follow(&attempt, plan, trust, on_news).await
            }
        };
        attempt.report(attempt.progress.finish(), outcome)
    }

    /// Runs an attempt until it ends or its time is over, and reports news of it meanwhile.
    async fn follow(
        &self,
        attempt: &Underway,
        plan: ProbePlan,
        trust: Trust,
        mut on_news: impl FnMut(ProbeNews),
    ) -> ProbeOutcome {
        let progress = &attempt.progress;
        let limit = attempt.request.deadline.min(self.limits.longest);
        let making = async {
            let making = self.attempt(&attempt.request, plan, trust, progress, &attempt.sighting);
            let outcome = making.await;
            if attempt.request.withholds(&outcome, &attempt.sighting) {
                // The time of the failure would reveal its kind, so the attempt runs into its deadline.
                pending().await
            }
            outcome
        };
        let making = timeout(limit, making);
        tokio::pin!(making);
        let mut marks = self.limits.overdue.map(|mark| attempt.began + mark).into_iter();
        let mut mark = marks.next();
        let mut overdue = pin!(sleep_until(mark.unwrap_or(attempt.began)));
        // Register the nearest of the probe's timers first: tokio wakes another thread for each timer that is nearer than all
        // before it.
        let _ = overdue.as_mut().now_or_never();
        let mut tells = attempt.request.connection == ConnectionKind::Fresh;
        let ended = loop {
            tokio::select! {
                biased;
                ended = &mut making => break ended,
                () = shaken(progress), if tells => {
                    tells = false;
                    let outcome = ProbeOutcome::Answered(ProbeAnswer::Handshake);
                    let shaken = attempt.report(progress.so_far(), outcome);
                    on_news(ProbeNews::Shaken(Box::new(shaken)));
                }
                () = overdue.as_mut(), if mark.is_some() => {
                    mark = marks.next();
                    if let Some(next) = mark {
                        overdue.as_mut().reset(next);
                    }
                    on_news(ProbeNews::Overdue(attempt.overdue()));
                }
            }
        };
        let phase = attempt.request.tells(progress.phase());
        ended.unwrap_or(ProbeOutcome::TimedOut { phase })
    }

    /// Closes the connection kept to a target that is gone, if there is one.
    pub fn forget(&self, target: &ProbeTarget) {
        self.pool.forget(target);
    }

    /// Whether a connection to the target is kept idle now.
    pub fn keeps(&self, target: &ProbeTarget) -> bool {
        self.pool.holds(target)
    }

    /// How many connections are kept idle now.
    pub fn pooled(&self) -> usize {
        self.pool.len()
    }

    async fn attempt(
        &self,
        request: &ProbeRequest,
        plan: ProbePlan,
        trust: Trust,
        progress: &Progress,
        sighting: &Arc<Sighting>,
    ) -> ProbeOutcome {
        if request.connection == ConnectionKind::Kept
            && let Some(again) = plan.message.request()
            && let Some(mut link) = self.pool.take(&plan.target)
        {
            match link.exchange(again, progress).await {
                Ok(reply) => return self.settle(request, plan, link, reply),
                Err(broken) if request.gone => return broken.outcome(sighting),
                // The server may close an idle connection at any time, and the API server redials then, too. A connection that
                // merely stays silent does not get here; it runs into the deadline.
                Err(broken) if broken.phase == ProbePhase::FirstByte => progress.restart(),
                Err(broken) => return broken.outcome(sighting),
            }
        }
        if request.gone {
            return ProbeOutcome::NotProbed {
                why: "it has left, and no connection to it is kept".to_owned(),
            };
        }
        match self
            .fresh(&request.backend, plan, trust, progress, sighting)
            .await
        {
            Ok((_, None)) => ProbeOutcome::Answered(ProbeAnswer::Handshake),
            Ok((plan, Some((link, reply)))) => self.settle(request, plan, link, reply),
            Err(outcome) => outcome,
        }
    }

    /// Dials a new connection and sends the probe's request.
    async fn fresh(
        &self,
        backend: &Backend,
        plan: ProbePlan,
        trust: Trust,
        progress: &Progress,
        sighting: &Arc<Sighting>,
    ) -> Result<(ProbePlan, Option<(Link, ProbeReply)>), ProbeOutcome> {
        if trust.is_junk() {
            return Err(ProbeOutcome::TlsRejected {
                fault: TlsFault::JunkCaBundle,
                why: "caBundle holds no certificate, so the API server cannot even dial".to_owned(),
            });
        }
        let dial = Dial {
            address: &backend.address,
            resolver: &self.resolver,
            server_name: &plan.server_name,
            config: self.trust.config(trust, sighting),
            longest_handshake: self.limits.tls,
        };
        let stream = dial.open(progress, sighting).await?;
        progress.shake();
        let Some(request) = plan.message.request() else {
            exchange::hang_up(stream);
            return Ok((plan, None));
        };
        let mut link = Link::new(stream).await?;
        let reply = link.exchange(request, progress).await;
        let reply = reply.map_err(|broken| broken.outcome(sighting))?;
        Ok((plan, Some((link, reply))))
    }

    /// Reads the answer and decides what becomes of its connection.
    fn settle(&self, request: &ProbeRequest, plan: ProbePlan, link: Link, reply: ProbeReply) -> ProbeOutcome {
        let whole = reply.body.is_some();
        let answer = plan.message.judge(reply);
        if request.connection == ConnectionKind::Kept && whole {
            self.pool.put(plan.target, link);
        } else {
            link.close();
        }
        ProbeOutcome::Answered(answer)
    }
}
