//! What the runbooks tell a person to type is typed: here what needs no kubectl, the rest in tests/with_envtest.

#[path = "../support/runbooks.rs"]
mod played;

#[test]
fn the_commands_of_the_runbooks_that_need_no_kubectl_do_what_they_say() {
    played::follow("embedded", None);
}
