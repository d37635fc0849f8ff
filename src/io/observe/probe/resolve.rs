//! The addresses of a name, from the system's resolver.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};

use super::brief;
use crate::io::lock;

/// Most addresses of one name that are tried.
const MOST_ADDRESSES: usize = 4;

type Lookup = Shared<BoxFuture<'static, Result<Vec<IpAddr>, String>>>;

/// At most one lookup of each name at a time, shared by all callers.
///
/// A lookup takes one of the runtime's 512 blocking threads, and cannot be stopped: while DNS is silent it waits for a
/// minute, where a probe gives up after seconds.
#[derive(Debug, Default)]
pub(super) struct Resolver {
    underway: Arc<Mutex<HashMap<String, Lookup>>>,
}

impl Resolver {
    /// The first four addresses of a name. It has no timeout.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) async fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, String> {
        let found = self.join(host, |host| async move {
            let found = tokio::net::lookup_host((host, 0)).await?;
            Ok(found.map(|address| address.ip()).take(MOST_ADDRESSES).collect())
        });
        let found = found.await?;
        if found.is_empty() {
            return Err(format!("{host} has no address"));
        }
        Ok(found)
    }

    /// Waits for the current lookup of the name, or for a new one.
    async fn join<F>(&self, host: &str, lookup: impl FnOnce(String) -> F) -> Result<Vec<IpAddr>, String>
    where
        F: Future<Output = std::io::Result<Vec<IpAddr>>> + Send + 'static,
    {
        let found = {
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
        found.await
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
        let mut first = Box::pin(resolver.join("hook.example.com", |_| async move {
            answered.await.map_err(std::io::Error::other)
        }));
        assert_eq!(futures::poll!(&mut first), std::task::Poll::Pending);
        drop(first);

        let second = resolver.join("hook.example.com", |_| async { unreachable!("one is under way") });
        let (found, ()) = tokio::join!(second, async {
            answer
                .send(vec![IpAddr::from([10, 0, 0, 7])])
                .expect("it is waited for");
        });
        assert_eq!(found, Ok(vec![IpAddr::from([10, 0, 0, 7])]));

        let third = resolver.join("hook.example.com", |_| async {
            Err(std::io::Error::other("no such host"))
        });
        assert_eq!(third.await, Err("no such host".to_owned()));
    }
}
