//! The runbooks on a real API server: every command in them that a lab can carry out, as it stands there.

use hookwatch::lab::envtest::binaries;

use super::{Named, Outcome, named, typed};

pub fn tests() -> Vec<Named> {
    vec![named(
        "the_commands_of_the_runbooks_do_what_they_say",
        the_commands_of_the_runbooks_do_what_they_say,
    )]
}

fn the_commands_of_the_runbooks_do_what_they_say() -> Outcome {
    // setup-envtest brings it along.
    let kubectl = binaries::find().unwrap().kube_apiserver.with_file_name("kubectl");
    if !kubectl.is_file() {
        return Outcome::Skipped(format!("there is no {}", kubectl.display()));
    }
    typed::follow("envtest", Some(&kubectl));
    Outcome::Held
}
