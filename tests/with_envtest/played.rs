//! Every scenario, played by the binary as a person would; and that nothing of it stays behind, however it ends.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hookwatch::lab::directory::PrivateDirectory;
use hookwatch::lab::envtest::binaries;
use hookwatch::lab::scenario::SCENARIOS;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{Named, Outcome, named};

/// The exit code of a scenario that cannot be played on this machine.
const SKIPPED: i32 = 77;
/// A guard against a run that hangs, not a measurement.
const LIMIT: Duration = Duration::from_secs(240);
/// What tenants' writes take at most while dead webhooks are skipped, as a multiple of the usual median. A webhook that is not
/// called costs nothing; without the skip each write waits 20 s for the two, thousands of times the usual. The rest is noise of
/// the machine.
const MOST_TIMES_USUAL: f64 = 2.0;
/// From the removal of the fault until the webhooks are called again: a dead backend is probed every second
/// (`probes.alertInterval`), and the rest is one patch and its way to every API server.
const ASKED_AGAIN_WITHIN_SECONDS: f64 = 2.0;

pub fn tests() -> Vec<Named> {
    let scenarios = SCENARIOS.iter().map(|scenario| {
        let name = format!("scenario_{}", scenario.name.replace('-', "_"));
        named(&name, move || match scenario.name {
            "gke-opa-outage" => the_outage_is_paid_for_by_the_leaders_that_there_are(),
            "validating-hang" => the_hanging_hook_is_named_before_a_request_has_timed_out(),
            name => holds(name),
        })
    });
    let survived = [
        "gke-opa-outage",
        "ignore-hang",
        "mixed-hang",
        "self-blocked",
        "leader-lost",
        "first-hook-hang",
        "path-lost",
        "two-services-hang",
        "two-api-servers-hang",
    ]
    .map(|scenario| {
        let name = format!("breaker_loses_no_client_in_{}", scenario.replace('-', "_"));
        named(&name, move || no_client_is_lost_with_the_breaker(scenario))
    });
    let others: [Named; 6] = [
        named(
            "breaker_gives_tenants_their_time_back_while_dead_hooks_are_skipped_and_has_them_asked_again_at_once",
            tenants_have_their_time_back_while_dead_hooks_are_skipped,
        ),
        (
            "without_binaries_the_message_says_how_to_get_them".to_owned(),
            Box::new(without_binaries_the_message_says_how_to_get_them),
        ),
        named("an_interrupted_demo_leaves_nothing_behind", || {
            ended_by(Signal::INT)
        }),
        named("a_terminated_demo_leaves_nothing_behind", || {
            ended_by(Signal::TERM)
        }),
        named("a_killed_demo_leaves_nothing_behind", || ended_by(Signal::KILL)),
        named(
            "without_a_namespace_hooks_are_reached_by_url_and_what_needs_services_is_skipped",
            without_a_namespace_hooks_are_reached_by_url_and_what_needs_services_is_skipped,
        ),
    ];
    scenarios.chain(survived).chain(others).collect()
}

