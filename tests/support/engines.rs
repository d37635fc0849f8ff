//! Daemons' cores in this process: how they are configured, and how it is waited for what they say.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hookwatch::app::config::{Config, ConfigArguments};
use hookwatch::app::engine::Engine;
use hookwatch::domain::report::assessment::Assessment;

/// A guard against a test that hangs, not a measurement.
const GUARD: Duration = Duration::from_secs(240);

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
