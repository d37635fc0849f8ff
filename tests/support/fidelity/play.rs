//! Plays a case and records its transcript.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hookwatch::lab::certs::Authority;
use serde_json::{Map, Value, json};

use super::ask::{Answer, Ask};
use super::counters::{self, Counters, REQUESTS};
use super::lab::{Lab, MUTATING, VALIDATING, configurations};
use super::{by_version, mask};

/// Below this an answer counts as "at once": shorter than the timeouts here, longer than a write on a busy machine.
pub const AT_ONCE: Duration = Duration::from_millis(1_200);
/// How much longer than its timeout a call may seem to take.
const LATE: Duration = Duration::from_millis(1_500);
/// Longest wait for the counters: the API server counts a request shortly after it answers.
const COUNTED_BY: Duration = Duration::from_secs(5);

/// A case that is being played.
pub struct Play {
    pub lab: Arc<Lab>,
    pub authority: Authority,
    /// The expected wait for a hook, and its name in the transcript.
    pub wait: (Duration, &'static str),
    /// Names of the hooks whose counters are recorded.
    pub hooks: Vec<String>,
    steps: Vec<Value>,
}

impl Play {
    pub async fn begin(lab: Arc<Lab>) -> Self {
        lab.clear().await;
        Self {
            lab,
            authority: Authority::new("fidelity").unwrap(),
            wait: (Duration::from_secs(2), "the hook's timeout"),
            hooks: Vec::new(),
            steps: Vec::new(),
        }
    }

    /// Ends the case and returns its transcript.
    pub async fn end(self) -> Value {
        self.lab.clear().await;
        json!({"kubernetes": self.lab.version, "steps": self.steps})
    }

    /// Sends a request and records it with its answer and counters.
    pub async fn ask(&mut self, step: &str, ask: Ask) -> Answer {
        let before = self.count(&ask).await;
        let answer = self.lab.send(&ask).await;
        let counted = self.gained(&ask, &before).await;
        self.write_down(step, &ask, &answer, Some(counted));
        answer
    }

