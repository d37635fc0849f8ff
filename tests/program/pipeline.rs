//! The dashboards behind a real Prometheus that scrapes a demo: every query of every panel has something to show.
//!
//! With `HOOKWATCH_BLESS=1` it also keeps what the queries returned, of which the pictures of the dashboards are drawn.

use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use hookwatch::lab::ports::free_address;
use serde_json::{Value, json};

use crate::held::HeldDemo;
use crate::programs::{Running, is_there};

/// A guard against a test that hangs, not a measurement.
const LIMIT: Duration = Duration::from_secs(180);

/// How much is kept for the pictures, and at which intervals, in seconds.
const SPAN: u64 = 60;
const STEP: u64 = 2;

/// Starts a Prometheus that scrapes both every second, and returns its address.
fn prometheus(folder: &Path, demo: &Value) -> (Running, String) {
    let host = |url: &Value| {
        let url = url.as_str().unwrap();
        url.split_once("://").unwrap().1.to_owned()
    };
    let kubeconfig = std::fs::read_to_string(demo["kubeconfig"].as_str().unwrap()).unwrap();
    let kubeconfig: Value = serde_saphyr::from_str(&kubeconfig).unwrap();
    let token = kubeconfig["users"][0]["user"]["token"].as_str().unwrap();
    std::fs::write(folder.join("token"), token).unwrap();
    let configuration = format!(
        "global: {{scrape_interval: 1s, scrape_timeout: 1s}}\n\
         scrape_configs:\n\
         - {{job_name: hookwatch, static_configs: [{{targets: [{daemon:?}]}}]}}\n\
         - {{job_name: apiserver, scheme: https, authorization: {{credentials_file: {token:?}}}, \
         tls_config: {{insecure_skip_verify: true}}, static_configs: [{{targets: [{api:?}]}}]}}\n",
        daemon = host(&demo["daemon"]),
        api = host(&demo["api_server"]),
        token = folder.join("token").display().to_string(),
    );
    let file = folder.join("prometheus.yaml");
    std::fs::File::create(&file)
        .unwrap()
        .write_all(configuration.as_bytes())
        .unwrap();
    let address = free_address().unwrap().to_string();
    let process = Running::start(
        Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .arg(format!("--web.listen-address={address}")),
    );
    (process, address)
}

/// A query as Grafana puts the variables in.
fn filled_in(query: &str, webhook: &str) -> String {
    query
        .replace("$__rate_interval", "15s")
        .replace("$cluster", ".*")
        .replace("$configuration", ".*")
        .replace("$webhook", webhook)
}

/// Every query of every panel, with the panel's title and whether nothing is good news there.
fn queries() -> Vec<(String, String, bool)> {
    let mut queries = Vec::new();
    for name in ["overview", "webhook", "breaker"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("dashboards/{name}.json"));
        let dashboard: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        for panel in dashboard["panels"].as_array().unwrap() {
            let may_be_empty = panel["fieldConfig"]["defaults"]["noValue"].is_string();
            let names_a_state = panel["options"]["textMode"] == "name";
            for (target, at) in panel["targets"].as_array().unwrap().iter().zip(0..) {
                let query = target["expr"].as_str().unwrap();
                let title = panel["title"].as_str().unwrap();
                // Further queries of such a panel are states of their own, that are not now.
                let may_be_empty = may_be_empty || names_a_state && at > 0;
                queries.push((title.to_owned(), query.to_owned(), may_be_empty));
            }
        }
    }
    queries
}

/// What a query of Prometheus returns; `Err` while it does not answer.
async fn ask(client: &reqwest::Client, address: &str, query: &str) -> Result<Vec<Value>, String> {
    let answer = client
        .get(format!("http://{address}/api/v1/query"))
        .query(&[("query", query)])
        .send()
        .await
        .map_err(|error| error.to_string())?;
    let body: Value = answer.json().await.map_err(|error| error.to_string())?;
    assert_ne!(body["status"], "error", "{query}: {body}");
    Ok(body["data"]["result"].as_array().cloned().unwrap_or_default())
}

