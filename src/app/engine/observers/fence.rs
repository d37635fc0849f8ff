//! Checks at intervals that the fence, a ValidatingAdmissionPolicy (`domain::act::fence`), is still in force: an
//! administrator can delete or change it at any time.
//!
//! If a check finds it missing or changed, the breaker begins no bypass until a later check succeeds.

use std::time::Duration;

use tokio::sync::mpsc;

use crate::domain::act::fence::Proof;
use crate::domain::watchdog::Event;
use crate::io::act::fence::Fence;

/// Pause after a check that succeeded. For about this long, a fence that was removed goes unnoticed.
const PAUSE_PROVEN: Duration = Duration::from_secs(600);
/// Pause after any other result: an administrator who has just applied the fence should see it take effect soon.
const PAUSE_NOT_PROVEN: Duration = Duration::from_secs(30);

/// Sends the result of each check to the watchdog; returns once the channel is closed.
pub(super) async fn keep_proving(fence: Fence, events: mpsc::Sender<Event>) {
    loop {
        let proof = fence.prove().await;
        let pause = match proof {
            Proof::Proven(_) => PAUSE_PROVEN,
            _ => PAUSE_NOT_PROVEN,
        };
        if events.send(Event::Fence(proof)).await.is_err() {
            return;
        }
        tokio::time::sleep(pause).await;
    }
}
