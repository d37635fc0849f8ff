//! deploy/ as it is installed: taken by an API server, also from the chart in another namespace, enough for the daemon in it, up when nothing can be written, and
//! gone without a trace.

mod accepted;
mod chart;
mod flow;
pub mod lab;
mod locked;
mod neighbours;
mod node;
mod outage;
mod removed;
mod room;
mod running;

use super::{Named, Outcome, named};

pub fn tests() -> Vec<Named> {
    vec![
        named("installed_every_object_is_taken_by_an_api_server", || {
            play(accepted::every_object_is_taken(), &[])
        }),
        named(
            "installed_a_release_in_another_namespace_does_the_whole_job",
            || play(chart::a_release_in_another_namespace_does_the_whole_job(), &[]),
        ),
        named(
            "installed_the_account_is_served_while_hung_writes_hold_every_seat",
            || {
                play(
                    flow::the_account_is_served_while_hung_writes_hold_every_seat(),
                    &[],
                )
            },
        ),
        named(
            "installed_where_kube_system_is_locked_the_base_alone_is_taken_and_works",
            || {
                play(
                    locked::the_base_alone_is_taken_and_works(),
                    &["unshare", "chroot"],
                )
            },
        ),
        named("installed_what_is_missing_is_logged_once", || {
            play(locked::what_is_missing_is_logged_once(), &["unshare", "chroot"])
        }),
        named(
            "installed_the_role_for_reading_is_enough_to_diagnose_and_audit",
            || {
                play(
                    locked::the_role_for_reading_is_enough_to_diagnose_and_audit(),
                    &[],
                )
            },
        ),
        named(
            "installed_a_bypass_outlives_every_write_but_one_that_replaces_the_object",
            || {
                play(
                    neighbours::a_bypass_outlives_every_write_but_one_that_replaces_the_object(),
                    &[],
                )
            },
        ),
        named("installed_on_a_node_it_comes_up_while_every_write_hangs", || {
            play(
                node::it_comes_up_while_every_write_hangs(),
                &["unshare", "chroot"],
            )
        }),
        named(
            "installed_in_an_outage_what_is_refused_and_what_works_is_what_the_document_says",
            || {
                play(
                    outage::what_is_refused_and_what_works_is_what_the_document_says(),
                    &[],
                )
            },
        ),
        named(
            "installed_on_a_node_without_roles_it_starts_and_says_what_it_lacks",
            || {
                play(
                    outage::on_a_node_without_roles_it_starts_and_says_what_it_lacks(),
                    &["unshare", "chroot"],
                )
            },
        ),
        named("installed_the_pod_as_it_is_shipped_does_the_whole_job", || {
            play(
                running::the_pod_as_it_is_shipped_does_the_whole_job(),
                &["unshare", "chroot"],
            )
        }),
        named("installed_from_observing_to_bypassing_and_back", || {
            play(
                removed::from_observing_to_bypassing_and_back(),
                &["unshare", "chroot"],
            )
        }),
        named("installed_upgraded_and_removed_without_a_trace", || {
            play(
                removed::upgraded_and_removed_without_a_trace(),
                &["unshare", "chroot"],
            )
        }),
    ]
}

/// Runs a test where everything that it needs is there.
fn play(test: impl Future<Output = ()>, programs: &[&str]) -> Outcome {
    if lab::kubectl().is_none() {
        return Outcome::Skipped("there is no kubectl beside the API server".to_owned());
    }
    if !programs.is_empty() && !room::can_be_made() {
        let programs = programs.join(" and ");
        return Outcome::Skipped(format!("no root of its own can be made here with {programs}"));
    }
    super::privileges::cluster::play(test)
}
