//! Would the API server take this certificate?
//!
//! The API server verifies with Go's `crypto/x509`, we with rustls and webpki, and the two do not agree. What only
//! webpki refuses must never look like an outage; what only webpki accepts must not look healthy. So webpki's answer
//! comes first, and every refusal is checked again under Go's rules:
//!
//! | case | Go | webpki |
//! |---|---|---|
//! | a leaf that is itself in the bundle | accepts, whatever signed it | refuses when it is a CA |
//! | a CA certificate served as leaf, signed by the bundle | accepts | refuses |
//! | an expired certificate in the bundle vouches | refuses | accepts |
//! | a non-CA in the bundle vouches | refuses | accepts |
//! | RSA keys below 2048 bits, rare algorithms | accepts | refuses |
//! | SHA-1, no subject alternative name, wrong purpose, dates | refuses | refuses |
//!
//! Only when a refusal is certain to be Go's as well is it a fault; else "our verifier differs". Every row was
//! tried with kube-apiserver 1.36.2 calling servers with such certificates.

use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, Error, RootCertStore};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::public_key::PublicKey;

use super::brief;
use super::bundle::Anchor;
use crate::domain::observe::probe::TlsFault;

/// Why a certificate was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Objection {
    /// The API server refuses it too.
    Fault(TlsFault, String),
    /// The API server may well take it.
    Differs(String),
}

/// What the server presented, and under which name it was called.
pub(super) struct Presented<'a> {
    /// The end-entity certificate.
    pub(super) leaf: &'a CertificateDer<'a>,
    /// What came with it.
    pub(super) intermediates: &'a [CertificateDer<'a>],
    /// `<service>.<namespace>.svc`, or the url's host.
    pub(super) name: &'a ServerName<'a>,
    /// The wall clock.
    pub(super) now: UnixTime,
}

/// Verifies the served chain by a hook's own bundle, under Go's rules.
pub(super) fn judge(
    presented: &Presented<'_>,
    anchors: &[Anchor],
    provider: &CryptoProvider,
) -> Result<(), Objection> {
    if anchors.iter().any(|anchor| &anchor.der == presented.leaf) {
        return leaf_alone(presented);
    }
    let now = seconds(presented.now);
    let Err(error) = chain(presented, anchors, |anchor| anchor.in_force(now), provider) else {
        return Ok(());
    };
    let leaf = read(presented.leaf)?;
    // webpki checks dates first, so a leaf that it refuses for being a CA is within its validity.
    if leaf.is_ca() && matches!(error, Error::InvalidCertificate(CertificateError::Other(_))) {
        return authority_as_leaf(presented, &leaf, anchors, provider);
    }
    match explain(&error, presented, &leaf, anchors) {
        Objection::Fault(TlsFault::UnknownAuthority, why) => {
            // An expired bundle is reported as such: its remedy differs from that of a wrong CA.
            match chain(presented, anchors, |anchor| !anchor.in_force(now), provider) {
                Ok(()) => Err(out_of_date(anchors, now)),
                Err(_) => Err(Objection::Fault(TlsFault::UnknownAuthority, why)),
            }
        }
        other => Err(other),
    }
}

/// Most certificates of a bundle that [`vouched_until`] tries one by one.
const MOST_TRIED: usize = 16;

/// Until when a bundle that verifies a chain now will verify it, in seconds since the epoch: the latest `notAfter` among the
/// certificates that verify it alone. Others in the bundle, such as a previous authority, may expire without harm. `None` when none
/// of the [`MOST_TRIED`] that expire last verifies it.
pub(super) fn vouched_until(
    presented: &Presented<'_>,
    anchors: &[Anchor],
    provider: &CryptoProvider,
) -> Option<i64> {
    if let Some(leaf) = anchors.iter().find(|anchor| &anchor.der == presented.leaf) {
        return Some(leaf.not_after);
    }
    let now = seconds(presented.now);
    let mut in_force: Vec<&Anchor> = anchors.iter().filter(|anchor| anchor.in_force(now)).collect();
    in_force.sort_by_key(|anchor| std::cmp::Reverse(anchor.not_after));
    let vouches =
        |anchor: &&Anchor| chain(presented, std::slice::from_ref(*anchor), |_| true, provider).is_ok();
    let last = in_force.into_iter().take(MOST_TRIED).find(vouches);
    last.map(|anchor| anchor.not_after)
}

