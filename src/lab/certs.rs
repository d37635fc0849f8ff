//! Certificates of the lab: an authority and what it signs for the backends, good and bad.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A certificate authority that lives in memory only.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    /// Makes an authority with a fresh key.
    ///
    /// Two authorities of the same name share nothing but that name: a bundle of the one is exactly the wrong
    /// bundle for certificates of the other, as after a rotation that went half way.
    ///
    /// # Errors
    /// When the key cannot be made.
    pub fn new(name: &str) -> anyhow::Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        set_validity(&mut params, -2, 3_650);
        let key = KeyPair::generate().context("making the key of a lab authority")?;
        let issuer = CertifiedIssuer::self_signed(params, key).context("signing a lab authority")?;
        Ok(Self { issuer })
    }

    /// The authority's own certificate as PEM: what goes into a hook's `caBundle`.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// The authority's own certificate.
    pub fn der(&self) -> &CertificateDer<'static> {
        self.issuer.der()
    }

    /// A certificate for `server_name` that is valid from yesterday for a year.
    ///
    /// # Errors
    /// When the name is not a DNS name, or signing fails.
    pub fn issue(&self, server_name: &str) -> anyhow::Result<ServingCertificate> {
        self.issue_names(&[server_name])
    }

    /// As [`Self::issue`], for several names, of which the first is the subject's.
    ///
    /// # Errors
    /// When one is neither a DNS name nor an address, or signing fails.
    pub fn issue_names(&self, names: &[&str]) -> anyhow::Result<ServingCertificate> {
        self.issue_for_days(names, -1, 365)
    }

    /// A certificate for `server_name` that expired two days ago.
    ///
    /// # Errors
    /// When the name is not a DNS name, or signing fails.
    pub fn issue_expired(&self, server_name: &str) -> anyhow::Result<ServingCertificate> {
        self.issue_for_days(&[server_name], -90, -2)
    }

    /// A client certificate of a user (CN) and a group (O), valid from yesterday for a year or expired two days ago.
    ///
    /// # Errors
    /// When signing fails.
    pub fn issue_client(&self, user: &str, group: &str, expired: bool) -> anyhow::Result<ServingCertificate> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, user);
        params.distinguished_name.push(DnType::OrganizationName, group);
        let (from, until) = if expired { (-90, -2) } else { (-1, 365) };
        self.sign(params, ExtendedKeyUsagePurpose::ClientAuth, from, until)
            .with_context(|| format!("a client certificate for {user:?}"))
    }

    fn issue_for_days(&self, names: &[&str], from: i64, until: i64) -> anyhow::Result<ServingCertificate> {
        let owned: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params =
            CertificateParams::new(owned).with_context(|| format!("a certificate for {names:?}"))?;
        if let Some(first) = names.first() {
            params.distinguished_name.push(DnType::CommonName, *first);
        }
        self.sign(params, ExtendedKeyUsagePurpose::ServerAuth, from, until)
            .with_context(|| format!("a certificate for {names:?}"))
    }

    fn sign(
        &self,
        mut params: CertificateParams,
        usage: ExtendedKeyUsagePurpose,
        from: i64,
        until: i64,
    ) -> anyhow::Result<ServingCertificate> {
        params.extended_key_usages = vec![usage];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, from, until);
        let key = KeyPair::generate().context("making the key of a certificate")?;
        let certificate = params
            .signed_by(&key, &self.issuer)
            .context("signing a certificate")?;
        Ok(ServingCertificate {
            chain: vec![certificate.der().clone(), self.issuer.der().clone()],
            key: key.serialize_der(),
        })
    }
}

/// A certificate with its key, ready to be served.
#[derive(Clone)]
pub struct ServingCertificate {
    chain: Vec<CertificateDer<'static>>,
    key: Vec<u8>,
}

impl ServingCertificate {
    /// The served chain, leaf first.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    /// The served chain as PEM.
    pub fn chain_pem(&self) -> String {
        self.chain
            .iter()
            .map(|certificate| pem("CERTIFICATE", certificate))
            .collect()
    }

    /// The private key as PEM.
    pub fn key_pem(&self) -> String {
        pem("PRIVATE KEY", &self.key)
    }

    /// A TLS server that shows this certificate, speaks HTTP/1.1 only and resumes no sessions.
    ///
    /// No resumption, because the API server's client never resumes: every new connection is to show the
    /// certificate that is served now.
    ///
    /// # Errors
    /// When rustls does not accept the key or the chain.
    pub fn server_config(&self) -> anyhow::Result<Arc<ServerConfig>> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.clone()));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .context("choosing TLS versions")?
            .with_no_client_auth()
            .with_single_cert(self.chain.clone(), key)
            .context("loading a serving certificate")?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        Ok(Arc::new(config))
    }
}

/// PEM without line breaks inside: every reader takes it.
fn pem(label: &str, der: &[u8]) -> String {
    let body = BASE64_STANDARD.encode(der);
    format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n")
}

/// Sets validity in whole days relative to today: the certificate library's dates have no finer constructor.
fn set_validity(params: &mut CertificateParams, from_days: i64, until_days: i64) {
    let date = |days: i64| {
        let hours = days * DAY.as_secs() as i64 / 3_600;
        let day = (Timestamp::now() + SignedDuration::from_hours(hours)).to_zoned(TimeZone::UTC);
        date_time_ymd(i32::from(day.year()), day.month() as u8, day.day() as u8)
    };
    params.not_before = date(from_days);
    params.not_after = date(until_days);
}

#[cfg(test)]
mod tests {
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier;
    use rustls::pki_types::{ServerName, UnixTime};
    use rustls::{CertificateError, RootCertStore};

    use super::*;

    const NAME: &str = "opa.opa.svc";

    fn verify(authority: &Authority, served: &ServingCertificate, name: &str) -> Result<(), rustls::Error> {
        let mut roots = RootCertStore::empty();
        roots.add(authority.der().clone()).expect("the authority as root");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .expect("a verifier")
            .verify_server_cert(
                &served.chain()[0],
                &served.chain()[1..],
                &ServerName::try_from(name).expect("a name"),
                &[],
                UnixTime::now(),
            )
            .map(|_| ())
    }

    fn fault(result: Result<(), rustls::Error>) -> CertificateError {
        match result {
            Err(rustls::Error::InvalidCertificate(error)) => error,
            other => panic!("not a certificate error: {other:?}"),
        }
    }

    #[test]
    fn a_valid_certificate_verifies_under_its_own_authority_and_name_only() {
        let (ours, other) = (Authority::new("lab").unwrap(), Authority::new("lab").unwrap());
        let served = ours.issue(NAME).unwrap();
        verify(&ours, &served, NAME).expect("valid");
        let wrong_name = fault(verify(&ours, &served, "policy.policy.svc"));
        assert!(
            matches!(wrong_name, CertificateError::NotValidForNameContext { .. }),
            "{wrong_name:?}"
        );
        let wrong_authority = fault(verify(&other, &served, NAME));
        assert!(
            matches!(
                wrong_authority,
                CertificateError::UnknownIssuer | CertificateError::BadSignature
            ),
            "{wrong_authority:?}"
        );
    }

    #[test]
    fn an_expired_certificate_is_refused_for_that_reason() {
        let ours = Authority::new("lab").unwrap();
        let expired = fault(verify(&ours, &ours.issue_expired(NAME).unwrap(), NAME));
        assert!(
            matches!(expired, CertificateError::ExpiredContext { .. }),
            "{expired:?}"
        );
    }
}
