//! The API servers: which of them answer, which are ready, and what that means for the control plane.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::observe::history::{History, ServerProcess, behind};
use crate::observe::node_leases::NodeLeases;
use crate::observe::readiness::{ReadinessMemory, ReadyReport, is_start_up};
use crate::observe::snapshot::{ScrapeFailure, ScrapeFailureReason};
use crate::observe::views::{ScrapeView, SilentView};
use crate::text::{capital, human, listed};
use crate::time::Time;
use crate::{row, thresholds as t};

/// Most scrape targets remembered.
const MAX_TARGETS: usize = 64;
/// Most times of unanswered scrapes remembered per target.
const MAX_FAILURES: usize = 16;
/// An API server is normally not ready for some seconds while it starts; after this time something prevents its start.
const START: Duration = Duration::from_secs(15);
/// Most failing checks listed in one sentence.
const TOLD_CHECKS: usize = 3;

/// The memory of one scrape target.
#[derive(Debug, Clone, Default)]
pub struct TargetState {
    pub heard_of: Time,
    pub last_good: Option<Time>,
    pub failure: Option<ScrapeFailure>,
    pub failing_since: Option<Time>,
    /// The kind of the last failure, and when it came; `None` once reported failures are over.
    told: Option<(ScrapeFailureReason, Time)>,
    /// The error of the last scrape without an answer.
    last_words: String,
    /// When scrapes failed without an answer, the newest last.
    unanswered: VecDeque<Time>,
    readiness: ReadinessMemory,
    version: Option<String>,
    pub missing: Vec<String>,
}

/// All scrape targets, and the nodes' Leases.
#[derive(Debug, Default)]
pub struct Servers {
    targets: BTreeMap<String, TargetState>,
    /// The nodes' Leases.
    pub node_leases: NodeLeases,
}

/// An API server that answered before and does not answer now, while another one does.
#[derive(Debug, Clone, PartialEq)]
pub struct Sick {
    /// What identifies it, as the subject of a sentence.
    pub who: String,
    /// When it last answered.
    pub since: Time,
    /// The error of the last scrape without an answer.
    pub why: String,
}

fn is_unanswered(reason: ScrapeFailureReason) -> bool {
    use ScrapeFailureReason::{TimedOut, Unreachable};
    matches!(reason, Unreachable | TimedOut)
}

impl TargetState {
    pub fn succeeded(&mut self, at: Time, missing: Vec<String>) {
        (self.heard_of, self.last_good) = (at, Some(at));
        (self.failure, self.failing_since) = (None, None);
        self.missing = missing;
    }

    /// Whether reported failures are over. At a shared address this takes some time without a failure, since the next answer may
    /// come from another process.
    pub fn is_over(&mut self, now: Time, shared: bool) -> bool {
        let Some((_, last)) = self.told else { return false };
        let over = !shared || now.since(last) >= t::failure_lately();
        if over {
            self.told = None;
        }
        over
    }

    /// Records a failure. Returns whether to report it: the first, and each of another kind than the one before.
    pub fn failed(&mut self, failure: ScrapeFailure) -> bool {
        let ScrapeFailure { at, reason, .. } = failure;
        self.heard_of = at;
        self.failing_since.get_or_insert(at);
        if is_unanswered(reason) {
            row::push(&mut self.unanswered, MAX_FAILURES, at);
            self.last_words.clone_from(&failure.why);
        }
        self.failure = Some(failure);
        let before = self.told.replace((reason, at));
        before.is_none_or(|(before, _)| before != reason)
    }

    fn answered_within(&self, span: Duration, now: Time) -> bool {
        self.last_good.is_some_and(|at| now.since(at) < span)
    }

    /// Whether at least [`t::unanswered`] scrapes since an instant got no answer, the last of them recently.
    fn is_silent_since(&self, since: Time, now: Time) -> bool {
        let last = self.unanswered.back();
        let of_late = last.is_some_and(|at| now.since(*at) < t::failure_lately());
        let unanswered = self.unanswered.iter().filter(|at| **at > since).count();
        of_late && unanswered as f64 >= t::unanswered()
    }
}

