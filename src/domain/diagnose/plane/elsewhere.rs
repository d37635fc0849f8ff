//! Causes of slow or refused writes other than hooks.

use super::PlaneEvidence;
use crate::diagnose::verdict::NonHookCause;
use crate::observe::canaries::CanaryMemory;
use crate::observe::canary::CanaryOutcome;
use crate::observe::history::{Usual, Window};
use crate::observe::snapshot::HookSeries;
use crate::text::{human, human_seconds};
use crate::thresholds as t;
use crate::time::Time;
use crate::vocabulary::NotAHook;

impl PlaneEvidence<'_> {
    /// What slows or blocks writes and is no hook. The caller drops [`NotAHook::Unexplained`] while a hook is named: the times of
    /// calls and of requests may have been read a moment apart.
    ///
    /// `hung_until`: when a hook was last known to hang. Requests that wait for it hold seats in flow control and are counted only
    /// when they end, so that a queue at that time is the hook's doing. The API server counts the wait of a request that is cut
    /// off as its own time (`endpoints/metrics/metrics.go`), so that at that time only etcd's own latency is evidence.
    pub fn elsewhere(&self, hung_until: Option<Time>) -> Option<NonHookCause> {
        if let Some(scrape) = self.unanswered
            && let Some(canary) = self.canaries_unreachable()
        {
            let mut evidence = vec![format!("Scrapes do not reach the API server: {scrape}.")];
            let has_canaries = self.canaries.iter().next().is_some();
            if has_canaries {
                evidence.push(format!("Canaries do not reach it either: {canary}."));
            }
            if self.cut_off {
                evidence.push("No webhook's backend answers either: hookwatch may be cut off.".to_owned());
            }
            // If it was never reached, hookwatch may have the wrong address or CA.
            let is_sure = self.was_reached() && has_canaries && !self.cut_off;
            let confidence = if is_sure { 0.9 } else { 0.5 };
            return Some(found(NotAHook::ApiServerDown, confidence, evidence));
        }
        if let Some(sick) = self.sick.as_ref().filter(|_| self.canaries_meet_the_sick()) {
            return Some(found(NotAHook::ReplicaDown, 0.9, vec![sick.clone()]));
        }
        let Some(window) = self.window() else {
            return self.unexplained();
        };
        let hung = hung_until >= Some(window.from);
        let queued = self.queued(window).filter(|_| !hung);
        if queued.is_some() {
            return queued;
        }
        let unknown = || self.unexplained().or_else(|| self.not_stored(window));
        let Some(own) = self.slow_own_seconds() else {
            return unknown();
        };
        let mut evidence = vec![format!(
            "The API server's own part of a write, without webhooks, takes {} (usually {}).",
            human_seconds(own),
            usually(&self.baseline.sli),
        )];
        let (etcd, usual) = (window.gained.etcd.mean(), usually(&self.baseline.etcd));
        let said = etcd.map(human_seconds);
        evidence.extend(said.map(|etcd| format!("An etcd request takes {etcd} (usually {usual}).")));
        if let Some(crowd) = self.crowd(window).filter(|_| !hung) {
            evidence.push(crowd);
            return Some(found(NotAHook::Overloaded, 0.9, evidence));
        }
        let slow = match self.baseline.etcd.median() {
            Some(usual) => (t::etcd_factor() * usual).max(t::etcd_at_least()),
            None => t::etcd_always(),
        };
        if etcd >= Some(slow) {
            return Some(found(NotAHook::EtcdSlow, 0.9, evidence));
        }
        let own = || Some(found(NotAHook::Unexplained, 0.5, evidence));
        if hung { unknown() } else { unknown().or_else(own) }
    }

    /// Most writes end in 5xx, webhooks failed few of them, and dry runs pass: everything before the store accepts them.
    fn not_stored(&self, window: &Window) -> Option<NonHookCause> {
        let results = &window.gained.write_results;
        let (failed, total) = (results.failed, results.total());
        let by_hooks: f64 = window.gained.hooks.values().map(HookSeries::unanswered).sum();
        let mut canaries = self.canaries.iter().map(|(_, memory)| memory).peekable();
        let passes = |memory: &CanaryMemory| {
            let written = memory
                .latest(self.now)
                .is_some_and(|report| report.outcome == CanaryOutcome::Written);
            written && memory.late(self.now).is_none()
        };
        let is_store = failed >= t::few_calls()
            && failed >= t::most_calls() * total
            && by_hooks < t::most_calls() * failed
            && canaries.peek().is_some()
            && canaries.all(passes);
        let said = format!(
            "{failed:.0} of {total:.0} writes end in 5xx, and webhooks failed {by_hooks:.0} of them; hookwatch's dry runs, which \
             store nothing, pass. Check etcd's space and alarms, and encryption at rest."
        );
        is_store.then(|| found(NotAHook::Unexplained, 0.5, vec![said]))
    }

    /// The load of an overloaded API server, in one sentence; `None` if it is not overloaded. An overloaded API server is slow at
    /// everything, etcd calls included, and gets more requests than usual, while behind a slow etcd clients send fewer. The number
    /// of reads in flight alone does not show it: that also rises where each read merely takes longer.
    fn crowd(&self, window: &Window) -> Option<String> {
        let (gained, baseline) = (&window.gained, self.baseline);
        let (rate, usual_rate) = (window.read_rate, baseline.read_rate.median());
        let more_reads = usual_rate.is_some_and(|usual| rate >= t::more_than_usual() * usual.max(1.0));
        let as_many_reads = usual_rate.is_some_and(|usual| rate >= t::as_many_reads() * usual);
        let reading = gained.in_flight.map_or(0.0, |in_flight| in_flight.read_only);
        let usual_reading = baseline.reads_in_flight.median().unwrap_or(0.0);
        let crowded = reading >= t::crowd().max(t::etcd_factor() * usual_reading);
        let turned_away = gained.write_results.throttled + gained.queue_rejected >= 1.0
            || gained.in_queue.read_only + gained.in_queue.mutating >= 1.0;
        let mean = gained.reads.mean();
        let usual = baseline.read.median().map(|usual| t::own_factor() * usual);
        let slow_reads = usual.is_some_and(|slow| mean >= Some(slow.max(t::excess_at_least())));
        let etcd = gained.etcd.mean().zip(baseline.etcd.median());
        let etcd_slows_too = etcd.is_none_or(|(etcd, usual)| etcd >= t::more_than_usual() * usual);
        let swamped = (more_reads || crowded && as_many_reads) && etcd_slows_too || turned_away;
        let unknown = || "unknown".to_owned();
        let usual = usual_rate.map_or_else(unknown, |usual| format!("{usual:.0}"));
        let each = mean.map_or_else(unknown, human_seconds);
        (swamped && (slow_reads || crowded)).then(|| {
            format!(
                "It answers {rate:.0} reads a second (usually {usual}), {each} each, with {reading:.0} at once."
            )
        })
    }

    /// Which of etcd, the API server itself and flow control take no longer than usual, in one sentence, with the end of the
    /// span that this is known for; `None` when none is known to, or another cause than a webhook is known.
    pub fn ruled_out(&self, elsewhere: Option<&NonHookCause>) -> Option<(Time, String)> {
        if elsewhere.is_some_and(|found| found.cause != NotAHook::Unexplained) {
            return None;
        }
        let window = self.window()?;
        let (gained, baseline) = (&window.gained, self.baseline);
        let innocent = |who: &str, value: Option<f64>, per: &str, usual: &Usual| {
            let limit = t::more_than_usual() * usual.median()?.max(t::innocent_seconds());
            let value = human_seconds(value.filter(|value| *value < limit)?);
            Some(format!("{who} ({value} {per}, usually {})", usually(usual)))
        };
        let etcd = innocent("etcd", gained.etcd.mean(), "a request", &baseline.etcd);
        let own = self.own_seconds();
        let own = innocent(
            "the API server itself",
            own,
            "of its own per write",
            &baseline.sli,
        );
        let queue = gained
            .queue_wait
            .mean()
            .filter(|wait| *wait < t::excess_at_least());
        let queue = queue.map(|wait| format!("flow control ({} in the queue)", human_seconds(wait)));
        let innocent: Vec<String> = [etcd, own, queue].into_iter().flatten().collect();
        (!innocent.is_empty()).then(|| (window.to, format!("Ruled out: {}.", innocent.join("; "))))
    }

    fn queued(&self, window: &Window) -> Option<NonHookCause> {
        let gained = &window.gained;
        let writes = gained.all_writes();
        let wait = gained.queue_wait.mean().filter(|wait| *wait >= t::queue_wait())?;
        let excess = writes.duration.sum - writes.sli.sum;
        let unexplained = excess - window.hook_seconds() >= t::most_calls() * excess;
        let wait = human_seconds(wait);
        let said = format!(
            "Requests wait {wait} for a seat in flow control, and webhooks explain at most half of the extra time."
        );
        let found = found(NotAHook::QueuedByFlowControl, 0.8, vec![said]);
        (unexplained && excess >= t::excess_at_least() * writes.duration.count).then_some(found)
    }

    /// A canary shows trouble with writes that no other cause explains.
    fn unexplained(&self) -> Option<NonHookCause> {
        let refused = self.refused().and_then(|(target, report)| {
            let how = match &report.outcome {
                CanaryOutcome::Denied { webhook } => format!("was denied by webhook {webhook}"),
                CanaryOutcome::Refused { status, message } => answered(*status, message),
                _ => return None,
            };
            Some(format!(
                "Writes of the control plane's kinds are refused: a dry-run write of {target} {how}."
            ))
        });
        let said = refused.or_else(|| self.canary_in_trouble())?;
        Some(found(NotAHook::Unexplained, 0.5, vec![said]))
    }

    /// What became of a canary that waits, or that got no answer or an error.
    fn canary_in_trouble(&self) -> Option<String> {
        self.canaries.iter().find_map(|(target, memory)| {
            let late = memory.overdue_for(self.now).map(|(_, waiting)| waiting);
            let what = match (late, memory.latest(self.now).map(|report| &report.outcome)) {
                (Some(waiting), _) if waiting >= t::unexplained_after() => {
                    format!("has been waiting for {}", human(waiting))
                }
                (_, Some(CanaryOutcome::Refused { status, message })) if matches!(status, 429 | 500..) => {
                    answered(*status, message)
                }
                (_, Some(CanaryOutcome::TimedOut)) => "was never answered".to_owned(),
                _ => return None,
            };
            Some(format!("A dry-run write of {target} {what}."))
        })
    }

    /// Whether recent canaries failed as with an API server that does not answer: no connection, no answer, or a late
    /// one.
    fn canaries_meet_the_sick(&self) -> bool {
        self.canaries.iter().any(|(_, memory)| {
            memory.late(self.now).is_some()
                || memory.any_within(self.now, t::through_lately(), |outcome| !outcome.is_heard())
        })
    }

    /// Why canaries do not get through, when the newest has no connection or no answer, or none came back lately.
    fn canaries_unreachable(&self) -> Option<String> {
        let latest = self.canaries.iter();
        let latest = latest.filter_map(|(_, memory)| memory.latest(self.now));
        let newest = latest.max_by_key(|report| (report.started + report.took, report.outcome.is_heard()));
        match newest.map(|report| &report.outcome) {
            Some(CanaryOutcome::Unreachable { why }) => Some(why.clone()),
            Some(CanaryOutcome::TimedOut) => Some("no answer".to_owned()),
            Some(_) => None,
            None => Some("none came back lately".to_owned()),
        }
    }
}

const fn found(cause: NotAHook, confidence: f64, evidence: Vec<String>) -> NonHookCause {
    NonHookCause {
        cause,
        confidence,
        evidence,
    }
}

/// How a canary was answered, as the end of a sentence without its full stop, which messages of an API server often have.
fn answered(status: u16, message: &str) -> String {
    format!(
        "was answered with HTTP {status}: {}",
        message.trim_end_matches('.')
    )
}

fn usually(usual: &Usual) -> String {
    usual.median().map_or_else(|| "unknown".to_owned(), human_seconds)
}
