//! The binary as a person meets it: what it prints, and where, and the exit code.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use assert_cmd::Command;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::programs;

fn hookwatch() -> Command {
    Command::from_std(programs::hookwatch())
}

/// The exit code, standard output and standard error.
pub fn told(output: Output) -> (i32, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

fn run(arguments: &[&str]) -> (i32, String, String) {
    told(hookwatch().args(arguments).output().unwrap())
}

fn file(name: &str, text: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).unwrap();
    path
}

fn recording(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/recordings")
        .join(name)
}

#[test]
fn a_status_that_cannot_be_printed_accuses_no_webhook() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_hookwatch"));
    let asked = command.args(["status", "--server", "http://127.0.0.1:1", "--output", "json"]);
    let status = asked
        .stdout(full)
        .stderr(std::process::Stdio::null())
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(2), "could not tell");
}

#[test]
fn a_good_configuration_is_said_to_be_valid() {
    let path = file("good.yaml", "namespace: watchers\nprobes: {interval: 10s}\n");
    let (code, said, complained) = run(&["check-config", "--config", path.to_str().unwrap()]);
    assert_eq!(
        (code, said.as_str(), complained.as_str()),
        (0, "the configuration is valid\n", "")
    );
}

#[test]
fn a_credential_plugin_that_hangs_keeps_no_daemon_from_ending_at_a_signal() {
    let started = Path::new(env!("CARGO_TARGET_TMPDIR")).join("plugin-that-hangs");
    let _ = std::fs::remove_file(&started);
    let written = started.with_extension("written");
    let script = format!(
        "echo $$ > '{}'; mv '{0}' '{}'; exec sleep 300 2>/dev/null",
        written.display(),
        started.display()
    );
    let exec = serde_json::json!({
        "apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script],
        "interactiveMode": "Never",
    });
    let kubeconfig = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"exec": exec}}],
    });
    let kubeconfig = file("hangs.json", &kubeconfig.to_string());
    let mut daemon = std::process::Command::new(env!("CARGO_BIN_EXE_hookwatch"))
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .args(["run", "--listen", "127.0.0.1:0", "--kubeconfig"])
        .arg(kubeconfig)
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let soon = |mut is_so: Box<dyn FnMut() -> bool + '_>| {
        let began = std::time::Instant::now();
        while began.elapsed() < Duration::from_secs(60) {
            if is_so() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    };
    let asked = soon(Box::new(|| started.exists()));
    let id = Pid::from_raw(i32::try_from(daemon.id()).unwrap()).unwrap();
    kill_process(id, Signal::TERM).unwrap();
    let ended = soon(Box::new(|| daemon.try_wait().unwrap().is_some()));
    let _ = daemon.kill();
    let status = daemon.wait().unwrap();
    let plugin = std::fs::read_to_string(&started)
        .ok()
        .and_then(|id| id.trim().parse().ok());
    if let Some(plugin) = plugin.and_then(Pid::from_raw) {
        let _ = kill_process(plugin, Signal::KILL);
    }
    assert!(asked && ended && status.success(), "{asked} {ended} {status}");
}

#[test]
fn a_daemon_whose_address_is_taken_says_so_and_exits_with_1() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let kubeconfig = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
    });
    let kubeconfig = file("taken.json", &kubeconfig.to_string());
    let (code, said, complained) = run(&[
        "run",
        "--listen",
        &address,
        "--kubeconfig",
        kubeconfig.to_str().unwrap(),
    ]);
    assert_eq!((code, said.as_str()), (1, ""), "{complained}");
    assert!(complained.contains(&address), "{complained}");
}

#[test]
fn every_mistake_in_a_configuration_is_told_at_once_on_standard_error() {
    let path = file(
        "bad.yaml",
        "color: blue\nlisten: nowhere\nscrapes: {interval: soon, retries: 3}\n",
    );
    let (code, said, complained) = run(&["check-config", "--config", path.to_str().unwrap()]);
    assert_eq!((code, said.as_str()), (64, ""));
    for key in ["color", "listen", "scrapes.interval", "scrapes.retries"] {
        assert!(
            complained.contains(&format!("hookwatch: {key}: ")),
            "{key}: {complained}"
        );
    }
    assert_eq!(complained.lines().count(), 4, "{complained}");
}

#[test]
fn the_daemon_and_the_one_shot_refuse_a_bad_configuration_before_they_look_for_a_cluster() {
    let path = file("worse.yaml", "color: blue\n");
    for command in ["run", "diagnose"] {
        let (code, _, complained) = run(&[command, "--config", path.to_str().unwrap()]);
        assert_eq!(code, 64, "{command}: {complained}");
        assert!(
            complained.contains("color: is not a key"),
            "{command}: {complained}"
        );
    }
}

#[test]
fn a_configuration_file_that_is_not_there_is_named() {
    let (code, _, complained) = run(&["check-config", "--config", "/nowhere/hookwatch.yaml"]);
    assert_eq!(code, 64);
    assert!(
        complained.contains("/nowhere/hookwatch.yaml: cannot be read"),
        "{complained}"
    );
}

