//! Waiting for what a daemon's core in this process says.

use std::sync::Arc;
use std::time::Duration;

use hookwatch::app::engine::Engine;
use hookwatch::domain::report::assessment::Assessment;

/// A guard against a test that hangs, not a measurement.
const GUARD: Duration = Duration::from_secs(240);

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
