//! What a connection to a backend is bound to.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::{Aggregated, Backend, Extension, Hook};

/// With another name or bundle the API server makes a new client; hooks of which these and the address are the same
/// share its connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionTerms {
    /// Of all the rest: bundles are large, and looked up often.
    digest: u64,
    /// The host of the request, with the port. The server name follows from it.
    pub authority: Arc<str>,
    /// The PEM bytes.
    pub ca_bundle: Arc<[u8]>,
    /// Any certificate will do.
    pub insecure: bool,
}

impl Hash for ConnectionTerms {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest.hash(state);
    }
}

/// One backend as hooks with the same terms meet it: what is probed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ProbeTarget {
    /// Where.
    pub backend: Backend,
    /// How it is dialled.
    pub terms: Arc<ConnectionTerms>,
}

impl Hook {
    /// How its backends are dialled; `None` where its target is invalid.
    pub fn connection_terms(&self) -> Option<ConnectionTerms> {
        let authority: Arc<str> = self.target.authority()?.into();
        let insecure = matches!(
            &self.extension,
            Some(Extension::Aggregated(Aggregated { insecure: true, .. }))
        );
        let mut hasher = DefaultHasher::new();
        (&authority, &self.ca_bundle, insecure).hash(&mut hasher);
        Some(ConnectionTerms {
            digest: hasher.finish(),
            authority,
            ca_bundle: Arc::clone(&self.ca_bundle),
            insecure,
        })
    }
}
