//! Proving the fence again and again: somebody may take it away.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use crate::domain::fence::{Proof, Subject};
use crate::domain::inventory::Inventory;
use crate::domain::watchdog::Event;
use crate::io::fence::Fence;

/// How often a proven fence is proven anew.
const PROVEN: Duration = Duration::from_secs(600);
/// How often it is tried otherwise. Whoever has just applied it wants to see it.
const OTHERWISE: Duration = Duration::from_secs(30);

/// Proves the fence for as long as somebody listens, at whatever configurations there are.
pub(super) async fn prove(
    fence: Fence,
    mut inventory: watch::Receiver<Arc<Inventory>>,
    events: mpsc::Sender<Event>,
) {
    // Before the first inventory there is nothing to try it at.
    if inventory.changed().await.is_err() {
        return;
    }
    loop {
        let subjects = subjects(&inventory.borrow_and_update());
        let proof = fence.prove(&subjects).await;
        let pause = match proof {
            Proof::Proven => PROVEN,
            _ => OTHERWISE,
        };
        if events.send(Event::Fence(proof)).await.is_err() {
            return;
        }
        // The first webhook of a cluster may be the one that is broken: the proof is not to be waited for then.
        let nothing_there = subjects.is_empty();
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            changed = inventory.changed(), if nothing_there => if changed.is_err() { return },
        }
    }
}

fn subjects(inventory: &Inventory) -> Vec<Subject> {
    let subjects: BTreeSet<Subject> = inventory
        .hooks
        .iter()
        // The fence is around these; hooks of other kinds are never bypassed.
        .filter(|hook| hook.id.kind.is_admission())
        .map(|hook| Subject {
            kind: hook.id.kind,
            configuration: hook.id.configuration.to_string(),
        })
        .collect();
    subjects.into_iter().collect()
}
