//! The state of the control plane as a whole.

mod elsewhere;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::cluster::hook::{HookKind, Subject};
use crate::cluster::matching::LEASES;
use crate::diagnose::scene::Before;
use crate::diagnose::verdict::{NonHookCause, Verdict};
use crate::observe::canaries::Canaries;
use crate::observe::canary::{CanaryOutcome, CanaryReport, CanaryTarget};
use crate::observe::history::{Baseline, OnlyAt, Window, Windows};
use crate::observe::snapshot::{Cumulative, Results, WriteOperation};
use crate::thresholds as t;
use crate::time::Time;
use crate::vocabulary::{Effect, NotAHook, Writes};

/// What recent scrapes say about the control plane, with the baseline.
#[derive(Debug, Clone)]
pub struct PlaneEvidence<'a> {
    /// When it is judged.
    pub now: Time,
    /// What API servers counted recently.
    pub windows: &'a Windows,
    /// What they usually count.
    pub baseline: &'a Baseline,
    /// All canaries.
    pub canaries: &'a Canaries,
    /// Why scrapes are not answered; `None` while one is answered, or none is tried.
    pub unanswered: Option<&'a str>,
    /// A sentence on an API server that stopped answering while others go on.
    pub sick: Option<String>,
    /// Hooks from which only one of several API servers gets no answer, as hookwatch's own scrapes show.
    pub one_sided: BTreeMap<(HookKind, String), OnlyAt<'a>>,
    /// Scrapes are not answered, and no webhook's backend answers either: hookwatch's own network may be at fault.
    pub cut_off: bool,
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
    /// Updates since when writes are slow. Without evidence that stays as it was.
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

    /// Whether the control plane takes writes, given another cause than a hook (`elsewhere`) and what was `witnessed` before.
    /// `Flowing` needs evidence: a canary that got through, or writes that were counted after the last time that a scrape or a
    /// canary got no answer.
    fn writes(&self, elsewhere: Option<&NonHookCause>, witnessed: &LastWitnessed) -> Writes {
        let down = elsewhere.is_some_and(|found| found.cause == NotAHook::ApiServerDown);
        if down && self.cut_off {
            return Writes::Unknown;
        }
        // An address that was never reached may be the wrong one.
        let down = down && self.was_reached();
        // One lost packet makes one canary late.
        let (hung, late) = (self.canaries.hung(self.now), self.canaries.several_slow(self.now));
        let (mut blocked, mut slow, mut answered) = (down || self.refused().is_some(), late, false);
        for (_, memory) in self.canaries.iter() {
            // Of several API servers one does not answer: writes that reach it hang, the rest go through.
            let written = |outcome: &CanaryOutcome| *outcome == CanaryOutcome::Written;
            let others_get_through =
                self.sick.is_some() && memory.any_within(self.now, t::through_lately(), written);
            // Where writes always take seconds, one may take twice as long as the one before: it is slow, not blocked.
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
            // A few slow writes may dominate the mean of one interval, and where hardly anything is written a single one does.
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
            // If one API server is known not to answer, a canary without an answer says nothing about the others.
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

    /// Whether writes became slow only a moment ago, and were neither slow nor blocked before.
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

    /// The results of recent writes of Leases, dry runs left out.
    fn renewals(&self) -> Option<&Results> {
        let [group, _, resource, _] = LEASES.map(str::to_owned);
        self.window()?.gained.others.results.get(&(group, resource))
    }

    /// Whether at least three recent writes of Leases failed and none succeeded, dry runs left out.
    pub fn renewals_fail(&self) -> bool {
        let fail = |results: &Results| results.failed >= t::few_calls() && results.ok < 1.0;
        self.renewals().is_some_and(fail)
    }

    /// A canary of the control plane's kinds that keeps being refused, for example by a policy or a match condition, while no
    /// Lease is written. If other clients or the canary for nodes' Leases write one, the refusal is about the canary's own object.
    fn refused(&self) -> Option<(CanaryTarget, &CanaryReport)> {
        use CanaryTarget::{KubeSystem, NodeLease};
        let mut targets = [NodeLease, KubeSystem].into_iter();
        let refused =
            targets.find_map(|target| Some((target, self.canaries.get(target)?.turned_away(self.now)?)))?;
        let written = |report: &CanaryReport| report.outcome == CanaryOutcome::Written;
        let nodes = self.canaries.get(NodeLease);
        let by_canary = nodes
            .and_then(|memory| memory.latest(self.now))
            .is_some_and(written);
        let by_others = || self.renewals().is_some_and(|results| results.ok >= 1.0);
        (!by_canary && !by_others()).then_some(refused)
    }

    /// Mean seconds per write, dry runs left out; `None` while no writes are counted.
    pub fn write_seconds(&self) -> Option<f64> {
        self.window()?.gained.all_writes().duration.mean()
    }

    /// The same for CREATE or UPDATE alone.
    pub fn write_seconds_of(&self, operation: WriteOperation) -> Option<f64> {
        let gained = &self.window()?.gained;
        let writes = gained.writes_where(|key| key.operation == operation);
        writes.duration.mean()
    }

    /// Seconds that the API server itself needs per write, without hooks and without waiting for a seat in flow control; `None`
    /// with too few writes.
    pub fn own_seconds(&self) -> Option<f64> {
        let window = self.window()?;
        window.own_seconds().or_else(|| {
            // Only canaries write: dry runs are not in the SLI metric, so the hooks' time is subtracted here.
            let Cumulative { sum, count } = window.gained.dry_runs;
            (count >= 2.0).then(|| ((sum - window.hook_seconds()) / count).max(0.0))
        })
    }

    /// [`own_seconds`](Self::own_seconds) if that is slow: the API server then lacks some resource, and webhooks' answers reach it
    /// late too.
    pub fn slow_own_seconds(&self) -> Option<f64> {
        let slow = match self.baseline.sli.median() {
            Some(usual) => (t::own_factor() * usual).max(usual + t::excess_at_least()),
            None => t::own_always(),
        };
        self.own_seconds().filter(|own| *own >= slow)
    }
}
