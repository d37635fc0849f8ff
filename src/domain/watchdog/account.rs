//! What is told beside the verdicts: what changed, and where the knowledge comes from.

use std::time::Duration;

use super::{Change, Effect, Watchdog, subject};
use crate::domain::fence::{Breaker, Proof};
use crate::domain::inventory::InventoryHealth;
use crate::domain::time::Time;
use crate::domain::verdict::{ControlPlane, Sources, Verdict};

/// How the watches of hooks are called.
const CONFIGURATIONS: &str = "WebhookConfigurations";

impl Watchdog {
    pub(super) fn changes(&self, verdicts: &[Verdict], control_plane: &ControlPlane) -> Vec<Effect> {
        let mut effects = Vec::new();
        for verdict in verdicts {
            let before = self
                .verdicts
                .get(&subject(verdict))
                .map(|before| (before.health, before.cause));
            if before != Some((verdict.health, verdict.cause)) {
                effects.push(Effect::Tell(Change::Hook {
                    from: before,
                    verdict: Box::new(verdict.clone()),
                }));
            }
        }
        if self
            .plane
            .is_none_or(|(writes, _)| writes != control_plane.writes)
        {
            effects.push(Effect::Tell(Change::ControlPlane(Box::new(
                control_plane.clone(),
            ))));
        }
        effects
    }

    pub(super) fn breaker(&self) -> Breaker {
        Breaker {
            hooks: self.standings.clone(),
            ..Breaker::new(self.auto_break, self.fence.as_ref())
        }
    }

    pub(super) fn take_fence(&mut self, proof: Proof) -> Vec<Effect> {
        let before = self.breaker();
        self.fence = Some(proof);
        let breaker = self.breaker();
        match breaker == before {
            true => Vec::new(),
            false => vec![Effect::Tell(Change::Breaker(breaker))],
        }
    }

    pub(super) fn take_api_servers(&mut self, read: Result<(), String>) -> Vec<Effect> {
        let before = std::mem::replace(&mut self.unlisted_api_servers, read.clone().err());
        match before.is_some() == self.unlisted_api_servers.is_some() {
            true => Vec::new(),
            false => vec![Effect::Tell(Change::ApiServers(read))],
        }
    }

    pub(super) fn sources(&self, now: Time, self_doubt: bool) -> Sources {
        // A watch that is refused delivers nothing that could grow old, nor does one that has only begun while there
        // is an inventory without it.
        let age = self
            .watches
            .iter()
            .filter(|report| {
                !matches!(
                    report.health,
                    InventoryHealth::Limited { .. } | InventoryHealth::Starting
                )
            })
            .map(|report| report.known_good.map(|good| now.since(good)))
            .try_fold(Duration::ZERO, |age, watch| watch.map(|watch| age.max(watch)));
        let mut configurations = self
            .watches
            .iter()
            .filter(|report| report.watch.ends_with(CONFIGURATIONS))
            .peekable();
        let hooks_listed = configurations.peek().is_none()
            || configurations.any(|report| !matches!(report.health, InventoryHealth::Limited { .. }));
        Sources {
            hooks_listed,
            inventory_age_seconds: self.inventory.as_ref().and(age).map(|age| age.as_secs_f64()),
            inventory_trouble: self
                .watches
                .iter()
                .filter_map(|report| match &report.health {
                    InventoryHealth::Current => None,
                    InventoryHealth::Starting => Some(format!("{}: nothing was read yet", report.watch)),
                    InventoryHealth::Stale { why } | InventoryHealth::Limited { why } => {
                        Some(format!("{}: {why}", report.watch))
                    }
                })
                .collect(),
            scrapes: self.scrape_views(now),
            api_servers_trouble: self.unlisted_api_servers.clone(),
            node_leases: self.servers.node_leases.view(now),
            self_doubt,
        }
    }
}
