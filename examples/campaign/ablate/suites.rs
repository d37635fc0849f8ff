//! Runs the core's own tests with a change.

use std::process::Command;

use hookwatch::domain::thresholds::ablation;

use super::Change;

/// Printed after the results: the tests that a change cannot reach.
pub const NOT_RUN: &str = "The integration tests properties, recordings and hostile were not run: only the \
                           core's own tests go by a change, the others link it as it is.";

/// Runs the core's tests with a change; returns which of them fail, in words.
pub fn try_with(change: &Change) -> String {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args([
            "test",
            "--package",
            "hookwatch-domain",
            "--features",
            "ablation",
            "--lib",
            "--no-fail-fast",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env(ablation::VARIABLE, change.to_string());
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => return format!("the tests cannot be run: {error}"),
    };
    let said = String::from_utf8_lossy(&output.stdout);
    let failed = failed(&said);
    match (failed.is_empty(), output.status.success()) {
        (true, true) => "no test notices".to_owned(),
        (true, false) => {
            let said = String::from_utf8_lossy(&output.stderr);
            format!(
                "the tests cannot be run: {}",
                said.trim().lines().last().unwrap_or("no word")
            )
        }
        (false, _) => format!("noticed by {}", failed.join(", ")),
    }
}

/// The names of the failed tests in the output of `cargo test`.
fn failed(output: &str) -> Vec<&str> {
    let lines = output.lines();
    lines
        .filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_that_fail_are_told_by_name() {
        let output = "running 3 tests\ntest a::well ... ok\ntest b::bad - should panic ... FAILED\n\
                      test c::off ... FAILED\n\nfailures:\n    c::off\n";
        assert_eq!(failed(output), ["b::bad - should panic", "c::off"]);
    }
}
