//! The state of the control plane as a whole, and the troubles with writes that are no hook's.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::cluster::hook::Subject;
use crate::diagnose::scene::Before;
use crate::diagnose::verdict::{NonHookCause, Verdict};
use crate::observe::canaries::Canaries;
use crate::observe::canary::CanaryOutcome;
use crate::observe::history::{Baseline, Usual, Window, Windows};
use crate::observe::snapshot::{Cumulative, WriteOperation};
use crate::text::{human, human_seconds};
use crate::thresholds as t;
use crate::time::Time;
use crate::vocabulary::{Effect, NotAHook, Writes};

/// What recent scrapes say about the control plane, with the baseline.
#[derive(Debug, Clone)]
pub struct PlaneEvidence<'a> {
    /// The instant.
    pub now: Time,
    /// Recent intervals.
    pub windows: &'a Windows,
    /// What is usual.
    pub baseline: &'a Baseline,
    /// All canaries.
    pub canaries: &'a Canaries,
    /// Why scrapes are not answered, when none is although they are tried.
    pub unanswered: Option<&'a str>,
    /// A sentence on an API server that stopped answering while others go on.
    pub sick: Option<String>,
}

/// When each state of writes was last witnessed.
#[derive(Debug, Clone, Copy, Default)]
pub struct LastWitnessed {
    blocked: Option<Time>,
    delayed: Option<Time>,
    flowing: Option<Time>,
    /// No API server answered.
    down: Option<Time>,
    /// Since when writes are slow without a break, whatever the explanation.
    slow_since: Option<Time>,
}

impl LastWitnessed {
    /// Keeps since when writes are slow; without evidence they may still be.
    fn saw(&mut self, writes: Writes, now: Time) {
        self.slow_since = match writes {
            Writes::Delayed => self.slow_since.or(Some(now)),
            Writes::Unknown => self.slow_since,
            Writes::Flowing | Writes::Blocked => None,
        };
    }
}

/// The debounced state of writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SettledWrites {
    /// The reported state.
    pub state: Writes,
    /// Whether they are blocked or slow, or were a moment ago: worth a closer look, and nothing to learn from.
    pub in_trouble: bool,
}

