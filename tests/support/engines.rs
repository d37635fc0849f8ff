//! Engines of daemons in this process: their configuration, and helpers that wait for their results.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hookwatch::app::config::{Config, ConfigArguments};
use hookwatch::app::engine::Engine;
use hookwatch::domain::act::breaker::BreakerTimes;
use hookwatch::domain::act::bypass::Rung;
use hookwatch::domain::act::fence::AutoBreak;
use hookwatch::domain::report::assessment::Assessment;
use serde_json::Value;

/// Timeout against a test that hangs.
pub const GUARD: Duration = Duration::from_secs(240);

/// The configuration from a file's text, for the cluster of a kubeconfig.
pub fn config(kubeconfig: &Path, text: &str) -> Config {
    let arguments = ConfigArguments {
        kubeconfig: Some(kubeconfig.to_owned()),
        listen: Some("127.0.0.1:0".to_owned()),
        ..ConfigArguments::default()
    };
    Config::parse(text, &arguments).unwrap()
}

/// The same with the breaker on, these rungs permitted, and the shortest intervals of observation.
pub fn breaking(kubeconfig: &Path, rungs: &[Rung]) -> Config {
    let mut config = config(kubeconfig, "");
    config.auto_break = AutoBreak::On;
    config.breaker.fallback.rungs = rungs.iter().copied().collect();
    config.probes.rates.interval = config.probes.rates.alert_interval;
    config.canaries.interval = config.canaries.alert_interval;
    config.scrapes.interval = config.scrapes.alert_interval;
    config
}

/// Times with which the breaker restores one second after the hook is healthy, so that tests do not wait for minutes.
pub fn brief() -> BreakerTimes {
    BreakerTimes {
        healthy_for: Duration::from_secs(1),
        probation_for: Duration::from_secs(1),
        ..BreakerTimes::default()
    }
}

/// Waits for an assessment for which `is_so` holds.
pub async fn assessed(engine: &Engine, what: &str, is_so: impl Fn(&Assessment) -> bool) -> Arc<Assessment> {
    let mut assessments = engine.shown.assessment.clone();
    let waiting = assessments.wait_for(|assessment| assessment.as_deref().is_some_and(&is_so));
    if let Ok(found) = tokio::time::timeout(GUARD, waiting).await {
        return found.unwrap().clone().unwrap();
    }
    let last = engine.shown.assessment.borrow().clone();
    panic!(
        "waited in vain until {what}: {}",
        serde_json::to_string_pretty(&last).unwrap()
    );
}

/// Polls until `is_so` holds.
pub async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let waited = tokio::time::timeout(GUARD, waiting).await.is_ok();
    assert!(waited, "waited in vain until {what}");
}

/// The object without the metadata that the API server changes with every write.
pub fn spec(object: &Value) -> Value {
    let mut object = object.clone();
    let metadata = object["metadata"].as_object_mut().unwrap();
    for key in ["managedFields", "resourceVersion", "generation"] {
        metadata.remove(key);
    }
    object
}
