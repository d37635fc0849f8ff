//! Polls the nodes' Leases.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::domain::observe::node_leases::LeaseTrouble;
use crate::domain::watchdog::Event;
use crate::io::observe::node_leases::{INTERVAL, LONG_INTERVAL, LeaseReader, MANY};

/// Pause after a read that RBAC forbade.
const NOT_PERMITTED: Duration = Duration::from_secs(60);

/// Reads the Leases until the receiver is dropped.
pub(super) async fn read(reader: LeaseReader, events: mpsc::Sender<Event>) {
    loop {
        let began = Instant::now();
        let reading = reader.read().await;
        let pause = match &reading.outcome {
            Ok(list) if list.leases.len() > MANY => LONG_INTERVAL,
            Err(LeaseTrouble::Forbidden { .. }) => NOT_PERMITTED,
            _ => INTERVAL,
        };
        if events.send(Event::NodeLeases(reading)).await.is_err() {
            return;
        }
        sleep_until(began + pause).await;
    }
}
