//! Puts every hook's case together and judges it.

mod others;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::{Watchdog, subject};
use crate::domain::canary::{CanaryOutcome, CanaryTarget};
use crate::domain::history::Window;
use crate::domain::hook::{Backend, BackendAddress, Hook, HookId};
use crate::domain::inventory::{InventoryHealth, Problem};
use crate::domain::judge::{Case, Counted, judge};
use crate::domain::plane::Plane;
use crate::domain::probing::{BackendState, Dead};
use crate::domain::rollouts::Gap;
use crate::domain::time::Time;
use crate::domain::verdict::{Cause, Effect, Health, NotAHook, Verdict};

/// Hooks named by metrics alone that are reported at most.
const MAX_UNLISTED: usize = 200;
/// Answers that come within so little of each other come together.
const MOMENT: Duration = Duration::from_secs(2);
/// An inventory that could not be kept up for longer than this may be wrong about addresses.
const OLD_INVENTORY: Duration = Duration::from_secs(30);

impl Watchdog {
    /// Every backend of every hook fails, and nothing that came back since from the API server shows that our
    /// own network is fine.
    pub(super) fn self_doubt(
        &self,
        states: &BTreeMap<&HookId, Vec<(Backend, BackendState)>>,
        now: Time,
    ) -> bool {
        let all = || states.values().flatten().map(|(_, state)| state);
        let dead = all().filter_map(|state| match state {
            BackendState::Dead(dead) => Some(dead.since),
            _ => None,
        });
        let Some(first_dead) = dead.min() else {
            return false;
        };
        // An answer from before the first of them died says nothing about now.
        let alive = |state: &BackendState| match state {
            BackendState::Alive { at, .. } => *at >= first_dead,
            BackendState::Slow { .. } => true,
            _ => false,
        };
        if all().any(alive) {
            return false;
        }
        let scraped = self
            .servers
            .all()
            .any(|target| target.last_good.is_some_and(|at| at > first_dead));
        let answered = self.canaries.iter().any(|(_, memory)| {
            memory.latest(now).is_some_and(|report| {
                report.started + report.took > first_dead
                    && !matches!(
                        report.outcome,
                        CanaryOutcome::TimedOut | CanaryOutcome::Unreachable { .. }
                    )
            })
        });
        !(scraped || answered)
    }

    /// Hooks that a late canary meets and that hang by our probes.
    fn hanging(
        &self,
        states: &BTreeMap<&HookId, Vec<(Backend, BackendState)>>,
        now: Time,
    ) -> BTreeSet<HookId> {
        let late: Vec<CanaryTarget> = self
            .canaries
            .iter()
            .filter(|(_, memory)| memory.overdue_for(now).is_some())
            .map(|(target, _)| target)
            .collect();
        let meets_late = |id: &HookId| {
            let met_by = self.met_by.get(id);
            met_by.is_some_and(|met_by| met_by.iter().any(|target| late.contains(target)))
        };
        let hangs = |(_, state): &(Backend, BackendState)| {
            matches!(
                state,
                BackendState::Dead(Dead {
                    cause: Cause::Hanging,
                    ..
                })
            )
        };
        states
            .iter()
            .filter(|(id, backends)| meets_late(id) && backends.iter().any(hangs))
            .map(|(id, _)| (*id).clone())
            .collect()
    }

    /// Whether a watch has been broken for so long that addresses may be wrong.
    pub(super) fn inventory_is_old(&self, now: Time) -> bool {
        self.watches.iter().any(|report| {
            matches!(report.health, InventoryHealth::Stale { .. })
                && report
                    .known_good
                    .is_none_or(|good| now.since(good) >= OLD_INVENTORY)
        })
    }

