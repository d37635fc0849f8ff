//! The addresses of a name, from the system's resolver.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};

use super::brief;
use crate::io::lock;

/// Most addresses of one name that are tried: each gets a part of the probe's time.
const MOST_ADDRESSES: usize = 4;

type Lookup = Shared<BoxFuture<'static, Result<Vec<IpAddr>, String>>>;

/// At most one lookup of each name at a time, shared by all callers.
///
/// A lookup occupies one of the runtime's blocking threads (tokio's default: 512) and cannot be cancelled: while DNS is silent it
/// may take a minute, whereas a probe gives up after seconds. If each probe began one, they would use up all threads.
#[derive(Debug, Default)]
pub(super) struct Resolver {
    underway: Arc<Mutex<HashMap<String, Lookup>>>,
}

impl Resolver {
    /// Addresses of a name, in the resolver's order. It waits without a timeout, which is up to the caller.
    ///
    /// # Errors
    /// The resolver's, and that the name has no address.
    pub(super) async fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, String> {
        let lookup = self.share(host, |host| async move {
            let found = tokio::net::lookup_host((host, 0)).await?;
            Ok(found.map(|address| address.ip()).take(MOST_ADDRESSES).collect())
        });
        let found = lookup.await?;
        if found.is_empty() {
            return Err(format!("{host} has no address"));
        }
        Ok(found)
    }

    /// Waits for the current lookup of the name, or for a new one.
    async fn share<F>(&self, host: &str, lookup: impl FnOnce(String) -> F) -> Result<Vec<IpAddr>, String>
    where
        F: Future<Output = std::io::Result<Vec<IpAddr>>> + Send + 'static,
    {
        let lookup = {
            // Held until the entry is there, so that the task does not remove it before.
            let mut underway = lock(&self.underway);
            let started = underway.entry(host.to_owned()).or_insert_with(|| {
                let (name, all) = (host.to_owned(), Arc::clone(&self.underway));
                let lookup = lookup(name.clone());
                // A task of its own, so that the lookup continues after its probe has given up.
                let task = tokio::spawn(async move {
                    let found = lookup.await.map_err(|error| brief(&error.to_string()));
                    lock(&all).remove(&name);
                    found
                });
                let ended = async move { task.await.unwrap_or_else(|error| Err(error.to_string())) };
                ended.boxed().shared()
            });
            started.clone()
        };
        lookup.await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use tokio::sync::oneshot;

    #[tokio::test]
    async fn a_name_is_looked_up_once_at_a_time_however_many_probes_give_up_on_it() {
        let resolver = Resolver::default();
        let (answer, answered) = oneshot::channel();
        let mut first = Box::pin(resolver.share("hook.example.com", |_| async move {
            answered.await.map_err(std::io::Error::other)
        }));
        assert_eq!(futures::poll!(&mut first), std::task::Poll::Pending);
        drop(first);

        let second = resolver.share("hook.example.com", |_| async { unreachable!("one is under way") });
        let (found, ()) = tokio::join!(second, async {
            answer
                .send(vec![IpAddr::from([10, 0, 0, 7])])
                .expect("it is waited for");
        });
        assert_eq!(found, Ok(vec![IpAddr::from([10, 0, 0, 7])]));

        let third = resolver.share("hook.example.com", |_| async {
            Err(std::io::Error::other("no such host"))
        });
        assert_eq!(third.await, Err("no such host".to_owned()));
    }
}
