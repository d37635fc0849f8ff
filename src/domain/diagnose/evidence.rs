//! The evidence on every hook at one instant. It is built once per tick; the rules, the sentences and the breaker's
//! facts all read it.
//!
//! There are three witnesses, each with a blind spot: our probes of the backends take another network path than the API
//! server, its counters show a call only after it has ended, and canaries reach only what the hook's own rules match.

use std::time::Duration;

use super::counters::{Counters, Slowness};
use super::extension::Theirs;
use super::probes::ProbeEvidence;
use super::scene::{Before, Scene};
use crate::cluster::changes::HookChangeKind;
use crate::cluster::condition::BypassCondition;
use crate::cluster::hook::{Backend, FailurePolicy, Hook, HookId, HookKind};
use crate::observe::canaries::CanaryAccusation;
use crate::observe::canary::{CallFailureReason, CanaryTarget};
use crate::observe::history::OnlyAt;
use crate::observe::observations::Spared;
use crate::observe::pooled::DeadConnection;
use crate::observe::probing::{BackendState, Dead};
use crate::observe::rollouts::RolloutGap;
use crate::thresholds as t;
use crate::time::Time;
use crate::vocabulary::{Cause, Health};

/// A refused canary that named the hook.
#[derive(Debug)]
pub struct Accusation<'a> {
    /// The canary.
    pub named: CanaryAccusation<'a>,
    /// It cannot mean another hook of the same name.
    pub unambiguous: bool,
}

/// Everything known of one hook at one instant.
#[derive(Debug)]
pub struct Evidence<'a> {
    /// What all hooks share.
    pub scene: &'a Scene<'a>,
    /// A validating, mutating or conversion webhook, or an APIService.
    pub kind: HookKind,
    /// The webhook's name.
    pub webhook: &'a str,
    /// Its entry; `None` when the inventory has no such hook.
    pub hook: Option<&'a Hook>,
    /// The verdict of the last tick.
    pub before: Option<Before>,
    /// When its entry was last changed.
    pub reconfigured: Option<Time>,
    /// Its backends with what probes say of each.
    pub backends: &'a [(Backend, BackendState)],
    /// What probes of all of them add up to.
    pub probes: ProbeEvidence<'a>,
    /// What the API server counted: in the newest interval, in the last ten seconds, in the last minute.
    pub spans: [Counters; 3],
    /// Whether the API server counted a call that failed open in the last ten seconds, even one that began before the hook was
    /// last found healthy.
    pub failed_open: bool,
    /// The span that is the best evidence of the present.
    pub counters: Counters,
    /// The only API server that gets no answer from it, while others do; `None` for a name that several webhooks share.
    pub only_at: Option<OnlyAt<'a>>,
    /// Slow calls that the API server counted.
    pub slowness: Option<Slowness>,
    /// Seconds per call in calm times; `None` before that is known.
    pub usual: Option<f64>,
    /// Its part of the extra time per write, 0 to 1.
    pub excess_share: Option<f64>,
    /// Its part of the extra time of just those writes that it is called for, 0 to 1.
    pub call_share: Option<f64>,
    /// Other configurations of the same kind use the same webhook name: the counters are theirs too.
    pub ambiguous: bool,
    /// Refused canaries that may mean this hook.
    pub accusations: Vec<Accusation<'a>>,
    /// The canaries that its rules and selectors match.
    pub covered_by: &'a [CanaryTarget],
    /// How long a late canary that meets this hook has been waiting; the longest of several.
    pub canary_late: Option<Duration>,
    /// How long a canary took that meets this hook and was written, but slowly; the longest of several.
    pub canary_slow: Option<Duration>,
    /// How long a late canary has been waiting, if that is longer than all other slow hooks that it meets take together.
    pub canary_waits: Option<Duration>,
    /// When the newest canary was sent that meets this hook and was written at once, since the hook was last changed.
    pub canary_passed: Option<Time>,
    /// The same, but including canaries from before the hook was last changed.
    pub canary_passed_ever: Option<Time>,
    /// A backend of another hook that a late canary meets hangs too, by our probes.
    pub others_hang: bool,
    /// Another hook was named as hanging at the last tick.
    pub another_hangs: bool,
    /// Removed backends whose pooled connections no longer answer.
    pub silent: Vec<DeadConnection>,
    /// What failed around changes of its endpoints.
    pub gap: RolloutGap,
    /// What is wrong by the inventory alone.
    pub structural: Option<Cause>,
    /// Since when the inventory has shown it without service or endpoints.
    pub without_backends_since: Option<Time>,
    /// Since when another hook has been failing, as of the last tick.
    pub other_named: Option<Time>,
    /// A hook that is called at the same place, or lost the same path, was named at the last tick, with all its backends dead.
    pub named_beside: bool,
    /// The match condition by which hookwatch limits which requests are sent to it; `None` while it is not bypassed.
    pub bypass: Option<BypassCondition>,
    /// The API server's evidence on a conversion webhook or an APIService; `None` for admission.
    pub theirs: Option<Theirs>,
    /// No user's write is sent to it, as it is bypassed, so that only probes and canaries are evidence. False while its Service
    /// or endpoints are missing, and after a canary was refused on its probation.
    pub uncalled: bool,
    /// The API server's side says that calls fail.
    pub api_says_so: bool,
}

