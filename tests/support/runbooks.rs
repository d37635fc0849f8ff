//! Runs the commands of the runbooks, unchanged, against a held demo whose catch-all hook is down.
//!
//! Only placeholders in capitals are replaced by the lab's names. [`SKIPPED`] lists commands that cannot work in a lab, with
//! the reasons; a command that is neither run nor listed is a failure.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::held::HeldDemo;

/// Timeout against a command that hangs.
const LIMIT: Duration = Duration::from_secs(120);

const WEBHOOK: &str = "validating-webhook.openpolicyagent.org";
const CONFIGURATION: &str = "opa-validating-webhook";
const DEFINITION: &str = "widgets.lab.hookwatch.dev";

/// Placeholders and their values in the lab. If one is a prefix of another, the longer one comes first.
const PLACEHOLDERS: [(&str, &str); 8] = [
    ("CONFIGURATION", CONFIGURATION),
    ("NAMESPACE", "opa"),
    ("APISERVICE", "v1.apps"),
    ("DEFINITION", DEFINITION),
    ("WEBHOOK", WEBHOOK),
    ("INDEX", "0"),
    ("NAME", "opa"),
    ("POD", "opa-0"),
];

/// Parts of commands that no lab can execute, and why.
const SKIPPED: [(&str, &str); 6] = [
    ("port-forward", "there is no kubelet to forward to a Pod"),
    ("status --cluster", "there is no kubelet to forward to a Pod"),
    (" logs ", "there is no kubelet, and so no log"),
    ("rollout status", "no controller makes Pods of a Deployment"),
    ("cmctl ", "cert-manager is not installed"),
    ("kubectl get certificates", "cert-manager is not installed"),
];

/// The local address to which the runbooks forward a backend's port.
const FORWARDED: &str = "127.0.0.1:8443";

const NO_KUBECTL: &str =
    "kubectl wants protobuf, which the embedded API server does not speak; with_envtest runs it";

/// One command of a runbook.
struct Typed {
    file: String,
    text: String,
}

/// The result of a command.
struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// Runs all runbooks against a kind of control plane, with or without kubectl, and reports what was run and what was not.
pub fn follow(control_plane: &str, kubectl: Option<&Path>) {
    let lab = Lab::start(control_plane, kubectl);
    let commands = typed();
    assert!(commands.len() > 40, "only {} commands were found", commands.len());
    let mut run = Run {
        lab: &lab,
        has_kubectl: kubectl.is_some(),
        done: BTreeSet::new(),
        ran: Vec::new(),
        left_out: Vec::new(),
    };
    lab.until_the_fault_is_named();
    run.while_the_fault_lasts();
    if run.has_kubectl {
        lab.make("-n opa create deployment opa --image=example.invalid/opa");
        lab.make("-n opa run opa-0 --image=example.invalid/opa");
    }
    // The bypass of the hook comes first, as a person would do it, because other commands need it.
    let (first, rest): (Vec<_>, Vec<_>) = commands
        .into_iter()
        .partition(|command| command.file == "HookwatchHookFailing.md");
    for command in &first {
        run.type_in(command);
    }
    let (first, rest): (Vec<_>, Vec<_>) = rest
        .into_iter()
        .partition(|command| command.text.contains("bypassed-by-hand"));
    for command in &first {
        run.type_in(command);
    }
    if run.has_kubectl {
        lab.until_writes_flow();
        lab.make_definition();
        // The account whose permissions are asked for.
        let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/overlays/observe");
        lab.make(&format!(
            "apply --server-side --force-conflicts -k '{}'",
            base.display()
        ));
    }
    for command in &rest {
        run.type_in(command);
    }
    run.tell(control_plane);
}

struct Run<'a> {
    lab: &'a Lab,
    has_kubectl: bool,
    done: BTreeSet<String>,
    ran: Vec<String>,
    left_out: Vec<(String, &'static str)>,
}

