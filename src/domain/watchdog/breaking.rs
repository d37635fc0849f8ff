//! What the breaker is told: how everything is judged, who says so, and how far each of them can be trusted.
//!
//! The judge names a culprit when the evidence suffices for that. To act takes more: witnesses that do not lean on each
//! other. So they are counted here from what was observed, and not taken from the verdict.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Watchdog;
use crate::domain::breaker::spared::meets_control_plane;
use crate::domain::breaker::{CanaryWord, Ceiling, Facts, Judged, Witness};
use crate::domain::bypass::edit::MAX_CONDITIONS;
use crate::domain::bypass::{CONDITION_PREFIX, Condition};
use crate::domain::canary::{CanaryOutcome, CanaryTarget};
use crate::domain::fence::Proof;
use crate::domain::history::{Window, Windows};
use crate::domain::hook::{BackendPath, FailurePolicy, Hook, HookId};
use crate::domain::inventory::Inventory;
use crate::domain::probing::BackendState;
use crate::domain::time::Time;
use crate::domain::verdict::{Assessment, Bypass, Cause, Effect, Health, Verdict};

/// An inventory of which nothing was heard for longer than this is nothing to act by, in seconds. On a quiet cluster an
/// API server says no more than one bookmark a minute per watch.
const SILENT_INVENTORY: f64 = 90.0;
/// Until every API server goes by a change that it has been told of. A canary sent sooner says nothing of it.
const SPREAD: Duration = Duration::from_secs(1);
/// A canary that is late by less may only be slow.
const LATE: Duration = Duration::from_secs(2);
/// Mean seconds per call from which on the counters speak of a hook that is late.
const SLOW: f64 = 0.5;
/// Every replica of hookwatch writes canaries, and none knows what those of the others came to: so many are reckoned with.
const REPLICAS: f64 = 3.0;

/// What one hook is held against.
struct Scene<'a> {
    now: Time,
    all: &'a [Verdict],
    windows: &'a Windows,
    /// Something that is no hook's is known to hold requests up.
    elsewhere: bool,
}

/// Hooks that are asked about something that a shield spares. It changes with the inventory alone.
pub(super) fn shieldable(inventory: &Inventory, own_namespace: &str) -> BTreeSet<HookId> {
    let labels = |namespace: &str| inventory.namespaces.get(namespace);
    let hooks = inventory.hooks.iter();
    hooks
        .filter(|hook| meets_control_plane(hook, own_namespace, labels))
        .map(|hook| hook.id.clone())
        .collect()
}

impl Watchdog {
    /// What the breaker is to know at the instant of this assessment, which has to be the newest. What the owners of
    /// configurations say, and whether the API servers know `matchConditions`, is not known here.
    pub fn judged(&mut self, assessment: &Assessment) -> Judged {
        let now = assessment.at;
        let windows = self.history.windows(now);
        let inventory = self.inventory.clone();
        let by_id: BTreeMap<&HookId, &Hook> = inventory
            .iter()
            .flat_map(|inventory| &inventory.hooks)
            .map(|hook| (&hook.id, hook.as_ref()))
            .collect();
        let scene = Scene {
            now,
            all: &assessment.hooks,
            windows: &windows,
            elsewhere: assessment.control_plane.not_a_hook.is_some(),
        };
        let mut hooks = BTreeMap::new();
        for verdict in &assessment.hooks {
            // One that only metrics or a refusal name is not there to be bypassed.
            let Some(configuration) = verdict.configuration.clone() else {
                continue;
            };
            let id = HookId {
                kind: verdict.kind,
                configuration,
                webhook: verdict.webhook.clone(),
            };
            let Some(hook) = by_id.get(&id) else { continue };
            self.some_answered.take(hook, verdict, &windows, now);
            let facts = self.facts(hook, verdict, &scene);
            hooks.insert(id, facts);
        }
        Judged {
            self_doubt: assessment.sources.self_doubt,
            inventory_is_old: self.inventory_is_old(now)
                || assessment
                    .sources
                    .inventory_age_seconds
                    .is_none_or(|age| age > SILENT_INVENTORY),
            fence_holds: self.fence.as_ref().is_some_and(Proof::permits),
            match_conditions: false,
            hooks,
        }
    }

    fn facts(&self, hook: &Hook, verdict: &Verdict, scene: &Scene<'_>) -> Facts {
        let now = scene.now;
        let met = self.met(&hook.id);
        let elsewhere = scene.elsewhere || self.shared_with_a_suspect(hook, scene.all, |it| met.contains(it));
        let canary = self.canary_word(hook, elsewhere, now);
        let is_well = canary != CanaryWord::Failed && self.is_well_though_uncalled(hook, verdict.cause, now);
        let witnesses = match verdict.health {
            _ if is_well => BTreeSet::new(),
            Health::Healthy | Health::Unknown => BTreeSet::new(),
            Health::Suspect | Health::Failing => self.witnesses(hook, verdict, scene),
        };
        let (health, cause, effect) = match is_well {
            true => (Health::Healthy, None, Effect::None),
            false => (verdict.health, verdict.cause, would_be(hook, verdict)),
        };
        Facts {
            health,
            cause,
            effect,
            confidence: (verdict.confidence.clamp(0.0, 1.0) * 100.0).round() as u8,
            witnesses,
            ambiguous: self.shared_names.has(&hook.id.webhook, now),
            doubt: self.doubt(hook, now),
            canary,
            meets_control_plane: self.shieldable.contains(&hook.id),
            conditions_full: has_no_room(hook),
            ceiling: Ceiling::Open,
            subject: Default::default(),
        }
    }