    pub(super) fn judge_all<'w>(
        &self,
        plane: &Plane<'w>,
        states: &BTreeMap<&HookId, Vec<(Backend, BackendState)>>,
        self_doubt: bool,
        now: Time,
    ) -> (Vec<Verdict>, Vec<Problem>) {
        let mut problems = self
            .inventory
            .as_ref()
            .map_or_else(Vec::new, |inventory| inventory.all_problems());
        let hooks: &[Arc<Hook>] = self.inventory.as_ref().map_or(&[], |inventory| &inventory.hooks);
        // The API server's counters and refusals by webhook name speak of admission hooks only.
        let hooks = hooks.iter().filter(|hook| hook.id.kind.is_admission());
        let mut listed: BTreeMap<&str, Vec<&Hook>> = BTreeMap::new();
        for hook in hooks.clone() {
            listed.entry(&hook.id.webhook).or_default().push(hook);
        }
        let (excess, stalled) = (plane.excess(), plane.stalled());
        let explained = plane
            .elsewhere(&[])
            .is_some_and(|found| found.cause != NotAHook::Unexplained);
        let ruled_out = plane.ruled_out();
        let hanging = self.hanging(states, now);
        let inventory_is_old = self.inventory_is_old(now);
        let known = self.backends.values().flat_map(BTreeMap::keys);
        let addresses: BTreeSet<&BackendAddress> = known.map(|backend| &backend.address).collect();
        // When a way opens again, what hung on it comes back together, and not in one instant.
        let a_moment_ago = now.before(MOMENT);
        let memories = self.backends.values().flat_map(BTreeMap::values);
        let reached_at = memories
            .filter_map(|memory| memory.reached_by(a_moment_ago))
            .max();
        let case = |kind, webhook: &str, hook: Option<&Hook>| -> Verdict {
            let key = (kind, webhook.to_owned());
            let counted = |window: &'w Option<Window>| Counted::of(&key, window.as_ref()?);
            let met_by = hook
                .and_then(|hook| self.met_by.get(&hook.id))
                .map_or(&[][..], Vec::as_slice);
            let memories = || {
                self.canaries
                    .iter()
                    .filter(|(target, _)| {
                        met_by.contains(target) && !hook.is_some_and(|hook| self.is_kept_from(hook, *target))
                    })
                    .map(|(_, memory)| memory)
            };
            let reconfigured = hook.and_then(|hook| self.reconfigured_at(&hook.id, now));
            let named_alike = listed.get(webhook).map_or(&[][..], Vec::as_slice);
            let itself = |other: &Hook| hook.is_some_and(|hook| hook.id == other.id);
            let subject = (
                kind,
                hook.map(|hook| Arc::clone(&hook.id.configuration)),
                Arc::from(webhook),
            );
            let others = self.verdicts.iter().filter(|(other, _)| **other != subject);
            let failing = others.filter(|(_, before)| before.health == Health::Failing);
            let case = Case {
                now,
                kind,
                webhook,
                hook,
                backends: hook
                    .and_then(|hook| states.get(&hook.id))
                    .map_or(&[], Vec::as_slice),
                recent: counted(&plane.windows.recent),
                newest: counted(&plane.windows.newest),
                minute: counted(&plane.windows.minute),
                usual: plane.baseline.hook(&key),
                excess_share: excess.share(&key),
                call_share: excess.call_share(&key),
                ambiguous: named_alike.iter().filter(|other| other.id.kind == kind).count() > 1,
                homonyms: named_alike
                    .iter()
                    .copied()
                    .filter(|other| !itself(other))
                    .collect(),
                met_by,
                canaries: &self.canaries,
                // Where canaries are slow for another reason, one that is under way is no news.
                canary_late: memories()
                    // Who waits for an API server that does not answer does not wait for a hook.
                    .filter(|_| plane.sick.is_none())
                    .filter_map(|memory| memory.hung_for(now))
                    .filter(|waiting| *waiting >= Duration::from_secs(2))
                    .max(),
                others_hang: hanging.iter().any(|id| hook.is_none_or(|hook| hook.id != *id)),
                // One that was sent before the hook was changed may have met another one.
                canary_passed: memories()
                    .filter_map(|memory| memory.passed_at(now))
                    .filter(|sent| reconfigured.is_none_or(|at| *sent >= at))
                    .max(),
                alone: hook.is_none_or(|hook| {
                    let own = self.backends.get(&hook.id).into_iter().flat_map(BTreeMap::keys);
                    own.map(|backend| &backend.address).collect::<BTreeSet<_>>().len() == addresses.len()
                }),
                canary_slow: memories().filter_map(|memory| memory.slow(now)).max(),
                stalled,
                changes: &self.changes,
                silent: hook.map_or_else(Vec::new, |hook| self.kept.silent(&hook.id, now)),
                inventory: self.inventory.as_deref(),
                gap: hook.map_or_else(Gap::default, |hook| {
                    let counted = named_alike.iter().filter(|other| other.id.kind == kind).count() == 1;
                    self.rollouts.gap(&hook.id, counted, &self.changes, now)
                }),
                without_backends_since: hook.and_then(|hook| self.without_backends.get(&hook.id)).copied(),
                reached_at,
                explained,
                ruled_out: ruled_out.as_ref(),
                other_named: failing.filter_map(|(_, before)| before.since).min(),
                inventory_is_old,
                self_doubt,
            };
            judge(&case, self.verdicts.get(&subject).copied())
        };
        let mut verdicts: Vec<Verdict> = hooks
            .map(|hook| case(hook.id.kind, &hook.id.webhook, Some(hook.as_ref())))
            .collect();
        let recent = plane.windows.recent.iter();
        let unlisted = recent.flat_map(|window| &window.gained.hooks);
        let unlisted = unlisted.filter(|((kind, name), series)| {
            (series.calls.count >= 1.0 || series.failed() >= 1.0)
                && !listed
                    .get(name.as_str())
                    .is_some_and(|hooks| hooks.iter().any(|hook| hook.id.kind == *kind))
        });
        for ((kind, name), _) in unlisted.take(MAX_UNLISTED) {
            verdicts.push(case(*kind, name, None));
        }
        let named: BTreeSet<&str> = self.canaries.named(now).collect();
        for name in named {
            if self.inventory.is_some() && !verdicts.iter().any(|verdict| &*verdict.webhook == name) {
                problems.push(Problem {
                    object: format!("webhook {name:?}"),
                    what: "the API server refused a canary because of it, and no webhook configuration that \
                           hookwatch can read has a hook of this name; look for one that came or went just now, \
                           or for a manifest-based one on the API server's own disk"
                        .to_owned(),
                });
            }
        }
        verdicts.extend(self.judge_others(plane.windows, states, self_doubt, now));
        verdicts.sort_by(|a, b| {
            let order = |verdict: &Verdict| match verdict.health {
                Health::Failing => 0,
                Health::Suspect => 1,
                Health::Unknown => 2,
                Health::Healthy => 3,
            };
            let harm = |verdict: &Verdict| match verdict.effect {
                Effect::Blocking => 0,
                Effect::Delaying => 1,
                Effect::FailingOpen => 2,
                Effect::None => 3,
            };
            order(a)
                .cmp(&order(b))
                .then(harm(a).cmp(&harm(b)))
                .then(b.confidence.total_cmp(&a.confidence))
                .then_with(|| subject(a).cmp(&subject(b)))
        });
        (verdicts, problems)
    }
}
