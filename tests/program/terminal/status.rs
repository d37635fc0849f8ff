//! `status`: what it prints, and its exit code, with a daemon and without.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use hookwatch::domain::vocabulary::Writes;
use hookwatch::io::http::{Access, Tls, TlsFiles};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::Value;

use super::fixture;
use super::pty::keep;
use super::screens::incident;
use super::served::Served;
use crate::cli::told;

const TOKEN: &str = "0123456789abcdef";

fn status(arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hookwatch"));
    command
        .env_clear()
        .env("HOME", "/nowhere")
        .arg("status")
        .args(arguments);
    told(command.output().unwrap())
}

fn of(served: &Served, more: &[&str]) -> (i32, String, String) {
    let url = served.url();
    let mut arguments = vec!["--server", &url];
    arguments.extend(more);
    status(&arguments)
}

#[test]
fn an_incident_is_one_screen_that_begins_with_the_result() {
    let served = Served::start(incident());
    let (code, said, complained) = of(&served, &[]);
    keep("status-incident", &said);
    assert_eq!((code, complained.as_str()), (1, ""));
    assert!(
        said.starts_with(
            "A WEBHOOK IS FAILING\n  Writes are blocked by validating-webhook.openpolicyagent.org.\n"
        ),
        "{said}"
    );
    for line in [
        "  writes     blocked for 42 s",
        "webhooks: 1 failing, 0 suspect, 0 unknown, 2 healthy",
        "  failing Hanging Blocking 0.97       42 s validating-webhook.openpolicyagent.org \
         (validating-webhook.openpolicyagent.org-configuration), called at policy/policy:443\n",
        "  to bypass it: hookwatch break opa/validating-webhook.openpolicyagent.org --reason TEXT\n    It shields the webhook.",
        "breaker\n  plan: autoBreak is plan.",
    ] {
        assert!(said.contains(line), "no {line:?}:\n{said}");
    }
    assert!(said.lines().count() <= 24, "{said}");
}

#[test]
fn a_command_that_names_several_webhooks_is_printed_once_and_whole() {
    let mut assessment = fixture::many(60, 50);
    let all: Vec<String> = (0..50)
        .map(|number| format!("configuration-{number:03}/policy-{number:03}.example.com"))
        .collect();
    let command = format!(
        "hookwatch break {} --kind validating --reason TEXT",
        all.join(" ")
    );
    let told = assessment
        .hooks
        .iter_mut()
        .filter_map(|hook| hook.by_hand.as_mut());
    for (number, by_hand) in told.enumerate() {
        by_hand.shared_with = (number > 0).then(|| all[0].clone());
        if number == 0 {
            by_hand.command.clone_from(&command);
        }
    }
    let (_, said, _) = of(&Served::start(assessment), &[]);
    assert!(
        command.len() > 2_000 && said.contains(&format!("to bypass it: {command}\n")),
        "{said}"
    );
    assert_eq!(said.matches("to bypass it").count(), 1, "{said}");
}

#[test]
fn every_result_has_the_exit_code_that_diagnose_gives_it() {
    let well = || fixture::with(vec![fixture::healthy("w")]);
    let served = Served::start(well());
    let (code, said, _) = of(&served, &[]);
    keep("status-quiet", &said);
    assert_eq!(code, 0, "{said}");
    assert!(said.starts_with("HEALTHY: writes flow and no webhook is failing\n"));
    let mut impaired = well();
    impaired.control_plane.writes = Writes::Delayed;
    served.judge(impaired);
    let delayed = |served: &Served| (0..50).map(|_| of(served, &[])).find(|(code, ..)| *code != 0);
    let (code, said, _) = delayed(&served).unwrap();
    assert_eq!(code, 3, "{said}");
    let mut blind = well();
    blind.hooks.clear();
    blind.sources.hooks_listed = false;
    let mut stale = well();
    stale.sources.inventory_age_seconds = Some(1_800.0);
    for (assessment, why) in [
        (blind, "the webhook configurations could not be read"),
        (stale, "its list of webhooks is 30 min old"),
    ] {
        let (code, said, _) = of(&Served::start(assessment), &[]);
        assert_eq!(code, 2, "{said}");
        let told = format!("COULD NOT TELL\n  hookwatch does not see everything: {why}.\n");
        assert!(said.starts_with(&told), "{said}");
    }
}

