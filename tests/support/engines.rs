//! Daemons' cores in this process: how they are configured, and how it is waited for what they say and do.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hookwatch::app::config::{Config, ConfigArguments};
use hookwatch::app::engine::Engine;
use hookwatch::domain::report::assessment::Assessment;
use serde_json::Value;

/// A guard against a test that hangs, not a measurement.
pub const GUARD: Duration = Duration::from_secs(240);

/// A configuration file's text, for the cluster of a kubeconfig.
pub fn config(kubeconfig: &Path, text: &str) -> Config {
    let arguments = ConfigArguments {
        kubeconfig: Some(kubeconfig.to_owned()),
        listen: Some("127.0.0.1:0".to_owned()),
        ..ConfigArguments::default()
    };
    Config::parse(text, &arguments).unwrap()
}

/// Waits for an assessment of which this is true.
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

/// Waits until something is so; for what sends no word by itself.
pub async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let waited = tokio::time::timeout(GUARD, waiting).await.is_ok();
    assert!(waited, "waited in vain until {what}");
}

/// All of an object but the API server's own account of writes.
pub fn spec(object: &Value) -> Value {
    let mut object = object.clone();
    let metadata = object["metadata"].as_object_mut().unwrap();
    for key in ["managedFields", "resourceVersion", "generation"] {
        metadata.remove(key);
    }
    object
}
