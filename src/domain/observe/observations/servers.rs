//! The API servers themselves: which answer, which are ready, and what that means for the control plane.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::observe::history::{History, ServerProcess};
use crate::observe::node_leases::NodeLeases;
use crate::observe::readiness::{ReadinessMemory, ReadyReport, is_start_up};
use crate::observe::snapshot::{ScrapeFailure, ScrapeFailureReason};
use crate::observe::views::{ScrapeView, SilentView};
use crate::text::{capital, human, listed};
use crate::time::Time;
use crate::{row, thresholds as t};

/// Scrape targets that are remembered at most.
const MAX_TARGETS: usize = 64;
/// Failures remembered of one target.
const MAX_FAILURES: usize = 16;
/// An API server that starts is not ready for some seconds; after this long something keeps it from starting.
const START: Duration = Duration::from_secs(15);
/// Most failing checks listed in one sentence.
const TOLD_CHECKS: usize = 3;

/// What is remembered of one scrape target.
#[derive(Debug, Clone, Default)]
pub struct TargetState {
    pub heard_of: Time,
    pub last_good: Option<Time>,
    pub failure: Option<ScrapeFailure>,
    pub failing_since: Option<Time>,
    /// The failure that was reported last, and when it was last seen.
    told: Option<(ScrapeFailureReason, Time)>,
    /// What the last scrape without an answer said.
    last_words: String,
    /// When scrapes were given up without an answer, the newest last.
    unanswered: VecDeque<Time>,
    readiness: ReadinessMemory,
    version: Option<String>,
    pub missing: Vec<String>,
}

/// All of them, and the nodes' heartbeats.
#[derive(Debug, Default)]
pub struct Servers {
    targets: BTreeMap<String, TargetState>,
    /// The nodes' heartbeats.
    pub node_leases: NodeLeases,
}

/// An API server that answered before and does not now, while another one does.
#[derive(Debug, Clone, PartialEq)]
pub struct Sick {
    /// Its identity among the others.
    pub who: String,
    /// When it answered last.
    pub since: Time,
    /// What its last failure said.
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

    /// Whether reported failures are over. Behind a shared address that takes a while without any: the next answer may
    /// be another process's.
    pub fn is_over(&mut self, now: Time, shared: bool) -> bool {
        let Some((_, last)) = self.told else { return false };
        let over = !shared || now.since(last) >= t::failure_lately();
        if over {
            self.told = None;
        }
        over
    }

    /// Takes a failure in and says whether it is worth telling: the first, and every one of another kind.
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

    /// Whether enough scrapes since an instant got no answer, the last of them recently.
    fn is_silent_since(&self, since: Time, now: Time) -> bool {
        let last = self.unanswered.back();
        let of_late = last.is_some_and(|at| now.since(*at) < t::failure_lately());
        let unanswered = self.unanswered.iter().filter(|at| **at > since).count();
        of_late && unanswered as f64 >= t::unanswered()
    }
}

impl Servers {
    /// What is remembered of one target; the stalest makes room for a new one.
    pub fn get(&mut self, target: &str) -> &mut TargetState {
        let key = target.to_owned();
        row::entry(&mut self.targets, MAX_TARGETS, key, |state| state.last_good)
    }

    /// Whether a scrape succeeded after an instant.
    pub fn scraped_after(&self, after: Time) -> bool {
        self.targets.values().any(|target| target.last_good > Some(after))
    }

    /// Whether a scrape of any target succeeded within this time.
    pub fn any_scraped_within(&self, span: Duration, now: Time) -> bool {
        let mut targets = self.targets.values();
        targets.any(|target| target.answered_within(span, now))
    }

    /// Whether every current target was scraped within this time.
    pub fn all_scraped_within(&self, span: Duration, now: Time) -> bool {
        let mut targets = self.present(now);
        targets.all(|(_, target)| target.answered_within(span, now))
    }

    /// Forgets targets that have been silent for long.
    pub fn forget_the_gone(&mut self, now: Time) {
        self.targets
            .retain(|_, state| now.since(state.heard_of) < t::forget_server());
    }

    /// Records an API server's answer at `/readyz`.
    pub fn take_readiness(&mut self, report: ReadyReport) {
        let state = self.get(&report.target);
        state.heard_of = state.heard_of.max(report.at);
        state.readiness.take(report.at, report.readiness);
        state.version = report.version.or_else(|| state.version.take());
    }

    /// Why scrapes are not answered, when none is. A refusal is an answer, and behind a shared address the answer of
    /// another process a moment ago is one, too.
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

    /// Targets with a recent answer. Removed ones are remembered for longer, and would be evidence about the past.
    fn present(&self, now: Time) -> impl Iterator<Item = (&String, &TargetState)> {
        let targets = self.targets.iter();
        targets.filter(move |(_, state)| now.since(state.heard_of) < t::long_interval())
    }

    /// The processes behind a shared address that do not answer any more. One that ended and began again is
    /// another process, and the old one is not missed.
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

    /// The API servers that stopped answering while others go on.
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
            sick.extend(silent.map(|SilentView { started, since }| {
                let one = |started| format!("the one started at {started}");
                let which = started.map_or_else(|| "one of them".to_owned(), one);
                note(format!("of the API servers behind {target} {which}"), since)
            }));
        }
        sick
    }

    /// What is seen of the control plane beside writes, as sentences; `failing` is the first webhook named as a culprit that could
    /// keep an API server from starting.
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

    /// The oldest release that any of them reported.
    pub fn oldest_release(&self) -> Option<(u32, u32)> {
        let releases = self.targets.values();
        releases
            .filter_map(|state| release(state.version.as_deref()?))
            .min()
    }

    /// Every scrape target for people.
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

/// Major and minor of a `gitVersion` like `v1.33.1-gke.100`.
fn release(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.trim_start_matches('v').split('.');
    let mut next = || numbers.next()?.parse().ok();
    Some((next()?, next()?))
}

impl Sick {
    /// What is known of it, as a sentence.
    pub fn sentence(&self, now: Time) -> String {
        let (who, since) = (capital(&self.who), self.since);
        let (so_long, why) = (human(now.since(since)), self.why.trim_end_matches('.'));
        format!("{who} has not answered for {so_long} (since {since}) while others do: {why}.")
    }
}