/// Classifies the refusal of a verifier that knows only the system's roots.
///
/// The API server's machine may trust authorities that this one does not, so an unknown authority is certain only for a
/// name that no authority outside the cluster can certify: a Service's.
pub(super) fn judge_by_system_roots(presented: &Presented<'_>, error: &Error, service: bool) -> Objection {
    let leaf = match read(presented.leaf) {
        Ok(leaf) => leaf,
        Err(objection) => return objection,
    };
    match explain(error, presented, &leaf, &[]) {
        Objection::Fault(TlsFault::UnknownAuthority, why) if service => Objection::Fault(
            TlsFault::UnknownAuthority,
            format!("{why} (caBundle is empty, so the system's roots count)"),
        ),
        Objection::Fault(TlsFault::UnknownAuthority, why) => Objection::Differs(format!(
            "{why} (of this machine; the API server's roots may be others)"
        )),
        other => other,
    }
}

/// Classifies a handshake signature that our library refuses and Go's may accept.
pub(super) fn judge_signature(leaf: &CertificateDer<'_>, error: &Error) -> Objection {
    let why = brief(&error.to_string());
    match (error, has_short_rsa_key(leaf)) {
        (Error::InvalidCertificate(CertificateError::BadSignature), false) => {
            Objection::Fault(TlsFault::Other, format!("the handshake's signature: {why}"))
        }
        _ => Objection::Differs(format!("the handshake's signature: {why}")),
    }
}

/// A leaf that is in the bundle. Go takes it for a chain of its own, and checks its dates, name and purpose but no signature.
fn leaf_alone(presented: &Presented<'_>) -> Result<(), Objection> {
    let leaf = read(presented.leaf)?;
    let (validity, now) = (leaf.validity(), seconds(presented.now));
    if now > validity.not_after.timestamp() {
        let why = format!(
            "the served certificate expired at {}",
            rfc3339(validity.not_after.timestamp())
        );
        return Err(Objection::Fault(TlsFault::Expired, why));
    }
    if now < validity.not_before.timestamp() {
        let why = format!(
            "the served certificate is not valid before {}",
            rfc3339(validity.not_before.timestamp())
        );
        return Err(Objection::Fault(TlsFault::NotYetValid, why));
    }
    let parsed = ParsedCertificate::try_from(presented.leaf)
        .map_err(|error| Objection::Differs(format!("the served certificate: {error}")))?;
    verify_server_name(&parsed, presented.name).map_err(|error| explain(&error, presented, &leaf, &[]))?;
    match leaf.extended_key_usage() {
        Ok(Some(usage)) if !(usage.value.server_auth || usage.value.any) => Err(Objection::Fault(
            TlsFault::Other,
            "the served certificate is not meant for servers (extended key usage)".to_owned(),
        )),
        _ => Ok(()),
    }
}

/// A CA certificate served as leaf that is not itself in the bundle: Go builds a chain as for any other.
fn authority_as_leaf(
    presented: &Presented<'_>,
    leaf: &X509Certificate<'_>,
    anchors: &[Anchor],
    provider: &CryptoProvider,
) -> Result<(), Objection> {
    let now = seconds(presented.now);
    let mut doubt = None;
    for anchor in anchors.iter().filter(|anchor| anchor.may_sign) {
        match signed_by(leaf, &anchor.der, provider) {
            Signed::Yes if anchor.in_force(now) => return leaf_alone(presented),
            Signed::Yes => doubt = Some(out_of_date(std::slice::from_ref(anchor), now)),
            Signed::CannotTell if doubt.is_none() => {
                let why = "the served certificate is a CA whose issuer has a key not supported here";
                doubt = Some(Objection::Differs(why.to_owned()));
            }
            Signed::CannotTell | Signed::No => {}
        }
    }
    // A CA served as leaf with an intermediate above it is too rare to rebuild Go's search for a chain.
    let by_intermediate = presented
        .intermediates
        .iter()
        .any(|issuer| issuer != presented.leaf && !matches!(signed_by(leaf, issuer, provider), Signed::No));
    if doubt.is_none() && by_intermediate {
        doubt = Some(Objection::Differs(
            "the served certificate is a CA below an intermediate one".to_owned(),
        ));
    }
    Err(doubt
        .unwrap_or_else(|| unknown("the served certificate is a CA that nothing in caBundle vouches for")))
}

