//! What is in deploy/, on a real API server: the roles are enough and no more, and the fence holds.

pub mod audit;
pub mod changes;
pub mod cluster;
mod fence;
mod roles;
mod sampled;
mod token;

use super::{Named, named};
pub use roles::GRANTED_TO_ALL;

pub fn tests() -> Vec<Named> {
    vec![
        named(
            "the_fence_lets_through_what_a_bypass_takes_and_nothing_else",
            fence::lets_through_what_a_bypass_takes_and_nothing_else,
        ),
        named("the_fence_is_proven_and_missed", fence::is_proven_and_missed),
        named(
            "the_fence_agrees_with_what_is_explored",
            sampled::agrees_with_what_is_explored,
        ),
        named(
            "the_shipped_roles_are_enough_and_none_of_them_is_idle",
            roles::are_enough_and_none_is_idle,
        ),
        named(
            "each_permission_that_is_missing_is_named_and_costs_its_feature_alone",
            roles::each_that_is_missing_is_named_and_costs_its_feature_alone,
        ),
        named(
            "a_new_token_is_taken_up_while_the_old_one_still_serves",
            token::a_new_one_is_taken_up_while_the_old_one_still_serves,
        ),
    ]
}