#[test]
fn a_replica_that_does_not_lead_says_that_only_the_leader_shows_what_would_be_bypassed() {
    let mut assessment = incident();
    assessment.replica = Some(fixture::follower());
    let (_, said, _) = of(&Served::start(assessment), &[]);
    let told = "  This replica does not lead. What would be bypassed, or is held back, only the leader shows: pod-2.\n";
    assert!(said.contains(told), "{said}");
}

#[test]
fn json_is_the_document_of_diagnose_with_the_whole_assessment() {
    let served = Served::start(fixture::many(500, 60));
    let (code, said, _) = of(&served, &["--output", "json"]);
    assert_eq!(code, 1);
    let document: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        (&document["conclusion"], &document["obstacle"]),
        (&"hook_failing".into(), &Value::Null)
    );
    assert_eq!(document["assessment"]["hooks"].as_array().unwrap().len(), 500);
    let (_, said, _) = of(&served, &[]);
    keep("status-many", &said);
    assert!(
        said.contains("and 45 more; --output json has all") && said.lines().count() < 45,
        "{said}"
    );
}

#[test]
fn nothing_from_the_cluster_steers_the_terminal() {
    let mut assessment = fixture::nasty();
    assessment.hooks[0].webhook = "\u{1b}]0;stolen\u{7}\u{1b}[2J\u{202e}x".into();
    let (_, said, _) = of(&Served::start(assessment), &[]);
    keep("status-nasty", &said);
    let bad = |character: char| {
        (character.is_control() && character != '\n') || "\u{202e}\u{2066}".contains(character)
    };
    assert!(!said.chars().any(bad), "{said:?}");
}

#[test]
fn when_no_daemon_answers_it_says_what_else_there_is() {
    let (code, said, complained) = status(&["--server", "http://127.0.0.1:1"]);
    assert_eq!((code, said.as_str()), (2, ""));
    assert!(
        complained.starts_with("hookwatch: no hookwatch answers at http://127.0.0.1:1: Connection refused"),
        "{complained}"
    );
    for way in [
        "kubectl -n hookwatch port-forward deployment/hookwatch 9880",
        "`hookwatch status --cluster`",
        "`hookwatch diagnose`",
    ] {
        assert!(complained.contains(way), "no {way}: {complained}");
    }
    let (code, said, _) = status(&["--server", "http://127.0.0.1:1", "--output", "json"]);
    let document: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        (code, &document["conclusion"], &document["assessment"]),
        (2, &"could_not_tell".into(), &Value::Null)
    );
    let (code, _, complained) = status(&["--server", "127.0.0.1:1"]);
    assert_eq!(code, 64);
    assert!(
        complained.contains("write it like http://127.0.0.1:9880"),
        "{complained}"
    );
}

#[test]
fn a_cluster_that_is_typed_wins_over_an_address_in_the_environment_and_contradicts_a_typed_one() {
    let with_variable = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hookwatch"));
        command
            .env_clear()
            .env("HOME", "/nowhere")
            .env("HOOKWATCH_SERVER", "http://127.0.0.1:1")
            .arg("status")
            .args(arguments);
        told(command.output().unwrap())
    };
    let (code, _, complained) = with_variable(&[]);
    assert_eq!(code, 2);
    assert!(
        complained.contains("answers at http://127.0.0.1:1"),
        "{complained}"
    );
    for named in [
        &["--cluster"][..],
        &["--context", "a"],
        &["--kubeconfig", "/nowhere"],
    ] {
        let (code, _, complained) = with_variable(named);
        assert_eq!(code, 64, "{named:?}: there is no kubeconfig");
        assert!(complained.contains("--kubeconfig"), "{named:?}: {complained}");
    }
    let (code, _, complained) = with_variable(&["--cluster", "--server", "http://127.0.0.1:1"]);
    assert_eq!(code, 64);
    assert!(
        complained.contains("cannot be used with '--cluster'"),
        "{complained}"
    );
}

