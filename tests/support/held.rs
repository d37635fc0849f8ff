//! A demo of the real binary that keeps its fault for as long as a test needs it (`--hold`).

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::programs::hookwatch;

/// Timeout against a test that hangs.
const GUARD: Duration = Duration::from_secs(120);

/// A running demo; it ends when this is dropped.
pub struct HeldDemo {
    demo: Child,
    /// What it printed: the addresses of everything.
    pub told: Value,
}

impl HeldDemo {
    /// Starts a demo with these arguments in addition to `--hold`.
    pub fn start(arguments: &[&str]) -> Self {
        let mut demo = hookwatch()
            .args(["demo", "--hold", "--output", "json"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let read = BufReader::new(demo.stdout.as_mut().unwrap()).read_line(&mut line);
        // From here on, drop ends it, whatever happens.
        let mut held = Self {
            demo,
            told: Value::Null,
        };
        read.unwrap();
        held.told = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"));
        held
    }

    /// A text that it printed.
    pub fn text(&self, key: &str) -> &str {
        self.told[key].as_str().unwrap()
    }

    /// Waits for an assessment of its daemon for which `wanted` holds.
    pub async fn assessment(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        let url = format!("{}/api/v1/assessment", self.text("daemon"));
        let (begin, client) = (Instant::now(), reqwest::Client::new());
        loop {
            let answer = match client.get(&url).send().await {
                Ok(answer) => answer.json::<Value>().await.unwrap_or_default(),
                Err(_) => Value::Null,
            };
            if wanted(&answer) {
                return answer;
            }
            assert!(begin.elapsed() < GUARD, "it never came to that: {answer:#}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Ends it with SIGTERM, on which it cleans up.
    pub fn stop(&mut self) {
        if matches!(self.demo.try_wait(), Ok(None)) {
            let id = rustix::process::Pid::from_child(&self.demo);
            let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
            let _ = self.demo.wait();
        }
    }
}

impl Drop for HeldDemo {
    fn drop(&mut self) {
        self.stop();
    }
}
