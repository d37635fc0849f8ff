//! The TLS side of a probe: what a hook trusts, and a verifier that remembers what it saw.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, Resumption};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, CipherSuite, ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

use super::bundle::Bundle;
use super::parity::{self, Objection, Presented};
use crate::domain::time::Time;
use crate::io::lock;

/// Bundles kept parsed. A cluster has a few hundred hooks at most, and many share a bundle.
const MOST_BUNDLES: usize = 512;

#[derive(Debug, Clone)]
pub(super) enum Trust {
    /// `caBundle` is empty: the system's roots.
    System {
        /// Whether the hook is backed by a Service; see [`parity::judge_by_system_roots`].
        service: bool,
    },
    /// The certificates of `caBundle`; none when it is junk.
    Bundle(Arc<Bundle>),
    /// Any certificate (`insecureSkipTLSVerify` of an APIService). The handshake's signature must still be right, as
    /// with Go.
    Anything,
}

impl Trust {
    /// Whether there is a bundle and not one certificate in it.
    pub(super) fn is_junk(&self) -> bool {
        matches!(self, Self::Bundle(bundle) if bundle.anchors.is_empty())
    }

    /// The last `notAfter` of the bundle; `None` without a bundle or when it is junk.
    pub(super) fn ends(&self) -> Option<Time> {
        match self {
            Self::System { .. } | Self::Anything => None,
            Self::Bundle(bundle) => bundle.latest_end(),
        }
    }
}

/// Everything about TLS that outlives one probe.
#[derive(Debug)]
pub(super) struct TrustStore {
    provider: Arc<CryptoProvider>,
    /// The configuration that all handshakes share. Its verifier trusts nothing; each handshake replaces it in a clone.
    base: ClientConfig,
    /// The system's roots, or why there are none.
    system: Result<Arc<dyn ServerCertVerifier>, Error>,
    bundles: Mutex<Bundles>,
}

#[derive(Debug, Default)]
struct Bundles {
    parsed: HashMap<Arc<[u8]>, Parsed>,
    uses: u64,
}

#[derive(Debug)]
struct Parsed {
    bundle: Arc<Bundle>,
    last_use: u64,
}

impl TrustStore {
    /// Reads the system's roots.
    ///
    /// # Errors
    /// When the provider can do neither TLS 1.2 nor 1.3.
    pub(super) fn new(provider: Arc<CryptoProvider>) -> Result<Self, Error> {
        let provider = preferring_as_go(provider);
        let system = rustls_platform_verifier::Verifier::new(Arc::clone(&provider));
        let system = system.map(|verifier| Arc::new(verifier) as Arc<dyn ServerCertVerifier>);
        let nobody = Arc::new(HandshakeVerifier {
            provider: Arc::clone(&provider),
            system: system.clone(),
            trust: Trust::Bundle(Arc::default()),
            sighting: Arc::default(),
        });
        let mut base = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&nobody) as Arc<dyn ServerCertVerifier>)
            .with_client_cert_resolver(nobody);
        // As the API server: HTTP/1.1 only (kubernetes#75791) and no session cache.
        base.alpn_protocols = vec![b"http/1.1".to_vec()];
        base.resumption = Resumption::disabled();
        Ok(Self {
            provider,
            base,
            system,
            bundles: Mutex::default(),
        })
    }

    /// What a hook with this `caBundle` trusts.
    pub(super) fn of(&self, ca_bundle: &Arc<[u8]>, service: bool) -> Trust {
        if ca_bundle.is_empty() {
            return Trust::System { service };
        }
        let mut bundles = lock(&self.bundles);
        bundles.uses += 1;
        let now = bundles.uses;
        if let Some(known) = bundles.parsed.get_mut(ca_bundle) {
            known.last_use = now;
            return Trust::Bundle(Arc::clone(&known.bundle));
        }
        if bundles.parsed.len() >= MOST_BUNDLES {
            let oldest = bundles.parsed.iter().min_by_key(|(_, known)| known.last_use);
            if let Some(key) = oldest.map(|(key, _)| Arc::clone(key)) {
                bundles.parsed.remove(&key);
            }
        }
        let bundle = Arc::new(Bundle::read(ca_bundle));
        let parsed = Parsed {
            bundle: Arc::clone(&bundle),
            last_use: now,
        };
        bundles.parsed.insert(Arc::clone(ca_bundle), parsed);
        Trust::Bundle(bundle)
    }

    /// The configuration for one handshake, whose findings go to `sighting`.
    pub(super) fn config(&self, trust: Trust, sighting: &Arc<Sighting>) -> Arc<ClientConfig> {
        let witness = Arc::new(HandshakeVerifier {
            provider: Arc::clone(&self.provider),
            system: self.system.clone(),
            trust,
            sighting: Arc::clone(sighting),
        });
        let mut config = self.base.clone();
        config
            .dangerous()
            .set_certificate_verifier(Arc::clone(&witness) as Arc<dyn ServerCertVerifier>);
        config.client_auth_cert_resolver = witness;
        Arc::new(config)
    }
}

