//! Background activity while a scenario lasts.

use tokio::task::JoinSet;

/// A running course of events. It ends with this.
#[derive(Debug)]
pub struct Script {
    _task: JoinSet<()>,
}

impl Script {
    /// Begins it. A step that fails ends it: the demo then says what it saw, which is not what it was to see.
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
