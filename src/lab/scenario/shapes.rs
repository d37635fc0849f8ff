//! Further shapes of an outage: played, like the scenarios, to see which clients survive, but not listed.

use std::time::Duration;

use super::table::{QUIET, USUAL, all_of, arranged, at_opa, failing, one_of, suspect};
use super::{Scenario, SecondApiServerRole};
use crate::lab::backend::Behaviour;
use crate::lab::cluster::HookShape;
use crate::lab::cluster::LabHook::{Opa, Policy};

/// All further shapes.
pub static SHAPES: [Scenario; 8] = [
    Scenario {
        name: "hang-quiet-cluster",
        summary: "As gke-opa-outage, with a write of a user every two seconds.",
        symptom: "every create and update hangs for 10 s",
        expected: &[failing(Opa, "Hanging")],
        hardly_any_users: true,
        faults: &[all_of(Opa, Behaviour::HangAfterTls)],
        ..QUIET
    },
    Scenario {
        name: "two-api-servers-hang",
        summary: "As ignore-hang, and two API servers serve: a leader and some of the nodes write to each.",
        symptom: "every create and update takes 20 s; clients that wait less give up, leaders and kubelets included",
        expected: &[failing(Policy, "Hanging"), failing(Opa, "Hanging")],
        second_api_server: SecondApiServerRole::Serves,
        arranged: &[at_opa(Policy, true, 10), at_opa(Opa, true, 10)],
        faults: &[all_of(Opa, Behaviour::HangAfterTls)],
        ..QUIET
    },
    Scenario {
        name: "connections-reset",
        summary: "The catch-all validating webhook's backends reset every connection.",
        symptom: "every create and update fails at once",
        expected: &[failing(Opa, "Refused")],
        faults: &[all_of(Opa, Behaviour::Reset)],
        ..QUIET
    },
    Scenario {
        name: "slow-4s",
        summary: "The catch-all validating webhook takes 4 s longer.",
        symptom: "every create and update takes 4 s; leaders, which give each attempt 5 s, live on that",
        expected: &[failing(Opa, "Slow")],
        faults: &[all_of(Opa, Behaviour::Slow(Duration::from_secs(4)))],
        ..QUIET
    },
    Scenario {
        name: "slow-6s",
        summary: "The catch-all validating webhook takes 6 s longer.",
        symptom: "every create and update takes 6 s; leaders, which give each attempt 5 s, cannot renew",
        expected: &[failing(Opa, "Slow")],
        faults: &[all_of(Opa, Behaviour::Slow(Duration::from_secs(6)))],
        ..QUIET
    },
    Scenario {
        name: "one-of-two-hung",
        summary: "One of the two backends of a catch-all mutating webhook takes requests and answers none.",
        symptom: "about half of all creates and updates hang for 10 s",
        expected: &[suspect(Policy, "Partial")],
        arranged: &[arranged(Policy, HookShape { at: Policy, ..USUAL })],
        faults: &[one_of(Policy, Behaviour::HangAfterTls)],
        ..QUIET
    },
    Scenario {
        name: "many-webhooks-hang",
        summary: "Twelve webhooks of one configuration, as policy engines register them, share a Service that takes every \
                  request and answers none.",
        symptom: "every create and update hangs for 10 s",
        expected: &[failing(Opa, "Hanging")],
        arranged: &[arranged(
            Opa,
            HookShape {
                siblings: 11,
                ..USUAL
            },
        )],
        faults: &[all_of(Opa, Behaviour::HangAfterTls)],
        ..QUIET
    },
    Scenario {
        name: "two-services-hang",
        summary: "As ignore-hang, and each of the two hooks has a Service of its own.",
        symptom: "every create and update takes 20 s; clients that wait less give up, leaders and kubelets included",
        expected: &[failing(Policy, "Hanging"), failing(Opa, "Hanging")],
        arranged: &[
            arranged(
                Policy,
                HookShape {
                    at: Policy,
                    ignores: true,
                    ..USUAL
                },
            ),
            at_opa(Opa, true, 10),
        ],
        faults: &[
            all_of(Policy, Behaviour::HangAfterTls),
            all_of(Opa, Behaviour::HangAfterTls),
        ],
        ..QUIET
    },
];