impl Run<'_> {
    /// The first commands of the runbook WritesBlocked: both name the hook.
    fn while_the_fault_lasts(&mut self) {
        let diagnosed = self.lab.shell("hookwatch diagnose");
        assert_eq!(
            diagnosed.code,
            Some(1),
            "{}{}",
            diagnosed.stdout,
            diagnosed.stderr
        );
        assert!(
            diagnosed.stdout.contains(WEBHOOK) && diagnosed.stdout.contains(CONFIGURATION),
            "{}",
            diagnosed.stdout
        );
        self.ran.push("hookwatch diagnose".to_owned());
        self.done.insert("hookwatch diagnose".to_owned());
        if self.has_kubectl {
            let refused = self.lab.shell(DRY_RUN);
            let named = format!("failed calling webhook \"{WEBHOOK}\"");
            assert!(
                refused.stderr.contains(&named),
                "{}{}",
                refused.stdout,
                refused.stderr
            );
            self.ran.push(DRY_RUN.to_owned());
        }
    }

    fn type_in(&mut self, command: &Typed) {
        let text = &command.text;
        let why = SKIPPED.iter().find(|(part, _)| text.contains(part));
        if let Some((_, why)) = why {
            self.left_out.push((text.clone(), why));
            return;
        }
        if (text.contains("kubectl") || text.contains(FORWARDED)) && !self.has_kubectl {
            self.left_out.push((text.clone(), NO_KUBECTL));
            return;
        }
        // A command that several runbooks have runs once, except patches, which may depend on the commands before them.
        if !self.done.insert(text.clone()) && !text.contains(" patch ") {
            return;
        }
        let kept = text
            .contains("kubectl delete validating")
            .then(|| self.lab.keep());
        let ended = if text.contains(FORWARDED) {
            self.lab.shell(&text.replace(FORWARDED, &self.lab.backend()))
        } else {
            self.lab.shell(text)
        };
        // The exit code of an audit is the severity of its findings.
        let worst = if text.starts_with("hookwatch audit") { 2 } else { 0 };
        assert!(
            ended.code.is_some_and(|code| (0..=worst).contains(&code)),
            "{}: {text}\n{}{}",
            command.file,
            ended.stdout,
            ended.stderr
        );
        if let Some(kept) = kept {
            self.lab.bring_back(&kept);
        }
        if text.contains("bypassed-by-hand") && text.contains("\"add\"") {
            // The runbook promises this even while the backends are down.
            self.lab.until_writes_flow();
        }
        self.ran.push(text.clone());
    }

    fn tell(&self, control_plane: &str) {
        let mut told = format!(
            "\nrunbooks on {control_plane}: {} commands were run as written, {} were not:\n",
            self.ran.len(),
            self.left_out.len()
        );
        let mut reasons: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (text, why) in &self.left_out {
            reasons.entry(why).or_default().insert(text);
        }
        for (why, texts) in reasons {
            told.push_str(&format!("  SKIPPED, since {why}:\n"));
            for text in texts {
                told.push_str(&format!("    {}\n", text.lines().next().unwrap_or_default()));
            }
        }
        let _ = writeln!(std::io::stderr(), "{told}");
    }
}

/// The write that stores nothing, as the runbooks have it.
const DRY_RUN: &str = "kubectl create configmap probe --dry-run=server -n kube-system";

/// Every command in the shell blocks of the runbooks, in order, with the lab's names.
fn typed() -> Vec<Typed> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/runbooks");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let mut found = Vec::new();
    for path in files {
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        let markdown = std::fs::read_to_string(&path).unwrap();
        let mut within = false;
        let mut text = String::new();
        for line in markdown.lines() {
            let line = line.trim_start();
            if line.starts_with("```") {
                within = !within && line == "```sh";
                assert!(text.is_empty(), "{file}: a quote is not closed: {text}");
                continue;
            }
            if !within || (text.is_empty() && (line.is_empty() || line.starts_with('#'))) {
                continue;
            }
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(line);
            if text.matches('\'').count().is_multiple_of(2) && !text.ends_with('\\') {
                let whole = std::mem::take(&mut text);
                let whole = whole.split("   #").next().unwrap().trim_end();
                let named = PLACEHOLDERS
                    .iter()
                    .fold(whole.to_owned(), |text, (word, name)| text.replace(word, name));
                found.push(Typed {
                    file: file.clone(),
                    text: named,
                });
            }
        }
    }
    found
}

