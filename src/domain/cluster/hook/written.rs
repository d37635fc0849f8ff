//! What the object of a hook says that only an audit looks at.

use serde::{Deserialize, Serialize};

use crate::time::Time;

/// How its entry is written, beside what the API server does with it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WrittenEntry {
    /// Its place in `webhooks`, from 0: mutating webhooks are asked in this order, and a patch names it.
    pub entry: usize,
    /// `timeoutSeconds` is absent. The API server writes the default into what it stores, so that this is seen in manifests
    /// alone.
    pub timeout_is_default: bool,
    /// The configuration has an annotation by which a controller fills `caBundle` in, so that an empty one is no mistake.
    pub ca_is_injected: bool,
    /// When the last certificate of its `caBundle` ends; `None` where it is empty or holds none.
    pub ca_ends: Option<Time>,
    /// When that certificate began; `None` where `ca_ends` is, and in older recordings.
    #[serde(default)]
    pub ca_begins: Option<Time>,
    /// The first certificates of its `caBundle`, in their order.
    #[serde(default)]
    pub trusted: Vec<Trusted>,
}

/// A certificate that is trusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trusted {
    /// It may sign others. One that may not is good for nothing but to be served itself.
    pub signs: bool,
    /// The first DNS names and addresses of its `subjectAltName`, empty where it has none.
    pub names: Vec<String>,
}
