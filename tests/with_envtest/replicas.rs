//! Two daemons at once against a real API server.

use hookwatch::lab::control_plane::Kind;

use super::{Named, Outcome, missing, named};

#[path = "../support/replicas.rs"]
mod played;

pub fn tests() -> Vec<Named> {
    vec![
        named("replicas_one_leads_and_who_stops_or_dies_is_followed", || {
            play(played::one_leads_and_is_followed(Kind::Envtest))
        }),
        named(
            "replicas_a_blocked_lease_leaves_the_decision_to_the_ledger",
            || {
                play(played::a_blocked_lease_leaves_the_decision_to_the_ledger(
                    Kind::Envtest,
                ))
            },
        ),
        named("replicas_a_failing_hook_is_said_once", || {
            play(played::a_failing_hook_is_said_once(Kind::Envtest))
        }),
    ]
}

fn play(test: impl Future<Output = ()>) -> Outcome {
    if let Some(skipped) = missing() {
        return skipped;
    }
    tokio::runtime::Runtime::new().unwrap().block_on(test);
    Outcome::Held
}