    /// Users' calls do not reach the hook, because it is bypassed: what was counted before says nothing of how it is
    /// now, and nothing newer will be counted. Every backend answers, and that is all there is to know.
    fn is_well_though_uncalled(&self, hook: &Hook, cause: Option<Cause>, now: Time) -> bool {
        let uncalled = [Condition::Skip.name(), Condition::Probation.name()];
        let mut conditions = hook.match_conditions.iter();
        if !conditions.any(|condition| uncalled.contains(&condition.name.as_str()))
            || matches!(cause, Some(Cause::NoEndpoints | Cause::NoService))
        {
            return false;
        }
        let states = self.states_that_count(&hook.id, now);
        !states.is_empty()
            && states
                .iter()
                .all(|state| matches!(state, BackendState::Alive { .. }))
    }

    /// How each backend is that a probe reaches another way than the API server, as far as it was tried.
    fn states_that_count(&self, id: &HookId, now: Time) -> Vec<BackendState> {
        let Some(backends) = self.backends.get(id) else {
            return Vec::new();
        };
        let direct = backends
            .keys()
            .any(|backend| backend.path != BackendPath::ClusterIp);
        backends
            .iter()
            .filter(|(backend, _)| !direct || backend.path != BackendPath::ClusterIp)
            .map(|(_, memory)| memory.state(now))
            .filter(|state| !matches!(state, BackendState::Untried { .. }))
            .collect()
    }

    fn witnesses(&self, hook: &Hook, verdict: &Verdict, scene: &Scene<'_>) -> BTreeSet<Witness> {
        let (now, windows) = (scene.now, scene.windows);
        // What a rollout costs is over by the time it is known: nobody can say of it what is, and a bypass comes too late.
        if verdict.cause == Some(Cause::RolloutGap) {
            return BTreeSet::new();
        }
        let mut witnesses = BTreeSet::new();
        if self.probes_speak(&hook.id, verdict.cause, now) {
            witnesses.insert(Witness::Probes);
        }
        // Where next to nothing is written, ten seconds hold nothing.
        let spans = [&windows.recent, &windows.minute];
        let counted = |window: &Option<Window>| {
            let window = window.as_ref();
            window.is_some_and(|window| self.counters_speak(hook, window, now))
        };
        if spans.into_iter().any(counted) {
            witnesses.insert(Witness::Counters);
        }
        if self.canary_speaks(hook, scene) {
            witnesses.insert(Witness::Canary);
        }
        witnesses
    }

    /// Every backend that a probe reaches another way than the API server is dead or slow, or there is none; of a hook
    /// of which a part is bad, that part is.
    fn probes_speak(&self, id: &HookId, cause: Option<Cause>, now: Time) -> bool {
        if matches!(cause, Some(Cause::NoEndpoints | Cause::NoService)) {
            return self.without_backends.contains_key(id);
        }
        let states = self.states_that_count(id, now);
        let bad = |state: &BackendState| match state {
            BackendState::Dead(dead) => dead.certain,
            BackendState::Slow { .. } => true,
            _ => false,
        };
        match cause {
            Some(Cause::Partial) => states.iter().any(bad),
            _ => !states.is_empty() && states.iter().all(bad),
        }
    }

    /// The API server counted calls that failed or were late, more of them than the canaries of all replicas made.
    fn counters_speak(&self, hook: &Hook, window: &Window, now: Time) -> bool {
        let key = (hook.id.kind, hook.id.webhook.to_string());
        let Some(series) = window.gained.hooks.get(&key) else {
            return false;
        };
        let within = |ended: Time| ended >= window.from && ended <= window.to;
        let own_failed = self.canaries.naming(&hook.id.webhook, now);
        let own_failed = own_failed.filter(|named| within(named.started + named.took));
        if series.failed() >= own_failed.count() as f64 * REPLICAS + 1.0 {
            return true;
        }
        let own = self.met(&hook.id).iter();
        let own = own.flat_map(|target| self.canaries.ended_within(*target, within));
        let (own, own_took) = own.fold((0.0, 0.0), |(count, sum), took| {
            (count + REPLICAS, sum + REPLICAS * took.as_secs_f64())
        });
        let users = series.calls.count - own;
        users >= 2.0 && (series.calls.sum - own_took) / users >= SLOW
    }