impl<'a> Evidence<'a> {
    /// Collects what is known of a hook; `hook` is `None` where only metrics name it.
    pub fn of(scene: &'a Scene<'a>, kind: HookKind, webhook: &'a str, hook: Option<&'a Hook>) -> Self {
        let (seen, now) = (scene.seen, scene.now);
        let key = (kind, webhook.to_owned());
        let id = hook.map(|hook| &hook.id);
        let subject = id.map_or_else(|| (kind, None, webhook.into()), HookId::subject);
        let backends = id.and_then(|id| scene.states.get(id));
        let backends = backends.map_or(&[][..], Vec::as_slice);
        let alike = scene.listed(webhook);
        let mut evidence = Self {
            scene,
            kind,
            webhook,
            hook,
            before: scene.before.get(&subject).copied(),
            reconfigured: id.and_then(|id| seen.reconfigured_at(id, now)),
            backends,
            probes: ProbeEvidence::of(backends),
            spans: Default::default(),
            failed_open: false,
            counters: Counters::default(),
            only_at: None,
            slowness: None,
            usual: scene.plane.baseline.hook(&key),
            excess_share: scene.excess.share(&key),
            call_share: scene.excess.call_share(&key),
            ambiguous: alike.filter(|other| other.id.kind == kind).count() > 1,
            accusations: Vec::new(),
            covered_by: id.map_or(&[], |id| seen.coverage.of(id)),
            canary_late: None,
            canary_slow: None,
            canary_waits: None,
            canary_passed: None,
            canary_passed_ever: None,
            others_hang: scene.hanging.iter().any(|other| id != Some(other)),
            another_hangs: scene.another_hangs(&subject),
            silent: Vec::new(),
            gap: RolloutGap::default(),
            structural: hook.and_then(Hook::without_backends),
            without_backends_since: id.and_then(|id| seen.without_backends.get(id)).copied(),
            other_named: scene.another_fails_since(&subject),
            named_beside: hook.is_some_and(|hook| scene.is_named_beside(hook)),
            bypass: hook.and_then(Hook::bypass),
            theirs: None,
            uncalled: false,
            api_says_so: false,
        };
        if kind.is_admission() {
            evidence.collect_of_canaries();
            evidence.collect_of_admission(&key);
        } else {
            let theirs = if kind == HookKind::Conversion {
                evidence.counters = Counters::of_conversions(webhook, scene.plane.windows);
                Theirs::converter(&evidence.counters)
            } else {
                Theirs::aggregated(webhook, hook, scene.plane.windows)
            };
            evidence.api_says_so = theirs.fails.is_some();
            evidence.theirs = Some(theirs);
        }
        evidence
    }

