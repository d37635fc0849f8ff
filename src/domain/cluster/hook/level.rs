//! What the annotation `hookwatch.dev/probe` may ask for.

use serde::{Deserialize, Serialize};

/// How far a probe goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProbeLevel {
    /// No probe at all.
    Off,
    /// TCP and TLS only.
    Handshake,
    /// An HTTP request that reviews nothing; any answer shows a living server.
    Http,
    /// A genuine dry-run `AdmissionReview`.
    Review,
}

impl ProbeLevel {
    /// Reads the value of the annotation `hookwatch.dev/probe`.
    ///
    /// # Errors
    /// A sentence that lists the allowed values.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            "handshake" => Ok(Self::Handshake),
            "http" => Ok(Self::Http),
            "review" => Ok(Self::Review),
            other => Err(format!(
                "{other:?} is not a probe level; use off, handshake, http or review"
            )),
        }
    }
}
