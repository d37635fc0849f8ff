//! A real Chromium without a screen, driven through chromedriver.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use serde_json::{Value, json};

/// A guard against a test that hangs, not a measurement.
pub const LIMIT: Duration = Duration::from_secs(90);

/// It runs as whoever runs the tests, root in a container included, and asks nobody but the page's own server.
const ARGUMENTS: [&str; 10] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
];

/// Whether there is a browser; says so when a test is left out for it.
pub fn is_here() -> bool {
    crate::programs::is_there("chromedriver", "the page was not tried in a browser")
}

/// A browser with one window.
pub struct Chromium {
    driver: Child,
    /// The process of the browser that it started.
    browser: Option<i64>,
    session: String,
    client: reqwest::Client,
    requests: std::sync::Mutex<Vec<(String, String)>>,
    _profile: tempfile::TempDir,
}

impl Drop for Chromium {
    fn drop(&mut self) {
        // chromedriver leaves its browser behind when it ends.
        for id in [Some(i64::from(self.driver.id())), self.browser]
            .into_iter()
            .flatten()
        {
            let id = i32::try_from(id).ok().and_then(rustix::process::Pid::from_raw);
            if let Some(id) = id {
                let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
            }
        }
        let _ = self.driver.wait();
    }
}

impl Chromium {
    pub async fn start() -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let port = BufReader::new(driver.stdout.take().unwrap())
            .lines()
            .map_while(Result::ok)
            .find_map(|line| {
                let port = line.split("successfully on port ").nth(1)?;
                Some(port.trim_end_matches('.').to_owned())
            })
            .unwrap();
        let profile = tempfile::tempdir().unwrap();
        let mut arguments: Vec<String> = ARGUMENTS.map(str::to_owned).to_vec();
        arguments.push(format!("--user-data-dir={}", profile.path().display()));
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": arguments},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }}});
        let mut chromium = Self {
            driver,
            browser: None,
            session: format!("http://127.0.0.1:{port}/session"),
            client: reqwest::Client::new(),
            requests: std::sync::Mutex::default(),
            _profile: profile,
        };
        let started = chromium.post("", wanted).await;
        chromium.browser = started["capabilities"]["goog:processID"].as_i64();
        let id = started["sessionId"].as_str().unwrap();
        chromium.session = format!("{}/{id}", chromium.session);
        chromium
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let sent = self
            .client
            .post(format!("{}{path}", self.session))
            .json(&body)
            .timeout(LIMIT);
        let mut answer: Value = sent.send().await.unwrap().json().await.unwrap();
        let value = answer["value"].take();
        assert!(value["error"].is_null(), "{path}: {value}");
        value
    }

    /// A command of the DevTools protocol.
    pub async fn devtools(&self, command: &str, parameters: Value) -> Value {
        self.post("/goog/cdp/execute", json!({"cmd": command, "params": parameters}))
            .await
    }

    pub async fn open(&self, url: &str) {
        self.post("/url", json!({"url": url})).await;
    }

    /// What a script on the page returns.
    pub async fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", json!({"script": script, "args": []}))
            .await
    }

    /// Waits until a script on the page returns true.
    pub async fn until(&self, script: &str) {
        let begin = Instant::now();
        while self.run(script).await != json!(true) {
            assert!(begin.elapsed() < LIMIT, "it never came to {script}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Clicks into the middle of the first element that the selector finds, as a person does.
    pub async fn click(&self, selector: &str) {
        let document = self.devtools("DOM.getDocument", json!({"depth": 0})).await;
        let node = json!({"nodeId": document["root"]["nodeId"], "selector": selector});
        let node = self.devtools("DOM.querySelector", node).await;
        self.devtools("DOM.scrollIntoViewIfNeeded", node.clone()).await;
        let place = self.devtools("DOM.getBoxModel", node).await;
        let corner = |at: usize| place["model"]["content"][at].as_f64().unwrap();
        let (x, y) = ((corner(0) + corner(4)) / 2.0, (corner(1) + corner(5)) / 2.0);
        for kind in ["mousePressed", "mouseReleased"] {
            let press = json!({"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1});
            self.devtools("Input.dispatchMouseEvent", press).await;
        }
    }

    /// Presses a key of the keyboard and lets it go.
    pub async fn press(&self, key: &str, code: u32, shift: bool) {
        let text = match key {
            "Enter" => "\r",
            " " => " ",
            _ => "",
        };
        let press = json!({
            "type": if text.is_empty() { "rawKeyDown" } else { "keyDown" }, "key": key, "text": text,
            "windowsVirtualKeyCode": code, "modifiers": if shift { 8 } else { 0 },
        });
        self.devtools("Input.dispatchKeyEvent", press).await;
        let release = json!({"type": "keyUp", "key": key, "windowsVirtualKeyCode": code});
        self.devtools("Input.dispatchKeyEvent", release).await;
    }

    /// The attributes of the first element that the selector finds, without a script of the page.
    pub async fn has_attribute(&self, selector: &str, name: &str) -> bool {
        let document = self.devtools("DOM.getDocument", json!({"depth": 0})).await;
        let node = json!({"nodeId": document["root"]["nodeId"], "selector": selector});
        let node = self.devtools("DOM.querySelector", node).await;
        let found = self.devtools("DOM.getAttributes", node).await;
        let attributes = found["attributes"].as_array().unwrap();
        attributes.iter().step_by(2).any(|attribute| attribute == name)
    }

    /// A window of this size, as wide as a telephone's or a desk's.
    pub async fn size(&self, width: u32, height: u32, scheme: &str) {
        let (scale, mobile) = if width < 500 { (2, true) } else { (1, false) };
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": scale, "mobile": mobile});
        self.devtools("Emulation.setDeviceMetricsOverride", metrics).await;
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.devtools("Emulation.setEmulatedMedia", features).await;
    }

    /// Keeps a picture of what is seen under `target/tmp/status-page`, for a person to look at.
    pub async fn picture(&self, name: &str) -> PathBuf {
        let taken = self
            .devtools("Page.captureScreenshot", json!({"format": "png"}))
            .await;
        let bytes = base64::engine::general_purpose::STANDARD.decode(taken["data"].as_str().unwrap());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("status-page");
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join(format!("{name}.png"));
        std::fs::write(&path, bytes.unwrap()).unwrap();
        path
    }

    /// What the browser complained of since it was last asked.
    pub async fn complaints(&self) -> Vec<Value> {
        let log = self.post("/se/log", json!({"type": "browser"})).await;
        log.as_array().unwrap().clone()
    }

    /// Leaves the page, whose server may be gone, and what the browser complained of.
    pub async fn forget(&self) {
        self.open("about:blank").await;
        self.complaints().await;
    }

    /// Every request the page made so far: what kind of thing it is for, and the URL.
    pub async fn requests(&self) -> Vec<(String, String)> {
        let log = self.post("/se/log", json!({"type": "performance"})).await;
        let new = log.as_array().unwrap().iter().filter_map(|entry| {
            let message: Value = serde_json::from_str(entry["message"].as_str()?).ok()?;
            let message = &message["message"];
            let sent = (message["method"] == "Network.requestWillBeSent").then_some(&message["params"])?;
            let url = sent["request"]["url"].as_str()?;
            // An empty window is a page of the browser's own.
            (!url.starts_with("chrome://")).then_some(())?;
            Some((sent["type"].as_str()?.to_owned(), url.to_owned()))
        });
        let mut requests = self.requests.lock().unwrap();
        requests.extend(new);
        requests.clone()
    }
}
