//! Which canary meets which hook, and which of them a bypass keeps from it.

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

/// Which canary meets which hook.
#[derive(Debug, Default)]
pub struct Coverage {
    /// Where hookwatch's own canary is.
    pub own_namespace: String,
    /// The canaries beside those that always are.
    pub further: Vec<FurtherCanary>,
    /// Canaries that are a CREATE, since there is nothing to update.
    created: BTreeSet<CanaryTarget>,
    by_hook: BTreeMap<HookId, Vec<CanaryTarget>>,
}

/// The canaries whose writes match the hook, according to rules, selectors and conditions: a condition that cannot be
/// evaluated may still exclude one.
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
    /// Takes in which hooks there are now.
    pub fn take(&mut self, inventory: &Inventory, traffic: &TrafficByHook) {
        let canaries = CanaryWrite::all(&self.own_namespace, &self.further);
        let by = |hook: &Hook| covered_by(hook, &canaries, &self.created, (inventory, traffic));
        let covered = inventory.hooks.iter().map(|hook| (hook.id.clone(), by(hook)));
        self.by_hook = covered.collect();
    }

    /// Takes in how a canary was written. True if that is news, and [`Coverage::take`] is due.
    pub fn written(&mut self, target: CanaryTarget, created: bool) -> bool {
        if created {
            self.created.insert(target)
        } else {
            self.created.remove(&target)
        }
    }

    /// The canaries that a hook's rules, selectors and its owner's conditions match.
    pub fn of(&self, hook: &HookId) -> &[CanaryTarget] {
        self.by_hook.get(hook).map_or(&[], Vec::as_slice)
    }

    /// Hooks that any canary meets.
    pub fn hooks(&self) -> impl Iterator<Item = &HookId> {
        let hooks = self.by_hook.iter();
        hooks.filter_map(|(hook, targets)| (!targets.is_empty()).then_some(hook))
    }

    /// Hooks that this canary meets.
    pub fn by(&self, target: CanaryTarget) -> impl Iterator<Item = &HookId> {
        let hooks = self.by_hook.iter();
        hooks.filter_map(move |(hook, targets)| targets.contains(&target).then_some(hook))
    }

    /// The canaries that meet a hook and that no bypass keeps from it.
    pub fn reaching(&self, hook: &Hook) -> Vec<CanaryTarget> {
        let targets = self.of(&hook.id).iter().copied();
        targets.filter(|one| !self.is_kept_from(hook, *one)).collect()
    }

    /// Whether the hook is not asked about what the canary writes, though its rules match that.
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