/// Something that answers every connection with this, and then waits.
fn something_else(answer: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, answer) = (stream.unwrap(), answer.clone());
            std::thread::spawn(move || {
                let mut asked = [0; 4_096];
                let _ = stream.read(&mut asked);
                let _ = stream.write_all(&answer);
                std::thread::sleep(Duration::from_secs(60));
            });
        }
    });
    format!("http://{address}")
}

#[test]
fn what_is_no_hookwatch_or_never_ends_is_no_answer() {
    let endless = |length: usize| format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n").into_bytes();
    for (answer, why) in [
        (b"SSH-2.0-OpenSSH_9.7\r\n".to_vec(), "invalid HTTP version parsed"),
        (
            b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\nno".to_vec(),
            "is no hookwatch: 404",
        ),
        (
            b"HTTP/1.1 302 Found\r\nlocation: http://10.0.0.1/\r\ncontent-length: 0\r\n\r\n".to_vec(),
            "is no hookwatch: 302",
        ),
        (
            [endless(70 << 20), vec![b' '; 70 << 20]].concat(),
            "the answer is larger than the 67108864 bytes allowed",
        ),
        (endless(10), "no whole answer within 10 s"),
    ] {
        let url = something_else(answer);
        let (code, said, complained) = status(&["--server", &url]);
        assert_eq!((code, said.as_str()), (2, ""), "{complained}");
        assert!(complained.contains(why), "no {why:?}: {complained}");
    }
}

fn file(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn a_token_and_certificates_are_shown_where_they_are_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut ca = CertificateParams::new(Vec::new()).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate().unwrap()).unwrap();
    let (server, client) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let signed = |names: Vec<String>, key: &KeyPair| {
        CertificateParams::new(names)
            .unwrap()
            .signed_by(key, &ca)
            .unwrap()
    };
    let ca_file = file(folder, "ca.crt", &ca.pem());
    let files = TlsFiles {
        certificate: file(
            folder,
            "tls.crt",
            &signed(vec!["127.0.0.1".into()], &server).pem(),
        ),
        key: file(folder, "tls.key", &server.serialize_pem()),
        client_ca: Some(ca_file.clone()),
    };
    let certificate = file(
        folder,
        "client.crt",
        &signed(vec!["person".into()], &client).pem(),
    );
    let key = file(folder, "client.key", &client.serialize_pem());
    let token = file(folder, "token", TOKEN);
    let wrong = file(folder, "wrong", "fedcba9876543210");
    let served = Served::at("127.0.0.1:0".parse().unwrap(), incident(), |listening| {
        listening.tls = Some(Tls::open(files).unwrap());
        listening.access = Access::new(Some(&token), true).unwrap();
    });
    let url = format!("https://{}", served.address);
    let text = |path: &PathBuf| path.to_str().unwrap().to_owned();
    let (ca_file, certificate, key, token, wrong) = (
        text(&ca_file),
        text(&certificate),
        text(&key),
        text(&token),
        text(&wrong),
    );
    let ask = |more: &[&str]| {
        let mut arguments = vec!["--server", url.as_str(), "--ca-file", &ca_file];
        arguments.extend(more);
        status(&arguments)
    };
    let (code, said, complained) = ask(&["--token-file", &token]);
    assert_eq!(code, 1, "{said}{complained}");
    let (code, said, complained) = ask(&["--cert-file", &certificate, "--key-file", &key]);
    assert_eq!(code, 1, "{said}{complained}");
    for more in [&[][..], &["--token-file", &wrong]] {
        let (code, _, complained) = ask(more);
        assert_eq!(code, 2);
        assert!(
            complained.contains("(401)") && complained.contains("give --token-file"),
            "{complained}"
        );
    }
    // Whoever is not trusted is shown no token.
    let (code, _, complained) = status(&["--server", &url, "--token-file", &token]);
    assert_eq!(code, 2);
    assert!(complained.contains("certificate"), "{complained}");
    for (more, named) in [
        (&["--token-file", "/nowhere/token"][..], "/nowhere/token"),
        (&["--token-file", &key], "has no token in it"),
        (
            &["--cert-file", &key, "--key-file", &key],
            "has no certificate in it",
        ),
    ] {
        let (code, _, complained) = ask(more);
        assert_eq!(code, 2);
        assert!(complained.contains(named), "{complained}");
    }
}
