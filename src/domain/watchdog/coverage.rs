//! Which canary meets which hook, and which of them a bypass keeps from it.

use std::time::Duration;

use super::Watchdog;
use crate::domain::bypass::{Condition, SHIELDED_NAMESPACES};
use crate::domain::canary::{CanaryTarget, FurtherCanary};
use crate::domain::changes::What;
use crate::domain::hook::{Hook, HookId};
use crate::domain::inventory::Inventory;
use crate::domain::matching::RequestShape;
use crate::domain::time::Time;
use crate::domain::verdict::Bypass;

/// Changes before this are not looked for.
const LOOK_BACK: Duration = Duration::from_secs(3_600);

impl Bypass {
    /// How a match condition of hookwatch's limits what is shown to a hook; the one that lets least through.
    pub fn of(hook: &Hook) -> Option<Self> {
        let limits = |condition: &str| match condition {
            name if name == Condition::Shield.name() => Some(Self::Shield),
            name if name == Condition::Probation.name() => Some(Self::Probation),
            name if name == Condition::Skip.name() => Some(Self::Skip),
            _ => None,
        };
        let conditions = hook.match_conditions.iter();
        conditions.filter_map(|condition| limits(&condition.name)).max()
    }
}

/// The canaries whose writes would be shown to the hook, as far as rules and selectors tell.
pub(super) fn met_by(
    hook: &Hook,
    own_namespace: &str,
    further: &[FurtherCanary],
    inventory: &Inventory,
) -> Vec<CanaryTarget> {
    if !hook.dry_run_safe {
        return Vec::new();
    }
    let always = CanaryTarget::ALL.into_iter().filter(|target| {
        let (group, resource, namespace) = match target {
            CanaryTarget::OwnNamespace => ("", "configmaps", own_namespace),
            CanaryTarget::KubeSystem => ("", "configmaps", "kube-system"),
            CanaryTarget::NodeLease => ("coordination.k8s.io", "leases", "kube-node-lease"),
            CanaryTarget::Further(_) => return false,
        };
        // Where the object is missing the canary is a CREATE instead.
        ["UPDATE", "CREATE"].into_iter().any(|operation| {
            hook.could_match(&RequestShape {
                operation,
                group,
                version: "v1",
                resource,
                namespace: Some(namespace),
                namespace_labels: inventory.namespaces.get(namespace),
                ..RequestShape::default()
            })
        })
    });
    let further = further.iter().filter(|canary| {
        let (group, version) = canary.group_version();
        hook.could_match(&RequestShape {
            operation: "CREATE",
            group,
            version,
            resource: &canary.resource,
            namespace: Some(&canary.namespace),
            namespace_labels: inventory.namespaces.get(&canary.namespace),
            object_labels: Some(&canary.labels()),
            ..RequestShape::default()
        })
    });
    always.chain(further.map(|canary| canary.target)).collect()
}

impl Watchdog {
    /// Whether the hook is not asked about what the canary writes, though its rules match that.
    pub(super) fn is_kept_from(&self, hook: &Hook, target: CanaryTarget) -> bool {
        match Bypass::of(hook) {
            None | Some(Bypass::Probation) => false,
            Some(Bypass::Skip) => true,
            Some(Bypass::Shield) => match target {
                CanaryTarget::Further(_) => {
                    let mut canaries = self.further.iter();
                    canaries.any(|canary| {
                        canary.target == target
                            && (SHIELDED_NAMESPACES.contains(&canary.namespace.as_str())
                                || canary.namespace == self.own_namespace)
                    })
                }
                _ => true,
            },
        }
    }

    /// When the hook's entry was last changed, as far back as changes are remembered.
    pub(super) fn reconfigured_at(&self, hook: &HookId, now: Time) -> Option<Time> {
        let changes = self.changes.of(hook, now.before(LOOK_BACK));
        let mut changed = changes.filter(|change| matches!(change.what, What::Reconfigured(_)));
        changed.next_back().map(|change| change.at)
    }
}
