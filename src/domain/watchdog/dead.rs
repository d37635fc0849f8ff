//! Whether a hook whose failures are ignored answers no call at all, so that every request is already admitted without
//! review; and whether it is back.

use std::time::Duration;

use super::facts::{FactFinder, counted_calls};
use crate::cluster::hook::{Backend, BackendPath, Hook};
use crate::diagnose::evidence::Evidence;
use crate::diagnose::probes::counted;
use crate::observe::history::Window;
use crate::observe::probing::BackendState;
use crate::observe::snapshot::WriteSeries;
use crate::thresholds as t;
use crate::vocabulary::Cause;

/// Multiples of [`dead_after`] that are tried as the span in which every call failed. Calls of writes that wait for several
/// hooks end in bursts, so that a short span may hold none.
const SPANS: [u32; 3] = [1, 2, 3];

impl FactFinder<'_> {
    /// No backend answers, and no API server got an answer. While users' writes do not reach the hook, probes alone decide.
    pub(super) fn is_dead(&self, evidence: &Evidence<'_>, hook: &Hook) -> bool {
        evidence.fails_open()
            && !self.scene.self_doubt
            && self.is_silent(evidence, hook)
            && self.others_answer(hook)
            && (evidence.is_uncalled()
                || SPANS
                    .iter()
                    .any(|times| self.every_call_failed(evidence, hook, *times)))
    }

    /// For [`dead_after`] every backend has been silent or refused connections, and pooled connections have been silent too.
    fn is_silent(&self, evidence: &Evidence<'_>, hook: &Hook) -> bool {
        let since = self.scene.now.before(dead_after(evidence, hook));
        let mut direct = evidence
            .backends
            .iter()
            .filter(|(backend, _)| backend.path != BackendPath::ClusterIp)
            .peekable();
        let is_silent = |(_, state): &(Backend, BackendState)| match state {
            BackendState::Dead(dead) => {
                matches!(dead.cause, Cause::Hanging | Cause::Refused | Cause::Unreachable)
                    && dead.since <= since
            }
            _ => false,
        };
        let known = self.scene.seen.backends.get(&hook.id);
        let mut known = known.into_iter().flatten();
        known.all(|(_, memory)| memory.is_silent_since(since))
            && direct.peek().is_some()
            && direct.all(is_silent)
    }

    /// hookwatch's own network works: a backend at another place answers probes, or there is no other place.
    fn others_answer(&self, hook: &Hook) -> bool {
        let place = hook.target.place();
        let others = self
            .scene
            .seen
            .hooks()
            .filter(|other| other.target.place() != place);
        let others = others.filter_map(|other| self.scene.states.get(&other.id));
        let mut others = others.flat_map(|states| counted(states)).peekable();
        others.peek().is_none() || others.any(answers)
    }

    /// Over `times` [`dead_after`], every API server counted failed calls and no answered one. The calls of hookwatch's own
    /// canaries are no proof: other clients' calls must have failed too, or other clients' writes have waited.
    fn every_call_failed(&self, evidence: &Evidence<'_>, hook: &Hook, times: u32) -> bool {
        let (seen, now) = (self.scene.seen, self.scene.now);
        let key = hook.id.counted_as();
        let span = dead_after(evidence, hook) * times;
        let each = seen.history.each_over(span, &key, now);
        let Some((from, each)) = each.filter(|_| seen.servers.all_scraped_within(t::recent(), now)) else {
            return false;
        };
        let own = evidence.covered_by.iter();
        let own = own.map(|target| seen.canaries.ended_within(*target, from, now).len());
        let own = own.sum::<usize>() as f64 * t::replicas();
        let failed: f64 = each.iter().map(|series| series.fail_open).sum();
        seen.unlisted_api_servers.is_none()
            && (failed >= own + 1.0 || self.a_call_waited(hook))
            && each
                .iter()
                .all(|series| series.fail_open >= 1.0 && series.answered() < 1.0)
    }

    /// Other clients' writes (no dry runs, and so no canaries of any replica) waited for webhooks for at least this one's timeout
    /// in all: that is their duration less the API server's own time for them, over the last minute.
    fn a_call_waited(&self, hook: &Hook) -> bool {
        let minute = self.scene.plane.windows.minute.as_ref();
        minute.is_some_and(|window| {
            let WriteSeries { duration, sli } = window.gained.all_writes();
            sli.count >= 1.0 && duration.sum - sli.sum >= hook.timeout.as_secs_f64()
        })
    }

    /// Whether the shield of a hook that fails open may be lifted: every backend answers, and no call fails open any more.
    /// Canaries are no evidence here, as they are written either way.
    pub(super) fn may_be_back(&self, evidence: &Evidence<'_>) -> bool {
        if !evidence.fails_open() || !evidence.is_shielded() {
            return true;
        }
        counted(evidence.backends).into_iter().all(answers) && !evidence.failed_open
    }

    /// The hook works and denies most requests: since it was last changed calls were counted and none failed, and it answered
    /// none with a code of 5xx.
    pub(super) fn merely_denies(&self, evidence: &Evidence<'_>, hook: &Hook, cause: Option<Cause>) -> bool {
        let errs = |window: &Window| {
            let codes = counted_calls(hook, window).map(|series| series.codes.range(500..600));
            codes.into_iter().flatten().any(|(_, count)| *count >= 1.0)
        };
        cause == Some(Cause::Denying)
            && evidence
                .reconfigured
                .is_none_or(|at| evidence.was_answered_since(at))
            && !self.scene.plane.windows.spans().any(errs)
    }
}

/// How long a hook must not have answered before it counts as dead. Its timeout is enough if every backend refuses connections;
/// silence must last at least [`t::dead_silent`], because a short pause exceeds a short timeout. An answer after the timeout does
/// not count: no probe waits for it, and no API server.
fn dead_after(evidence: &Evidence<'_>, hook: &Hook) -> Duration {
    let mut direct = evidence
        .backends
        .iter()
        .filter(|(backend, _)| backend.path != BackendPath::ClusterIp);
    let refuses =
        direct.all(|(_, state)| matches!(state, BackendState::Dead(dead) if dead.cause == Cause::Refused));
    if refuses {
        hook.timeout
    } else {
        hook.timeout.max(t::dead_silent())
    }
}

/// Whether the last probe of a backend was answered.
fn answers((_, state): &(Backend, BackendState)) -> bool {
    matches!(state, BackendState::Alive { .. } | BackendState::Slow { .. })
}
