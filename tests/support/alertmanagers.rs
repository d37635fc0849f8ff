//! Real Alertmanagers with a receiver, and servers that only claim to be one.

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use hookwatch::lab::ports::free_address;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

use crate::programs::Running;

/// Timeout against a test that hangs.
pub const LIMIT: Duration = Duration::from_secs(150);

/// Waits until `look` succeeds.
pub async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Result<T, String>) -> T {
    let begin = Instant::now();
    loop {
        match look().await {
            Ok(found) => return found,
            Err(seen) => assert!(begin.elapsed() < LIMIT, "waited in vain until {what}: {seen}"),
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// A webhook receiver for Alertmanager's notifications.
pub struct Receiver {
    pub address: String,
    notifications: Arc<Mutex<Vec<Value>>>,
    _tasks: JoinSet<()>,
}

impl Receiver {
    pub async fn start() -> Self {
        let notifications = Arc::new(Mutex::new(Vec::new()));
        let take = async |State(to): State<Arc<Mutex<Vec<Value>>>>, Json(notification): Json<Value>| {
            to.lock().unwrap().push(notification);
        };
        let router = Router::new()
            .route("/", post(take))
            .with_state(Arc::clone(&notifications));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            address,
            notifications,
            _tasks: tasks,
        }
    }

    pub fn notifications(&self) -> Vec<Value> {
        self.notifications.lock().unwrap().clone()
    }

    /// Every alert of every notification, with its status.
    pub fn alerts(&self) -> Vec<Value> {
        let notifications = self.notifications();
        let alerts = notifications
            .iter()
            .flat_map(|it| it["alerts"].as_array().unwrap().clone());
        alerts.collect()
    }
}

/// A real Alertmanager that notifies the receiver, with the shipped inhibition rules.
pub struct Alertmanager {
    pub address: String,
    _process: Running,
    _folder: tempfile::TempDir,
}

impl Alertmanager {
    pub fn start(receiver: &Receiver, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let inhibition = std::fs::read_to_string(root.join("alerts/alertmanager-inhibit.yaml")).unwrap();
        let configuration = format!(
            "route: {{receiver: page, group_by: [alertname, incident], \
             group_wait: 1s, group_interval: 2s, repeat_interval: 1h}}\n\
             receivers: [{{name: page, webhook_configs: [{{url: 'http://{}/', send_resolved: true}}]}}]\n\
             {inhibition}",
            receiver.address
        );
        let file = folder.path().join("alertmanager.yaml");
        std::fs::write(&file, configuration).unwrap();
        let address = free_address().unwrap().to_string();
        let process = Running::start(
            Command::new("prometheus-alertmanager")
                .arg(format!("--config.file={}", file.display()))
                .arg(format!("--storage.path={}", folder.path().join("data").display()))
                .arg(format!("--web.listen-address={address}"))
                .arg("--cluster.listen-address=")
                .args(arguments),
        );
        Self {
            address,
            _process: process,
            _folder: folder,
        }
    }

    /// Its alerts, from its API below this prefix.
    pub async fn alerts(&self, prefix: &str) -> Result<Vec<Value>, String> {
        let url = format!("http://{}{prefix}/api/v2/alerts", self.address);
        let answer = reqwest::Client::new()
            .get(url)
            .send()
            .await
            .map_err(|error| error.to_string())?;
        answer.json().await.map_err(|error| error.to_string())
    }
}

/// A server that answers each request with the next of these texts, and repeats the last. It never answers with an empty one.
pub struct Bad {
    pub address: String,
    requests: Arc<Mutex<usize>>,
    _tasks: JoinSet<()>,
}

impl Bad {
    pub async fn start(answers: Vec<String>) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let requests = Arc::new(Mutex::new(0));
        let count = Arc::clone(&requests);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let at = {
                    let mut count = count.lock().unwrap();
                    *count += 1;
                    *count - 1
                };
                let answer = answers[at.min(answers.len() - 1)].clone();
                connections.spawn(async move {
                    let mut read = vec![0; 1 << 20];
                    let _ = stream.read(&mut read).await;
                    if answer.is_empty() {
                        std::future::pending::<()>().await;
                    }
                    let _ = stream.write_all(answer.as_bytes()).await;
                    let _ = stream.shutdown().await;
                    // Unread input would reset the connection before the client reads the answer.
                    while stream.read(&mut read).await.is_ok_and(|read| read > 0) {}
                });
            }
        });
        Self {
            address,
            requests,
            _tasks: tasks,
        }
    }

    pub fn requests(&self) -> usize {
        *self.requests.lock().unwrap()
    }
}

/// An answer with a status and a body, after which the connection is closed.
pub fn answer(status: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")
}