/// Verifies the path to a usable anchor, and then the name, with webpki.
fn chain(
    presented: &Presented<'_>,
    anchors: &[Anchor],
    usable: impl Fn(&Anchor) -> bool,
    provider: &CryptoProvider,
) -> Result<(), Error> {
    let roots = RootCertStore {
        roots: anchors
            .iter()
            .filter(|anchor| anchor.may_sign && usable(anchor))
            .filter_map(|anchor| anchor.trust.clone())
            .collect(),
    };
    let parsed = ParsedCertificate::try_from(presented.leaf)?;
    verify_server_cert_signed_by_trust_anchor(
        &parsed,
        &roots,
        presented.intermediates,
        presented.now,
        provider.signature_verification_algorithms.all,
    )?;
    verify_server_name(&parsed, presented.name)
}

/// What a refusal means under Go's rules.
fn explain(
    error: &Error,
    presented: &Presented<'_>,
    leaf: &X509Certificate<'_>,
    anchors: &[Anchor],
) -> Objection {
    let why = brief(&error.to_string());
    let Error::InvalidCertificate(error) = error else {
        return Objection::Differs(why);
    };
    let issuers = || {
        let bundled = anchors.iter().map(|anchor| &anchor.der);
        bundled.chain(presented.intermediates.iter())
    };
    #[allow(
        deprecated,
        reason = "older variants may still come from a verifier that is not ours"
    )]
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            Objection::Fault(TlsFault::Expired, why)
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            Objection::Fault(TlsFault::NotYetValid, why)
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            let no_names = matches!(leaf.subject_alternative_name(), Ok(None));
            let hint = if no_names {
                " (it has no subject alternative names; a common name does not count)"
            } else {
                ""
            };
            Objection::Fault(TlsFault::WrongName, format!("{why}{hint}"))
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            Objection::Fault(TlsFault::Other, why)
        }
        CertificateError::UnknownIssuer if anchors.iter().any(|anchor| anchor.trust.is_none()) => {
            Objection::Differs(format!(
                "{why} (caBundle holds a certificate that cannot be read here)"
            ))
        }
        CertificateError::UnknownIssuer => {
            unknown("the served certificate is signed by an unknown authority")
        }
        CertificateError::BadSignature if issuers().any(has_short_rsa_key) => Objection::Differs(
            "the authority has an RSA key below 2048 bits, which is not supported here".to_owned(),
        ),
        CertificateError::BadSignature => unknown(REISSUED),
        CertificateError::UnsupportedSignatureAlgorithm
        | CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            unsupported(presented, leaf, issuers())
        }
        _ => Objection::Differs(why),
    }
}

/// Typical of manually created certificates: caBundle has the authority's name but not its key.
const REISSUED: &str = "the served certificate is signed by another key than the authority of that name has";

/// A signature that our library has no algorithm for.
fn unsupported<'a>(
    presented: &Presented<'_>,
    leaf: &X509Certificate<'_>,
    mut issuers: impl Iterator<Item = &'a CertificateDer<'a>>,
) -> Objection {
    let mut served = presented.intermediates.iter().filter_map(|der| read(der).ok());
    if is_insecurely_signed(leaf) || served.any(|certificate| is_insecurely_signed(&certificate)) {
        let why = "a served certificate is signed with SHA-1 or MD5, which the API server refuses";
        return Objection::Fault(TlsFault::Other, why.to_owned());
    }
    let algorithm = leaf.signature_algorithm.algorithm.to_id_string();
    let fits = |issuer: &CertificateDer<'_>| {
        read(issuer).is_ok_and(|issuer| {
            let key = issuer.public_key().algorithm.algorithm.to_id_string();
            issuer.subject().as_raw() == leaf.issuer().as_raw() && family(&key) == family(&algorithm)
        })
    };
    // An RSA signature cannot come from the elliptic-curve key that an authority of that name has now: that is a fault, not a
    // missing algorithm.
    if family(&algorithm).is_some() && !issuers.any(fits) {
        return unknown(REISSUED);
    }
    Objection::Differs(format!("signature algorithm {algorithm} is not supported here"))
}

