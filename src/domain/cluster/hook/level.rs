//! The values of the annotation `hookwatch.dev/probe`.

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

use crate::text::named;

/// How far a probe goes.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, IntoStaticStr, VariantArray,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum ProbeLevel {
    /// No probe at all.
    Off,
    /// TCP and TLS only.
    Handshake,
    /// An HTTP request without a review; any answer shows that the server is alive.
    Http,
    /// A genuine dry-run `AdmissionReview`.
    Review,
}

named!(
    ProbeLevel,
    "The value of the annotation `hookwatch.dev/probe`.",
    parse
);
