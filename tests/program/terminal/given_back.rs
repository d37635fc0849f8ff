//! However `top` ends, the terminal is as it was.

use rustix::process::{Signal, kill_process};

use super::pty::Pty;
use super::screens::incident;
use super::served::Served;

fn assert_given_back(terminal: &Pty, what: &str) {
    // Asked before the end: a terminal in which nothing runs any more says nothing.
    let screen = terminal.wait_for(what, |screen| !screen.alternate_screen() && !screen.hide_cursor());
    assert!(!screen.contains("WRITES"), "{what}: {screen}");
    assert!(terminal.is_cooked(), "{what}");
}

/// Runs `top` in a shell, which stays when it ends.
fn within_a_shell(served: &Served) -> Pty {
    let script = format!(
        "{} top --server {}; echo ended with $?; read line",
        env!("CARGO_BIN_EXE_hookwatch"),
        served.url()
    );
    Pty::start(24, 80, "/bin/sh".as_ref(), &["-c", &script], &[])
}

#[test]
fn a_key_and_a_signal_both_leave_the_terminal_as_it_was() {
    let served = Served::start(incident());
    for signal in [None, Some(Signal::TERM), Some(Signal::INT), Some(Signal::HUP)] {
        let terminal = within_a_shell(&served);
        terminal.wait_for("another screen", |screen| {
            screen.alternate_screen() && screen.hide_cursor()
        });
        terminal.wait_for_text("WRITES BLOCKED");
        assert!(!terminal.is_cooked());
        match signal {
            None => terminal.type_keys("q"),
            Some(signal) => kill_process(terminal.grandchild(), signal).unwrap(),
        }
        terminal.wait_for_text("ended with 0");
        assert_given_back(&terminal, &format!("{signal:?}"));
    }
}

#[test]
fn a_panic_is_told_on_a_terminal_that_was_given_back() {
    let this = std::env::current_exe().unwrap();
    let script = format!(
        "{} --ignored --nocapture --exact {}::panics_with_the_terminal_taken; echo ended with $?; read line",
        this.display(),
        module_path!().trim_start_matches("program::")
    );
    let terminal = Pty::start(24, 100, "/bin/sh".as_ref(), &["-c", &script], &[]);
    let screen = terminal.wait_for_text("ended with 101");
    assert!(screen.contains("told on purpose"), "{screen}");
    assert!(terminal.raw().windows(8).any(|bytes| bytes == b"\x1b[?1049h"));
    assert_given_back(&terminal, "a panic");
}

#[test]
#[ignore = "it is run by the test above, in a terminal"]
fn panics_with_the_terminal_taken() {
    let _guard = hookwatch::app::terminal::TerminalGuard::take().unwrap();
    std::thread::spawn(|| panic!("told on purpose")).join().unwrap();
}

#[test]
fn without_a_terminal_it_says_what_to_use_instead() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_hookwatch"))
        .arg("top")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(64));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        said,
        "hookwatch: top needs a terminal; without one, use `hookwatch status`\n"
    );
    assert!(output.stdout.is_empty());
}