#[test]
fn every_query_of_every_panel_has_something_to_show_while_two_hooks_are_bad() {
    if !is_there("prometheus", "no query of a dashboard was tried") {
        return;
    }
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let folder = tempfile::tempdir().unwrap();
    let demo = HeldDemo::start(&["--scenario", "two-culprits"]);
    let (_prometheus, address) = prometheus(folder.path(), &demo.told);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let client = reqwest::Client::new();
        let begin = Instant::now();
        let mut waiting = queries();
        assert!(waiting.len() >= 30, "only {} queries", waiting.len());
        loop {
            let mut still = Vec::new();
            for (title, query, may_be_empty) in waiting {
                // With everything chosen.
                let result = ask(&client, &address, &filled_in(&query, ".*")).await;
                if result.is_ok_and(|series| !series.is_empty()) {
                    continue;
                }
                still.push((title, query, may_be_empty));
            }
            waiting = still;
            if waiting.iter().all(|(.., may_be_empty)| *may_be_empty)
                && culprits(&client, &address).await == 2
            {
                break;
            }
            assert!(begin.elapsed() < LIMIT, "nothing is shown for {waiting:#?}");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        for (title, query, _) in queries() {
            let series = ask(&client, &address, &filled_in(&query, ".*"))
                .await
                .unwrap()
                .len();
            let query = query.split_whitespace().collect::<Vec<_>>().join(" ");
            println!("{series:5} series  {title:<40}  {query:.60}");
        }
        if std::env::var_os("HOOKWATCH_BLESS").is_some() {
            // The pictures show a minute.
            tokio::time::sleep(Duration::from_secs(SPAN + STEP).saturating_sub(begin.elapsed())).await;
            keep(&client, &address).await;
        }
    });
}

/// How many hooks the table of the culprits has.
async fn culprits(client: &reqwest::Client, address: &str) -> usize {
    let (_, query, _) = queries()
        .into_iter()
        .find(|(title, ..)| title == "Failing webhooks")
        .unwrap();
    let result = ask(client, address, &filled_in(&query, ".*")).await;
    result.map_or(0, |hooks| hooks.len())
}

/// Keeps what the queries returned over the last minute.
async fn keep(client: &reqwest::Client, address: &str) {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    let (begin, end) = (now.as_secs() - SPAN, now.as_secs());
    let mut kept = serde_json::Map::new();
    for (_, query, _) in queries() {
        let filled = filled_in(&query, "validating-webhook.openpolicyagent.org");
        let asked = client
            .get(format!("http://{address}/api/v1/query_range"))
            .query(&[("query", &*filled)])
            .query(&[("start", begin), ("end", end), ("step", STEP)]);
        let answer: Value = asked.send().await.unwrap().json().await.unwrap();
        let series = answer["data"]["result"].as_array().unwrap().iter().map(|series| {
            let mut labels = series["metric"].clone();
            labels.as_object_mut().unwrap().remove("__name__");
            let at = |at: u64| {
                let pairs = series["values"].as_array().unwrap().iter();
                let mut pairs = pairs.filter(|pair| pair[0].as_f64() == Some(at as f64));
                let value: f64 = pairs.next()?[1].as_str()?.parse().ok()?;
                // Four digits are more than a picture shows.
                format!("{value:.3e}")
                    .parse::<f64>()
                    .ok()
                    .filter(|value| value.is_finite())
            };
            let values: Vec<Option<f64>> = (begin..=end).step_by(STEP as usize).map(at).collect();
            json!({"metric": labels, "values": values})
        });
        let series = series.collect();
        kept.insert(query, series);
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/dashboards.json");
    std::fs::write(path, json!({"step": STEP, "queries": kept}).to_string() + "\n").unwrap();
}
