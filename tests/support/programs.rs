//! Programs that tests run: hookwatch's own, and others where the machine has them.

use std::io::Write;
use std::process::{Child, Command, Stdio};

/// Whether CI runs this; no test may be skipped there.
pub fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true")
}

/// Reports a skipped test on stderr, which the test runner does not capture; panics in CI.
pub fn skip(what: &str) {
    assert!(!in_ci(), "in CI this must not be left out: {what}");
    let _ = writeln!(std::io::stderr(), "\nSKIPPED: {what}\n");
}

/// Whether a program is installed. If not, reports what is skipped `without` it, and panics in CI.
pub fn is_there(program: &str, without: &str) -> bool {
    let asked = Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if asked.is_err() {
        skip(&format!("no {program} on this machine, so {without}"));
    }
    asked.is_ok()
}

/// The hookwatch binary, without inherited environment variables that could change its behaviour.
pub fn hookwatch() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hookwatch"));
    for (name, _) in std::env::vars_os() {
        let known = name.to_string_lossy().to_ascii_uppercase();
        let prefixes = ["HOOKWATCH_", "OTEL_"];
        if prefixes.iter().any(|prefix| known.starts_with(prefix)) || known.ends_with("_PROXY") {
            command.env_remove(name);
        }
    }
    command
}

/// A process; it is killed when this is dropped.
pub struct Running(pub Child);

impl Running {
    /// Starts a process without output.
    pub fn start(command: &mut Command) -> Self {
        let command = command.stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