impl Servers {
    /// The state of one target. When there are too many, a new one replaces the one whose last good scrape is oldest.
    pub fn get(&mut self, target: &str) -> &mut TargetState {
        let key = target.to_owned();
        row::entry(&mut self.targets, MAX_TARGETS, key, |state| state.last_good)
    }

    /// Whether any scrape succeeded after an instant.
    pub fn scraped_after(&self, after: Time) -> bool {
        self.targets.values().any(|target| target.last_good > Some(after))
    }

    /// Whether a scrape of any target succeeded within this span.
    pub fn any_scraped_within(&self, span: Duration, now: Time) -> bool {
        let mut targets = self.targets.values();
        targets.any(|target| target.answered_within(span, now))
    }

    /// Whether every current target was scraped successfully within this span.
    pub fn all_scraped_within(&self, span: Duration, now: Time) -> bool {
        let mut targets = self.present(now);
        targets.all(|(_, target)| target.answered_within(span, now))
    }

    /// Forgets targets without any report for [`t::forget_server`].
    pub fn forget_the_gone(&mut self, now: Time) {
        self.targets
            .retain(|_, state| now.since(state.heard_of) < t::forget_server());
    }

    /// Records a reading of `/readyz`.
    pub fn take_readiness(&mut self, report: ReadyReport) {
        let state = self.get(&report.target);
        state.heard_of = state.heard_of.max(report.at);
        state.readiness.take(report.at, report.readiness);
        state.version = report.version.or_else(|| state.version.take());
    }

    /// The reason why no scrape is answered; `None` if one is. A refusal is an answer, and so is one that another process at a
    /// shared address gave a moment ago.
    pub fn unanswered(&self, history: &History, now: Time) -> Option<&str> {
        let unanswered = |(target, state): (&String, &TargetState)| {
            let failed = state
                .failure
                .as_ref()
                .is_some_and(|failure| is_unanswered(failure.reason));
            let a_moment_ago = state.answered_within(t::answered_a_moment_ago(), now);
            failed && !(a_moment_ago && history.replicas_behind(target) > 1)
        };
        let first = self.present(now).next()?.1.failure.as_ref()?;
        self.present(now).all(unanswered).then_some(first.why.as_str())
    }

    /// Targets with a scrape, a failure or a readiness reading within [`t::long_interval`]. Removed ones are remembered for longer,
    /// and are no evidence about the present.
    fn present(&self, now: Time) -> impl Iterator<Item = (&String, &TargetState)> {
        let targets = self.targets.iter();
        targets.filter(move |(_, state)| now.since(state.heard_of) < t::long_interval())
    }

    /// The processes at a shared address that no longer answer. A process that was replaced by a later one after its last answer is
    /// not counted.
    fn silent_behind(history: &History, target: &str, state: &TargetState, now: Time) -> Vec<SilentView> {
        let known: Vec<ServerProcess> = history.processes_behind(target).collect();
        let is_silent = |last: Time| {
            let others_answer =
                |other: &ServerProcess| other.last > last && now.since(other.last) < t::answers_lately();
            let replaced = known.iter().any(|other| other.began > Some(last));
            known.iter().any(others_answer) && !replaced && state.is_silent_since(last, now)
        };
        let views = known.iter().map(|process| SilentView {
            started: process.started,
            since: process.last,
        });
        views.filter(|view| is_silent(view.since)).collect()
    }

