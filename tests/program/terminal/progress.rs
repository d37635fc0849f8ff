//! What lasts says so on a terminal, and nowhere else.

use std::net::TcpListener;
use std::process::{Command, Stdio};

use super::pty::{Pty, keep};

#[test]
fn who_waits_is_told_for_what_in_one_line_that_goes_away() {
    // Connections are taken by the system and never answered.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let arguments = ["status", "--server", &url];
    let terminal = Pty::hookwatch(24, 30, &arguments, &[]);
    let waiting = terminal.wait_for("progress", |screen| {
        screen.contents().starts_with("asking http://127.0.0.1:")
    });
    keep("progress", &waiting);
    assert_eq!(waiting.lines().count(), 1, "{waiting}");
    // Beside the other one: each waits for ten seconds.
    let apart = Command::new(env!("CARGO_BIN_EXE_hookwatch"))
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (ended, screen) = terminal.end();
    assert_eq!(ended.code(), Some(2));
    let said = screen.contents();
    assert!(said.starts_with("hookwatch: no hookwatch"), "{said}");
    let output = apart.wait_with_output().unwrap();
    let complained = String::from_utf8(output.stderr).unwrap();
    assert!(
        complained.starts_with("hookwatch: no hookwatch answers") && !complained.contains("asking"),
        "{complained}"
    );
}

#[test]
fn a_restore_that_waits_for_an_api_server_says_so() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("config");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters: [{{name: c, cluster: {{server: 'http://{}'}}}}]\n\
         contexts: [{{name: x, context: {{cluster: c}}}}]\n",
        silent.local_addr().unwrap()
    );
    std::fs::write(&kubeconfig, text).unwrap();
    let terminal = Pty::hookwatch(
        24,
        80,
        &["restore", "--all", "--kubeconfig", kubeconfig.to_str().unwrap()],
        &[],
    );
    terminal.wait_for_text("looking for the API servers, for 2 s");
    terminal.wait_for_text("listing ValidatingWebhookConfigurations, for ");
    terminal.type_keys("\u{3}");
    assert!(!terminal.end().0.success());
}