fn demo(arguments: &[&str]) -> Command {
    let mut command = crate::programs::hookwatch();
    command
        .args(["demo", "--control-plane", "envtest", "--output", "json"])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// The exit code, standard output and standard error; whatever hangs is ended by a signal, so that it can clean up.
fn finish(mut command: Command) -> (Option<i32>, String, String) {
    let mut child = command.spawn().unwrap();
    let (mut stdout, mut stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    // What a child says beyond a pipe's size would hold it up.
    let stdout = std::thread::spawn(move || text(&mut stdout));
    let stderr = std::thread::spawn(move || text(&mut stderr));
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begin.elapsed() > LIMIT {
            kill_process(pid(&child), Signal::TERM).unwrap();
            break child.wait().unwrap();
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    (status.code(), stdout.join().unwrap(), stderr.join().unwrap())
}

fn text(from: &mut impl Read) -> String {
    let mut bytes = Vec::new();
    let _ = from.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap()
}

/// Plays a scenario to its end; `Err` when it cannot be played.
fn play(name: &str) -> Result<Value, Outcome> {
    let (code, stdout, stderr) = finish(demo(&["--scenario", name]));
    if code == Some(SKIPPED) {
        return Err(Outcome::Skipped(stderr.trim().to_owned()));
    }
    let report: Value =
        serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{name}: {error}\n{stdout}{stderr}"));
    let correct = report["correct"] == true;
    assert_eq!(code, Some(i32::from(!correct)), "{name}: {stderr}");
    assert!(correct, "{name}: {report:#}");
    Ok(report)
}

fn holds(name: &str) -> Outcome {
    match play(name) {
        Ok(_) => Outcome::Held,
        Err(skipped) => skipped,
    }
}

fn the_hanging_hook_is_named_before_a_request_has_timed_out() -> Outcome {
    match play("validating-hang") {
        Ok(report) => {
            let moment = |name: &str| report[name].as_str().unwrap().to_owned();
            assert!(moment("verdict_at") < moment("first_failure_at"), "{report:#}");
            Outcome::Held
        }
        Err(skipped) => skipped,
    }
}

fn the_outage_is_paid_for_by_the_leaders_that_there_are() -> Outcome {
    match play("gke-opa-outage") {
        Ok(report) => {
            let real = binaries::find().unwrap().controllers.is_some();
            let leaders = if real { "real" } else { "simulated" };
            assert_eq!(report["leaders"], leaders, "{report:#}");
            let lost = &report["casualties"];
            assert!(lost["leaders_lost"].as_u64() >= Some(1), "{report:#}");
            assert!(lost["node_leases_expired"].as_u64() >= Some(1), "{report:#}");
            Outcome::Held
        }
        Err(skipped) => skipped,
    }
}

/// What the leaders, real where they are installed, and the nodes live through with the breaker.
fn no_client_is_lost_with_the_breaker(name: &'static str) -> Outcome {
    let report = match survived(name, "--auto-break=shield") {
        Ok(report) => report,
        Err(skipped) => return skipped,
    };
    let without = &report["breaker"]["without_breaker"]["casualties"];
    assert!(without["leaders_lost"].as_u64() >= Some(1), "{name}: {report:#}");
    Outcome::Held
}

/// The report of a scenario in which no client is lost; `Err` when it cannot be played.
fn survived(name: &str, auto_break: &str) -> Result<Value, Outcome> {
    let (code, stdout, stderr) = finish(demo(&["--scenario", name, auto_break]));
    if code == Some(SKIPPED) {
        return Err(Outcome::Skipped(stderr.trim().to_owned()));
    }
    let report: Value =
        serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{name}: {error}\n{stdout}{stderr}"));
    let lost = &report["casualties"];
    let counts = [
        "leaders_lost",
        "node_leases_expired",
        "nodes_not_ready",
        "servers_not_started",
    ];
    assert!(counts.iter().all(|count| lost[count] == 0), "{name}: {report:#}");
    Ok(report)
}

fn tenants_have_their_time_back_while_dead_hooks_are_skipped() -> Outcome {
    let report = match survived("ignore-hang", "--auto-break=skip") {
        Ok(report) => report,
        Err(skipped) => return skipped,
    };
    let breaker = &report["breaker"];
    assert_eq!(breaker["rung"], "skip", "{report:#}");
    assert_eq!(breaker["waiting"], serde_json::json!([]), "{report:#}");
    // Of the writes that were begun once the last of the webhooks was skipped.
    let times = breaker["writes_take_times_usual"].as_f64();
    assert!(
        times.is_some_and(|times| times <= MOST_TIMES_USUAL),
        "{times:?}: {report:#}"
    );
    let again = breaker["asked_again_after_seconds"].as_f64();
    assert!(
        again.is_some_and(|seconds| seconds <= ASKED_AGAIN_WITHIN_SECONDS),
        "{again:?}: {report:#}"
    );
    println!("    writes take {times:?} times as long as usual; asked again {again:?} s after the recovery");
    Outcome::Held
}

fn without_binaries_the_message_says_how_to_get_them() -> Outcome {
    let empty = PrivateDirectory::create().unwrap();
    let mut command = demo(&[]);
    command
        .env_remove("KUBEBUILDER_ASSETS")
        .env("XDG_DATA_HOME", empty.path())
        .env("HOME", empty.path());
    let (code, stdout, stderr) = finish(command);
    assert_eq!(code, Some(1), "{stdout}{stderr}");
    assert!(stderr.contains("setup-envtest@latest use"), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    Outcome::Held
}

/// Breaks the storage, so that one of the processes is stopped most of the time, and ends the demo by a signal.
fn ended_by(signal: Signal) -> Outcome {
    let mut child = demo(&["--hold", "--scenario", "etcd-slow"]).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    let held: Value = serde_json::from_str(&line).unwrap();
    let kubeconfig = PathBuf::from(held["kubeconfig"].as_str().unwrap());
    let directory = kubeconfig.parent().unwrap().to_owned();
    // etcd, kube-apiserver, what leads where it is installed, and the shell that watches over them: all have the
    // directory among their arguments.
    let leaders = if binaries::find().unwrap().controllers.is_some() {
        2
    } else {
        0
    };
    until("all processes run", || processes(&directory).len() == 3 + leaders);
    let running = processes(&directory);
    let (etcd, _) = running
        .iter()
        .find(|(_, command)| command.contains("--data-dir"))
        .unwrap();
    until("etcd is stopped", || state(*etcd) == Some('T'));
    kill_process(pid(&child), signal).unwrap();
    let status = child.wait().unwrap();
    if signal == Signal::KILL {
        // Somebody else does it then, and takes a moment.
        until("all is cleaned up", || {
            processes(&directory).is_empty() && !directory.exists()
        });
    } else {
        assert!(status.success(), "{status}");
        assert_eq!(processes(&directory), []);
        assert!(!directory.exists());
    }
    Outcome::Held
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < LIMIT, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Processes that have this path in their command line, each with that line.
fn processes(directory: &Path) -> Vec<(u32, String)> {
    let directory = directory.to_str().unwrap();
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| {
            let id: u32 = entry.file_name().to_str()?.parse().ok()?;
            let arguments = std::fs::read(entry.path().join("cmdline")).ok()?;
            let command = String::from_utf8_lossy(&arguments).into_owned();
            command.contains(directory).then_some((id, command))
        })
        .collect()
}

/// The letter that the kernel has for what a process does.
fn state(id: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

fn without_a_namespace_hooks_are_reached_by_url_and_what_needs_services_is_skipped() -> Outcome {
    // A machine that has what cleaning up needs and nothing that makes namespaces.
    let path = PrivateDirectory::create().unwrap();
    for name in ["sh", "sleep", "rm"] {
        let found = ["/bin", "/usr/bin"].map(|folder| Path::new(folder).join(name));
        let found = found.iter().find(|path| path.exists()).unwrap();
        std::os::unix::fs::symlink(found, path.path().join(name)).unwrap();
    }
    let play = |scenario| {
        let mut command = demo(&["--scenario", scenario]);
        command.env("PATH", path.path());
        finish(command)
    };
    let (code, stdout, stderr) = play("no-endpoints");
    assert_eq!(code, Some(SKIPPED), "{stdout}{stderr}");
    assert!(stderr.contains("SKIPPED no-endpoints"), "{stderr}");
    let (code, stdout, stderr) = play("ca-mismatch");
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    Outcome::Held
}