/// The kind of key that the OID of a key or of a signature stands for; `None` for one not listed.
fn family(oid: &str) -> Option<&'static str> {
    match oid {
        _ if oid.starts_with("1.2.840.113549.1.1.") => Some("RSA"),
        "1.2.840.10045.2.1" => Some("EC"),
        _ if oid.starts_with("1.2.840.10045.4.") => Some("EC"),
        "1.3.101.112" => Some("Ed25519"),
        _ => None,
    }
}

fn unknown(why: &str) -> Objection {
    Objection::Fault(TlsFault::UnknownAuthority, why.to_owned())
}

fn out_of_date(anchors: &[Anchor], now: i64) -> Objection {
    let ended = anchors
        .iter()
        .map(|anchor| anchor.not_after)
        .filter(|end| *end < now)
        .max();
    match ended {
        Some(end) => Objection::Fault(
            TlsFault::Expired,
            format!("the authority in caBundle expired at {}", rfc3339(end)),
        ),
        None => Objection::Fault(
            TlsFault::NotYetValid,
            "the authority in caBundle is not valid yet".to_owned(),
        ),
    }
}

enum Signed {
    Yes,
    No,
    CannotTell,
}

/// Whether `issuer` signed `certificate`. Any algorithm that verifies the signature will do: no signature verifies by
/// accident under the wrong one.
fn signed_by(
    certificate: &X509Certificate<'_>,
    issuer: &CertificateDer<'_>,
    provider: &CryptoProvider,
) -> Signed {
    let Ok((_, parsed)) = X509Certificate::from_der(issuer) else {
        return Signed::CannotTell;
    };
    if parsed.subject().as_raw() != certificate.issuer().as_raw() {
        return Signed::No;
    }
    let key = &parsed.public_key().subject_public_key.data;
    let signature = &certificate.signature_value.data;
    let verified = provider
        .signature_verification_algorithms
        .all
        .iter()
        .any(|algorithm| {
            algorithm
                .verify_signature(key, certificate.tbs_certificate.as_ref(), signature)
                .is_ok()
        });
    if verified {
        Signed::Yes
    } else if has_short_rsa_key(issuer) {
        Signed::CannotTell
    } else {
        Signed::No
    }
}

/// aws-lc and ring take no RSA key below 2048 bits; Go takes 1024 and more.
fn has_short_rsa_key(der: &CertificateDer<'_>) -> bool {
    X509Certificate::from_der(der).is_ok_and(|(_, certificate)| {
        matches!(certificate.public_key().parsed(), Ok(PublicKey::RSA(key)) if key.key_size() < 2048)
    })
}

/// Whether the signature's algorithm is one that Go calls insecure and refuses in a chain.
fn is_insecurely_signed(certificate: &X509Certificate<'_>) -> bool {
    const INSECURE: [&str; 5] = [
        "1.2.840.113549.1.1.2", // MD2 with RSA
        "1.2.840.113549.1.1.4", // MD5 with RSA
        "1.2.840.113549.1.1.5", // SHA-1 with RSA
        "1.2.840.10045.4.1",    // SHA-1 with ECDSA
        "1.2.840.10040.4.3",    // SHA-1 with DSA
    ];
    let algorithm = certificate.signature_algorithm.algorithm.to_id_string();
    INSECURE.contains(&algorithm.as_str())
}

fn read<'a>(der: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, Objection> {
    match X509Certificate::from_der(der) {
        Ok((_, certificate)) => Ok(certificate),
        Err(error) => Err(Objection::Differs(brief(&format!(
            "a served certificate cannot be read: {error}"
        )))),
    }
}

/// When a certificate begins and ends, in seconds since the epoch; `None` where it cannot be read.
pub(super) fn validity(der: &CertificateDer<'_>) -> Option<[i64; 2]> {
    let certificate = read(der).ok()?;
    let validity = certificate.validity();
    Some([validity.not_before.timestamp(), validity.not_after.timestamp()])
}

/// Whole seconds since the Unix epoch.
pub(super) fn seconds(now: UnixTime) -> i64 {
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}

fn rfc3339(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds)
        .map_or_else(|_| format!("{seconds} s"), |instant| instant.to_string())
}