    /// Like [`Self::ask`], with a retry when the connection breaks.
    ///
    /// When a request's timeout ends, two parts of a real API server race to answer, and sometimes it closes the connection
    /// instead. Seen once in 24 requests.
    pub async fn ask_until_answered(&mut self, step: &str, ask: Ask) -> Answer {
        for _ in 0..5 {
            let before = self.count(&ask).await;
            if let Ok(answer) = self.lab.try_to_send(&ask).await {
                let counted = self.gained(&ask, &before).await;
                self.write_down(step, &ask, &answer, Some(counted));
                return answer;
            }
            // There is no signal for when the last request has been counted.
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        panic!("{step}: the connection broke off five times");
    }

    /// Like [`Self::ask`], without the counters.
    pub async fn tell(&mut self, step: &str, ask: Ask) -> Answer {
        let answer = self.lab.send(&ask).await;
        self.write_down(step, &ask, &answer, None);
        answer
    }

    /// Registers a webhook configuration, which is in force when this returns. From then on its hooks' counters are recorded.
    pub async fn register(&mut self, mutating: bool, name: &str, webhooks: &[Value]) -> Value {
        let resource = if mutating { MUTATING } else { VALIDATING };
        let names = webhooks.iter().filter_map(|hook| hook["name"].as_str());
        self.hooks.extend(names.map(str::to_owned));
        let object = json!({"metadata": {"name": name}, "webhooks": webhooks});
        let made = self
            .lab
            .done(&Ask::post(&configurations(resource, ""), object))
            .await;
        self.lab.settle(resource).await;
        made
    }

    /// Adds an observation to the transcript that is not a request.
    pub fn note(&mut self, step: &str, what: Value) {
        let mut what = what;
        mask::value(&mut what);
        self.steps.push(json!({"step": step, "seen": what}));
    }

    pub async fn count(&self, ask: &Ask) -> Counters {
        counters::read(&self.lab.metrics().await, &self.hooks, ask)
    }

    pub async fn gained(&self, ask: &Ask, before: &Counters) -> Counters {
        let begin = Instant::now();
        let mut earlier = Counters::new();
        loop {
            let gained = counters::gained(before, &self.count(ask).await);
            // The series are not updated at once, so read until nothing changes.
            if gained == earlier && gained.keys().any(|series| series.starts_with(REQUESTS)) {
                return gained;
            }
            earlier = gained;
            let late = begin.elapsed() > COUNTED_BY;
            assert!(!late, "{} {} is not counted", ask.method, ask.path);
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }

    fn write_down(&mut self, step: &str, ask: &Ask, answer: &Answer, counted: Option<Counters>) {
        let mut request = json!({"method": ask.method, "path": ask.path});
        if ask.content_type != "application/json" {
            request["content_type"] = json!(ask.content_type);
        }
        if let Some(user) = &ask.user {
            request["user"] = json!(user);
        }
        if !ask.groups.is_empty() {
            request["groups"] = json!(ask.groups);
        }
        if let Some(body) = &ask.body {
            request["body"] = body.clone();
        }
        let mut said = json!({"status": answer.status});
        let fields: &[&str] = if answer.is_success() {
            &["kind"]
        } else {
            &["reason", "message", "details"]
        };
        for field in fields {
            if let Some(value) = answer.body.get(field) {
                said[field] = value.clone();
            }
        }
        if answer.body.is_null() {
            said["text"] = json!(answer.text);
        }
        let seen: Map<String, Value> = ask
            .seeing
            .iter()
            .map(|&pointer| {
                (
                    pointer.to_owned(),
                    answer.body.pointer(pointer).cloned().unwrap_or_default(),
                )
            })
            .collect();
        if answer.is_success() && !seen.is_empty() {
            said["seen"] = Value::Object(seen);
        }
        if !answer.warnings.is_empty() {
            said["warnings"] = json!(answer.warnings);
        }
        let mut step =
            json!({"step": step, "request": request, "answer": said, "took": self.class(answer.took)});
        mask::value(&mut step);
        if let Some(counted) = counted {
            step["counted"] = json!(counted);
        }
        self.steps.push(step);
    }

    /// A duration as a word of the transcript.
    pub fn class(&self, took: Duration) -> &'static str {
        let (wait, called) = self.wait;
        // A Go timer may appear to fire slightly early from here.
        let nearly = wait - Duration::from_millis(30);
        if took < AT_ONCE.min(nearly) {
            "at once"
        } else if (nearly..wait + LATE).contains(&took) {
            called
        } else if took < nearly {
            "between at once and what was expected"
        } else {
            "later than expected"
        }
    }
}

/// The path of a case's transcript.
fn path(case: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/fidelity")
        .join(format!("{case}.json"))
}

/// Compares a transcript with the stored one, or stores it with HOOKWATCH_BLESS.
pub fn compare(case: &str, transcript: &Value, may_bless: bool) {
    let path = path(case);
    let blesses = may_bless && std::env::var_os("HOOKWATCH_BLESS").is_some();
    let text = std::fs::read_to_string(&path);
    let kept: Option<Value> = text.ok().map(|text| serde_json::from_str(&text).unwrap());
    let version = |of: &Value| by_version::minor(of["kubernetes"].as_str().unwrap());
    let is_older = kept
        .as_ref()
        .is_some_and(|kept| version(transcript) < version(kept));
    if blesses && !is_older {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, format!("{transcript:#}\n")).unwrap();
        return;
    }
    let kept = kept.unwrap_or_else(|| {
        panic!(
            "there is no {}; a run of with_envtest with HOOKWATCH_BLESS=1 makes it",
            path.display()
        )
    });
    let mut differences = Vec::new();
    differ("", &kept, transcript, &mut differences);
    if is_older {
        by_version::compare(case, transcript, differences, blesses);
        return;
    }
    assert!(
        differences.is_empty(),
        "{case} was otherwise when {} was written on Kubernetes {}:\n{differences:#?}",
        path.display(),
        kept["kubernetes"],
    );
}

/// Collects every place where two values differ.
fn differ(at: &str, kept: &Value, found: &Value, differences: &mut Vec<Value>) {
    match (kept, found) {
        (Value::Object(left), Value::Object(right)) => {
            let names: std::collections::BTreeSet<&String> = left.keys().chain(right.keys()).collect();
            for name in names {
                let pair = (left.get(name), right.get(name));
                let at = format!("{at}/{name}");
                match pair {
                    (Some(left), Some(right)) => differ(&at, left, right, differences),
                    (left, right) => differences.push(told(&at, left, right)),
                }
            }
        }
        (Value::Array(left), Value::Array(right)) => {
            for index in 0..left.len().max(right.len()) {
                // Add the name of the step.
                let name = left
                    .get(index)
                    .and_then(|step| step["step"].as_str())
                    .map(|step| format!(" ({step})"));
                let at = format!("{at}/{index}{}", name.unwrap_or_default());
                match (left.get(index), right.get(index)) {
                    (Some(left), Some(right)) => differ(&at, left, right, differences),
                    (left, right) => differences.push(told(&at, left, right)),
                }
            }
        }
        (left, right) if left != right => differences.push(told(at, Some(left), Some(right))),
        _ => {}
    }
}

fn told(at: &str, kept: Option<&Value>, found: Option<&Value>) -> Value {
    json!({"at": at, "kept": kept, "found": found})
}
