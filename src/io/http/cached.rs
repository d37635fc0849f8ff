//! A cache for expensive results, computed at most once a second for all callers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

/// How long a result is valid.
const GOOD_FOR: Duration = Duration::from_millis(900);

/// The newest result, with the time at which its computation began. Cheap to clone.
#[derive(Debug)]
pub(super) struct Cached<T>(Arc<Mutex<Option<(Instant, T)>>>);

impl<T> Clone for Cached<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for Cached<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T: Clone + Send + 'static> Cached<T> {
    /// The cached result, or a new one if that is too old. It is computed on a blocking thread, for which all callers wait without
    /// blocking theirs; `None` when it panics or the runtime stops.
    pub(super) async fn get(&self, make: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let mut newest = Arc::clone(&self.0).lock_owned().await;
        if let Some((asked, made)) = &*newest
            && asked.elapsed() < GOOD_FOR
        {
            return Some(made.clone());
        }
        // A task of its own: other callers get the result even when the first one has disconnected.
        let making = tokio::spawn(async move {
            let asked = Instant::now();
            let made = tokio::task::spawn_blocking(make).await.ok()?;
            *newest = Some((asked, made.clone()));
            Some(made)
        });
        making.await.ok()?
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// Asks for how often it was made before.
    async fn ask(cached: &Cached<u32>, made: &Arc<AtomicU32>) -> Option<u32> {
        let made = Arc::clone(made);
        cached.get(move || made.fetch_add(1, Ordering::Relaxed)).await
    }

    #[tokio::test]
    async fn a_crowd_shares_what_is_made_once_and_a_second_later_there_is_another() {
        let (cached, made) = (Cached::default(), Arc::default());
        let ask = || ask(&cached, &made);
        assert_eq!(tokio::join!(ask(), ask(), ask()), (Some(0), Some(0), Some(0)));
        if let Some((asked, _)) = &mut *cached.0.lock().await {
            *asked = asked.checked_sub(GOOD_FOR).expect("the machine runs for longer");
        }
        assert_eq!(ask().await, Some(1));
    }

    #[tokio::test]
    async fn what_was_asked_for_by_one_who_left_is_kept_for_the_next() {
        let (cached, made) = (Cached::default(), Arc::default());
        let ask = || ask(&cached, &made);
        let mut first = Box::pin(ask());
        assert!(futures::poll!(&mut first).is_pending());
        drop(first);
        assert_eq!(ask().await, Some(0));
        assert_eq!(made.load(Ordering::Relaxed), 1);
    }
}
