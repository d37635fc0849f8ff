//! What Go makes of a certificate where the library used here asks nothing.

use x509_parser::prelude::{X509Certificate, X509Version};

/// Go's `CheckSignatureFrom`: a version 3 issuer must be a CA, and its key usage, if given, must allow it.
/// webpki asks nothing of an anchor.
pub(crate) fn may_sign(certificate: &X509Certificate<'_>) -> bool {
    let may_be_issuer = match certificate.basic_constraints() {
        Ok(Some(constraints)) => constraints.value.ca,
        Ok(None) => certificate.version() != X509Version::V3,
        Err(_) => false,
    };
    let usage_allows = match certificate.key_usage() {
        Ok(Some(usage)) => usage.value.key_cert_sign(),
        Ok(None) => true,
        Err(_) => false,
    };
    may_be_issuer && usage_allows
}
