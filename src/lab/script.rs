//! Background activity while a scenario lasts.

use tokio::task::JoinSet;

/// A running sequence of steps. Dropping it ends it.
#[derive(Debug)]
pub struct Script {
    _task: JoinSet<()>,
}

impl Script {
    /// Starts it. A step that fails ends it with a warning; the demo then reports that it did not see what it expected.
    pub fn start(course: impl Future<Output = anyhow::Result<()>> + Send + 'static) -> Self {
        let task = async move {
            if let Err(error) = course.await {
                tracing::warn!("a course of events of the lab broke off: {error:#}");
            }
        };
        Self {
            _task: JoinSet::from_iter([task]),
        }
    }
}
