//! Fields of a hook's object that mostly an audit uses.

use serde::{Deserialize, Serialize};

use crate::time::Time;

/// How a hook's entry is written, in addition to what the API server makes of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WrittenEntry {
    /// Its index in `webhooks`, from 0: mutating webhooks are called in this order, and a JSON patch names it.
    pub entry: usize,
    /// `timeoutSeconds` is absent. Only possible in manifests: the API server writes the default into what it stores.
    pub timeout_is_default: bool,
    /// The configuration has an annotation that makes a controller fill in `caBundle`, so that an empty one is no mistake.
    pub ca_is_injected: bool,
    /// The latest expiry of the certificates in its `caBundle`; `None` if it is empty or holds no certificate.
    pub ca_ends: Option<Time>,
    /// When the certificate with that expiry became valid; `None` if `ca_ends` is, and in older recordings.
    #[serde(default)]
    pub ca_begins: Option<Time>,
    /// The certificates of its `caBundle`, in their order, at most the first 20.
    #[serde(default)]
    pub trusted: Vec<Trusted>,
}

/// A certificate in a `caBundle`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trusted {
    /// It may sign other certificates. If not, it is trusted only as the certificate that the webhook itself serves.
    pub signs: bool,
    /// The DNS names and addresses in its `subjectAltName`, at most the first 20; empty if it has none.
    pub names: Vec<String>,
}
