//! Which canaries match which hooks, and which of these calls a bypass prevents.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::condition::BypassCondition;
use crate::cluster::condition::spare::Spare;
use crate::cluster::hook::{Hook, HookId};
use crate::cluster::inventory::Inventory;
use crate::cluster::matching::{RequestShape, Requester};
use crate::observe::canary::{CanaryTarget, FurtherCanary};
use crate::observe::observations::canary_write::CanaryWrite;
use crate::observe::observations::matched_traffic::TrafficByHook;
use crate::text::{own_account, own_groups};

/// The canaries whose writes match each hook.
#[derive(Debug, Default)]
pub struct Coverage {
    /// hookwatch's own namespace, where one of the canaries is.
    pub own_namespace: String,
    /// The configured canaries.
    pub further: Vec<FurtherCanary>,
    /// Canaries that are sent as CREATE, since there is no object to update.
    created: BTreeSet<CanaryTarget>,
    by_hook: BTreeMap<HookId, Vec<CanaryTarget>>,
}

/// The canaries whose writes match the hook's rules, selectors and conditions. None for a hook that is not called for dry runs. A
/// condition that cannot be evaluated may still exclude one of them.
fn covered_by(
    hook: &Hook,
    canaries: &[CanaryWrite<'_>],
    created: &BTreeSet<CanaryTarget>,
    (inventory, traffic): (&Inventory, &TrafficByHook),
) -> Vec<CanaryTarget> {
    if !hook.dry_run_safe {
        return Vec::new();
    }
    let meets = |canary: &CanaryWrite<'_>| {
        let operation = match canary.operations() {
            [update, _] if !created.contains(&canary.target) => update,
            _ => "CREATE",
        };
        let namespace_labels = inventory.namespaces.get(canary.namespace);
        hook.could_match(&canary.shape(operation, namespace_labels))
            && !traffic.keeps(&hook.id, canary.target)
    };
    canaries
        .iter()
        .filter(|canary| meets(canary))
        .map(|canary| canary.target)
        .collect()
}

impl Coverage {
    /// Recomputes the coverage for a new inventory.
    pub fn take(&mut self, inventory: &Inventory, traffic: &TrafficByHook) {
        let canaries = CanaryWrite::all(&self.own_namespace, &self.further);
        let by = |hook: &Hook| covered_by(hook, &canaries, &self.created, (inventory, traffic));
        let covered = inventory.hooks.iter().map(|hook| (hook.id.clone(), by(hook)));
        self.by_hook = covered.collect();
    }

    /// Records whether a canary was sent as CREATE. True if that has changed, and [`Coverage::take`] must be called.
    pub fn written(&mut self, target: CanaryTarget, created: bool) -> bool {
        if created {
            self.created.insert(target)
        } else {
            self.created.remove(&target)
        }
    }

    /// The canaries that match a hook by its rules, its selectors and its owner's conditions.
    pub fn of(&self, hook: &HookId) -> &[CanaryTarget] {
        self.by_hook.get(hook).map_or(&[], Vec::as_slice)
    }

    /// Hooks that at least one canary matches.
    pub fn hooks(&self) -> impl Iterator<Item = &HookId> {
        let hooks = self.by_hook.iter();
        hooks.filter_map(|(hook, targets)| (!targets.is_empty()).then_some(hook))
    }

    /// Hooks that this canary matches.
    pub fn by(&self, target: CanaryTarget) -> impl Iterator<Item = &HookId> {
        let hooks = self.by_hook.iter();
        hooks.filter_map(move |(hook, targets)| targets.contains(&target).then_some(hook))
    }

    /// The canaries that match a hook and that no bypass keeps from it.
    pub fn reaching(&self, hook: &Hook) -> Vec<CanaryTarget> {
        let targets = self.of(&hook.id).iter().copied();
        targets.filter(|one| !self.is_kept_from(hook, *one)).collect()
    }

    /// Whether a bypass keeps the canary's write from the hook although its rules match.
    fn is_kept_from(&self, hook: &Hook, target: CanaryTarget) -> bool {
        let spared = |canary: &FurtherCanary| {
            let (own, added) = (&*self.own_namespace, &hook.added);
            let (account, groups) = (own_account(own), own_groups(own));
            let hookwatch = Requester {
                user: &account,
                groups: &groups.each_ref().map(String::as_str),
            };
            let (group, version) = canary.group_version();
            let request = RequestShape {
                namespace: Some(&canary.namespace),
                ..RequestShape::new("CREATE", [group, version, &canary.resource, ""])
            };
            Spare {
                hookwatch_namespace: own,
                added,
            }
            .spares(&request, Some(hookwatch))
        };
        match hook.bypass() {
            None | Some(BypassCondition::Probation) => false,
            Some(BypassCondition::Skip) => true,
            Some(BypassCondition::Shield) => {
                let further = self.further.iter().find(|canary| canary.target == target);
                CanaryTarget::ALL.contains(&target) || further.is_some_and(spared)
            }
        }
    }
}
