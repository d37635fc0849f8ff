//! What decides which connections to a backend hooks share.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::{Aggregated, Backend, Extension, Hook};

/// How a backend is dialled. The API server keeps one client per server name and CA bundle: hooks for which these and the
/// address are equal share its connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionTerms {
    /// A hash of all other fields. Bundles are large, and these terms are often used as a map key.
    digest: u64,
    /// The host and port of requests ([`super::HookTarget::authority`]). The TLS server name follows from the host.
    pub authority: Arc<str>,
    /// The PEM bytes of `caBundle`; empty means the system's roots.
    pub ca_bundle: Arc<[u8]>,
    /// Any certificate is accepted (`insecureSkipTLSVerify` of an APIService).
    pub insecure: bool,
}

impl Hash for ConnectionTerms {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest.hash(state);
    }
}

/// What one probe covers: one backend, for all hooks with the same terms.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ProbeTarget {
    /// The address to dial.
    pub backend: Backend,
    /// How it is dialled.
    pub terms: Arc<ConnectionTerms>,
}

impl Hook {
    /// How its backends are dialled; `None` if its target is invalid.
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