/// The same provider, which offers AES-128 first, as an API server does (Go 1.26, `crypto/tls` `defaultCipherSuitesTLS13` and
/// `cipherSuitesPreferenceOrder`). Its SHA-256 costs both sides less than the SHA-384 that rustls prefers.
fn preferring_as_go(provider: Arc<CryptoProvider>) -> Arc<CryptoProvider> {
    const FIRST: [CipherSuite; 3] = [
        CipherSuite::TLS13_AES_128_GCM_SHA256,
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    ];
    let mut provider = CryptoProvider::clone(&provider);
    provider
        .cipher_suites
        .sort_by_key(|offered| !FIRST.contains(&offered.suite()));
    Arc::new(provider)
}

/// What was seen of the peer, readable also after the handshake failed.
#[derive(Debug, Default)]
pub(super) struct Sighting(Mutex<SeenCertificate>);

#[derive(Debug, Clone, Default)]
pub(super) struct SeenCertificate {
    /// `notBefore` and `notAfter` of the served certificate.
    pub(super) validity: Option<[Time; 2]>,
    /// Until when the bundle verifies the served chain, if it does.
    pub(super) vouched_until: Option<Time>,
    /// Why we aborted the handshake, if we did.
    pub(super) objection: Option<Objection>,
    /// Whether the server asked for a client certificate.
    pub(super) asked: bool,
}

impl Sighting {
    /// What was seen so far.
    pub(super) fn seen(&self) -> SeenCertificate {
        lock(&self.0).clone()
    }
}

#[derive(Debug)]
struct HandshakeVerifier {
    provider: Arc<CryptoProvider>,
    system: Result<Arc<dyn ServerCertVerifier>, Error>,
    trust: Trust,
    sighting: Arc<Sighting>,
}

impl HandshakeVerifier {
    /// Verifies the served chain; returns until when a bundle verifies it, where that is known.
    fn judge(&self, presented: &Presented<'_>, ocsp: &[u8]) -> Result<Option<i64>, Objection> {
        match (&self.trust, &self.system) {
            (Trust::Anything, _) => Ok(None),
            (Trust::Bundle(bundle), _) => bundle.taken.unless_known(presented, &bundle.anchors, || {
                parity::judge(presented, &bundle.anchors, &self.provider)?;
                Ok(parity::vouched_until(presented, &bundle.anchors, &self.provider))
            }),
            (Trust::System { .. }, Err(error)) => Err(Objection::Differs(format!(
                "this machine has no roots to verify with: {error}"
            ))),
            (Trust::System { service }, Ok(system)) => system
                .verify_server_cert(
                    presented.leaf,
                    presented.intermediates,
                    presented.name,
                    ocsp,
                    presented.now,
                )
                .map(|_| None)
                .map_err(|error| parity::judge_by_system_roots(presented, &error, *service)),
        }
    }

    fn signature(
        &self,
        leaf: &CertificateDer<'_>,
        verified: Result<HandshakeSignatureValid, Error>,
    ) -> Result<HandshakeSignatureValid, Error> {
        if let Err(error) = &verified {
            lock(&self.sighting.0).objection = Some(parity::judge_signature(leaf, error));
        }
        verified
    }
}

impl ServerCertVerifier for HandshakeVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let presented = Presented {
            leaf,
            intermediates,
            name,
            now,
        };
        let judged = self.judge(&presented, ocsp);
        let mut seen = lock(&self.sighting.0);
        seen.validity = parity::validity(leaf).map(|both| both.map(Time::from_unix_seconds));
        match judged {
            Ok(until) => {
                seen.vouched_until = until.map(Time::from_unix_seconds);
                Ok(ServerCertVerified::assertion())
            }
            Err(objection) => {
                seen.objection = Some(objection);
                // The text is in the sighting; the server only gets the matching alert.
                Err(CertificateError::ApplicationVerificationFailure.into())
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        self.signature(leaf, verify_tls12_signature(message, leaf, signed, algorithms))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        self.signature(leaf, verify_tls13_signature(message, leaf, signed, algorithms))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// Offers no client certificate, and records that the server asked for one.
impl ResolvesClientCert for HandshakeVerifier {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        lock(&self.sighting.0).asked = true;
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}
