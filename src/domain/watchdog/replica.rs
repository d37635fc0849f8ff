//! This daemon among its replicas: what is shown of that, and what the leader says for all of them.

use super::{Change, Effect, Watchdog};
use crate::domain::leadership::{ReplicaReport, ReplicaView};
use crate::domain::time::Time;
use crate::domain::verdict::Verdict;

impl Watchdog {
    pub(super) fn take_replica(&mut self, report: ReplicaReport, now: Time) -> Vec<Effect> {
        self.replica = Some(report);
        self.look_at_replica(now)
    }

    /// Also time alone changes what a replica is: a leader that does not renew is none.
    pub(super) fn look_at_replica(&mut self, now: Time) -> Vec<Effect> {
        let Some(report) = &self.replica else {
            return Vec::new();
        };
        let before = self.replica_view.take();
        let view = ReplicaView::of(report, before.as_ref(), now);
        self.replica_view = Some(view.clone());
        // The words of a trouble may change with every attempt; that there is one does not.
        let news = before.as_ref().is_none_or(|before| {
            !before.same_place(&view) || before.trouble.is_some() != view.trouble.is_some()
        });
        match news {
            true => vec![Effect::Tell(Change::Replica {
                from: before.map(|before| before.role),
                view: Box::new(view),
            })],
            false => Vec::new(),
        }
    }

    pub(super) fn announce(&mut self, verdicts: &[Verdict], now: Time) -> impl Iterator<Item = Effect> {
        let leads = self.replica.as_ref().is_some_and(|report| report.leads(now));
        let inventory = self.inventory.as_ref();
        let uid = |id: &_| {
            let hook = inventory?.hooks.iter().find(|hook| hook.id == *id)?;
            Some(hook.configuration_uid.clone())
        };
        let said = self.announcer.look(verdicts, uid, leads, now);
        said.into_iter().map(|said| Effect::Announce(Box::new(said)))
    }
}