    fn collect_of_canaries(&mut self) {
        let Scene { seen, now, plane, .. } = *self.scene;
        let reaching = self.hook.map(|hook| seen.coverage.reaching(hook));
        let reaching = reaching.into_iter().flatten();
        let own = self.probes.late().map_or(Duration::ZERO, |(took, _)| took);
        let met = reaching.filter_map(|target| Some((target, seen.canaries.get(target)?)));
        for (target, memory) in met {
            // Where canaries are slow for another reason, one in flight is no evidence; and a canary that waits for a
            // silent API server does not wait for a hook.
            let late = self.scene.hung_for(memory).filter(|_| plane.sick.is_none());
            self.canary_late = self.canary_late.max(late);
            let others = self.scene.slow_for(target).saturating_sub(own);
            let waits = late.filter(|late| !self.others_hang && *late >= others + t::stood_still());
            self.canary_waits = self.canary_waits.max(waits);
            self.canary_slow = self.canary_slow.max(memory.slow(now));
            // One that was sent before the hook was changed met it as it was.
            let passed = memory.passed_at(now);
            self.canary_passed_ever = self.canary_passed_ever.max(passed);
            self.canary_passed = self.canary_passed.max(passed.filter(|sent| self.is_news(*sent)));
        }
        self.accusations = self.accusations();
    }

    fn collect_of_admission(&mut self, key: &(HookKind, String)) {
        let (seen, now, hook) = (self.scene.seen, self.scene.now, self.hook);
        if let Some(hook) = hook {
            self.gap = seen.rollouts.gap(&hook.id, !self.ambiguous, &seen.changes, now);
            self.silent = seen.pooled.silent(&hook.id, now);
        }
        let mut named = self.accusations.iter().map(|accusation| &accusation.named);
        let accused = named.any(|named| named.current && self.is_news(named.started));
        let fails_its_probation = self.bypass == Some(BypassCondition::Probation) && accused;
        self.uncalled = self.structural.is_none() && self.is_uncalled() && !fails_its_probation;
        if self.uncalled {
            // What was seen before the bypass says nothing about its present state.
            (self.accusations, self.canary_slow, self.canary_waits) = (Vec::new(), None, None);
            return;
        }
        let (windows, was_failing) = (self.scene.plane.windows, self.was_failing());
        self.spans = [&windows.newest, &windows.recent, &windows.minute]
            .map(|window| Counters::over(window.as_ref(), key, hook, self.usual));
        self.failed_open = self.spans[1].fail_open >= 1.0;
        self.leave_out_what_is_over();
        self.counters = Counters::choose(&self.spans, &self.probes, was_failing);
        self.only_at = self.scene.plane.one_sided.get(key).copied();
        self.only_at = self.only_at.filter(|_| !self.ambiguous);
        let slow_before = self.before.filter(|before| before.cause == Some(Cause::Slow));
        let slow_since = slow_before.and_then(|before| before.since);
        self.slowness = Slowness::of(&self.spans, self.usual, slow_since);
        self.api_says_so = self.canaries_say_so() || self.counters.failing();
    }

    /// Leaves out failures that may have begun before a named hook was found healthy, so that they do not name it again: a call
    /// that hung is counted, and a canary refused, only after the timeout. Nothing is left out while a backend is dead.
    fn leave_out_what_is_over(&mut self) {
        let cleared = self
            .before
            .filter(|before| !before.named)
            .and_then(|before| before.cleared);
        let Some(cleared) = cleared.filter(|_| self.worst().is_none() && !self.is_partial()) else {
            return;
        };
        let timeout = self.hook.map_or(Duration::ZERO, |hook| hook.timeout);
        for counters in &mut self.spans {
            let took = if counters.failed_at_once() {
                Duration::ZERO
            } else {
                timeout
            };
            if counters.from().is_some_and(|from| from < cleared + took) {
                *counters = counters.without_failures();
            }
        }
        self.accusations
            .retain(|accusation| accusation.named.started >= cleared);
    }