/// A held demo with its catch-all hook down.
struct Lab {
    demo: HeldDemo,
    folder: tempfile::TempDir,
    path: std::ffi::OsString,
}

impl Lab {
    fn start(control_plane: &str, kubectl: Option<&Path>) -> Self {
        let binary = Path::new(env!("CARGO_BIN_EXE_hookwatch"));
        let scenario = [
            "--scenario",
            "validating-refused",
            "--control-plane",
            control_plane,
        ];
        let folders = [binary.parent(), kubectl.and_then(Path::parent)];
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = folders.into_iter().flatten().map(Path::to_owned);
        let path = std::env::join_paths(folders.chain(std::env::split_paths(&path))).unwrap();
        Self {
            demo: HeldDemo::start(&scenario),
            folder: tempfile::tempdir().unwrap(),
            path,
        }
    }

    /// Runs a command in a shell, in the lab's temporary folder.
    fn shell(&self, text: &str) -> Ended {
        let of = |key: &str| self.demo.told[key].as_str().unwrap_or_default();
        let daemon = of("daemon").strip_prefix("http://").unwrap();
        // The demo's daemon listens on another port than an installed one.
        let text = text.replace("127.0.0.1:9880", daemon);
        // A lab with a real API server has its own network namespace.
        let mut words: Vec<&str> = of("enter").split_whitespace().collect();
        words.extend(["timeout", "100", "sh", "-c", &text]);
        let output = Command::new(words[0])
            .args(&words[1..])
            .env("PATH", &self.path)
            .env("KUBECONFIG", of("kubeconfig"))
            .env("HOME", self.folder.path())
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        Ended {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Runs kubectl for objects that the runbooks need.
    fn make(&self, arguments: &str) {
        let ended = self.shell(&format!("kubectl {arguments}"));
        assert_eq!(ended.code, Some(0), "{arguments}: {}", ended.stderr);
    }

    /// The address of a backend that is well.
    fn backend(&self) -> String {
        let ended = self.shell(
            "kubectl -n policy get endpointslices \
             -o jsonpath='{.items[0].endpoints[0].addresses[0]}:{.items[0].ports[0].port}'",
        );
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        ended.stdout
    }

    fn make_definition(&self) {
        let definition = serde_json::json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": DEFINITION},
            "spec": {"group": "lab.hookwatch.dev", "scope": "Cluster",
                "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object"}}}]},
        });
        self.write("definition.json", &definition);
        self.make("create -f definition.json");
    }

    fn write(&self, name: &str, object: &Value) {
        std::fs::write(self.folder.path().join(name), object.to_string()).unwrap();
    }

    /// The configuration as it is.
    fn keep(&self) -> Value {
        let ended = self.shell(&format!(
            "kubectl get validatingwebhookconfiguration {CONFIGURATION} -o json"
        ));
        let mut object: Value = serde_json::from_str(&ended.stdout).unwrap();
        let metadata = object["metadata"].as_object_mut().unwrap();
        metadata.retain(|key, _| ["name", "labels", "annotations"].contains(&key.as_str()));
        object
    }

    fn bring_back(&self, object: &Value) {
        self.write("configuration.json", object);
        self.make("create -f configuration.json");
    }

    fn until(&self, what: &str, done: impl Fn(&Self) -> Result<(), String>) {
        let begin = Instant::now();
        while let Err(found) = done(self) {
            assert!(begin.elapsed() < LIMIT, "{what}: {found}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn until_the_fault_is_named(&self) {
        self.until("nobody is named", |lab| {
            let ended = lab.shell("curl -s http://127.0.0.1:9880/api/v1/assessment");
            let assessment: Value = serde_json::from_str(&ended.stdout).unwrap_or_default();
            let mut hooks = assessment["hooks"].as_array().into_iter().flatten();
            if hooks.any(|hook| hook["health"] == "Failing") {
                Ok(())
            } else {
                Err(assessment["hooks"].to_string())
            }
        });
    }

    fn until_writes_flow(&self) {
        self.until("writes are refused", |lab| {
            let ended = lab.shell(DRY_RUN);
            match ended.code {
                Some(0) => Ok(()),
                _ => Err(ended.stderr),
            }
        });
    }
}