#[test]
fn a_flag_overrides_the_environment_and_the_environment_the_file() {
    let path = file("overridden.yaml", "namespace: Not A Name\nlisten: nowhere\n");
    let mut command = hookwatch();
    command
        .args(["check-config", "--listen", "127.0.0.1:1", "--config"])
        .arg(path);
    command
        .env("HOOKWATCH_NAMESPACE", "watchers")
        .env("HOOKWATCH_LISTEN", "nowhere either");
    command.assert().success();
}

#[test]
fn bad_usage_exits_with_64_and_help_with_0() {
    for arguments in [
        &["run", "--no-such-flag"][..],
        &["no-such-command"],
        &["replay"],
        &["replay", "folder", "--output", "xml"],
        &["replay", "recording", "--scrapes", "folder"],
        &["--log", "a==b", "check-config"],
        &["diagnose", "--for", "1s"],
    ] {
        let (code, said, complained) = run(arguments);
        assert_eq!((code, said.as_str()), (64, ""), "{arguments:?}");
        assert!(!complained.is_empty(), "{arguments:?}");
    }
    for arguments in [&["--help"][..], &["run", "--help"], &["--version"]] {
        let (code, said, complained) = run(arguments);
        assert_eq!((code, complained.as_str()), (0, ""), "{arguments:?}");
        assert!(!said.is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_kubeconfig_that_is_not_there_accuses_no_hook() {
    let (code, _, complained) = run(&["diagnose", "--kubeconfig", "/nowhere/kubeconfig"]);
    assert!(![0, 1].contains(&code), "exit code {code}");
    assert!(
        complained.contains("cannot use the kubeconfig /nowhere/kubeconfig"),
        "{complained}"
    );
}

#[test]
fn a_recording_that_is_not_there_is_a_clear_error() {
    for (arguments, error) in [
        (
            &["replay", "/nowhere/recording"][..],
            "cannot read /nowhere/recording",
        ),
        (
            &["replay", "--scrapes", "/nowhere/recording"],
            "cannot read the folder /nowhere/recording",
        ),
        (&["replay", env!("CARGO_MANIFEST_DIR")], "holds no recording"),
        (
            &["replay", "--scrapes", env!("CARGO_MANIFEST_DIR")],
            "holds no scrape",
        ),
        (
            &["replay", concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")],
            "does not begin as a recording",
        ),
    ] {
        let (code, said, complained) = run(arguments);
        assert_eq!((code, said.as_str()), (1, ""), "{arguments:?}");
        assert!(complained.contains(error), "{complained}");
    }
}

#[test]
fn the_replay_of_a_hang_names_the_culprit_in_text() {
    let (code, said, complained) = run(&[
        "replay",
        "--scrapes",
        recording("validating-hang").to_str().unwrap(),
    ]);
    assert_eq!((code, complained.as_str()), (0, ""));
    let last = said.lines().last().unwrap();
    assert!(
        last.starts_with("culprit: validating-webhook.openpolicyagent.org is Hanging (effect Blocking"),
        "{said}"
    );
}

#[test]
fn the_replay_of_a_hang_names_the_culprit_in_json() {
    let (code, said, _) = run(&[
        "replay",
        "--output",
        "json",
        "--scrapes",
        recording("validating-hang").to_str().unwrap(),
    ]);
    assert_eq!(code, 0);
    let result: Value = serde_json::from_str(&said).unwrap();
    let verdicts = result["verdicts"].as_array().unwrap();
    let failing: Vec<&Value> = verdicts
        .iter()
        .filter(|verdict| verdict["health"] == "Failing")
        .collect();
    assert!(!failing.is_empty(), "{verdicts:?}");
    for verdict in failing {
        assert_eq!(verdict["webhook"], "validating-webhook.openpolicyagent.org");
        assert_eq!(
            (&verdict["cause"], &verdict["configuration"]),
            (&"Hanging".into(), &Value::Null)
        );
        assert!(
            verdict["at_unix_ms"].is_u64() && verdict["confidence"].is_f64(),
            "{verdict}"
        );
    }
    assert_eq!(result["not_a_hook"], serde_json::json!([]));
}

#[test]
fn a_quiet_recording_has_no_culprit() {
    let (code, said, _) = run(&["replay", "--scrapes", recording("quiet").to_str().unwrap()]);
    assert_eq!(code, 0);
    assert!(said.ends_with("no culprit\n"), "{said}");
}

#[test]
fn a_demo_whose_fault_lasts_as_long_as_asked_tells_who_survived_it() {
    let asked = [
        "demo",
        "--scenario",
        "validating-refused",
        "--auto-break",
        "--lasting",
        "6s",
    ];
    let (code, out, err) = run(&asked);
    assert_eq!(code, 0, "{err}");
    let survival: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(survival["scenario"], "validating-refused");
    assert_eq!(survival["with_breaker"], true);
    assert!(
        survival["fault_removed_after_seconds"].as_f64().unwrap() >= 6.0,
        "{out}"
    );
    assert_eq!(survival["bypassed"].as_array().unwrap().len(), 1, "{out}");
    assert_eq!(survival["innocents_bypassed"], serde_json::json!([]));
    assert_eq!(survival["casualties"]["leaders_lost"], 0, "{out}");
}