    /// Whether the hook has not been changed after this instant.
    fn is_news(&self, at: Time) -> bool {
        self.reconfigured.is_none_or(|since| at >= since)
    }

    /// The refusals that may mean this hook. The API server's message does not name the configuration, but most have the URL.
    fn accusations(&self) -> Vec<Accusation<'a>> {
        let homonyms = self.scene.listed(self.webhook);
        let homonyms = homonyms.filter(|other| self.hook.is_none_or(|hook| hook.id != other.id));
        let homonyms: Vec<&Hook> = homonyms.collect();
        let named = self.scene.seen.canaries.naming(self.webhook, self.scene.now);
        let accusations = named.filter_map(|named| {
            let url = named.failure.url.as_deref();
            let at = |hook: &Hook| url.is_some_and(|url| hook.is_called_at(url));
            let (ours, theirs) = (self.hook.is_some_and(at), homonyms.iter().any(|hook| at(hook)));
            let unambiguous = ours && !theirs || homonyms.is_empty();
            (ours || !theirs).then_some(Accusation { named, unambiguous })
        });
        accusations.collect()
    }

    /// One refused canary is as good as many refused users: the API server itself says whose call failed. Two are needed where
    /// one may be a passing failure: where some backends answer, or where all do and the hook's timeout is short.
    fn canaries_say_so(&self) -> bool {
        // Where the refusal may mean another hook of the same name, our probes must show that this one is dead.
        let all_dead = matches!(self.probes, ProbeEvidence::All { .. });
        // A healthy hook may exceed a short timeout once.
        let once_is_nothing = self.is_partial()
            || self.is_good() && self.current().all(|accusation| accusation.named.is_short());
        let mut current = self.current();
        current.any(|accusation| accusation.unambiguous || all_dead)
            && (self.accusations.len() >= 2 || !once_is_nothing)
    }

    /// Its calls were answered, and none failed, in a span that began after `since`. Always false for a name that several
    /// webhooks share: the counters do not tell them apart.
    pub fn was_answered_since(&self, since: Time) -> bool {
        !self.ambiguous && self.counters.answered_since(since)
    }

    /// Refusals that nothing newer contradicts.
    pub fn current(&self) -> impl Iterator<Item = &Accusation<'a>> {
        let is_over = move |named: &CanaryAccusation<'_>| {
            named.superseded
                && self.is_good()
                && self.counters.calls >= t::enough_calls()
                && self.was_answered_since(named.started + named.took)
        };
        let all = self.accusations.iter();
        all.filter(move |accusation| accusation.named.current && !is_over(&accusation.named))
    }

    /// The newest refusal.
    pub fn latest(&self) -> Option<&CanaryAccusation<'a>> {
        let named = self.accusations.iter().map(|accusation| &accusation.named);
        named.max_by_key(|named| named.started)
    }

    /// At least one refusal can mean no other hook.
    pub fn is_named(&self) -> bool {
        self.accusations.iter().any(|accusation| accusation.unambiguous)
    }

    /// No user's write is sent to the hook: it is skipped or on probation.
    pub fn is_uncalled(&self) -> bool {
        self.bypass.is_some_and(BypassCondition::covers_all_users)
    }

    /// The control plane's own writes skip it.
    pub fn is_shielded(&self) -> bool {
        self.bypass == Some(BypassCondition::Shield)
    }

    /// It was named as failing at the last tick.
    pub fn was_failing(&self) -> bool {
        self.before.is_some_and(|before| before.health == Health::Failing)
    }

    /// Its cause at the last tick, if it was named as failing then.
    pub fn was_failing_with(&self) -> Option<Cause> {
        self.before.filter(|_| self.was_failing())?.cause
    }

    /// Writes pass when its calls fail. Not if most failed calls are patches that cannot be applied: the API server refuses such
    /// a write under either policy.
    pub fn fails_open(&self) -> bool {
        if self.counters.patches_badly() {
            return false;
        }
        let let_pass = self.spans[1].fail_open >= 1.0;
        let ignores = |hook: &Hook| hook.failure_policy == FailurePolicy::Ignore;
        self.hook.map_or(let_pass, ignores)
    }

    /// Whether it is called for writes that a shield spares, according to rules, selectors and conditions.
    pub fn has_spared(&self) -> bool {
        let traffic = &self.scene.seen.traffic;
        self.hook
            .is_some_and(|hook| traffic.spared(&hook.id) != Spared::Nothing)
    }

    /// Whether what a shield spares gets through: canaries of the control plane's own kinds were written in time since
    /// the hook was last changed. `None` while there is no evidence, and where there is no shield.
    pub fn spared_pass(&self) -> Option<bool> {
        if !self.is_shielded() {
            return None;
        }
        let (now, since) = (self.scene.now, self.reconfigured? + t::propagated());
        let passes = |target| {
            let memory = self.scene.seen.canaries.get(target)?;
            // One that was sent before may still wait for the hook as it was.
            if memory.any_late(since.., now) {
                return Some(false);
            }
            let latest = memory.latest(now).filter(|report| report.started >= since)?;
            Some(memory.passed_at(now) == Some(latest.started))
        };
        match (passes(CanaryTarget::KubeSystem), passes(CanaryTarget::NodeLease)) {
            (Some(true), Some(true)) => Some(true),
            (Some(false), _) | (_, Some(false)) => Some(false),
            _ => None,
        }
    }

    /// The cause according to the API server: that of the newest refusal, else the one that the counters suggest.
    pub fn api_cause(&self) -> Cause {
        match self.latest().map(|named| named.failure.reason) {
            // The API server may have dialled an address that was just removed, and will soon dial the others.
            Some(CallFailureReason::DialTimeout) if self.left_at().is_some() => Cause::Hanging,
            Some(reason) => reason.into(),
            None => self.counted_cause(),
        }
    }

    /// The cause of the oldest refusal that still counts, else the one that the counters suggest.
    pub fn first_cause(&self) -> Cause {
        let oldest = self.current().next();
        oldest.map_or_else(
            || self.counted_cause(),
            |oldest| oldest.named.failure.reason.into(),
        )
    }

    fn counted_cause(&self) -> Cause {
        let timeout = self.hook.map(|hook| hook.timeout.as_secs_f64());
        self.counters.cause(timeout, self.usual, self.fails_open())
    }

    /// When an endpoint was last removed, began to stop or became not Ready, within [`t::pooled_connections_last`].
    pub fn left_at(&self) -> Option<Time> {
        let lately = self.scene.now.before(t::pooled_connections_last());
        let mut changes = self.scene.seen.changes.of(&self.hook?.id, lately);
        let left = changes.rfind(|change| {
            use HookChangeKind::{EndpointGone, EndpointStopping, EndpointUnready};
            matches!(
                change.what,
                EndpointGone(_) | EndpointStopping(_) | EndpointUnready(_)
            )
        });
        left.map(|change| change.at)
    }

    /// Another backend has answered us since, so the path to the Pods works.
    pub fn way_is_open(&self, since: Time) -> bool {
        self.scene.reached_at.is_some_and(|at| at >= since)
    }

    /// Our own path to it may be lost: it hangs for us, and fails for the API server in another way or for another
    /// hook.
    pub fn way_may_be_gone(&self, worst: &Dead) -> bool {
        worst.cause == Cause::Hanging
            && !self.way_is_open(worst.since)
            && !self.is_named()
            && (self.ambiguous || self.counters.failed_at_once())
    }
}
