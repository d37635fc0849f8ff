//! Proving the fence again and again: somebody may take it away.

use std::time::Duration;

use tokio::sync::mpsc;

use crate::domain::act::fence::Proof;
use crate::domain::watchdog::Event;
use crate::io::act::fence::Fence;

/// How often a proven fence is proven anew.
const PROVEN: Duration = Duration::from_secs(600);
/// How often it is tried otherwise. Whoever has just applied it wants to see it.
const OTHERWISE: Duration = Duration::from_secs(30);

/// Proves the fence for as long as somebody listens.
pub(super) async fn prove(fence: Fence, events: mpsc::Sender<Event>) {
    loop {
        let proof = fence.prove().await;
        let pause = match proof {
            Proof::Proven(_) => PROVEN,
            _ => OTHERWISE,
        };
        if events.send(Event::Fence(proof)).await.is_err() {
            return;
        }
        tokio::time::sleep(pause).await;
    }
}
