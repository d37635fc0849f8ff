//! The cases of hooks beside admission.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::MAX_UNLISTED;
use crate::domain::history::Windows;
use crate::domain::hook::{Backend, Hook, HookId, HookKind};
use crate::domain::judge::{OtherCase, judge_other};
use crate::domain::probing::BackendState;
use crate::domain::time::Time;
use crate::domain::verdict::Verdict;
use crate::domain::watchdog::Watchdog;

impl Watchdog {
    /// Judges every conversion webhook and APIService, listed or only counted as failing.
    pub(super) fn judge_others(
        &self,
        windows: &Windows,
        states: &BTreeMap<&HookId, Vec<(Backend, BackendState)>>,
        self_doubt: bool,
        now: Time,
    ) -> Vec<Verdict> {
        let judge = |kind, name: &str, hook: Option<&Hook>| {
            let case = OtherCase {
                now,
                kind,
                name,
                hook,
                backends: hook
                    .and_then(|hook| states.get(&hook.id))
                    .map_or(&[], Vec::as_slice),
                windows,
                without_backends_since: hook.and_then(|hook| self.without_backends.get(&hook.id)).copied(),
                self_doubt,
            };
            let subject = (
                kind,
                hook.map(|hook| Arc::clone(&hook.id.configuration)),
                Arc::from(name),
            );
            judge_other(&case, self.verdicts.get(&subject).copied())
        };
        let hooks: &[Arc<Hook>] = self.inventory.as_ref().map_or(&[], |inventory| &inventory.hooks);
        let hooks = hooks.iter().filter(|hook| !hook.id.kind.is_admission());
        let listed: BTreeSet<(HookKind, &str)> = hooks
            .clone()
            .map(|hook| (hook.id.kind, &*hook.id.webhook))
            .collect();
        let mut verdicts: Vec<Verdict> = hooks
            .map(|hook| judge(hook.id.kind, &hook.id.webhook, Some(hook)))
            .collect();
        let Some(recent) = &windows.recent else {
            return verdicts;
        };
        let others = &recent.gained.others;
        let conversions = others.conversions.iter();
        let failing = conversions
            .filter(|(_, series)| series.failed.count >= 1.0)
            .map(|(crd, _)| (HookKind::Conversion, crd));
        let unavailable = others.unavailable.keys().map(|name| (HookKind::Aggregated, name));
        let unlisted = failing
            .chain(unavailable)
            .filter(|(kind, name)| !listed.contains(&(*kind, name.as_str())));
        for (kind, name) in unlisted.take(MAX_UNLISTED) {
            verdicts.push(judge(kind, name, None));
        }
        verdicts
    }
}