    /// The API servers that stopped answering while others still answer.
    pub fn sick(&self, history: &History, now: Time) -> Vec<Sick> {
        let mut sick = Vec::new();
        for (target, state) in &self.targets {
            let mut others = self.targets.iter().filter(|(other, _)| *other != target);
            let others_answer = others.any(|(_, other)| other.answered_within(t::answers_lately(), now));
            let why = &state.last_words;
            let note = |who: String, since: Time| Sick {
                who,
                since,
                why: why.clone(),
            };
            let unanswered = state.last_good.filter(|good| state.is_silent_since(*good, now));
            if let Some(since) = unanswered.filter(|_| others_answer) {
                sick.push(note(format!("API server {target}"), since));
                continue;
            }
            let silent = Self::silent_behind(history, target, state, now).into_iter();
            sick.extend(silent.map(|SilentView { started, since }| note(behind(target, started), since)));
        }
        sick
    }

    /// Symptoms of the control plane other than failing writes, as sentences. `failing` is the first webhook named as a culprit
    /// that could prevent an API server from starting.
    pub fn symptoms(
        &self,
        history: &History,
        failing: Option<&str>,
        sick: &[Sick],
        now: Time,
    ) -> Vec<String> {
        let mut said = self.not_ready(history, failing, now);
        said.extend(sick.iter().map(|sick| sick.sentence(now)));
        said.extend(self.node_leases.view(now).symptom());
        said
    }

    fn not_ready(&self, history: &History, failing: Option<&str>, now: Time) -> Vec<String> {
        let mut said = Vec::new();
        for (target, state) in &self.targets {
            let shared = history.replicas_behind(target) > 1;
            let readiness = state.readiness.view(now, shared);
            if readiness.state != "not_ready" {
                continue;
            }
            let one = "One of the API servers behind";
            let which = if shared { one } else { "API server" };
            let since = readiness.since.map(|since| now.since(since));
            let is_young = since.is_some_and(|since| since < START);
            let since = since.map(human);
            let since = since.map_or_else(String::new, |since| format!(" (for {since} now)"));
            let fail = if readiness.failing.len() > 1 {
                "fail"
            } else {
                "fails"
            };
            let starts = readiness.failing.iter().any(|check| is_start_up(check));
            let checks = match readiness.failing.as_slice() {
                [] => "a check".to_owned(),
                failing => listed(failing, TOLD_CHECKS),
            };
            said.push(match failing.filter(|_| starts) {
                _ if starts && is_young => format!("{which} {target} is starting{since}: {checks} {fail}."),
                Some(hook) => format!(
                    "{which} {target} cannot start{since}: {checks} {fail}, for what it writes at start meets admission \
                     like any other write, and webhook {hook} is failing."
                ),
                None => format!("{which} {target} is not ready{since}: {checks} {fail}."),
            });
        }
        said
    }

    /// The oldest release, as (major, minor), that any API server reported; `None` if none did.
    pub fn oldest_release(&self) -> Option<(u32, u32)> {
        let releases = self.targets.values();
        releases
            .filter_map(|state| release(state.version.as_deref()?))
            .min()
    }

    /// The state of every scrape target for users.
    pub fn views(&self, history: &History, now: Time) -> Vec<ScrapeView> {
        let views = self.targets.iter().map(|(target, state)| {
            let replicas = history.replicas_behind(target);
            ScrapeView {
                target: target.clone(),
                replicas,
                age_seconds: state.last_good.map(|at| now.since(at).as_secs_f64()),
                failure: state.failure.as_ref().map(|failure| failure.why.clone()),
                failing_since: state.failing_since,
                silent: Self::silent_behind(history, target, state, now),
                version: state.version.clone(),
                readiness: state.readiness.view(now, replicas > 1),
                missing: state.missing.clone(),
            }
        });
        views.collect()
    }
}

/// Major and minor release of a `gitVersion` like `v1.33.1-gke.100`.
fn release(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.trim_start_matches('v').split('.');
    let mut next = || numbers.next()?.parse().ok();
    Some((next()?, next()?))
}

impl Sick {
    /// A sentence about it.
    pub fn sentence(&self, now: Time) -> String {
        let (who, since) = (capital(&self.who), self.since);
        let (so_long, why) = (human(now.since(since)), self.why.trim_end_matches('.'));
        format!("{who} has not answered for {so_long} (since {since}) while others do: {why}.")
    }
}
