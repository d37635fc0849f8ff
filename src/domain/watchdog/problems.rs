//! What hookwatch cannot make sense of, or cannot judge.

use std::collections::BTreeSet;
use std::time::Duration;

use super::Watchdog;
use crate::cluster::inventory::{Inventory, Problem};
use crate::diagnose::evidence::Evidence;
use crate::diagnose::verdict::Verdict;
use crate::observe::pooled::MAX_POOLED;
use crate::time::Time;

/// Within this time as many changes of endpoints as are remembered are too many. An inventory is made up to ten times a second, so of
/// faster changes it shows a part.
const CHURN: Duration = Duration::from_secs(20);

impl Watchdog {
    /// Objects that could not be read, Services that probes can hardly judge, and refused canaries that name a webhook which the
    /// inventory does not have.
    pub(super) fn problems(&self, all: &[(Evidence<'_>, Verdict)], now: Time) -> Vec<Problem> {
        let Some(inventory) = &self.seen.inventory else {
            return Vec::new();
        };
        let mut problems = inventory.all_problems();
        let named: BTreeSet<&str> = self.seen.canaries.named(now).collect();
        let is_known = |name: &str| {
            let mut judged = all.iter().map(|(_, verdict)| verdict);
            judged.any(|verdict| verdict.kind.is_admission() && *verdict.webhook == *name)
        };
        let unknown = named.into_iter().filter(|name| !is_known(name));
        problems.extend(unknown.map(|name| Problem {
            object: format!("webhook {name:?}"),
            what: "the API server refused a canary because of it, and no webhook configuration that hookwatch can \
                   read has a webhook of this name; look for one that came or went just now, or for a manifest-based \
                   one on the API server's own disk"
                .to_owned(),
        }));
        let room = Inventory::MAX_PROBLEMS.saturating_sub(problems.len());
        problems.extend(self.hard_to_probe(inventory, now).into_iter().take(room));
        problems
    }

    /// Services whose endpoints change too fast to be judged, or whose backends keep no connection open.
    fn hard_to_probe(&self, inventory: &Inventory, now: Time) -> BTreeSet<Problem> {
        let seen = &self.seen;
        let churning = seen.changes.churning(now.before(CHURN)).map(|hook| {
            let what = "its endpoints change more than six times a second. One that is gone before its first probe is not \
                        judged. Find what changes them: kubectl get endpointslices --watch";
            (hook, what.to_owned())
        });
        // With more backends than that, hookwatch itself closes the connections to some of them.
        let closing = seen.pooled.closing().filter(|_| seen.pace.targets <= MAX_POOLED);
        let closing = closing.map(|(hook, backend)| {
            let what = format!(
                "{backend} closes each connection before the next probe, so the API server needs a TLS handshake for most \
                 calls. Let its server keep idle connections for 90 s"
            );
            (hook, what)
        });
        let problems = churning.chain(closing).filter_map(|(hook, what)| {
            let target = inventory.hook(hook)?.target.service()?;
            let object = format!("Service {}/{}", target.namespace, target.name);
            Some(Problem { object, what })
        });
        problems.collect()
    }
}
