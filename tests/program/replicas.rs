//! Several daemons at once, on the control plane in this process.

#[path = "../support/replicas.rs"]
mod played;

use hookwatch::lab::control_plane::ControlPlaneKind;

#[tokio::test(flavor = "multi_thread")]
async fn one_leads_and_who_stops_or_dies_is_followed() {
    played::one_leads_and_is_followed(ControlPlaneKind::Embedded).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_catch_all_hook_hangs_the_ledger_decides_and_one_acts() {
    played::a_blocked_lease_leaves_the_decision_to_the_ledger(ControlPlaneKind::Embedded).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_hook_is_said_once_and_so_is_its_end() {
    played::a_failing_hook_is_said_once(ControlPlaneKind::Embedded).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_in_which_no_event_can_be_written_is_said_once_it_is_over() {
    played::an_outage_is_said_once_it_is_over(ControlPlaneKind::Embedded).await;
}
