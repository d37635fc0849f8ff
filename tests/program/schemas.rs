//! docs/schemas: real output of each command that prints JSON is as they say, and has no key that they do not describe.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

use boon::{Compiler, Schemas};
use serde_json::{Value, json};

use crate::held::HeldDemo;
use crate::programs::is_there;

const HOOKWATCH: &str = env!("CARGO_BIN_EXE_hookwatch");
const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const NAMES: [&str; 6] = [
    "assessment.v1.json",
    "diagnose.v1.json",
    "diagnose-contexts.v1.json",
    "audit.v1.json",
    "audit-contexts.v1.json",
    "demo.v1.json",
];

fn read(name: &str) -> Value {
    let path = Path::new(ROOT).join("docs/schemas").join(name);
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// The same schema, that takes no key beside those that it describes. Users' programs should take some, so the files do.
fn strict(schema: &mut Value) {
    if let Value::Object(object) = &mut *schema
        && object.get("properties").is_some_and(Value::is_object)
    {
        object.insert("additionalProperties".to_owned(), false.into());
    }
    match schema {
        Value::Object(object) => object.values_mut().for_each(strict),
        Value::Array(values) => values.iter_mut().for_each(strict),
        _ => {}
    }
}

/// What is wrong with a document.
fn objections(name: &str, document: &Value) -> Option<String> {
    let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
    let mut location = String::new();
    for file in NAMES {
        let mut schema = read(file);
        strict(&mut schema);
        let id = schema["$id"].as_str().unwrap().to_owned();
        compiler.add_resource(&id, schema).unwrap();
        if file == name {
            location = id;
        }
    }
    let schema = compiler.compile(&location, &mut schemas).unwrap();
    let refused = schemas.validate(document, schema).err();
    refused.map(|error| format!("{error:#}"))
}

/// Fails where a document is not as its schema says.
pub fn holds(name: &str, document: &Value) {
    if let Some(objections) = objections(name, document) {
        panic!("{name}: {objections}\n{document:#}");
    }
}

fn run(arguments: &[&str]) -> Value {
    let output = Command::new(HOOKWATCH)
        .args(arguments)
        .current_dir(ROOT)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {said}"))
}

/// Takes one request and says what its body was.
fn listens() -> (String, std::thread::JoinHandle<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hooks/secret", listener.local_addr().unwrap());
    let taking = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream);
        let (mut length, mut line) = (0, String::new());
        while reader.read_line(&mut line).unwrap() > 2 {
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            line.clear();
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        reader
            .into_inner()
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            .unwrap();
        serde_json::from_slice(&body).unwrap()
    });
    (url, taking)
}

fn notify(url: &str, kubeconfig: &str) -> Output {
    let beside = Path::new(HOOKWATCH).parent().unwrap().to_owned();
    let others = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([beside].into_iter().chain(std::env::split_paths(&others))).unwrap();
    Command::new(Path::new(ROOT).join("examples/chat/notify.sh"))
        .args(["--kubeconfig", kubeconfig])
        .env("CHAT_URL", url)
        .env("PATH", path)
        .output()
        .unwrap()
}

#[test]
fn what_a_daemon_and_diagnose_say_in_an_outage_is_as_described_and_gets_into_a_chat() {
    // For the client that asks the daemon.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    // Its daemon bypasses the culprit.
    let held = HeldDemo::start(&["--auto-break", "--scenario", "validating-hang"]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let seen = held.assessment(|it| it["breaker"]["hooks"][0]["state"] == "bypassed");
    let assessment = runtime.block_on(seen);
    holds("assessment.v1.json", &assessment);
    let kubeconfig = held.text("kubeconfig");
    let report = run(&["diagnose", "--output", "json", "--kubeconfig", kubeconfig]);
    holds("diagnose.v1.json", &report);
    // One that is there and one that is not.
    let two = ["--context", "hookwatch-lab", "--context", "nowhere"];
    let diagnose = ["diagnose", "--output", "json", "--kubeconfig", kubeconfig];
    let report = run(&[&diagnose[..], &two[..]].concat());
    holds("diagnose-contexts.v1.json", &report);
    let told = |key: &str| [0, 1].map(|at| report["contexts"][at][key].clone());
    assert_eq!(told("context"), ["hookwatch-lab", "nowhere"]);
    assert_eq!(told("conclusion"), ["hook_failing", "could_not_tell"]);
    assert!(
        told("error")[1].as_str().unwrap().contains("nowhere"),
        "{:?}",
        told("error")
    );
    let audit = ["audit", "--output", "json", "--kubeconfig", kubeconfig];
    let report = run(&[&audit[..], &two[..]].concat());
    holds("audit-contexts.v1.json", &report);
    assert_eq!(report["contexts"][0]["error"], Value::Null);
    assert!(!report["contexts"][0]["forecasts"].as_array().unwrap().is_empty());
    assert!(report["contexts"][1]["error"].is_string(), "{report:#}");
    let status = run(&["status", "--output", "json", "--server", held.text("daemon")]);
    holds("diagnose.v1.json", &status);

    if !["jq", "curl"]
        .iter()
        .all(|program| is_there(program, "examples/chat was not tried"))
    {
        return;
    }
    let (url, taking) = listens();
    let output = notify(&url, kubeconfig);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let message = taking.join().unwrap();
    let text = message["text"].as_str().unwrap();
    assert!(
        text.starts_with("hookwatch: hook_failing.")
            && text.contains("opa-validating-webhook/validating-webhook.openpolicyagent.org: Hanging ("),
        "{message:#}"
    );
}

#[test]
fn what_an_audit_says_is_as_described() {
    let report = run(&["audit", "--output", "json", "examples/audit"]);
    assert!(!report["findings"].as_array().unwrap().is_empty(), "{report:#}");
    assert!(!report["forecasts"].as_array().unwrap().is_empty(), "{report:#}");
    holds("audit.v1.json", &report);
    let empty = run(&[
        "audit",
        "--output",
        "json",
        "examples/getting-started/configmap.yaml",
    ]);
    holds("audit.v1.json", &empty);
}

#[test]
fn a_key_that_is_not_described_is_found_and_so_is_one_that_is_missing() {
    let mut report = json!({"conclusion": "healthy", "obstacle": null, "assessment": null});
    assert_eq!(objections("diagnose.v1.json", &report), None);
    report["more"] = 1.into();
    assert!(objections("diagnose.v1.json", &report).unwrap().contains("more"));
    let less = json!({"conclusion": "healthy", "obstacle": null});
    assert!(
        objections("diagnose.v1.json", &less)
            .unwrap()
            .contains("assessment")
    );
}

#[test]
fn every_key_has_a_description() {
    fn walk(schema: &Value, path: &str, wrong: &mut Vec<String>) {
        for (key, property) in schema["properties"].as_object().into_iter().flatten() {
            if property["description"].as_str().is_none_or(str::is_empty) {
                wrong.push(format!("{path}/{key}"));
            }
            walk(property, &format!("{path}/{key}"), wrong);
        }
        for (name, definition) in schema["$defs"].as_object().into_iter().flatten() {
            walk(definition, &format!("{path}#{name}"), wrong);
        }
    }
    let mut wrong = Vec::new();
    for name in NAMES {
        walk(&read(name), name, &mut wrong);
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}
