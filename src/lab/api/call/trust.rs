//! Which servers the API server trusts when it calls a hook, and its error texts for those that it does not.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use prometheus::IntCounter;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme,
};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// A verification that failed, in Go's words without the prefix `tls: failed to verify certificate`.
#[derive(Debug)]
pub(super) struct Distrust(pub String);

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Distrust {}

/// The TLS client of one hook: trusts its caBundle and nothing else, never resumes a session.
///
/// An empty bundle means the system's roots. No backend of a lab has a certificate from those, so no server is trusted.
///
/// # Errors
/// The API server's words for a bundle without any certificate in it.
pub(super) fn client_config(ca_bundle: &[u8], missing_san: IntCounter) -> Result<ClientConfig, String> {
    let anchors: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(ca_bundle)
        .filter_map(Result::ok)
        .collect();
    let mut roots = RootCertStore::empty();
    let (trusted, _) = roots.add_parsable_certificates(anchors.iter().cloned());
    if trusted == 0 && !ca_bundle.is_empty() {
        return Err("unable to load root certificates: unable to parse bytes as PEM block".to_owned());
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    // No verifier can be made of an empty root store. Without a verifier no server is trusted.
    let inner = (trusted > 0)
        .then(|| WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build())
        .transpose()
        .map_err(|error| format!("unable to load root certificates: {error}"))?;
    let verifier = Verifier {
        inner,
        anchors,
        provider: Arc::clone(&provider),
        missing_san,
    };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Verifies as Go does where rustls would be stricter, and reports errors in Go's words.
#[derive(Debug)]
struct Verifier {
    inner: Option<Arc<WebPkiServerVerifier>>,
    anchors: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
    missing_san: IntCounter,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let distrust = |why: String| {
            rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(Distrust(why)))))
        };
        let Ok((_, parsed)) = X509Certificate::from_der(leaf) else {
            return Err(distrust("x509: malformed certificate".to_owned()));
        };
        // Go checks validity before anything else and so names it first.
        check_validity(&parsed, now).map_err(distrust)?;
        let names = names(&parsed);
        let named = check_name(&parsed, &names, name);
        if named.is_err() && names.is_empty() {
            self.missing_san.inc();
        }
        // A certificate that is itself in the bundle is trusted, CA or not, such as one made by `openssl req -x509`.
        if self.anchors.iter().any(|anchor| anchor == leaf) {
            return named.map(|()| ServerCertVerified::assertion()).map_err(distrust);
        }
        named.map_err(distrust)?;
        let Some(inner) = &self.inner else {
            return Err(distrust(UNKNOWN_AUTHORITY.to_owned()));
        };
        match inner.verify_server_cert(leaf, intermediates, name, ocsp, now) {
            Ok(verified) => Ok(verified),
            Err(rustls::Error::InvalidCertificate(error)) => Err(distrust(explain(&error, &parsed))),
            Err(error) => Err(error),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

const UNKNOWN_AUTHORITY: &str = "x509: certificate signed by unknown authority";

fn check_validity(leaf: &X509Certificate<'_>, now: UnixTime) -> Result<(), String> {
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let (begin, end) = (
        leaf.validity().not_before.timestamp(),
        leaf.validity().not_after.timestamp(),
    );
    let complaint = |word: &str, limit| {
        format!(
            "x509: certificate has expired or is not yet valid: current time {} is {word} {}",
            instant(now),
            instant(limit)
        )
    };
    if now < begin {
        Err(complaint("before", begin))
    } else if now > end {
        Err(complaint("after", end))
    } else {
        Ok(())
    }
}

fn instant(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map_or_else(|_| seconds.to_string(), |at| at.to_string())
}

/// The subject alternative names of a certificate.
#[derive(Debug, Default)]
struct CertificateNames {
    dns: Vec<String>,
    addresses: Vec<IpAddr>,
}

impl CertificateNames {
    fn is_empty(&self) -> bool {
        self.dns.is_empty() && self.addresses.is_empty()
    }
}

fn names(leaf: &X509Certificate<'_>) -> CertificateNames {
    let extension = leaf.subject_alternative_name().ok().flatten();
    let mut names = CertificateNames::default();
    for name in extension.iter().flat_map(|names| &names.value.general_names) {
        match name {
            GeneralName::DNSName(name) => names.dns.push((*name).to_owned()),
            GeneralName::IPAddress(bytes) => {
                let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
                let address = v4.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from));
                names.addresses.extend(address);
            }
            _ => {}
        }
    }
    names
}

fn check_name(
    leaf: &X509Certificate<'_>,
    names: &CertificateNames,
    wanted: &ServerName<'_>,
) -> Result<(), String> {
    if let ServerName::IpAddress(wanted) = wanted {
        let wanted = IpAddr::from(*wanted);
        if names.addresses.contains(&wanted) {
            return Ok(());
        }
        return Err(if names.addresses.is_empty() {
            format!("x509: cannot validate certificate for {wanted} because it doesn't contain any IP SANs")
        } else {
            let listed: Vec<String> = names.addresses.iter().map(IpAddr::to_string).collect();
            format!(
                "x509: certificate is valid for {}, not {wanted}",
                listed.join(", ")
            )
        });
    }
    let wanted = wanted.to_str();
    let covers = |name: &String| {
        name.eq_ignore_ascii_case(&wanted)
            || name.strip_prefix("*.").is_some_and(|domain| {
                wanted
                    .split_once('.')
                    .is_some_and(|(_, rest)| rest.eq_ignore_ascii_case(domain))
            })
    };
    if names.dns.iter().any(covers) {
        return Ok(());
    }
    if !names.dns.is_empty() {
        let listed = names.dns.join(", ");
        return Err(format!("x509: certificate is valid for {listed}, not {wanted}"));
    }
    let common_name = leaf
        .subject()
        .iter_common_name()
        .next()
        .and_then(|name| name.as_str().ok());
    Err(
        if names.is_empty() && common_name.is_some_and(|name| name.contains('.')) {
            "x509: certificate relies on legacy Common Name field, use SANs instead".to_owned()
        } else {
            format!("x509: certificate is not valid for any names, but wanted to match {wanted}")
        },
    )
}

/// rustls's objections in Go's words.
fn explain(error: &CertificateError, leaf: &X509Certificate<'_>) -> String {
    use CertificateError as E;
    match error {
        E::UnknownIssuer => UNKNOWN_AUTHORITY.to_owned(),
        E::BadSignature => {
            let issuer = leaf
                .issuer()
                .iter_common_name()
                .next()
                .and_then(|name| name.as_str().ok());
            format!(
                "{UNKNOWN_AUTHORITY} (possibly because of \"x509: ECDSA verification failure\" while trying to \
                 verify candidate authority certificate {:?})",
                issuer.unwrap_or("serial:0")
            )
        }
        E::InvalidPurpose | E::InvalidPurposeContext { .. } => {
            "x509: certificate specifies an incompatible key usage".to_owned()
        }
        // The remaining errors are webpki's own, most likely for a CA certificate that is served but not in the bundle.
        E::Other(_) => UNKNOWN_AUTHORITY.to_owned(),
        other => format!("x509: {other}"),
    }
}
