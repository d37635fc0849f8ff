//! Go's rules for certificates, where the libraries used here are stricter or check nothing.

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use x509_parser::prelude::{X509Certificate, X509Version};

/// Go's `CheckSignatureFrom`: a version 3 issuer must be a CA, and its key usage, if given, must allow signing certificates. webpki
/// does not check this for an anchor.
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

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// Go's base64 decoder ignores the bits after the last whole byte.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

/// The DER of every well-formed `CERTIFICATE` block. A block without an end line stops where the next one begins.
pub(crate) fn blocks(pem: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let mut open: Option<String> = None;
    pem.split(|byte| *byte == b'\n').filter_map(move |line| {
        // A line that is not UTF-8 is no part of any block.
        let line = std::str::from_utf8(line).unwrap_or("?").trim_end();
        match (line, open.as_mut()) {
            (BEGIN, _) => {
                open = Some(String::new());
                None
            }
            (END, Some(_)) => BASE64.decode(open.take()?).ok(),
            // A block with headers fails to decode at its colon and is passed over, as Go does.
            (text, Some(body)) => {
                body.extend(text.chars().filter(|c| !c.is_ascii_whitespace()));
                None
            }
            (_, None) => None,
        }
    })
}