    /// A canary was refused in the hook's name; or one that meets it is late, and neither does it meet another that
    /// could be why, nor is anything else known to be.
    fn canary_speaks(&self, hook: &Hook, scene: &Scene<'_>) -> bool {
        let now = scene.now;
        let mut named = self.canaries.naming(&hook.id.webhook, now);
        // What was called elsewhere is another hook of that name, even if that is gone again.
        let called_here = |url: &Option<String>| url.as_deref().is_none_or(|url| hook.is_called_at(url));
        if named.any(|named| named.current && called_here(&named.failure.url)) {
            return true;
        }
        if scene.elsewhere {
            return false;
        }
        let late = |target: &CanaryTarget| {
            let mut memories = self.canaries.iter();
            memories.any(|(other, memory)| {
                other == *target
                    && (memory.hung_for(now).is_some_and(|waiting| waiting >= LATE)
                        || memory.slow(now).is_some())
            })
        };
        let reaching = self.met(&hook.id).iter();
        let reaching = reaching.filter(|target| !self.is_kept_from(hook, **target));
        let late: Vec<&CanaryTarget> = reaching.filter(|it| late(it)).collect();
        !late.is_empty() && !self.shared_with_a_suspect(hook, scene.all, |target| late.contains(&target))
    }

    /// Whether another hook that may be why a request is late meets one of those canaries.
    fn shared_with_a_suspect(
        &self,
        hook: &Hook,
        all: &[Verdict],
        is_one: impl Fn(&CanaryTarget) -> bool,
    ) -> bool {
        let suspicious = |verdict: &&Verdict| {
            let slows = matches!(
                verdict.cause,
                Some(Cause::Hanging | Cause::Slow | Cause::Unreachable | Cause::StaleConnection)
            );
            slows && matches!(verdict.health, Health::Failing | Health::Suspect)
        };
        all.iter().filter(suspicious).any(|verdict| {
            let Some(configuration) = verdict.configuration.clone() else {
                return false;
            };
            let id = HookId {
                kind: verdict.kind,
                configuration,
                webhook: verdict.webhook.clone(),
            };
            id != hook.id && self.met(&id).iter().any(&is_one)
        })
    }

    /// What canaries that were sent since the hook was last changed say of it. `elsewhere`: something that is no hook's,
    /// or another hook, is known to hold canaries up.
    pub(super) fn canary_word(&self, hook: &Hook, elsewhere: bool, now: Time) -> CanaryWord {
        let met = self.met(&hook.id);
        if met.is_empty() {
            return CanaryWord::Unmet;
        }
        let since = self.reconfigured_at(&hook.id, now).map(|at| at + SPREAD);
        let is_news = |started: Time| since.is_none_or(|since| started >= since);
        let mut word = CanaryWord::Awaited;
        // What happens to canaries that do not reach it is not its doing.
        let reaching = |target: CanaryTarget| met.contains(&target) && !self.is_kept_from(hook, target);
        for (_, memory) in self.canaries.iter().filter(|(target, _)| reaching(*target)) {
            let late = memory.overdue_for(now);
            if late.is_some_and(|(started, waiting)| is_news(started) && waiting >= LATE) {
                match elsewhere {
                    // It says so by name when it fails by this hook.
                    true => continue,
                    false => return CanaryWord::Failed,
                }
            }
            let latest = memory.latest(now).filter(|report| is_news(report.started));
            match latest.map(|report| &report.outcome) {
                Some(CanaryOutcome::CallFailed(failure)) if *failure.webhook == *hook.id.webhook => {
                    return CanaryWord::Failed;
                }
                // A denial is an answer.
                Some(CanaryOutcome::Denied { webhook }) if **webhook == *hook.id.webhook => {
                    word = CanaryWord::Through;
                }
                Some(CanaryOutcome::Written) => word = CanaryWord::Through,
                _ => {}
            }
        }
        word
    }

    fn met(&self, id: &HookId) -> &[CanaryTarget] {
        self.met_by.get(id).map_or(&[], Vec::as_slice)
    }
}

/// Whether others' match conditions leave no room for one of hookwatch's.
fn has_no_room(hook: &Hook) -> bool {
    let others = hook.match_conditions.iter();
    let others = others.filter(|condition| !condition.name.starts_with(CONDITION_PREFIX));
    others.count() >= MAX_CONDITIONS
}

/// What the hook does to writes, or would do if it were not bypassed: whether it may come back hangs on that.
fn would_be(hook: &Hook, verdict: &Verdict) -> Effect {
    let uncalled = verdict.bypass.is_some_and(Bypass::is_for_everybody);
    match (verdict.cause, hook.failure_policy) {
        (None | Some(Cause::Denying), _) => verdict.effect,
        _ if !uncalled => verdict.effect,
        (Some(Cause::Slow), _) => Effect::Delaying,
        (Some(_), FailurePolicy::Fail) => Effect::Blocking,
        (Some(_), FailurePolicy::Ignore) => Effect::FailingOpen,
    }
}