impl<'a> PlaneEvidence<'a> {
    /// The newest interval if it has enough writes, else the recent window: the shorter the span, the less time before
    /// a fault it includes.
    pub(super) fn window(&self) -> Option<&'a Window> {
        let newest = self.windows.newest.as_ref().filter(|window| {
            window.gained.all_writes().duration.count + window.gained.dry_runs.count >= t::enough_writes()
        });
        newest.or(self.windows.recent.as_ref())
    }

    /// Whether writes have all but stopped being answered where there usually is a stream of them.
    pub fn stalled(&self) -> bool {
        let (Some(window), Some(usual)) = (&self.windows.recent, self.baseline.write_rate.median()) else {
            return false;
        };
        usual >= t::stream_of_writes()
            && window.seconds() >= t::stall_span()
            && window.write_rate < t::standstill() * usual
    }

    /// Whether the control plane takes writes, given causes `elsewhere` and what was `witnessed` before. That they flow
    /// needs a witness: a canary that got through, or writes counted since anything was out of reach.
    fn writes(&self, elsewhere: Option<&NonHookCause>, witnessed: &LastWitnessed) -> Writes {
        // An address that was never reached may be the wrong one.
        let down =
            elsewhere.is_some_and(|found| found.cause == NotAHook::ApiServerDown) && self.was_reached();
        // One lost packet makes one canary late.
        let (hung, late) = (self.canaries.hung(self.now), self.canaries.several_slow(self.now));
        let (mut blocked, mut slow, mut answered) = (down, late, false);
        for (_, memory) in self.canaries.iter() {
            // Beside an API server that does not answer others do: some writes hang, the rest go through.
            let written = |outcome: &CanaryOutcome| *outcome == CanaryOutcome::Written;
            let others_get_through =
                self.sick.is_some() && memory.any_within(self.now, t::through_lately(), written);
            // Of writes that always take seconds some take twice as long as the one before: those are slow, and none is blocked.
            let waiting = memory.hung_for(self.now).filter(|_| hung);
            let hangs = waiting.is_some_and(|waiting| !memory.may_take(waiting, self.now));
            slow |= waiting.is_some();
            blocked |= hangs && !others_get_through;
            match memory.latest(self.now).map(|report| &report.outcome) {
                Some(CanaryOutcome::Written | CanaryOutcome::Denied { .. }) => answered = true,
                Some(CanaryOutcome::CallFailed(_) | CanaryOutcome::TimedOut) => blocked = true,
                Some(CanaryOutcome::Refused { status, .. }) if *status >= 500 => blocked = true,
                _ => {}
            }
        }
        if let Some(window) = self.window() {
            let results = &window.gained.write_results;
            let goes_on = self.is_lately(witnessed.blocked, t::blocked_for());
            let share = if goes_on {
                t::still_blocked()
            } else {
                t::most_calls()
            };
            blocked |= results.failed >= t::few_calls() && results.failed >= share * results.total();
            // Of one interval a few slow writes may make up the mean, and where next to nothing is written one write does.
            let mut spans = [Some(window), self.windows.recent.as_ref()].into_iter().flatten();
            let (usual, limits) = (&self.baseline.write, t::delayed_at_least()..t::slow_always());
            let is_slow = |window: &Window| {
                let writes = window.gained.all_writes().duration;
                let mean = writes.mean().filter(|_| writes.count >= t::few_calls());
                mean.is_some_and(|mean| usual.is_slow(mean, t::slow_factor(), limits.clone()))
            };
            // Writes that were slow a moment ago still are while either says so.
            slow |= if self.is_lately(witnessed.delayed, t::delayed_for()) {
                spans.any(is_slow)
            } else {
                spans.all(is_slow)
            };
            let unheard = self.canaries.iter();
            let unheard = unheard.filter_map(|(_, memory)| memory.unheard_at(self.now));
            // Beside one that is known not to answer, a canary without an answer says nothing of the others.
            let newer = self.sick.is_some() || unheard.max().is_none_or(|at| window.to > at);
            let since_then = self.unanswered.is_none() && newer;
            let lately = self.now.since(window.to) < t::answers_lately();
            answered |= results.ok >= 1.0 && !self.stalled() && since_then && lately;
        }
        match (blocked, slow, answered) {
            (true, ..) => Writes::Blocked,
            (_, true, _) => Writes::Delayed,
            (_, _, true) => Writes::Flowing,
            _ => Writes::Unknown,
        }
    }

    /// The debounced state of writes, given what was `witnessed` before: an improvement counts only once it has lasted for a
    /// while, because a hanging hook shows as bursts of a few seconds. A recovered API server is back at once, and requests sent
    /// while it started are slow for that reason: for ten seconds, slow writes count as flowing. If one canary got no answer, the
    /// last witnessed state holds until the next. While a named hook has not been found healthy, a pause between the few writes
    /// that match it is no recovery: for two minutes, delayed writes that flow, or of which there is no evidence, are still
    /// reported as delayed, and blocked ones that become delayed, as blocked. Slow writes without an explanation may be a few
    /// large ones: they are reported as delayed once they have been slow for a while.
    pub fn settled(
        &self,
        elsewhere: Option<&NonHookCause>,
        verdicts: &[Verdict],
        remembered: &BTreeMap<Subject, Before>,
        witnessed: &mut LastWitnessed,
    ) -> SettledWrites {
        use Writes::{Blocked, Delayed, Flowing, Unknown};
        let seen = self.writes(elsewhere, witnessed);
        let held_up = verdicts.iter().any(|verdict| {
            let holds_up = matches!(verdict.effect, Effect::Blocking | Effect::Delaying);
            let known = remembered.get(&verdict.subject()).filter(|_| holds_up);
            known.is_some_and(|known| known.named) && verdict.is_asked()
        });
        let starts = self.is_lately(witnessed.down, t::blocked_for()) && !held_up;
        witnessed.saw(seen, self.now);
        let is_explained = elsewhere.is_some() || verdicts.iter().any(Verdict::can_hold_writes_up);
        let is_new = !is_explained && self.is_new(witnessed);
        let writes = match seen {
            Delayed if starts || is_new => Flowing,
            seen => seen,
        };
        let delayed_for = if held_up {
            t::held_up_for()
        } else {
            t::delayed_for()
        };
        let still_delayed = self.is_lately(witnessed.delayed, delayed_for);
        let lifted = if still_delayed && matches!(writes, Flowing | Unknown) {
            Delayed
        } else {
            writes
        };
        let blocked_for = match lifted {
            Delayed if held_up => t::held_up_for(),
            _ if held_up => t::delayed_for(),
            _ => t::blocked_for(),
        };
        let said = match lifted {
            Delayed | Flowing | Unknown if self.is_lately(witnessed.blocked, blocked_for) => Blocked,
            Unknown if self.is_lately(witnessed.flowing, t::unexplained_after()) => Flowing,
            lifted => lifted,
        };
        let down = elsewhere.is_some_and(|found| found.cause == NotAHook::ApiServerDown);
        let now = Some(self.now);
        match (writes, said) {
            (Blocked, _) if down => {
                *witnessed = LastWitnessed {
                    down: now,
                    ..LastWitnessed::default()
                }
            }
            (Blocked, _) => (witnessed.blocked, witnessed.flowing) = (now, None),
            (Delayed, _) if held_up || said == Delayed => {
                (witnessed.delayed, witnessed.flowing) = (now, None)
            }
            (Flowing, Flowing) => (witnessed.delayed, witnessed.flowing) = (None, now),
            _ => {}
        }
        witnessed.blocked = witnessed.blocked.filter(|_| said == Blocked);
        let is_trouble = |writes| matches!(writes, Blocked | Delayed);
        SettledWrites {
            state: said,
            in_trouble: is_trouble(seen) || is_trouble(said),
        }
    }

    /// Whether slow writes were well before, and are not slow for long.
    fn is_new(&self, witnessed: &LastWitnessed) -> bool {
        let in_trouble = witnessed.delayed.or(witnessed.blocked).is_some();
        !in_trouble && self.is_lately(witnessed.slow_since, t::unexplained_after())
    }

    fn is_lately(&self, last: Option<Time>, span: Duration) -> bool {
        last.is_some_and(|last| self.now.since(last) < span)
    }

    /// An API server answered a scrape or a canary before.
    fn was_reached(&self) -> bool {
        let scraped = self.baseline.read_rate.median().is_some();
        scraped || self.canaries.iter().any(|(_, memory)| memory.was_heard())
    }

    /// Mean seconds per write, dry runs left out.
    pub fn write_seconds(&self) -> Option<f64> {
        self.window()?.gained.all_writes().duration.mean()
    }

    /// The same for CREATE or UPDATE alone.
    pub fn write_seconds_of(&self, operation: WriteOperation) -> Option<f64> {
        let gained = &self.window()?.gained;
        let writes = gained.writes_where(|key| key.operation == operation);
        writes.duration.mean()
    }

    /// What the API server itself needs per write, without hooks and without waiting for a seat.
    pub fn own_seconds(&self) -> Option<f64> {
        let window = self.window()?;
        window.own_seconds().or_else(|| {
            // Only canaries write: dry runs have no sli twin, so the hooks' time is subtracted here.
            let Cumulative { sum, count } = window.gained.dry_runs;
            (count >= 2.0).then(|| ((sum - window.hook_seconds()) / count).max(0.0))
        })
    }

    /// The same, where that is slow: whichever resource it lacks, the answers of webhooks reach it late as well.
    pub fn slow_own_seconds(&self) -> Option<f64> {
        let slow = match self.baseline.sli.median() {
            Some(usual) => (t::own_factor() * usual).max(usual + t::excess_at_least()),
            None => t::own_always(),
        };
        self.own_seconds().filter(|own| *own >= slow)
    }

    /// What slows or blocks writes when it is no hook. That the reason is not known counts only while no hook is named:
    /// the time of calls and of requests may have been read a moment apart. `hung_until`: when a hook was last known to hang.
    /// Requests that wait for it hold seats and are counted only when they end, so that a queue of then is its doing.
    pub fn elsewhere(&self, hung_until: Option<Time>) -> Option<NonHookCause> {
        if let Some(scrape) = self.unanswered
            && let Some(canary) = self.canaries_unreachable()
        {
            let evidence = vec![
                format!("Scrapes do not reach the API server: {scrape}."),
                format!("Canaries do not reach it either: {canary}."),
            ];
            // One that was never reached may have another address, or another authority.
            let confidence = if self.was_reached() { 0.9 } else { 0.5 };
            return Some(found(NotAHook::ApiServerDown, confidence, evidence));
        }
        if let Some(sick) = self.sick.as_ref().filter(|_| self.canaries_meet_the_sick()) {
            return Some(found(NotAHook::ReplicaDown, 0.9, vec![sick.clone()]));
        }
        let Some(window) = self.window() else {
            return self.unexplained();
        };
        let queued = self.queued(window).filter(|_| hung_until < Some(window.from));
        if queued.is_some() {
            return queued;
        }
        let Some(own) = self.slow_own_seconds() else {
            return self.unexplained();
        };
        let mut evidence = vec![format!(
            "The API server's own part of a write, without webhooks, takes {} (usually {}).",
            human_seconds(own),
            usually(&self.baseline.sli),
        )];
        let (etcd, usual) = (window.gained.etcd.mean(), usually(&self.baseline.etcd));
        let said = etcd.map(human_seconds);
        evidence.extend(said.map(|etcd| format!("An etcd request takes {etcd} (usually {usual}).")));
        if let Some(crowd) = self.crowd(window) {
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
        Some(found(NotAHook::Unexplained, 0.5, evidence))
    }

    /// What a swamped API server is asked for. It is slow at everything, etcd calls included; what gives it away is that
    /// it is being asked for more than usual, while behind a slow etcd everything is asked for less. Where each read
    /// merely takes longer, more of them are there at once as well.
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
            "Requests wait {wait} for a seat in flow control, and webhooks explain less than half of the extra time."
        );
        let found = found(NotAHook::QueuedByFlowControl, 0.8, vec![said]);
        (unexplained && excess >= t::excess_at_least() * writes.duration.count).then_some(found)
    }

    /// Writes are in trouble by a canary's account, and nothing above explains it.
    fn unexplained(&self) -> Option<NonHookCause> {
        let said = self.canaries.iter().find_map(|(target, memory)| {
            let late = memory.overdue_for(self.now).map(|(_, waiting)| waiting);
            let what = match (late, memory.latest(self.now).map(|report| &report.outcome)) {
                (Some(waiting), _) if waiting >= t::unexplained_after() => {
                    format!("has been waiting for {}", human(waiting))
                }
                (_, Some(CanaryOutcome::Refused { status, message })) if matches!(status, 429 | 500..) => {
                    format!("was answered with HTTP {status}: {message}")
                }
                (_, Some(CanaryOutcome::TimedOut)) => "was never answered".to_owned(),
                _ => return None,
            };
            Some(format!("A dry-run write of {target} {what}."))
        })?;
        Some(found(NotAHook::Unexplained, 0.5, vec![said]))
    }

    /// Whether recent canaries failed as with an API server that does not answer: no connection, no answer, or a late
    /// one.
    fn canaries_meet_the_sick(&self) -> bool {
        self.canaries.iter().any(|(_, memory)| {
            memory.late(self.now).is_some()
                || memory.any_within(self.now, t::through_lately(), |outcome| !outcome.is_heard())
        })
    }

    /// Why canaries do not get through, when the newest has no connection or no answer.
    fn canaries_unreachable(&self) -> Option<String> {
        let latest = self.canaries.iter();
        let latest = latest.filter_map(|(_, memory)| memory.latest(self.now));
        let newest = latest.max_by_key(|report| (report.started + report.took, report.outcome.is_heard()));
        match newest.map(|report| &report.outcome) {
            Some(CanaryOutcome::Unreachable { why }) => Some(why.clone()),
            Some(CanaryOutcome::TimedOut) => Some("no answer".to_owned()),
            Some(_) => None,
            None => Some("none has come back yet".to_owned()),
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

fn usually(usual: &Usual) -> String {
    usual.median().map_or_else(|| "unknown".to_owned(), human_seconds)
}
